"""Accounts with a state of its own fields, and tasks."""

from .client import LedgerEnv
from .models import LedgerAction, LedgerObservation, LedgerState

__all__ = ["LedgerAction", "LedgerEnv", "LedgerObservation", "LedgerState"]
