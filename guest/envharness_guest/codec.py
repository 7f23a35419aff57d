"""Values as tagged JSON: what comes out equals what went in, in value and in type.

Plain values are JSON. Others are ``{"$": tag, ...}``. What has no tag is pickled where pickling is allowed, and else
refused by the name of its type. Both sides of a call use this module, whatever their Python versions.
"""

import base64
import datetime
import decimal
import importlib
import json
import math
import pathlib
import pickle
import sys
import uuid

#: Highest pickle protocol that Python 3.8 reads.
PROTOCOL = 4


class CodecError(TypeError):
    """A value that cannot cross."""


class _Cycle(Exception):
    """A value that contains itself."""


def dumps(value, pickler=None):
    """Encodes a value as JSON text; ``pickler`` turns a value into bytes, or is None where pickling is not allowed."""
    try:
        encoded = _encode(value, pickler, [])
    except _Cycle:
        # As a whole, or the identity within would be lost.
        encoded = _pickled(value, pickler)
    except RecursionError as error:
        raise CodecError("a value of type %s is nested too deeply to be sent" % type(value).__qualname__) from error
    try:
        return json.dumps(encoded, ensure_ascii=True, allow_nan=False)
    except RecursionError as error:
        raise CodecError("a value of type %s is nested too deeply to be sent" % type(value).__qualname__) from error


def loads(text, allow_pickle=False):
    """Decodes JSON text."""
    return _decode(json.loads(text), allow_pickle)


def _is_text(value):
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _bytes(data):
    return base64.b64encode(data).decode("ascii")


def _encode(value, pickler, above):
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        # JSON would join two surrogates that stand side by side into one character.
        return value if _is_text(value) else {"$": "str", "v": _bytes(value.encode("utf-8", "surrogatepass"))}
    if kind is int:
        return value if value.bit_length() < 1000 else {"$": "int", "v": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$": "float", "v": repr(value)}
    if kind in (list, dict, tuple, set, frozenset):
        if any(other is value for other in above):
            raise _Cycle
        above.append(value)
        try:
            return _collection(kind, value, pickler, above)
        finally:
            above.pop()
    return _scalar(kind, value) or _array(kind, value) or _pickled(value, pickler)


def _collection(kind, value, pickler, above):
    def each(items):
        return [_encode(item, pickler, above) for item in items]

    if kind is list:
        return each(value)
    if kind is dict:
        if all(type(key) is str and _is_text(key) for key in value) and "$" not in value:
            return {key: _encode(item, pickler, above) for key, item in value.items()}
        return {"$": "dict", "v": [each(pair) for pair in value.items()]}
    return {"$": kind.__name__, "v": each(value)}


def _scalar(kind, value):
    if kind is bytes or kind is bytearray:
        return {"$": kind.__name__, "v": _bytes(bytes(value))}
    if kind is complex:
        return {"$": "complex", "v": [repr(value.real), repr(value.imag)]}
    if kind is range:
        return {"$": "range", "v": [value.start, value.stop, value.step]}
    if kind is slice and all(type(part) in (int, type(None)) for part in (value.start, value.stop, value.step)):
        return {"$": "slice", "v": [value.start, value.stop, value.step]}
    if kind is decimal.Decimal or kind is uuid.UUID:
        return {"$": kind.__name__, "v": str(value)}
    if kind in (pathlib.PosixPath, pathlib.PurePosixPath):
        return {"$": kind.__name__, "v": str(value)}
    if kind is datetime.timedelta:
        return {"$": "timedelta", "v": [value.days, value.seconds, value.microseconds]}
    if kind is datetime.date:
        return {"$": "date", "v": value.isoformat()}
    if kind in (datetime.datetime, datetime.time) and type(value.tzinfo) in (type(None), datetime.timezone):
        offset = value.tzinfo
        if offset is None or offset.tzname(None) == datetime.timezone(offset.utcoffset(None)).tzname(None):
            return {"$": kind.__name__, "v": value.isoformat(), "fold": value.fold}
    return None


def _array(kind, value):
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if kind is numpy.ndarray and _is_plain(value.dtype):
        dtype = value.dtype.str if value.dtype.names is None else [list(field) for field in value.dtype.descr]
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        data = value.tobytes(order=order)
        return {"$": "ndarray", "dtype": dtype, "shape": list(value.shape), "order": order, "v": _bytes(data)}
    if kind is numpy.str_:
        return {"$": "npstr", "v": _encode(str(value), None, [])}
    if kind is numpy.bytes_:
        return {"$": "npbytes", "v": _bytes(bytes(value))}
    if isinstance(value, numpy.generic) and kind.__module__ == "numpy" and value.dtype.kind in "biufcmM":
        return {"$": "npscalar", "dtype": value.dtype.str, "v": _bytes(value.tobytes())}
    return None


def _is_plain(dtype):
    """Whether a dtype is its text again: no objects, and structures packed, flat and of plain fields."""
    if dtype.hasobject or dtype.metadata:
        return False
    if dtype.names is None:
        return dtype.kind in "biufcmMSU" and dtype.itemsize > 0
    flat = all(len(field) == 2 and isinstance(field[1], str) and isinstance(field[0], str) for field in dtype.descr)
    return flat and not dtype.isalignedstruct and "" not in [field[0] for field in dtype.descr]


def _pickled(value, pickler):
    if pickler is None:
        kind = type(value)
        raise CodecError(
            "a value of type %s.%s cannot cross the border of this context without pickle"
            % (kind.__module__, kind.__qualname__)
        )
    try:
        return {"$": "pickle", "v": _bytes(pickler(value))}
    except Exception as error:
        kind = type(value)
        raise CodecError("a value of type %s.%s cannot be sent: %s" % (kind.__module__, kind.__qualname__, error)) from error


def _numpy():
    try:
        return importlib.import_module("numpy")
    except ImportError as error:
        raise CodecError("an array came, and numpy is not there to hold it") from error


def _dtype(numpy, described):
    return numpy.dtype([tuple(field) for field in described] if isinstance(described, list) else described)


def _decode(value, allow_pickle):
    if isinstance(value, list):
        return [_decode(item, allow_pickle) for item in value]
    if not isinstance(value, dict):
        return value
    tag = value.get("$")
    if tag is None:
        return {key: _decode(item, allow_pickle) for key, item in value.items()}
    inner = value.get("v")
    if tag == "pickle":
        if not allow_pickle:
            raise CodecError("a pickled value came where pickle is not allowed")
        return pickle.loads(base64.b64decode(inner))
    if tag == "ndarray":
        numpy = _numpy()
        flat = numpy.frombuffer(bytearray(base64.b64decode(inner)), dtype=_dtype(numpy, value["dtype"]))
        return flat.reshape(value["shape"], order=value["order"])
    if tag == "npscalar":
        numpy = _numpy()
        return numpy.frombuffer(base64.b64decode(inner), dtype=numpy.dtype(value["dtype"]))[0]
    if tag == "npstr":
        return _numpy().str_(_decode(inner, allow_pickle))
    if tag == "npbytes":
        return _numpy().bytes_(base64.b64decode(inner))
    if tag in ("tuple", "set", "frozenset"):
        return {"tuple": tuple, "set": set, "frozenset": frozenset}[tag](_decode(item, allow_pickle) for item in inner)
    if tag == "dict":
        return {_decode(key, allow_pickle): _decode(item, allow_pickle) for key, item in inner}
    if tag in ("datetime", "time"):
        return getattr(datetime, tag).fromisoformat(inner).replace(fold=value["fold"])
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise CodecError("an unknown kind of value came: %r" % (tag,))
    return decoder(inner)


_DECODERS = {
    "int": lambda v: int(v, 16),
    "str": lambda v: base64.b64decode(v).decode("utf-8", "surrogatepass"),
    "float": float,
    "bytes": lambda v: base64.b64decode(v),
    "bytearray": lambda v: bytearray(base64.b64decode(v)),
    "complex": lambda v: complex(float(v[0]), float(v[1])),
    "range": lambda v: range(*v),
    "slice": lambda v: slice(*v),
    "Decimal": decimal.Decimal,
    "UUID": uuid.UUID,
    "PosixPath": pathlib.PosixPath,
    "PurePosixPath": pathlib.PurePosixPath,
    "timedelta": lambda v: datetime.timedelta(*v),
    "date": datetime.date.fromisoformat,
}
