"""Water that rises and falls, with async methods."""

from .client import TideEnv
from .models import TideAction, TideObservation

__all__ = ["TideAction", "TideEnv", "TideObservation"]
