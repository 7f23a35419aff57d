"""Sessions: what a loop sees of an environment."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Dict, Generic, Optional, TypeVar

from ..env_server.mcp_types import RESERVED_TOOL_NAMES
from ..env_server.types import State

Message = Dict[str, Any]


@dataclass
class ToolResult:
    """What a tool call gave."""

    data: Any = None
    done: bool = False
    metadata: Dict[str, Any] = field(default_factory=dict)
    error: Optional[str] = None


@dataclass
class VerifyResult:
    """The end of a rollout. ``env_reward`` is the environment's own reward; nobody makes another."""

    env_reward: Optional[float] = None
    done: bool = False
    metrics: Dict[str, Any] = field(default_factory=dict)
    artifacts: Dict[str, Any] = field(default_factory=dict)


class ResourceSession(ABC):
    """One rollout's hold on an environment."""

    @abstractmethod
    def initial_messages(self):
        """Messages that the model begins with."""

    @abstractmethod
    def list_tools(self):
        """The tools, as ``Tool`` models."""

    @abstractmethod
    def call_tool(self, name, arguments):
        """Calls one and gives a ToolResult."""

    @abstractmethod
    def verify(self, transcript, final_state=None):
        """Ends the rollout and gives a VerifyResult."""

    @abstractmethod
    def close(self):
        """Lets go of the environment."""


SessionT = TypeVar("SessionT", bound=ResourceSession)


class ResourceSessionFactory(ABC, Generic[SessionT]):
    """Makes a session for each rollout."""

    @abstractmethod
    def create(self, task, seed=None, episode_id=None):
        """A session that shares nothing with others."""


class StepEnvSessionAdapter(ResourceSession):
    """A client with reset, step and state as a session; its episode starts when the session is made."""

    def __init__(
        self,
        client,
        *,
        task=None,
        seed=None,
        episode_id=None,
        tool_specs,
        action_builder,
        initial_messages_builder,
        tool_result_builder=None,
        verify_builder=None,
        reset_kwargs=None
    ):
        """The builders make actions of tool calls, and messages, tool results and the end of what the client gives."""
        self._client = client.sync() if callable(getattr(client, "sync", None)) else client
        self._task = task
        self._tool_specs = list(tool_specs)
        self._action_builder = action_builder
        self._initial_messages_builder = initial_messages_builder
        self._tool_result_builder = tool_result_builder or self._default_tool_result
        self._verify_builder = verify_builder or self._default_verify
        self._closed = False
        self._tools_by_name = {tool.name: tool for tool in self._tool_specs}
        taken = sorted(set(self._tools_by_name) & RESERVED_TOOL_NAMES)
        if taken:
            raise ValueError("Tool names are reserved for orchestration controls: " + ", ".join(taken))
        arguments = dict(reset_kwargs or {})
        for name, value in (("seed", seed), ("episode_id", episode_id)):
            if value is not None:
                arguments.setdefault(name, value)
        self._last_result = self._last_state = None
        try:
            self._initial_result = self._client.reset(**arguments)
            self._last_state = self._read_state()
        except Exception:
            self.close()
            raise

    def _read_state(self):
        state = getattr(self._client, "state", None)
        return state() if callable(state) else None

    def _default_tool_result(self, tool_name, arguments, result, state):
        data = {
            "tool_name": tool_name,
            "arguments": dict(arguments),
            "observation": result.observation,
            "reward": result.reward,
            "done": result.done,
        }
        return ToolResult(data=data, done=bool(result.done), metadata={"reward": result.reward, "state": _plain(state)})

    def _default_verify(self, transcript, final_state, last_result, state):
        metrics = {}
        if isinstance(state, State):
            metrics["step_count"] = state.step_count
        elif isinstance(state, dict) and "step_count" in state:
            metrics["step_count"] = state["step_count"]
        return VerifyResult(
            env_reward=None if last_result is None else last_result.reward,
            done=last_result is not None and bool(last_result.done),
            metrics=metrics,
            artifacts={"final_state": _plain(state), "transcript_length": len(transcript)},
        )

    def initial_messages(self):
        """What the builder makes of the first result."""
        return list(self._initial_messages_builder(self._initial_result, self._task))

    def list_tools(self):
        """The tools as given."""
        return list(self._tool_specs)

    def call_tool(self, name, arguments):
        """Takes a step with the action that the builder makes of the call."""
        if name in RESERVED_TOOL_NAMES:
            raise KeyError("Reserved orchestration tool: %s" % name)
        if name not in self._tools_by_name:
            raise KeyError("Unknown tool: %s" % name)
        self._last_result = self._client.step(self._action_builder(name, dict(arguments)))
        self._last_state = self._read_state()
        return self._tool_result_builder(name, dict(arguments), self._last_result, self._last_state)

    def verify(self, transcript, final_state=None):
        """What the builder makes of the last result."""
        return self._verify_builder(list(transcript), final_state, self._last_result, self._last_state)

    def close(self):
        """Closes the client, once."""
        if self._closed:
            return
        self._closed = True
        if callable(getattr(self._client, "close", None)):
            self._client.close()


def _plain(state):
    return state.model_dump() if hasattr(state, "model_dump") else state
