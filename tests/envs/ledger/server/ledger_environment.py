"""An environment with a state class of its own, and tasks by split."""

from typing import Any, Optional

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata

try:
    from ..models import LedgerAction, LedgerObservation, LedgerState
except ImportError:
    from models import LedgerAction, LedgerObservation, LedgerState

TASKS = {"train": [{"id": f"t{n}", "goal": n * 10} for n in range(4)], "test": [{"id": "e0", "goal": 5}], "extra": []}


class LedgerEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = LedgerState(episode_id="none")

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, opening: float = 0.0) -> LedgerObservation:
        self._state = LedgerState(episode_id=episode_id or "none", balances={"opening": opening})
        return LedgerObservation(balance=opening, by_name=dict(self._state.balances))

    def step(self, action: LedgerAction, timeout_s: Optional[float] = None, **kwargs: Any) -> LedgerObservation:
        state = self._state
        for entry in action.entries:
            state.balances[entry.who] = state.balances.get(entry.who, 0.0) + entry.amount
            state.entries.append(entry)
        state.step_count += 1
        state.note = "a field that the class does not know"
        balance = sum(state.balances.values())
        state.closed = balance < 0
        return LedgerObservation(balance=balance, by_name=dict(state.balances), done=state.closed, reward=balance)

    @property
    def state(self) -> LedgerState:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name="Ledger", description="Keeps books", version="2.1.0", author="tests")

    def list_splits(self):
        return ["train", "test", "extra", {"name": "own", "type": "train"}]

    def list_tasks(self, split: str):
        return TASKS[split]

    def num_tasks(self, split: str):
        return len(TASKS[split])

    def get_task(self, split: str, index: int):
        return TASKS[split][index]

    def get_task_range(self, split: str, start: Optional[int] = None, stop: Optional[int] = None):
        return TASKS[split][start:stop]
