"""Connections that break and servers that end: no step is lost, none is taken twice, and nobody hangs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading

import pytest
from clients import Loop, sessions_of, until
from conftest import BIN, clean_environ, write
from serving import END, REPLY, ROUNDS, Server, running, shared_home

import envharness as eh

#: How many connections are broken in each of the random tests.
DROPS = 150 if ROUNDS == 1 else 100 * ROUNDS
SEED = int(os.environ.get("ENVHARNESS_FAULT_SEED", "1"))

DIARY = '''
"""Writes down each step that it takes."""

import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Entry:
    n: int = 0


@dataclass
class Seen:
    n: int = 0
    count: int = 0
    reward: float = 0.0
    done: bool = False


@dataclass
class Pages:
    entries: list = field(default_factory=list)
    resets: int = 0


class Diary:
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        self.pages = Pages()

    def reset(self, seed: int = 0) -> Seen:
        self.pages = Pages([], self.pages.resets + 1)
        return Seen(seed)

    def step(self, action: Entry) -> Seen:
        self.pages.entries.append(action.n)
        return Seen(action.n, len(self.pages.entries), float(action.n))

    @property
    def state(self) -> Pages:
        return self.pages


class Slow(Diary):
    """Is there when its gate is."""

    def __init__(self):
        super().__init__()
        gate = Path(__file__).parent / "slow.gate"
        gate.with_suffix(".began").touch()
        while not gate.exists():
            time.sleep(0.005)
'''


class Proxy:
    """Passes a connection on, and breaks it where the dice say: around one of the first messages after its handshake."""

    PLACES = ("before the request", "within the request", "after the request", "within the reply", "after the reply")

    def __init__(self, port: int, seed: int) -> None:
        self.port, self.dice = port, random.Random(seed)
        self.wild, self.shut = False, False
        self.drops = 0
        self.loop = Loop()
        self.url = f"http://127.0.0.1:{self.loop.listen(self.accept)}"

    def stop(self) -> None:
        self.loop.close()

    def drop_all(self) -> None:
        self.loop.drop_all()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = None
        try:
            if self.shut:
                return
            back, there = await asyncio.open_connection("127.0.0.1", self.port)
            await self.carry(reader, writer, back, there)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, there):
                if one is not None:
                    one.transport.abort()

    async def carry(self, reader, writer, back, there) -> None:
        there.write(await reader.readuntil(b"\r\n\r\n"))
        writer.write(await back.readuntil(b"\r\n\r\n"))
        # How many requests pass before it breaks; a request is what the client writes at once.
        passes = self.dice.choice((0, 0, 1, 1, 2, 3, 5, 9))
        place = self.dice.choice(self.PLACES)
        broken = asyncio.Event()
        state = {"left": passes, "due": False}

        async def up():
            while data := await reader.read(65_536):
                if self.wild and not state["due"]:
                    state["left"] -= 1
                    if state["left"] < 0:
                        if place == "before the request":
                            break
                        if place == "within the request":
                            there.write(data[: self.dice.randrange(len(data))])
                            await there.drain()
                            break
                        state["due"] = True
                there.write(data)
                await there.drain()
                if state["due"] and place == "after the request":
                    break
            broken.set()

        async def down():
            while data := await back.read(65_536):
                if state["due"]:
                    writer.write(data if place == "after the reply" else data[: self.dice.randrange(len(data))])
                    await writer.drain()
                    break
                writer.write(data)
                await writer.drain()
            broken.set()

        both = [asyncio.ensure_future(up()), asyncio.ensure_future(down())]
        try:
            await broken.wait()
        finally:
            if state["left"] < 0:
                self.drops += 1
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diary")
    write(folder / "diary.py", DIARY)
    return folder


@pytest.fixture
def launch(folder, tmp_path_factory):
    """Starts a server of the diary, on a port of its own or on one that was another's."""
    with contextlib.ExitStack() as stack:

        def start(*args, port=0, target="diary:Diary"):
            argv = [BIN / "envharness", "serve", target, "--port", port, "--max-sessions", 64, *args]
            return stack.enter_context(running(Server([*map(str, argv)], clean_environ(shared_home(tmp_path_factory)), folder, "stdout")))

        yield start


@pytest.fixture
def through():
    """A proxy in front of a server."""
    with contextlib.ExitStack() as stack:

        def make(server, seed=0):
            proxy = Proxy(server.port, SEED * 1000 + seed)
            stack.callback(proxy.stop)
            return proxy

        yield make


def watched(work) -> None:
    """Runs it in a thread; one that hangs is said to."""
    failed = []

    def run():
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(REPLY + DROPS)
    assert not thread.is_alive(), "it hangs"
    if failed:
        raise failed[0]


# Connections that break at random.


def test_no_step_of_a_session_is_lost_or_doubled(launch, through):
    proxy = through(launch())

    def play():
        with eh.GenericEnvClient(proxy.url) as env:
            env.reset(seed=3)
            proxy.wild = True
            for n in itertools.count(1):
                seen = env.step({"n": n})
                assert (seen.observation["n"], seen.observation["count"], seen.reward) == (n, n, n)
                if proxy.drops >= DROPS:
                    break
            proxy.wild = False
            assert env.state() == {"entries": list(range(1, n + 1)), "resets": 1}
            assert env.reconnects == proxy.drops

    watched(play)


def test_no_step_of_many_sessions_on_a_connection_is_lost_or_doubled(launch, through):
    proxy = through(launch(), 1)

    async def session(number: int) -> None:
        async with eh.GenericEnvClient(proxy.url) as env:
            await env.reset()
            proxy.wild = True
            entries = []
            while proxy.drops < DROPS:
                # Several at once: they are taken in the order in which they were asked for.
                fresh = [number * 1_000_000 + len(entries) + n for n in range(1 + len(entries) % 4)]
                seen = await asyncio.gather(*(env.step({"n": n}) for n in fresh))
                assert [result.observation["n"] for result in seen] == fresh
                entries += fresh
                assert [result.observation["count"] for result in seen] == list(range(len(entries) - len(fresh) + 1, len(entries) + 1))
            proxy.wild = False
            assert await env.state() == {"entries": entries, "resets": 1}
            assert env.protocol == "envharness.v1"

    async def all_of_them():
        await asyncio.gather(*(session(number) for number in range(8)))

    watched(lambda: asyncio.run(all_of_them()))


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_no_step_of_a_vector_is_lost_or_doubled(encoding, launch, through):
    proxy = through(launch(), 2)

    def play():
        with eh.VectorClient(proxy.url, 8, encoding=encoding) as envs:
            envs.reset(seeds=1).raise_errors()
            proxy.wild = True
            for turn in itertools.count(1):
                wanted = [slot * 1_000_000 + turn for slot in range(8)]
                if turn % 5:
                    result = envs.step([{"n": n} for n in wanted]).raise_errors()
                    seen = dict(zip(result.slots, result.observations))
                else:
                    # One by one, first ready first.
                    envs.send([{"n": n} for n in wanted])
                    seen = {}
                    while len(seen) < 8:
                        result = envs.recv(1).raise_errors()
                        seen.update(zip(result.slots, result.observations))
                assert [seen[slot]["n"] for slot in range(8)] == wanted
                assert {seen[slot]["count"] for slot in range(8)} == {turn}
                if proxy.drops >= DROPS:
                    break
            proxy.wild = False

    watched(play)


def test_sessions_that_open_and_close_while_connections_break_leave_nothing_behind(launch, through):
    server = launch("--resume-timeout", "2s")
    proxy = through(server, 3)
    proxy.wild = True

    def play():
        opened = 0
        while proxy.drops < DROPS // 3:
            try:
                with eh.VectorClient(proxy.url, 4, request_timeout=REPLY) as envs:
                    opened += 1
                    envs.reset().raise_errors()
            except eh.ConnectError:
                # Before there is a session, a connection that breaks again and again is told.
                continue
        assert opened

    watched(play)
    until(lambda: sessions_of(server) == 0, "the sessions end")


@pytest.mark.parametrize("how", ["cancelled", "late"])
def test_an_opening_whose_caller_gave_up_leaves_no_session(how, launch, folder):
    gate, began = folder / "slow.gate", folder / "slow.began"
    gate.touch()
    server = launch(target="diary:Slow")
    settings = {"connect_timeout": 0.5, "request_timeout": 0.5 if how == "late" else REPLY}

    async def play():
        # The connection lives on by this one.
        async with eh.GenericEnvClient(server.url, **settings) as env:
            gate.unlink()
            began.unlink()
            opening = asyncio.ensure_future(eh.GenericEnvClient(server.url, **settings).connect())
            await asyncio.to_thread(until, began.exists, "the opening")
            if how == "cancelled":
                opening.cancel()
            with pytest.raises(asyncio.CancelledError if how == "cancelled" else eh.RequestTimeout):
                await opening
            gate.touch()
            await asyncio.to_thread(until, lambda: sessions_of(server) == 1, "one session is left")
            assert (await env.reset(seed=4)).observation["n"] == 4

    watched(lambda: asyncio.run(play()))


# Servers that end.


def test_a_server_that_was_killed_and_started_anew(launch):
    server = launch()
    one, two, three = (eh.GenericEnvClient(server.url).sync() for _ in range(3))
    stock = eh.GenericEnvClient(server.url, protocol="openenv").sync()
    envs = eh.VectorClient(server.url, 4)
    everyone = (one, two, three, stock)

    def play():
        for env in everyone:
            env.reset()
            env.step({"n": 1})
        envs.reset().raise_errors()
        server.kill()
        again = launch(port=server.port)
        for env in (one, stock):
            with pytest.raises(eh.SessionLost):
                env.step({"n": 2})
        # Its session has the number that another's had on the server before: that one must not come into it.
        for env in (one, stock):
            assert env.reset().observation["count"] == 0
        with one.new_session() as child, one.new_session() as other:
            for env in (child, other):
                env.reset()
            for env in (two, three):
                with pytest.raises(eh.SessionLost):
                    env.step({"n": 99})
                env.close()
            assert child.step({"n": 5}).observation == {"n": 5, "count": 1} and other.state()["entries"] == []
            result = envs.step([{"n": 2}] * 4)
            assert sorted(result.errors) == [0, 1, 2, 3]
            assert all(isinstance(error, eh.SessionLost) for error in result.errors.values())
            assert not envs.reset().errors and not envs.step([{"n": 2}] * 4).errors
            assert child.step({"n": 6}).observation == {"n": 6, "count": 2}
        for env in (one, stock, envs):
            env.close()
        until(lambda: sessions_of(again) == 0, "the sessions end")

    watched(play)


def test_a_reset_that_finds_its_session_lost_begins_in_another(launch):
    server = launch()
    clients = [eh.GenericEnvClient(server.url, protocol=protocol).sync() for protocol in ("envharness.v1", "openenv")]

    async def awaited(protocol):
        async with eh.GenericEnvClient(server.url, protocol=protocol) as env:
            await env.reset()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(launch, port=server.port)
            return (await env.reset(seed=6)).observation["n"]

    def play():
        for env in clients:
            env.reset()
        assert asyncio.run(awaited("envharness.v1")) == 6
        for env in clients:
            assert env.reset(seed=5).observation["n"] == 5
            env.close()

    watched(play)


def test_a_server_that_is_not_there_any_more_is_told(launch):
    server = launch("--resume-timeout", "1s")
    env, envs = eh.GenericEnvClient(server.url).sync(), eh.VectorClient(server.url, 2)

    def play():
        env.reset()
        envs.reset()
        server.kill()
        with pytest.raises(eh.SessionLost):
            env.step({"n": 1})
        assert all(isinstance(error, eh.SessionLost) for error in envs.step([{"n": 1}] * 2).errors.values())
        with pytest.raises(eh.ConnectError):
            env.reset()
        assert set(envs.reset().errors) == {0, 1}
        env.close()
        envs.close()

    watched(play)


def test_a_server_that_drains_hands_its_sessions_to_another(launch):
    one, two = launch("--drain-timeout", "1s"), launch()
    envs = eh.VectorClient([one.url, two.url], 8)
    env = eh.GenericEnvClient(one.url).sync()

    def play():
        envs.reset().raise_errors()
        env.reset()
        assert sessions_of(two) == 4
        assert one.stop() == 0
        with pytest.raises(eh.SessionLost):
            env.step({"n": 1})
        with pytest.raises(eh.ConnectError):
            env.reset()
        result = envs.step([{"n": n} for n in range(8)])
        assert len(result.errors) == 4 and all(isinstance(error, eh.SessionLost) for error in result.errors.values())
        assert not envs.reset(slots=sorted(result.errors)).errors
        assert sessions_of(two) == 8
        kept = [slot for slot in range(8) if slot not in result.errors]
        after = envs.step([{"n": n} for n in range(8)]).raise_errors()
        assert [after.observations[slot]["count"] for slot in kept] == [2] * 4
        envs.close()
        env.close()

    watched(play)


def test_a_connection_that_is_gone_for_longer_than_the_server_waits(launch, through):
    server = launch("--resume-timeout", "1s")
    proxy = through(server)
    env = eh.GenericEnvClient(proxy.url).sync()

    def play():
        env.reset()
        env.step({"n": 1})
        proxy.shut = True
        proxy.drop_all()
        until(lambda: sessions_of(server) == 0, "the session ends")
        proxy.shut = False
        with pytest.raises(eh.SessionLost):
            env.step({"n": 2})
        with pytest.raises(eh.SessionLost):
            env.step({"n": 2})
        assert env.reset().observation["count"] == 0
        assert env.state() == {"entries": [], "resets": 1}
        env.close()

    watched(play)


def test_a_connection_of_openenvs_protocol_that_breaks_costs_its_session(launch, through):
    proxy = through(launch())
    env = eh.GenericEnvClient(proxy.url, protocol="openenv").sync()

    def play():
        env.reset()
        for n in (1, 2):
            env.step({"n": n})
        proxy.drop_all()
        for call in (lambda: env.step({"n": 3}), env.state, lambda: env.step({"n": 3})):
            with pytest.raises(eh.SessionLost):
                call()
        assert not env.is_connected
        assert env.reset().observation["count"] == 0 and env.step({"n": 7}).observation["count"] == 1
        env.close()

    watched(play)


# Clients that end.

CLIENT = """
import sys
import envharness as eh

url, protocol, how = sys.argv[1:]
envs = [eh.GenericEnvClient(url, protocol=protocol).sync() for _ in range(4)]
for env in envs:
    env.reset()
    env.step({"n": 1})
print("ready", flush=True)
sys.stdin.readline()
if how == "raises":
    raise SystemExit(1)
if how == "closes":
    for env in envs:
        env.close()
"""


@pytest.fixture
def client(folder):
    """A client in a process of its own, with four sessions."""
    with contextlib.ExitStack() as stack:

        def start(server, protocol, how):
            pipe = subprocess.PIPE
            argv = [sys.executable, "-c", CLIENT, server.url, protocol, how]
            process = stack.enter_context(subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True))
            stack.callback(process.kill)
            assert process.stdout.readline() == "ready\n"
            assert sessions_of(server) == 4
            return process

        yield start


@pytest.mark.parametrize("protocol", ["envharness.v1", "openenv"])
def test_a_client_that_is_killed_gives_its_sessions_back_in_time(protocol, launch, client):
    server = launch("--resume-timeout", "1s")
    process = client(server, protocol, "stays")
    process.send_signal(signal.SIGKILL)
    process.wait(END)
    until(lambda: sessions_of(server) == 0, "the sessions end")


@pytest.mark.parametrize("how", ["closes", "ends", "raises"])
@pytest.mark.parametrize("protocol", ["envharness.v1", "openenv"])
def test_a_client_that_ends_in_order_gives_its_sessions_back_at_once(protocol, how, launch, client):
    server = launch("--resume-timeout", "1h")
    process = client(server, protocol, how)
    process.communicate("go\n", timeout=END)
    until(lambda: sessions_of(server) == 0, "the sessions end")


FORKS = """
import itertools, os, sys, threading
import envharness as eh

url, forks = sys.argv[1], int(sys.argv[2])
over = threading.Event()

def come_and_go(name):
    # Settings of its own each time, so that connections are made and not shared.
    for n in itertools.count():
        if over.is_set():
            return
        with eh.GenericEnvClient(url, headers={"x": "%s-%d" % (name, n)}).sync() as env:
            env.reset()

threads = [threading.Thread(target=come_and_go, args=(name,)) for name in range(3)]
for thread in threads:
    thread.start()
mine = eh.GenericEnvClient(url).sync()
mine.reset()
for n in range(forks):
    child = os.fork()
    if not child:
        with eh.GenericEnvClient(url).sync() as env:
            os._exit(0 if env.reset(seed=n).observation["n"] == n else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    assert mine.step({"n": n}).observation == {"n": n, "count": n + 1}
over.set()
for thread in threads:
    thread.join()
mine.close()
"""


def test_a_fork_in_the_middle_of_other_threads_connections(launch):
    server = launch("--resume-timeout", "2s")
    argv = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS, server.url, str(20 * min(ROUNDS, 20))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=REPLY * 5, check=False)
    assert done.returncode == 0, done.stderr
    until(lambda: sessions_of(server) == 0, "the sessions end")
