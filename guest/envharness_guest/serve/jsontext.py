"""JSON as the reference server reads and writes it, by the fastest means the environment has.

Values are read as Python's `json.loads` reads them. They are written as `pydantic_core.to_json` writes them, where pydantic
is, so that sets, enums, dates and models come out as the reference's do; a NaN or an infinity becomes null and is reported.
"""

import json

try:
    from pydantic_core import from_json as _from_json
    from pydantic_core import to_json as _to_json

    _to_json(0.5, inf_nan_mode="constants")
except Exception:  # absent, or a pydantic whose core lacks the mode
    _from_json = _to_json = None


def loads(data):
    """Reads JSON bytes."""
    if _from_json is not None:
        try:
            return _from_json(data)
        except ValueError:
            pass  # half a surrogate pair, for one, which Python's own reader lets through
    return json.loads(data)


def dump_plain(value):
    """Our own values as bytes: no NaN, nothing but JSON's types."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _custom(value):
    convert = getattr(value, "to_json", None)
    if convert is not None and not isinstance(value, type):
        return convert()
    raise TypeError("Unable to serialize unknown type: {!r}".format(type(value)))


def dumps(value):
    """Writes a value: its bytes, and whether something not finite became null.

    Raises ValueError or TypeError for what cannot become JSON.
    """
    if _to_json is None:
        return _dumps_plain(value)
    try:
        data = _to_json(value, inf_nan_mode="constants")
    except Exception as error:
        # A type that says itself how it becomes JSON; what does not is refused in the words that the reference sends.
        try:
            data = _to_json(value, inf_nan_mode="constants", fallback=_custom)
        except Exception:
            raise error from None
    if b"NaN" in data or b"Infinity" in data:
        clean = _to_json(value, inf_nan_mode="null", fallback=_custom)
        return clean, clean != data
    return data, False


def _finite(value):
    """A copy without what is not finite, and whether there was any."""
    if isinstance(value, float):
        ok = value == value and value not in (float("inf"), float("-inf"))
        return (value, False) if ok else (None, True)
    if isinstance(value, dict):
        pairs = {str(k): _finite(v) for k, v in value.items()}
        return {k: v for k, (v, _) in pairs.items()}, any(bad for _, bad in pairs.values())
    if isinstance(value, (list, tuple)):
        items = [_finite(v) for v in value]
        return [v for v, _ in items], any(bad for _, bad in items)
    return value, False


def _dumps_plain(value):
    try:
        text, bad = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_custom), False
    except ValueError:
        value, bad = _finite(value)
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_custom)
    return text.encode("utf-8"), bad
