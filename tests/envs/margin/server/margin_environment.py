"""An environment that says most in metadata; a rubric scores and a transform marks each observation."""

from typing import Any, Optional

from openenv.core.env_server.interfaces import Environment, State, Transform
from openenv.core.rubrics.base import Rubric

try:
    from ..models import MarginAction, MarginObservation
except ImportError:
    from models import MarginAction, MarginObservation


class Mark(Transform):
    def __call__(self, observation):
        observation.metadata["marked"] = True
        return observation


class ByLine(Rubric):
    def forward(self, action, observation) -> float:
        return 1.0 if action.line % 2 else 0.25


class MarginEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__(transform=Mark(), rubric=ByLine())
        self._state = State(episode_id="margin", step_count=0)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> MarginObservation:
        self._reset_rubric()
        self._state = State(episode_id=episode_id or "margin", step_count=0)
        return self._apply_transform(MarginObservation(page="first", legal=[1, 2], metadata={"seed": seed, "kwargs": sorted(kwargs)}))

    def step(self, action: MarginAction, timeout_s: Optional[float] = None, **kwargs: Any) -> MarginObservation:
        self._state.step_count += 1
        notes = {
            "notes": [{"line": n, "text": "n" * n, "tags": ["a", None, {"deep": [1, [2, [3]]]}]} for n in range(20)],
            "action": action.model_dump(),
            "timing": {"ms": 1.5, "nested": {"nan": float("nan"), "big": 2**70}},
        }
        observation = MarginObservation(page=None, info={"1": notes}, metadata=notes)
        observation.reward = self._apply_rubric(action, observation)
        return self._apply_transform(observation)

    @property
    def state(self) -> State:
        return self._state
