"""A type of its own with to_json and from_json."""

from .client import CompassEnv
from .models import CompassAction, CompassObservation

__all__ = ["CompassAction", "CompassEnv", "CompassObservation"]
