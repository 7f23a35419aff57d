"""What the tests of images share: a small base of this machine's C library, ways to read and unpack an image, a registry."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import http.client
import http.server
import io
import json
import os
import platform
import shutil
import socket
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import pytest

LIBRARIES = ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libutil.so.1", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "libcrypt.so.1"]


def rootfs(folder: Path) -> Path:
    """A root file system with a shell and the C library of this machine."""
    if platform.machine() != "x86_64":
        pytest.skip("the base of these tests is made for x86_64")
    busybox = shutil.which("busybox")
    for name in ("bin", "lib", "lib64", "tmp", "etc", "usr/bin", "proc"):
        (folder / name).mkdir(parents=True)
    shutil.copy2(busybox, folder / "bin/busybox")
    for applet in ("sh", "ls", "cat", "env", "dirname", "realpath", "id", "touch"):
        (folder / "bin" / applet).symlink_to("busybox")
    known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    paths = {line.split()[0]: line.split("=> ")[1] for line in known.splitlines() if "=> " in line and "x86-64" in line}
    for name in LIBRARIES:
        if name in paths:
            shutil.copy2(os.path.realpath(paths[name]), folder / "lib" / name)
    shutil.copy2(os.path.realpath("/lib64/ld-linux-x86-64.so.2"), folder / "lib64/ld-linux-x86-64.so.2")
    (folder / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    return folder


class Layout:
    """An OCI layout that is read with nothing but the standard library."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
        self.index = json.loads((folder / "index.json").read_text())
        self.manifest = json.loads(self.blob(self.index["manifests"][0]["digest"]))
        self.config = json.loads(self.blob(self.manifest["config"]["digest"]))

    def blob(self, digest: str) -> bytes:
        data = (self.folder / "blobs" / digest.replace(":", "/")).read_bytes()
        assert "sha256:" + hashlib.sha256(data).hexdigest() == digest
        return data

    @property
    def layers(self) -> list[str]:
        return [layer["digest"] for layer in self.manifest["layers"]]

    @property
    def titles(self) -> dict[str, str]:
        """Layers by what the history says of them."""
        return {step["created_by"].split(": ")[1]: digest for step, digest in zip(self.config["history"], self.layers, strict=True)}

    def tar(self, digest: str) -> bytes:
        return gzip.decompress(self.blob(digest))

    def members(self, digest: str) -> list[tarfile.TarInfo]:
        with tarfile.open(fileobj=io.BytesIO(self.tar(digest))) as tar:
            return tar.getmembers()

    def unpack(self, to: Path) -> Path:
        to.mkdir()
        for digest, diff_id in zip(self.layers, self.config["rootfs"]["diff_ids"], strict=True):
            data = self.tar(digest)
            assert "sha256:" + hashlib.sha256(data).hexdigest() == diff_id
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                tar.extractall(to, filter="fully_trusted")
        return to


def run_in(root: Path, config: dict, *argv: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of an unpacked image, in its root and with its variables."""
    environ = dict(line.split("=", 1) for line in config["config"]["Env"])
    inside = f'cd {config["config"]["WorkingDir"]} && exec "$@"'
    # The loader finds `$ORIGIN` by /proc.
    outside = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh -c "$@"'
    argv = ("unshare", "--mount", "/bin/sh", "-c", outside, str(root), inside, "sh", *argv)
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def files_of(folder: Path) -> dict[str, str]:
    """Every file of a folder with the hash of its bytes."""
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()}


@contextlib.contextmanager
def registry(folder: Path, *, htpasswd: str | None = None):
    """Debian's `docker-registry` on loopback; gives HOST:PORT."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir(parents=True)
    lines = ["version: 0.1", "log: {level: error}", f"storage: {{filesystem: {{rootdirectory: '{folder}/data'}}, delete: {{enabled: true}}}}"]
    lines.append(f"http: {{addr: '127.0.0.1:{port}'}}")
    if htpasswd:
        (folder / "htpasswd").write_text(htpasswd)
        lines.append(f"auth: {{htpasswd: {{realm: tests, path: '{folder}/htpasswd'}}}}")
    (folder / "config.yml").write_text("\n".join(lines) + "\n")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(folder / "config.yml")], stdout=log, stderr=log)
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def tokens(host: str, user: str, password: str):
    """A door before a registry that wants a token, as the public ones do; gives HOST:PORT and what was asked for."""
    asked: list[str] = []
    basic = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    class Door(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path.startswith("/token"):
                asked.append(self.path)
                known = self.headers.get("Authorization") == basic
                return self.reply(200 if known else 401, {}, json.dumps({"access_token": "tests-token"} if known else {}).encode())
            if self.headers.get("Authorization") != "Bearer tests-token":
                challenge = f'Bearer realm="http://{self.headers["Host"]}/token",service="tests",scope="repository:trainer:pull,push"'
                return self.reply(401, {"WWW-Authenticate": challenge}, b"{}")
            inner = http.client.HTTPConnection(host)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in ("authorization", "transfer-encoding", "connection")}
            inner.request(self.command, self.path, body, headers)
            response = inner.getresponse()
            data = response.read()
            inner.close()
            return self.reply(response.status, dict(response.getheaders()), data)

        do_GET = do_HEAD = do_POST = do_PUT = answer

        def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date"):
                    self.send_header(name, value)
            self.send_header("Content-Length", headers.get("Content-Length", str(len(body))) if self.command == "HEAD" else str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
