"""Between the thread of the sockets and event loops: a loop watches one descriptor for all of its clients."""

from __future__ import annotations

import asyncio
import atexit
import os
import weakref
from collections.abc import Callable
from typing import Any

from envharness import _native
from envharness._errors import ClientError, from_client

atexit.register(_native.close_connections)
os.register_at_fork(after_in_child=_native.forget_connections)


class LoopPort:
    """Where outcomes arrive for one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._native = _native.Port()
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._next = 0
        loop.add_reader(self._native.fileno(), self._arrived)

    def _arrived(self) -> None:
        futures = self._futures
        for token, error, value in self._native.drain():
            future = futures.pop(token, None)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(from_client(*error))

    async def ask(
        self,
        session: _native.ClientSession,
        op: str,
        encoding: str,
        payload: bytes,
        timeout: float | None,
        whole: bool = False,
    ) -> tuple[int, bytes]:
        """A call of a session: flags and payload. Cancelling it gives the answer up, not the session."""
        self._next = token = self._next + 1
        self._futures[token] = future = asyncio.get_running_loop().create_future()
        try:
            ticket = session.ask(self._native, token, op, encoding, payload, timeout, whole)
        except BaseException:
            del self._futures[token]
            raise
        try:
            return await future
        except asyncio.CancelledError:
            self._futures.pop(token, None)
            session.cancel(ticket)
            raise

    async def begin(self, start: Callable[..., Any]) -> Any:
        """Something that is started with a port and a token, and its value."""
        self._next = token = self._next + 1
        self._futures[token] = future = asyncio.get_running_loop().create_future()
        try:
            start(port=self._native, token=token)
            return await future
        finally:
            self._futures.pop(token, None)

    async def rung(self, vector: _native.ClientVector, least: int, timeout: float | None) -> None:
        """Waits until a vector has `least` outcomes, or the time is over."""
        self._next = token = self._next + 1
        self._futures[token] = future = asyncio.get_running_loop().create_future()
        vector.ring(self._native, token, least)
        try:
            await asyncio.wait_for(future, timeout)
        except asyncio.TimeoutError:
            pass
        finally:
            self._futures.pop(token, None)


_ports: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopPort] = weakref.WeakKeyDictionary()
#: The port that was asked for last: mostly it is asked for again.
_recent: tuple[Callable[[], Any], Any] = (lambda: None, None)


def port() -> LoopPort:
    """The port of the running loop.

    Raises:
        RuntimeError: No loop runs in this thread.
        ClientError: The loop cannot watch a descriptor.
    """
    global _recent
    loop = asyncio.get_running_loop()
    of, recent = _recent
    if of() is loop:
        return recent
    found = _ports.get(loop)
    if found is None:
        try:
            found = _ports[loop] = LoopPort(loop)
        except NotImplementedError:
            raise ClientError("this event loop cannot watch descriptors", hint="use `.sync()`") from None
    _recent = weakref.ref(loop), found
    return found
