"""An environment with module-global state: two sessions in one process would mix."""

from typing import Any, Optional

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

try:
    from ..models import LoneAction, LoneObservation
except ImportError:
    from models import LoneAction, LoneObservation

TOTAL = 0
STATE = State(episode_id="lone", step_count=0)


class LoneEnvironment(Environment):
    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> LoneObservation:
        global TOTAL, STATE
        TOTAL = seed or 0
        STATE = State(episode_id=episode_id or "lone", step_count=0)
        return LoneObservation(total=TOTAL)

    def step(self, action: LoneAction, timeout_s: Optional[float] = None, **kwargs: Any) -> LoneObservation:
        global TOTAL
        TOTAL += action.add
        STATE.step_count += 1
        return LoneObservation(total=TOTAL, reward=TOTAL)

    @property
    def state(self) -> State:
        return STATE
