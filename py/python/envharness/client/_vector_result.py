"""What many sessions give with one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from envharness._errors import EnvHarnessError


class Infos(Sequence[dict[str, Any]]):
    """A dict for each slot; those that say nothing are made when they are asked for."""

    __slots__ = ("_count", "_said")

    def __init__(self, count: int, said: dict[int, dict[str, Any]]) -> None:
        """Has ``count`` of them, of which ``said`` are not empty."""
        self._count, self._said = count, said

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    def __getitem__(self, at: Any) -> Any:
        """The one of a slot."""
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(self._count))]
        place = at + self._count if at < 0 else at
        if not 0 <= place < self._count:
            raise IndexError(at)
        return self._said.get(place) or {}

    def __setitem__(self, at: int, info: dict[str, Any]) -> None:
        """Another one for a slot."""
        self._said = {**self._said, at: info}

    def __repr__(self) -> str:
        """As a list of them."""
        return repr(list(self))


@dataclass
class VectorResult:
    """The outcomes of some slots, in their order.

    Arrays are new and writable, but for ``slots``.

    Attributes:
        slots: The slots, n of them.
        observations: An array of shape ``(n, *shape)`` where the contract has a tensor space, else a list of n; zeros or
            None where a slot failed.
        rewards: n rewards: NaN where the environment gave none, or the slot failed.
        dones: Whether each episode is over.
        terminated: Whether it came to an end of its own; where the environment tells only ``done``, that.
        truncated: Whether it was cut off.
        infos: What the environment adds, a dict each.
        errors: What went wrong, by slot: never a made-up reward.
        final_observations: In ``same_step`` mode, the last observation of each episode that ended, None for the others.
        final_infos: The same of its info.
    """

    slots: Any
    observations: Any
    rewards: Any
    dones: Any
    terminated: Any
    truncated: Any
    infos: Sequence[dict[str, Any]]
    errors: dict[int, EnvHarnessError] = field(default_factory=dict)
    final_observations: list[Any] | None = None
    final_infos: list[Any] | None = None

    def raise_errors(self) -> VectorResult:
        """The result itself, where no slot failed.

        Raises:
            EnvHarnessError: The first failure; its details say how many slots failed.
        """
        if self.errors:
            slot = min(self.errors)
            error, note = self.errors[slot], f"slot {slot}; {len(self.errors)} of {len(self.slots)} slots failed"
            if note not in error.details:
                error.details = (*error.details, note)
            raise error
        return self

    def _fail(self, at: int) -> None:
        """Nothing is known of the slot at a place."""
        self.rewards[at] = float("nan")
        self.dones[at] = self.terminated[at] = self.truncated[at] = False
        if self.final_observations is not None and self.final_infos is not None:
            self.final_observations[at] = self.final_infos[at] = None
