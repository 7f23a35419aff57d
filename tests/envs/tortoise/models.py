"""What tortoise takes and shows."""

from openenv.core.env_server.types import Action, Observation
from pydantic import Field


class TortoiseAction(Action):
    seconds: float = Field(default=0, ge=0, le=3600)
    meet: int = Field(default=0, ge=0, description="Wait until so many sessions are in a step at once")


class TortoiseObservation(Observation):
    walked: float = 0.0
