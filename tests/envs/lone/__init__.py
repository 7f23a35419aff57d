"""One session only, with state of the module."""

from .client import LoneEnv
from .models import LoneAction, LoneObservation

__all__ = ["LoneAction", "LoneEnv", "LoneObservation"]
