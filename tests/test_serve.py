"""Serving as a user meets it: the contract, traces, metrics, reload, the Python face, the pages' examples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import EXAMPLES, ROOT, write
from serving import END, ENVS, RECORDED, WITH, serve_fixture, store_fixture  # noqa: F401

MODELS = """
    import io, threading
    from openenv.core.env_server import Action, Environment, Observation, State, create_app

    class Move(Action):
        {field}

    class Seen(Observation):
        text: str = ""

    class World(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed=None, episode_id=None, level: int = 1, **kwargs):
            return Seen(text="{text}")

        def step(self, action, timeout_s=None, **kwargs):
            print("stepping", action)
            return Seen(text="{text}", reward=1.0, done=True)

        @property
        def state(self):
            return State(step_count=0)

    app = create_app(World, Move, Seen, env_name="world")
"""


def world(folder: Path, field: str = "n: int = 0", text: str = "first") -> Path:
    write(folder / "world.py", MODELS.format(field=field, text=text))
    return folder


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("thread: threading.Thread = None", "Move.thread"),
        ("files: 'list[dict[str, io.TextIOWrapper]]' = []", "Move.files"),
    ],
)
def test_a_field_that_cannot_become_json_is_refused_by_its_path(field, path, cli, store, tmp_path):
    done = cli("serve", "world:app", *WITH, cwd=world(tmp_path, field), env={"ENVHARNESS_HOME": str(store)})
    assert done.code == 1 and f"`{path}` cannot become JSON" in done.err and "hint:" in done.err, done.err


def test_the_contract_is_shown_and_its_digest_follows_the_meaning(cli, store, tmp_path):
    def contract(field: str) -> dict:
        environ = {"ENVHARNESS_HOME": str(store)}
        return cli("contract", "show", "world:app", *WITH, cwd=world(tmp_path, field), env=environ).ok().json

    first = contract("n: int = 0")
    assert first["contract"] == 1 and first["digest"].startswith("sha256:") and first["action"]["properties"]["n"]["type"] == "integer"
    assert first["reset"]["properties"]["level"] == {"default": 1, "title": "Level", "type": "integer"}
    assert contract("n: int = 0  # a remark")["digest"] == first["digest"]
    assert contract("n: int = 1")["digest"] != first["digest"]
    assert contract("n: str = ''")["digest"] != first["digest"]


def test_a_trace_names_the_lock_and_is_shown(serve, cli, tmp_path):
    server = serve("world:app", *WITH, "--trace", str(tmp_path / "traces"), cwd=world(tmp_path))
    with server.session() as session:
        session.reset(seed=1)
        assert session.step(n=5)["data"]["done"] is True
        assert session.step(n="five")["type"] == "error"
    assert server.stop() == 0
    shown = cli("trace", "show", tmp_path / "traces").ok().out
    assert "lock sha256:" in shown and 'step {"n":5} -> reward 1.0, done' in shown and "stdout: stepping" in shown and "closed" in shown
    events = [json.loads(line) for line in cli("--output-format", "jsonl", "trace", "show", tmp_path / "traces").ok().out.splitlines()]
    assert [e["event"] for e in events if e["event"] != "output"] == ["open", "reset", "step", "step", "close"]
    name = events[0]["session"]
    assert cli("trace", "show", tmp_path / "traces", "--session", name[:8]).ok().out == shown
    assert cli("trace", "show", tmp_path / "traces", "--session", "zz").code == 1
    assert cli("trace", "show", tmp_path / "nowhere").code == 1
    # What the environment printed is in the log too, under the session's id.
    assert any(name in line and "stepping" in line for line in server.stderr().splitlines())


def test_metrics_count_what_happened(serve, tmp_path):
    server = serve("world:app", *WITH, "--workers", "1", cwd=world(tmp_path))
    with server.session() as session:
        session.reset()
        for n in range(5):
            session.step(n=n)
        session.send("not json")
        session.receive()
        text = server.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    assert (lines["envharness_steps_total"], lines["envharness_resets_total"]) == ("5", "1")
    assert lines["envharness_connections"] == "2"  # the socket, and the one that asks
    assert lines["envharness_sessions_active"] == "1" and lines['envharness_errors_total{code="INVALID_JSON"}'] == "1"
    assert lines["envharness_step_seconds_count"] == "5" and float(lines["envharness_cpu_seconds_per_step"]) > 0
    assert int(lines['envharness_resident_bytes{role="Worker"}']) > 1_000_000
    assert text.endswith("# EOF\n")


def test_strict_has_the_contract_judge_and_refuses_what_is_not_finite(serve):
    plain, strict = (serve("value_probe:app", *WITH, *flag, cwd=RECORDED) for flag in ((), ("--strict",)))
    for server, coerced, value in ((plain, "observation", "observation"), (strict, "error", "error")):
        with server.session() as session:
            session.reset()
            # A model takes "5" for a number, and NaN becomes null; a contract does neither.
            assert session.step(kind="a", n="5")["type"] == coerced
            assert session.step(kind="nan")["type"] == value
            refused = session.step(kind="a", x=1)["data"]
            assert refused["code"] == "VALIDATION_ERROR" and refused["errors"][0]["type"] == "extra_forbidden"
            assert session.step(kind="a", n=5)["type"] == "observation"


def test_a_client_has_no_more_than_its_share_and_an_idle_socket_goes(serve):
    server = serve("native:echo", "--max-sessions-per-client", "2", "--idle-timeout", "1s")
    with server.session() as first, server.session() as second:
        assert first.reset()["type"] == second.reset()["type"] == "observation"
        with server.session() as third:
            refused = third.receive()["data"]
            assert (refused["code"], refused["active_sessions"], refused["max_sessions"]) == ("CAPACITY_REACHED", 2, 2)
        idle = first.receive()["data"]
        assert idle["code"] == "IDLE_TIMEOUT" and idle["retryable"] is True


def test_coroutines_have_their_loop_whatever_is_asked_for(serve):
    for concurrency in ("thread", "inline", "process"):
        server = serve(ENVS / "tide", "--concurrency", concurrency)
        with server.session() as session:
            assert session.reset()["type"] == "observation", concurrency


def test_an_environment_of_a_spec_file_and_a_log_of_json(serve, tmp_path):
    write(tmp_path / "task_spec.yaml", "name: world\ndeps: [pydantic==2.14.4]\n")
    server = serve("world:app", "--spec", "task_spec.yaml", "--log-format", "json", cwd=world(tmp_path))
    with server.session() as session:
        session.reset()
        session.step(n=1)
    assert server.stop() == 0
    events = [json.loads(line) for line in server.stderr().splitlines() if line.startswith("{")]
    printed = next(e for e in events if e.get("stream") == "stdout")
    assert "stepping" in printed["text"] and len(printed["session"]) == 36 and (tmp_path / "task_spec.lock").is_file()


def test_a_quick_class_is_learnt_and_remembered(serve, tmp_path):
    folder = world(tmp_path)
    first = serve("world:app", *WITH, "--workers", "1", cwd=folder)
    assert first.err.find(r'mode="(\w+)"', END) == "thread"
    with first.session() as session:
        for n in range(1000):
            session.step(n=n)
            if "run inline from now on" in first.stderr():
                break
    assert first.err.find(r"(run inline from now on)", END)
    assert first.stop() == 0
    assert serve("world:app", *WITH, "--workers", "1", cwd=folder).err.find(r'mode="(\w+)"', END) == "inline"
    # Other sources are another class.
    world(tmp_path, text="other")
    assert serve("world:app", *WITH, "--workers", "1", cwd=folder).err.find(r'mode="(\w+)"', END) == "thread"


def test_changed_sources_are_loaded_anew_and_broken_ones_leave_the_last(serve, tmp_path):
    server = serve("world:app", *WITH, "--reload", cwd=world(tmp_path))

    def text() -> str:
        with server.session() as session:
            return session.reset()["data"]["observation"]["text"]

    with server.session() as old:
        assert old.reset()["data"]["observation"]["text"] == text() == "first"
        world(tmp_path, text="second")
        assert server.err.find(r"(new sessions use it)", END)
        assert text() == "second"
        # A running session keeps what it began with.
        assert old.reset()["data"]["observation"]["text"] == "first"
    (tmp_path / "world.py").write_text("def broken(:\n")
    assert server.err.find(r"(cannot be loaded)", END)
    assert text() == "second"


def test_a_server_in_python_ends_with_its_block(home, script):
    script(
        """
        import json, os, urllib.request
        import envharness as eh

        with eh.serve("native:echo", max_sessions=3) as server:
            assert json.load(urllib.request.urlopen(server.url + "/health")) == {"status": "healthy"}
            assert (server.active_sessions, server.max_sessions) == (0, 3)
            # A forked child has the object and not the server.
            pid = os.fork()
            if pid == 0:
                server.stop()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            assert urllib.request.urlopen(server.url + "/ready").status == 200
        try:
            urllib.request.urlopen(server.url + "/health", timeout=5)
        except OSError:
            pass
        else:
            raise AssertionError("it still listens")
        for bad, error in (("no-such-folder", eh.ServeError), ("native:nothing", eh.ServeError)):
            try:
                eh.serve(bad)
            except error as raised:
                assert raised.hint
        try:
            eh.serve("native:echo", concurrency="sometimes")
        except ValueError as raised:
            assert "sometimes" in str(raised)
        class Local:
            pass
        try:
            eh.serve(Local)
        except eh.ServeError as raised:
            assert "top level of a module" in str(raised)
        """
    ).ok()


def test_a_class_is_served_from_python(home, script, tmp_path):
    world(Path.cwd())
    script(
        """
        import json, urllib.request
        import envharness as eh

        with eh.serve("world:World", packages=["pydantic"]) as server:
            schema = json.load(urllib.request.urlopen(server.url + "/schema"))
            assert schema["action"]["title"] in ("Move", "Action"), schema["action"]["title"]
        """
    ).ok()


def test_the_demos_episode_runs(cli, store):
    environ = {"ENVHARNESS_HOME": str(store), "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, EXAMPLES / "serve_and_drive.py", EXAMPLES / "guess", "4"], env={**os.environ, **environ}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 sessions" in done.stdout and "guessed" in done.stdout


def test_the_readmes_environment_is_served_as_it_stands(serve, tmp_path):
    readme = (ROOT / "README.md").read_text()
    for name in ("guess/openenv.yaml", "guess/app.py"):
        block = next(b for b in readme.split("```") if f"# {name}\n" in b[:60])
        write(tmp_path / name, block.split("\n", 1)[1])
    server = serve(tmp_path / "guess", cwd=tmp_path)
    with server.session() as session:
        session.reset(seed=1)
        assert [session.step(number=n)["data"]["done"] for n in range(1, 11)].count(True) == 1
    assert server.get("/metadata").json()["name"] == "GuessEnvironment"
