"""What the bench starts: peers' environments, servers and drivers, each in a process session of its own."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import serve
from drive_rows.measure import die_with_parent
from serve import BENCH, MODULES, REFERENCE, UV, environ, free_port, say

HERE = Path(__file__).resolve().parent
OURS = sys.executable
#: Short, as the path of a socket has to be.
SOCKETS = tempfile.TemporaryDirectory(prefix="drive")
START_SECONDS = 300  # The first start of ours rigs an environment.


class Trouble(Exception):
    """Why a side has no figures."""


def last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-400:] or "nothing was said"


# Peers


def here(package: str) -> str | None:
    """The version of a package in our own environment."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def pinned(package: str) -> str:
    """The package in the version that our side uses, so that both drive the same one."""
    version = here(package)
    return f"{package}=={version}" if version else package


def openenv() -> Path:
    try:
        serve.prepare_reference()
    except SystemExit as error:
        raise Trouble(str(error)) from None
    return REFERENCE


def gymnasium() -> Path:
    return environment("gymnasium", [pinned("gymnasium"), pinned("numpy")], [sys.executable])


def envpool() -> Path:
    return environment("envpool", ["envpool==1.2.5", pinned("gymnasium"), pinned("numpy")], [sys.executable, "3.11", "3.12"])


def environment(name: str, packages: list[str], pythons: list[str]) -> Path:
    """The Python of a peer's environment; made where it is not there with these packages."""
    folder = BENCH / f"peer-{name}"
    python, mark = folder / "bin" / "python", folder / "packages"
    if python.exists() and mark.exists() and mark.read_text().split() == packages:
        return python
    reasons = []
    for interpreter in pythons:
        say(f"# installing {' '.join(packages)} for the peer, with Python {interpreter}")
        shutil.rmtree(folder, ignore_errors=True)
        for command in (["venv", "--python", interpreter, folder], ["pip", "install", "--python", python, *packages]):
            done = subprocess.run([UV, "-q", *command], capture_output=True, text=True)
            if done.returncode != 0:
                reasons.append(f"with Python {interpreter}: {' '.join(done.stderr.split())[:300]}")
                break
        else:
            mark.write_text("\n".join(packages))
            return python
    raise Trouble(f"{packages[0]} does not install {'; '.join(reasons)}")


PEERS = {"openenv": openenv, "gymnasium": gymnasium, "envpool": envpool}

# Processes


class Child:
    """A process that ends with us."""

    def __init__(self, name: str, command: list, **options) -> None:
        self.name, self.log = name, BENCH / f"drive-{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True, preexec_fn=die_with_parent, **options,
            )  # fmt: skip
        self.pid = self.process.pid
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def line(self, seconds: float) -> str:
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            raise Trouble(f"{self.name} said nothing within {seconds:.0f} s: {last_words(self.log)}") from None
        if line is None:
            raise Trouble(f"{self.name} has ended: {last_words(self.log)}")
        return line

    def stop(self) -> None:
        """Asks it to end, by the end of its input and then SIGTERM, and makes it."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        for ask in (None, signal.SIGTERM):
            if ask is not None and self.process.poll() is None:
                self.process.send_signal(ask)
            try:
                self.process.wait(5)
                break
            except subprocess.TimeoutExpired:
                continue
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


class Server(Child):
    """A server; its `url` is there once it listens."""

    def __init__(self, name: str, command: list, url: str | None, capacity: int) -> None:
        super().__init__(name, command, cwd=MODULES, env=environ(MAX_CONCURRENT_ENVS=str(capacity)))
        try:
            self.url = url or self.line(START_SECONDS).strip()
            if url is not None:
                self._wait(int(url.rpartition(":")[2]))
        except BaseException:
            self.stop()
            raise

    def _wait(self, port: int) -> None:
        limit = time.monotonic() + START_SECONDS
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > limit:
                    raise Trouble(f"{self.name} did not start: {last_words(self.log)}") from None
                time.sleep(0.05)


def stock(name: str, deflate: bool = True) -> Server:
    """openenv's own server with the typed echo, as its users start it."""
    port, python = free_port(), openenv()
    command = [python, "-m", "uvicorn", "typed_echo:app", "--host", "127.0.0.1", "--port", port, "--log-level", "warning"]
    off = [] if deflate else ["--ws-per-message-deflate", "false"]
    return Server(name, [*command, *off], f"http://127.0.0.1:{port}", 256)


def own(name: str, target: str, **options) -> Server:
    """Ours, in a process of its own."""
    return Server(name, [OURS, HERE / "ours.py", "serve", target, json.dumps(options)], None, 2048)


def typed_echo(workers: int) -> Server:
    # The version of pydantic that the reference has.
    version = serve.prepare_reference()["pydantic"]
    return own("own-typed", "typed_echo:app", workers=workers, packages=[f"pydantic=={version}"])


SERVERS = {
    "stock": lambda _: stock("stock"),
    "stock-plain": lambda _: stock("stock-plain", deflate=False),
    "own-typed": typed_echo,
    "own-struct": lambda workers: own("own-struct", "struct_echo:EchoEnvironment", workers=workers, packages=[pinned("msgspec")]),
    "own-unix": lambda _: own("own-unix", "native:cartpole", host=f"unix:{SOCKETS.name}/s"),
}


class Side(Child):
    """A running driver."""

    def __init__(self, name: str, peer: str | None, kind: str, count: int, place: str, pids: str) -> None:
        python, script = (PEERS[peer](), "peers.py") if peer else (OURS, "ours.py")
        super().__init__(name, [python, HERE / script, kind, count, place, pids], cwd=BENCH, env=environ())
        try:
            told = self._answer(START_SECONDS)
        except BaseException:
            self.stop()
            raise
        versions = [f"{package} {version}" for package, version in told["versions"].items()]
        self.versions = ", ".join([*versions, f"Python {told['python']}", *filter(None, [told["note"]])])

    def run(self, seconds: float) -> dict:
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self._answer(seconds + 60)

    def _answer(self, seconds: float) -> dict:
        answer = json.loads(self.line(seconds))
        if "error" in answer:
            raise Trouble(answer["error"])
        return answer
