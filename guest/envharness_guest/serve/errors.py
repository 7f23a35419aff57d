"""Errors of a load, and how an exception of an environment is told."""

import traceback

from .jsontext import dump_plain


class LoadError(Exception):
    """The target cannot be served: `str(error)` says why, `hint` what to do, `missing` which module lacks."""

    def __init__(self, message, hint=None, missing=None):
        super().__init__(message)
        self.hint, self.missing = hint, missing


class Failure(Exception):
    """An answer of the kind FAILED: a code of the wire and a message."""

    def __init__(self, code, message, **more):
        super().__init__(message)
        self.payload = dump_plain({"code": code, "message": message, **more})


class Invalid(Exception):
    """An answer of the kind INVALID: pydantic's items as JSON bytes."""

    def __init__(self, items):
        super().__init__("invalid")
        self.payload = items


def text_of(error):
    """An exception's message, or its name where it has none that says anything."""
    try:
        text = str(error)
    except Exception as second:  # a __str__ of the environment's own
        text = "<no message: {}>".format(type(second).__name__)
    if isinstance(error, Exception):
        return text
    # SystemExit and its like: what they carry says nothing without the name.
    return "{}: {}".format(type(error).__name__, text)


def trace_of(error):
    """The traceback as text, without our own frames on top."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return "".join(lines)
