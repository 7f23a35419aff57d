"""Clients among loops, threads and processes, and by every way to a server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clients import (  # noqa: F401
    ACTIONS,
    between_fixture,
    connections_of,
    grounds_fixture,
    join,
    meadow_fixture,
    sessions_of,
    stock_fixture,
    until,
)
from conftest import write
from serving import REPLY, WITH, Lines, reference_fixture, serve_fixture, store_fixture  # noqa: F401
from websockets.sync.server import serve as serve_websocket

import envharness as eh

try:
    import uvloop
except ImportError:
    uvloop = None

#: The servers and what is spoken with them.
WAYS = {"v1": ("meadow", {}), "openenv": ("meadow", {"protocol": "openenv"}), "stock": ("stock", {})}
LOOK = {"do": "look"}


@pytest.fixture(params=WAYS)
def way(request):
    """Makes clients of a server."""
    fixture, settings = WAYS[request.param]
    server = request.getfixturevalue(fixture)
    return lambda **more: eh.GenericEnvClient(server, **settings, **more)


@pytest.fixture
def gate(grounds):
    """A step that goes on until it is let go."""
    return Gate(grounds / f"{os.urandom(4).hex()}.gate")


class Gate:
    def __init__(self, path: Path) -> None:
        self.path, self.step = path, {"do": "gate", "gate": str(path)}

    def wait(self) -> None:
        until(Path(f"{self.path}.began").exists, "the slow step")

    def open(self) -> None:
        self.path.touch()


@pytest.fixture
def child(tmp_path):
    """Starts a script in a process of its own; its lines are read as they come."""
    started = []

    def start(code: str, *args: str) -> tuple[subprocess.Popen, Lines]:
        script = write(tmp_path / "child.py", code)
        argv = [sys.executable, str(script), *args]
        process = subprocess.Popen(argv, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append((process, Lines(process.stdout)))
        return started[-1]

    yield start
    for process, lines in started:
        process.stdin.close()
        process.kill()
        process.wait()
        lines.thread.join(REPLY)


# Giving up.


@pytest.mark.parametrize("how", ["cancel", "wait_for"])
def test_a_cancelled_step_leaves_the_session_and_the_answers_right(how, way, gate):
    async def play():
        async with way() as env:
            await env.reset(seed=1)
            step = asyncio.ensure_future(env.step(gate.step))
            await asyncio.to_thread(gate.wait)
            if how == "cancel":
                step.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await step
            else:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(step, 0.01)
            assert env.is_connected
            after = asyncio.ensure_future(env.step(LOOK))
            gate.open()
            return (await after).observation["note"], (await env.state())["step_count"]

    assert asyncio.run(play()) == ("look 0", 2)


def test_a_late_answer_is_never_the_next_ones(way, gate):
    with way(request_timeout=1.5) as env:
        env.reset(seed=1)
        with pytest.raises(eh.RequestTimeout, match=r"within 1\.5 s") as caught:
            env.step(gate.step)
        assert isinstance(caught.value, TimeoutError) and env.is_connected
        gate.open()
        assert env.step(LOOK).observation["note"] == "look 0" and env.state()["step_count"] == 2


def test_ctrl_c_ends_a_blocking_call_and_not_the_session(meadow, gate, child):
    process, lines = child(
        """
        import sys
        import envharness as eh

        with eh.GenericEnvClient(sys.argv[1]) as env:
            env.reset(seed=1)
            try:
                env.step({"do": "gate", "gate": sys.argv[2]})
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            print(env.step({"do": "look"}).observation["note"], env.state()["step_count"])
        """,
        meadow.url,
        str(gate.path),
    )
    gate.wait()
    process.send_signal(signal.SIGINT)
    assert lines.find("(interrupted)", REPLY), lines.text()
    gate.open()
    assert lines.find(r"(look 0 2)", REPLY), lines.text()
    assert process.wait(REPLY) == 0


@pytest.mark.parametrize("how", ["time.sleep(3600)", "ctypes.PyDLL(None).sleep(3600)", "exec('while True: pass')"])
def test_pings_are_answered_whatever_python_does(how, child):
    busy, ponged = threading.Event(), []

    def handle(socket):
        socket.recv()
        socket.send('{"type": "observation", "data": {"observation": {}, "reward": null, "done": false}}')
        assert busy.wait(REPLY)
        ponged.extend(socket.ping().wait(REPLY) for _ in range(3))

    with serve_websocket(handle, "127.0.0.1", 0, ping_interval=None, close_timeout=0.1) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            code = f"""
            import ctypes, sys, time
            import envharness as eh

            env = eh.GenericEnvClient(sys.argv[1]).sync()
            env.reset()
            print("busy", flush=True)
            {how}
            """
            _, lines = child(code, f"http://127.0.0.1:{server.socket.getsockname()[1]}")
            assert lines.find("(busy)", REPLY), lines.text()
            busy.set()
            until(lambda: len(ponged) == 3, "pongs")
        finally:
            server.shutdown()
            thread.join(REPLY)
    assert ponged == [True] * 3


# Loops and threads.


async def play(client, seed=1):
    """An episode of a client that is closed afterwards."""
    async with client as env:
        flowers = [(await env.reset(seed=seed)).observation["flowers"]]
        flowers += [(await env.step(action)).observation["flowers"] for action in ACTIONS]
        return flowers, (await env.state())["step_count"]


@pytest.fixture
def expected(meadow):
    """What `play` gives for a seed."""
    return lambda seed=1: asyncio.run(play(eh.GenericEnvClient(meadow), seed))


def test_one_client_under_two_loops(way):
    client = way()

    async def begin():
        return (await client.reset(seed=1)).observation["note"]

    async def go_on():
        return (await client.step(LOOK)).observation["note"], (await client.state())["step_count"]

    assert asyncio.run(begin()) == "[]"
    assert asyncio.run(go_on()) == ("look 0", 1) and asyncio.run(go_on()) == ("look 0", 2)
    asyncio.run(client.close())


def test_an_uvloop_is_a_loop(way, expected):
    if uvloop is None:
        pytest.skip("uvloop has no wheel here")
    loop = uvloop.new_event_loop()
    try:
        assert loop.run_until_complete(play(way())) == expected()
    finally:
        loop.close()


def test_the_blocking_face_inside_a_running_loop(way, expected):
    async def cell():
        env = way().sync()
        with env:
            flowers = [env.reset(seed=1).observation["flowers"], *(env.step(action).observation["flowers"] for action in ACTIONS)]
            return flowers, (await env.async_client.state())["step_count"]

    assert asyncio.run(cell()) == expected()


def test_threads_with_loops_of_their_own(way, expected):
    with ThreadPoolExecutor(4) as pool:
        heard = list(pool.map(lambda seed: asyncio.run(play(way(), seed)), range(8)))
    assert heard == [expected(seed) for seed in range(8)]


def test_one_client_by_many_threads_has_one_session(way):
    with ThreadPoolExecutor(8) as pool:
        env = way().sync()
        # It connects by whichever comes first.
        list(pool.map(lambda _: env.step(LOOK), range(80)))
        assert env.state()["step_count"] == 80
        env.close()


def test_calls_at_once_of_one_loop_share_the_session_that_is_being_opened(way):
    async def many():
        client = way()
        await asyncio.gather(*(client.step(LOOK) for _ in range(12)))
        async with client as env:
            return (await env.state())["step_count"]

    async def first():
        client = way()
        opening = [asyncio.ensure_future(client.step(LOOK)) for _ in range(3)]
        await asyncio.sleep(0)
        opening[0].cancel()
        done = await asyncio.gather(*opening, return_exceptions=True)
        await client.close()
        return [type(one).__name__ for one in done]

    assert asyncio.run(many()) == 12
    assert asyncio.run(first()) == ["CancelledError", "StepResult", "StepResult"]


# Sessions and connections.


def test_many_sessions_share_a_connection(serve, grounds):
    server = serve("meadow:app", *WITH, "--max-sessions", "16", cwd=grounds)

    async def v1():
        async with eh.GenericEnvClient(server) as env:
            others = [await env.new_session() for _ in range(4)]
            ids = {env.session_id, *(other.session_id for other in others)}
            await asyncio.gather(*(other.reset(seed=n) for n, other in enumerate(others)))
            await others[0].step(LOOK)
            states = [(await other.state())["step_count"] for other in others]
            return len(ids), states, sessions_of(server), connections_of(server)

    assert asyncio.run(v1()) == (5, [1, 0, 0, 0], 5, 1)
    # They end with the first, and the connection with the last.
    until(lambda: sessions_of(server) == 0, "the end of the sessions")
    until(lambda: connections_of(server) == 0, "the end of the connection")
    with eh.GenericEnvClient(server, protocol="openenv") as env:
        others = [env.new_session() for _ in range(3)]
        assert all(other.reset(seed=1).observation["note"] == "[]" for other in others)
        until(lambda: (sessions_of(server), connections_of(server)) == (4, 4), "sessions")
    until(lambda: (sessions_of(server), connections_of(server)) == (0, 0), "their end")


@pytest.mark.parametrize("name", ["v1", "openenv"])
def test_a_client_that_is_dropped_ends_its_session(name, serve, grounds):
    server = serve("meadow:app", *WITH, "--resume-timeout", "1h", cwd=grounds)
    env = eh.GenericEnvClient(server, **WAYS[name][1]).sync()
    env.reset()
    children = [env.new_session() for _ in range(3)]
    until(lambda: sessions_of(server) == 4, "sessions")
    children.pop()
    gc.collect()
    until(lambda: sessions_of(server) == 3, "the end of one")
    del env, children
    gc.collect()
    until(lambda: sessions_of(server) == 0, "the end of all")


class Line:
    """A way to a server that can be cut, and can lead to another."""

    def __init__(self, port: int) -> None:
        self.port, self.writers = port, []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(OSError):
            await join(reader, writer, self.port)

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()


def test_a_broken_connection_loses_and_doubles_no_step(meadow, between, gate, caplog):
    line = Line(meadow.port)
    url = f"http://127.0.0.1:{between(line.handle)}"

    async def play():
        async with eh.GenericEnvClient(url) as env, eh.GenericEnvClient(url, protocol="openenv") as other:
            await env.reset(seed=1)
            await other.reset(seed=1)
            step = asyncio.ensure_future(env.step(gate.step))
            await asyncio.to_thread(gate.wait)
            between.call(line.cut)
            gate.open()
            assert (await step).observation["note"] == "late" and (await env.step(LOOK)).observation["note"] == "look 0"
            # OpenEnv's protocol has no way to come back.
            with pytest.raises(eh.SessionLost):
                await other.step(LOOK)
            assert not other.is_connected and (await other.reset(seed=1)).observation["note"] == "[]"
            told = (await env.state())["step_count"], env.reconnects
            with caplog.at_level("INFO", "envharness.client"):
                await env.reset()
            return told

    assert asyncio.run(play()) == (2, 1)
    assert "nothing was lost" in caplog.text and "the last one was lost" in caplog.text


@pytest.mark.parametrize("name", ["v1", "openenv"])
def test_a_killed_server_costs_the_session_and_another_takes_its_place(name, meadow, serve, grounds, between):
    server = serve("meadow:app", *WITH, cwd=grounds)
    line = Line(server.port)
    url = f"http://127.0.0.1:{between(line.handle)}"
    with eh.GenericEnvClient(url, reconnect_timeout=0.5, **WAYS[name][1]) as env:
        env.reset()
        server.kill()
        with pytest.raises(eh.SessionLost):
            env.step(LOOK)
        with pytest.raises(eh.ClientError):
            env.reset()
        line.port = meadow.port
        assert env.reset(seed=1).observation["note"] == "[]" and env.step(LOOK).observation["note"] == "look 0"


def test_blocks_and_await_connect_and_end(way):
    async def both():
        client = await way()
        assert client.is_connected
        await client.close()
        async with way() as env:
            assert env.is_connected
        return env.is_connected or client.is_connected

    assert asyncio.run(both()) is False
    with way() as env, way().sync() as other:
        assert env.is_connected and other.is_connected and type(env) is type(other) is eh.SyncEnvClient
    assert not env.is_connected and not other.is_connected
    lazy = way().sync()
    assert lazy.step(LOOK).observation["note"] == "look 0"
    lazy.close()


# Processes.

SCRIPT = """
import json, multiprocessing, os, pickle, sys
import envharness as eh

def play(client):
    with client.sync() as env:
        return env.reset(seed=1).observation["flowers"], env.step({"do": "pick", "n": 1}).observation["flowers"], os.getpid()
"""


def test_a_pickled_client_is_one_of_the_same_server(way, expected):
    client = way(observation=None, request_timeout=50.0)
    with client:
        for one in (client, client.sync()):
            copy = pickle.loads(pickle.dumps(one))
            assert type(copy) is type(one) and not copy.is_connected and copy.base_url == client.base_url
    assert asyncio.run(play(pickle.loads(pickle.dumps(client)))) == expected()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_clients_go_to_the_processes_of_a_pool(method, way, script, expected):
    code = f"""{SCRIPT}
if __name__ == "__main__":
    client = pickle.loads(bytes.fromhex(sys.argv[1]))
    with pickle.loads(pickle.dumps(client)) as mine:
        mine.reset(seed=1)
        with multiprocessing.get_context({method!r}).Pool(2) as pool:
            heard = pool.map(play, [client] * 4)
        mine.step({{"do": "look"}})
        print(json.dumps([heard, mine.state()["step_count"], os.getpid()]))
"""
    heard, count, parent = script(code, pickle.dumps(way()).hex()).ok().json
    assert [one[:2] for one in heard] == [list(expected()[0][:2])] * 4 and count == 1
    assert parent not in {one[2] for one in heard}


def test_a_forked_child_has_a_session_of_its_own(way, script):
    code = f"""{SCRIPT}
client = pickle.loads(bytes.fromhex(sys.argv[1]))
env = client.sync()
env.reset(seed=1)
read, write = os.pipe()
if os.fork() == 0:
    told = [env.is_connected]
    try:
        env.step({{"do": "look"}})
    except eh.SessionLost as error:
        told.append(str(error))
    env.reset(seed=2)
    env.step({{"do": "look"}})
    told += [env.state()["step_count"], env.is_connected]
    os.write(write, json.dumps(told).encode())
    sys.exit()
os.close(write)
told = json.loads(os.read(read, 10_000))
os.wait()
env.step({{"do": "look"}})
env.step({{"do": "look"}})
print(json.dumps([told, env.state()["step_count"]]))
"""
    told, count = script(code, pickle.dumps(way()).hex()).ok().json
    assert told[0] is False and "forked" in told[1] and told[2:] == [1, True]
    assert count == 2


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise RuntimeError", "threading.Thread(target=threading.Event().wait, daemon=True).start()"])
@pytest.mark.parametrize("name", ["v1", "openenv"])
def test_an_interpreter_that_exits_ends_its_sessions(name, end, serve, grounds, child):
    # Had they waited for their client to come back, it would be for longer than the test.
    server = serve("meadow:app", *WITH, "--max-sessions", "16", "--resume-timeout", "1h", cwd=grounds)
    code = f"""
    import sys, threading
    import envharness as eh

    envs = [eh.GenericEnvClient(sys.argv[1], **{WAYS[name][1]}).sync() for _ in range(3)]
    for env in envs:
        env.reset()
    print("ready", flush=True)
    sys.stdin.readline()
    {end}
    """
    process, lines = child(code, server.url)
    assert lines.find("(ready)", REPLY) and sessions_of(server) == 3, lines.text()
    process.stdin.close()
    process.wait(REPLY)
    until(lambda: sessions_of(server) == 0, "their end")
