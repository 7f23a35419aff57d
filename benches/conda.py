"""Prints the figures of the conda backend, each beside py-rattler in the same run: ``python benches/conda.py``.

Both work from the same local channel (``tests/channel.py``). Times are wall clock, medians of rounds taken in turn, so that
a busy machine weighs on both alike.
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

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))
import channel as made  # noqa: E402

BIN = Path(sys.executable).parent
ENVHARNESS, UV = str(BIN / "envharness"), str(BIN / "uv")
ROOT = Path(tempfile.mkdtemp(prefix="envharness-bench-conda-", dir=os.environ.get("BENCH_DIR")))
CACHE = Path(os.environ.get("ENVHARNESS_BENCH_CACHE", HERE.parent / ".test" / "cache"))
PACKAGES = ["scikit-learn", "pandas", "gymnasium"]
PYTHON = made.MINORS[0]
PIP = ["matplotlib==3.9.2", "requests==2.32.3"]
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "7"))


def environ(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ENVHARNESS_", "PYTHON", "VIRTUAL_ENV", "CONDA_"))}
    return {**kept, "ENVHARNESS_HOME": str(home), "ENVHARNESS_CACHE": str(ROOT / "cache"), "ENVHARNESS_COMPILE": "never", "PATH": f"{BIN}:{kept['PATH']}"}


def ours(home: Path, *args: object, **variables: str) -> float:
    start = time.perf_counter()
    subprocess.run([ENVHARNESS, "-q", *map(str, args)], env={**environ(home), **variables}, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1000


def theirs(code: str, *args: object) -> float:
    """py-rattler in a process of its own, as our command is; its start and import are timed apart and taken off."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, check=True, env=environ(ROOT / "none"))
    return float(done.stdout.split()[-1])


def remove(folder: Path) -> None:
    """Removes a tree whose folders are read-only. Its files are links into the cache, whose modes are not to be touched."""
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o755)
    shutil.rmtree(folder)


SOLVE = """
import asyncio, os, sys, time, rattler
start = time.perf_counter()
asyncio.run(rattler.solve(sources=[sys.argv[1]], specs=sys.argv[2:], platforms=["linux-64", "noarch"], virtual_packages=rattler.VirtualPackage.detect()))
print((time.perf_counter() - start) * 1000, flush=True)
os._exit(0)  # its threads may crash the end of the interpreter
"""
INSTALL = """
import asyncio, os, sys, time, rattler
records = asyncio.run(rattler.solve(sources=[sys.argv[1]], specs=sys.argv[4:], platforms=["linux-64", "noarch"], virtual_packages=rattler.VirtualPackage.detect()))
start = time.perf_counter()
asyncio.run(rattler.install(records, target_prefix=sys.argv[2], cache_dir=sys.argv[3], show_progress=False))
print((time.perf_counter() - start) * 1000, flush=True)
os._exit(0)  # its threads may crash the end of the interpreter
"""


def row(what: str, mine: list[float], peer: str, other: list[float], bar: str) -> None:
    left, right = statistics.median(mine), statistics.median(other) if other else 0.0
    ratio = f"{left / right:5.2f}x" if right else "     -"
    shown = f"{peer} {right:8.1f} ms" if right else "-"
    print(f"{what:<58} {left:8.1f} ms   {shown:<32} {ratio}   bar {bar}", flush=True)


def main() -> None:
    source = made.get(CACHE).as_uri()
    wanted = [f"python {PYTHON}.*", *PACKAGES]
    home = ROOT / "home"
    spec = ROOT / "c.json"
    body = {"name": "c", "python": PYTHON, "channels": [source], "conda": PACKAGES}
    spec.write_text(json.dumps(body))
    ours(home, "lock", spec)

    mine, other = [], []
    for _ in range(ROUNDS):
        Path(ROOT / "c.json.lock").unlink()
        mine.append(ours(home, "lock", spec))
        other.append(theirs(SOLVE, source, *wanted))
    row("lock, warm, whole process (peer: the solve alone)", mine, "py-rattler", other, "<= 1.1x")

    ours(home, "sync", spec)
    files = sum(len(names) for _, _, names in os.walk(home / "prefixes"))
    theirs(INSTALL, source, ROOT / "warm", ROOT / "peer-cache", *wanted)
    mine, other = [], []
    for number in range(ROUNDS):
        fresh = ROOT / f"home-{number}"
        mine.append(ours(fresh, "sync", spec, "--frozen"))
        target = ROOT / f"peer-{number}"
        other.append(theirs(INSTALL, source, target, ROOT / "peer-cache", *wanted))
        remove(fresh)
        remove(target)
    row(f"first materialise, warm cache, {files} files, whole process", mine, "py-rattler install", other, "<= 1.1x")

    mine, other = [], []
    for number in range(2):
        fresh = ROOT / f"home-c{number}"
        mine.append(ours(fresh, "sync", spec, "--frozen", ENVHARNESS_COMPILE="eager"))
        target = ROOT / f"peer-c{number}"
        installed = theirs(INSTALL, source, target, ROOT / "peer-cache", *wanted)
        start = time.perf_counter()
        subprocess.run([target / "bin/python", "-m", "compileall", "-q", "-j", "0", target / "lib"], env=environ(home), check=False, stdout=subprocess.DEVNULL)
        other.append(installed + (time.perf_counter() - start) * 1000)
        remove(fresh)
        remove(target)
    row("the same with byte-code of all, kept once for all prefixes", mine, "plus compileall", other, "<= 1.1x")

    mine = [ours(home, "run", spec, "--", "true") for _ in range(ROUNDS * 3)]
    row("prefix present: run SPEC -- true, whole process", mine, "", [], "< 20 ms")

    pip = ROOT / "p.json"
    pip.write_text(json.dumps({**body, "name": "p", "pip": PIP}))
    ours(home, "sync", pip)
    mine, other, conda_only = [], [], []
    for number in range(ROUNDS):
        fresh = ROOT / f"home-p{number}"
        conda_only.append(ours(fresh, "sync", spec, "--frozen"))
        mine.append(ours(fresh, "sync", pip, "--frozen"))
        remove(fresh)
        target = ROOT / f"uv-{number}"
        theirs(INSTALL, source, target, ROOT / "peer-cache", *wanted)
        start = time.perf_counter()
        argv = [UV, "pip", "install", "-q", "--offline", "--no-config", "--break-system-packages", "--python", target / "bin/python", "--cache-dir", ROOT / "cache/uv", *PIP]
        subprocess.run(argv, check=True, env=environ(home))
        other.append((time.perf_counter() - start) * 1000)
        remove(target)
    over = [max(0.0, both - alone) for both, alone in zip(mine, conda_only, strict=True)]
    row("pip section on top, warm (with it less without)", over, "uv pip install", other, "<= 1.1x")
    remove(ROOT)


if __name__ == "__main__":
    main()
