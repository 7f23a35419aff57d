"""The functions of the module, awaited."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from envharness import _native
from envharness._api import _create_env, _lock, _lock_mode, attach, destroy_env
from envharness._context import _in_thread
from envharness._result import Result
from envharness._spec import SpecLike


async def acreate_env(spec: SpecLike, *, timeout: float | None = None) -> str:
    """As :func:`envharness.create_env`; cancelling it leaves nothing half made."""
    return await _in_thread(lambda cancel: _create_env(spec, timeout, cancel), undo=destroy_env)


async def aexecute(env_id: str, command: Sequence[str | os.PathLike[str]], **options: Any) -> Result:
    """As :func:`envharness.execute`; cancelling it ends the process tree."""
    context = await _in_thread(lambda _: attach(env_id))
    return await context.aexecute(command, **options)


async def adestroy_env(env_id: str, *, force: bool = False) -> None:
    """As :func:`envharness.destroy_env`."""
    await _in_thread(lambda _: destroy_env(env_id, force=force))


async def alock(
    spec: SpecLike,
    *,
    upgrade: bool = False,
    upgrade_packages: Iterable[str] = (),
    platforms: Iterable[str] = (),
    locked: bool = False,
    frozen: bool = False,
) -> _native.Lock:
    """As :func:`envharness.lock`; cancelling it leaves the lock as it was."""
    mode = _lock_mode(locked, frozen)
    return await _in_thread(lambda cancel: _lock(spec, upgrade, upgrade_packages, platforms, mode, cancel))
