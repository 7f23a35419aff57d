"""Opening many sessions on one server or several, balanced by free slots."""

from __future__ import annotations

import contextlib
import json
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

from envharness import _native
from envharness._errors import ClientError, ConnectError, EnvHarnessError, Saturated, from_client

#: Sessions that are opened at once.
_AT_ONCE = 256


class Gathering:
    """Calls that run at once, waited for on this thread; Ctrl-C ends the wait."""

    def __init__(self) -> None:
        self._port = _native.Port()
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
        """Waits until something is there, and hands it over."""
        select.select([self._port.fileno()], [], [], 0.2)
        for token, error, value in self._port.drain():
            done = self._waiting.pop(token, None)
            if done is not None:
                done(None if error is None else from_client(*error), value)


def free_slots(endpoints: Sequence[_native.Endpoint], timeout: float) -> list[float]:
    """Free sessions of each server: infinite where it does not tell, -1 where it cannot be reached."""
    found: list[Any] = [None] * len(endpoints)
    gathering = Gathering()
    for at, endpoint in enumerate(endpoints):

        def done(error: Exception | None, value: Any, at: int = at) -> None:
            if error is not None:
                found[at] = error
                return
            told = json.loads(value[1])
            found[at] = float("inf") if told is None else float(told["free"])

        gathering.begin(lambda endpoint=endpoint, **to: endpoint.capacity(timeout, **to), done)
    while len(gathering):
        gathering.turn()
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
) -> dict[int, _native.ClientSession]:
    """A session for each slot; neighbours share a server.

    Raises:
        Saturated: They are not all free; nothing is left open.
        ClientError: Any other failure; nothing is left open.
    """
    free = free_slots(endpoints, timeout) if len(endpoints) > 1 else [float("inf")]
    counts = shares(free, len(slots))
    places = [at for at, count in enumerate(counts) for _ in range(count)]
    todo = list(zip(slots, places))
    todo.reverse()
    opened: dict[int, _native.ClientSession] = {}
    failures: list[EnvHarnessError] = []
    tried: dict[int, set[int]] = {}
    until = None if wait is None else time.monotonic() + wait
    gathering = Gathering()

    def start(slot: int, place: int) -> None:
        def done(error: EnvHarnessError | None, session: Any) -> None:
            if error is None:
                opened[slot] = session
                return
            # Another server may have room, or be there at all.
            seen = tried.setdefault(slot, set())
            seen.add(place)
            others = [at for at in range(len(endpoints)) if at not in seen]
            if others and isinstance(error, (Saturated, ConnectError)):
                todo.append((slot, others[0]))
            else:
                failures.append(error)

        room = None if until is None or len(endpoints) - len(tried.get(slot, ())) > 1 else max(0.0, until - time.monotonic())
        gathering.begin(lambda **to: endpoints[place].open(options, timeout, room, **to), done)

    try:
        while (todo or len(gathering)) and not failures:
            while todo and len(gathering) < _AT_ONCE:
                start(*todo.pop())
            gathering.turn()
        if failures:
            raise failures[0]
    except BaseException:
        while len(gathering):
            gathering.turn()
        close_sessions(opened.values())
        raise
    return opened


def close_sessions(sessions: Any, timeout: float = 5.0) -> None:
    """Ends sessions, all at once; those that are gone are gone."""
    gathering = Gathering()
    for session in sessions:
        with contextlib.suppress(ClientError):
            gathering.begin(lambda session=session, **to: session.close(timeout, **to), lambda error, value: None)
    while len(gathering):
        gathering.turn()
