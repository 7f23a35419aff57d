"""Says what it hears, with bounds and choices in its fields."""

from .client import ParrotEnv
from .models import ParrotAction, ParrotObservation

__all__ = ["ParrotAction", "ParrotEnv", "ParrotObservation"]
