"""One session: an instance, and what may be asked of it."""

import inspect

from . import frames, packed
from .errors import Failure, Invalid, text_of, trace_of
from .frames import MSGPACK, TENSOR
from .jsontext import dump_plain, loads
from .plain import invalid
from .target import Tasks, check_http_body, filtered, is_async, metadata_of


class Session:
    """A client's hold on one instance. Each method gives `(kind, flags, payload)` and never raises."""

    __slots__ = ("id", "target", "codec", "instance", "reset_async", "step_async", "stack", "_step", "_step_raw")

    def __init__(self, target, id):
        self.target, self.codec, self.id = target, target.codec, id
        self.instance = self.stack = self._step = None
        self._step_raw = self.no_tensors
        self.reset_async = self.step_async = False

    def open(self, payload=b""):
        """Makes the instance; the payload may name what it is to draw."""
        self.instance = self.target.make((loads(payload) or {}).get("render_mode") if payload else None)
        cls = type(self.instance)
        self.reset_async, self.step_async = is_async(cls, "reset"), is_async(cls, "step")
        self._step = getattr(self.instance, "step", None)
        if self.codec.tensors is not None:
            self._step_raw = self.codec.tensors.stepper(self.instance)
        return frames.OK, 0, b""

    # What stands before and after the call of the environment's own method, so that both faces share it.

    def reset_call(self, flags, payload):
        """The method to call and its keyword arguments."""
        instance = self.instance
        method = instance.reset_async if self.reset_async and hasattr(instance, "reset_async") else instance.reset
        if flags & TENSOR:
            self.tensors()
        if flags & frames.HTTP_SHAPE:
            arguments = check_http_body(payload, "reset")
        elif flags & MSGPACK:
            arguments = packed.read(payload, self.codec.lists) or {}
            if not isinstance(arguments, dict):
                raise invalid("dict_type", [], "Input should be a valid dictionary", None)
        else:
            arguments = loads(payload) if payload else {}
        return method, filtered(method, arguments)

    def step_call(self, flags, payload):
        """The method to call, the action and further arguments."""
        if not flags & frames.HTTP_SHAPE:
            if flags & TENSOR:
                action = self.tensors().action(payload)
            else:
                action = self.codec.msgpack_action(payload) if flags & MSGPACK else self.codec.action(payload)
            if self.step_async:
                return getattr(self.instance, "step_async", None) or self._step, action, {}
            return self._step, action, {}
        body = check_http_body(payload, "step")
        action = self.codec.action(dump_plain(body.pop("action")))
        method = getattr(self.instance, "step_async", None) if self.step_async else None
        method = method or self._step
        return method, action, filtered(method, body, skip=("action",))

    def observed(self, value, flags):
        if flags & TENSOR:
            data, bits = self.tensors().observation(value)
        elif flags & MSGPACK:
            data, bits = self.codec.msgpack_observation(value)
        else:
            data, bits = self.codec.observation(value, flags & frames.HTTP_SHAPE)
        return frames.OK, bits, data

    def tensors(self):
        """How raw values are read and written; raises `Failure` where the spaces are no single tensors."""
        return self.codec.tensors or self.no_tensors(b"")

    def no_tensors(self, _):
        raise Failure("NOT_AVAILABLE", "raw values are not to be had: " + self.codec.why_no_tensors())

    def step(self, flags, payload):
        """One step on this thread: the path that must be short."""
        try:
            if not flags:
                data, bits = self.codec.observation(self._step(self.codec.action(payload)), 0)
            elif flags == TENSOR:
                return self._step_raw(payload)
            else:
                method, action, arguments = self.step_call(flags, payload)
                return self.observed(method(action, **arguments), flags)
            return frames.OK, bits, data
        except BaseException as error:
            return self.failed(error)

    def reset(self, flags, payload):
        try:
            method, arguments = self.reset_call(flags, payload)
            return self.observed(method(**arguments), flags)
        except BaseException as error:
            return self.failed(error)

    def state(self, flags=0):
        try:
            value = self.instance.state
            if inspect.ismethod(value):
                value = value()
            if flags & MSGPACK:
                return frames.OK, 0, self.codec.msgpack_state(value)
            data, bad = self.codec.state(value)
            return frames.OK, frames.NOT_FINITE if bad else 0, data
        except BaseException as error:
            return self.failed(error)

    def render_call(self):
        """The method that draws; what it gives is for `drawn`. Raises `Failure` where there is none."""
        if not hasattr(type(self.instance), "render"):
            raise Failure("NOT_AVAILABLE", "this environment has no `render`")
        return self.instance.render

    def drawn(self, picture):
        return frames.OK, 0, packed.write(picture)

    def close(self):
        """Closes the instance; what it raises is printed, not passed on."""
        instance, self.instance = self.instance, None
        try:
            if instance is not None and hasattr(instance, "close"):
                instance.close()
        except BaseException as error:
            print(trace_of(error), flush=True)
        return frames.OK, 0, b""

    def failed(self, error):
        """An exception as an answer."""
        if isinstance(error, Failure):
            return frames.FAILED, 0, error.payload
        if isinstance(error, Invalid):
            return frames.INVALID, 0, error.payload
        kind = self.codec.validation_error
        if kind is not None and isinstance(error, kind):
            return frames.INVALID, 0, self.codec.items(error)
        payload = {"code": "EXECUTION_ERROR", "message": text_of(error), "exception": type(error).__name__, "traceback": trace_of(error)}
        return frames.FAILED, 0, dump_plain(payload)

    # Tools.

    def mcp_call(self, payload):
        """The method that answers, its arguments and whether it is a coroutine."""
        request = loads(payload)
        method, params = request["method"], request.get("params") or {}
        instance = self.instance
        if not hasattr(instance, "_mcp_call_tool"):
            return self._tools_by_step(method, params)
        if method == "tools/list":
            return instance._mcp_list_tools_async, (), lambda tools: {"tools": tools}
        return instance._mcp_call_tool_async, (params["name"], params.get("arguments") or {}), lambda result: result

    def _tools_by_step(self, method, params):
        """An environment without a tool server whose actions are tool calls answers through its step."""
        tools = getattr(self.codec, "_tool_actions", None)
        if not tools or self.codec.action_cls.__name__ == "Action":
            raise Failure("NO_MCP", "Environment does not support MCP")
        if method == "tools/list":
            action = tools["list_tools"]()
            return self._step_any, (action,), lambda seen: {"tools": [tool_of(t) for t in getattr(seen, "tools", [])]}
        action = tools["call_tool"](tool_name=params["name"], arguments=params.get("arguments") or {})
        return self._step_any, (action,), result_of

    async def _step_any(self, action):
        method = self.instance.step_async if self.step_async else self._step
        value = method(action)
        return await value if inspect.isawaitable(value) else value


def tool_of(tool):
    tool = tool.model_dump() if hasattr(tool, "model_dump") else dict(tool)
    return {"name": tool.get("name"), "description": tool.get("description"), "inputSchema": tool.get("input_schema")}


def result_of(seen):
    error = getattr(seen, "error", None)
    if error is not None:
        raise Failure("TOOL_ERROR", getattr(error, "message", str(error)))
    result = getattr(seen, "result", seen)
    return result.model_dump() if hasattr(result, "model_dump") else result


def fresh(target, op, payload):
    """A question to a fresh instance (tasks, metadata): `(name, call)` where `call()` may give an awaitable."""
    instance = target.make()
    if op == frames.METADATA:
        return instance, "get_metadata", lambda: metadata_of(instance), lambda data: data
    name = loads(payload)["method"]
    try:
        name, method, arguments = Tasks.method(instance, payload)
    except NotImplementedError as error:
        raise Tasks.error(name, error) from None
    return instance, name, lambda: method(*arguments), lambda value: Tasks.reply(name, value)
