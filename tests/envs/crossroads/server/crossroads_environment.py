"""A plain environment; what is special is the app."""

from typing import Any, Optional

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

try:
    from ..models import CrossroadsAction, CrossroadsObservation
except ImportError:
    from models import CrossroadsAction, CrossroadsObservation


class CrossroadsEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.ways: list[str] = []
        self._state = State(episode_id="crossroads", step_count=0)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> CrossroadsObservation:
        self.ways = []
        self._state = State(episode_id=episode_id or "crossroads", step_count=0)
        return CrossroadsObservation()

    def step(self, action: CrossroadsAction, timeout_s: Optional[float] = None, **kwargs: Any) -> CrossroadsObservation:
        self.ways.append(action.way)
        self._state.step_count += 1
        return CrossroadsObservation(ways=self.ways)

    @property
    def state(self) -> State:
        return self._state
