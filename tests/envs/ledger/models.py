"""What ledger takes, shows and holds."""

from openenv.core.env_server.types import Action, Observation, State
from pydantic import BaseModel, Field


class Entry(BaseModel):
    who: str
    amount: float


class LedgerAction(Action):
    entries: list[Entry] = Field(min_length=1)


class LedgerObservation(Observation):
    balance: float = 0.0
    by_name: dict[str, float] = Field(default_factory=dict)


class LedgerState(State):
    balances: dict[str, float] = Field(default_factory=dict)
    entries: list[Entry] = Field(default_factory=list)
    closed: bool = False
