"""Serving environments from Python."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from envharness import _native
from envharness._errors import ServeError
from envharness._runtime import on_event, rig


class Server:
    """A running environment server; as a context manager it ends with its block.

    >>> import envharness as eh
    >>> with eh.serve("native:cartpole") as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True

    Attributes:
        url: Where it listens, such as ``http://127.0.0.1:8000`` or ``unix:/run/env.sock``.
        ws_url: The same for WebSockets, without ``/ws``.
    """

    def __init__(self, native: _native.Server) -> None:
        """Takes over a server; :func:`serve` makes one."""
        self._native = native
        self._ended = threading.Event()
        self._pid = os.getpid()
        self.url: str = native.url
        self.ws_url: str = self.url.replace("http://", "ws://", 1)

    @property
    def active_sessions(self) -> int:
        """Sessions in use."""
        return self._native.capacity[0]

    @property
    def max_sessions(self) -> int:
        """Sessions that may be in use at once."""
        return self._native.capacity[1]

    @property
    def notes(self) -> list[str]:
        """What was decided on the way, and why."""
        return self._native.notes

    def stop(self, *, hurry: bool = False) -> None:
        """Ends it: no new sessions; episodes end, or are told when the drain's time is over; workers are gone afterwards.

        Args:
            hurry: Tell episodes at once.
        """
        if os.getpid() == self._pid:
            self._native.stop(hurry)
        self._ended.set()

    def wait(self) -> None:
        """Blocks until :meth:`stop` is called elsewhere or Ctrl-C, which stops it.

        Raises:
            ServeError: The application behind it has ended by itself.
        """
        try:
            while not self._ended.wait(0.2):
                if self._native.has_failed:
                    raise ServeError("the application has ended by itself")
        except KeyboardInterrupt:
            pass
        finally:
            self.stop()

    def __enter__(self) -> Server:
        """The server itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it without waiting for episodes: a block that is left is done with them."""
        self.stop(hurry=True)

    def __repr__(self) -> str:
        """With its URL."""
        return f"<envharness.Server {self.url}>"


def serve(
    target: str | os.PathLike[str] | type,
    *,
    host: str | None = None,
    port: int = 0,
    workers: int | None = None,
    max_sessions: int | None = None,
    max_sessions_per_client: int | None = None,
    session_timeout: float | None = None,
    resume_timeout: float | None = None,
    idle_timeout: float | None = None,
    step_timeout: float | None = None,
    start_timeout: float | None = None,
    drain_timeout: float | None = None,
    concurrency: str = "auto",
    mode: str | None = None,
    strict: bool = False,
    packages: Sequence[str] = (),
    spec: str | os.PathLike[str] | None = None,
    reference: bool = False,
    reload: bool = False,
    trace: str | os.PathLike[str] | None = None,
    token: str | None = None,
    insecure: bool = False,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    trusted_proxies: Sequence[str] = (),
    max_message_size: int | None = None,
) -> Server:
    """Serves an environment to OpenEnv clients, on a free port of the loopback unless told otherwise.

    Args:
        target: The folder of an env package, ``"module:name"``, ``"gym:ID"``, ``"native:NAME"``, or a class of a module.
        host: The address to listen on, or ``unix:PATH``.
        port: The port; 0 for any that is free.
        workers: Worker processes; one a core by default.
        max_sessions: Sessions at once; what the author allows by default.
        max_sessions_per_client: Sessions that one address may have.
        session_timeout: After how many seconds a session that no socket holds ends.
        resume_timeout: How many seconds a session waits for a client whose connection broke; 0 for not at all.
        idle_timeout: After how many seconds a socket without a message is closed.
        step_timeout: The longest reset or step in seconds; 0 for no limit.
        start_timeout: The longest load in seconds.
        drain_timeout: How many seconds episodes may go on after :meth:`Server.stop`.
        concurrency: ``auto``, ``inline``, ``thread``, ``async`` or ``process``.
        mode: ``simulation`` or ``production``.
        strict: Whether the contract judges every action, and NaN is an error.
        packages: Rig an environment with these pip requirements.
        spec: Rig the environment of this spec file.
        reference: Use the real openenv package.
        reload: Load changed sources anew.
        trace: A folder for traces.
        token: What clients must show.
        insecure: Serve other machines without a token.
        allowed_hosts: Host names that may be asked for.
        allowed_origins: Origins of web pages that may ask.
        trusted_proxies: Proxies whose ``X-Forwarded-For`` is believed.
        max_message_size: The largest message in bytes, in either direction.

    Raises:
        ServeError: The target cannot be served; the message says why and the hint what to do.
        EnvHarnessError: Its environment cannot be made.
    """
    name, base = _name_of(target)
    given: dict[str, Any] = {
        "base": base, "host": host, "port": port, "workers": workers, "max_sessions": max_sessions,
        "max_sessions_per_client": max_sessions_per_client, "session_timeout": session_timeout,
        "resume_timeout": resume_timeout, "idle_timeout": idle_timeout,
        "step_timeout": step_timeout, "start_timeout": start_timeout, "drain_timeout": drain_timeout,
        "concurrency": concurrency, "mode": mode, "strict": strict, "packages": list(packages),
        "spec": None if spec is None else os.fspath(spec), "reference": reference, "reload": reload,
        "trace": None if trace is None else os.fspath(trace), "token": token, "insecure": insecure,
        "allowed_hosts": list(allowed_hosts), "allowed_origins": list(allowed_origins),
        "trusted_proxies": list(trusted_proxies), "max_message_size": max_message_size,
    }  # fmt: skip
    return Server(_native.Server.start(rig(), name, given, on_event=on_event))


def _name_of(target: str | os.PathLike[str] | type) -> tuple[str, str | None]:
    """A target as text, and the folder to look in where it is a class."""
    if not inspect.isclass(target):
        return os.fspath(target), None
    module = sys.modules.get(target.__module__)
    file = getattr(module, "__file__", None)
    if target.__module__ == "__main__" or "<locals>" in target.__qualname__ or file is None:
        raise ServeError(
            f"{target.__qualname__} cannot be imported by a worker", hint="move it to the top level of a module, and name it `module:Class`"
        )
    folder = os.path.abspath(file)
    depth = target.__module__.count(".") + (2 if os.path.basename(file) == "__init__.py" else 1)
    for _ in range(depth):
        folder = os.path.dirname(folder)
    return f"{target.__module__}:{target.__qualname__}", folder
