"""Real engines of the tests' own: dockerd and podman on private sockets, with a base image made of this machine's Python."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

import pytest
from conftest import INTERPRETERS, MINOR
from images import rootfs

#: The base of every container in the tests: busybox, the C library and a Python.
BASE = "base:1"
#: The same without Python.
BARE = "bare:1"
APPLETS = ("tr", "grep", "cut", "head", "sleep", "mkdir", "rm", "ps", "wget", "seq", "true", "false", "echo", "printf", "stat", "readlink", "tar", "dd", "yes")


def libraries(folder: Path) -> set[str]:
    """Libraries that native modules and programs below a folder load, real paths."""
    files = [str(path) for path in folder.rglob("*") if path.is_file() and (path.suffix == ".so" or path.name.startswith(("python3", "libpython")))]
    told = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    words = [line.split("=> ")[1].split()[0] for line in told.splitlines() if "=> /" in line]
    return {word for word in words if "/libc.so" not in word and "/libm.so" not in word}


def base(folder: Path, minor: str | None = MINOR) -> Path:
    """A tar of a root file system; without Python where `minor` is None."""
    root = rootfs(folder / "root")
    for applet in APPLETS:
        (root / "bin" / applet).unlink(missing_ok=True)
        (root / "bin" / applet).symlink_to("busybox")
    if minor is not None:
        ask = "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_path('stdlib'), sep='\\n')"
        told = subprocess.run([INTERPRETERS[minor], "-I", "-c", ask], capture_output=True, text=True, check=True).stdout.split("\n")
        prefix, library = Path(told[0]), Path(told[1])
        target = root / "usr/local"
        (target / "bin").mkdir(parents=True)
        left_out = shutil.ignore_patterns("test", "tests", "idlelib", "ensurepip", "site-packages", "dist-packages", "config-*", "__pycache__", "tkinter", "lib2to3", "turtledemo")
        shutil.copytree(library, target / "lib" / library.name, ignore=left_out)
        (target / "lib" / library.name / "site-packages").mkdir()
        shutil.copy2(os.path.realpath(INTERPRETERS[minor]), target / "bin" / f"python{minor}")
        for name in ("python3", "python"):
            (target / "bin" / name).symlink_to(f"python{minor}")
        for shared in prefix.glob("lib/libpython3*.so*"):
            shutil.copy2(shared, target / "lib", follow_symlinks=True)
        for path in libraries(target):
            shutil.copy2(os.path.realpath(path), root / "lib" / Path(path).name)
        subprocess.run([INTERPRETERS[minor], "-m", "compileall", "-q", target / "lib"], check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
    archive = folder / "base.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(root, ".")
    shutil.rmtree(root)
    return archive


class Engine:
    """A running engine: `kind`, the address of its socket, and a client."""

    def __init__(self, kind: str, address: str, client: list[str]) -> None:
        self.kind, self.address, self._client = kind, address, client

    def run(self, *args: str | Path, check: bool = True) -> str:
        """What the engine's own client answers."""
        # A podman that is told of a service asks it, and does not know its own store.
        environ = {name: value for name, value in os.environ.items() if name not in ("DOCKER_HOST", "CONTAINER_HOST")}
        done = subprocess.run([*self._client, *map(str, args)], capture_output=True, text=True, check=False, env=environ)
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout.strip()

    def containers(self) -> list[str]:
        """Names of all containers."""
        return sorted(self.run("ps", "-a", "--format", "{{.Names}}").split())

    @property
    def variables(self) -> dict[str, str]:
        """What a user of this engine exports."""
        return {"DOCKER_HOST" if self.kind == "docker" else "CONTAINER_HOST": self.address}


def take(engine: Engine, tar: Path, name: str) -> None:
    """Makes an image of a root file system."""
    # Its name makes it another image than its twin of the same content.
    variables = [f"IMAGE_NAME={name}", "PATH=/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH=/usr/local/lib:/lib"]
    engine.run("import", *(word for variable in variables for word in ("--change", f"ENV {variable}")), tar, name)


def wait_for(ready, process: subprocess.Popen, log: Path) -> None:
    """Waits until an engine answers, and tells its log when it ends instead."""
    for _ in range(600):
        if ready():
            return
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def unmount_below(folder: Path) -> None:
    """Engines leave mounts behind; nothing of them may stay."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split()[1]
        if place.startswith(str(folder)):
            subprocess.run(["umount", "-l", place], check=False)


@contextlib.contextmanager
def dockerd(*arguments: str, runtimes: dict[str, list[str]] | None = None):
    """A dockerd of its own, without networks beside none and host."""
    folder = Path(tempfile.mkdtemp(prefix="ehd-"))
    address = f"unix://{folder}/socket"
    argv = ["dockerd", "-H", address, "--data-root", folder / "data", "--exec-root", folder / "exec", "-p", folder / "pid"]
    argv += ["--bridge=none", "--iptables=false", "--ip-forward=false", *arguments]
    for name, command in (runtimes or {}).items():
        (folder / name).write_text("#!/bin/sh\nexec " + " ".join(command) + ' "$@"\n')
        (folder / name).chmod(0o755)
        argv += ["--add-runtime", f"{name}={folder / name}"]
    engine = Engine("docker", address, ["docker", "-H", address])
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([str(word) for word in argv], stdout=log, stderr=log)
        try:
            ready = ["docker", "-H", address, "version"]
            wait_for(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0, process, folder / "log")
            yield engine
        finally:
            with contextlib.suppress(AssertionError):
                engine.run("rm", "-f", *engine.containers() or ["none"], check=False)
            process.terminate()
            process.wait()
            unmount_below(folder)
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def podman():
    """Podman's Docker-compatible service on a store of its own."""
    folder = Path(tempfile.mkdtemp(prefix="ehp-"))
    (folder / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
        f'tmp_dir = "{folder}/tmp"\n'
    )
    address = f"unix://{folder}/socket"
    client = ["env", f"CONTAINERS_CONF={folder}/containers.conf", "podman", "--root", str(folder / "data"), "--runroot", str(folder / "run")]
    # The service wants its soft limit of open files to be the hard one.
    argv = ["prlimit", "--nofile=1024:1024", *client, "system", "service", "--time", "0", address]
    engine = Engine("podman", address, client)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            wait_for(lambda: (folder / "socket").exists(), process, folder / "log")
            yield engine
        finally:
            engine.run("rm", "-f", "-a", "-t", "0", check=False)
            process.terminate()
            process.wait()
            unmount_below(folder)
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def faulty(address: str, words: str, fault: str):
    """A proxy before an engine's socket. The first request whose first line has the words meets a fault: its answer is `lost`
    (the engine did the work), it is a `500` (the engine did nothing), it is `cut` in the middle, or it comes `late`. Gives
    the proxy's address and the list of requests that met it."""
    folder = Path(tempfile.mkdtemp(prefix="ehf-"))
    met: list[str] = []
    guard = threading.Lock()
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(folder / "socket"))
    door.listen(64)

    def pump(source: socket.socket, target: socket.socket, most: int | None = None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16 if most is None else most):
                target.sendall(data)
                if most is not None:
                    break
            target.shutdown(socket.SHUT_WR)

    def serve(client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as engine, contextlib.suppress(OSError):
            head = client.recv(1 << 16)
            line = head.split(b"\r\n")[0].decode()
            with guard:
                chosen = words in line and not met
                if chosen:
                    met.append(line)
            if chosen and fault == "500":
                body = b'{"message":"the tests say no"}'
                # Read whole, or the refusal is lost with the connection.
                client.settimeout(0.1)
                with contextlib.suppress(TimeoutError):
                    client.recv(1 << 16)
                client.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                return
            engine.connect(address.removeprefix("unix://"))
            engine.sendall(head)
            up = threading.Thread(target=pump, args=(client, engine), daemon=True)
            up.start()
            if chosen and fault == "lost":
                engine.recv(1 << 16)
                client.shutdown(socket.SHUT_RDWR)
                return
            if chosen and fault == "late":
                # As late as the engine's own answer to another question.
                with socket.socket(socket.AF_UNIX) as other:
                    other.connect(address.removeprefix("unix://"))
                    other.sendall(b"GET /info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    while other.recv(1 << 16):
                        pass
            pump(engine, client, 40 if chosen and fault == "cut" else None)
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = door.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"unix://{folder}/socket", met
    finally:
        door.shutdown(socket.SHUT_RDWR)
        door.close()
        thread.join()
        shutil.rmtree(folder, ignore_errors=True)


def need_engine(kind: str) -> None:
    """Skips by name where an engine cannot be started."""
    if os.geteuid() != 0:
        pytest.skip("an engine of its own needs root")
    for program in {"docker": ["dockerd", "docker"], "podman": ["podman", "prlimit"]}[kind] + ["busybox"]:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on this machine")
    if sys.platform != "linux":
        pytest.skip("engines are started on Linux alone")
