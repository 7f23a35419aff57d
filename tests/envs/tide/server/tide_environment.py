"""An environment whose methods are coroutines; two of them run at once on one loop."""

import asyncio
from typing import Any, Optional

from openenv.core.env_server import Environment, State

try:
    from ..models import TideAction, TideObservation
except ImportError:
    from models import TideAction, TideObservation


class TideEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.levels: list[int] = []
        self._state = State(step_count=0)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any):
        raise NotImplementedError("tide is async: use reset_async")

    def step(self, action: TideAction, timeout_s: Optional[float] = None, **kwargs: Any):
        raise NotImplementedError("tide is async: use step_async")

    async def reset_async(self, seed: Optional[int] = None, episode_id: Optional[str] = None) -> TideObservation:
        await asyncio.sleep(0)
        self.levels = [seed or 0]
        self._state = State(episode_id=episode_id, step_count=0)
        return TideObservation(level=self.levels[-1], history=self.levels)

    async def step_async(self, action: TideAction, timeout_s: Optional[float] = None, **kwargs: Any) -> TideObservation:
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0.001))
        if action.by == 0:
            raise ValueError("still water")
        base = self.levels[-1] if self.levels else 0
        self.levels = [*self.levels, base + action.by]
        self._state.step_count += 1
        return TideObservation(level=self.levels[-1], history=self.levels, reward=-abs(self.levels[-1]))

    @property
    def state(self) -> State:
        return self._state
