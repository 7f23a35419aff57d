"""Dice made by a factory with arguments."""

from .client import DiceEnv
from .models import DiceAction, DiceObservation

__all__ = ["DiceAction", "DiceEnv", "DiceObservation"]
