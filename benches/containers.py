"""Prints the figures of contexts in containers, beside Docker's own client and API: ``python benches/containers.py``.

A dockerd of its own, a base of this machine's Python, no networks. Times are wall clock, medians of rounds taken in turn.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))
import engines  # noqa: E402

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "15"))


EXECUTE = "ctx.execute(['true'])"


class Api(http.client.HTTPConnection):
    """Docker's API over its socket, as a client without any layer speaks it."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)

    def ask(self, method: str, path: str, body: object = None) -> bytes:
        self.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        data = self.getresponse().read()
        self.close()
        return data


def exec_by_api(address: str, container: str) -> None:
    path = address.removeprefix("unix://")
    made = json.loads(Api(path).ask("POST", f"/containers/{container}/exec", {"Cmd": ["true"], "AttachStdout": True, "AttachStderr": True}))
    Api(path).ask("POST", f"/exec/{made['Id']}/start", {})
    assert json.loads(Api(path).ask("GET", f"/exec/{made['Id']}/json"))["ExitCode"] == 0


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def main() -> None:
    root = Path(tempfile.mkdtemp(prefix="envharness-bench-containers-", dir=os.environ.get("BENCH_DIR")))
    os.environ.update(ENVHARNESS_HOME=str(root / "home"), ENVHARNESS_CACHE=os.environ.get("ENVHARNESS_BENCH_CACHE", str(HERE.parent / ".test/cache")))
    (root / "project").mkdir()
    os.chdir(root / "project")
    tar = engines.base(root)
    with engines.dockerd() as engine:
        engines.take(engine, tar, engines.BASE)
        os.environ["DOCKER_HOST"] = engine.address
        import envharness as eh

        spec = {"name": "bench", "backend": "docker", "image": engines.BASE, "network": "none", "deps": ["six==1.16.0"]}
        with eh.create_context(spec):
            pass
        hardened = ["--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        rows: dict[str, list[float]] = {}

        def note(name: str, work) -> None:
            rows.setdefault(name, []).append(timed(work))

        def create() -> None:
            with eh.create_context(spec) as ctx:
                rows.setdefault("create_context, ready for its first command", []).append((time.perf_counter() - began) * 1000)
                ctx.execute(["true"]).check()
                rows.setdefault("create_context and a first `true`", []).append((time.perf_counter() - began) * 1000)

        with eh.create_context(spec) as running:
            for _ in range(ROUNDS):
                note("docker run --rm IMAGE true", lambda: engine.run("run", "--rm", *hardened, engines.BASE, "true"))
                began = time.perf_counter()
                create()
                eh.warm(spec)
                taken = eh.get_context(spec, on_exit="destroy")
                note("get_context from a pool of one", taken.__enter__)
                taken.close()
                note("docker exec by its API", lambda: exec_by_api(engine.address, running.id))
                note("docker exec by its client", lambda: engine.run("exec", running.id, "true"))
                note(EXECUTE, lambda: running.execute(["true"]).check())
        for name, values in rows.items():
            print(f"{name:<48} p50 {statistics.median(values):8.1f} ms   min {min(values):8.1f} ms   n={len(values)}")
        ratio = lambda a, b: statistics.median(rows[a]) / statistics.median(rows[b])  # noqa: E731
        print(f"ratio create and a first command / docker run {ratio('create_context and a first `true`', 'docker run --rm IMAGE true'):.2f}x")
        print(f"ratio execute / exec by the API {ratio(EXECUTE, 'docker exec by its API'):.2f}x")


if __name__ == "__main__":
    main()
