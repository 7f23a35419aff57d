"""Environments without a network: in worker processes of this process, or in this process itself."""

from __future__ import annotations

import os
from typing import Any

from envharness._errors import ServeError
from envharness._serve import serve
from envharness.client import VectorClient

_OF_CLIENT = (
    "action", "observation", "stack", "request_timeout", "wait", "open_options", "protocol", "connect_timeout",
)  # fmt: skip


def local(
    target: str | os.PathLike[str] | type,
    num_envs: int = 1,
    *,
    in_process: bool | None = None,
    autoreset: str = "next_step",
    encoding: str = "auto",
    **options: Any,
) -> VectorClient:
    """N instances of an environment without a socket, with the face of a :class:`envharness.VectorClient`.

    Python environments run in worker processes, as :func:`envharness.serve` would run them; native ones on the caller's
    thread.

    >>> import envharness as eh
    >>> with eh.local("native:cartpole", num_envs=2) as envs:
    ...     envs.reset(seeds=[1, 2]).observations.shape
    (2, 4)

    Args:
        target: As that of :func:`envharness.serve`.
        num_envs: How many instances.
        in_process: Whether to step in this process: what native environments do, and others cannot.
        autoreset: As that of :class:`envharness.VectorClient`.
        encoding: As that of :class:`envharness.VectorClient`.
        **options: ``request_timeout``, ``action``, ``observation``, ``stack``, ``open_options`` and ``wait`` go to the client;
            others, ``workers`` and ``packages`` for two, to the hosting.

    Raises:
        ServeError: The target cannot be hosted.
        ValueError: ``in_process`` is asked of an environment that is not native.
    """
    name = target if isinstance(target, str) else ""
    is_native = name.startswith("native:")
    inside = is_native if in_process is None else in_process
    if inside:
        if not is_native:
            raise ValueError(f"{target!r} is not native, and runs in worker processes only")
        stack = options.pop("stack", True)
        if options:
            raise TypeError(f"{next(iter(options))!r} means nothing to an environment in this process")
        try:
            return VectorClient._in_process(name.partition(":")[2], num_envs, autoreset, encoding, stack)
        except KeyError:
            raise ServeError(f"there is no native environment `{name.partition(':')[2]}`") from None
    ours = {key: options.pop(key) for key in _OF_CLIENT if key in options}
    if "max_message_size" in options:
        ours["max_message_size"] = options["max_message_size"]
    options.setdefault("max_sessions", num_envs)
    server = serve(target, host="memory:", **options)
    try:
        client = VectorClient(server, num_envs, autoreset=autoreset, encoding=encoding, **ours)
    except BaseException:
        server.stop(hurry=True)
        raise
    client._owned = server
    return client
