"""Prints the figures of images without an engine, beside `docker build` of the same content: ``python benches/image.py``.

Both start from the same packages in the same cache. docker's side is given the installed environment as its context, so
that it measures the build of the image alone; it is left out where dockerd cannot be started. Times are wall clock,
medians of rounds taken in turn.
"""

from __future__ import annotations

import contextlib
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
ENVHARNESS = str(BIN / "envharness")
ROOT = Path(tempfile.mkdtemp(prefix="envharness-bench-image-", dir=os.environ.get("BENCH_DIR")))
CACHE = Path(os.environ.get("ENVHARNESS_BENCH_CACHE", HERE.parent / ".test" / "cache"))
PACKAGES = ["scikit-learn", "pandas", "gymnasium"]
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))


def environ(home: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ENVHARNESS_", "PYTHON", "VIRTUAL_ENV", "CONDA_"))}
    return {**kept, "ENVHARNESS_HOME": str(home), "ENVHARNESS_CACHE": str(ROOT / "cache"), "PATH": f"{BIN}:{kept['PATH']}", **more}


def spec(channel: Path, name: str, packages: list[str], more: str = "") -> Path:
    path = ROOT / f"{name}.yaml"
    path.write_text(f"name: bench\nchannels: ['{channel.as_uri()}']\npython: '{made.MINORS[0]}'\ndependencies:\n  conda: {json.dumps(packages)}\n{more}")
    return path


def timed(argv: list[object], **more) -> float:
    start = time.perf_counter()
    subprocess.run([str(word) for word in argv], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    return (time.perf_counter() - start) * 1000


def build(home: Path, path: Path, tag: str) -> float:
    return timed([ENVHARNESS, "-q", "image", "build", path, "--frozen", "-t", tag], env=environ(home))


@contextlib.contextmanager
def docker():
    """An engine of its own; gives the command, or None where it cannot be had."""
    if shutil.which("dockerd") is None or shutil.which("docker") is None or os.geteuid() != 0:
        print("note: dockerd cannot be started here; its rows are left out")
        yield None
        return
    folder, address = ROOT / "docker", f"unix://{ROOT}/docker.sock"
    argv = ["dockerd", "-H", address, "--data-root", folder / "data", "--exec-root", folder / "exec", "-p", folder / "pid"]
    argv += ["--bridge=none", "--iptables=false", "--ip-forward=false"]
    folder.mkdir()
    with (folder / "log").open("w") as log:
        engine = subprocess.Popen([str(word) for word in argv], stdout=log, stderr=log)
    command = ["docker", "-H", address]
    try:
        for _ in range(300):
            if subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.2)
        else:
            sys.exit((folder / "log").read_text())
        yield command
    finally:
        engine.terminate()
        engine.wait()


def prepared(channel: Path) -> tuple[Path, Path, Path]:
    """Locks, a full cache, and the installed content as a context for docker."""
    first, second = spec(channel, "first", [*PACKAGES, "greet ==1.0"]), spec(channel, "second", [*PACKAGES, "greet ==1.1"])
    home = ROOT / "warm"
    for path in (first, second):
        subprocess.run([ENVHARNESS, "-q", "lock", path], env=environ(home), check=True)
        build(home, path, path.stem + ":1")
    context = ROOT / "context"
    subprocess.run([ENVHARNESS, "-q", "image", "build", first, "-t", "first:1", "-o", ROOT / "layout"], env=environ(home), check=True, stdout=subprocess.DEVNULL)
    context.mkdir()
    manifest = json.loads((ROOT / "layout/index.json").read_text())["manifests"][0]["digest"]
    blob = lambda digest: ROOT / "layout/blobs" / digest.replace(":", "/")  # noqa: E731
    for layer in json.loads(blob(manifest).read_text())["layers"]:
        subprocess.run(["tar", "-xzf", blob(layer["digest"]), "-C", context], check=True)
    shutil.rmtree(home)
    (context / "Dockerfile").write_text("FROM scratch\nCOPY opt /opt\n")
    return first, second, context


def main() -> None:
    channel = made.get(CACHE)
    first, second, context = prepared(channel)
    size = sum(p.stat().st_size for p in context.rglob("*") if p.is_file() and not p.is_symlink())
    rows: dict[str, list[float]] = {}
    note = lambda name, value: rows.setdefault(name, []).append(value)  # noqa: E731
    with docker() as engine:
        for number in range(ROUNDS):
            home = ROOT / f"home-{number}"
            note("ours: build, nothing packed before", build(home, first, "bench:1"))
            subprocess.run([ENVHARNESS, "-q", "image", "prune", "--all"], env=environ(home), check=True, stdout=subprocess.DEVNULL)
            note("ours: build, byte-code in the store", build(home, first, "bench:1"))
            note("ours: one package changed", build(home, second, "bench:2"))
            note("ours: nothing changed", build(home, second, "bench:3"))
            note("ours: written as an archive for docker load", timed([ENVHARNESS, "-q", "image", "build", second, "--frozen", "-t", "bench:2", "-o", ROOT / "out.tar", "--format", "docker"], env=environ(home)))
            shutil.rmtree(home)
            plain = first.with_name("plain.yaml")
            plain.write_text(first.read_text() + "compile: never\n")
            shutil.copy(first.with_suffix(".lock"), plain.with_suffix(".lock"))
            note("ours: build without byte-code", build(home, plain, "bench:1"))
            shutil.rmtree(home)
            if engine:
                note("docker build, COPY of what was installed", timed([*engine, "build", "--no-cache", "-t", f"bench:{number}", context], env={**os.environ, "DOCKER_BUILDKIT": "0"}))
                changed = next((context / "opt").rglob("conda-meta/greet-*.json"))
                changed.write_text(changed.read_text() + "\n")
                note("docker build, one package changed", timed([*engine, "build", "-t", f"bench:{number}", context], env={**os.environ, "DOCKER_BUILDKIT": "0"}))
    print(f"content: {size / 2**20:.0f} MiB, {ROUNDS} rounds")
    for name, values in rows.items():
        print(f"{name:48} {statistics.median(values):9.0f} ms   ({', '.join(f'{v:.0f}' for v in values)})")
    if engine:
        median = {name: statistics.median(values) for name, values in rows.items()}
        peer = median["docker build, COPY of what was installed"]
        for row in ("byte-code in the store", "nothing packed before", "without byte-code"):
            name = next(name for name in median if name.startswith("ours: build") and name.endswith(row))
            print(f"ratio of builds, {row}: {median[name] / peer:.2f}")
        print(f"ratio after one package changed: {median['ours: one package changed'] / median['docker build, one package changed']:.2f}")


if __name__ == "__main__":
    try:
        main()
    finally:
        subprocess.run(["chmod", "-R", "u+w", ROOT], check=False)
        shutil.rmtree(ROOT, ignore_errors=True)
