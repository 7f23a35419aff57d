"""Activation: the calling process itself sees a prefix's packages.

Activation belongs to the process. On exit the modules that came from the prefix are set aside, not dropped: numpy and
torch cannot be imported twice, so the next activation of the same prefix puts the same objects back. What cannot be
undone: threads that were started, atexit hooks, shared libraries that were loaded.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import site
import sys
import sysconfig
import threading
import types
from dataclasses import dataclass, field
from typing import Any

_SUFFIXES = tuple(importlib.machinery.EXTENSION_SUFFIXES)
#: Top-level modules that are never set aside: they are this package.
_OWN = {"envharness", "envharness_guest"}
_VARIABLES_REMOVED = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE")


@dataclass
class _Prefix:
    """What this process knows of a prefix that it activated."""

    path: str
    site_packages: str
    provided: frozenset[str]
    #: Modules that are set aside while the prefix is not active.
    modules: dict[str, types.ModuleType] = field(default_factory=dict)
    #: Folders that its ``.pth`` files added; None before the first activation.
    added: list[str] | None = None
    finders: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Token:
    """One activation; several of one prefix may stand on each other."""

    native: Any
    #: What the variables were before.
    environ: dict[str, str | None] = field(default_factory=dict)


@dataclass
class _Active:
    """What has to be put back when the last activation of a prefix ends."""

    prefix: _Prefix
    path: list[str]
    names: frozenset[str]
    finders: list[Any]
    tokens: list[Token] = field(default_factory=list)
    modules: dict[str, types.ModuleType] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


_prefixes: dict[str, _Prefix] = {}
_active: _Active | None = None
_lock = threading.RLock()
# A child forked while another thread holds the lock would wait for ever.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def _provided(site_packages: str) -> frozenset[str]:
    """Names of the top-level modules in a site-packages folder."""
    names = set()
    for entry in os.scandir(site_packages):
        name = entry.name
        if name.endswith((".dist-info", ".egg-info", ".pth", ".data")) or name.startswith((".", "__")):
            continue
        if entry.is_dir():
            names.add(name)
        elif name.endswith((".py", *_SUFFIXES)):
            names.add(name.split(".")[0])
    return frozenset(names)


def _file_of(module: types.ModuleType) -> str:
    try:
        spec = getattr(module, "__spec__", None)
        file = getattr(module, "__file__", None) or getattr(spec, "origin", None) or ""
        if not isinstance(file, str) or file in ("built-in", "frozen", "namespace", ""):
            paths = list(getattr(module, "__path__", None) or [])
            file = paths[0] if paths and isinstance(paths[0], str) else ""
    except Exception:
        # A lazy module may do anything when it is looked at.
        file = ""
    return file


def _inside(file: str, folder: str) -> bool:
    return file.startswith(folder.rstrip(os.sep) + os.sep)


def _native_elsewhere(prefix: _Prefix) -> str | None:
    """A native module that this process has loaded from elsewhere and that the prefix provides too."""
    aside = [(other.path, other.modules) for other in _prefixes.values() if other is not prefix]
    for place, modules in [("", dict(sys.modules)), *aside]:
        for name, module in modules.items():
            top = name.partition(".")[0]
            if top not in prefix.provided or top in _OWN:
                continue
            file = _file_of(module)
            if file.endswith(_SUFFIXES) and not _inside(file, prefix.path):
                return f"`{top}`, which the prefix has too, is loaded from {place or os.path.dirname(file)}"
    return None


def refusal(native: Any) -> str | None:
    """Why this process cannot be activated for a context; None when it can."""
    if threading.current_thread() is not threading.main_thread():
        return "only the main thread activates its process"
    if native.engine is not None:
        return f"its processes run in a container of {native.engine}"
    path = str(native.prefix)
    if _active is not None and _active.prefix.path != path:
        return f"another environment is active: {_active.prefix.path}"
    mine = sysconfig.get_config_var("SOABI") or ""
    if native.soabi != mine:
        return f"the environment has Python {native.python_version} ({native.soabi}) and this process has {mine}"
    if native.spec.to_dict().get("writable"):
        return "a writable environment cannot be activated"
    if not os.path.isdir(native.site_packages):
        return f"there is no folder {native.site_packages}"
    return _native_elsewhere(_known(native))


def _known(native: Any) -> _Prefix:
    path = str(native.prefix)
    if path not in _prefixes:
        folder = str(native.site_packages)
        _prefixes[path] = _Prefix(path, folder, _provided(folder))
    return _prefixes[path]


def enter(native: Any, inherit_base: bool = False) -> Token:
    """Activates; the caller has asked :func:`refusal` before. Interrupted, it leaves the process as it was."""
    global _active
    token = Token(native)
    with _lock:
        if _active is not None:
            _active.tokens.append(token)
            _set_environ(token)
            return token
        prefix = _known(native)
        before = _Active(prefix, list(sys.path), frozenset(sys.modules), list(sys.meta_path), [token])
        _active = before
        try:
            _set_attributes(before, native)
            _set_environ(token)
            before.modules = _take_modules(lambda name, module: _from_base(prefix, name, module))
            sys.modules.update(prefix.modules)
            prefix.modules = {}
            _set_path(prefix, native, inherit_base)
            sys.meta_path[:] = [*_base_finders(inherit_base), *(f for f in prefix.finders if f not in sys.meta_path)]
            importlib.invalidate_caches()
        except BaseException:
            _restore(before)
            raise
    return token


def leave(token: Token | None = None) -> bool:
    """Ends one activation, or all when no token is given; returns whether the process is as it was before the first."""
    with _lock:
        if _active is None or (token is not None and token not in _active.tokens):
            return False
        for ended in [token] if token is not None else list(reversed(_active.tokens)):
            _active.tokens.remove(ended)
            _put_environ(ended)
        if _active.tokens:
            return False
        _restore(_active)
        return True


def _restore(before: _Active) -> None:
    """Puts everything back; each step is tried, whatever the one before did."""
    global _active
    prefix = before.prefix
    try:
        for token in reversed(before.tokens):
            _put_environ(token)
        prefix.finders = [finder for finder in sys.meta_path if finder not in before.finders]
    finally:
        _active = None
        sys.meta_path[:] = before.finders
        sys.path[:] = before.path
        for name, value in before.attributes.items():
            setattr(sys, name, value)
        try:
            keep = before.names - set(before.modules)
            prefix.modules = _take_modules(lambda name, module: name not in keep and _of_prefix(prefix, name, module))
        finally:
            sys.modules.update(before.modules)
            importlib.invalidate_caches()


def active_id() -> str | None:
    """The id of the context that was activated last."""
    return None if _active is None else str(_active.tokens[-1].native.id)


def _take_modules(wanted: Any) -> dict[str, types.ModuleType]:
    taken = {name: module for name, module in list(sys.modules.items()) if module is not None and wanted(name, module)}
    for name in taken:
        del sys.modules[name]
    return taken


def _from_base(prefix: _Prefix, name: str, module: types.ModuleType) -> bool:
    top = name.partition(".")[0]
    if top not in prefix.provided or top in _OWN:
        return False
    root = sys.modules.get(top, module)
    # A module of the user's own folder or of the standard library comes before site-packages in any process.
    return any(_inside(_file_of(root), folder) for folder in _base_folders()) or not _file_of(root)


def _of_prefix(prefix: _Prefix, name: str, module: types.ModuleType) -> bool:
    top = name.partition(".")[0]
    if top in _OWN or name in ("__main__", "__mp_main__"):
        return False
    file = _file_of(module)
    if file and (_inside(file, prefix.path) or any(_inside(file, folder) for folder in prefix.added or [])):
        return True
    # Modules without a file, such as `six.moves` and `torch.ops`, belong to their top-level package.
    root = sys.modules.get(top)
    return not file and top in prefix.provided and top not in sys.builtin_module_names and root is not None and (
        root is module or _of_prefix(prefix, top, root)
    )


def _base_folders() -> list[str]:
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    paths = sysconfig.get_paths()
    folders += [paths["purelib"], paths["platlib"]]
    return [os.path.realpath(folder) for folder in folders] + folders


def _set_path(prefix: _Prefix, native: Any, inherit_base: bool) -> None:
    base = _base_folders()
    own = [entry for entry in sys.path if entry not in base and not entry.endswith(("site-packages", "dist-packages"))]
    # Folders that `.pth` files of the base added lie in site-packages or point to editable sources named there.
    rest = [entry for entry in sys.path if entry not in own] if inherit_base else []
    if prefix.added is None:
        sys.path[:] = own
        known = {os.path.normcase(os.path.abspath(entry)) for entry in own if entry}
        site.addsitedir(prefix.site_packages, known)
        prefix.added = [entry for entry in sys.path if entry not in own]
        if prefix.site_packages not in prefix.added:
            prefix.added.insert(0, prefix.site_packages)
    # The guest comes last: a child started by multiprocessing takes this path over, and imports envharness again.
    sys.path[:] = [*own, *prefix.added, *rest, str(native.guest)]


def _base_finders(inherit_base: bool) -> list[Any]:
    """The finders without those that editable installs of the base put there."""
    if inherit_base:
        return list(sys.meta_path)
    return [finder for finder in sys.meta_path if not getattr(finder, "__module__", "").startswith("__editable__")]


def _set_attributes(before: _Active, native: Any) -> None:
    path = str(native.prefix)
    new = {"executable": str(native.python), "prefix": path, "exec_prefix": path, "dont_write_bytecode": True}
    for name, value in new.items():
        before.attributes[name] = getattr(sys, name)
        setattr(sys, name, value)


def _set_environ(token: Token) -> None:
    native = token.native
    variables = native.variables()
    names = ["PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONNOUSERSITE"]
    names += [name for name in variables if name.startswith("ENVHARNESS_") or name.endswith("_VISIBLE_DEVICES")]
    names += native.spec.to_dict().get("env_vars", {})
    new: dict[str, str | None] = {name: variables[name] for name in names if name in variables}
    # A child that starts the prefix's interpreter must not write byte-code into it either.
    new["PYTHONDONTWRITEBYTECODE"] = "1"
    new.update(dict.fromkeys(_VARIABLES_REMOVED))
    for name, value in new.items():
        token.environ[name] = os.environ.get(name)
        _put(name, value)


def _put_environ(token: Token) -> None:
    for name, value in token.environ.items():
        _put(name, value)
    token.environ = {}


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
