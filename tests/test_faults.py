"""Killed at any moment, failed at any call: an id is absent or complete, and the next try works."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BIN, MINOR, NUMPY_2, write

#: The long run of `make faults` sets these; CI runs a short form.
KILLS = int(os.environ.get("ENVHARNESS_FAULT_KILLS", "15"))
SEED = int(os.environ.get("ENVHARNESS_FAULT_SEED", "1"))
STEP = int(os.environ.get("ENVHARNESS_FAULT_STEP", "37"))
#: Only calls that change something on disk count, so that every kill is at another state.
CHANGING = "rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat,rmdir,link,linkat,symlink,symlinkat,chmod,fchmod,fchmodat,fsync,syncfs,ftruncate,pwrite64,write,openat"
ENVHARNESS = str(BIN / "envharness")


@pytest.fixture(params=["venv", "conda"])
def backend(request) -> str:
    return request.param


@pytest.fixture
def step(backend) -> int:
    """Every how many calls one is killed: a conda prefix has its Python's 1,200 files inside."""
    return STEP if backend == "venv" else 8 * STEP


@pytest.fixture
def spec(home, cli, backend, request):
    if backend == "venv":
        write("s.yaml", f"name: small\npython: '{MINOR}'\ncompile: eager\ndeps: [six==1.16.0, idna==3.4]\n")
    else:
        import channel as made

        if MINOR not in made.MINORS:
            pytest.skip(f"the channel has no Python {MINOR}")
        # The standard library's byte-code would take most of the time, and is made as the venv backend's is.
        url = request.getfixturevalue("channel").as_uri()
        write("s.yaml", f"name: small\npython: '{MINOR}'\ncompile: never\nchannels: ['{url}']\nconda: [six ==1.16.0]\ndeps: [idna==3.4]\n")
    cli("lock", "s.yaml").ok()
    # A warm download cache and known interpreters; what is tested is the store.
    cli("sync", "s.yaml").ok()
    cli("store", "clean", "--yes").ok()
    return "s.yaml"


def check_whole(cli, home: Path) -> list[str]:
    """The oracle: everything that is there verifies, the next create works without help, nothing is left after gc."""
    faults = []
    verified = cli("store", "verify")
    if verified.code != 0:
        faults.append(f"broken: {verified.out}{verified.err}")
    done = cli("run", "s.yaml", "--", "python", "-c", "import six, idna; print('works')")
    if done.out != "works\n":
        faults.append(f"the next create failed: {done.err}")
    if "was changed" in done.err:
        faults.append(f"silent damage: {done.err}")
    cli("gc").ok()
    left = sorted(p.name for p in (home / "tmp").iterdir())
    if left:
        faults.append(f"left in tmp: {left}")
    listed = cli("list", "--output-format", "json").ok().json["contexts"]
    faults += [f"context {c['id']} is {c['state']}" for c in listed if c["state"] not in ("idle",)]
    again = cli("store", "verify")
    if again.code != 0:
        faults.append(f"broken after gc: {again.code} {again.out}{again.err}")
    return faults


def test_random_kills_in_create_publish_and_gc(cli, home, spec):
    seed = SEED
    rng = random.Random(seed)
    start = time.monotonic()
    cli("run", spec, "--", "true").ok()
    full = time.monotonic() - start
    problems, killed, number = [], 0, -1
    while killed < KILLS and number < 10 * KILLS:
        number += 1
        cli("rm", "--all", "--yes")
        if number % 3 != 2:
            cli("gc", "--max-size", "0")
            shutil.rmtree(home / "bytecode", ignore_errors=True)
            (home / "bytecode").mkdir(exist_ok=True)
            argv = [ENVHARNESS, "create", spec]
        else:
            cli("run", spec, "--", "true")
            argv = [ENVHARNESS, "gc", "--max-size", "0", "--max-age", "0s"]
        process = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(0, 1.2 * full))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
        problems += [f"kill {number} (seed {seed}): {fault}" for fault in check_whole(cli, home)]
    print(json.dumps({"runs": number + 1, "killed": killed, "problems": len(problems)}))
    assert not problems, "\n".join(problems[:10])
    assert killed == KILLS


@pytest.mark.parametrize("command", ["create", "gc"])
def test_a_kill_at_every_state_changing_call(command, cli, home, spec, step, tmp_path):
    if shutil.which("strace") is None:
        pytest.skip("strace is not on this machine")
    problems, kills, when = [], 0, 1
    while True:
        cli("rm", "--all", "--yes")
        if command == "create":
            cli("gc", "--max-size", "0")
            argv = [ENVHARNESS, "create", spec]
        else:
            cli("run", spec, "--", "true")
            cli("rm", "--all", "--yes")
            argv = [ENVHARNESS, "gc", "--max-size", "0"]
        log = tmp_path / "strace"
        inject = f"inject={CHANGING}:signal=SIGKILL:when={when}"
        done = subprocess.run(["strace", "-f", "-o", str(log), "-e", f"trace={CHANGING}", "-e", inject, *argv], capture_output=True, text=True, check=False)
        if "strace" in done.stderr and "ptrace" in done.stderr:
            pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
        if done.returncode == 0 and "SIGKILL" not in log.read_text():
            break
        kills += 1
        problems += [f"{command}, call {when}: {fault}" for fault in check_whole(cli, home)]
        when += step
    print(json.dumps({"command": command, "kills": kills, "last_call": when, "problems": len(problems)}))
    assert not problems, "\n".join(problems[:10])
    assert kills > 0


@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EDQUOT"])
def test_a_failed_call_gives_a_clear_error_and_the_next_try_works(error, cli, home, spec, step):
    if shutil.which("strace") is None:
        pytest.skip("strace is not on this machine")
    for when in range(1, 40, max(1, step // 4)):
        cli("rm", "--all", "--yes")
        cli("gc", "--max-size", "0")
        inject = f"inject=mkdir,rename,renameat2,link,linkat,fsync,syncfs,pwrite64:error={error}:when={when}"
        argv = ["strace", "-f", "-o", "/dev/null", "-e", "trace=file,desc", "-e", inject, ENVHARNESS, "create", spec]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            assert "error:" in done.stderr, done.stderr
            assert "panicked" not in done.stderr
        assert check_whole(cli, home) == []


def test_a_full_disk_is_named_and_leaves_nothing(cli, home, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    write("s.yaml", f"name: small\npython: '{MINOR}'\ndeps: [numpy=={NUMPY_2}]\n")
    cli("lock", "s.yaml").ok()
    cli("sync", "s.yaml").ok()
    small = tmp_path / "small"
    small.mkdir()
    # Its own mount namespace: nothing of the machine's mounts changes.
    line = f"mount -t tmpfs -o size=8m,nr_inodes=4000 none {small} && exec {ENVHARNESS} --home {small}/home sync s.yaml"
    done = subprocess.run(["unshare", "-m", "sh", "-c", line], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip(f"no mount namespace: {done.stderr.strip()}")
    assert done.returncode == 3, done.stderr
    assert "No space left" in done.stderr or "os error 28" in done.stderr
    cli("run", "s.yaml", "--", "python", "-c", "import numpy").ok()


def test_a_waiter_takes_over_from_a_killed_builder(cli, home, spec, backend):
    builder = subprocess.Popen([ENVHARNESS, "create", spec], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    waiter = subprocess.Popen([ENVHARNESS, "create", spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list((home / "tmp").glob("build-*")) and builder.poll() is None:
        pass
    os.killpg(builder.pid, signal.SIGKILL)
    builder.wait()
    out, err = waiter.communicate(timeout=120)
    assert waiter.returncode == 0 and out.startswith(f"{backend}-env-small-"), err
    assert check_whole(cli, home) == []
