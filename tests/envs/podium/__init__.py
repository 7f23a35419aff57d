"""A ranking that needs a library of its own."""

from .client import PodiumEnv
from .models import PodiumAction, PodiumObservation

__all__ = ["PodiumAction", "PodiumEnv", "PodiumObservation"]
