"""Contexts: found, made, run in, timed out, left; clean environments, private views."""

import asyncio
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import envharness as eh
import pytest
from conftest import MINOR, SMALL, write


def is_alive(pid: int) -> bool:
    """A zombie that nobody reaps is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_small_environment_is_made_used_and_gone(home):
    with eh.create_context({"name": "np", "python": MINOR, "deps": ["six==1.16.0"]}) as ctx:
        assert ctx.id.startswith("venv-env-np-") and len(ctx.id.rsplit("-", 1)[1]) == 5
        assert ctx.state == "running" and not ctx.activated
        code, logs = ctx.execute(["python", "-c", "import six; print(six.__version__)"])
        assert (code, logs) == (0, "1.16.0\n")
        workdir = ctx.workdir
        assert workdir.is_dir()
    assert ctx.state == "destroyed" and not workdir.exists()
    with pytest.raises(eh.ContextError, match="was left"):
        ctx.execute(["true"])


def test_get_context_finds_the_idle_one_and_empties_it(home):
    with eh.get_context(SMALL, activate=False) as first:
        (first.workdir / "left").write_text("x")
        with eh.get_context(SMALL, activate=False) as second:
            assert second.id != first.id
    assert first.state == "idle"
    with eh.get_context(SMALL, activate=False, fresh=False) as again:
        assert again.reused and again.id in (first.id, second.id)
    with eh.get_context(SMALL, activate=False) as fresh:
        assert fresh.reused and list(fresh.workdir.iterdir()) == []
    with eh.get_context({**SMALL, "description": "another spec"}, activate=False) as other:
        assert not other.reused


def test_exit_policies_and_explicit_life_cycle(home):
    with eh.create_context(SMALL, on_exit="keep") as kept:
        pass
    with eh.create_context(SMALL, on_exit="suspend") as suspended:
        pass
    assert (kept.state, suspended.state) == ("idle", "suspended")
    with eh.get_context(SMALL, activate=False) as new:
        assert new.id not in (kept.id, suspended.id)
    env_id = eh.create_env(SMALL)
    output = eh.execute(env_id, ["python", "-c", "print('Hello from env')"])
    assert str(output) == "Hello from env\n" and output.ok
    assert {c["id"] for c in eh.list_contexts()} >= {kept.id, suspended.id, env_id}
    assert eh.inspect(env_id[:-2])["id"] == env_id
    for one in (env_id, kept.id, suspended.id):
        eh.destroy_env(one)
    with pytest.raises(eh.ContextError, match="no context"):
        eh.execute(env_id, ["true"])
    with pytest.raises(eh.ContextError, match="on_exit"):
        eh.create_context(SMALL, on_exit="explode")


def test_run_streams_checks_and_takes_a_shell_line(home, capsys):
    with eh.create_context(SMALL) as ctx:
        result = ctx.run("echo out; echo err >&2; python -c 'import six'")
        assert capsys.readouterr().out == "out\n"
        assert result.stdout == "out\n" and result.stderr == "err\n"
        with pytest.raises(eh.CommandError, match="exit code 3") as caught:
            ctx.run("echo why; exit 3")
        assert caught.value.result.exit_code == 3 and "why" in str(caught.value)
        assert ctx.run("exit 3", check=False).exit_code == 3
        assert ctx.run("kill -9 $$", check=False).exit_code == 137
        with pytest.raises(eh.ContextError, match="list of words"):
            ctx.execute("echo x")
        with pytest.raises(eh.ContextError, match="no-such-program"):
            ctx.execute(["no-such-program"])


def test_commands_run_in_the_callers_directory_and_read_nothing(home):
    with eh.create_context(SMALL) as ctx:
        assert ctx.execute(["pwd"]).logs.strip() == os.getcwd()
        assert ctx.execute(["pwd"], cwd=ctx.workdir).logs.strip() == str(ctx.workdir)
        assert ctx.execute(["cat"], timeout=20) == (0, "")
        assert ctx.execute(["cat"], input="given").logs == "given"
        assert ctx.execute(["sh", "-c", "echo $A$ENVHARNESS_WORKDIR"], env={"A": "1"}).logs.strip() == f"1{ctx.workdir}"
        with pytest.raises(eh.EnvHarnessError, match="nowhere"):
            ctx.execute(["true"], cwd="nowhere")


def test_the_childs_environment_is_clean(home, monkeypatch):
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PIP_INDEX_URL", "UV_PYTHON"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PATH", f"/nowhere/bin:{os.environ['PATH']}")
    monkeypatch.setenv("KEPT", "yes")
    with eh.create_context({**SMALL, "env_vars": {"OMP_NUM_THREADS": "4"}}) as ctx:
        code = "import os, sys, site; print(sys.path); print(dict(os.environ)); print(site.ENABLE_USER_SITE)"
        logs = ctx.execute(["python", "-c", code]).logs
        path, environ, user_site = logs.splitlines()
        assert "/nowhere" not in path
        variables = eval(environ)
        assert variables["VIRTUAL_ENV"] == str(ctx.prefix) and variables["KEPT"] == "yes" and variables["OMP_NUM_THREADS"] == "4"
        assert not {"PYTHONPATH", "PYTHONHOME", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "UV_PYTHON"} & set(variables)
        assert variables["PATH"].split(":")[0] == str(ctx.prefix / "bin") and "/nowhere/bin" not in variables["PATH"]
        assert user_site == "False"
        assert ctx.execute(["pip", "install", "x"]) == (1, ctx.execute(["pip"]).logs)
        assert "read-only" in ctx.execute(["pip"]).logs


def test_time_outs_keep_the_output_and_end_the_whole_tree(home):
    with eh.create_context(SMALL) as ctx:
        line = "echo before; (setsid sh -c 'trap \"\" TERM; sleep 300' &) ; sleep 300"
        with pytest.raises(eh.CommandTimeout) as caught:
            ctx.run(line, timeout=1, stream=False)
        assert caught.value.output == "before\n" and isinstance(caught.value, TimeoutError)
        assert ctx.stats()["processes"] == []
        with pytest.raises(eh.CommandTimeout, match="printed nothing"):
            ctx.run("echo one; sleep 300", no_output_timeout=0.5, stream=False)
    with eh.create_context({**SMALL, "resources": {"timeouts": {"run": 0.5}}}) as ctx, pytest.raises(eh.CommandTimeout):
        ctx.execute(["sleep", "300"])
    with pytest.raises(eh.CommandTimeout, match="longer than"), eh.create_context({**SMALL, "deps": ["idna==3.4"]}, timeout=0.000001):
        pass
    assert [c for c in eh.list_contexts() if c["state"] != "idle"] == []


def test_no_process_outlives_its_context(home):
    with eh.create_context(SMALL) as ctx:
        ctx.run("(setsid sleep 300 > /dev/null 2>&1 &)", stream=False)
        (pid,) = ctx.stats()["processes"]
    assert not is_alive(pid)


def test_a_holder_that_was_killed_is_swept_with_its_processes(home, script):
    write("s.yaml", f"name: small\npython: '{MINOR}'\ndeps: [six==1.16.0]\n")
    code = "import envharness as eh, os\nctx = eh.create_context('s.yaml').__enter__()\nctx.popen(['sleep', '300'])\nprint(ctx.id, flush=True)\nos.kill(os.getpid(), 9)\n"
    ran = script(code)
    (dead,) = [c for c in eh.list_contexts() if c["id"] == ran.out.strip()]
    assert dead["state"] == "error" and len(dead["processes"]) == 1
    for _ in range(20):
        with eh.create_context("s.yaml"):
            pass
        if not [c for c in eh.list_contexts() if c["id"] == dead["id"]]:
            break
    assert dead["id"] not in [c["id"] for c in eh.list_contexts()]
    assert not is_alive(dead["processes"][0])


def test_prefixes_are_read_only_even_for_root_and_shared_by_specs_that_differ_in_words_only(home):
    prefixes = set()
    for i in range(10):
        spec = {**SMALL, "name": f"n{i}", "description": str(i), "env_vars": {"N": str(i)}, "resources": {"memory": f"{i + 1}G"}}
        with eh.create_context(spec) as ctx:
            prefixes.add(ctx.prefix)
            assert ctx.execute(["sh", "-c", f"touch {ctx.prefix}/x"]).exit_code != 0
            assert ctx.execute(["python", "-c", "import six, sys; sys.dont_write_bytecode = False; open(six.__file__, 'a')"]).exit_code != 0
    assert len(prefixes) == 1
    assert not (prefixes.pop() / "x").exists()


def test_a_writable_context_changes_its_own_environment_and_no_other(home):
    spec = {**SMALL, "writable": True}
    with eh.create_context(SMALL) as shared, eh.get_context(spec, activate=False) as one, eh.create_context(spec) as two:
        assert one.execute(["pip", "install", "-q", "idna==3.4"]).check().ok
        assert one.execute(["python", "-c", "import idna; print(idna.__version__)"]).logs == "3.4\n"
        assert one.execute(["python", "-c", "import six; open(six.__file__, 'a').write('X = 1')"]).ok
        assert one.execute(["python", "-c", "import six; print(six.X)"]).logs == "1\n"
        for other in (two, shared):
            assert other.execute(["python", "-c", "import idna"]).exit_code == 1
            assert other.execute(["python", "-c", "import six; six.X"]).exit_code == 1
    with eh.get_context(spec, activate=False) as again:
        assert again.id == one.id and again.execute(["python", "-c", "import idna"]).exit_code == 1
    with pytest.raises(eh.ActivationError, match="writable"), eh.get_context(spec, activate=True):
        pass
    with eh.create_context(SMALL) as shared:
        assert shared.execute(["python", "-c", "import six"]).ok


def test_tmp_is_the_contexts_own_and_what_is_needed_stays_visible(home, tmp_path):
    host = Path("/tmp") / f"envharness-test-{os.getpid()}"
    host.write_text("host")
    try:
        with eh.create_context(SMALL) as one, eh.create_context(SMALL) as two:
            one.run("echo mine > /tmp/file", stream=False)
            assert two.execute(["cat", "/tmp/file"]).exit_code != 0
            assert one.execute(["cat", "/tmp/file"]).logs == "mine\n"
            # The current directory lies in /tmp here, and so does the store.
            Path("here.txt").write_text("here")
            assert one.execute(["cat", str(Path("here.txt").resolve())]).logs == "here"
            with pytest.warns(eh.EnvHarnessWarning, match="tmp: shared"):
                assert one.execute(["cat", str(host)]).exit_code != 0
        with eh.create_context({**SMALL, "tmp": "shared"}) as shared:
            assert shared.execute(["cat", str(host)]).logs == "host"
    finally:
        host.unlink()


def test_a_second_run_in_a_directory_below_tmp_sees_what_the_first_saw(home, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("x")
    with eh.create_context(SMALL) as ctx:
        for _ in range(2):
            assert ctx.execute(["ls"], cwd=data).logs == "file\n"
        ctx.execute(["touch", str(Path.cwd() / "made")])
        ctx.download_file(str(Path.cwd() / "made"), "copy")
        with pytest.raises(eh.TransferError, match="the host has the folder"):
            ctx.upload_file("copy", str(Path.cwd() / "again"))


def test_close_ends_a_command_that_runs_in_another_thread(home):
    ctx = eh.create_context(SMALL).__enter__()
    results = []
    thread = threading.Thread(target=lambda: results.append(ctx.execute(["sleep", "300"]).exit_code))
    thread.start()
    while not ctx.stats()["processes"]:
        time.sleep(0.01)
    ctx.close()
    thread.join(30)
    assert results == [137] and ctx.id


def test_processes_of_an_activated_caller_are_its_own(script, home):
    code = f"""
    import subprocess
    import envharness as eh
    with eh.get_context({SMALL!r}) as ctx:
        assert ctx.activated
        mine = subprocess.Popen(["sleep", "300"])
        ctx.run("true")
    print(mine.poll())
    mine.kill()
    """
    assert script(code).ok().out == "None\n"


def test_a_process_that_cleared_its_environment_ends_with_the_context(home):
    with eh.create_context(SMALL) as ctx:
        ctx.run("env -i setsid sleep 298.5 > /dev/null 2>&1 &", stream=False)
    found = subprocess.run(["pgrep", "-fx", "sleep 298.5"], capture_output=True, text=True, check=False).stdout.split()
    assert not [pid for pid in found if is_alive(int(pid))]


def test_secrets_are_given_per_process_and_masked(home, monkeypatch):
    monkeypatch.setenv("TOKEN", "hunter2-hunter2")
    spec = {**SMALL, "secrets": {"TOKEN": None, "OTHER": {"command": ["printf", "s3cret-s3cret"]}}}
    with eh.create_context(spec) as ctx:
        assert ctx.execute(["sh", "-c", "echo $TOKEN $OTHER"]).logs == "hunter2-hunter2 s3cret-s3cret\n"
        assert "hunter2" not in ctx.logs() and "s3cret-s3cret" not in ctx.logs() and "****" in ctx.logs()
        assert "TOKEN" not in ctx.environ
    grep = subprocess.run(["grep", "-rl", "hunter2-hunter2", str(home)], capture_output=True, text=True, check=False)
    assert grep.stdout == ""
    monkeypatch.delenv("TOKEN")
    with eh.create_context(spec) as ctx, pytest.raises(eh.ContextError, match="export TOKEN"):
        ctx.execute(["true"])


def test_limits_are_enforced_or_said_not_to_be(home):
    spec = {**SMALL, "resources": {"memory": "200M", "cpus": 1}}
    with pytest.warns(eh.EnvHarnessWarning, match="cpus"), eh.create_context(spec) as ctx:
        assert ctx.limits["memory"] == {"value": str(200 << 20), "enforced_by": "rlimit"}
        assert ctx.limits["cpus"]["enforced_by"] == "nothing"
        assert "MemoryError" in ctx.execute(["python", "-c", "x = bytearray(400 << 20)"]).logs
    with eh.create_context({**SMALL, "resources": {"gpu": False}}) as ctx:
        assert ctx.environ["CUDA_VISIBLE_DEVICES"] == ""
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        with pytest.raises(eh.SpecError, match="asks for 3 GPUs"), eh.create_context({**SMALL, "resources": {"gpu": 3}}):
            pass


def test_two_threads_with_different_specs_never_see_each_other(home):
    versions = {"1.15.0": set(), "1.16.0": set()}
    failures = []

    def work(version):
        try:
            for _ in range(5):
                with eh.get_context({**SMALL, "name": f"v{version}", "deps": [f"six=={version}"]}) as ctx:
                    assert not ctx.activated and "main thread" in ctx.activation
                    versions[version].add(ctx.execute(["python", "-c", "import six; print(six.__version__)"]).logs.strip())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(version,)) for version in versions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and versions == {"1.15.0": {"1.15.0"}, "1.16.0": {"1.16.0"}}


def test_threads_run_in_parallel(home):
    with eh.create_context(SMALL) as ctx:
        start = threading.Barrier(3)
        done = []

        def work():
            start.wait()
            # Each waits for the other: in turn they would never end.
            done.append(ctx.run(f"touch {ctx.workdir}/$$; while [ $(ls {ctx.workdir} | wc -l) -lt 2 ]; do sleep 0.01; done", timeout=60))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        start.wait()
        for thread in threads:
            thread.join()
        assert len(done) == 2


def test_a_forked_child_has_its_own_and_leaves_the_parents_alone(home, script):
    code = f"""
    import os, sys
    import envharness as eh
    SPEC = {SMALL!r}
    with eh.get_context(SPEC) as ctx:
        assert ctx.activated
        pid = os.fork()
        if pid == 0:
            with eh.create_context(SPEC) as own:
                assert own.id != ctx.id and own.execute(["true"]).exit_code == 0
            ctx.close()
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert ctx.state == "running" and ctx.workdir.is_dir()
        assert ctx.execute(["true"]).exit_code == 0
    print(ctx.state)
    """
    assert script(code).ok().out == "idle\n"


def test_a_forked_child_that_lives_on_does_not_hold_the_parents_context(home, script):
    code = f"""
    import os, signal, time
    import envharness as eh
    with eh.get_context({SMALL!r}, activate=False) as ctx:
        pid = os.fork()
        if pid == 0:
            signal.pause()
    with eh.get_context({SMALL!r}, activate=False) as again:
        print(again.reused)
    os.kill(pid, 9)
    """
    assert script(code).ok().out == "True\n"


def test_the_celery_sketch_as_a_plain_function_two_at_once(home, script):
    write("train.py", "import sys, os\nos.makedirs('/agent/results', exist_ok=True)\nopen('/agent/results/model.pth', 'w').write(' '.join(sys.argv[1:]) + os.environ['WHO'])\nprint('trained', os.environ['WHO'])\n")
    code = f"""
    import multiprocessing
    import envharness as eh

    def train_agent(task_config):
        spec = eh.load_spec_from_config(task_config)
        with eh.create_context(spec) as ctx:
            ctx.upload_file(task_config["script_path"], "/agent/train.py")
            exit_code, logs = ctx.execute(["python", "/agent/train.py", "--epochs", "10"])
            ctx.download_file("/agent/results/model.pth", task_config["output_path"])
        return {{"exit_code": exit_code, "logs": logs}}

    if __name__ == "__main__":
        configs = [
            {{"spec": {{"name": w, "python": {MINOR!r}, "deps": ["six==1.16.0"], "env_vars": {{"WHO": w}}}},
              "script_path": "train.py", "output_path": f"out/{{w}}.pth"}}
            for w in ("a", "b")
        ]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(train_agent, configs))
        print([open(f"out/{{w}}.pth").read() for w in ("a", "b")])
    """
    out = script(code).ok().out
    assert out == "[{'exit_code': 0, 'logs': 'trained a\\n'}, {'exit_code': 0, 'logs': 'trained b\\n'}]\n['--epochs 10a', '--epochs 10b']\n"
    assert not Path("/agent").exists()


def test_a_script_that_imports_envharness_runs_in_a_context_of_its_own_spec(home, cli):
    write("task_spec.yaml", f"name: small\npython: '{MINOR}'\ndeps: [six==1.16.0]\n")
    write("train.py", "import envharness as eh\nwith eh.get_context('task_spec.yaml') as ctx:\n    import six\n    print(ctx.activated, six.__version__, ctx.execute(['echo', 'x']).logs)\n")
    done = cli("run", "task_spec.yaml", "--", "python", "train.py").ok()
    assert done.out == "True 1.16.0 x\n\n"
    write("other.py", "import envharness as eh\nwith eh.get_context({'name': 'other'}):\n    pass\n")
    assert "inside the context of `small`" in cli("run", "task_spec.yaml", "--", "python", "other.py").err


def test_popen_gives_streams_and_ends_with_its_block(home):
    with eh.create_context(SMALL) as ctx:
        with ctx.popen(["python", "-u", "-c", "print(input().upper())"]) as process:
            process.stdin.write(b"hello\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"HELLO\n"
            assert process.wait(30) == 0
        with ctx.popen(["sleep", "300"]) as process:
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
        assert process.poll() == 137


def test_ctrl_c_stops_a_command_and_its_tree(home, script):
    code = f"""
    import os, signal, sys, threading
    import envharness as eh
    # A run of tests in the background may have begun with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with eh.create_context({SMALL!r}) as ctx:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            ctx.run("sleep 300")
        except KeyboardInterrupt:
            print("stopped", ctx.stats()["processes"])
    """
    assert script(code, timeout=60).ok().out == "stopped []\n"


def test_everything_can_be_awaited_and_cancelled(home):
    async def main():
        async with eh.create_context(SMALL) as ctx:
            one, two = await asyncio.gather(ctx.aexecute(["echo", "1"]), ctx.arun("echo 2", stream=False))
            assert (one.logs, two.logs) == ("1\n", "2\n")
            assert await ctx.acall(divmod, 7, 2) == (3, 1)
            task = asyncio.ensure_future(ctx.aexecute(["sleep", "300"]))
            while not ctx.stats()["processes"]:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ctx.stats()["processes"] == []
        env_id = await eh.acreate_env(SMALL)
        assert (await eh.aexecute(env_id, ["echo", "x"])).logs == "x\n"
        await eh.adestroy_env(env_id)
        return (await eh.alock(SMALL)).packages

    assert asyncio.run(main()) == {"six": "1.16.0"}


def test_very_long_output_keeps_both_ends(home):
    with eh.create_context(SMALL) as ctx:
        result = ctx.execute(["python", "-c", "print('begin'); print('x' * (40 << 20)); print('end')"])
        assert result.omitted > 20 << 20 and len(result.logs) < 17 << 20
        assert result.logs.startswith("begin") and result.logs.endswith("end\n") and "bytes left out" in result.logs


def test_host_backend_adopts_what_is_there(home):
    import sys

    with eh.create_context({"name": "h", "backend": "host", "python": sys.prefix, "deps": ["pytest"]}) as ctx:
        assert ctx.id.startswith("host-env-h-")
        assert ctx.execute(["python", "-c", "import pytest, sys; print(sys.prefix)"]).logs.strip() == sys.prefix
    with pytest.raises(eh.LockError, match="pytest==0.1"), eh.create_context({"name": "h", "backend": "system", "python": sys.executable, "deps": ["pytest==0.1"]}):
        pass


def test_a_context_idle_past_its_time_is_removed_by_the_next_create(home):
    spec = {**SMALL, "resources": {"timeouts": {"idle": 0.01}}}
    with eh.get_context(spec, activate=False) as ctx:
        pass
    time.sleep(0.02)
    with eh.create_context(SMALL):
        pass
    assert ctx.state == "destroyed"


def test_a_terminated_process_group_leaves_no_orphan(home, script):
    write("s.yaml", f"name: small\npython: '{MINOR}'\ndeps: [six==1.16.0]\n")
    code = "import envharness as eh\nwith eh.create_context('s.yaml') as ctx:\n    print(ctx.id, flush=True)\n    ctx.run('echo started; exec sleep 300')\n"
    write("hold.py", code)
    import sys

    process = subprocess.Popen([sys.executable, "hold.py"], stdout=subprocess.PIPE, text=True)
    env_id = process.stdout.readline().strip()
    assert process.stdout.readline() == "started\n"
    (pid,) = eh.inspect(env_id)["processes"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    # Bound to its starter's life: it is gone, or going.
    for _ in range(200):
        if pid not in eh.inspect(env_id)["processes"]:
            break
        time.sleep(0.01)
    assert pid not in eh.inspect(env_id)["processes"]
