"""Prints the figures of the server, each beside openenv's own in the same run: ``python benches/serve.py [ROW...]``.

Both serve the same modules of ``serve_envs`` under the same versions of Python, pydantic and fastmcp, and get the same
bytes from the same generator, in turn; figures are medians of the rounds. CPU time is user and system time of the
server's whole process tree. Neither side is offered permessage-deflate. The generator takes one core at most.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = ROOT / "benches" / "serve_envs"
BIN = Path(sys.executable).parent
UV, ENVHARNESS = str(BIN / "uv"), str(BIN / "envharness")
BENCH = Path(os.environ.get("ENVHARNESS_BENCH_DIR", ROOT / ".bench")).resolve()
LOADGEN = os.environ.get("ENVHARNESS_LOADGEN", str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "envharness-loadgen"))
REFERENCE = BENCH / "reference" / "bin" / "python"
PACKAGES = ["openenv==0.10.0", "fastmcp"]
SIDES = ("reference", "ours")
#: What each module imports beside openenv.
NEEDS = {"typed_echo": ["pydantic"], "tool_echo": ["pydantic", "fastmcp"], "sleep_sync": ["pydantic"], "sleep_async": ["pydantic"]}
MESSAGE = "Hello from the trainer"
STEP = {
    "typed_echo": {"message": MESSAGE},
    "tool_echo": {"type": "call_tool", "tool_name": "echo_message", "arguments": {"message": MESSAGE}},
    "sleep_sync": {"seconds": 1.0},
    "sleep_async": {"seconds": 1.0},
}
EXPECT = {"typed_echo": f'"{MESSAGE}"', "tool_echo": f'"{MESSAGE}"', "sleep_sync": "slept", "sleep_async": "slept"}
FASTMCP = """
import asyncio, json, time
from fastmcp import Client, FastMCP
server = FastMCP("tool_echo")
@server.tool
def echo_message(message: str) -> str:
    return message
async def main(count):
    async with Client(server) as client:
        for _ in range(100):
            await client.call_tool("echo_message", {"message": "Hello from the trainer"})
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            await client.call_tool("echo_message", {"message": "Hello from the trainer"})
        print(json.dumps([(time.perf_counter() - wall) / count * 1e6, (time.process_time() - cpu) / count * 1e6]))
asyncio.run(main(1000))
"""


def say(text: str) -> None:
    print(text, flush=True)


def environ(**extra: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ENVHARNESS_", "PYTHON", "VIRTUAL_ENV"))}
    own = {"ENVHARNESS_HOME": str(BENCH / "home"), "ENVHARNESS_CACHE": str(BENCH / "cache"), "PATH": f"{BIN}:{kept['PATH']}"}
    return {**kept, **own, **extra}


def prepare_reference() -> dict[str, str]:
    """Makes the reference's environment where it is missing and returns the versions in it."""
    BENCH.mkdir(parents=True, exist_ok=True)
    (BENCH / ".gitignore").write_text("*\n")
    names = ["openenv", "fastmcp", "pydantic", "uvicorn"]
    ask = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {names}}}))"
    for attempt in (1, 2):
        if REFERENCE.exists():
            done = subprocess.run([REFERENCE, "-c", ask], capture_output=True, text=True)
            if done.returncode == 0 and (found := json.loads(done.stdout))["openenv"] == PACKAGES[0].partition("==")[2]:
                return found
        if attempt == 1:
            say(f"# installing {' '.join(PACKAGES)} for the reference")
            shutil.rmtree(REFERENCE.parent.parent, ignore_errors=True)
            subprocess.run([UV, "-q", "venv", "--python", sys.executable, REFERENCE.parent.parent], check=True)
            subprocess.run([UV, "-q", "pip", "install", "--python", REFERENCE, *PACKAGES], check=True)
    raise SystemExit(f"error: no {PACKAGES[0]} in {REFERENCE.parent.parent}; remove it and run again")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.versions = prepare_reference()
        self.sides = [side for side in SIDES if options.only in (None, side)]
        self.rounds = 1 if options.quick else options.rounds
        self.results: dict[str, dict[str, list[dict]]] = {}
        self.running: list[Server] = []
        self.troubles = 0
        self.open_files = raise_open_files()

    def command(self, side: str, module: str, port: int, workers: int) -> list[str]:
        if side == "reference":
            return [str(REFERENCE), "-m", "uvicorn", f"{module}:app", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
        needs = [word for name in NEEDS[module] for word in ("--with", f"{name}=={self.versions[name]}")]
        return [ENVHARNESS, "serve", f"{module}:app", "--port", "0", "--workers", str(workers), *needs, *self.options.ours_argument]

    def start(self, side: str, module: str, capacity: int, workers: int | None = None) -> Server:
        return Server(self, side, module, capacity, workers or self.options.workers)

    def load(self, key: str, side: str, mode: str, *words, within: float = 600, **options) -> dict:
        """One run of the generator; its result is kept under ``key``. A run that fails is a result too."""
        try:
            done = subprocess.run([LOADGEN, mode, *map(str, words)], capture_output=True, text=True, timeout=within, **options)
            result = json.loads(done.stdout) if done.returncode == 0 else {"error": " ".join(done.stderr.split()) or str(done.returncode)}
        except subprocess.TimeoutExpired:
            result = {"error": f"the run did not end within {within} s"}
        result["load"] = os.getloadavg()[0]
        self.results.setdefault(key, {}).setdefault(side, []).append(result)
        trouble = result.get("error") or (result.get("failures") and f"{result['failures']} failures, the first: {result['first_failure']}")
        self.troubles += bool(trouble)
        figures = "" if "error" in result else f"{brief(result)}  (load {result['load']:.1f})"
        say(f"# {key:<34} {side:<10} {figures}" + (f"   TROUBLE: {trouble}" if trouble else ""))
        return result

    def drive(self, key: str, server: Server, mode: str, sessions: int, *words) -> dict:
        step = json.dumps({"type": "step", "data": STEP[server.module]}, separators=(",", ":"))
        common = ["--url", server.url, "--pid", server.pid, "--sessions", sessions, "--step", step, "--expect", EXPECT[server.module]]
        return self.load(key, server.side, mode, *common, *words)

    def order(self, number: int) -> list[str]:
        return self.sides if number % 2 == 0 else self.sides[::-1]

    # Rows

    def steps(self, module: str, counts: list[int]) -> None:
        servers = {side: self.start(side, module, 2 * max(counts)) for side in self.sides}
        seconds, warmup = (2, 0.5) if self.options.quick else (self.options.seconds, 1.5)
        for number in range(self.rounds):
            for count in counts:
                for side in self.order(number):
                    self.drive(f"steps {module} {count}", servers[side], "steps", count, "--seconds", seconds, "--warmup", warmup)
        self.stop()

    def typed(self) -> None:
        self.steps("typed_echo", [1, 16, 128, 1024])

    def tools(self) -> None:
        self.steps("tool_echo", [1, 16])
        if "reference" in self.sides:
            for _ in range(3):
                done = subprocess.run([REFERENCE, "-c", FASTMCP], capture_output=True, text=True, check=True)
                wall, cpu = json.loads(done.stdout)
                self.results.setdefault("fastmcp", {}).setdefault("reference", []).append({"wall_us": wall, "cpu_us": cpu})
                say(f"# {'fastmcp call, in process':<34} {'':<10} {cpu:.0f} us CPU, {wall:.0f} us wall")

    def start_up(self) -> None:
        for module in ("typed_echo", "tool_echo"):
            if "ours" in self.sides:  # Rigged before: the first start makes the environment.
                self.start("ours", module, 8)
                self.stop()
            for number in range(self.rounds):
                for side in self.order(number):
                    port = free_port()
                    url = ["--url", f"ws://127.0.0.1:{port}/ws"] if side == "reference" else []
                    command = self.command(side, module, port, self.options.workers)
                    self.load(f"start {module}", side, "first-reset", *url, "--", *command, cwd=MODULES, env=environ(MAX_CONCURRENT_ENVS="8"))
                start = time.perf_counter()
                subprocess.run([REFERENCE, "-c", f"import {NEEDS[module][-1]}"], check=True)
                self.results.setdefault(f"import {module}", {}).setdefault("reference", []).append({"seconds": time.perf_counter() - start})

    def memory(self) -> None:
        for side in self.sides:
            self.drive("idle 1024", self.start(side, "typed_echo", 1100), "idle", 1024)
            self.stop()
        if "ours" in self.sides and not self.options.quick:
            self.drive("idle 10000", self.start("ours", "typed_echo", 10100), "idle", self.fitting(10000))
            self.stop()

    def opening(self) -> None:
        servers = {side: self.start(side, "typed_echo", 2100) for side in self.sides}
        for number in range(self.rounds):
            for side in self.order(number):
                self.drive("open 1024", servers[side], "open", 1024, "--in-flight", 64)
        self.stop()

    def slow(self) -> None:
        most = min(4096, self.options.slow_sessions) if self.options.quick else self.options.slow_sessions
        steps = 2 if self.options.quick else 5
        for module in ("sleep_async", "sleep_sync"):
            for side in self.sides:
                server = self.start(side, module, 1100, self.options.slow_workers)
                self.drive(f"slow {module} 1024", server, "slow", 1024, "--steps", steps)
                self.stop()
            if "ours" in self.sides:
                for words, name in ((["--spread", 1], ""), (["--spread", 0], " at once")):
                    server = self.start("ours", module, most + 100, self.options.slow_workers)
                    self.drive(f"slow {module} {most}{name}", server, "slow", self.fitting(most), "--steps", steps, *words)
                    self.stop()

    def fitting(self, sessions: int) -> int:
        """As many sessions as the limit on open files lets one process have."""
        fit = min(sessions, self.open_files - 256)
        if fit < sessions:
            say(f"# the limit on open files is {self.open_files}: {fit} sessions instead of {sessions}")
        return fit

    def stop(self) -> None:
        while self.running:
            self.running.pop().stop()


class Server:
    """A server of either side, in a process session of its own."""

    def __init__(self, bench: Bench, side: str, module: str, capacity: int, workers: int) -> None:
        self.side, self.module = side, module
        port = free_port()
        self.log = BENCH / f"{side}-{module}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                bench.command(side, module, port, workers), cwd=MODULES, env=environ(MAX_CONCURRENT_ENVS=str(capacity)),
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        bench.running.append(self)
        self.pid, self.address = self.process.pid, f"127.0.0.1:{port}" if side == "reference" else ""
        self.announced = threading.Event()
        threading.Thread(target=self.read, daemon=True).start()
        limit = time.monotonic() + 300
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"{side} did not start with {module}: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)
        self.url = f"ws://{self.address}/ws"

    def read(self) -> None:
        """The line that names the address, then all the rest, so that the server never waits for a reader."""
        for line in self.process.stdout:
            if "http://" in line and not self.address:
                self.address = line.partition("http://")[2].split()[0].rstrip("/")

    def listens(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except (OSError, ValueError):
            return False
        return True

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            say(f"# {self.side} did not end within 20 s of SIGTERM and was killed")
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()


def raise_open_files() -> int:
    """Lifts the limit on open files, for us and what we start: the soft one to the hard one, that too where allowed."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    tried = []
    for wanted in (max(hard, 65536), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            tried.append(f"{wanted} allowed")
            break
        except (ValueError, OSError):
            tried.append(f"{wanted} refused")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    say(f"# open files: hard limit {hard}, {', '.join(tried)}, in force {limit}")
    return limit


def brief(result: dict) -> str:
    p = lambda key: f"p50 {result[key]['p50_ms']:.2f} ms, p99 {result[key]['p99_ms']:.2f} ms" if result.get(key) else ""  # noqa: E731
    if "steps_per_second" in result:
        cpu = result["server_cpu_us_per_step"] or float("nan")
        return f"{cpu:8.1f} us/step  {result['steps_per_second']:8.0f} steps/s  {p('step')}  (generator {result['generator_cores']:.2f} of a core)"
    if "opened_per_second" in result:
        return f"{result['opened_per_second']:8.0f} sessions/s  {result['server_cpu_us_per_session'] / 1000:.2f} ms CPU each"
    if "bytes_per_session" in result:
        kept = result["bytes_per_session"]
        return f"{kept['front_rss'] / 1000:8.1f} kB front, {kept['tree_pss'] / 1000:.1f} kB tree (PSS) each, {result['with']['threads']} threads"
    if "added" in result:
        return f"{result['success_share']:8.2%} succeeded, added {p('added')}, opened in {result['opening_seconds']:.1f} s"
    return f"{result.get('seconds', float('nan')):8.2f} s"


class Table:
    def __init__(self, bench: Bench) -> None:
        self.results = bench.results
        say("\n| what | openenv 0.10.0 | envharness | ours / reference | bar |\n|---|---:|---:|---:|---|")

    def median(self, key: str, side: str, *path: str) -> float | None:
        found = []
        for result in self.results.get(key, {}).get(side, []):
            for part in path:
                result = (result or {}).get(part)
            if result is not None:
                found.append(result)
        return statistics.median(found) if found else None

    def row(self, what: str, key: str, *path: str, form: str = "{:,.1f}", scale: float = 1, bar: str = "") -> None:
        reference, ours = (self.median(key, side, *path) for side in SIDES)
        if reference is None and ours is None and not self.results.get(key):
            return
        cell = lambda value: "-" if value is None else form.format(value * scale)  # noqa: E731
        ratio = f"{ours / reference:.3f}x" if ours is not None and reference else "-"
        say(f"| {what} | {cell(reference)} | {cell(ours)} | {ratio} | {bar} |")

    def steps(self, module: str, name: str, bars: dict[int, tuple[str, str]]) -> None:
        for count, (cpu, rate) in bars.items():
            key, at = f"steps {module} {count}", f"{name}, {count} session{'s' * (count > 1)}"
            self.row(f"server CPU per step, µs: {at}", key, "server_cpu_us_per_step", bar=cpu)
            self.row(f"steps/s: {at}", key, "steps_per_second", form="{:,.0f}", bar=rate)
            self.row(f"p50 of a step, ms: {at}", key, "step", "p50_ms", form="{:,.2f}")
            self.row(f"p99 of a step, ms: {at}", key, "step", "p99_ms", form="{:,.2f}")

    def whole(self) -> None:
        self.steps("typed_echo", "typed", {1: ("<= 1/4", ""), 16: ("<= 1/6", ""), 128: ("<= 1/10", ">= 8x"), 1024: ("", "")})
        self.steps("tool_echo", "tool calls", {1: ("", ""), 16: ("<= 1/5", "")})
        self.row("(fastmcp itself, CPU of one call in process, µs)", "fastmcp", "cpu_us")
        for module, name in (("typed_echo", "typed"), ("tool_echo", "with fastmcp")):
            self.row(f"start to first reset answered, s: {name}", f"start {module}", "seconds", form="{:.2f}", bar="< 1 s" + (" and its import" if name != "typed" else ""))
            self.row(f"CPU until then, s: {name}", f"start {module}", "server_cpu_seconds", form="{:.2f}")
            self.row(f"(`import {NEEDS[module][-1]}` itself, s)", f"import {module}", "seconds", form="{:.2f}")
        for count in (1024, 10000):
            key, at = f"idle {count}", f"{count:,} idle sessions"
            for part, name in (("front_rss", "RSS of the front"), ("front_pss", "PSS of the front"), ("tree_rss", "RSS of the tree"), ("tree_pss", "PSS of the tree")):
                self.row(f"{name} per session, kB: {at}", key, "bytes_per_session", part, scale=1e-3, bar="<= 16 kB" if part == "front_rss" else "")
            self.row(f"threads of the tree: {at}", key, "with", "threads", form="{:,.0f}")
        self.row("sessions opened a second (64 in flight)", "open 1024", "opened_per_second", form="{:,.0f}", bar=">= 2,000")
        self.row("server CPU per session opened, ms", "open 1024", "server_cpu_us_per_session", scale=1e-3, form="{:.2f}")
        for key in [key for key in self.results if key.startswith("slow ")]:
            _, module, count, *herd = key.split()
            at = f"{int(count):,} sessions of 1 s steps, {module.partition('_')[2]}{', all at one instant' if herd else ''}"
            barred = int(count) >= 16384 and not herd
            self.row(f"success share: {at}", key, "success_share", form="{:.2%}", bar="100 %" if barred else "")
            self.row(f"added p50, ms: {at}", key, "added", "p50_ms")
            self.row(f"added p99, ms: {at}", key, "added", "p99_ms", bar="< 250 ms" if barred else "")
            self.row(f"threads of the tree: {at}", key, "with", "threads", form="{:,.0f}")


ROWS = {"typed": Bench.typed, "tools": Bench.tools, "start": Bench.start_up, "memory": Bench.memory, "open": Bench.opening, "slow": Bench.slow}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"any of {', '.join(ROWS)}; all without one")
    parser.add_argument("--only", choices=SIDES, help="drive one side only")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each figure, medians are printed")
    parser.add_argument("--seconds", type=float, default=5, help="how long steps are counted in each run")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of ours; the reference has one process")
    parser.add_argument("--slow-workers", type=int, default=2, help="the same for steps that take 1 s")
    parser.add_argument("--slow-sessions", type=int, default=16384, help="sessions of ours that take steps of 1 s")
    parser.add_argument("--ours-argument", action="append", default=[], metavar="WORD", help="a further argument for `envharness serve`")
    parser.add_argument("--json", type=Path, help="write the result of every run to this file")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return options


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments()
    bench = Bench(options)
    say("# " + ", ".join(f"{name} {version}" for name, version in bench.versions.items()) + f", {bench.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    try:
        for name in options.rows or ROWS:
            try:
                ROWS[name](bench)
            except RuntimeError as error:  # The other rows are still worth having.
                bench.troubles += 1
                say(f"# {name}: TROUBLE: {error}")
            finally:
                bench.stop()
    finally:
        Table(bench).whole()
        if options.json:
            options.json.write_text(json.dumps({"versions": bench.versions, "results": bench.results}, indent=1))
    say(f"\nload average at the end: {os.getloadavg()[0]:.1f}; runs with trouble: {bench.troubles}")
    sys.exit(1 if bench.troubles else 0)


if __name__ == "__main__":
    main()
