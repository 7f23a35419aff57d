"""An environment that needs arguments."""

import random
from typing import Optional

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

try:
    from ..models import DiceAction, DiceObservation
except ImportError:
    from models import DiceAction, DiceObservation


class DiceEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, sides: int, count: int):
        super().__init__()
        self.sides, self.count = sides, count
        self.random = random.Random(0)
        self.rolled: list[int] = []
        self._state = State(episode_id="dice", step_count=0)

    def roll(self) -> int:
        return self.random.randint(1, self.sides)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None) -> DiceObservation:
        self.random = random.Random(seed or 0)
        self.rolled = [self.roll() for _ in range(self.count)]
        self._state = State(episode_id=episode_id or "dice", step_count=0)
        return DiceObservation(rolled=self.rolled, sides=self.sides)

    def step(self, action: DiceAction) -> DiceObservation:
        if len(action.keep) != self.count:
            raise ValueError(f"{self.count} dice, not {len(action.keep)}")
        self.rolled = [old if keep else self.roll() for keep, old in zip(action.keep, self.rolled)]
        self._state.step_count += 1
        return DiceObservation(rolled=self.rolled, sides=self.sides, reward=sum(self.rolled), done=self._state.step_count == 2)

    @property
    def state(self) -> State:
        return self._state
