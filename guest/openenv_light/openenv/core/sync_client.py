"""The blocking face of a client."""

import asyncio
import inspect
import threading
from contextlib import suppress

from .. import _missing


class SyncEnvClient:
    """Runs a client on an event loop of its own, in a thread of its own, and waits for it.

    What it does not have itself it takes from the client; coroutine functions become blocking ones.
    """

    def __init__(self, async_client):
        """Starts nothing yet."""
        self._async = async_client
        self._loop = None
        self._thread = None
        self._lock = threading.Lock()
        self._child_clients = []

    @property
    def async_client(self):
        """The client itself."""
        return self._async

    def _started_loop(self):
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(loop,), name="openenv-client", daemon=True)
                self._thread.start()
                self._loop = loop
            return self._loop

    def _run(self, coroutine):
        try:
            self._async._claim_execution_mode("sync")
            loop = self._started_loop()
        except BaseException:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def _stop_loop(self):
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=5)

    def connect(self):
        """Opens the session, and gives this face."""
        self._run(self._async._connect_async())
        return self

    def disconnect(self):
        """Ends the session."""
        self._run(self._async._disconnect_async())

    def reset(self, **kwargs):
        """Starts an episode."""
        return self._run(self._async._reset_async(**kwargs))

    def step(self, action, **kwargs):
        """Takes a step."""
        return self._run(self._async._step_async(action, **kwargs))

    def state(self):
        """The environment's state."""
        return self._run(self._async._state_async())

    def new_session(self):
        """Another session on the same server; it is closed with this one."""
        client = SyncEnvClient(self._async._create_session_client()).connect()
        self._child_clients.append(client)
        return client

    def close(self):
        """Ends the session and those made from it."""
        children, self._child_clients = self._child_clients, []
        for child in children:
            with suppress(Exception):
                child.close()
        try:
            self._run(self._async._close_async())
        finally:
            self._stop_loop()

    def __enter__(self):
        """Connects."""
        return self.connect()

    def __exit__(self, exc_type, exc_val, exc_tb):
        """Closes."""
        self.close()

    def __getattr__(self, name):
        if name == "_async":
            raise AttributeError(name)
        value = getattr(self._async, name)
        if not inspect.iscoroutinefunction(value):
            return value

        def blocking(*args, **kwargs):
            return self._run(value(*args, **kwargs))

        return blocking

    def _step_payload(self, action):
        return self._async._step_payload(action)

    def _parse_result(self, payload):
        return self._async._parse_result(payload)

    def _parse_state(self, payload):
        return self._async._parse_state(payload)


def _run(loop):
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def __getattr__(name):
    raise _missing.name(__name__, name)
