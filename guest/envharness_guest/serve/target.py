"""What is served: a factory of instances, and how its values become bytes and back."""

import functools
import inspect
import os

from . import packed
from .errors import Failure, Invalid, text_of
from .jsontext import dump_plain, dumps, loads

_SIDE = {"reward", "done"}


class Target:
    """A loaded target. `factory()` makes an instance; `codec` translates."""

    def __init__(self, factory, codec, name, class_name, **facts):
        self.factory, self.codec = factory, codec
        self.name, self.class_name = name, class_name
        self.max_sessions = facts.get("max_sessions")
        self.session_timeout = facts.get("session_timeout")
        self.mode = facts.get("mode")
        self.render_modes_told = facts.get("render_modes")

    def environment_class(self):
        """The class of the instances, or None where only a call would tell."""
        factory = self.factory
        while isinstance(factory, functools.partial):
            factory = factory.func
        return factory if inspect.isclass(factory) else None

    def factory_name(self):
        return getattr(self.factory, "__name__", str(self.factory))

    def render_modes(self):
        """What its instances may be told to draw: none where they cannot be told, None where they do not say."""
        if self.render_modes_told is not None:
            return self.render_modes_told
        if not takes(self.factory, "render_mode"):
            return []
        return (getattr(self.environment_class(), "metadata", None) or {}).get("render_modes")

    def make(self, render_mode=None):
        """A new instance; raises `Failure` with FACTORY_ERROR."""
        options = {}
        if render_mode is not None:
            modes = self.render_modes()
            if not isinstance(render_mode, str) or (modes is not None and render_mode not in modes):
                there = "there are {}".format(", ".join(modes)) if modes else "this environment has none"
                message = "there is no render mode {!r}: {}".format(render_mode, there)
                raise Failure("FACTORY_ERROR", message, factory_name=self.factory_name())
            options["render_mode"] = render_mode
        try:
            instance = self.factory(**options)
        except BaseException as error:
            name = self.factory_name()
            message = "Environment factory '{}' failed to create instance.".format(name)
            raise Failure("FACTORY_ERROR", message, factory_name=name, cause="{}: {}".format(type(error).__name__, text_of(error))) from error
        return instance


def facts_of(cls):
    """What the class of an environment says about how it may be run."""
    return {
        "class": cls.__name__,
        "concurrent": bool(getattr(cls, "SUPPORTS_CONCURRENT_SESSIONS", False)),
        "single_thread": bool(getattr(cls, "REQUIRES_SINGLE_THREAD_EXECUTOR", False)),
        "asynchronous": is_async(cls, "reset") or is_async(cls, "step"),
        "concurrency": getattr(cls, "ENVHARNESS_CONCURRENCY", None),
    }


def is_async(cls, name):
    """Whether the class has its own `reset_async` or `step_async` (or a `reset`/`step` that is a coroutine itself)."""
    own = getattr(cls, name + "_async", None)
    if own is not None:
        base = next((c for c in cls.__mro__ if c.__module__.split(".")[0] == "openenv" and c.__name__ == "Environment"), None)
        if base is None or getattr(own, "__func__", own) is not getattr(base, name + "_async", None):
            return True
    return inspect.iscoroutinefunction(getattr(cls, name, None))


@functools.lru_cache(maxsize=None)
def accepted(function):
    """The keyword names a function takes; None for all of them."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters)


def takes(function, name):
    """Whether a function names such an argument."""
    try:
        return name in (accepted(function) or ())
    except (TypeError, ValueError):  # one without a signature
        return False


def filtered(method, arguments, skip=()):
    """The arguments that `method` takes; others are dropped, as the reference drops them."""
    names = accepted(getattr(method, "__func__", method))
    return {k: v for k, v in arguments.items() if (names is None or k in names) and k not in skip and k != "self"}


class Codec:
    """How the values of an environment become bytes and back.

    A codec has `action(payload)` for JSON and `read(value)` for a value that is read already, `reply(value, http)` for the members
    of an answer and `state_fields(value)` for those of a state.
    """

    validation_error = None
    #: The raw values of the spaces, where both are single tensors.
    tensors = None
    #: Whether arrays of msgpack come to `read` as lists, which is what models are written for.
    lists = True

    _tool_actions = None

    def why_no_tensors(self):
        """Which of the spaces is no single tensor."""
        return "this environment has no spaces, so that its values are no tensors"

    def msgpack_action(self, payload):
        """The action of msgpack bytes."""
        return self.read(packed.read(payload, self.lists))

    def msgpack_observation(self, value):
        """An observation as msgpack, with its flags."""
        reply = self.reply(value, False)
        return packed.write(reply), 1 if reply["done"] else 0

    def msgpack_state(self, value):
        return packed.write(self.state_fields(value))

    def observation(self, value, http):
        """An observation as the bytes of the reply, with its flags."""
        reply = self.reply(value, http)
        data, bad = dumps(reply)
        return data, (1 if reply["done"] else 0) | (2 if bad else 0)

    def state(self, value):
        """A state as bytes, and whether something not finite became null."""
        return dumps(self.state_fields(value))


class PydanticCodec(Codec):
    """Values of an OpenEnv environment: its own pydantic models are the judge."""

    def __init__(self, action_cls, observation_cls, state_cls=None, reset_observation_cls=None):
        from pydantic import ValidationError

        self.action_cls, self.observation_cls = action_cls, observation_cls
        self.state_cls, self.reset_observation_cls = state_cls, reset_observation_cls or observation_cls
        self.validation_error = ValidationError
        self._tool_actions = self._find_tool_actions()
        self._validate = action_cls.__pydantic_validator__.validate_python

    def _find_tool_actions(self):
        """The actions that a `type` key selects, where the class is one of OpenEnv's own."""
        if self.action_cls.__module__.split(".")[0] != "openenv":
            return None
        from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
        from openenv.core.env_server.types import Action

        actions = {"list_tools": ListToolsAction, "call_tool": CallToolAction}
        return actions if self.action_cls is Action or self.action_cls in actions.values() else None

    def action(self, payload):
        """The typed action of JSON bytes; raises pydantic's ValidationError."""
        return self.read(loads(payload))

    def read(self, data):
        if self._tool_actions is not None and isinstance(data, dict):
            kind = data.get("type")
            cls = self._tool_actions.get(kind) if isinstance(kind, str) else None
            if cls is not None:
                return cls.model_validate(data)
        return self._validate(data)

    def items(self, error):
        """A ValidationError as JSON bytes; a cause that is an exception becomes its text."""
        return packed.items_of(error)

    def reply(self, value, http):
        """The members of a reply."""
        inner = value.model_dump(exclude=_SIDE)
        reward, done, metadata = value.reward, value.done, getattr(value, "metadata", None)
        reply = {"observation": inner, "reward": reward, "done": done}
        if http:
            reply["reward"] = None if reward is None else float(reward)
            reply["metadata"] = metadata or None
        elif metadata:
            reply["metadata"] = metadata
        return reply

    def state_fields(self, value):
        if hasattr(value, "model_dump"):
            return value.model_dump()
        return dict(value) if value else {}


class Tasks:
    """The questions about tasks, asked of a fresh instance. They may be coroutines."""

    METHODS = ("list_splits", "list_tasks", "num_tasks", "get_task", "get_task_range")

    @staticmethod
    def method(instance, payload):
        """The bound method and its arguments; raises NotImplementedError where it is not there."""
        request = loads(payload)
        name, arguments = request["method"], request["args"]
        method = getattr(instance, name, None)
        if name not in Tasks.METHODS or not callable(method):
            raise NotImplementedError
        return name, method, arguments

    @staticmethod
    def reply(name, value):
        """What the method gave, as bytes."""
        if name == "list_splits":
            value = [Tasks.split(entry) for entry in value]
        return dumps(plain(value))[0]

    @staticmethod
    def split(entry):
        if hasattr(entry, "model_dump"):
            return entry.model_dump()
        if isinstance(entry, dict):
            return entry
        kind = entry if isinstance(entry, str) and entry in ("train", "validation", "test") else "validation"
        return {"name": str(entry), "type": kind}

    @staticmethod
    def error(name, error):
        """The failure to answer with."""
        if isinstance(error, NotImplementedError):
            return Failure("NOT_IMPLEMENTED", "{} is not supported for this environment".format(name))
        if isinstance(error, IndexError):
            return Failure("INVALID_INDEX", "Invalid task index")
        return error


def plain(value):
    """Models inside a value as plain ones."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value


def metadata_of(instance):
    """What `/metadata` answers."""
    value = None
    if hasattr(instance, "get_metadata"):
        value = instance.get_metadata()
    if value is None:
        value = {"name": type(instance).__name__, "description": "{} environment".format(type(instance).__name__), "version": "1.0.0"}
    value = dict(plain(value))
    for key in ("readme_content", "version", "author", "documentation_url"):
        value.setdefault(key, None)
    readme = os.environ.get("ENV_README_PATH")
    if value["readme_content"] is None and readme and os.path.isfile(readme):
        with open(readme, encoding="utf-8", errors="replace") as file:
            value["readme_content"] = file.read()
    return dump_plain(value)


def check_http_body(payload, kind):
    """The members of an HTTP body of `/reset` or `/step`; raises `Invalid` as the reference's models do."""
    body = loads(payload) if payload else {}
    problems = []

    def problem(type_, key, message, value, **ctx):
        item = {"type": type_, "loc": ["body", key] if key else ["body"], "msg": message, "input": value}
        if ctx:
            item["ctx"] = ctx
        problems.append(item)

    if not isinstance(body, dict):
        problem("model_attributes_type", None, "Input should be a valid dictionary or object to extract fields from", body)
        raise Invalid(dump_plain(problems))

    def text(key):
        value = body.get(key)
        if value is not None and not isinstance(value, str):
            problem("string_type", key, "Input should be a valid string", value)
        elif value is not None and len(value) > 255:
            problem("string_too_long", key, "String should have at most 255 characters", value, max_length=255)

    def number(key, convert, wanted, kind_):
        value = body.get(key)
        if value is None:
            return None
        try:
            if isinstance(value, float) and convert is int and value != int(value):
                raise ValueError
            body[key] = convert(value)
        except (TypeError, ValueError, OverflowError):
            problem(kind_, key, wanted, value)
            return None
        return body[key]

    if kind == "reset":
        seed = number("seed", int, "Input should be a valid integer", "int_type")
        if seed is not None and seed < 0:
            problem("greater_than_equal", "seed", "Input should be greater than or equal to 0", seed, ge=0)
        text("episode_id")
    else:
        if "action" not in body:
            problem("missing", "action", "Field required", body)
        elif not isinstance(body["action"], dict):
            problem("dict_type", "action", "Input should be a valid dictionary", body["action"])
        raw = body.get("timeout_s")
        timeout = number("timeout_s", float, "Input should be a valid number", "float_type")
        if timeout is not None and not timeout > 0:
            problem("greater_than", "timeout_s", "Input should be greater than 0", raw, gt=0.0)
        text("request_id")
    if problems:
        raise Invalid(dump_plain(problems))
    return body
