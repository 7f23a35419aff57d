"""A thread-affine environment, as browsers and greenlets are; close tells a file where it ran."""

import os
import threading
from typing import Any, Optional

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

try:
    from ..models import HomebodyAction, HomebodyObservation
except ImportError:
    from models import HomebodyAction, HomebodyObservation


class HomebodyEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.home = threading.get_ident()
        self.local = threading.local()
        self.local.visits = ["made"]
        self._state = State(episode_id="homebody", step_count=0)

    def visit(self, name: str) -> HomebodyObservation:
        if threading.get_ident() != self.home:
            raise RuntimeError(f"{name} on a foreign thread")
        self.local.visits.append(name)
        return HomebodyObservation(at_home=True, visits=self.local.visits)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> HomebodyObservation:
        self.local.visits = ["made"]
        self._state = State(episode_id=episode_id or "homebody", step_count=0)
        return self.visit("reset")

    def step(self, action: HomebodyAction, timeout_s: Optional[float] = None, **kwargs: Any) -> HomebodyObservation:
        self._state.step_count += 1
        return self.visit(action.word or "step")

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        if log := os.getenv("HOMEBODY_LOG"):
            with open(log, "a") as file:
                file.write("home\n" if threading.get_ident() == self.home else "away\n")
