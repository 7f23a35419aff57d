"""Values of environments that are not OpenEnv's: dataclasses, msgspec structs, plain mappings and tuples."""

import dataclasses
import inspect
import sys
import typing

from .contract import ANY_OBJECT
from . import packed
from .errors import Invalid, LoadError
from .jsontext import dump_plain, dumps, loads
from .target import Codec, PydanticCodec


def codec_of(cls):
    """The codec that the annotations of a class ask for."""
    action, observation, state = models_of(cls)
    if is_pydantic(action) and (observation is None or is_pydantic(observation)):
        from openenv.core.env_server.types import Observation, State

        return PydanticCodec(action, observation or Observation, state if is_pydantic(state) else State)
    if any(is_openenv(c) for c in cls.__mro__) and action is None:
        from openenv.core.env_server.types import Action, Observation, State

        return PydanticCodec(Action, observation or Observation, state if is_pydantic(state) else State)
    return PlainCodec(action, observation, state)


def is_openenv(cls):
    return cls.__module__.split(".")[0] == "openenv" and cls.__name__ == "Environment"


def models_of(cls):
    """The classes of action, observation and state that a class names, by type argument or annotation."""
    for base in getattr(cls, "__orig_bases__", ()):
        found = [a for a in typing.get_args(base) if inspect.isclass(a)]
        if len(found) == 3:
            return tuple(found)

    def hints(name):
        method = inspect.getattr_static(cls, name, None)
        function = getattr(cls, name, None) if not isinstance(method, property) else method.fget
        try:
            return typing.get_type_hints(function)
        except Exception:
            return {}

    step = hints("step_async") if "step_async" in vars(cls) else hints("step")
    names = [n for n in step if n not in ("return", "timeout_s", "kwargs", "self")]
    action = step.get("action") or (step[names[0]] if names else None)
    return as_class(action), as_class(step.get("return")), as_class(hints("state").get("return"))


def as_class(annotation):
    return annotation if inspect.isclass(annotation) and annotation not in (dict, tuple, list, str, int, float, bool, object) else None


def is_pydantic(cls):
    return inspect.isclass(cls) and hasattr(cls, "__pydantic_validator__")


def is_struct(cls):
    return inspect.isclass(cls) and hasattr(cls, "__struct_fields__")


class PlainCodec(Codec):
    """Reads an action into the class it is annotated with, and anything a step may return into a reply."""

    def __init__(self, action_cls, observation_cls, state_cls):
        self.action_cls, self.observation_cls, self.state_cls = action_cls, observation_cls, state_cls
        self._adapter = self._decoder = None
        if is_struct(action_cls):
            import msgspec

            self.validation_error = msgspec.ValidationError
            self._decoder = msgspec.json.Decoder(action_cls).decode
        elif dataclasses.is_dataclass(action_cls) or is_pydantic(action_cls):
            self._adapter = adapter(action_cls)
            from pydantic import ValidationError

            self.validation_error = ValidationError
        self._struct = struct_writer(observation_cls) if is_struct(observation_cls) else None
        # What no class reads may have its arrays.
        self.lists = self._adapter is not None or self._decoder is not None

    def action(self, payload):
        if self._decoder is not None:
            return self._decoder(payload)
        return self.read(loads(payload))

    def read(self, data):
        if self._decoder is not None:
            import msgspec

            return msgspec.convert(data, self.action_cls)
        return self._adapter.validate_python(data) if self._adapter is not None else data

    def observation(self, value, http):
        if self._struct is not None and not http and type(value) is self.observation_cls:
            written = self._struct(value)
            if written is not None:
                return written
        return super().observation(value, http)

    def items(self, error):
        if hasattr(error, "errors"):
            return packed.items_of(error)
        # msgspec says where as in "Expected `int`, got `str` - at `$.n`".
        text, _, path = str(error).partition(" - at `$.")
        return dump_plain([{"type": "value_error", "loc": path.rstrip("`").split(".") if path else [], "msg": text, "input": None}])

    def msgpack_observation(self, value):
        reply = self.reply(value, False, kept_types())
        return packed.write(reply), 1 if reply["done"] else 0

    def msgpack_state(self, value):
        return packed.write(self.state_fields(value, kept_types()))

    def reply(self, value, http, kept=()):
        reply = as_reply(value, kept)
        if http:
            reply["reward"] = None if reply["reward"] is None else float(reply["reward"])
            reply.setdefault("metadata", None)
        elif not reply.get("metadata"):
            reply.pop("metadata", None)
        return reply

    def state_fields(self, value, kept=()):
        value = fields_of(value, kept)
        return value if value is not None else {}

    def schemas(self):
        observation = schema_of(self.observation_cls)
        return {
            "action": schema_of(self.action_cls),
            "observation": observation,
            "state": schema_of(self.state_cls),
            "reset_observation": observation,
        }


def struct_writer(cls):
    """What writes a struct as a reply in one pass; None for one that is to be looked at more closely."""
    import msgspec

    encode, builtins = msgspec.json.Encoder().encode, msgspec.to_builtins

    def write(value):
        try:
            inner = builtins(value)
            reply = {"observation": inner, "reward": inner.pop("reward", None), "done": bool(inner.pop("done", False))}
            if inner.get("metadata"):
                reply["metadata"] = inner["metadata"]
            data = encode(reply)
        except (TypeError, ValueError, AttributeError, msgspec.MsgspecError):
            return None
        # A NaN is written as null here, and must be told from one.
        return None if b"null" in data else (data, 1 if reply["done"] else 0)

    return write


def adapter(cls):
    try:
        from pydantic import TypeAdapter
    except ImportError as error:
        raise LoadError("dataclass actions are read by pydantic, which is not in this environment", "add it by `--with pydantic`", "pydantic") from error
    return TypeAdapter(cls)


def schema_of(cls):
    if cls is None:
        return dict(ANY_OBJECT)
    if is_struct(cls):
        import msgspec

        return msgspec.json.schema(cls)
    if is_pydantic(cls):
        return cls.model_json_schema()
    if dataclasses.is_dataclass(cls):
        return adapter(cls).json_schema()
    return dict(ANY_OBJECT)


def kept_types():
    """The types that msgpack has and JSON lacks."""
    numpy = sys.modules.get("numpy")
    return (bytes, bytearray) if numpy is None else (bytes, bytearray, numpy.ndarray)


def fields_of(value, kept=()):
    """The fields of a record as a mapping; other values as they are. Values of the types `kept` stay what they are."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if is_struct(type(value)):
        import msgspec

        if kept:
            return msgspec.to_builtins(value, builtin_types=kept, enc_hook=packed.lacking)
        return msgspec.to_builtins(value)
    return value


def as_reply(value, kept=()):
    """The members of a reply from what reset or step returned."""
    reward, done, metadata = None, False, None
    if isinstance(value, tuple):
        if len(value) == 5:
            value, reward, terminated, truncated, metadata = value
            done = bool(terminated or truncated)
        elif len(value) == 4:
            value, reward, done, metadata = value
        elif len(value) == 3:
            value, reward, done = value
        elif len(value) == 2:
            value, metadata = value
        inner = fields_of(value, kept)
    else:
        inner = fields_of(value, kept)
        if isinstance(inner, dict):
            inner = dict(inner)
            reward, done, metadata = inner.pop("reward", None), inner.pop("done", False), inner.get("metadata")
    if isinstance(inner, (str, int, float, bool, list, *kept)) or inner is None:
        inner = {"value": inner}
    return {"observation": inner, "reward": reward, "done": bool(done), "metadata": metadata}


def invalid(kind, loc, message, value):
    """The refusal of one field."""
    # Not of our own making, so that it may hold a NaN, which JSON lacks.
    return Invalid(dumps([{"type": kind, "loc": list(loc), "msg": message, "input": value}])[0])
