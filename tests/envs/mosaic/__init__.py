"""Grids of some 300 KB."""

from .client import MosaicEnv
from .models import MosaicAction, MosaicObservation

__all__ = ["MosaicAction", "MosaicEnv", "MosaicObservation"]
