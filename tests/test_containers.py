"""Contexts in containers of real engines: what they see, how they end, and what is said when an engine is not there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import engines
import pytest
import envharness as eh
from conftest import BIN, MINOR, ROOT, write
from engines import BARE, BASE


@pytest.fixture(params=["docker", "podman"])
def engine(request, home, monkeypatch):
    """Each engine in turn, as its user's variables name it."""
    found = request.getfixturevalue(f"{request.param}_engine")
    for name, value in found.variables.items():
        monkeypatch.setenv(name, value)
    before = found.containers()
    yield found
    # What a test leaves to its store is the next test's noise.
    subprocess.run([BIN / "envharness", "rm", "--all", "--force", "--yes"], capture_output=True, check=False)
    left = [name for name in found.containers() if name not in before]
    if left:
        found.run("rm", "-f", *left)


@pytest.fixture
def spec(engine):
    """Writes a spec for a container and gives its path."""

    def make(name: str = "c", image: str = BASE, **more) -> Path:
        return write(f"{name}.json", json.dumps({"name": name, "backend": engine.kind, "image": image, "network": "none", **more}))

    return make


def run(*args) -> list[str]:
    return [str(BIN / "envharness"), *map(str, args)]


def inspected(engine, name: str) -> dict:
    return json.loads(engine.run("inspect", name))[0]


def test_a_container_is_hardened(cli, engine, spec):
    made = cli("create", spec(resources={"memory": "256M", "pids": 64, "cpus": 0.5})).ok().out.strip()
    host = inspected(engine, made)["HostConfig"]
    assert host["ReadonlyRootfs"] is True and host["Privileged"] is False
    assert host["PidsLimit"] == 64 and host["Memory"] == 256 << 20
    status = dict(line.split(":", 1) for line in cli("exec", made, "--", "cat", "/proc/self/status").ok().out.splitlines())
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
    sockets = cli("exec", made, "--", "sh", "-c", "cat /proc/mounts; ls /run /var/run").out
    assert "docker.sock" not in sockets and "podman.sock" not in sockets
    limits = {limit["name"]: limit["enforced_by"] for limit in cli("inspect", made, "--output-format", "json").ok().json["limits"]}
    assert limits["memory"].startswith("cgroup") and limits["pids"].startswith("cgroup")
    refused = cli("exec", made, "--", "touch", "/bin/mine")
    assert refused.code != 0 and "Read-only" in refused.err
    # The limit is the whole container's: more than it is ended, and the context is there afterwards.
    eats = cli("exec", made, "--", "python", "-c", "x = bytearray(400 << 20)")
    assert eats.code == 137
    assert cli("exec", made, "--", "echo", "there").ok().out == "there\n"


def test_the_project_is_seen_at_its_own_path_as_the_spec_says(cli, engine, spec, tmp_path):
    write("mine.txt", "mine\n")
    assert cli("run", spec(), "--", "cat", "mine.txt").ok().out == "mine\n"
    cli("run", spec(), "--", "sh", "-c", "echo new > new.txt").ok()
    assert Path("new.txt").read_text() == "new\n" and Path("new.txt").stat().st_uid == os.getuid()
    refused = cli("run", spec("ro", mounts={"project": "ro"}), "--", "sh", "-c", "echo x > other.txt")
    assert refused.code != 0 and not Path("other.txt").exists()
    hidden = cli("run", spec("none", mounts={"project": "none"}), "--", "cat", Path.cwd() / "mine.txt")
    assert hidden.code == 1
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("data\n")
    assert cli("run", spec("data", mounts={"/data": str(data)}), "--", "sh", "-c", "cat /data/x; touch /data/y || echo no").out == "data\nno\n"
    for mount, word in ((["/var/run/docker.sock:/s"], "whole machine"), ({"data": "/x"}, "path inside"), (["/x"], "not a mount")):
        refused = cli("lock", spec("bad", mounts=mount))
        assert refused.code == 1 and word in refused.err, refused.err


def test_files_go_in_and_out(cli, engine, spec, tmp_path):
    made = cli("create", spec()).ok().out.strip()
    write("data.txt", "text\n")
    cli("cp", "data.txt", f"{made}:in.txt").ok()
    cli("cp", "data.txt", f"{made}:/agent/data/deep.txt").ok()
    cli("cp", "data.txt", f"{made}:/tmp/t.txt").ok()
    seen = cli("exec", made, "--", "sh", "-c", "cat $ENVHARNESS_WORKDIR/in.txt /agent/data/deep.txt /tmp/t.txt; echo out > /agent/out.txt")
    assert seen.ok().out == "text\n" * 3
    cli("cp", f"{made}:/agent/out.txt", "out.txt").ok()
    assert Path("out.txt").read_text() == "out\n"
    # What only the image has comes out of the engine.
    cli("cp", f"{made}:/etc/passwd", "passwd").ok()
    assert Path("passwd").read_text() == "root:x:0:0::/:/bin/sh\n"
    cli("cp", f"{made}:/usr/local/lib/python{MINOR}/json", "json").ok()
    assert Path("json/decoder.py").is_file()
    missing = cli("cp", f"{made}:/nowhere", "x")
    assert missing.code == 1 and "not in the container" in missing.err
    for target in ("/etc/mine", "/bin/sh"):
        refused = cli("cp", "data.txt", f"{made}:{target}")
        assert refused.code == 1 and "the image has the folder" in refused.err and "relative path" in refused.err
    write("w.json", json.dumps({"name": "w", "backend": engine.kind, "image": BASE, "network": "none", "writable": True}))
    writable = cli("create", "w.json").ok().out.strip()
    cli("cp", "data.txt", f"{writable}:/etc/mine").ok()
    assert cli("exec", writable, "--", "sh", "-c", "cat /etc/mine; touch /bin/own && echo may").ok().out == "text\nmay\n"


def test_a_time_out_ends_the_whole_tree(cli, engine, spec):
    made = cli("create", spec()).ok().out.strip()
    late = cli("exec", made, "--timeout", "1s", "--", "sh", "-c", "echo begun; sleep 300 & sleep 301")
    assert late.code == 124 and "begun" in late.out + late.err
    assert "sleep 30" not in cli("exec", made, "--", "ps").ok().out
    assert cli("exec", made, "--", "echo", "there").ok().out == "there\n"


def test_exit_codes_input_and_a_program_that_is_not_there(cli, engine, spec):
    made = cli("create", spec()).ok().out.strip()
    assert cli("exec", made, "--", "sh", "-c", "exit 7").code == 7
    assert cli("exec", made, "--", "sh", "-c", "kill -9 $$").code == 137
    missing = cli("exec", made, "--", "nosuch")
    assert missing.code != 0 and "failed to start `nosuch`" in missing.err and "nor in the image" in missing.err
    done = subprocess.run(run("exec", made, "--", "sh", "-c", "cat; echo err >&2"), input="from outside\n", capture_output=True, text=True, check=True)
    assert done.stdout == "from outside\n" and done.stderr == "err\n"
    big = cli("exec", made, "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\000' x").ok()
    assert len(big.out) == 3_000_000


SUSPEND = """
import envharness as eh, sys

spec = {"name": "s", "backend": sys.argv[1], "image": "base:1", "network": "none"}
with eh.create_context(spec, on_exit="suspend") as ctx:
    ctx.popen(["sh", "-c", "n=0; while :; do n=$((n+1)); echo $n > $ENVHARNESS_WORKDIR/n; sleep 0.01; done"])
    while not (ctx.workdir / "n").exists():
        ctx.run("true")
    before = int(ctx.execute(["cat", f"{ctx.workdir}/n"]).logs or 0)
    name = ctx.id
print(name, before)
"""


GOES_ON = 'old=$(cat {0}); while [ "$(cat {0})" = "$old" ]; do :; done; echo more'


def test_a_suspended_context_goes_on_where_it_was(cli, engine, script, spec):
    name, before = script(SUSPEND, engine.kind).ok().out.split()
    assert inspected(engine, name)["State"]["Status"] == "paused"
    (row,) = cli("list", "--output-format", "json").ok().json["contexts"]
    assert row["state"] == "suspended"
    counter = Path(os.environ["ENVHARNESS_HOME"]) / "contexts" / name / "work/n"
    stopped = counter.read_text()
    assert counter.read_text() == stopped
    # The first command lets it go on: the same process counts from where it was.
    seen = cli("exec", name, "--timeout", "60s", "--", "sh", "-c", GOES_ON.format(counter)).ok()
    assert seen.out == "more\n" and int(counter.read_text() or before) >= int(before)


def test_popen_speaks_with_a_process(engine, script, spec):
    code = """
    import envharness as eh, sys
    with eh.create_context({"name": "p", "backend": sys.argv[1], "image": "base:1", "network": "none"}) as ctx:
        with ctx.popen(["cat"]) as process:
            process.stdin.write(b"hello\\n"); process.stdin.flush()
            assert process.stdout.readline() == b"hello\\n"
            process.stdin.close()
            assert process.wait(30) == 0
        with ctx.popen(["sh", "-c", "sleep 100 & echo begun; wait"]) as process:
            assert process.stdout.readline() == b"begun\\n"
            process.kill()
            assert process.wait(30) == 137
        assert "sleep 100" not in ctx.execute(["ps"]).logs
        try:
            ctx.popen(["nosuch"])
        except eh.ContextError as error:
            assert "nosuch" in str(error)
        else:
            raise AssertionError("started")
        assert ctx.stats()["processes"] == []
    print("done")
    """
    assert script(code, engine.kind).ok().out == "done\n"


def test_an_image_without_python_runs_programs_and_no_calls(engine, script, spec, cli):
    assert cli("run", spec("bare", BARE), "--", "echo", "out").ok().out == "out\n"
    refused = cli("lock", spec("pip", BARE, deps=["six"]))
    assert refused.code == 1 and "has no Python for the pip packages" in refused.err and "hint:" in refused.err
    refused = cli("lock", spec("other", python="3.8"))
    assert refused.code == 1 and f"has Python {MINOR}" in refused.err and "asks for 3.8" in refused.err
    code = """
    import envharness as eh, sys
    with eh.create_context({"name": "b", "backend": sys.argv[1], "image": "bare:1", "network": "none"}) as ctx:
        try:
            ctx.call(len, "abc")
        except eh.CallError as error:
            print("no Python" in str(error))
    """
    assert script(code, engine.kind).ok().out == "True\n"


def test_a_conda_environment_brings_its_own_python(cli, engine, spec, channel):
    path = spec("conda", BARE, python=MINOR, channels=[channel.as_uri()], conda=["numpy"], deps=["typing-extensions==4.12.2"])
    code = "import numpy, typing_extensions, sys; print(numpy.__version__, sys.prefix)"
    version, prefix = cli("run", path, "--", "python", "-c", code).ok().out.split()
    assert version == "2.0.2" and "/prefixes/" in prefix
    assert f'backend = "{engine.kind}"' in Path("conda.json.lock").read_text()


def test_a_lock_pins_its_image(cli, engine, spec, base_tars):
    path = spec("pin", "pinned:1")
    engines.take(engine, base_tars[BARE], "pinned:1")
    cli("run", path, "--", "true").ok()
    first = Path("pin.json.lock").read_text()
    # Another image of that name is not what was locked, while the locked one is there it is used.
    engine.run("tag", "pinned:1", "kept:1")
    engines.take(engine, base_tars[BASE], "pinned:1")
    assert "failed to start `python`" in cli("run", path, "--", "python", "-c", "1").err
    assert Path("pin.json.lock").read_text() == first
    cli("rm", "--all", "--force", "--yes").ok()
    cli("gc").ok()
    engine.run("rmi", "-f", "kept:1")
    changed = cli("run", path, "--", "true")
    assert changed.code != 0 and "and the lock says" in changed.err and "lock --upgrade" in changed.err
    cli("lock", path, "--upgrade").ok()
    cli("run", path, "--", "python", "-c", "1").ok()
    missing = cli("lock", spec("missing", "nowhere.invalid/none:1"), "--offline")
    assert missing.code == 1 and "has no image" in missing.err


def test_a_dockerfile_is_built_once_for_each_content(cli, engine, home):
    if engine.kind == "podman":
        pytest.skip("podman's own builder, buildah, is not started by the tests")
    write("Dockerfile", f"FROM {BASE}\nCOPY hello.txt /hello.txt\nENV GREETING=hi\nRUN echo built\n")
    write("hello.txt", "one\n")
    write("big.log", "no part of it\n")
    write(".dockerignore", "*.log\n*.lock\n.envharness\n")
    write("d.json", json.dumps({"name": "built", "backend": engine.kind, "dockerfile": "Dockerfile", "network": "none"}))
    shown = cli("run", "d.json", "--", "sh", "-c", "cat /hello.txt; echo $GREETING").ok()
    assert shown.out == "one\nhi\n"
    lock = Path("d.json.lock").read_text()
    assert cli("run", "d.json", "--locked", "--", "true").ok() and Path("d.json.lock").read_text() == lock
    write("hello.txt", "two\n")
    stale = cli("run", "d.json", "--locked", "--", "true")
    assert stale.code != 0 and "what `Dockerfile` builds from changed" in stale.err
    assert cli("run", "d.json", "--", "cat", "/hello.txt").ok().out == "two\n"
    write("Dockerfile", f"FROM {BASE}\nRUN echo about to fail; exit 3\n")
    failed = cli("run", "d.json", "--", "true")
    assert failed.code != 0 and "about to fail" in failed.err and "returned a non-zero code: 3" in failed.err


def test_nothing_is_left_after_a_kill_and_gc(cli, engine, spec):
    before = engine.containers()
    process = subprocess.Popen(run("run", spec(), "--", "sh", "-c", "echo begun; sleep 1000"), stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(engine.containers()) == len(before) + 1
    # One that never got its row: killed between the engine's work and ours.
    label = inspected(engine, next(name for name in engine.containers() if name not in before))["Config"]["Labels"]
    stray = f"{engine.kind}-env-stray-abcde"
    engine.run("create", "--name", stray, "--label", f"org.envharness.home={label['org.envharness.home']}", "--label", f"org.envharness.owner={stray}", "--label", "org.envharness.role=context", BASE, "true")
    shown = cli("gc", "--dry-run").ok()
    assert stray in shown.out and stray in engine.containers()
    cli("gc").ok()
    assert engine.containers() == before
    assert cli("list", "--output-format", "json").ok().json["contexts"] == []


def test_a_create_that_fails_leaves_nothing(cli, engine, spec):
    before = engine.containers()
    refused = cli("run", spec("r", runtime="nosuch"), "--", "true")
    assert refused.code != 0 and "nosuch" in refused.err
    refused = cli("run", spec("n", network="no-such-network"), "--", "true")
    assert refused.code != 0 and "no-such-network" in refused.err
    assert engine.containers() == before and cli("list", "--output-format", "json").ok().json["contexts"] == []


def test_idle_contexts_are_taken_again_and_clean(cli, engine, spec):
    first = cli("run", spec(), "--", "sh", "-c", "echo x > /tmp/mine; echo x > $ENVHARNESS_WORKDIR/mine; echo $ENVHARNESS_CONTEXT").ok().out
    second = cli("run", spec(), "--", "sh", "-c", "ls -A /tmp $ENVHARNESS_WORKDIR; echo $ENVHARNESS_CONTEXT").ok().out
    assert second.splitlines()[-1] == first.strip() and "mine" not in second
    # One that was removed behind our back is made anew.
    engine.run("rm", "-f", first.strip())
    assert cli("run", spec(), "--", "echo", "there").ok().out == "there\n"


def test_an_idle_context_has_nothing_of_its_last_caller(cli, engine, spec, tmp_path, monkeypatch):
    """Neither its project, nor what it wrote to a root that may be written to."""
    path = spec("w", writable=True).resolve()
    write("mine.txt", "mine\n")
    name = cli("run", path, "--", "sh", "-c", "cat mine.txt >&2; echo x > /left; echo $ENVHARNESS_CONTEXT").ok().out
    assert cli("run", path, "--", "sh", "-c", "ls /left; echo $ENVHARNESS_CONTEXT").out == name
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert cli("run", path, "--", "sh", "-c", f"ls {path.parent}/mine.txt; pwd; echo $ENVHARNESS_CONTEXT").out == f"{other}\n{name}"


def test_what_is_mounted_cannot_be_changed_from_inside(cli, engine, spec):
    """A link beside the context's folders would be followed by the engine when it makes the container again."""
    made = cli("create", spec()).ok().out.strip()
    plant = "cd $(dirname $ENVHARNESS_WORKDIR); mkdir -p root.d root; echo /x > root.d/x; (cd root && ln -s / x); rm -rf tmp; ln -s / tmp; true"
    cli("exec", made, "--", "sh", "-c", plant)
    folder = Path(os.environ["ENVHARNESS_HOME"]) / "contexts" / made
    assert not (folder / "root.d").exists() and not (folder / "root").exists() and not (folder / "tmp").is_symlink()
    write("data.txt", "text\n")
    cli("cp", "data.txt", f"{made}:/agent/data.txt").ok()
    assert cli("exec", made, "--", "sh", "-c", "cat /agent/data.txt; ls /x").out == "text\n"


def test_a_store_below_the_project_is_not_seen(cli, engine, spec):
    store = Path.cwd() / "store"
    code = f"import six, os; print(six.__version__, sorted(os.listdir({str(store)!r})))"
    shown = cli("run", spec("s", deps=["six==1.16.0"]), "--", "python", "-c", code, env={"ENVHARNESS_HOME": str(store)}).ok().out
    assert shown == "1.16.0 ['contexts', 'guest', 'prefixes']\n", shown
    subprocess.run([BIN / "envharness", "rm", "--all", "--force", "--yes"], env={**os.environ, "ENVHARNESS_HOME": str(store)}, check=True, capture_output=True)


def test_the_engine_s_socket_is_never_inside(cli, engine, spec, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(Path(engine.address.removeprefix("unix://")).parent)
    refused = cli("run", spec("l", mounts={"/x": str(link)}), "--", "true")
    assert refused.code != 0 and "engine's socket" in refused.err and "hint:" in refused.err


def test_what_comes_out_of_a_container_is_read_and_never_run(engine, script, spec):
    code = """
    import envharness as eh, sys
    def raises():
        raise ValueError("inside")
    def evil():
        import os
        class Evil(Exception):
            def __reduce__(self):
                return (os.system, ("touch owned",))
        raise Evil("x")
    if __name__ == "__main__":
        with eh.create_context({"name": "x", "backend": sys.argv[1], "image": "base:1", "network": "none", "mounts": {"project": "none"}}) as ctx:
            for function, kind in ((raises, ValueError), (evil, eh.RemoteError)):
                try:
                    ctx.call(function)
                except kind as error:
                    print(type(error).__name__)
    """
    assert script(code, engine.kind).ok().out == "ValueError\nRemoteError\n" and not Path("owned").exists()


def test_a_callback_may_speak_to_the_engine(engine, script, spec):
    code = """
    import envharness as eh, sys
    with eh.create_context({"name": "n", "backend": sys.argv[1], "image": "base:1", "network": "none"}) as ctx:
        class Out:
            seen = []
            def write(self, text):
                if text.strip() == "first":
                    self.seen.append(ctx.execute(["echo", "nested"]).logs)
            def flush(self):
                pass
        sys.stdout, kept = Out(), sys.stdout
        ctx.run("echo first")
        sys.stdout = kept
        print(Out.seen)
    """
    assert script(code, engine.kind).ok().out == "['nested\\n']\n"


def test_secrets_reach_the_process_and_nothing_else(cli, engine, spec):
    path = spec(secrets=["TOKEN_OF_TESTS"])
    environ = {"TOKEN_OF_TESTS": "s3cret-value"}
    made = cli("create", path, env=environ).ok().out.strip()
    assert cli("exec", made, "--", "sh", "-c", "echo $TOKEN_OF_TESTS", env=environ).ok().out == "s3cret-value\n"
    assert "s3cret-value" not in json.dumps(inspected(engine, made)) + cli("logs", made).ok().out


BATCH = """
import concurrent.futures, sys, threading
import envharness as eh

together = threading.Barrier(2, timeout=120)

def work(task):
    spec = eh.create_spec(name=task["name"], pip_deps=task["deps"], backend=sys.argv[1], image="base:1", network="none")
    with eh.get_context(spec) as ctx:
        together.wait()
        version = ctx.execute(["python", "-c", "import six; print(six.__version__)"]).logs.strip()
        return task["name"], ctx.id, version

if __name__ == "__main__":
    tasks = [{"name": "first", "deps": ["six==1.16.0"]}, {"name": "second", "deps": ["six==1.17.0"]}]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, env_id, version in pool.map(work, tasks):
            print(name, env_id.startswith(f"{sys.argv[1]}-env-{name}-"), version)
"""


def test_two_tasks_at_once_in_two_containers(engine, script, spec):
    assert script(BATCH, engine.kind).ok().out == "first True 1.16.0\nsecond True 1.17.0\n"


def test_the_spec_of_the_page_is_one(home):
    page = (ROOT / "docs/containers.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    spec = eh.load_spec(write("page.yaml", text)).to_dict()
    assert spec["mounts"] == {"project": "ro", "/data": "/srv/datasets:ro"} and spec["network"] == "none"


def test_an_engine_that_is_not_there_is_told_with_its_remedy(cli, home, tmp_path, monkeypatch):
    path = write("d.json", json.dumps({"name": "d", "backend": "docker", "image": BASE})).resolve()
    absent = cli("run", path, "--", "true", env={"DOCKER_HOST": f"unix://{tmp_path}/none"})
    assert absent.code != 0 and "docker does not answer" in absent.err and "systemctl start docker" in absent.err
    with socket.socket(socket.AF_UNIX) as dead:
        monkeypatch.chdir(tmp_path)
        dead.bind("dead")
        down = cli("run", path, "--", "true", env={"DOCKER_HOST": f"unix://{tmp_path}/dead"})
    assert down.code != 0 and "docker does not answer" in down.err and "hint:" in down.err
    bad = cli("run", path, "--", "true", env={"DOCKER_HOST": "ssh://somewhere"})
    assert bad.code != 0 and "ssh is not spoken here" in bad.err
    venv = write("v.json", json.dumps({"name": "v", "backend": "venv", "network": "none"}))
    refused = cli("run", venv, "--", "true")
    assert refused.code != 0 and "`network` needs a container" in refused.err


RUNSC = ["runsc", "--platform=ptrace", "--network=none", "--ignore-cgroups"]


def test_gvisor_runs_a_context(cli, home, base_tars, monkeypatch):
    engines.need_engine("docker")
    if subprocess.run(["which", "runsc"], capture_output=True, check=False).returncode:
        pytest.skip("runsc is not on this machine")
    with engines.dockerd(runtimes={"gvisor": RUNSC}) as engine:
        engines.take(engine, base_tars[BASE], BASE)
        monkeypatch.setenv("DOCKER_HOST", engine.address)
        base = {"name": "g", "backend": "docker", "image": BASE, "network": "none", "runtime": "gvisor", "isolation": "container"}
        path = write("g.json", json.dumps({**base, "deps": ["six==1.16.0"]}))
        made = cli("create", path).ok().out.strip()
        assert cli("exec", made, "--", "python", "-c", "import six, os; print(six.__version__, os.uname().release)").ok().out == "1.16.0 4.4.0\n"
        late = cli("exec", made, "--timeout", "2s", "--", "sh", "-c", "sleep 300 & sleep 301")
        assert late.code == 124 and "sleep 30" not in cli("exec", made, "--", "ps").ok().out
        cli("rm", made).ok()
        assert engine.containers() == []


@pytest.mark.parametrize("fault", ["lost", "500", "cut", "late"])
@pytest.mark.parametrize("step", ["create", "start", "exec", "remove"])
def test_a_faulty_engine_ends_in_an_error_and_nothing_left(cli, home, docker_engine, monkeypatch, tmp_path, step, fault):
    """The real engine behind a proxy that loses an answer, gives a 500, cuts a stream, or answers late."""
    before = docker_engine.containers()
    paths = {"create": "/containers/create", "start": "/start", "exec": "/exec/", "remove": "DELETE"}
    spec = {"name": "f", "backend": "docker", "image": BASE, "network": "none"}
    path = write("f.json", json.dumps(spec))
    monkeypatch.setenv("DOCKER_HOST", docker_engine.address)
    cli("lock", path).ok()
    with engines.faulty(docker_engine.address, paths[step], fault) as (address, met):
        monkeypatch.setenv("DOCKER_HOST", address)
        done = cli("run", path, "--", "echo", "out")
        # Where the answer alone was lost, the work was done: an error names what was to be done, a success is a whole one.
        assert (done.code == 0 and done.out == "out\n") or (done.code != 0 and "docker" in done.err), done.err
        cli("rm", "--all", "--force", "--yes")
        cli("gc").ok()
        assert met, "the fault was not met"
    monkeypatch.setenv("DOCKER_HOST", docker_engine.address)
    cli("gc").ok()
    assert docker_engine.containers() == before
    assert cli("list", "--output-format", "json").ok().json["contexts"] == []


def test_ten_creates_of_one_context_make_one_container_each(cli, home, docker_engine, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", docker_engine.address)
    before = len(docker_engine.containers())
    path = write("t.json", json.dumps({"name": "t", "backend": "docker", "image": BASE, "network": "none"}))
    cli("lock", path).ok()
    started = [subprocess.Popen(run("create", path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(10)]
    names = {process.communicate()[0].strip() for process in started}
    assert len(names) == 10 and len(docker_engine.containers()) == before + 10
    cli("rm", "--all", "--force", "--yes").ok()
    assert len(docker_engine.containers()) == before
