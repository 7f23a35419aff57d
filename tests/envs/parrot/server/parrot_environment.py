"""A sync environment with typed fields."""

import random
from typing import Any, Optional
from uuid import uuid4

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

try:
    from ..models import ParrotAction, ParrotObservation
except ImportError:
    from models import ParrotAction, ParrotObservation


class ParrotEnvironment(Environment[ParrotAction, ParrotObservation, State]):
    SUPPORTS_CONCURRENT_SESSIONS: bool = True

    def __init__(self):
        super().__init__()
        self._state = State(episode_id=str(uuid4()), step_count=0)
        self._random = random.Random(0)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> ParrotObservation:
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        self._random = random.Random(seed)
        feather = self._random.choice(["red", "green", "blue", "grey"]) if seed is not None else None
        return ParrotObservation(said=kwargs.get("greeting", "squawk"), feather=feather, reward=0.0)

    def step(self, action: ParrotAction, timeout_s: Optional[float] = None, **kwargs: Any) -> ParrotObservation:
        self._state.step_count += 1
        said = " ".join([action.message] * action.times)
        said = said.upper() if action.volume == "high" else said
        return ParrotObservation(said=said, length=len(said), done=self._state.step_count >= 3, reward=len(said) / 10)

    @property
    def state(self) -> State:
        return self._state
