"""What parrot is told and says."""

from typing import Literal, Optional

from openenv.core.env_server.types import Action, Observation
from pydantic import Field, field_validator


class ParrotAction(Action):
    message: str = Field(..., min_length=1, max_length=100, description="What to say")
    volume: Literal["low", "high"] = "low"
    times: int = Field(default=1, ge=1, le=5)

    @field_validator("message")
    @classmethod
    def no_swearing(cls, value: str) -> str:
        if "damn" in value:
            raise ValueError("parrot is polite")
        return value


class ParrotObservation(Observation):
    said: str = ""
    length: int = 0
    feather: Optional[str] = None
