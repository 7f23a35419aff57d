"""Routes of its own beside the environment's."""

from .client import CrossroadsEnv
from .models import CrossroadsAction, CrossroadsObservation

__all__ = ["CrossroadsAction", "CrossroadsEnv", "CrossroadsObservation"]
