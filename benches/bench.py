"""Prints the figures of the rig, each beside its peer in the same run: ``python benches/bench.py [ROW...]``.

Peers are uv itself, with the same pins, from the same warm download cache, and the bare interpreter. Times are wall
clock, medians unless said.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
UV = str(BIN / "uv")
ENVHARNESS = str(BIN / "envharness")
MINOR = "{}.{}".format(*sys.version_info[:2])
#: A: 10 packages, about 6,000 files; B: 6 packages, about 1,400 files.
SETS = {
    "A": ["numpy==1.24.3", "pandas==2.0.3", "scikit-learn==1.3.0"],
    "B": ["gymnasium==0.29.1", "numpy==1.24.3", "matplotlib==3.8.0"],
}
ROOT = Path(tempfile.mkdtemp(prefix="envharness-bench-", dir=os.environ.get("BENCH_DIR")))
CACHE = Path(os.environ.get("ENVHARNESS_BENCH_CACHE", Path(__file__).resolve().parent.parent / ".test" / "cache"))


def environ(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ENVHARNESS_", "PYTHON", "VIRTUAL_ENV", "OPENBLAS"))}
    return {**kept, "ENVHARNESS_HOME": str(home), "ENVHARNESS_CACHE": str(CACHE), "PATH": f"{BIN}:{kept['PATH']}"}


def spec(name: str, packages: list[str], home: Path, **keys) -> Path:
    path = ROOT / f"{name}.json"
    path.write_text(json.dumps({"name": name.lower(), "python": MINOR, "deps": packages, **keys}))
    subprocess.run([ENVHARNESS, "-q", "lock", str(path)], env=environ(home), check=True)
    return path


def timed(work, rounds: int, before=None) -> list[float]:
    times = []
    for _ in range(rounds):
        if before is not None:
            before()
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return sorted(times)


def p50(times: list[float]) -> float:
    return statistics.median(times)


def row(what: str, ours: float, peer_name: str, peer: float, bar: str, unit: str = "ms") -> None:
    ratio = f"{ours / peer:5.2f}x" if peer else "     -"
    print(f"{what:<66} {ours:9.1f} {unit}   {peer_name}: {peer:9.1f} {unit}   {ratio}   bar: {bar}", flush=True)


def run(argv, home: Path, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(a) for a in argv], env=environ(home), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


IN_PROCESS = """
import json, statistics, sys, time
import envharness as eh
spec, rounds = eh.load_spec(sys.argv[1]), int(sys.argv[2])
command = json.loads(sys.argv[3])
times, only = [], []
for _ in range(rounds):
    start = time.perf_counter()
    with eh.create_context(spec) as ctx:
        middle = time.perf_counter()
        ctx.execute(command)
        end = time.perf_counter()
        times.append((end - start) * 1000)
        only.append((end - middle) * 1000)
print(json.dumps([statistics.median(times), statistics.median(only)]))
"""


def in_process(path: Path, home: Path, command: list[str], rounds: int = 50) -> tuple[float, float]:
    argv = [sys.executable, "-c", IN_PROCESS, str(path), str(rounds), json.dumps(command)]
    done = subprocess.run(argv, env=environ(home), capture_output=True, text=True, check=True)
    whole, only = json.loads(done.stdout)
    return whole, only


def uv_install(packages: list[str], target: Path, home: Path, *extra: str) -> None:
    environment = {**environ(home), "VIRTUAL_ENV": str(target)}
    base = [UV, "--no-config", "--offline", "-q", "--cache-dir", str(CACHE / "uv")]
    subprocess.run([*base, "venv", "--python", sys.executable, str(target)], env=environment, check=True)
    subprocess.run([*base, "pip", "install", "--no-deps", *extra, *packages], env=environment, check=True)


def pins(path: Path, home: Path) -> list[str]:
    done = subprocess.run([ENVHARNESS, "-q", "lock", str(path), "--output-format", "json"], env=environ(home), capture_output=True, check=True)
    return [f"{p['name']}=={p['version']}" for p in json.loads(done.stdout)["packages"]]


def cached() -> None:
    home = ROOT / "cached"
    bare = p50(timed(lambda: subprocess.run([sys.executable, "-I", "-c", "pass"], check=True), 20))
    for name, packages in SETS.items():
        path = spec(name, packages, home, compile="never")
        synced = subprocess.run([ENVHARNESS, "-q", "sync", path, "--output-format", "json"], env=environ(home), capture_output=True, check=True)
        prefix = Path(json.loads(synced.stdout)["prefix"])
        files = sum(1 for _ in prefix.rglob("*"))
        whole, _ = in_process(path, home, ["true"])
        true = p50(timed(lambda: subprocess.run(["true"], check=True), 20))
        row(f"create_context + execute(['true']), set {name} ({files} entries)", whole, "bare `true`", true, "< 20 ms")
        clean = p50(timed(lambda prefix=prefix: subprocess.run([prefix / "bin" / "python", "-c", "pass"], check=True), 20))
        _, only = in_process(path, home, ["python", "-c", "pass"])
        row(f"execute(['python', '-c', 'pass']), set {name}", only, "the same interpreter bare", clean, "+10 ms")
        cli = p50(timed(lambda path=path: run([ENVHARNESS, "run", path, "--", "true"], home), 30))
        row(f"envharness run SPEC -- true, set {name}", cli, "bare `true`", true, "< 60 ms")
        exact = pins(path, home)
        remove = lambda: shutil.rmtree(ROOT / "peer", ignore_errors=True)  # noqa: E731
        peer = p50(timed(lambda exact=exact: uv_install(exact, ROOT / "peer", home), 5, remove))
        row(f"prefix present, set {name}: create + first command, against uv", whole, "uv venv + install", peer, ">= 5x faster")
    print(f"{'':<66} (the base interpreter itself: {bare:.1f} ms)")


def crowded() -> None:
    home = ROOT / "crowded"
    path = spec("B", SETS["B"], home, compile="never")
    alone, _ = in_process(path, home, ["true"])
    code = (
        "import sys, envharness as eh\nspec = eh.load_spec(sys.argv[1])\n"
        "for _ in range(10000):\n    eh.create_env(spec)\n"
    )
    run([sys.executable, "-c", code, path], home)
    beside, _ = in_process(path, home, ["true"])
    row("create_context + execute(['true']) beside 10,000 other contexts", beside, "alone", alone, "< 20 ms, the same")


def cold() -> None:
    home = ROOT / "cold"
    for name, packages in SETS.items():
        path = spec(name, packages, home, compile="never")
        run([ENVHARNESS, "sync", path], home)
        exact = pins(path, home)

        def empty():
            run([ENVHARNESS, "rm", "--all", "--yes"], home)
            run([ENVHARNESS, "gc", "--max-size", "0"], home)
            shutil.rmtree(ROOT / "peer", ignore_errors=True)

        peer, ours = [], []
        for number in range(9):
            # A new environment each time, as for us: uv remembers what it asked of an interpreter by its path.
            peer += timed(lambda exact=exact, number=number: uv_install(exact, ROOT / f"peer-{name}-{number}", home), 1, empty)
            ours += timed(lambda path=path: run([ENVHARNESS, "create", path], home), 1, empty)
        row(f"first create, cold prefix, warm downloads, set {name}", p50(ours), "uv venv + install", p50(peer), "<= 1.2x")
    eager = spec("E", SETS["B"], home, compile="eager")

    def all_empty():
        empty()
        shutil.rmtree(home / "bytecode")
        (home / "bytecode").mkdir()

    exact = pins(eager, home)
    peer, ours = [], []
    for number in range(3):
        peer += timed(lambda number=number: uv_install(exact, ROOT / f"peer-E-{number}", home, "--compile-bytecode"), 1, all_empty)
        ours += timed(lambda: run([ENVHARNESS, "create", eager], home), 1, all_empty)
    row("compile: eager, set B", p50(ours), "uv --compile-bytecode", p50(peer), "<= 1.1x")


def imports() -> None:
    home = ROOT / "imports"
    first = spec("first", SETS["A"], home, compile="eager")
    second = spec("second", [*SETS["A"], "six==1.16.0"], home, compile="lazy")
    run([ENVHARNESS, "sync", first], home)
    line = "import numpy, pandas, sklearn"
    compiled = p50(timed(lambda: run([ENVHARNESS, "run", first, "--", "python", "-c", line], home), 7))
    run([ENVHARNESS, "compile", second], home)
    ours = timed(lambda: run([ENVHARNESS, "run", second, "--", "python", "-c", line], home), 7)
    row("import numpy, pandas, sklearn in a second environment", p50(ours), "a compiled one", compiled, "<= 1.1x")
    uv_install(pins(first, home), ROOT / "peer", home)
    bare = timed(lambda: subprocess.run([ROOT / "peer/bin/python", "-B", "-c", line], env=environ(home), check=True), 3)
    print(f"{'':<66} (uv's, never compiled: {p50(bare):.1f} ms)")


def together() -> None:
    home = ROOT / "together"
    path = spec("T", SETS["B"], home, compile="never")
    start = time.perf_counter()
    code = f"import envharness as eh\nwith eh.create_context({str(path)!r}) as c: print(c.prefix, c.execute(['python', '-c', 'import gymnasium; print(1)']))"
    processes = [subprocess.Popen([sys.executable, "-c", code], env=environ(home), stdout=subprocess.PIPE, text=True) for _ in range(64)]
    results = {process.communicate()[0] for process in processes}
    elapsed = time.perf_counter() - start
    builds = len(list((home / "prefixes").iterdir()))
    print(f"{'64 processes create one cold spec':<66} {elapsed:9.1f} s    {builds} build, {len(results)} distinct results, {sum(p.returncode == 0 for p in processes)} succeeded", flush=True)


ROWS = {"cached": cached, "crowded": crowded, "cold": cold, "imports": imports, "together": together}

if __name__ == "__main__":
    try:
        for name in sys.argv[1:] or ROWS:
            ROWS[name]()
    finally:
        subprocess.run(["chmod", "-R", "u+w", ROOT], check=False)
        shutil.rmtree(ROOT, ignore_errors=True)
