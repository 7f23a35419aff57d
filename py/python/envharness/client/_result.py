"""What a reset or a step gives."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

ObsT = TypeVar("ObsT")


class StepResult(Generic[ObsT]):
    """The outcome of a reset or a step.

    Attributes:
        observation: What the environment shows: of the client's observation type, else a dict.
        reward: The reward as the environment gave it; None where there is none, after a reset for one.
        done: Whether the episode is over.
        metadata: What the environment adds, or None.
    """

    __slots__ = ("done", "metadata", "observation", "reward")

    def __init__(
        self, observation: ObsT, reward: Any = None, done: bool = False, metadata: dict[str, Any] | None = None
    ) -> None:
        """Makes a result; the arguments are the attributes."""
        self.observation, self.reward, self.done, self.metadata = observation, reward, done, metadata

    @property
    def truncated(self) -> bool:
        """Whether the episode was cut off, where the environment tells it apart from an end of its own; else False."""
        told = _own(self.observation, "truncated")
        return bool((self.metadata or {}).get("truncated")) if told is None else bool(told)

    @property
    def terminated(self) -> bool:
        """Whether the episode came to an end of its own; where the environment tells only ``done``, that."""
        told = _own(self.observation, "terminated")
        if told is None:
            told = (self.metadata or {}).get("terminated")
        return bool(self.done) and not self.truncated if told is None else bool(told)

    def __repr__(self) -> str:
        """As it was made."""
        more = "" if self.metadata is None else f", metadata={self.metadata!r}"
        return f"StepResult(observation={self.observation!r}, reward={self.reward!r}, done={self.done!r}{more})"

    def __eq__(self, other: object) -> bool:
        """Whether all four are equal."""
        if not isinstance(other, StepResult):
            return NotImplemented
        mine = (self.observation, self.reward, self.done, self.metadata)
        return mine == (other.observation, other.reward, other.done, other.metadata)

    __hash__ = None  # type: ignore[assignment]


def _own(observation: Any, name: str) -> Any:
    """A field of an observation, or None."""
    return observation.get(name) if isinstance(observation, dict) else getattr(observation, name, None)
