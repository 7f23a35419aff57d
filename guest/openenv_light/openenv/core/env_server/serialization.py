"""JSON objects to actions, observations to JSON objects."""

import json

from ... import _missing
from .mcp_types import CallToolAction, ListToolsAction
from .types import Action

_MCP_ACTIONS = {"list_tools": ListToolsAction, "call_tool": CallToolAction}


def _mcp_action(data, action_cls):
    """The tool action that a payload asks for, where the class admits tool actions; else None."""
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in _MCP_ACTIONS:
        return None
    # A class of the package's own may have a field `type` with a meaning of its own.
    if action_cls is not Action and action_cls not in _MCP_ACTIONS.values():
        return None
    return _MCP_ACTIONS[kind].model_validate(data)


def deserialize_action(action_data, action_cls):
    """Validates a JSON object as an action; the model's ValidationError passes through."""
    action = _mcp_action(action_data, action_cls)
    return action_cls.model_validate(action_data) if action is None else action


def deserialize_action_with_preprocessing(action_data, action_cls):
    """Like ``deserialize_action`` for what a form sends.

    Arguments of a tool call may be JSON text, ``tokens`` a list or JSON text (a tensor where torch is there), ``action_id``
    digits.
    """
    data = dict(action_data)
    if data.get("type") == "call_tool" and isinstance(data.get("arguments"), str):
        parsed = dict(data, arguments=_parsed(data["arguments"], data["arguments"]))
    else:
        parsed = data
    action = _mcp_action(parsed, action_cls)
    if action is not None:
        return action
    if "tokens" in data:
        data["tokens"] = _tokens(data["tokens"])
    if isinstance(data.get("action_id"), str):
        try:
            data["action_id"] = int(data["action_id"])
        except ValueError:
            pass
    return action_cls.model_validate(data)


def _parsed(text, otherwise):
    try:
        return json.loads(text)
    except ValueError:
        return otherwise


def _tokens(value):
    if isinstance(value, str):
        value = _parsed(value, [])
    if not isinstance(value, list):
        return value
    try:
        import torch
    except ImportError:
        return value
    return torch.tensor(value, dtype=torch.long)


def serialize_observation(observation):
    """The observation without reward and done, and both beside it; metadata beside it too where there is any."""
    result = {
        "observation": observation.model_dump(exclude={"reward", "done"}),
        "reward": observation.reward,
        "done": observation.done,
    }
    if observation.metadata:
        result["metadata"] = observation.metadata
    return result


def __getattr__(name):
    raise _missing.name(__name__, name)
