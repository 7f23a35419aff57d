"""Observations whose metadata outweighs them."""

from .client import MarginEnv
from .models import MarginAction, MarginObservation

__all__ = ["MarginAction", "MarginEnv", "MarginObservation"]
