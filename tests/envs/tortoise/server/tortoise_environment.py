"""An environment that blocks in time.sleep, and one step of which can wait for those of other sessions."""

import os
import time
from pathlib import Path
from typing import Any, Optional
from uuid import uuid4

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

try:
    from ..models import TortoiseAction, TortoiseObservation
except ImportError:
    from models import TortoiseAction, TortoiseObservation


class TortoiseEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.walked = 0.0
        self._state = State(episode_id="tortoise", step_count=0)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> TortoiseObservation:
        self.walked = 0.0
        self._state = State(episode_id=episode_id or "tortoise", step_count=0)
        return TortoiseObservation()

    def meet(self, count: int) -> None:
        place = Path(os.environ["TORTOISE_MEETING"])
        (place / uuid4().hex).touch()
        while len(list(place.iterdir())) < count:
            time.sleep(0.01)

    def step(self, action: TortoiseAction, timeout_s: Optional[float] = None, **kwargs: Any) -> TortoiseObservation:
        time.sleep(action.seconds)
        if action.meet:
            self.meet(action.meet)
        self.walked += action.seconds
        self._state.step_count += 1
        return TortoiseObservation(walked=self.walked, reward=self.walked)

    @property
    def state(self) -> State:
        return self._state
