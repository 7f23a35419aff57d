"""What a client's calls give."""

from dataclasses import dataclass
from typing import Any, Dict, Generic, Optional, TypeVar

ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")


@dataclass
class StepResult(Generic[ObsT]):
    """An observation with its reward, and whether the episode is over."""

    observation: ObsT
    reward: Optional[float] = None
    done: bool = False
    metadata: Optional[Dict[str, Any]] = None


def __getattr__(name):
    from .. import _missing

    raise _missing.name(__name__, name)
