"""Loops that drive a session: over a model that is sampled here, or an agent that is not looked into."""

import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from typing_extensions import Protocol

from ..env_server.mcp_types import RESERVED_TOOL_NAMES, JsonRpcErrorCode, JsonRpcResponse
from ..llm_client import LLMResponse
from .sessions import Message, ToolResult


@dataclass
class RolloutEvent:
    """Something that happened in a rollout."""

    type: str
    payload: Dict[str, Any] = field(default_factory=dict)


@dataclass
class ToolTraceEntry:
    """A tool call and its result."""

    tool_name: str
    arguments: Dict[str, Any]
    result: ToolResult


@dataclass
class ModelStepResult:
    """One sampled turn, with its tokens."""

    response: LLMResponse
    prompt_ids: List[int] = field(default_factory=list)
    completion_ids: List[int] = field(default_factory=list)
    logprobs: List[float] = field(default_factory=list)


@dataclass
class HarnessRolloutResult:
    """A whole rollout."""

    messages: List[Message] = field(default_factory=list)
    tool_trace: List[ToolTraceEntry] = field(default_factory=list)
    events: List[RolloutEvent] = field(default_factory=list)
    done: bool = False
    metrics: Dict[str, Any] = field(default_factory=dict)
    prompt_ids: List[int] = field(default_factory=list)
    completion_ids: List[int] = field(default_factory=list)
    logprobs: List[float] = field(default_factory=list)


@dataclass
class HarnessRunLimits:
    """How long a rollout may go on."""

    max_turns: int = 10
    max_tool_calls_per_turn: Optional[int] = None
    max_total_tool_calls: Optional[int] = None
    sampling: Dict[str, Any] = field(default_factory=dict)


class ModelStep(Protocol):
    """Samples the model's next turn."""

    def __call__(self, messages, tools, sampling) -> ModelStepResult:
        """The turn."""
        ...


class HarnessAdapter(ABC):
    """A loop."""

    @abstractmethod
    def run_white_box(self, model_step, session, limits=None):
        """A rollout whose model is sampled by the caller."""

    @abstractmethod
    def run_black_box(self, session, limits=None):
        """A rollout of an agent that is not looked into."""


class MCPHarnessAdapter(HarnessAdapter):
    """Turn by turn: the model answers, its tool calls are made, until it makes none or the session is done."""

    def run_white_box(self, model_step, session, limits=None):
        """The rollout."""
        limits = limits or HarnessRunLimits()
        messages = list(session.initial_messages())
        tools = session.list_tools()
        result = HarnessRolloutResult()
        for turn in range(limits.max_turns):
            sampled = model_step(messages, tools, dict(limits.sampling))
            self._keep_turn(result, messages, turn, sampled)
            calls = sampled.response.tool_calls
            if not calls:
                result.done = True
                break
            if not self._make_calls(result, messages, session, calls, limits):
                # Cut short: the figures of a whole rollout do not apply.
                result.metrics["truncated"] = True
                result.messages = list(messages)
                return result
            if result.done:
                break
        result.messages = list(messages)
        result.metrics["turns"] = sum(event.type == "model_response" for event in result.events)
        result.metrics["tool_calls"] = len(result.tool_trace)
        return result

    @staticmethod
    def _keep_turn(result, messages, turn, sampled):
        response = sampled.response
        messages.append(response.to_message_dict())
        result.prompt_ids.extend(sampled.prompt_ids)
        result.completion_ids.extend(sampled.completion_ids)
        result.logprobs.extend(sampled.logprobs)
        calls = [{"id": call.id, "name": call.name, "arguments": dict(call.args)} for call in response.tool_calls]
        payload = {"turn": turn, "content": response.content, "tool_calls": calls}
        result.events.append(RolloutEvent(type="model_response", payload=payload))

    @staticmethod
    def _make_calls(result, messages, session, calls, limits):
        """Makes a turn's calls; false where the rollout has no more calls left."""
        if limits.max_tool_calls_per_turn is not None:
            calls = calls[: limits.max_tool_calls_per_turn]
        for call in calls:
            if limits.max_total_tool_calls is not None and len(result.tool_trace) >= limits.max_total_tool_calls:
                return False
            given = session.call_tool(call.name, dict(call.args))
            result.tool_trace.append(ToolTraceEntry(call.name, dict(call.args), given))
            payload = {"tool_name": call.name, "arguments": dict(call.args), "done": given.done}
            result.events.append(RolloutEvent(type="tool_call", payload=payload))
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": _message_text(given.data)}
            )
            if given.done:
                result.done = True
                break
        return True

    def run_black_box(self, session, limits=None):
        """This loop needs a model."""
        raise NotImplementedError(
            "MCPHarnessAdapter is a white-box harness. Use CLIHarnessAdapter for opaque evaluation harnesses."
        )


class CLIHarnessAdapter(HarnessAdapter):
    """Hands the session to a runner, behind JSON-RPC."""

    def __init__(self, runner):
        """``runner(bridge, session, limits)`` gives the rollout."""
        self._runner = runner

    def run_white_box(self, model_step, session, limits=None):
        """The runner brings its own model."""
        raise NotImplementedError("CLIHarnessAdapter only supports black-box evaluation rollouts.")

    def run_black_box(self, session, limits=None):
        """The rollout."""
        return self._runner(SessionMCPBridge(session), session, limits or HarnessRunLimits())


class SessionMCPBridge:
    """Answers JSON-RPC requests with a session's tools."""

    def __init__(self, session):
        """The session stays open."""
        self.session = session

    def handle_request(self, request):
        """The response to one request."""
        request_id = request.get("id")

        def refuse(code, text):
            return JsonRpcResponse.error_response(code, message=text, request_id=request_id).model_dump()

        if request.get("jsonrpc") != "2.0":
            return refuse(JsonRpcErrorCode.INVALID_REQUEST, "Invalid Request")
        method, params = request.get("method"), request.get("params") or {}
        if method == "tools/list":
            tools = [
                {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
                for tool in self.session.list_tools()
            ]
            return JsonRpcResponse.success({"tools": tools}, request_id=request_id).model_dump()
        if method != "tools/call":
            return refuse(JsonRpcErrorCode.METHOD_NOT_FOUND, "Method not found")
        if "name" not in params:
            return refuse(JsonRpcErrorCode.INVALID_PARAMS, "Missing tool name")
        name = params["name"]
        if name in RESERVED_TOOL_NAMES:
            return refuse(JsonRpcErrorCode.INVALID_PARAMS, "Reserved orchestration tool: %s" % name)
        try:
            result = self.session.call_tool(name, dict(params.get("arguments", {})))
        except KeyError as error:
            return refuse(JsonRpcErrorCode.METHOD_NOT_FOUND, str(error.args[0]) if error.args else "Method not found")
        except ValueError as error:
            return refuse(JsonRpcErrorCode.INVALID_PARAMS, str(error))
        except Exception as error:
            return refuse(JsonRpcErrorCode.INTERNAL_ERROR, str(error))
        given = {"data": result.data, "done": result.done, "metadata": dict(result.metadata), "error": result.error}
        return JsonRpcResponse.success(given, request_id=request_id).model_dump()


def build_harness_rollout_func(*, session_factory, harness_adapter, model_step_builder, limits=None, reward_key="env_reward"):
    """A rollout function as TRL takes it: prompts and trainer in, lists of tokens and rewards out."""

    def rollout_func(prompts, trainer):
        columns = {"prompt_ids": [], "completion_ids": [], "logprobs": [], reward_key: [], "verify_metrics": []}
        for prompt in prompts:
            session = session_factory.create(task=prompt)
            try:
                rollout = harness_adapter.run_white_box(
                    model_step=model_step_builder(trainer, session), session=session, limits=limits
                )
                verified = session.verify(transcript=rollout.messages, final_state=_final_state(rollout))
                columns["prompt_ids"].append(list(rollout.prompt_ids))
                columns["completion_ids"].append(list(rollout.completion_ids))
                columns["logprobs"].append(list(rollout.logprobs))
                columns[reward_key].append(_resolve_env_reward(rollout, verified))
                columns["verify_metrics"].append(dict(verified.metrics))
            finally:
                session.close()
        return columns

    return rollout_func


def _final_state(rollout):
    return {
        "done": rollout.done,
        "metrics": dict(rollout.metrics),
        "events": [{"type": event.type, "payload": dict(event.payload)} for event in rollout.events],
        "tool_trace": [
            {
                "tool_name": entry.tool_name,
                "arguments": dict(entry.arguments),
                "result": {
                    "data": entry.result.data,
                    "done": entry.result.done,
                    "metadata": dict(entry.result.metadata),
                    "error": entry.result.error,
                },
            }
            for entry in rollout.tool_trace
        ],
    }


def _resolve_env_reward(rollout, verified):
    """The environment's reward: the last one of a tool result, which ``verify`` may repeat and not replace."""
    traced = None
    for entry in reversed(rollout.tool_trace):
        reward = entry.result.metadata.get("reward")
        if reward is None and isinstance(entry.result.data, dict):
            reward = entry.result.data.get("reward")
        if reward is not None:
            traced = float(reward)
            break
    said = None if verified.env_reward is None else float(verified.env_reward)
    if traced is not None and said is not None and not math.isclose(said, traced, rel_tol=1e-9, abs_tol=1e-6):
        raise ValueError("verify.env_reward must forward the environment reward from the rollout")
    if traced is None and said is None:
        raise ValueError("rollout did not produce an environment reward")
    return said if traced is None else traced


def _message_text(value):
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
