"""Works on the thread that made it and on no other."""

from .client import HomebodyEnv
from .models import HomebodyAction, HomebodyObservation

__all__ = ["HomebodyAction", "HomebodyEnv", "HomebodyObservation"]
