"""Dies and hangs where it is told to."""

from .client import BrittleEnv
from .models import BrittleAction, BrittleObservation

__all__ = ["BrittleAction", "BrittleEnv", "BrittleObservation"]
