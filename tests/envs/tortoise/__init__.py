"""Steps that take their time."""

from .client import TortoiseEnv
from .models import TortoiseAction, TortoiseObservation

__all__ = ["TortoiseAction", "TortoiseEnv", "TortoiseObservation"]
