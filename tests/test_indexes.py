"""Indexes of one's own: credentials from the environment and netrc, extra indexes, proxies; nothing of it is stored."""

from __future__ import annotations

import base64
import hashlib
import http.server
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import MINOR, write

USER, PASSWORD = "reader", "s3cret-s3cret"


@pytest.fixture
def index(home):
    """A PEP 503 index on loopback that wants a password and has one package; what it was asked is noted."""
    write("src/pyproject.toml", '[project]\nname = "privatepkg"\nversion = "1.2.3"\n[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n')
    write("src/privatepkg.py", "VALUE = 7\n")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "wheels", "./src"], check=True)
    (wheel,) = Path("wheels").iterdir()
    data = wheel.read_bytes()
    asked: list[str] = []
    wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            asked.append(self.path)
            if self.path.startswith("http://"):
                self.path = "/" + self.path.split("/", 3)[3]
            if self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="x"')
                self.end_headers()
                return
            digest = hashlib.sha256(data).hexdigest()
            pages = {
                "/simple/privatepkg/": f'<a href="/files/{wheel.name}#sha256={digest}">{wheel.name}</a>'.encode(),
                f"/files/{wheel.name}": data,
            }
            body = pages.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Type", "text/html" if self.path.startswith("/simple") else "application/zip")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body or b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.asked = asked
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def spec_of(server) -> Path:
    url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    return write("s.yaml", f"name: p\npython: '{MINOR}'\ndeps: [privatepkg, six==1.16.0]\nindexes:\n  - name: internal\n    url: {url}\n")


SHOW = ["--", "python", "-c", "import privatepkg, six; print(privatepkg.VALUE)"]


def assert_not_stored(home: Path) -> None:
    found = subprocess.run(["grep", "-rlaF", PASSWORD, str(home), "."], capture_output=True, text=True, check=False).stdout.split()
    assert [name for name in found if not name.endswith(".netrc")] == []


def test_credentials_from_the_environment(cli, home, index):
    spec = spec_of(index)
    refused = cli("lock", spec, env={"UV_HTTP_RETRIES": "0"})
    assert refused.code == 1 and "401" in refused.err and "UV_INDEX_<NAME>_USERNAME" in refused.err
    environ = {"UV_INDEX_INTERNAL_USERNAME": USER, "UV_INDEX_INTERNAL_PASSWORD": PASSWORD, "ENVHARNESS_CACHE": str(home / "cache")}
    done = cli("run", spec, *SHOW, env=environ).ok()
    assert done.out == "7\n"
    lock = Path("s.lock").read_text()
    assert 'index = "internal"' in lock and 'index = "pypi"' in lock and "127.0.0.1" not in lock
    assert_not_stored(home)


def test_credentials_from_netrc(cli, home, index):
    netrc = write("user/.netrc", f"machine 127.0.0.1 login {USER} password {PASSWORD}\n")
    netrc.chmod(0o600)
    environ = {"HOME": str(netrc.parent.resolve()), "ENVHARNESS_CACHE": str(home / "cache")}
    assert cli("run", spec_of(index), *SHOW, env=environ).ok().out == "7\n"
    assert_not_stored(home)


def test_an_address_in_the_settings_with_credentials_is_used_and_hidden(cli, home, index):
    port = index.server_address[1]
    environ = {
        "ENVHARNESS_EXTRA_INDEXES": f"internal=http://{USER}:{PASSWORD}@127.0.0.1:{port}/simple",
        "ENVHARNESS_CACHE": str(home / "cache"),
    }
    write("s.yaml", f"name: p\npython: '{MINOR}'\ndeps: [privatepkg, six==1.16.0]\n")
    done = cli("--log-level", "DEBUG", "run", "s.yaml", *SHOW, env=environ).ok()
    assert done.out == "7\n" and PASSWORD not in done.err
    assert 'index = "internal"' in Path("s.lock").read_text()
    assert PASSWORD not in cli("config", "show", env=environ).ok().out
    assert_not_stored(home)


def test_a_proxy_is_asked(cli, home, index):
    write("s.yaml", f"name: p\npython: '{MINOR}'\ndeps: [privatepkg]\nindexes:\n  - {{name: internal, url: 'http://index.invalid/simple', default: true}}\n")
    environ = {
        "HTTP_PROXY": f"http://127.0.0.1:{index.server_address[1]}", "http_proxy": f"http://127.0.0.1:{index.server_address[1]}",
        "NO_PROXY": "", "no_proxy": "", "ENVHARNESS_CACHE": str(home / "cache"), "UV_INDEX_INTERNAL_USERNAME": USER, "UV_INDEX_INTERNAL_PASSWORD": PASSWORD,
    }
    cli("lock", "s.yaml", env=environ).ok()
    assert any(path.startswith("http://index.invalid/") for path in index.asked)
