"""``ctx.call``: a Python function runs inside a context and its value, or its exception, comes back."""

from __future__ import annotations

import base64
import builtins
import contextlib
import importlib
import json
import os
import pickle
import shutil
import sys
import threading
import types
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envharness import _native
from envharness._errors import CallError, CommandError, RemoteError


class _RemoteTraceback(Exception):
    """The traceback inside, as the cause of the exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def _guest(folder: Path) -> tuple[types.ModuleType, types.ModuleType]:
    """The guest's codec and functions: one source for both sides, loaded from the store."""
    with _path_first(str(folder)):
        return importlib.import_module("envharness_guest.codec"), importlib.import_module("envharness_guest.functions")


@contextlib.contextmanager
def _path_first(folder: str):
    if "envharness_guest.functions" in sys.modules:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def call(
    native: _native.Context,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    **options: Any,
) -> Any:
    """Runs ``function(*args, **kwargs)`` in a context; see :meth:`envharness.Context.call`."""
    codec, functions = _guest(Path(native.guest))
    # What a container answers is read, never run.
    allow_pickle = native.spec.isolation == "none" and native.engine is None
    pickler = functions.pickler if allow_pickle else None
    if not native.python_version:
        raise CallError("the container's image has no Python to call a function with", hint="take an image with Python, or use ctx.execute")
    minor = ".".join(native.python_version.split(".")[:2])
    try:
        described = functions.describe(function, minor, allow_pickle)
        request = {
            "function": described,
            "allow_pickle": allow_pickle,
            "args": codec.dumps(list(args), pickler),
            "kwargs": codec.dumps(kwargs, pickler),
        }
    except (functions.FunctionError, codec.CodecError) as error:
        raise CallError(str(error)) from error
    folder = Path(native.workdir).parent / "calls" / uuid.uuid4().hex
    folder.mkdir(parents=True)
    try:
        (folder / "request").write_text(json.dumps(request), encoding="ascii")
        runner = Path(native.guest) / "envharness_guest" / "call.py"
        argv = [str(native.python), str(runner), str(folder / "request"), str(folder / "result")]
        done = native.execute(argv, **options)
        return _result(folder / "result", done, codec, allow_pickle, function)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _result(path: Path, done: Any, codec: types.ModuleType, allow_pickle: bool, function: Callable[..., Any]) -> Any:
    if not path.is_file():
        output = done[3].decode("utf-8", "replace").splitlines()[-20:]
        raise CommandError(f"the process of the call ended with exit code {done[0]} and without a result", details=output)
    # No link is followed: the process inside may have left one.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="ascii") as file:
        answer = json.load(file)
    with _module_alias(function):
        if answer["ok"]:
            try:
                return codec.loads(answer["value"], allow_pickle)
            except Exception as error:
                raise CallError(f"the call's value cannot be read here: {error}") from error
        raise _exception(answer, allow_pickle) from _RemoteTraceback(answer["traceback"])


_alias_lock = threading.RLock()


@contextlib.contextmanager
def _module_alias(function: Callable[..., Any]):
    """Values whose types were made by the function's module name it ``__mp_main__``."""
    module = sys.modules.get(getattr(function, "__module__", "") or "")
    # The name is one for the process, and two threads may call functions of different modules.
    with _alias_lock:
        before = sys.modules.get("__mp_main__")
        if module is not None:
            sys.modules["__mp_main__"] = module
        try:
            yield
        finally:
            if before is None:
                sys.modules.pop("__mp_main__", None)
            else:
                sys.modules["__mp_main__"] = before


def _exception(answer: dict[str, Any], allow_pickle: bool) -> BaseException:
    if allow_pickle:
        with contextlib.suppress(Exception):
            error = pickle.loads(base64.b64decode(answer["pickle"]))
            # A SystemExit inside ends the process inside, not this one.
            if isinstance(error, Exception):
                return error
    else:
        builtin = getattr(builtins, str(answer["type"]).removeprefix("builtins."), None)
        if isinstance(builtin, type) and issubclass(builtin, Exception):
            with contextlib.suppress(Exception):
                return builtin(answer["message"])
    remote = RemoteError(f"{answer['type']}: {answer['message']}")
    remote.type_name, remote.traceback = answer["type"], answer["traceback"]
    return remote
