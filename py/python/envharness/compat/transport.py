"""A WebSocket with the few methods that OpenEnv's clients use, over the native core."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from envharness import _native
from envharness._errors import ClientError
from envharness.client._endpoint import endpoint
from envharness.client._ports import port


class Connection:
    """A socket that answers each message with one; :func:`connect` makes one."""

    def __init__(self, session: _native.ClientSession) -> None:
        """Takes over a session."""
        self._session: _native.ClientSession | None = session
        self._replies: deque[asyncio.Future[Any]] = deque()

    @property
    def close_code(self) -> int | None:
        """None while the socket can be used."""
        return None if self._session is not None and self._session.fate is None else 1006

    async def send(self, text: str) -> None:
        """Sends a message; its reply is for :meth:`recv`."""
        if self._session is None:
            raise ConnectionError("the connection is closed")
        asked = port().ask(self._session, "step", "json", text.encode(), None, whole=True)
        self._replies.append(asyncio.ensure_future(asked))
        # The task must have asked before the next message does.
        await asyncio.sleep(0)

    async def recv(self) -> str:
        """The reply to the oldest message without one.

        Raises:
            ConnectionError: The connection broke.
        """
        if not self._replies:
            raise ConnectionError("nothing was asked")
        try:
            return (await self._replies.popleft())[1].decode()
        except ClientError as error:
            if error.code is None:
                raise _in_their_words(error) from error
            # A refusal that came before anything was asked.
            return json.dumps({"type": "error", "data": error.data})

    async def close(self) -> None:
        """Says goodbye."""
        session, self._session = self._session, None
        replies, self._replies = self._replies, deque()
        for reply in replies:
            reply.cancel()
        if session is not None:
            with contextlib.suppress(ClientError):
                await port().begin(lambda **to: session.close(5.0, **to))


def _in_their_words(error: ClientError) -> Exception:
    """The same as one of the errors that OpenEnv's clients tell of."""
    if isinstance(error, (ConnectionError, TimeoutError)):
        return error
    return ConnectionError(str(error))


async def post(url: str, path: str, body: bytes, headers: Mapping[str, str] | None, timeout: float | None) -> Any:
    """What a POST of JSON gives.

    Raises:
        ConnectionError: There is no connection, or the server refuses.
        TimeoutError: No answer in time.
        ValueError: It is no JSON.
    """
    target = endpoint(url, {"headers": headers})
    limit = 60.0 if timeout is None else timeout
    try:
        status, answer = await port().begin(lambda **to: target.fetch(path, body, limit, **to))
    except ClientError as error:
        raise _in_their_words(error) from error
    if status != 200:
        raise ConnectionError(f"{url.rstrip('/')}{path} answered {status}")
    return json.loads(answer)


async def connect(
    url: str,
    *,
    open_timeout: float | None = 10.0,
    max_size: int | None = None,
    ping_interval: float | None = 20.0,
    ping_timeout: float | None = 20.0,
    additional_headers: Mapping[str, str] | None = None,
    proxy: str | None = "auto",
) -> Connection:
    """A connection that speaks OpenEnv's protocol.

    Raises:
        ConnectError: There is none.
    """
    address, _, query = url.partition("?")
    settings: dict[str, Any] = {"protocol": "openenv", "headers": additional_headers, "proxy": proxy}
    # No pings, in the words of another library, is a silence that may last.
    settings["ping_interval"] = 86400.0 if ping_interval is None else ping_interval
    settings["ping_timeout"] = 86400.0 if ping_timeout is None else ping_timeout
    settings["connect_timeout"] = 60.0 if open_timeout is None else open_timeout
    if max_size is not None:
        settings["max_message_size"] = max_size
    target = endpoint(address, settings)
    timeout = settings["connect_timeout"]
    return Connection(await port().begin(lambda **to: target.open("{}", timeout, None, query or None, **to)))
