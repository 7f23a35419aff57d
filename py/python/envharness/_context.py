"""Contexts as Python sees them."""

from __future__ import annotations

import codecs
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from envharness import _activation, _native
from envharness._call import call as _call
from envharness._errors import ActivationError, ContextError
from envharness._result import Result
from envharness._runtime import on_event, rig, warn
from envharness._spec import SpecLike, as_spec

T = TypeVar("T")
_POLICIES = ("keep", "suspend", "destroy", "release")


class _Streams:
    """Passes output on to ``sys.stdout`` and ``sys.stderr``, whole characters at a time."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {False: make("replace"), True: make("replace")}

    def __call__(self, is_error: bool, data: bytes) -> None:
        stream = sys.stderr if is_error else sys.stdout
        if stream is not None:
            stream.write(self._decoders[is_error].decode(data))
            stream.flush()


class Context:
    """A leased place made from a prefix, in which processes run.

    Made by :func:`envharness.get_context` and :func:`envharness.create_context`; a ``with`` statement (or ``async with``)
    opens and ends it.

    Attributes:
        spec: The Spec.
        id: The id, such as ``venv-env-demo-7k2fq``.
        workdir: The context's own folder: the base of relative uploads.
        python: The interpreter.
        prefix: The environment's folder, shared and read-only.
        activated: Whether this process sees the environment's packages itself.
        activation: Why it does, or why not.
        reused: Whether an idle context was taken.
    """

    def __init__(self, spec: SpecLike, **options: Any) -> None:
        """Prepares a context; nothing is made before it is entered."""
        on_exit = options.pop("on_exit")
        if on_exit not in _POLICIES:
            raise ContextError(f"on_exit={on_exit!r} is not one of {', '.join(_POLICIES)}")
        activate = options.pop("activate")
        if activate not in (True, False, "auto"):
            raise ContextError(f"activate={activate!r} is not one of True, False, 'auto'")
        self.spec = as_spec(spec)
        self.activated = False
        self.activation = "the context is not entered"
        self._inherit_base = options.pop("inherit_base")
        self._on_exit, self._activate, self._options = on_exit, activate, options
        self._native: _native.Context | None = None
        self._token: _activation.Token | None = None
        self._closed = False
        self._pid = os.getpid()

    @classmethod
    def _attached(cls, native: _native.Context) -> Context:
        self = cls(
            native.spec, on_exit="keep", activate=False, inherit_base=False,
            origin="kept", find_idle=False, fresh=False, lock="auto", timeout=None,
        )
        self._native = native
        self.activation = "the context was attached to"
        return self

    # Opening and ending

    def __enter__(self) -> Context:
        """Makes the context or takes an idle one, and activates the process where asked."""
        try:
            self._open(None)
            self._maybe_activate()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the activation and lets go by the exit policy."""
        self.close()

    async def __aenter__(self) -> Context:
        """As ``__enter__``, without stopping the event loop."""
        await _in_thread(self._open, undo=lambda _: self.close())
        try:
            self._maybe_activate()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """As ``__exit__``."""
        self._deactivate()
        await _in_thread(lambda _: self.close())

    def _open(self, cancel: _native.CancelToken | None) -> None:
        if self._native is not None or self._closed:
            raise ContextError("a context is entered once", hint="call get_context or create_context again")
        self._native = rig().create(self.spec, on_event=on_event, cancel=cancel, **self._options)
        self._pid = os.getpid()

    def _maybe_activate(self) -> None:
        native = self._inside()
        if self._activate is False:
            self.activation = "activate=False"
            return
        reason = _activation.refusal(native)
        if reason is None:
            self._token = _activation.enter(native, self._inherit_base)
            self.activated, self.activation = True, "this process sees the environment's packages"
            return
        self.activation = reason
        if self._activate is True:
            self.close()
            raise ActivationError(f"cannot activate {self.spec.name}: {reason}", hint="use ctx.run, ctx.execute or ctx.call")
        # Who asks for a container knows that its code is elsewhere.
        if threading.current_thread() is threading.main_thread() and native.engine is None:
            warn(f"{native.id} is not activated: {reason}\nhint: use ctx.run, ctx.execute or ctx.call")

    def _deactivate(self) -> None:
        if self.activated and self._token is not None:
            self.activated = False
            self.activation = "the context was left"
            _activation.leave(self._token)

    def close(self) -> None:
        """Ends the context by its exit policy. In a forked child it only ends the child's activation."""
        self._deactivate()
        if self._native is None or self._closed:
            return
        self._closed = True
        if self._pid == os.getpid():
            self._native.release(self._on_exit)

    def _inside(self) -> _native.Context:
        if self._native is None:
            raise ContextError("the context is not entered", hint="use it in a `with` statement")
        if self._closed:
            raise ContextError(f"the context {self._native.id} was left")
        return self._native

    def _known(self) -> _native.Context:
        if self._native is None:
            raise ContextError("the context is not entered", hint="use it in a `with` statement")
        return self._native

    # What it is

    @property
    def id(self) -> str:
        """The id."""
        return self._known().id

    @property
    def workdir(self) -> Path:
        """The context's own folder."""
        return Path(self._known().workdir)

    @property
    def python(self) -> Path:
        """The interpreter."""
        return Path(self._known().python)

    @property
    def python_version(self) -> str:
        """The interpreter's version."""
        return self._known().python_version

    @property
    def prefix(self) -> Path:
        """The environment's folder."""
        return Path(self._known().prefix)

    @property
    def reused(self) -> bool:
        """Whether an idle context was taken."""
        return self._known().reused

    @property
    def lock(self) -> _native.Lock:
        """The lock the context was made from; ``lock.save(path)`` writes it."""
        return self._known().lock or rig().lock(self.spec, mode="frozen")

    @property
    def state(self) -> str:
        """``creating``, ``running``, ``idle``, ``suspended``, ``error`` or ``destroyed``."""
        if self._native is None:
            return "creating"
        try:
            return str(rig().inspect(self._native.id)["state"])
        except ContextError:
            return "destroyed"

    @property
    def limits(self) -> dict[str, dict[str, str]]:
        """Each limit with its value and what enforces it."""
        return {name: {"value": value, "enforced_by": by} for name, value, by in self._known().limits}

    @property
    def environ(self) -> dict[str, str]:
        """The variables of the context's processes, secrets apart."""
        return self._known().variables()

    # Running

    def execute(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        timeout: float | None = None,
        no_output_timeout: float | None = None,
        stream: bool = False,
    ) -> Result:
        """Runs a list of words without a shell.

        Args:
            command: The program and its words.
            cwd: The directory; the current one by default.
            env: Further variables.
            input: What it reads; nothing by default.
            timeout: The longest run in seconds; before the spec's.
            no_output_timeout: The longest silence in seconds.
            stream: Whether output also goes to ``sys.stdout`` and ``sys.stderr`` as it comes.

        Returns:
            A Result, which unpacks as ``(exit_code, logs)``. A failing exit code is no error.

        Raises:
            CommandTimeout: The time was over; the whole process tree was ended, and the output so far is kept.
            ContextError: The command could not be started.
        """
        return self._execute(None, command, cwd, env, input, timeout, no_output_timeout, stream)

    def _execute(
        self,
        cancel: _native.CancelToken | None,
        command: Sequence[str | os.PathLike[str]],
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
        input: str | bytes | None,
        timeout: float | None,
        no_output_timeout: float | None,
        stream: bool,
    ) -> Result:
        if isinstance(command, (str, bytes)):
            raise ContextError("execute takes a list of words", hint="a shell line goes to ctx.run")
        argv = [os.fspath(word) for word in command]
        code, out, err, both, omitted, elapsed, hint = self._inside().execute(
            argv,
            cwd=None if cwd is None else os.fspath(cwd),
            env=None if env is None else dict(env),
            input=input.encode() if isinstance(input, str) else input,
            timeout=timeout,
            no_output=no_output_timeout,
            sink=_Streams() if stream else None,
            cancel=cancel,
        )
        if hint:
            warn(hint)
        text = [part.decode("utf-8", "replace") for part in (both, out, err)]
        return Result(code, text[0], stdout=text[1], stderr=text[2], elapsed=elapsed, omitted=omitted, command=tuple(argv))

    def run(
        self,
        line: str,
        *,
        check: bool = True,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        timeout: float | None = None,
        no_output_timeout: float | None = None,
        stream: bool = True,
    ) -> Result:
        """Runs a shell line and passes its output on as it comes.

        Args:
            line: The line, for ``/bin/sh -c``.
            check: Whether a failing exit code raises.
            cwd: The directory; the current one by default.
            env: Further variables.
            input: What it reads; nothing by default.
            timeout: The longest run in seconds.
            no_output_timeout: The longest silence in seconds.
            stream: Whether output goes to ``sys.stdout`` and ``sys.stderr``.

        Raises:
            CommandError: The exit code is not 0 and ``check`` is set.
            CommandTimeout: The time was over.
        """
        if not isinstance(line, str):
            raise ContextError("run takes a shell line", hint="a list of words goes to ctx.execute")
        result = self._execute(None, ["/bin/sh", "-c", line], cwd, env, input, timeout, no_output_timeout, stream)
        return _named(result, line).check() if check else _named(result, line)

    def call(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Calls a Python function inside the environment and returns its value, or raises its exception.

        A function from a module file travels as source, and so crosses Python versions; a closure or a function of a
        script without a main guard travels by cloudpickle and needs the same minor version. Values keep their types.

        Args:
            function: The function.
            args: Its arguments.
            kwargs: Its keyword arguments.

        Raises:
            CallError: The function or a value cannot travel.
            RemoteError: An exception whose type does not exist here; others are raised as they are, with the remote
                traceback as their cause.
        """
        return _call(self._inside(), function, args, kwargs, sink=_Streams())

    def popen(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Starts a command with piped streams and returns at once; it ends with the context at the latest.

        Raises:
            ContextError: The command could not be started.
        """
        argv = [os.fspath(word) for word in command]
        cwd = None if cwd is None else os.fspath(cwd)
        return Process(self._inside().spawn(argv, cwd=cwd, env=None if env is None else dict(env)), argv)

    def shell(self, program: str | None = None) -> int:
        """Opens an interactive shell on this terminal; returns its exit code."""
        program = program or os.environ.get("SHELL") or "/bin/sh"
        return self._inside().execute([program], terminal=True)[0]

    # Files

    def upload_file(
        self,
        source: str | os.PathLike[str],
        target: str | os.PathLike[str],
        *,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Copies a file or a tree into the context, replacing files in one step each.

        Args:
            source: The host's path.
            target: A path below the workdir, or an absolute path, which the context's processes see there.
            progress: Called with the bytes copied so far.

        Raises:
            TransferError: It cannot be; a file that was there is as it was.
        """
        self._inside().upload(os.fspath(source), _target(target), progress=progress)
        if self.activated and os.path.isabs(os.fspath(target)) and not _is_below(target, self.workdir):
            warn(f"processes of the context see {os.fspath(target)}; this activated process itself does not")

    def download_file(
        self,
        source: str | os.PathLike[str],
        target: str | os.PathLike[str],
        *,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Copies a file or a tree out of the context; no symlink is followed out of it.

        Args:
            source: A path as the context's processes see it; a relative one begins at the workdir.
            target: The host's path.
            progress: Called with the bytes copied so far.

        Raises:
            TransferError: It cannot be; a file that was there is as it was.
        """
        self._inside().download(os.fspath(source), _target(target), progress=progress)

    upload, download = upload_file, download_file

    # Looking

    def logs(self, tail: int | None = None) -> str:
        """What the context's commands printed, secrets masked.

        Args:
            tail: The last lines only.
        """
        try:
            text = Path(self._known().log_path).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return text if tail is None else "".join(text.splitlines(keepends=True)[-tail:] if tail else [])

    def stats(self) -> dict[str, Any]:
        """What the context's processes use now: ``processes``, ``rss_bytes`` and ``cpu_seconds``."""
        pids = rig().inspect(self.id)["processes"]
        rss, cpu = 0, 0.0
        ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        for pid in pids:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            rss += int(fields[21]) * page
            cpu += (int(fields[11]) + int(fields[12])) / ticks
        # A container's engine knows of all of it, also of what this user or this kernel does not see.
        usage = self._known().usage()
        if usage is not None:
            rss, cpu = usage[:2]
        return {"processes": pids, "rss_bytes": rss, "cpu_seconds": cpu}

    # The same, awaited

    async def aexecute(self, command: Sequence[str | os.PathLike[str]], **options: Any) -> Result:
        """As :meth:`execute`; cancelling it ends the process tree."""
        names = ("cwd", "env", "input", "timeout", "no_output_timeout", "stream")
        unknown = set(options) - set(names)
        if unknown:
            raise TypeError(f"aexecute() got unexpected keywords: {', '.join(sorted(unknown))}")
        values = [options.get(name) for name in names[:-1]]
        return await _in_thread(lambda cancel: self._execute(cancel, command, *values, bool(options.get("stream"))))

    async def arun(self, line: str, *, check: bool = True, **options: Any) -> Result:
        """As :meth:`run`; cancelling it ends the process tree."""
        options.setdefault("stream", True)
        result = _named(await self.aexecute(["/bin/sh", "-c", line], **options), line)
        return result.check() if check else result

    async def acall(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """As :meth:`call`; cancelling it ends the process tree."""
        native = self._inside()
        return await _in_thread(lambda cancel: _call(native, function, args, kwargs, sink=_Streams(), cancel=cancel))

    async def aupload_file(self, source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
        """As :meth:`upload_file`."""
        await _in_thread(lambda _: self.upload_file(source, target))

    async def adownload_file(self, source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
        """As :meth:`download_file`."""
        await _in_thread(lambda _: self.download_file(source, target))

    async def aclose(self) -> None:
        """As :meth:`close`."""
        await self.__aexit__()

    def __repr__(self) -> str:
        """The id or the name."""
        return f"<Context {self._native.id if self._native else self.spec.name}>"


def _named(result: Result, line: str) -> Result:
    result.command = (line,)
    return result


def _target(path: str | os.PathLike[str]) -> str:
    # pathlib drops the slash at the end, which says that a folder is meant.
    return os.fspath(path)


def _is_below(path: str | os.PathLike[str], folder: Path) -> bool:
    return os.path.abspath(os.fspath(path)).startswith(str(folder) + os.sep)


async def _in_thread(work: Callable[[_native.CancelToken], T], undo: Callable[[T], object] | None = None) -> T:
    """Runs blocking work in a thread; a cancelled task stops it and waits until its processes are gone.

    ``undo`` takes back what was done when the cancellation came too late to stop it.
    """
    # Imported when used: it is most of the time that importing this package would take.
    import asyncio

    token = _native.CancelToken()
    future = asyncio.get_running_loop().run_in_executor(None, lambda: work(token))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        token.cancel()
        await asyncio.wait([future])
        # Its own end, interrupted by the token, is not news.
        if future.exception() is None and undo is not None:
            undo(future.result())
        raise


class Process:
    """A process in a context, with piped streams.

    Attributes:
        pid: The process id.
        args: The words.
        stdin: A binary file to write to.
        stdout: A binary file to read from.
        stderr: A binary file to read from.
    """

    def __init__(self, native: _native.Process, args: list[str]) -> None:
        """Takes over the streams."""
        self._native = native
        self.args = args
        self.pid = native.pid
        stdin, stdout, stderr = native.take_streams()
        self.stdin = os.fdopen(stdin, "wb")
        self.stdout = os.fdopen(stdout, "rb")
        self.stderr = os.fdopen(stderr, "rb")

    @property
    def returncode(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._native.poll()

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._native.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        import subprocess

        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.001
        while (code := self._native.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
        return code

    def terminate(self) -> None:
        """Asks the process and all it started to end."""
        self._native.terminate()

    def kill(self) -> None:
        """Ends the process and all it started."""
        self._native.kill()

    def close(self) -> None:
        """Closes the streams."""
        for stream in (self.stdin, self.stdout, self.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                continue

    def __enter__(self) -> Process:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the streams and ends what still runs."""
        self.close()
        if self.poll() is None:
            self.kill()
            self.wait()

    def __repr__(self) -> str:
        """The pid and the words."""
        return f"<Process {self.pid} {' '.join(self.args)}>"
