"""One suite over every backend that makes prefixes: what a user sees is the same, whichever made it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, MINOR, write
from engines import BASE

VERSION = "import six, sys; print(six.__version__, sys.prefix)"


@pytest.fixture(params=["venv", "conda", "docker", "podman"])
def backend(request) -> str:
    return request.param


@pytest.fixture
def mapping(backend, home, request, monkeypatch) -> dict:
    """A small spec of the backend with `six`."""
    out = {"name": "small", "backend": backend, "python": MINOR}
    if backend == "venv":
        return {**out, "deps": ["six==1.16.0"]}
    if backend in ("docker", "podman"):
        engine = request.getfixturevalue(f"{backend}_engine")
        for name, value in engine.variables.items():
            monkeypatch.setenv(name, value)
        # The engines of the tests have no network of their own.
        return {**out, "image": BASE, "network": "host", "deps": ["six==1.16.0"]}
    import channel as made

    if MINOR not in made.MINORS:
        pytest.skip(f"the channel has no Python {MINOR}")
    return {**out, "channels": [request.getfixturevalue("channel").as_uri()], "conda": ["six ==1.16.0"]}


@pytest.fixture
def spec(mapping) -> Path:
    return write("s.json", json.dumps(mapping))


def run(*args) -> list[str]:
    return [str(BIN / "envharness"), *map(str, args)]


def test_create_exec_list_inspect_cp_and_rm(cli, home, spec, backend):
    made = cli("create", spec).ok().out.strip()
    assert re.fullmatch(rf"{backend}-env-small-[a-z0-9]{{5}}", made)
    version, prefix = cli("exec", made, "--", "python", "-c", VERSION).ok().out.split()
    assert version == "1.16.0" and Path(prefix).parent == home / "prefixes"
    (row,) = cli("list", "--output-format", "json").ok().json["contexts"]
    assert row["id"] == made and row["backend"] == backend
    about = cli("inspect", made, "--output-format", "json").ok().json
    assert about["prefix"] == prefix and about["python_version"].startswith(MINOR)
    write("data.txt", "text\n")
    cli("cp", "data.txt", f"{made}:/agent/data.txt").ok()
    assert cli("exec", made, "--", "cat", "/agent/data.txt").ok().out == "text\n"
    assert cli("exec", made, "--", "sh", "-c", "exit 7").code == 7
    cli("rm", made).ok()
    assert cli("list", "--output-format", "json").ok().json["contexts"] == []


def test_a_lock_is_used_as_it_is(cli, home, spec):
    cli("lock", spec).ok()
    (lock,) = Path().glob("*.lock")
    text = lock.read_text()
    cli("lock", spec, "--locked").ok()
    cli("run", spec, "--frozen", "--", "true").ok()
    assert lock.read_text() == text
    write("s.json", json.dumps({**json.loads(spec.read_text()), "env_vars": {"A": "1"}}))
    cli("run", spec, "--locked", "--", "true").ok()


def test_two_specs_of_the_same_packages_share_a_prefix(cli, home, spec, mapping):
    first = cli("run", spec, "--", "python", "-c", VERSION).ok().out
    other = write("other.json", json.dumps({**mapping, "name": "other", "env_vars": {"X": "1"}}))
    assert cli("run", other, "--", "python", "-c", VERSION).ok().out == first


def test_the_environment_is_read_only_and_clean(cli, home, spec):
    code = "import os, sys; open(os.path.join(sys.prefix, 'x'), 'w')"
    refused = cli("run", spec, "--", "python", "-c", code)
    assert refused.code == 1 and ("Read-only" in refused.err + refused.out or "Permission" in refused.err + refused.out)
    environ = {"PYTHONPATH": "/nowhere", "CONDA_EXE": "/nowhere/conda", "VIRTUAL_ENV": "/nowhere"}
    shown = cli("run", spec, "--", "env", env=environ).ok().out
    assert "/nowhere" not in shown
    (prefix,) = (home / "prefixes").iterdir()
    assert f"_PREFIX={prefix}" in shown or f"VIRTUAL_ENV={prefix}" in shown
    assert f"\nPATH={prefix}/bin:" in f"\n{shown}"
    assert "pip: this environment is shared and read-only" in cli("run", spec, "--", "pip", "list").err


def test_a_writable_one_may_change(cli, home, spec, mapping):
    path = write("w.json", json.dumps({**mapping, "writable": True}))
    made = cli("create", path).ok().out.strip()
    cli("exec", made, "--", "pip", "install", "-q", "cowsay==6.1", env={"UV_LINK_MODE": "copy"}).ok()
    assert cli("exec", made, "--", "python", "-c", "import cowsay, six; print(cowsay.__version__)").ok().out == "6.1\n"
    cli("rm", made).ok()
    assert cli("run", spec, "--", "python", "-c", "import cowsay").code == 1
    assert cli("store", "verify").ok()


def test_byte_code_and_verify(cli, home, spec, monkeypatch):
    # Files are links into the downloads: what is damaged here must be nobody else's.
    monkeypatch.setenv("ENVHARNESS_CACHE", str(home / "cache"))
    cli("compile", spec).ok()
    (prefix,) = (home / "prefixes").iterdir()
    assert list(prefix.glob("lib/python*/site-packages/__pycache__/six.*.pyc"))
    assert cli("store", "verify").ok()
    (module,) = prefix.glob("lib/python*/site-packages/six.py")
    size = module.stat().st_size
    module.chmod(0o644)
    with module.open("r+b") as file:
        file.seek(size - 2)
        file.write(b"##")
    assert cli("store", "verify").code == 1
    assert cli("run", spec, "--", "python", "-c", VERSION).ok().out.startswith("1.16.0 ")


def test_many_at_once_share_one_build(home, spec):
    started = [subprocess.Popen(run("run", spec, "--", "python", "-c", VERSION), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    outputs = [process.communicate() for process in started]
    assert len({out for out, _ in outputs}) == 1 and all(out.startswith("1.16.0 ") for out, _ in outputs), outputs
    assert sum("Installed" in err for _, err in outputs) == 1


def test_a_kill_at_each_step_leaves_nothing_broken(cli, home, spec):
    cli("lock", spec).ok()
    # The steps are told by the log, so that no time is guessed: each is killed once when its word appears.
    for word in ("prefix", "sealing", "hashing", "recording", "flushing", "publishing"):
        process = subprocess.Popen(run("--log-level", "DEBUG", "run", spec, "--", "true"), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in process.stderr:
            if word in line:
                process.send_signal(signal.SIGKILL)
                break
        process.stderr.close()
        process.wait()
    assert cli("run", spec, "--", "python", "-c", VERSION).ok().out.startswith("1.16.0 ")
    assert cli("store", "verify").ok()
    cli("gc").ok()
    assert not [name for name in os.listdir(home / "tmp") if name.startswith("build")]


@pytest.fixture
def btrfs(tmp_path):
    """A file system that can clone files."""
    image, place = tmp_path / "image", tmp_path / "btrfs"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(1 << 30)
    made = os.geteuid() == 0 and shutil.which("mkfs.btrfs") and shutil.which("filefrag")
    if not made or subprocess.run(["mkfs.btrfs", "-q", image], capture_output=True, check=False).returncode or subprocess.run(["mount", "-o", "loop", image, place], check=False).returncode:
        pytest.skip("no btrfs can be made and mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_clones_share_their_blocks_and_not_their_inodes(cli, mapping, btrfs):
    packages = {"conda": ["numpy"]} if mapping["backend"] == "conda" else {"deps": ["numpy==2.0.2"]}
    spec = write("n.json", json.dumps({**mapping, **packages}))
    environ = {"ENVHARNESS_HOME": str(btrfs / "home"), "ENVHARNESS_CACHE": str(btrfs / "cache"), "ENVHARNESS_LINK_MODE": "clone"}
    cli("run", spec, "--", "python", "-c", "import numpy", env=environ).ok()
    (module,) = (btrfs / "home/prefixes").glob("*/lib/python*/site-packages/numpy/_core/_multiarray_umath*.so")
    assert module.stat().st_nlink == 1
    subprocess.run(["sync", "-f", module], check=True)
    shown = subprocess.run(["filefrag", "-v", module], capture_output=True, text=True, check=True).stdout
    assert "shared" in shown, shown


SCRIPT = """
import json, sys
import envharness as eh

spec = json.load(open("s.json"))

def add(x, y):
    import six
    return {"sum": x + y, "six": six.__version__}

if __name__ == "__main__":
    with eh.create_context(spec) as ctx:
        assert ctx.call(add, 1, y=2) == {"sum": 3, "six": "1.16.0"}
        code, logs = ctx.execute(["python", "-c", "print('out')"])
        assert (code, logs) == (0, "out\\n")
        ctx.run("true")
        first = ctx.id
    with eh.get_context(spec) as ctx:
        if spec["backend"] in ("docker", "podman"):
            assert not ctx.activated and spec["backend"] in ctx.activation
            assert ctx.call(add, 1, 1)["six"] == "1.16.0"
        else:
            import six
            assert ctx.activated and "/prefixes/" in six.__file__, ctx.activation
        idle = ctx.id
    with eh.get_context(spec) as ctx:
        assert ctx.id == idle and ctx.id != first
    env_id = eh.create_env(spec)
    assert eh.execute(env_id, ["python", "-c", "import six"])[0] == 0
    eh.destroy_env(env_id)
    print("done")
"""


def test_the_python_package(script, home, spec):
    assert script(SCRIPT).ok().out == "done\n"


def test_warm_contexts_wait_for_the_next_caller(cli, home, spec):
    assert cli("warm", spec, "-n", "2", "--output-format", "json").ok().json["made"] == 2
    assert cli("warm", spec, "-n", "2", "--output-format", "json").ok().json["made"] == 0
    rows = cli("list", "--output-format", "json").ok().json["contexts"]
    assert [row["state"] for row in rows] == ["idle", "idle"]
    name = cli("run", spec, "--", "sh", "-c", "echo $ENVHARNESS_CONTEXT").ok().out.strip()
    assert name in {row["id"] for row in rows} and len(cli("list", "--output-format", "json").json["contexts"]) == 2
