"""Base classes that authors derive from."""

import inspect
from abc import ABC, abstractmethod
from typing import Any, Dict, Generic, List, Optional, Tuple, TypeVar

from typing_extensions import Protocol, TypedDict

from ... import _missing
from .types import Action, EnvironmentMetadata, Observation, State

ActT = TypeVar("ActT", bound=Action)
ObsT = TypeVar("ObsT", bound=Observation)
StateT = TypeVar("StateT", bound=State)


class Message(TypedDict):
    """One message of a chat, as chat templates take it."""

    role: str
    content: str


class ModelTokenizer(Protocol):
    """What a chat environment needs of a tokenizer; those of transformers have it."""

    def apply_chat_template(
        self, conversation: List[Message], tokenize: bool = True, return_tensors: Optional[str] = None, **kwargs: Any
    ) -> Any:
        """Renders a conversation, as token ids unless ``tokenize`` is false."""
        ...

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> str:
        """Text of token ids."""
        ...


class TaskProvider(Protocol):
    """Methods that an environment over a data set may have; each may be async. None of them may change the environment."""

    def list_splits(self) -> List[Any]:
        """Names or descriptions of the splits."""
        ...

    def list_tasks(self, split: str) -> List[Any]:
        """Tasks of a split, or the first of them where they are many."""
        ...

    def num_tasks(self, split: str) -> int:
        """How many tasks the split has in all."""
        ...

    def get_task(self, split: str, index: int) -> Any:
        """One task; IndexError where there is none at ``index``."""
        ...

    def get_task_range(self, split: str, start: Optional[int] = None, stop: Optional[int] = None) -> List[Any]:
        """Tasks of ``split[start:stop]``."""
        ...


class Transform(ABC, Generic[ObsT]):
    """A function on observations, for instance one that adds a reward."""

    @abstractmethod
    def __call__(self, observation: ObsT) -> ObsT:
        """Gives the observation back, changed or not."""


class Environment(ABC, Generic[ActT, ObsT, StateT]):
    """A world with episodes: ``reset``, ``step`` and ``state``.

    ``SUPPORTS_CONCURRENT_SESSIONS`` says that several instances may live in one process;
    ``REQUIRES_SINGLE_THREAD_EXECUTOR`` that all calls to all instances must come from one thread.
    """

    SUPPORTS_CONCURRENT_SESSIONS: bool = False
    REQUIRES_SINGLE_THREAD_EXECUTOR: bool = False

    rubric: Optional[Any]

    def __init__(self, transform: Optional[Transform] = None, rubric: Optional[Any] = None):
        """Keeps the transform of observations and the rubric of rewards, where there are any."""
        self.transform = transform
        self.rubric = rubric

    @abstractmethod
    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> ObsT:
        """Starts an episode and gives its first observation."""

    @abstractmethod
    def step(self, action: ActT, timeout_s: Optional[float] = None, **kwargs: Any) -> ObsT:
        """Acts and gives what is then observed."""

    @property
    @abstractmethod
    def state(self) -> StateT:
        """The state of the episode."""

    async def reset_async(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> ObsT:
        """``reset`` for environments that await; this one calls ``reset``."""
        return self.reset(seed=seed, episode_id=episode_id, **kwargs)

    async def step_async(self, action: ActT, timeout_s: Optional[float] = None, **kwargs: Any) -> ObsT:
        """``step`` for environments that await; this one calls ``step``."""
        return self.step(action, timeout_s=timeout_s, **kwargs)

    def close(self) -> None:
        """Lets go of what the environment holds."""

    def get_metadata(self) -> EnvironmentMetadata:
        """How the environment presents itself."""
        name = type(self).__name__
        return EnvironmentMetadata(name=name, description="%s environment" % name, version="1.0.0")

    def render_web(self, observation: Dict[str, Any]) -> Optional[str]:
        """HTML that draws an observation (a dict with reward and done in it); None for the plain list of its fields."""
        return None

    def web_actions(self, observation: Dict[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
        """Actions to offer as buttons beside an observation: label and action."""
        return []

    def _apply_transform(self, observation: ObsT) -> ObsT:
        return observation if self.transform is None else self.transform(observation)

    def _apply_rubric(self, action: ActT, observation: ObsT) -> float:
        """Reward of the rubric, 0.0 without one; to be called in ``step``."""
        return 0.0 if self.rubric is None else self.rubric(action, observation)

    async def _apply_rubric_async(self, action: ActT, observation: ObsT) -> float:
        """The same for a rubric that may have to be awaited."""
        score = self._apply_rubric(action, observation)
        return await score if inspect.iscoroutine(score) else score

    def _reset_rubric(self) -> None:
        """Forgets what the rubric gathered; to be called in ``reset``."""
        if self.rubric is not None:
            self.rubric.reset()

    async def _reset_rubric_async(self) -> None:
        """The same for a rubric whose reset may have to be awaited."""
        if self.rubric is None:
            return
        if not hasattr(self.rubric, "reset_async"):
            self.rubric.reset()
            return
        waiting = self.rubric.reset_async()
        if inspect.iscoroutine(waiting):
            await waiting


def __getattr__(name):
    raise _missing.name(__name__, name)
