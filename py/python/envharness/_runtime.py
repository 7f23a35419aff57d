"""What belongs to this process: the interpreter it started with, the fork hooks, the door to the rig."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import warnings
from types import ModuleType

from envharness import _native
from envharness._errors import EnvHarnessWarning

#: The interpreter this process started with; an activation changes ``sys.executable``.
EXECUTABLE = sys.executable or ""

# A fork must not happen inside a call of the store, and a child must not hold its parent's locks.
os.register_at_fork(
    before=_native.before_fork,
    after_in_parent=_native.after_fork_in_parent,
    after_in_child=_native.after_fork_in_child,
)

_SHOWN = {"resolving", "waiting", "building", "downloading", "built", "resolved"}


def rig() -> _native.Rig:
    """The rig with the settings of this moment: the current directory and the environment may have changed."""
    return _native.Rig(EXECUTABLE)


def on_event(name: str, text: str, hint: str | None) -> None:
    """Shows progress on a terminal and turns warnings into Python's."""
    if name == "warning":
        warn(f"{text}\nhint: {hint}" if hint else text)
    elif name in _SHOWN and sys.stderr is not None and sys.stderr.isatty():
        print(f"envharness: {text}", file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Warns at the first frame outside of this package."""
    level, frame = 2, sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("envharness."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, EnvHarnessWarning, stacklevel=level)


@functools.cache
def guest_module(name: str) -> ModuleType:
    """A module of the guest: one source for both sides of a wire, loaded from the store."""
    folder = str(rig().guest)
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(f"envharness_guest.{name}")
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
