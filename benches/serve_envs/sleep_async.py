"""The environment of ``sleep_sync``, waiting in asynchronous methods."""

import asyncio
import os
from typing import Any, Optional

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class SleepAction(Action):
    seconds: float


class SleepObservation(Observation):
    slept: float = 0.0


class SleepEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id=None, step_count=0)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> SleepObservation:
        raise NotImplementedError("reset_async is meant")

    def step(self, action: SleepAction, timeout_s: Optional[float] = None, **kwargs: Any) -> SleepObservation:
        raise NotImplementedError("step_async is meant")

    async def reset_async(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> SleepObservation:
        self._state = State(episode_id=episode_id, step_count=0)
        return SleepObservation(done=False, reward=0.0)

    async def step_async(self, action: SleepAction, timeout_s: Optional[float] = None, **kwargs: Any) -> SleepObservation:
        self._state.step_count += 1
        await asyncio.sleep(action.seconds)
        return SleepObservation(slept=action.seconds, done=False, reward=1.0)

    @property
    def state(self) -> State:
        return self._state


app = create_app(
    SleepEnvironment,
    SleepAction,
    SleepObservation,
    env_name="sleep_async",
    max_concurrent_envs=int(os.getenv("MAX_CONCURRENT_ENVS", "8")),
)
