"""Actions to bytes and replies to values, by the types that a client was given."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from envharness._errors import ProtocolError
from envharness._runtime import guest_module
from envharness.client._result import StepResult


def loads(data: bytes) -> Any:
    """JSON as a value, NaN and infinities included.

    Raises:
        ProtocolError: It is none.
    """
    try:
        # The scanner itself: what stands around it in the library costs as much again.
        text = data.decode()
        value, end = _scan(text, 0)
        if end == len(text):
            return value
    except (StopIteration, ValueError, RecursionError):
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"an answer is no JSON: {error}") from None


def contract_of(data: bytes) -> dict[str, Any]:
    """The contract in an answer.

    Raises:
        ProtocolError: There is none.
    """
    told = loads(data)
    if not isinstance(told, dict) or not all(isinstance(told.get(side), dict) for side in ("action", "observation")):
        raise ProtocolError("an answer has no contract")
    return told


def picture_of(data: bytes) -> Any:
    """The picture in an answer.

    Raises:
        ProtocolError: It is none.
    """
    try:
        return guest_module("msgpack").unpackb(data)
    except ValueError as error:
        raise ProtocolError(f"a picture is no msgpack: {error}") from None


def dumps(value: Any) -> bytes:
    """A value as JSON."""
    return _encode(value).encode()


def _default(value: Any) -> Any:
    """What JSON has no word for: numpy's values, and types that say how they become JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "to_json"):
        return value.to_json()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise TypeError('bytes that are no text cannot become JSON; encoding="msgpack" carries them') from None
    raise TypeError(f"a {type(value).__name__} cannot become JSON")


_scan = json.JSONDecoder().scan_once
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=_default).encode


def lacking(value: Any) -> Any:
    """What stands for a value that msgpack lacks: of models their fields, else what JSON has for it."""
    return value.model_dump() if hasattr(value, "model_dump") else _default(value)


def is_pydantic(cls: Any) -> bool:
    """Whether a class is a pydantic model."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__")


def is_struct(cls: Any) -> bool:
    """Whether a class is a msgspec struct."""
    return isinstance(cls, type) and hasattr(cls, "__struct_fields__")


def encode_action(action: Any) -> bytes:
    """An action as the JSON of a step: a pydantic model, a dataclass, a msgspec struct or a mapping."""
    return _encoder(type(action))(action)


@lru_cache(maxsize=256)
def _encoder(cls: Any) -> Callable[[Any], bytes]:
    if cls is dict:
        return dumps
    if is_pydantic(cls):
        return cls.__pydantic_serializer__.to_json
    if is_struct(cls):
        return sys.modules["msgspec"].json.Encoder(enc_hook=_default).encode
    return lambda action: dumps(_mapping(action))


def _mapping(action: Any) -> dict[str, Any]:
    if hasattr(action, "keys"):
        return dict(action)
    if dataclasses.is_dataclass(action) and not isinstance(action, type):
        return dataclasses.asdict(action)
    raise TypeError(f"an action is a model or a mapping, not a {type(action).__name__}")


def plain_action(action: Any) -> Any:
    """The same as plain values, for msgpack: arrays and bytes stay what they are."""
    if isinstance(action, dict):
        return action
    if is_pydantic(type(action)):
        return action.model_dump()
    if is_struct(type(action)):
        numpy = sys.modules.get("numpy")
        kept = (bytes, bytearray) if numpy is None else (bytes, bytearray, numpy.ndarray)
        return sys.modules["msgspec"].to_builtins(action, builtin_types=kept, enc_hook=lacking)
    return _mapping(action)


@lru_cache(maxsize=256)
def reader(cls: type | None) -> Callable[[Any], Any]:
    """What makes an observation or a state of a class from a mapping; what does not fit is a ProtocolError."""
    if cls is None or cls is dict:
        return _as_it_is
    read = _reader(cls)

    def fit(value: Any) -> Any:
        try:
            return read(value)
        # pydantic's and msgspec's errors are ValueErrors.
        except (ValueError, TypeError) as error:
            raise ProtocolError(f"an answer does not fit {cls.__name__}: {error}") from error

    return fit


def _reader(cls: Any) -> Callable[[Any], Any]:
    if is_pydantic(cls):
        return cls.__pydantic_validator__.validate_python
    if is_struct(cls):
        import msgspec

        return lambda value: msgspec.convert(value, cls)
    if dataclasses.is_dataclass(cls):
        try:
            from pydantic import TypeAdapter
        except ImportError:
            names = [field.name for field in dataclasses.fields(cls) if field.init]
            return lambda value: cls(**{name: value[name] for name in names if name in value})
        return TypeAdapter(cls).validate_python
    return lambda value: cls(**value)


@lru_cache(maxsize=256)
def besides(cls: Any) -> dict[str, bool]:
    """The members of a reply's envelope that a class of observations has fields for, and whether it cannot be without them."""
    if is_struct(cls):
        fields = {field.name: field.required for field in sys.modules["msgspec"].structs.fields(cls)}
    elif is_pydantic(cls) and hasattr(cls, "model_fields"):
        fields = {name: field.is_required() for name, field in cls.model_fields.items()}
    elif dataclasses.is_dataclass(cls):
        missing = dataclasses.MISSING
        fields = {f.name: f.default is missing and f.default_factory is missing for f in dataclasses.fields(cls)}
    else:
        fields = {}
    return {name: fields[name] for name in ("reward", "done", "metadata") if name in fields}


def result_reader(cls: type | None) -> Callable[[bytes], StepResult]:
    """What makes a StepResult, with an observation of a class, from the JSON of a reply."""
    if is_struct(cls):
        return _struct_reader(cls)
    if cls is None or cls is dict:
        return lambda data: from_reply(loads(data), _as_it_is)
    read, beside = reader(cls), besides(cls)
    return lambda data: from_reply(loads(data), read, beside)


def _as_it_is(value: Any) -> Any:
    return value


_NOTHING: dict[str, bool] = {}


def from_reply(reply: Any, read: Callable[[Any], Any] = dict, beside: dict[str, bool] = _NOTHING) -> StepResult:
    """A StepResult of the mapping of a reply; `beside` is what :func:`besides` tells of the observation's class."""
    try:
        observation, get = reply["observation"], reply.get
    except (TypeError, KeyError, AttributeError):
        raise ProtocolError("an answer has no observation") from None
    metadata = get("metadata")
    if isinstance(observation, dict):
        if metadata is None:
            metadata = observation.get("metadata") or None
        for name, needed in beside.items():
            value = get(name)
            # The reply is read for this result alone; it may be written to.
            if value is not None:
                observation[name] = value
            elif needed:
                observation.setdefault(name, None)
    elif read is _as_it_is:
        raise ProtocolError(f"an answer has a {type(observation).__name__} for its observation")
    reward = get("reward")
    if reward.__class__ not in _REWARDS or metadata.__class__ not in _METADATA:
        raise ProtocolError("an answer has a reward that is no number, or metadata that is no object")
    return StepResult(read(observation), reward, bool(get("done", False)), metadata)


_REWARDS = frozenset({float, int, bool, type(None)})
_METADATA = frozenset({dict, type(None)})


def _struct_reader(cls: Any) -> Callable[[bytes], StepResult]:
    import msgspec

    read, beside = reader(cls), besides(cls)

    def slowly(data: bytes) -> StepResult:
        return from_reply(loads(data), read, beside)

    if any(beside.values()):
        # Without what stands beside the observation it does not fit.
        return slowly
    members = [("observation", cls), ("reward", Any, None), ("done", bool, False), ("metadata", Any, None)]
    decode = msgspec.json.Decoder(msgspec.defstruct("Reply", members)).decode
    put = msgspec.structs.force_setattr

    def result(data: bytes) -> StepResult:
        try:
            reply = decode(data)
        except msgspec.DecodeError:
            # NaN is no JSON to msgspec.
            return slowly(data)
        observation, metadata = reply.observation, reply.metadata
        for name in beside:
            if (value := getattr(reply, name)) is not None:
                put(observation, name, value)
        if metadata is None:
            if "metadata" in beside:
                metadata = observation.metadata or None
            elif b'"metadata":{"' in data:
                return slowly(data)
        return StepResult(observation, reply.reward, reply.done, metadata)

    return result
