"""What environments print goes to the log of their session.

`sys.stdout` and `sys.stderr` are replaced by writers that know which session runs on this thread or task. What bypasses
them (C code, child processes) lands in the worker's pipe instead.
"""

import contextvars
import io
import sys

#: The session whose code runs here; 0 for none.
current = contextvars.ContextVar("envharness_session", default=0)

#: The longest piece of one session's output that is sent at once.
MOST = 64 * 1024


class SessionStream(io.TextIOBase):
    """A text stream that hands whole lines to `send(session, stream, text)`."""

    def __init__(self, number, send, original):
        self._number, self._send, self._original = number, send, original
        self._parts = {}

    encoding = "utf-8"
    errors = "replace"

    def writable(self):
        return True

    def fileno(self):
        return self._original.fileno()

    @property
    def buffer(self):
        return self._original.buffer

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not {}".format(type(text).__name__))
        session = current.get()
        if session == 0:
            return self._original.write(text)
        held = self._parts.get(session, "") + text
        if "\n" in held or len(held) > MOST:
            whole, _, rest = held.rpartition("\n") if "\n" in held else (held, "", "")
            self._parts[session] = rest
            for at in range(0, len(whole), MOST):
                self._send(session, self._number, whole[at : at + MOST])
        else:
            self._parts[session] = held
        return len(text)

    def flush(self):
        session = current.get()
        held = self._parts.pop(session, "") if session else ""
        if held:
            self._send(session, self._number, held)
        elif not session:
            self._original.flush()

    def forget(self, session):
        """Sends what an ending session had not finished."""
        held = self._parts.pop(session, "")
        if held:
            self._send(session, self._number, held)


def install(send):
    """Puts the writers in place; `send` must be safe to call from any thread."""
    sys.stdout = SessionStream(1, send, sys.stdout)
    sys.stderr = SessionStream(2, send, sys.stderr)
