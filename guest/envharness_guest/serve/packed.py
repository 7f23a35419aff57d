"""Values as msgpack, for requests that ask for it; what msgpack lacks becomes what it is in JSON."""

import dataclasses
import enum
import json
import sys

from ..msgpack import packb, unpackb
from .errors import Invalid
from .jsontext import dump_plain, dumps

try:
    from pydantic_core import to_jsonable_python as _jsonable
except Exception:
    _jsonable = None


def read(payload, lists):
    """The value of a payload, None for an empty one; raises `Invalid`. `lists` asks for lists in the place of arrays."""
    if not payload:
        return None
    try:
        return unpackb(payload, lists)
    except ValueError as error:
        item = {"type": "msgpack_invalid", "loc": [], "msg": "Invalid msgpack: {}".format(error), "input": None}
        raise Invalid(dump_plain([item])) from None


def write(value):
    """A value as bytes. Raises ValueError or TypeError for what has no place in msgpack."""
    return packb(value, lacking)


def lacking(value):
    """What stands for a value that msgpack lacks: of models and records their fields, else what JSON has for it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return list(value)
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(type(value), "__struct_fields__"):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if hasattr(value, "to_json") and not isinstance(value, type):
        return value.to_json()
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return value.tolist()
    if _jsonable is None:
        raise TypeError("a value of the type {} has no place in msgpack".format(type(value).__name__))
    return _jsonable(value)


def items_of(error):
    """The items of pydantic's error as JSON bytes, whatever the input was."""
    try:
        data = error.json().encode()
    except ValueError:
        # Bytes that are no text stood in the input, which JSON has no way to show.
        items = error.errors(include_url=False, include_context=False, include_input=False)
        return dumps([dict(item, input=None) for item in items])[0]
    # Only msgpack brings what is not finite; in JSON it is null.
    return dumps(json.loads(data.decode()))[0] if b"NaN" in data or b"Infinity" in data else data
