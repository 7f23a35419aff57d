"""The functions of the module."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from envharness import _activation, _native
from envharness._context import Context
from envharness._errors import ActivationError
from envharness._result import Result
from envharness._runtime import on_event, rig
from envharness._spec import SpecLike, as_spec


def _lock_mode(locked: bool, frozen: bool) -> str:
    return "locked" if locked else "frozen" if frozen else "auto"


def get_context(
    spec: SpecLike,
    *,
    fresh: bool = True,
    on_exit: str = "release",
    activate: bool | str = "auto",
    inherit_base: bool = False,
    timeout: float | None = None,
    locked: bool = False,
    frozen: bool = False,
) -> Context:
    """Finds an idle context of the same spec and lock, or creates one; activates this process when it can.

    Args:
        spec: A Spec, a mapping, or the path of a file.
        fresh: Whether the context's folder is empty at the start.
        on_exit: ``release`` (free for the next one), ``keep``, ``suspend`` or ``destroy``.
        activate: ``"auto"``, True (or an error) or False.
        inherit_base: Whether the base interpreter's packages stay importable while activated.
        timeout: The longest time to create, in seconds.
        locked: Refuse a lock that does not answer the spec.
        frozen: Use the lock without a look at the spec.

    Raises:
        EnvHarnessError: On entering; see the tree in :mod:`envharness._errors`.
    """
    return Context(
        spec, on_exit=on_exit, activate=activate, inherit_base=inherit_base,
        origin="get", find_idle=True, fresh=fresh, lock=_lock_mode(locked, frozen), timeout=timeout,
    )


def create_context(
    spec: SpecLike,
    *,
    on_exit: str = "destroy",
    activate: bool | str = False,
    inherit_base: bool = False,
    timeout: float | None = None,
    locked: bool = False,
    frozen: bool = False,
) -> Context:
    """Always creates a context, does not activate, and destroys it on exit; the arguments are :func:`get_context`'s."""
    return Context(
        spec, on_exit=on_exit, activate=activate, inherit_base=inherit_base,
        origin="create", find_idle=False, fresh=True, lock=_lock_mode(locked, frozen), timeout=timeout,
    )


def warm(spec: SpecLike, count: int = 1, *, locked: bool = False, frozen: bool = False) -> int:
    """Makes idle contexts until ``count`` of them wait; the next :func:`get_context` of the spec takes one in milliseconds.

    Args:
        spec: A Spec, a mapping, or the path of a file.
        count: How many shall wait.
        locked: Refuse a lock that does not answer the spec.
        frozen: Use the lock without a look at the spec.

    Returns:
        How many were made.

    Raises:
        EnvHarnessError: One could not be made; those made before it stay.
    """
    return rig().warm(as_spec(spec), count, lock=_lock_mode(locked, frozen), on_event=on_event)


def create_env(spec: SpecLike, *, timeout: float | None = None) -> str:
    """Creates a context that belongs to the caller until :func:`destroy_env`; returns its id."""
    return _create_env(spec, timeout, None)


def _create_env(spec: SpecLike, timeout: float | None, cancel: _native.CancelToken | None) -> str:
    native = rig().create(
        as_spec(spec), origin="kept", find_idle=False, fresh=True, lock="auto", timeout=timeout, on_event=on_event, cancel=cancel
    )
    native.release("keep")
    return native.id


def attach(env_id: str) -> Context:
    """Works with a context that is there; the beginning of its id is enough.

    Raises:
        ContextError: There is none, or more than one begins so.
    """
    return Context._attached(rig().attach(env_id))


def activate(env_id: str, *, inherit_base: bool = False) -> None:
    """Activates this process for a context, until :func:`deactivate`.

    Raises:
        ActivationError: It cannot be; the message says why.
    """
    native = rig().attach(env_id)
    reason = _activation.refusal(native)
    if reason is not None:
        raise ActivationError(f"cannot activate {native.id}: {reason}", hint="use execute, or a context's run and call")
    _activation.enter(native, inherit_base)


def deactivate() -> None:
    """Ends this process's activation; does nothing where there is none."""
    _activation.leave()


def execute(env_id: str, command: Sequence[str | os.PathLike[str]], **options: Any) -> Result:
    """Runs a list of words in a context; see :meth:`Context.execute`."""
    return attach(env_id).execute(command, **options)


def destroy_env(env_id: str, *, force: bool = False) -> None:
    """Ends a context: its processes, its folder, its row.

    Args:
        env_id: The beginning of its id is enough.
        force: Also one that a live process holds.

    Raises:
        ContextError: There is none, or somebody holds it.
    """
    found = rig().inspect(env_id)["id"]
    if _activation.active_id() == found:
        deactivate()
    rig().destroy(found, force=force)


def lock(
    spec: SpecLike,
    *,
    upgrade: bool = False,
    upgrade_packages: Iterable[str] = (),
    platforms: Iterable[str] = (),
    locked: bool = False,
    frozen: bool = False,
) -> _native.Lock:
    """Resolves a spec, or reads its lock while that answers it.

    Args:
        spec: A Spec, a mapping, or the path of a file.
        upgrade: Take the newest versions that fit.
        upgrade_packages: Take the newest versions of these.
        platforms: Further platforms, such as ``linux-aarch64``.
        locked: Refuse a lock that does not answer the spec.
        frozen: Use the lock without a look at the spec.

    Raises:
        LockError: No versions satisfy the spec, or the lock is stale.
    """
    return _lock(spec, upgrade, upgrade_packages, platforms, _lock_mode(locked, frozen), None)


def _lock(
    spec: SpecLike,
    upgrade: bool,
    upgrade_packages: Iterable[str],
    platforms: Iterable[str],
    mode: str,
    cancel: _native.CancelToken | None,
) -> _native.Lock:
    return rig().lock(
        as_spec(spec), mode=mode, upgrade=upgrade, upgrade_packages=list(upgrade_packages), platforms=list(platforms),
        on_event=on_event, cancel=cancel,
    )


def compile_spec(spec: SpecLike) -> int:
    """Compiles the byte-code of a spec's environment and waits for it; returns how many files were added."""
    return rig().compile(as_spec(spec))


def list_contexts() -> list[dict[str, Any]]:
    """Every context: ``id``, ``name``, ``backend``, ``state``, ``created``, ``used``, ``processes``."""
    return rig().list()


def inspect(env_id: str) -> dict[str, Any]:
    """All that is known of a context."""
    return rig().inspect(env_id)


def gc(*, max_age: float | None = None, max_size: int | None = None, dry_run: bool = False) -> dict[str, Any]:
    """Removes contexts past their time and environments nobody uses.

    Args:
        max_age: Environments unused for longer go, in seconds.
        max_size: While environments take more bytes, the least recently used go.
        dry_run: Only say what would go.

    Returns:
        ``contexts``, ``prefixes``, ``bytes``, ``leftovers`` and ``in_use``.
    """
    return rig().gc(max_age=max_age, max_size=max_size, dry_run=dry_run)
