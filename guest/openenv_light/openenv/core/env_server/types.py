"""Models of actions, observations and state, and of the messages on the wire."""

from enum import Enum
from typing import Any, Dict, Optional, Union

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

# Literal and Annotated are of typing since 3.8 and 3.9; pydantic's own dependency has both everywhere.
from typing_extensions import Annotated, Literal

from ... import _missing
from ._custom import CustomTypesMeta

Scalar = Union[int, float, bool]


class ServerMode(str, Enum):
    """What a server offers: episodes and tools, or tools alone."""

    SIMULATION = "simulation"
    PRODUCTION = "production"


class HealthStatus(str, Enum):
    """Answers of ``/health``."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DEGRADED = "degraded"


class WSErrorCode(str, Enum):
    """Codes of error frames."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    SESSION_ERROR = "SESSION_ERROR"


# The descriptions of the fields of the next three classes, and State's own, are part of recorded `/schema` answers.


class Action(BaseModel, metaclass=CustomTypesMeta):
    """What an agent does; a subclass adds its fields."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, arbitrary_types_allowed=True)

    metadata: Dict[str, Any] = Field(default_factory=dict, description="Additional metadata for the action")


class Observation(BaseModel, metaclass=CustomTypesMeta):
    """What an agent then sees; a subclass adds its fields."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, arbitrary_types_allowed=True)

    done: bool = Field(default=False, description="Whether the episode has terminated")
    reward: Union[bool, int, float, None] = Field(default=None, description="Reward signal from the last action")
    metadata: Dict[str, Any] = Field(default_factory=dict, description="Additional metadata for the observation")


class State(BaseModel, metaclass=CustomTypesMeta):
    """Base class for environment state.

    Represents internal environment state, separate from observations.
    """

    model_config = ConfigDict(extra="allow", validate_assignment=True, arbitrary_types_allowed=True)

    episode_id: Optional[str] = Field(default=None, description="Unique identifier for the current episode")
    step_count: int = Field(default=0, ge=0, description="Number of steps taken in the current episode")


class BaseMessage(BaseModel):
    """A message that knows all its keys. Most messages are never used in a worker: their validators are built when they are."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, defer_build=True)


class CodeExecResult(BaseMessage):
    """What a piece of code wrote and how it ended."""

    stdout: str = Field(description="What it wrote to standard output")
    stderr: str = Field(description="What it wrote to standard error")
    exit_code: int = Field(description="0 where it ended well")


class EnvironmentMetadata(BaseMessage):
    """How an environment presents itself."""

    name: str = Field(description="Its name")
    description: str = Field(description="What it does")
    readme_content: Optional[str] = Field(default=None, description="Text of its README")
    version: Optional[str] = Field(default=None, description="Its version")
    author: Optional[str] = Field(default=None, description="Who wrote it")
    documentation_url: Optional[str] = Field(default=None, description="Where its documentation is")


class ConcurrencyConfig(BaseMessage):
    """How many sessions a server admits, and how long a silent one may stay."""

    max_concurrent_envs: int = Field(default=1, ge=1, description="Sessions at a time")
    session_timeout: Optional[float] = Field(default=None, gt=0, description="Seconds of silence; None for ever")


class ServerCapacityStatus(BaseMessage):
    """How full a server is."""

    active_sessions: int = Field(ge=0, description="Sessions now")
    max_sessions: int = Field(ge=1, description="Sessions at most")

    @model_validator(mode="after")
    def check_capacity_bounds(self):
        """Refuses more sessions than there is room for."""
        if self.active_sessions > self.max_sessions:
            raise ValueError(
                "active_sessions (%d) cannot exceed max_sessions (%d)" % (self.active_sessions, self.max_sessions)
            )
        return self

    @property
    def available_slots(self):
        """Sessions that would still be admitted."""
        return self.max_sessions - self.active_sessions

    @property
    def is_at_capacity(self):
        """Whether the next session would be refused."""
        return self.available_slots == 0

    @classmethod
    def from_counts(cls, active, max_sessions):
        """The status for two counts."""
        return cls(active_sessions=active, max_sessions=max_sessions)


class SessionInfo(BaseMessage):
    """One session as its server sees it."""

    session_id: str = Field(description="Its id")
    created_at: float = Field(description="Unix time of its start")
    last_activity_at: float = Field(description="Unix time of its last request")
    step_count: int = Field(default=0, ge=0, description="Steps taken in it")
    environment_type: str = Field(description="Name of the environment's class")


class ResetRequest(BaseModel):
    """Body of ``POST /reset``; further keys go to the environment."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    seed: Optional[int] = Field(default=None, ge=0, description="Seed of the episode")
    episode_id: Optional[str] = Field(default=None, max_length=255, description="Id that the episode is to have")


class StepRequest(BaseModel):
    """Body of ``POST /step``; further keys go to the environment."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    action: Dict[str, Any] = Field(description="The action, as its schema has it")
    timeout_s: Optional[float] = Field(default=None, gt=0, description="Seconds that the step may take")
    request_id: Optional[str] = Field(default=None, max_length=255, description="Id for the caller's records")


class _StepLike(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)

    observation: Dict[str, Any] = Field(description="The observation without reward and done")
    reward: Optional[float] = Field(default=None, description="The reward")
    done: bool = Field(default=False, description="Whether the episode is over")
    metadata: Optional[Dict[str, Any]] = Field(default=None, description="The observation's metadata")


class ResetResponse(_StepLike):
    """Answer of ``POST /reset``."""


class StepResponse(_StepLike):
    """Answer of ``POST /step``."""


class HealthResponse(BaseMessage):
    """Answer of ``/health``."""

    status: HealthStatus = Field(default=HealthStatus.HEALTHY, description="How the server is")


class SchemaResponse(BaseMessage):
    """Answer of ``/schema``."""

    action: Dict[str, Any] = Field(description="JSON Schema of actions")
    observation: Dict[str, Any] = Field(description="JSON Schema of observations")
    state: Dict[str, Any] = Field(description="JSON Schema of the state")
    reset_observation: Optional[Dict[str, Any]] = Field(default=None, description="JSON Schema of reset's observations")

    @model_serializer(mode="wrap")
    def _leave_out_what_is_not_declared(self, handler):
        data = handler(self)
        if self.reset_observation is None:
            data.pop("reset_observation", None)
        return data


class ListTasksRequest(BaseMessage):
    """Asks for the tasks of a split."""

    split: str = Field(description="Name of the split")


class NumTasksRequest(BaseMessage):
    """Asks how many tasks a split has."""

    split: str = Field(description="Name of the split")


class GetTaskRequest(BaseMessage):
    """Asks for one task."""

    split: str = Field(description="Name of the split")
    index: int = Field(description="Place of the task in it")


class GetTaskRangeRequest(BaseMessage):
    """Asks for a slice of a split."""

    split: str = Field(description="Name of the split")
    start: Optional[int] = Field(default=None, description="First index")
    stop: Optional[int] = Field(default=None, description="Index after the last")


class WSResetMessage(BaseMessage):
    """Frame that starts an episode."""

    type: Literal["reset"] = Field(default="reset", description="Kind of frame")
    data: Dict[str, Any] = Field(default_factory=dict, description="Arguments of reset")


class WSStepMessage(BaseMessage):
    """Frame that takes a step."""

    type: Literal["step"] = Field(default="step", description="Kind of frame")
    data: Dict[str, Any] = Field(description="The action, as its schema has it")


class WSStateMessage(BaseMessage):
    """Frame that asks for the state."""

    type: Literal["state"] = Field(default="state", description="Kind of frame")


class WSCloseMessage(BaseMessage):
    """Frame that ends the session."""

    type: Literal["close"] = Field(default="close", description="Kind of frame")


#: What a client may send, apart from MCP requests (``mcp_types.WSMCPMessage``).
WSIncomingMessage = Annotated[
    Union[WSResetMessage, WSStepMessage, WSStateMessage, WSCloseMessage], Field(discriminator="type")
]


class WSObservationResponse(BaseModel):
    """Frame with an observation."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    type: Literal["observation"] = Field(default="observation", description="Kind of frame")
    data: Dict[str, Any] = Field(description="Observation, reward, done, metadata")


class WSStateResponse(BaseModel):
    """Frame with the state."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    type: Literal["state"] = Field(default="state", description="Kind of frame")
    data: Dict[str, Any] = Field(description="The state")


class WSErrorResponse(BaseModel):
    """Frame with an error."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    type: Literal["error"] = Field(default="error", description="Kind of frame")
    data: Dict[str, Any] = Field(description="Message, code and what the code brings along")


def __getattr__(name):
    raise _missing.name(__name__, name)
