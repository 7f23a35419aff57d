"""Prints the figures of the rigger, beside pipreqs and uv on the same programs: ``python benches/rig.py [--warm] [NAME...]``.

Each program (``tests/programs.py``) is one file out of a source archive, alone in a folder. Ours: ``envharness rig FILE -- CHECK``. The peer: ``pipreqs``
writes requirements, ``uv`` makes a virtual environment with its own choice of Python and installs them, the check runs there. Each is run twice, the
second time from a warm cache with everything else new, and the second time counts (``--warm`` leaves the first out, where an earlier run has filled the cache). A broken spec has no peer: pipreqs reads none.
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
from programs import BROKEN, PROGRAMS, Program, take  # noqa: E402

BIN = Path(sys.executable).parent
ROOT = Path(tempfile.mkdtemp(prefix="envharness-bench-rig-", dir=os.environ.get("BENCH_DIR")))
CACHE = Path(os.environ.get("ENVHARNESS_BENCH_CACHE", HERE.parent / ".test" / "cache"))
PIPREQS = str(Path(os.environ.get("PIPREQS", shutil.which("pipreqs") or "pipreqs")).absolute())
LIMIT = 900
#: Whether an earlier run has filled the cache.
WARM = "--warm" in sys.argv


def environ(home: Path) -> dict[str, str]:
    dropped = ("ENVHARNESS_", "PYTHON", "VIRTUAL_ENV", "CONDA_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return {
        **kept, "ENVHARNESS_HOME": str(home), "ENVHARNESS_CACHE": str(CACHE), "UV_CACHE_DIR": str(CACHE / "peer"),
        "PATH": f"{BIN}:{kept['PATH']}",
    }


def ours(folder: Path, target: str, check: list[str], env: dict[str, str]) -> tuple[bool, int, float, list[str], list[str]]:
    home = folder.with_name(folder.name + "-home")
    command = [str(BIN / "envharness"), "-q", "rig", target, "--timeout", "5m", "--output-format", "json"]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, *(["--", *check] if check else [])], cwd=folder, env={**environ(home), **env}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    remove(home)
    try:
        record = json.loads(done.stdout)
    except ValueError:
        return False, 0, seconds, [], [done.stderr.strip().splitlines()[0] if done.stderr.strip() else "no answer"]
    return record["passed"], len(record["attempts"]), seconds, sorted(record["plan"]["packages"]), record["obstacles"]


def theirs(folder: Path, target: str, program: Program) -> tuple[bool, float, str]:
    """pipreqs and uv; the check of a program that is only imported is its import statements."""
    env = {**environ(folder / "none"), **dict(program.env)}
    start = time.perf_counter()
    steps = [
        # The server that it asks by default answers no more.
        [PIPREQS, "--savepath", "requirements.txt", "--mode", "no-pin", "--pypi-server", "https://pypi.org/pypi/", "."],
        [str(BIN / "uv"), "venv", "--quiet", "venv"],
        [str(BIN / "uv"), "pip", "install", "--quiet", "--python", "venv/bin/python", "-r", "requirements.txt"],
    ]
    python = "venv/bin/python"
    if program.check:
        steps.append([python if word == "python" else word.format(target) for word in program.check])
    else:
        import ast

        tree = ast.parse((folder / target).read_text())
        imports = [ast.unparse(node) for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        steps.append([python, "-c", "\n".join(imports)])
    for step in steps:
        try:
            done = subprocess.run(step, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return False, time.perf_counter() - start, "time is over"
        if done.returncode:
            lines = (done.stderr + done.stdout).strip().splitlines()
            return False, time.perf_counter() - start, f"{Path(step[0]).name}: {lines[-1] if lines else 'failed'}"
    return True, time.perf_counter() - start, ""


def remove(folder: Path) -> None:
    """Removes a tree whose folders are read-only."""
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o755)
    shutil.rmtree(folder, ignore_errors=True)


def programs(chosen: list[str]) -> None:
    passed, peers, attempts, times, wrong = [], [], [], [], 0
    print(f"{'program':<62} {'rig':>6} {'tries':>5} {'warm':>8}   {'pipreqs + uv':<12}")
    for number, program in enumerate(PROGRAMS):
        if chosen and not any(word in program.name for word in chosen):
            continue
        for turn in ("warm",) if WARM else ("cold", "warm"):
            folder = ROOT / f"{number}-{turn}"
            target = take(program, folder, CACHE).name
            ok, tries, seconds, packages, obstacles = ours(folder, target, [w.format(target) for w in program.check], dict(program.env))
        peer_folder = ROOT / f"{number}-peer"
        take(program, peer_folder, CACHE)
        peer, _, why = theirs(peer_folder, target, program)
        passed.append(ok)
        peers.append(peer)
        attempts.append(tries)
        times.append(seconds)
        others = set(packages) - set(program.distributions)
        wrong += len(others)
        print(f"{program.name:<62} {'passed' if ok else 'FAILED':>6} {tries:>5} {seconds:>6.1f} s   {'passed' if peer else 'failed: ' + why[:70]}", flush=True)
        for line in [] if ok else obstacles[:3]:
            print(f"    {line[:160]}")
        if others:
            print(f"    not meant: {', '.join(sorted(others))}")
        remove(peer_folder)
    count = len(passed)
    print(f"\nprograms whose check passes with no help: {sum(passed)} of {count} ({sum(passed) / count:.0%}; bar 85 %); pipreqs + uv: {sum(peers)} ({sum(peers) / count:.0%})")
    print(f"attempts, median: {statistics.median(attempts)} (bar 2); minutes from a warm cache, median: {statistics.median(times) / 60:.2f} (bar 1)")
    print(f"wrong distributions: {wrong} (bar 0)")


def broken(chosen: list[str]) -> None:
    mended, attempts, times = [], [], []
    print(f"\n{'broken spec':<62} {'rig':>6} {'tries':>5} {'time':>8}")
    for number, spec in enumerate(BROKEN):
        if chosen and spec.name not in chosen:
            continue
        folder = ROOT / f"broken-{number}"
        folder.mkdir()
        (folder / "broken.yaml").write_text(f"name: broken\n{spec.spec}")
        ok, tries, seconds, _, obstacles = ours(folder, "broken.yaml", list(spec.check), {})
        mended.append(ok)
        attempts.append(tries)
        times.append(seconds)
        print(f"{spec.name:<62} {'mended' if ok else 'FAILED':>6} {tries:>5} {seconds:>6.1f} s", flush=True)
        for line in [] if ok else obstacles[:3]:
            print(f"    {line[:160]}")
    if mended:
        print(f"\nbroken specs mended: {sum(mended)} of {len(mended)} ({sum(mended) / len(mended):.0%}; bar 80 %), attempts, median: {statistics.median(attempts)}")


if __name__ == "__main__":
    try:
        names = [word for word in sys.argv[1:] if not word.startswith("-")]
        if not names or any(word in program.name for word in names for program in PROGRAMS):
            programs(names)
        broken(names)
    finally:
        remove(ROOT)
