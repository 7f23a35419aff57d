"""Clients of environment servers: one WebSocket, one session.

A client is used from an event loop (``await``), or without one (plain calls, or ``.sync()``), and stays with the first of both.
"""

import asyncio
import ipaddress
import json
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from .. import _missing
from .client_types import StateT, StepResult
from .utils import convert_to_ws_url, hf_space_subdomain

__all__ = ["EnvClient", "StepResult"]

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")

_MODES = ("simulation", "production")


def _checked_mode(mode):
    mode = (os.environ.get("OPENENV_CLIENT_MODE", "simulation") if mode is None else mode).lower()
    if mode not in _MODES:
        raise ValueError(
            "Invalid mode: '%s'. Must be 'simulation' or 'production'. Set via constructor parameter or "
            "OPENENV_CLIENT_MODE environment variable." % mode
        )
    return mode


def _is_local(url):
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _transport():
    """What connects, and the error of a connection that is closed."""
    if __name__.startswith("envharness."):
        # Outside of workers these modules are `envharness.compat.openenv`, and the native core is there.
        from envharness.compat.transport import connect

        return connect, ConnectionError
    try:
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed
    except ImportError as error:
        raise ImportError("a client needs the package `websockets` 13 or later, which is not installed here") from error
    return connect, ConnectionClosed


class _Bootstrap:
    """A client whose server is yet to be started: ``await`` it, or call ``.sync()``; once."""

    def __init__(self, start):
        self._start = start

    def _client(self):
        start, self._start = self._start, None
        if start is None:
            raise RuntimeError("this handle was used before: call the factory again for a new environment")
        return start()

    def __await__(self):
        return self._connected().__await__()

    async def _connected(self):
        client = self._client()
        try:
            await client.connect()
        except BaseException:
            # Nobody holds the client yet, so nobody else could stop its server.
            client._stop_provider_quietly()
            raise
        return client

    def sync(self):
        client = self._client()
        try:
            return client.sync().connect()
        except BaseException:
            client._stop_provider_quietly()
            raise


class EnvClient(ABC, Generic[ActT, ObsT, StateT]):
    """Base of typed clients; a subclass says how its actions, results and state look as JSON."""

    def __init__(
        self,
        base_url=None,
        connect_timeout_s=10.0,
        message_timeout_s=60.0,
        max_message_size_mb=100.0,
        websocket_ping_interval_s=20.0,
        websocket_ping_timeout_s=20.0,
        provider=None,
        mode=None,
        headers=None,
    ):
        """Connects to nothing yet; without ``base_url`` the provider starts the server at the first use."""
        if base_url is None and provider is None:
            raise ValueError("EnvClient requires either base_url or provider.")
        self._mode = _checked_mode(mode)
        self._connect_timeout = connect_timeout_s
        self._message_timeout = message_timeout_s
        self._max_message_size = int(max_message_size_mb * 1024 * 1024)
        self._websocket_ping_interval_s = websocket_ping_interval_s
        self._websocket_ping_timeout_s = websocket_ping_timeout_s
        self._headers = headers
        self._provider = provider
        self._provider_stopped = False
        self._execution_mode = None
        self._sync_client = None
        self._child_clients = []
        self._ws = self._ws_loop = None
        #: Sockets that were given up and still say goodbye.
        self._closing = set()
        self._base_url = self._ws_url = None
        if base_url is not None:
            self._set_base_url(base_url)

    def __setattr__(self, name, value):
        """Refuses to change the mode."""
        if name == "_mode" and hasattr(self, "_mode"):
            raise AttributeError("Cannot modify mode after initialization")
        super().__setattr__(name, value)

    @abstractmethod
    def _step_payload(self, action):
        """JSON data of an action."""

    @abstractmethod
    def _parse_result(self, payload):
        """StepResult of JSON data."""

    @abstractmethod
    def _parse_state(self, payload):
        """The state of JSON data."""

    @property
    def base_url(self):
        """URL of the server; None while a provider has yet to start it."""
        return self._base_url

    def _set_base_url(self, base_url):
        self._base_url = base_url.rstrip("/")
        self._ws_url = convert_to_ws_url(base_url) + "/ws"

    # -- one face for both worlds -------------------------------------------------------------------------------------

    def _claim_execution_mode(self, mode):
        if self._execution_mode not in (None, mode):
            raise RuntimeError(
                "EnvClient is already being used in %s mode. Create a separate client instance when mixing sync and async "
                "code." % self._execution_mode
            )
        self._execution_mode = mode

    def _dispatch(self, factory):
        """A coroutine where an event loop runs in this thread, else the result."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        own_loop = None if self._sync_client is None else self._sync_client._loop
        if running is not None and (running is own_loop or self._execution_mode != "sync"):
            if running is not own_loop:
                self._claim_execution_mode("async")
            return factory()
        # What began under asyncio.run may go on without a loop, not the other way round.
        self._execution_mode = "sync"
        return self.sync()._run(factory())

    def sync(self):
        """The same client with blocking calls."""
        from .sync_client import SyncEnvClient

        if self._sync_client is None:
            self._sync_client = SyncEnvClient(self)
        return self._sync_client

    def connect(self):
        """Opens the session."""
        return self._dispatch(self._connect_async)

    def disconnect(self):
        """Ends the session."""
        return self._dispatch(self._disconnect_async)

    def reset(self, **kwargs):
        """Starts an episode; ``kwargs`` go to the environment."""
        return self._dispatch(lambda: self._reset_async(**kwargs))

    def step(self, action, **kwargs):
        """Takes a step; further arguments have no effect."""
        return self._dispatch(lambda: self._step_async(action, **kwargs))

    def state(self):
        """The environment's state."""
        return self._dispatch(self._state_async)

    def close(self):
        """Ends the session, those made from it, and the server where a provider started it."""
        return self._dispatch(self._close_async)

    async def __aenter__(self):
        """Connects."""
        self._claim_execution_mode("async")
        await self._connect_async()
        return self

    async def __aexit__(self, exc_type, exc_val, exc_tb):
        """Closes."""
        await self._close_async()

    def __enter__(self):
        """Connects."""
        self.sync().connect()
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        """Closes."""
        self.sync().close()

    # -- the session --------------------------------------------------------------------------------------------------

    async def _connect_async(self):
        if self._ws is not None and self._ws_loop is asyncio.get_running_loop() and self._ws.close_code is None:
            return self
        # Closed by the far end, or of another loop: of no use here, and nothing can be said on it any more.
        self._ws = self._ws_loop = None
        connect, _ = _transport()
        # The session of a socket that is still closing holds a place on the server.
        await self._settle()
        self._start_provider_if_needed()
        options = {"proxy": None} if _is_local(self._ws_url) else {}
        try:
            try:
                self._ws = await self._open(connect, **options)
            except TypeError:
                # websockets before 15 knows no proxies.
                self._ws = await self._open(connect)
        except Exception as error:
            url = self._ws_url
            await self._close_async()
            raise ConnectionError("Failed to connect to %s: %s" % (url, error)) from error
        self._ws_loop = asyncio.get_running_loop()
        return self

    async def _open(self, connect, **options):
        return await connect(
            self._ws_url,
            open_timeout=self._connect_timeout,
            max_size=self._max_message_size,
            ping_interval=self._websocket_ping_interval_s,
            ping_timeout=self._websocket_ping_timeout_s,
            additional_headers=self._headers,
            **options
        )

    async def _disconnect_async(self):
        ws, loop = self._ws, self._ws_loop
        self._ws = self._ws_loop = None
        if ws is None or loop is not asyncio.get_running_loop():
            return
        with suppress(Exception):
            await ws.send(json.dumps({"type": "close"}))
        with suppress(Exception):
            await ws.close()

    async def _receive(self):
        try:
            return json.loads(await asyncio.wait_for(self._ws.recv(), self._message_timeout))
        except (asyncio.TimeoutError, asyncio.CancelledError):
            # The late reply would be read as the answer to the next request: the socket goes, the next call opens another.
            ws, self._ws, self._ws_loop = self._ws, None, None
            self._closing.add(asyncio.ensure_future(ws.close()))
            raise

    async def _settle(self):
        """Waits for the sockets that are closing on this loop."""
        closing, self._closing = self._closing, set()
        here = [task for task in closing if task.get_loop() is asyncio.get_running_loop()]
        await asyncio.gather(*here, return_exceptions=True)

    async def _send_and_receive(self, message):
        _, closed = _transport()
        # A refusal is sent before any request, and the socket may be closed before ours is sent; the frame is still there.
        await self._connect_async()
        with suppress(closed):
            await self._ws.send(json.dumps(message))
        response = await self._receive()
        if not isinstance(response, dict):
            raise RuntimeError("Server error: a reply is no object (code: UNKNOWN)")
        if response.get("type") == "error":
            data = response.get("data", {})
            data = data if isinstance(data, dict) else {}
            raise RuntimeError(
                "Server error: %s (code: %s)" % (data.get("message", "Unknown error"), data.get("code", "UNKNOWN"))
            )
        return response

    @staticmethod
    def _data(response):
        data = response.get("data", {})
        if not isinstance(data, dict):
            raise RuntimeError("Server error: a reply's data is no object (code: UNKNOWN)")
        return data

    async def _reset_async(self, **kwargs):
        response = await self._send_and_receive({"type": "reset", "data": kwargs})
        return self._parse_result(self._data(response))

    async def _step_async(self, action, **kwargs):
        response = await self._send_and_receive({"type": "step", "data": self._step_payload(action)})
        return self._parse_result(self._data(response))

    async def _state_async(self):
        response = await self._send_and_receive({"type": "state"})
        return self._parse_state(self._data(response))

    async def _close_async(self):
        children, self._child_clients = self._child_clients, []
        try:
            await asyncio.gather(*(child._close_async() for child in children), return_exceptions=True)
            await self._settle()
            await self._disconnect_async()
        finally:
            self._stop_provider()

    # -- more sessions ------------------------------------------------------------------------------------------------

    def _create_session_client(self):
        """A client of the same class and settings, without the provider: that stays with this one."""
        import inspect

        self._start_provider_if_needed()
        settings = {
            "base_url": self._base_url,
            "connect_timeout_s": self._connect_timeout,
            "message_timeout_s": self._message_timeout,
            "max_message_size_mb": self._max_message_size / (1024 * 1024),
            "websocket_ping_interval_s": self._websocket_ping_interval_s,
            "websocket_ping_timeout_s": self._websocket_ping_timeout_s,
            "mode": self._mode,
            "headers": self._headers,
        }
        parameters = inspect.signature(type(self)).parameters
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            settings = {name: value for name, value in settings.items() if name in parameters}
        return type(self)(**settings)

    async def new_session(self):
        """Another session on the same server, connected; it is closed with this one."""
        client = self._create_session_client()
        await client.connect()
        self._child_clients.append(client)
        return client

    # -- the server ---------------------------------------------------------------------------------------------------

    def _start_provider_if_needed(self):
        if self._ws_url is not None:
            return
        provider = self._provider
        self._provider_stopped = False
        try:
            if hasattr(provider, "start_container"):
                base_url = provider.start_container()
                provider.wait_for_ready(base_url)
            else:
                base_url = provider.start()
                provider.wait_for_ready()
        except BaseException:
            self._stop_provider_quietly()
            raise
        self._set_base_url(base_url)

    def _stop_provider(self):
        provider = self._provider
        if provider is None or self._provider_stopped:
            return
        stop = getattr(provider, "stop_container", None) or getattr(provider, "stop", None)
        if stop is not None:
            stop()
        self._provider_stopped = True

    def _stop_provider_quietly(self):
        with suppress(Exception):
            self._stop_provider()

    @classmethod
    def from_docker_image(cls, image, provider=None, **kwargs):
        """A client of a server that ``provider`` starts from an image; ``await`` it, or call ``.sync()``."""
        return _Bootstrap(lambda: cls._started(provider, "LocalDockerProvider", image, kwargs))

    @classmethod
    def from_env(cls, repo_id, *, use_docker=True, provider=None, **provider_kwargs):
        """A client of a server that ``provider`` starts from a Space of the Hub, as an image or from its sources."""
        if not use_docker:
            return _Bootstrap(lambda: cls._started(provider, "UVProvider", None, provider_kwargs))
        image = "registry.hf.space/%s:%s" % (hf_space_subdomain(repo_id), provider_kwargs.pop("tag", "latest"))
        return _Bootstrap(lambda: cls._started(provider, "LocalDockerProvider", image, provider_kwargs))

    @classmethod
    def _started(cls, provider, usual, image, kwargs):
        if provider is None:
            raise NotImplementedError(
                "envharness's light openenv has no `%s`: pass a provider of your own; %s" % (usual, _missing.HINT)
            )
        try:
            if image is None:
                base_url = provider.start(**kwargs)
                provider.wait_for_ready()
            else:
                base_url = provider.start_container(image, **kwargs)
                provider.wait_for_ready(base_url)
            return cls(base_url=base_url, provider=provider)
        except BaseException:
            with suppress(Exception):
                (provider.stop if image is None else provider.stop_container)()
            raise


def __getattr__(name):
    raise _missing.name(__name__, name)
