"""Env packages as they come: each served by the reference and by ours, with the same answers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from serving import (  # noqa: F401
    ENVS,
    REPLY,
    Session,
    open_socket,
    reference_fixture,
    reference_python,
    request,
    serve_fixture,
    store_fixture,
)
from wire import normal, talk


def reset(**data):
    return {"type": "reset", "data": data}


def step(**data):
    return {"type": "step", "data": data}


def mcp(method, id=1, **params):
    return {"type": "mcp", "data": {"jsonrpc": "2.0", "method": method, "params": params, "id": id}}


STATE, CLOSE = {"type": "state"}, {"type": "close"}
#: What is said to each package over the socket, then over HTTP. Every one has a seed, a bad action and an exception or a refusal.
TALKS = {
    "parrot": (
        [reset(seed=7), step(message="hi"), step(message="hi", times="3", volume="high"), step(message=""), step(message="x" * 101)]
        + [step(message="x", times=6), step(message="x", volume="mid"), step(), step(message="x", more=1), STATE, reset(greeting="hallo", other=1)]
        + [step(message="1"), step(message="2"), step(message="3"), step(message="after done"), STATE, reset(seed=-1, episode_id="e"), STATE, CLOSE],
        [("POST", "/step", {"action": {"message": "a", "times": 2}}), ("POST", "/step", {"action": {"message": "", "times": 9}})],
    ),
    "tide": (
        [reset(seed=3), step(by=2), step(by="5"), step(by=0), step(by=0.5), step(up=1), STATE, reset(episode_id="e2", unknown=1), STATE, CLOSE],
        [("POST", "/step", {"action": {"by": 2}}), ("POST", "/step", {"action": {"by": "x"}}), ("POST", "/reset", {"seed": 9, "unknown": 1})],
    ),
    "toolbox": (
        [reset(seed=2), step(type="list_tools"), step(type="call_tool", tool_name="add", arguments={"a": 1, "b": 2})]
        + [step(type="call_tool", tool_name="add", arguments={"a": 5}), step(type="call_tool", tool_name="total", arguments={})]
        + [step(type="call_tool", tool_name="add", arguments={"a": "x"}), step(type="call_tool", tool_name="break_it", arguments={"reason": "bad day"})]
        + [step(type="call_tool", tool_name="none"), step(type="other"), step(tool_name="add", arguments={"a": 9}), step(), STATE]
        + [mcp("tools/list"), mcp("tools/call", 2, name="total"), mcp("tools/call", "three", name="add", arguments={"a": 1, "z": 1}), mcp("nope", None), CLOSE],
        [("POST", "/step", {"action": {"type": "call_tool", "tool_name": "add", "arguments": {"a": 1}}}), ("POST", "/step", {"action": {"type": "list_tools"}})],
    ),
    "ledger": (
        [reset(seed=1, opening=10), step(entries=[{"who": "a", "amount": 2}, {"who": "b", "amount": "1.5"}]), step(entries=[])]
        + [step(entries=[{"who": "a"}]), step(entries=[{"who": "a", "amount": 1, "more": 2}]), STATE, reset(opening="x"), step(entries=[{"who": "a", "amount": -100}]), STATE, CLOSE],
        [
            ("GET", "/ledger/splits", None),
            ("POST", "/ledger/tasks", {"split": "train"}),
            ("POST", "/ledger/num_tasks", {"split": "test"}),
            ("POST", "/ledger/task", {"split": "train", "index": 2}),
            ("POST", "/ledger/task", {"split": "train", "index": 9}),
            ("POST", "/ledger/task", {"split": "train", "index": "a"}),
            ("POST", "/ledger/task", {"split": "train"}),
            ("POST", "/ledger/task_range", {"split": "train", "start": 1}),
            ("POST", "/ledger/task_range", {"split": "train", "start": 1, "stop": 2}),
            ("POST", "/ledger/tasks", {"split": "extra"}),
            ("POST", "/other/tasks", {"split": "train"}),
            ("GET", "/ledger/tasks", None),
        ],
    ),
    "margin": (
        [reset(seed=5, a=1, b=[1]), step(line=1), step(line=2, text=["a", "b"], metadata={"from": "client"}), step(line="x"), step(line=1, text=3), STATE, CLOSE],
        [("POST", "/step", {"action": {"line": 3, "metadata": {"k": None}}})],
    ),
    "mosaic": ([reset(seed=2), step(row=1, column=2, value=3), step(row=256, column=0, value=1), step(row=-1, column=-1, value=2**40), STATE, CLOSE], []),
    "dice": (
        [step(keep=[True, True, True]), reset(seed=4, unknown=1), step(keep=[True, False, True]), step(keep=[]), step(keep=["yes", 0, "off"]), step(keep=[2]), STATE, CLOSE],
        [("POST", "/step", {"action": {"keep": [False, True, False]}}), ("GET", "/create_dice_environment/splits", None)],
    ),
    "lone": ([step(add=1), reset(seed=5), step(add=2), step(add=None), STATE, reset(), step(add=1), STATE, CLOSE], [("POST", "/reset", {"seed": 1})]),
    "tortoise": ([reset(seed=1), step(seconds=0.01), step(seconds=-1), step(seconds="0.01"), step(seconds=4000), STATE, CLOSE], [("POST", "/step", {"action": {"seconds": 0}})]),
    "homebody": ([reset(seed=1), step(word="kitchen"), step(word=1), step(), STATE, reset(), STATE, CLOSE], [("POST", "/reset", {})]),
    "podium": ([reset(seed=1), step(name="a", points=1), step(name="b", points=3), step(name="c", points="2"), step(name="d"), STATE, CLOSE], []),
    "crossroads": ([reset(seed=1), step(way="north"), step(way="west"), step(where="x"), STATE, CLOSE], [("GET", "/extra", None), ("GET", "/extra/none", None)]),
    "brittle": ([reset(seed=1), step(), step(how="recursion"), step(how="memory"), STATE, step(how=1), CLOSE], []),
}
FIRST = [("GET", "/health", None), ("GET", "/schema", None), ("GET", "/metadata", None), ("GET", "/list_environments", None), ("POST", "/reset", {"seed": 3}), ("GET", "/state", None)]
#: What holds a process id.
DIFFERENT_KEYS = {"brittle": {"pid"}}
AT_HOME = {"observation": {"metadata": {}, "at_home": True, "visits": ["made", "reset"]}, "reward": None, "done": False, "metadata": None}
#: Where we answer otherwise than the reference on purpose. It makes the environment of an HTTP call on its event loop and calls it on a
#: pool of threads, which a thread-affine environment cannot stand; ours stays on one thread.
DIFFERENCES = {
    ("homebody", "POST /reset {'seed': 3}"): (200, "application/json", AT_HOME),
    ("homebody", "POST /reset {}"): (200, "application/json", AT_HOME),
}


def without(value, keys):
    if isinstance(value, dict):
        return {k: without(v, keys) for k, v in value.items() if k not in keys}
    return [without(item, keys) for item in value] if isinstance(value, list) else value


def conversation(base: str, package: str) -> list:
    """All answers of a server, socket first, normalised."""
    messages, calls = TALKS[package]
    answers = [list(pair) for pair in zip(messages, talk(base, messages))]
    assert len(answers) == len(messages)
    for method, path, body in (*FIRST, *calls):
        answer = request(method, base + path, **({"json": body} if body is not None else {}))
        kind = answer.headers.get("content-type", "")
        answers.append([f"{method} {path} {body}", answer.status_code, kind, normal(answer.json() if "json" in kind else answer.text)])
    return without(answers, DIFFERENT_KEYS.get(package, set()))


def copied(tmp_path: Path, package: str) -> Path:
    folder = tmp_path / package
    shutil.copytree(ENVS / package, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("package", TALKS)
def test_a_package_is_served_unedited_with_the_references_answers(package, serve, reference, tmp_path):
    folder = copied(tmp_path, package)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    theirs = conversation(reference("server.app:app", folder), package)
    ours = conversation(serve(folder).url, package)
    for mine, other in zip(ours, theirs):
        different = DIFFERENCES.get((package, str(mine[0])))
        assert mine == ([mine[0], *different] if different else other)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert after == before


def test_what_init_writes_is_served_unedited(serve, reference, tmp_path):
    environ = {"PATH": os.defpath, "HOME": str(tmp_path)}
    command = [reference_python().parent / "openenv", "init", "meadow_env", "-o", tmp_path]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    folder = tmp_path / "meadow_env"
    assert done.returncode == 0 and (folder / "openenv.yaml").is_file(), done.stdout + done.stderr
    messages = [reset(seed=1), step(message="Hello"), step(message="x" * 50), step(message=3), step(), STATE, CLOSE]
    calls = [*FIRST, ("POST", "/step", {"action": {"message": "a"}})]

    def answers(base: str) -> list:
        heard = [*talk(base, messages)]
        for method, path, body in calls:
            heard.append((path, normal(request(method, base + path, **({"json": body} if body is not None else {})).json())))
        return heard

    theirs = answers(reference("server.app:app", folder))
    for mine, other in zip(answers(serve(folder).url), theirs):
        assert mine == other


def own_routes(base: str) -> list:
    """Answers of crossroads' own routes, and of the environment beside them."""
    heard = []
    for method, path, options in (
        ("GET", "/extra", {}),
        ("POST", "/extra/echo?a=1&b=%20x", {"content": "é" * 100_000}),
        ("POST", "/extra/echo", {}),
        ("GET", "/extra/stream", {}),
        ("DELETE", "/extra", {}),
        ("GET", "/extra/none", {}),
    ):
        answer = request(method, base + path, **options)
        heard.append((path, answer.status_code, answer.headers.get("x-own"), answer.text))
    with contextlib.closing(open_socket(base.replace("http", "ws") + "/extra/socket")) as socket:
        for text in ("abc", "", "é" * 70_000):
            socket.send(text)
            heard.append(socket.recv(timeout=REPLY))
    return heard + talk(base, [reset(), step(way="on"), STATE])


def test_a_packages_own_routes_and_sockets_work(serve, reference, tmp_path):
    folder = copied(tmp_path, "crossroads")
    theirs = own_routes(reference("server.app:app", folder))
    server = serve(folder)
    assert own_routes(server.url) == theirs
    assert "/extra" in server.get("/openapi.json").json()["paths"]


# Ours alone.


def test_the_dependency_of_a_package_is_rigged_and_named_when_it_is_missing(serve, cli, tmp_path):
    folder = copied(tmp_path, "podium")
    assert talk(serve(folder).url, [reset()])[0]["data"]["observation"]["library"] == "2.4.0"
    project = folder / "pyproject.toml"
    project.write_text(project.read_text().replace('    "sortedcontainers==2.4.0",\n', ""))
    done = cli("serve", folder, "--port", "0")
    assert done.code not in (0, 101) and "sortedcontainers" in done.err and "panicked" not in done.err
    assert talk(serve(folder, "--with", "sortedcontainers==2.3.0").url, [reset()])[0]["data"]["observation"]["library"] == "2.3.0"


def test_the_reference_package_is_put_back_on_request(serve, tmp_path):
    folder = copied(tmp_path, "parrot")
    app = folder / "server" / "app.py"
    app.write_text(app.read_text() + "\nfrom openenv.core.harness.events import HarnessEventType  # in the whole package only\n")
    assert talk(serve(folder, "--reference").url, [reset(), step(message="a")])[1]["data"]["observation"]["said"] == "a"


def test_an_import_that_fails_names_the_module(cli, store, tmp_path):
    folder = copied(tmp_path, "parrot")
    app = folder / "server" / "app.py"
    app.write_text("import no_such_module_anywhere\n" + app.read_text())
    done = cli("serve", folder, "--port", "0")
    assert done.code not in (0, 101) and "no_such_module_anywhere" in done.err


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("openenv.yaml", "spec_version: [", "openenv.yaml"),
        ("openenv.yaml", "spec_version: 1\nname: parrot\napp: server.gone:app\n", "server.gone"),
        ("openenv.yaml", "spec_version: 1\nname: parrot\napp: server.app:nothing\n", "nothing"),
        ("pyproject.toml", "[project\n", "pyproject.toml"),
        ("server/app.py", "def broken(:\n", "app.py"),
        ("models.py", "import not_there_either\n", "not_there_either"),
    ],
    ids=lambda v: str(v)[:20],
)
def test_a_broken_package_is_named_with_its_place(file, text, named, cli, store, tmp_path):
    folder = copied(tmp_path, "parrot")
    (folder / file).write_text(text)
    done = cli("serve", folder, "--port", "0")
    assert done.code not in (0, 101) and named in done.err and "panicked" not in done.err, done.err


def test_an_environment_for_one_session_gets_a_process_for_each(serve, tmp_path):
    server = serve(copied(tmp_path, "lone"), "--max-sessions", "3")
    with server.session() as one, server.session() as two, server.session() as three:
        totals = []
        for n, session in enumerate((one, two, three)):
            session.reset(seed=n * 100)
        for _ in range(3):
            totals = [session.step(add=1)["data"]["observation"]["total"] for session in (one, two, three)]
        assert totals == [3, 103, 203]
    # The next session finds the module as it was loaded, not as the last one left it.
    with server.session() as fresh:
        assert fresh.step(add=1)["data"]["observation"]["total"] == 1


@pytest.mark.parametrize("concurrency", ["auto", "thread", "inline", "process"])
def test_a_thread_affine_environment_stays_on_its_thread(concurrency, serve, tmp_path):
    # In the package's folder: the host's /tmp is not there for its workers.
    folder = copied(tmp_path, "homebody")
    log = folder / "closed"
    server = serve(folder, "--concurrency", concurrency, env={"HOMEBODY_LOG": str(log)})
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(server.session()) for _ in range(4)]
        for n in range(5):
            for session in sessions:
                reply = (session.step(word=f"w{n}") if n else session.reset())["data"]["observation"]
                assert reply["at_home"] and reply["visits"] == ["made", "reset", *(f"w{i}" for i in range(1, n + 1))]
    assert server.stop() == 0
    assert set(log.read_text().split()) == {"home"} and log.read_text().count("home") >= 4


def test_slow_steps_of_many_sessions_run_at_once(serve, tmp_path):
    # Each step returns when 16 of them are under way: one after the other would never end.
    folder = copied(tmp_path, "tortoise")
    place = folder / "meeting"
    place.mkdir()
    server = serve(folder, "--max-sessions", "32", env={"TORTOISE_MEETING": str(place)})
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.session()) for _ in range(16)]
        for session in slow[1:]:
            session.reset()
            session.send(step(meet=16))
        # While 15 wait, others are answered.
        with server.session() as quick:
            for _ in range(10):
                assert quick.step(seconds=0.001)["data"]["observation"]["walked"] > 0
        assert server.get("/health").status_code == 200 and server.post("/reset").status_code == 200
        assert slow[0].step(meet=16)["type"] == "observation"
        assert [session.receive()["type"] for session in slow[1:]] == ["observation"] * 15


def test_a_factorys_arguments_come_from_the_environment_of_the_process(serve, tmp_path):
    server = serve(copied(tmp_path, "dice"), env={"DICE_SIDES": "2", "DICE_COUNT": "40"})
    reply = talk(server.url, [reset(seed=1)])[0]["data"]["observation"]
    assert reply["sides"] == 2 and len(reply["rolled"]) == 40 and set(reply["rolled"]) == {1, 2}


def test_types_with_to_json_and_from_json_cross(serve, tmp_path):
    server = serve(copied(tmp_path, "compass"))
    with server.session() as session:
        assert session.reset(seed=90)["data"]["observation"]["heading"] == {"degrees": 90}
        observation = session.step(turn_to={"degrees": 370})["data"]["observation"]
        assert observation["heading"] == {"degrees": 10} and observation["trail"] == [{"degrees": 90}]
        for bad in ({}, {"degrees": "north"}, "north", None):
            refused = session.step(turn_to=bad)
            assert refused["type"] == "error" and refused["data"]["code"] == "VALIDATION_ERROR", refused
        assert session.state()["data"] == {"episode_id": "compass", "step_count": 1, "heading": {"degrees": 10}}
    assert server.get("/schema").status_code == 200


@pytest.mark.parametrize("target", ["server.app:app", "server.parrot_environment:ParrotEnvironment"])
def test_a_module_is_served_from_the_current_directory(target, serve, tmp_path):
    server = serve(target, "--with", "pydantic", cwd=copied(tmp_path, "parrot"))
    assert talk(server.url, [reset(), step(message="a")])[1]["data"]["observation"]["said"] == "a"


def test_native_echo_and_gym_are_served(serve):
    server = serve("native:echo")
    assert server.get("/health").json() == {"status": "healthy"}
    assert talk(server.url, [reset(seed=1), STATE])[0]["type"] == "observation"
    server = serve("gym:CartPole-v1", "--with", "gymnasium==1.0.0")
    first, again = talk(server.url, [reset(seed=3), reset(seed=3)])
    assert first["type"] == "observation" and first == again
    action = server.get("/schema").json()["action"]["properties"]
    name = next(key for key in action if key != "metadata")
    with server.session() as session:
        session.reset(seed=3)
        done = 0
        while not session.step(**{name: 1})["data"]["done"]:
            done += 1
            assert done < 500
        assert session.step(**{name: 7})["type"] == "error"


def test_workers_share_the_sessions(serve, tmp_path):
    server = serve(copied(tmp_path, "brittle"), "--workers", "2", "--max-sessions", "8")
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(server.session()) for _ in range(8)]
        pids = {session.reset()["data"]["observation"]["pid"] for session in sessions}
        assert len(pids) >= 2 and server.process.pid not in pids
        with server.session() as ninth:
            assert ninth.receive()["data"]["code"] == "CAPACITY_REACHED"
