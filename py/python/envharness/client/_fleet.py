"""Opening many sessions on one server or several, balanced by free slots."""

from __future__ import annotations

import contextlib
import json
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

from envharness import _native
from envharness._errors import (
    ClientError,
    ConnectError,
    EnvHarnessError,
    ProtocolError,
    RequestTimeout,
    Saturated,
    SessionLost,
    from_client,
)

#: Sessions that are opened at once.
_AT_ONCE = 256
#: How long one of several full servers is waited for before the next is asked, and how long a refusal is not asked again.
_TURN, _PAUSE = 0.5, 0.25


class Gathering:
    """Calls that run at once, waited for on this thread; Ctrl-C ends the wait."""

    def __init__(self) -> None:
        self._port, self._poll = _native.Port(), select.poll()
        self._poll.register(self._port.fileno(), select.POLLIN)
        self._waiting: dict[int, Callable[[Any, Any], None]] = {}
        self._next = 0

    def begin(self, start: Callable[..., Any], done: Callable[[Any, Any], None]) -> None:
        """Starts something with a port and a token; ``done(error, value)`` is called by :meth:`turn`."""
        self._next += 1
        self._waiting[self._next] = done
        start(port=self._port, token=self._next)

    def __len__(self) -> int:
        return len(self._waiting)

    def turn(self) -> None:
        """Waits a little until something is there, and hands it over."""
        # Not select, which knows no descriptors above 1,023.
        self._poll.poll(200)
        for token, error, value in self._port.drain():
            done = self._waiting.pop(token, None)
            if done is not None:
                done(None if error is None else from_client(*error), value)

    def finish(self) -> None:
        """Waits until nothing is under way."""
        while self._waiting:
            self.turn()


def free_slots(endpoints: Sequence[_native.Endpoint], timeout: float) -> list[float]:
    """Free sessions of each server: infinite where it does not tell, -1 where it cannot be reached."""
    found: list[Any] = [None] * len(endpoints)
    gathering = Gathering()
    for at, endpoint in enumerate(endpoints):

        def done(error: Exception | None, value: Any, at: int = at) -> None:
            if error is not None:
                found[at] = error
                return
            try:
                told = json.loads(value[1])
                found[at] = float("inf") if told is None else float(told["free"])
            except (ValueError, TypeError, KeyError):
                found[at] = ProtocolError("an answer has no number of free sessions")

        gathering.begin(lambda endpoint=endpoint, **to: endpoint.capacity(timeout, **to), done)
    gathering.finish()
    errors = [value for value in found if isinstance(value, Exception)]
    if len(errors) == len(found):
        raise errors[0]
    return [-1.0 if isinstance(value, Exception) else value for value in found]


def shares(free: Sequence[float], wanted: int) -> list[int]:
    """How many of the wanted sessions each server gets: the one with the most free ones first, then evenly."""
    counts = [0] * len(free)
    reachable = [at for at, n in enumerate(free) if n >= 0]
    left = [min(free[at], 1e9) for at in range(len(free))]
    for _ in range(wanted):
        best = max(reachable, key=lambda at: (left[at] - counts[at] > 0, left[at] - counts[at], -counts[at]))
        counts[best] += 1
    return counts


def open_sessions(
    endpoints: Sequence[_native.Endpoint], slots: Sequence[int], options: str, timeout: float, wait: float | None
) -> dict[int, tuple[int, _native.ClientSession]]:
    """A session for each slot, with the number of its server; neighbours share a server.

    Raises:
        Saturated: They are not all free; nothing is left open.
        EnvHarnessError: Any other failure; nothing is left open.
    """
    free = free_slots(endpoints, timeout) if len(endpoints) > 1 else [float("inf")]
    opening = _Opening(endpoints, free, options, timeout, wait)
    places = [at for at, count in enumerate(shares(free, len(slots))) for _ in range(count)]
    opening.todo = list(zip(slots, places))[::-1]
    try:
        opening.run()
    except EnvHarnessError:
        opening.gathering.finish()
        close_sessions(session for _, session in opening.opened.values())
        raise
    return opening.opened


class _Opening:
    """Sessions that are being opened."""

    def __init__(
        self, endpoints: Sequence[_native.Endpoint], free: Sequence[float], options: str, timeout: float, wait: float | None
    ) -> None:
        self.endpoints, self.free, self.options, self.timeout = endpoints, free, options, timeout
        self.until = None if wait is None else time.monotonic() + wait
        self.gathering = Gathering()
        self.todo: list[tuple[int, int]] = []
        self.later: list[tuple[float, int, int]] = []
        self.opened: dict[int, tuple[int, _native.ClientSession]] = {}
        self.failures: list[EnvHarnessError] = []
        #: What each server said, by slot, the last word of each.
        self.said: dict[int, dict[int, EnvHarnessError]] = {}
        self.tries: dict[int, int] = {}

    def run(self) -> None:
        """Opens all of them; raises the first failure."""
        while self.todo or self.later or len(self.gathering):
            while self.todo and len(self.gathering) < _AT_ONCE:
                self.start(*self.todo.pop())
            self.gathering.turn()
            if self.failures:
                raise self.failures[0]
            now = time.monotonic()
            self.todo += [(slot, place) for due, slot, place in self.later if due <= now]
            self.later = [entry for entry in self.later if entry[0] > now]

    def left(self) -> float | None:
        """How many seconds may still be waited for room."""
        return None if self.until is None else max(0.0, self.until - time.monotonic())

    def start(self, slot: int, place: int) -> None:
        """Asks one server for a session of a slot."""
        began, room = time.monotonic(), self.left()
        if room is not None and len(self.endpoints) > 1:
            # Others may have room at once, or before this one.
            room = None if len(self.said.get(slot, ())) < len(self.endpoints) else min(room, _TURN)

        def done(error: EnvHarnessError | None, session: Any) -> None:
            if error is not None:
                self.refused(slot, place, error, began)
            elif session.is_v1:
                self.opened[slot] = place, session
            else:
                # A socket of OpenEnv's protocol may be refused after it is open: any answer tells that it is not.
                ask = lambda port, token: session.ask(port, token, "state", "json", b"", self.timeout)  # noqa: E731
                self.gathering.begin(ask, lambda error, _: answered(error, session))

        def answered(error: EnvHarnessError | None, session: Any) -> None:
            if isinstance(error, (Saturated, SessionLost, ConnectError, RequestTimeout)):
                self.refused(slot, place, error, began)
            else:
                self.opened[slot] = place, session

        self.gathering.begin(lambda **to: self.endpoints[place].open(self.options, self.timeout, room, **to), done)

    def refused(self, slot: int, place: int, error: EnvHarnessError, began: float) -> None:
        """One server has none for this slot: another may have, or this one later."""
        said = self.said.setdefault(slot, {})
        said[place] = error
        if not isinstance(error, (Saturated, ConnectError)) and getattr(error, "code", None) != "DRAINING":
            self.failures.append(error)
            return
        others = [at for at in range(len(self.endpoints)) if at not in said]
        if others:
            self.todo.append((slot, max(others, key=lambda at: self.free[at])))
            return
        full = [at for at, told in sorted(said.items()) if isinstance(told, Saturated)]
        if full and self.left():
            self.tries[slot] = again = self.tries.get(slot, 0) + 1
            self.later.append((began + _PAUSE, slot, full[again % len(full)]))
            return
        self.failures.append(said[full[0]] if full else error)


def close_sessions(sessions: Any, timeout: float = 5.0) -> None:
    """Ends sessions, all at once; those that are gone are gone."""
    gathering = Gathering()
    for session in sessions:
        with contextlib.suppress(ClientError):
            gathering.begin(lambda session=session, **to: session.close(timeout, **to), lambda error, value: None)
    gathering.finish()
