"""An environment with large observations."""

from typing import Any, Optional

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

try:
    from ..models import MosaicAction, MosaicObservation
except ImportError:
    from models import MosaicAction, MosaicObservation

SIDE = 256


class MosaicEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State(episode_id="mosaic", step_count=0)
        self.grid = [[0] * SIDE for _ in range(SIDE)]

    def reset(self, seed: Optional[int] = None, **kwargs: Any) -> MosaicObservation:
        self._state = State(episode_id="mosaic", step_count=0)
        self.grid = [[(seed or 1) * (r * SIDE + c) % 9973 for c in range(SIDE)] for r in range(SIDE)]
        return MosaicObservation(grid=self.grid)

    def step(self, action: MosaicAction, **kwargs: Any) -> MosaicObservation:
        self.grid[action.row][action.column] = action.value
        self._state.step_count += 1
        return MosaicObservation(grid=self.grid, text="\u00e9" * 1000, reward=1)

    @property
    def state(self) -> State:
        return self._state
