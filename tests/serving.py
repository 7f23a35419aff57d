"""Servers for the tests: ours, and the reference implementation in venvs of its own."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import BIN, CACHE, INTERPRETERS, MINOR, clean_environ, write
from websockets.sync.client import ClientConnection, connect

TESTS = Path(__file__).resolve().parent
ENVS = TESTS / "envs"
RECORDED = TESTS / "recordings" / "envs"
#: Generous: a start may rig an environment, and machines are shared.
START, REPLY, END = 300, 60, 60
#: What the reference is made of; its packages' dependencies of their own are added.
REFERENCE = ("openenv==0.10.0", "sortedcontainers==2.4.0")
OLD_REFERENCE = ("openenv-core==0.3.0",)
#: What the recorded environments need here, at the versions of the recordings.
WITH = ("--with", "pydantic==2.14.4", "--with", "fastmcp==3.4.11")
#: The short form of the fault tests; `make faults` sets more.
ROUNDS = int(os.environ.get("ENVHARNESS_FAULT_ROUNDS", "1"))


class Lines:
    """What a process prints, read as it comes."""

    def __init__(self, stream) -> None:
        self.lines: list[str] = []
        self.ended = False
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.read, args=(stream,), daemon=True)
        self.thread.start()

    def read(self, stream) -> None:
        with stream:
            for line in stream:
                with self.changed:
                    self.lines.append(line)
                    self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def find(self, pattern: str, within: float) -> str | None:
        """The first group of the first line that matches; None when the stream ended or time is up without one."""

        def found():
            return next((m for line in self.lines if (m := re.search(pattern, line))), None)

        with self.changed:
            self.changed.wait_for(lambda: self.ended or found(), within)
            match = found()
        return match[1] if match else None

    def text(self) -> str:
        with self.changed:
            return "".join(self.lines)


class Server:
    """A running server."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: Path | None, where: str) -> None:
        pipe = subprocess.PIPE
        self.argv = argv
        self.process = subprocess.Popen(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace")
        self.out, self.err = Lines(self.process.stdout), Lines(self.process.stderr)
        url = (self.out if where == "stdout" else self.err).find(r"(http://[\d.]+:\d+)", START)
        if url is None:
            self.kill()
            raise AssertionError(f"the server did not start: {' '.join(argv)}\n{self.out.text()}{self.err.text()}")
        url = url.replace("//0.0.0.0:", "//127.0.0.1:")
        self.url, self.ws_url = url, url.replace("http", "ws", 1)
        self.port = int(url.rsplit(":", 1)[1])

    def stderr(self) -> str:
        return self.err.text()

    def stop(self) -> int:
        """SIGTERM: drains and ends; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(END)
        finally:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for lines in (self.out, self.err):
            lines.thread.join(END)

    def fds(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def session(self, path: str = "/ws", **options: Any) -> Session:
        return Session(self.ws_url + path, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return request("GET", self.url + path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return request("POST", self.url + path, **options)


class Session(contextlib.AbstractContextManager):
    """One WebSocket: a message out, a reply in."""

    def __init__(self, url: str, **options: Any) -> None:
        self.socket: ClientConnection = open_socket(url, **options)

    def send(self, message: Any) -> None:
        self.socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))

    def receive(self) -> Any:
        return json.loads(self.socket.recv(timeout=REPLY))

    def ask(self, message: Any) -> Any:
        self.send(message)
        return self.receive()

    def reset(self, **data: Any) -> Any:
        return self.ask({"type": "reset", "data": data})

    def step(self, **action: Any) -> Any:
        return self.ask({"type": "step", "data": action})

    def state(self) -> Any:
        return self.ask({"type": "state"})

    def __exit__(self, *error: object) -> None:
        self.socket.close()


def open_socket(url: str, **options: Any) -> ClientConnection:
    return connect(url, **{"proxy": None, "max_size": None, "open_timeout": REPLY, "close_timeout": REPLY, **options}).__enter__()


def request(method: str, url: str, **options: Any) -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=REPLY) as client:
        return client.request(method, url, **options)


def start(
    target: str | Path,
    *args: Any,
    home: Path,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    python: str | Path | None = None,
) -> Server:
    """Starts ``envharness serve`` on a free port."""
    environ = {**clean_environ(home), **(env or {})}
    if python is not None:
        venv = Path(python).parent.parent
        environ |= {"VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}:{environ['PATH']}"}
    return Server([str(BIN / "envharness"), "serve", str(target), "--port", "0", *map(str, args)], environ, cwd, "stdout")


def start_reference(app: str, *, cwd: Path, env: dict[str, str] | None = None, python: Path | None = None) -> Server:
    """Starts the reference the way its users do: uvicorn on the package's app."""
    environ = {**os.environ, "MAX_CONCURRENT_ENVS": "8", "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    python = python or reference_python()
    return Server([str(python), "-m", "uvicorn", app, "--host", "127.0.0.1", "--port", "0"], environ, cwd, "stderr")


@functools.cache
def venv(name: str, requirements: tuple[str, ...]) -> Path:
    """The Python of a venv in the cache, made once; other runs wait for the one that makes it."""
    folder = CACHE / "venvs" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    ready, wanted = folder / "ready", "\n".join(requirements)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (ready.is_file() and ready.read_text() == wanted and (folder / "bin/python").exists()):
            uv = str(Path(sys.executable).parent / "uv")
            python = INTERPRETERS.get("3.11") or INTERPRETERS[MINOR]
            install = [uv, "pip", "install", "--python", folder / "bin/python", *requirements]
            for argv in ([uv, "venv", "--clear", "--python", python, folder], install):
                done = subprocess.run(argv, capture_output=True, text=True, check=False)
                if done.returncode:
                    pytest.skip(f"the reference cannot be installed here: {done.stderr.strip()[-500:]}")
            ready.write_text(wanted)
    return folder / "bin/python"


def reference_python() -> Path:
    return venv("openenv-0.10.0", REFERENCE)


def old_reference_python() -> Path:
    return venv("openenv-core-0.3.0", OLD_REFERENCE)


def run_stock(python: Path, folder: Path, code: str, *args: str) -> Any:
    """Runs a script under another Python with nothing of this process; what it prints last is JSON."""
    script = write(folder / "client_script.py", code)
    environ = {"PATH": os.defpath, "HOME": str(folder), "PYTHONPATH": str(folder)}
    done = subprocess.run([python, script, *args], env=environ, cwd=folder, capture_output=True, text=True, timeout=START, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def descendants(pid: int) -> list[int]:
    """All processes under one, by their parents."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


@contextlib.contextmanager
def running(server: Server):
    try:
        yield server
    finally:
        server.kill()


def shared_home(tmp_path_factory) -> Path:
    """One store for all servers of a run: what is tested is the server, so environments are rigged once."""
    return tmp_path_factory.getbasetemp() / "served"


@pytest.fixture(name="store")
def store_fixture(home, monkeypatch, tmp_path_factory) -> Path:
    """A command run in the test uses the store that its servers use."""
    shared = shared_home(tmp_path_factory)
    monkeypatch.setenv("ENVHARNESS_HOME", str(shared))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shared / "config"))
    return shared


@pytest.fixture(name="serve")
def serve_fixture(store):
    """Starts ``envharness serve``; what it started is killed with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda target, *args, **options: stack.enter_context(running(start(target, *args, home=store, **options)))


@pytest.fixture(name="reference")
def reference_fixture():
    """Starts the reference server on an app."""
    with contextlib.ExitStack() as stack:
        yield lambda app, cwd, env=None, **options: stack.enter_context(running(start_reference(app, cwd=cwd, env=env, **options))).url
