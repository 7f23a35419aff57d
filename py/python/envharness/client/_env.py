"""One session: ``EnvClient`` for event loops, ``SyncEnvClient`` for blocking code, both over the same native core."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from envharness import _native
from envharness._errors import ClientError, ProtocolError, SessionLost
from envharness._runtime import guest_module
from envharness.client._codec import (
    besides,
    contract_of,
    dumps,
    encode_action,
    from_reply,
    lacking,
    loads,
    picture_of,
    plain_action,
    reader,
    result_reader,
)
from envharness.client._endpoint import DEFAULTS, endpoint
from envharness.client._ports import port
from envharness.client._result import StepResult

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")

logger = logging.getLogger("envharness.client")


class _Base(Generic[ActT, ObsT, StateT]):
    """What both faces share: settings, values to bytes and back, and the session."""

    #: The classes of actions, observations and states; None for mappings.
    action_type: ClassVar[type | None] = None
    observation_type: ClassVar[type | None] = None
    state_type: ClassVar[type | None] = None

    def _set_up(self, server: Any, given: dict[str, Any]) -> None:
        self._server = server if isinstance(server, str) else getattr(server, "url", server)
        self._given = given
        self._timeout = given["request_timeout"]
        self._encoding = given["encoding"]
        if self._encoding not in ("json", "msgpack"):
            raise ValueError(f"encoding={self._encoding!r} is not known; there are json and msgpack")
        self._options = json.dumps(dict(given["open_options"] or {}))
        self._session: _native.ClientSession | None = None
        self._closed = False
        # Calls at once open one session: among threads, and among the tasks of a loop.
        self._opens = threading.Lock()
        self._turn: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._contract: dict[str, Any] | None = None
        self._seen_reconnects = 0
        self._endpoint = endpoint(self._server, given["settings"])
        plain = type(self)._step_payload is _Base._step_payload
        self._fast_action = plain and self._encoding == "json"
        plain = type(self)._parse_result is _Base._parse_result
        self._fast_result = result_reader(given["observation"]) if plain and self._encoding == "json" else None
        # The frames of one pickle are made anew at its other end.
        self._msgpack = guest_module("msgpack") if self._encoding == "msgpack" else None

    def __getstate__(self) -> dict[str, Any]:
        """The address and the settings: a copy has no session."""
        own = {k: v for k, v in self.__dict__.items() if k not in _MADE}
        return {"server": self._server, "given": self._given, "own": own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A client of the same server, not connected."""
        self.__dict__.update(state["own"])
        self._set_up(state["server"], state["given"])

    @property
    def base_url(self) -> str:
        """The server's address, as it was given."""
        return self._server

    @property
    def is_connected(self) -> bool:
        """Whether there is a session that can be used."""
        return self._session is not None and self._session.fate is None

    @property
    def protocol(self) -> str | None:
        """What is spoken: ``envharness.v1`` or ``openenv``; None before a connection."""
        if self._session is None:
            return None
        return "envharness.v1" if self._session.is_v1 else "openenv"

    @property
    def session_id(self) -> str | None:
        """The session's id on the server, where the server tells it."""
        return None if self._session is None else self._session.session_id

    @property
    def reconnects(self) -> int:
        """How often the connection broke and was made again without a loss."""
        return 0 if self._session is None else self._session.reconnects

    # What a subclass may say, as OpenEnv's clients do.

    def _step_payload(self, action: ActT) -> dict[str, Any]:
        """The mapping that an action is sent as."""
        return plain_action(action)

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ObsT]:
        """The result of the mapping of a reply."""
        cls = self._given["observation"]
        return from_reply(payload, reader(cls), besides(cls))

    def _parse_state(self, payload: dict[str, Any]) -> StateT:
        """The state of its mapping."""
        return reader(self._given["state"])(payload)

    # Values to bytes and back.

    def _action(self, action: ActT) -> bytes:
        if self._fast_action:
            return encode_action(action)
        payload = self._step_payload(action)
        return dumps(payload) if self._msgpack is None else self._msgpack.packb(payload, lacking)

    def _arguments(self, kwargs: dict[str, Any]) -> bytes:
        return dumps(kwargs) if self._msgpack is None else self._msgpack.packb(kwargs, lacking)

    def _value(self, data: bytes) -> Any:
        if self._msgpack is None:
            return loads(data)
        try:
            return self._msgpack.unpackb(data)
        except ValueError as error:
            raise ProtocolError(f"an answer is no msgpack: {error}") from None

    def _result(self, data: bytes) -> StepResult[ObsT]:
        if self._fast_result is not None:
            return self._fast_result(data)
        return self._parse_result(self._value(data))

    # The session.

    def _usable(self, again: bool) -> bool:
        """Whether the session can be used as it is. `again`: one that was lost may be replaced."""
        if self._closed:
            raise ClientError("the client is closed")
        session = self._session
        if session is None:
            return False
        if not again or session.fate is None:
            return True
        logger.warning("%s: a new session begins; the last one was lost: %s", self._endpoint, session.fate[1])
        self._session = None
        return False

    def _opening_turn(self) -> asyncio.Lock:
        """The lock under which a task of the running loop opens the session."""
        loop = asyncio.get_running_loop()
        if self._turn is None or self._turn[0] is not loop:
            self._turn = (loop, asyncio.Lock())
        return self._turn[1]

    def _opened(self, session: _native.ClientSession) -> None:
        if self._closed:
            raise ClientError("the client is closed")
        if self._encoding == "msgpack" and not session.is_v1:
            raise ClientError("the server speaks OpenEnv's protocol, which carries JSON alone", hint='leave out encoding="msgpack"')
        self._session, self._seen_reconnects = session, session.reconnects

    def _told(self) -> None:
        """Says what happened to the connection meanwhile."""
        seen = self.reconnects
        if seen > self._seen_reconnects:
            logger.info("%s: the connection broke and was made again; nothing was lost", self._endpoint)
        self._seen_reconnects = seen

    def _opening(self) -> tuple[str, float, float | None]:
        wait = self._given["wait"]
        connecting = self._given["settings"].get("connect_timeout") or DEFAULTS["connect_timeout"]
        return self._options, connecting + (self._timeout or 60.0), wait

    @staticmethod
    def _contract_of(answer: tuple[int, bytes]) -> dict[str, Any]:
        return contract_of(answer[1])


_MADE = {
    "_server", "_given", "_timeout", "_encoding", "_options", "_session", "_closed", "_contract", "_endpoint",
    "_fast_action", "_fast_result", "_msgpack", "_sync", "_children", "_seen_reconnects", "_opens", "_turn",
}  # fmt: skip


class EnvClient(_Base[ActT, ObsT, StateT]):
    """A session of an environment server, for event loops; :meth:`sync` gives the face for blocking code.

    The server may be ours or a stock OpenEnv one. It connects when it is first used, or by :meth:`connect`. Pings are
    answered while Python computes or sleeps. On our own servers sessions share a connection, and a connection that
    breaks is made again without losing or doubling a step.

    A subclass may name its models as class attributes, or translate by ``_step_payload``, ``_parse_result`` and
    ``_parse_state``, as OpenEnv's typed clients do.

    >>> import asyncio, envharness as eh
    >>> async def play(url):
    ...     async with eh.GenericEnvClient(url) as env:
    ...         result = await env.reset(seed=7)
    ...         while not result.done:
    ...             result = await env.step({"action": 0})
    ...         return (await env.state())["step_count"]
    >>> with eh.serve("native:cartpole") as server:
    ...     asyncio.run(play(server.url))
    8
    """

    def __init__(
        self,
        server: Any,
        *,
        action: type | None = None,
        observation: type | None = None,
        state: type | None = None,
        request_timeout: float | None = 60.0,
        wait: float | None = None,
        encoding: str = "json",
        open_options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Makes a client; nothing is connected yet.

        Args:
            server: The address: ``ws://``, ``http://`` and their TLS forms, ``HOST:PORT``, ``unix:PATH``; or a Server.
            action: The class of actions: a pydantic model, dataclass or msgspec struct. Mappings always do.
            observation: The class of observations; None for mappings.
            state: The class of states; None for mappings.
            request_timeout: The longest call in seconds; None for no limit.
            wait: How many seconds to wait for a free session before :class:`envharness.Saturated` is raised; on our own
                servers only.
            encoding: How values travel: ``json``, or ``msgpack``, which carries NaN, bytes and arrays; the latter on our
                own servers only.
            open_options: What is asked of the instance, such as ``{"render_mode": "rgb_array"}``; on our own servers only.
            **settings: ``token``, ``headers``, ``connect_timeout``, ``ping_interval``, ``ping_timeout``,
                ``reconnect_timeout``, ``max_message_size`` (bytes), ``proxy`` (a URL, None, or ``auto`` for the
                environment's), ``tls_ca`` (a PEM file), ``protocol`` (``auto``, ``openenv``, ``envharness.v1``) and
                ``contract`` (a digest, or the file of a contract, that the server must serve).

        Raises:
            TypeError: A setting that there is none of.
            ConnectError: The address is none.
        """
        cls = type(self)
        self._set_up(
            server,
            {
                "action": action or cls.action_type,
                "observation": observation or cls.observation_type,
                "state": state or cls.state_type,
                "request_timeout": request_timeout,
                "wait": wait,
                "encoding": encoding,
                "open_options": open_options,
                "settings": settings,
            },
        )
        self._sync: SyncEnvClient[ActT, ObsT, StateT] | None = None
        self._children: weakref.WeakSet[EnvClient[ActT, ObsT, StateT]] = weakref.WeakSet()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A client of the same server, not connected."""
        super().__setstate__(state)
        self._sync, self._children = None, weakref.WeakSet()

    async def connect(self) -> EnvClient[ActT, ObsT, StateT]:
        """Opens the session, where there is none; gives the client itself.

        Raises:
            ConnectError: There is no connection.
            Saturated: No session is free.
            ContractMismatch: The server serves another contract.
            EnvironmentFailed: The environment could not be made.
        """
        if self._usable(again=True):
            return self
        async with self._opening_turn():
            if not self._usable(again=True):
                options, timeout, wait = self._opening()
                opened = await port().begin(lambda **to: self._endpoint.open(options, timeout, wait, **to))
                self._opened(opened)
        return self

    async def _ask(self, op: str, payload: bytes, again: bool = False) -> tuple[int, bytes]:
        if not self._usable(again):
            await self.connect()
        return await port().ask(self._session, op, self._encoding, payload, self._timeout)  # type: ignore[arg-type]

    async def reset(self, **kwargs: Any) -> StepResult[ObsT]:
        """Begins an episode, in a new session where the last one was lost.

        Args:
            **kwargs: What the environment takes, ``seed`` and ``episode_id`` for two.

        Raises:
            InvalidAction: The arguments do not fit.
            EnvironmentFailed: The environment raised.
            ClientError: Any other failure; see the tree in :mod:`envharness`.
        """
        self._told()
        arguments = self._arguments(kwargs)
        try:
            answer = await self._ask("reset", arguments, again=True)
        except SessionLost as lost:
            if not _was_lost_before(lost):
                raise
            answer = await self._ask("reset", arguments, again=True)
        return self._result(answer[1])

    async def step(self, action: ActT) -> StepResult[ObsT]:
        """Takes a step. Cancelling it gives the answer up; the session lives on, the step may have been taken.

        Raises:
            InvalidAction: The action does not fit.
            EnvironmentFailed: The environment raised.
            SessionLost: The session is gone; nothing was made up.
            RequestTimeout: No answer in time; a late answer is never another step's.
        """
        if self._session is None or self._closed:
            return self._result((await self._ask("step", self._action(action)))[1])
        # The same without a coroutine more: this is the call that there are most of.
        answer = await port().ask(self._session, "step", self._encoding, self._action(action), self._timeout)
        return self._result(answer[1])

    async def state(self) -> StateT:
        """The state of the episode."""
        return self._parse_state(self._value((await self._ask("state", b""))[1]))

    async def render(self) -> Any:
        """A picture: an array, a text or None, as the environment draws it.

        Raises:
            NotAvailableError: The environment, or the server's protocol, draws nothing.
        """
        return picture_of((await self._ask("render", b""))[1])

    async def fetch_contract(self) -> dict[str, Any]:
        """The contract: ``name``, ``version`` and the JSON Schemas of ``action``, ``observation``, ``reset`` and ``state``."""
        if self._contract is None:
            timeout = self._timeout or 60.0
            self._contract = self._contract_of(await port().begin(lambda **to: self._endpoint.contract(timeout, **to)))
        return self._contract

    async def new_session(self) -> EnvClient[ActT, ObsT, StateT]:
        """Another session on the same server, connected; it ends with this one."""
        child = type(self).__new__(type(self))
        child.__setstate__(self.__getstate__())
        await child.connect()
        self._children.add(child)
        return child

    async def close(self) -> None:
        """Ends the session, and those made from it. A closed client is not used again."""
        for child in list(self._children):
            await child.close()
        session, self._session, self._closed = self._session, None, True
        if session is not None:
            try:
                await port().begin(lambda **to: session.close(5.0, **to))
            except ClientError as error:
                logger.debug("%s: the session was not closed in order: %s", self._endpoint, error)

    def sync(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """The same client with blocking calls."""
        if self._sync is None:
            self._sync = SyncEnvClient(self)
        return self._sync

    def __await__(self):
        """Connects."""
        return self.connect().__await__()

    async def __aenter__(self) -> EnvClient[ActT, ObsT, StateT]:
        """Connects."""
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        """Ends the session."""
        await self.close()

    def __enter__(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """Connects; gives the blocking face."""
        return self.sync().connect()

    def __exit__(self, *_: object) -> None:
        """Ends the session."""
        self.sync().close()

    def __repr__(self) -> str:
        """With its server."""
        return f"<{type(self).__name__} {self._endpoint}>"


class SyncEnvClient(Generic[ActT, ObsT, StateT]):
    """The blocking face of an :class:`EnvClient`; made by :meth:`EnvClient.sync`. Ctrl-C ends a call, not the session."""

    def __init__(self, client: EnvClient[ActT, ObsT, StateT]) -> None:
        """Wraps a client."""
        self._client = client

    @property
    def async_client(self) -> EnvClient[ActT, ObsT, StateT]:
        """The face for event loops."""
        return self._client

    def __getattr__(self, name: str) -> Any:
        """What has no calls is the client's own."""
        if name.startswith("__") or name == "_client":
            raise AttributeError(name)
        return getattr(self._client, name)

    def connect(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """As :meth:`EnvClient.connect`."""
        client = self._client
        if client._usable(again=True):
            return self
        with client._opens:
            if not client._usable(again=True):
                client._opened(client._endpoint.open(*client._opening()))
        return self

    def _ask(self, op: str, payload: bytes, again: bool = False) -> bytes:
        client = self._client
        if client._session is None or again or client._closed:
            if not client._usable(again):
                self.connect()
        return client._session.call(op, client._encoding, payload, client._timeout)[1]  # type: ignore[union-attr]

    def reset(self, **kwargs: Any) -> StepResult[ObsT]:
        """As :meth:`EnvClient.reset`."""
        client = self._client
        client._told()
        arguments = client._arguments(kwargs)
        try:
            answer = self._ask("reset", arguments, again=True)
        except SessionLost as lost:
            if not _was_lost_before(lost):
                raise
            answer = self._ask("reset", arguments, again=True)
        return client._result(answer)

    def step(self, action: ActT) -> StepResult[ObsT]:
        """As :meth:`EnvClient.step`."""
        return self._client._result(self._ask("step", self._client._action(action)))

    def state(self) -> StateT:
        """As :meth:`EnvClient.state`."""
        return self._client._parse_state(self._client._value(self._ask("state", b"")))

    def render(self) -> Any:
        """As :meth:`EnvClient.render`."""
        return picture_of(self._ask("render", b""))

    @property
    def contract(self) -> dict[str, Any]:
        """As :meth:`EnvClient.fetch_contract`."""
        return self.fetch_contract()

    def fetch_contract(self) -> dict[str, Any]:
        """As :meth:`EnvClient.fetch_contract`."""
        client = self._client
        if client._contract is None:
            client._contract = client._contract_of(client._endpoint.contract(client._timeout or 60.0))
        return client._contract

    def new_session(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """As :meth:`EnvClient.new_session`."""
        client = self._client
        child = type(client).__new__(type(client))
        child.__setstate__(client.__getstate__())
        face = child.sync().connect()
        client._children.add(child)
        return face

    def close(self) -> None:
        """As :meth:`EnvClient.close`."""
        client = self._client
        for child in list(client._children):
            child.sync().close()
        session, client._session, client._closed = client._session, None, True
        if session is not None:
            try:
                session.close(5.0)
            except ClientError as error:
                logger.debug("%s: the session was not closed in order: %s", client._endpoint, error)

    def __enter__(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """Connects."""
        return self.connect()

    def __exit__(self, *_: object) -> None:
        """Ends the session."""
        self.close()

    def __repr__(self) -> str:
        """With its server."""
        return f"<{type(self._client).__name__}.sync() {self._client._endpoint}>"


class GenericEnvClient(EnvClient[dict[str, Any], dict[str, Any], dict[str, Any]]):
    """A client of mappings: an action is a dict, and so are observations and states."""


def _was_lost_before(lost: SessionLost) -> bool:
    """Whether a reset only found out that the session was gone, and did not end it by itself."""
    return lost.code in (None, "SESSION_ERROR")

