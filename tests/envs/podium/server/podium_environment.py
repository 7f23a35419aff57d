"""An environment with a dependency from an index."""

from typing import Any, Optional

import sortedcontainers
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

try:
    from ..models import PodiumAction, PodiumObservation
except ImportError:
    from models import PodiumAction, PodiumObservation


class PodiumEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.ranking = sortedcontainers.SortedList()
        self._state = State(episode_id="podium", step_count=0)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> PodiumObservation:
        self.ranking.clear()
        self._state = State(episode_id=episode_id or "podium", step_count=0)
        return PodiumObservation(library=sortedcontainers.__version__)

    def step(self, action: PodiumAction, timeout_s: Optional[float] = None, **kwargs: Any) -> PodiumObservation:
        self.ranking.add((-action.points, action.name))
        self._state.step_count += 1
        return PodiumObservation(ranking=list(self.ranking), library=sortedcontainers.__version__, reward=action.points)

    @property
    def state(self) -> State:
        return self._state
