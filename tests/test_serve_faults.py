"""Environments that die and hang: their own sessions hear of it in time, all others go on, and capacity is exact afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
from serving import END, ENVS, REPLY, ROUNDS, Session, descendants, serve_fixture, store_fixture  # noqa: F401
from websockets.exceptions import ConnectionClosed
from wire import admitted

SESSIONS = 8
DEATHS = ["sigkill", "sigsegv", "sigabrt", "sigbus", "exit", "overflow"]
HANGS = ["busy", "sleep", "deaf", "gil", "stop"]
#: What an author's exception does: it is the session's answer, and nobody dies.
RAISES = ["recursion", "memory", "sys_exit"]


@pytest.fixture
def brittle(serve, tmp_path):
    """A server of the brittle environment with two workers, and the folder its orders lie in."""
    # The orders lie in the package's folder, which its workers see wherever it is.
    folder = tmp_path / "brittle"
    shutil.copytree(ENVS / "brittle", folder)
    orders = folder / "orders"
    orders.mkdir()

    def get(*args, sessions=SESSIONS, workers=2, env=None):
        environ = {"BRITTLE_ORDERS": str(orders), **(env or {})}
        return serve(folder, "--workers", workers, "--max-sessions", sessions, *args, env=environ)

    get.orders = orders
    return get


class Group:
    """Sessions over workers: who shares a process with whom."""

    def __init__(self, server, count: int) -> None:
        self.server = server
        self.sessions = [Session(server.ws_url + "/ws") for _ in range(count)]
        self.pids = [session.reset(seed=n * 1000)["data"]["observation"]["pid"] for n, session in enumerate(self.sessions)]
        self.steps = [0] * count

    def mates(self, n: int) -> list[int]:
        """Those in the process of session n, itself included."""
        return [m for m, pid in enumerate(self.pids) if pid == self.pids[n]]

    def step(self, n: int) -> None:
        """Session n goes on exactly where an undisturbed one would."""
        reply = self.sessions[n].step()
        self.steps[n] += 1
        wanted = n * 1000 + self.steps[n]
        assert reply == {"type": "observation", "data": {"observation": {"metadata": {}, "count": wanted, "pid": self.pids[n]}, "reward": wanted, "done": False}}

    def lost(self, n: int, *codes: str) -> dict:
        """Session n hears why it ends, then is closed."""
        reply = self.sessions[n].receive()
        assert reply["type"] == "error" and reply["data"]["code"] in codes, reply
        assert {"code", "message", "retryable", "session_id"} <= reply["data"].keys() and reply["data"]["message"]
        assert isinstance(reply["data"]["retryable"], bool)
        with pytest.raises(ConnectionClosed):
            self.sessions[n].receive()
        return reply["data"]

    def close(self) -> None:
        for session in self.sessions:
            session.socket.close()


def check_capacity(server, sessions: int) -> None:
    """All slots can be had again, and not one more."""
    held = [admitted(server.ws_url + "/ws", END) for _ in range(sessions)]
    try:
        with Session(server.ws_url + "/ws") as one_more:
            refusal = one_more.receive()["data"]
            assert refusal["code"] == "CAPACITY_REACHED" and refusal["active_sessions"] == refusal["max_sessions"] == sessions
    finally:
        for socket in held:
            socket.close()


def disturb(server, victim: int, message: dict, codes: tuple[str, ...]) -> list[dict]:
    """Eight sessions, one of which is ended by its message: what the lost ones heard."""
    group = Group(server, SESSIONS)
    try:
        assert len(set(group.pids)) >= 2
        mates = group.mates(victim)
        others = [n for n in range(SESSIONS) if n not in mates]
        for n in range(SESSIONS):
            group.step(n)
        group.sessions[victim].send(message)
        for _ in range(20):
            for n in others:
                group.step(n)
        told = [group.lost(n, *codes) for n in [victim, *(n for n in mates if n != victim)]]
        assert len({data["session_id"] for data in told}) == len(told)
        for _ in range(20):
            for n in others:
                group.step(n)
        return told
    finally:
        group.close()


@pytest.mark.parametrize("how", DEATHS)
def test_a_death_in_step_costs_the_workers_sessions_and_no_others(how, brittle):
    server = brittle("--concurrency", "thread")
    for number in range(ROUNDS):
        victim = number % SESSIONS
        if how == "overflow":
            # Interpreters that count the C stack's depth raise; the others die.
            with server.session() as session:
                session.reset()
                reply = session.step(how="overflow")
                assert reply["data"]["code"] in ("WORKER_DIED", "EXECUTION_ERROR"), reply
        else:
            told = disturb(server, victim, {"type": "step", "data": {"how": how}}, ("WORKER_DIED",))
            name = {"exit": "exit", "sigkill": "SIGKILL", "sigsegv": "SIGSEGV", "sigabrt": "SIGABRT", "sigbus": "SIGBUS"}[how]
            assert all(name.lower() in data["message"].lower() for data in told), told
        check_capacity(server, SESSIONS)
    assert "panicked" not in server.stderr()


@pytest.mark.parametrize("how", DEATHS[:2] + DEATHS[4:5])
def test_a_death_in_reset(how, brittle):
    server = brittle("--concurrency", "thread")
    for number in range(ROUNDS):
        disturb(server, number % SESSIONS, {"type": "reset", "data": {"how": how}}, ("WORKER_DIED",))
        check_capacity(server, SESSIONS)


@pytest.mark.parametrize("how", DEATHS[:2] + DEATHS[4:5])
def test_a_death_in_close_costs_the_workers_sessions_and_no_others(how, brittle):
    server = brittle("--concurrency", "thread")
    for _ in range(ROUNDS):
        group = Group(server, SESSIONS)
        try:
            mates = group.mates(0)
            (brittle.orders / "close").write_text(how)
            group.sessions[0].send({"type": "close"})
            for n in mates[1:]:
                group.lost(n, "WORKER_DIED")
            for n in range(SESSIONS):
                if n not in mates:
                    group.step(n)
        finally:
            group.close()
        check_capacity(server, SESSIONS)
        assert not (brittle.orders / "close").exists()


@pytest.mark.parametrize("how", DEATHS[:2] + DEATHS[4:5])
def test_a_death_in_the_constructor_fails_that_session_and_capacity_stays(how, brittle):
    server = brittle("--concurrency", "thread")
    for _ in range(ROUNDS):
        (brittle.orders / "init").write_text(how)
        with server.session() as session:
            with contextlib.suppress(ConnectionClosed):
                session.send({"type": "reset"})
            reply = session.receive()
            assert reply["type"] == "error" and reply["data"]["code"] in ("WORKER_DIED", "FACTORY_ERROR"), reply
            with pytest.raises(ConnectionClosed):
                session.receive()
        assert not (brittle.orders / "init").exists()
        check_capacity(server, SESSIONS)


def test_a_class_that_killed_its_worker_is_still_served(brittle):
    # Workers are replaced again and again; what was killed in one process is gone for its sessions alone.
    server = brittle("--concurrency", "auto", sessions=2, workers=1)
    for number in range(5 * ROUNDS):
        with admitted_session(server) as session:
            assert session.reset(seed=number)["data"]["observation"]["count"] == number
            assert session.step(how="sigkill")["data"]["code"] == "WORKER_DIED"
    check_capacity(server, 2)


@contextlib.contextmanager
def admitted_session(server):
    session = Session.__new__(Session)
    session.socket = admitted(server.ws_url + "/ws", END)
    with session:
        yield session


@pytest.mark.parametrize("how", RAISES)
def test_an_exception_is_an_answer_and_nobody_dies(how, brittle):
    server = brittle("--concurrency", "thread", workers=1)
    with server.session() as session, server.session() as other:
        pid = session.reset()["data"]["observation"]["pid"]
        other.reset()
        reply = session.step(how=how)
        assert reply["type"] == "error" and reply["data"]["code"] == "EXECUTION_ERROR", reply
        assert session.step()["data"]["observation"] == {"metadata": {}, "count": 2, "pid": pid}
        assert other.step()["data"]["observation"]["count"] == 1


def test_a_worker_killed_between_requests_is_told_at_once(brittle):
    # The kernel's kill for memory looks like this from outside.
    server = brittle("--concurrency", "thread")
    group = Group(server, SESSIONS)
    try:
        os.kill(group.pids[0], signal.SIGKILL)
        for n in range(SESSIONS):
            if n in group.mates(0):
                assert "sigkill" in group.lost(n, "WORKER_DIED")["message"].lower()
            else:
                group.step(n)
    finally:
        group.close()
    check_capacity(server, SESSIONS)


@pytest.mark.parametrize("how", HANGS)
@pytest.mark.parametrize("concurrency", ["thread", "inline"])
def test_a_hang_is_ended_by_the_deadline_and_others_live(concurrency, how, brittle):
    server = brittle("--concurrency", concurrency, "--step-timeout", "1")
    for number in range(ROUNDS):
        group = Group(server, SESSIONS)
        try:
            victim = number % SESSIONS
            pid, mates = group.pids[victim], group.mates(victim)
            group.sessions[victim].send({"type": "step", "data": {"how": how}})
            told = group.lost(victim, "STEP_TIMEOUT")
            assert "1" in told["message"]
            # A process that cannot be freed of the hang goes, with its sessions; the others never notice.
            for n in range(SESSIONS):
                if n not in mates:
                    group.step(n)
            for n in mates:
                if n != victim:
                    with contextlib.suppress(ConnectionClosed):
                        reply = group.sessions[n].step()
                        assert reply["type"] == "observation" or reply["data"]["code"] in ("WORKER_DIED", "STEP_TIMEOUT"), reply
        finally:
            group.close()
        check_capacity(server, SESSIONS)
        gone(pid)


def gone(*pids: int) -> None:
    """Waits until the processes are gone, zombies not counted."""
    deadline = time.monotonic() + END
    left = set(pids)
    while left:
        left = {pid for pid in left if alive(pid)}
        assert time.monotonic() < deadline, f"still there: {left}"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def marked(mark: str) -> set[int]:
    """Processes whose environment holds the mark."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes() and alive(int(entry.name)):
                    found.add(int(entry.name))
    return found


def wait_unmarked(mark: str) -> None:
    deadline = time.monotonic() + END
    while left := marked(mark):
        assert time.monotonic() < deadline, f"processes outlive the server: {left}"


@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM", "SIGINT"])
@pytest.mark.parametrize("state", ["idle", "busy", "sleep", "deaf", "stop", "child"])
def test_no_process_outlives_the_server(ending, state, brittle, tmp_path):
    for number in range(ROUNDS):
        mark = f"BRITTLE_MARK={tmp_path.name}-{ending}-{state}-{number}"
        server = brittle("--concurrency", "thread", "--step-timeout", "5", "--drain-timeout", "1", env=dict([mark.split("=")]))
        group = Group(server, 4)
        try:
            assert len(marked(mark)) >= 3
            if state == "child":
                group.sessions[0].step(how="child")
            elif state != "idle":
                group.sessions[0].send({"type": "step", "data": {"how": state}})
                group.step(next(n for n in range(4) if n not in group.mates(0)))
            server.process.send_signal(signal.Signals[ending])
            server.process.wait(END)
        finally:
            group.close()
        wait_unmarked(mark)


def test_a_session_that_ends_leaves_no_process_or_thread_of_its_own(brittle):
    server = brittle("--concurrency", "process", sessions=4)
    with server.session() as session:
        pid = session.reset()["data"]["observation"]["pid"]
        with server.session() as other:
            assert other.reset()["data"]["observation"]["pid"] != pid
        session.step(how="thread")
    gone(pid)
    check_capacity(server, 4)


def test_output_of_an_environment_never_blocks_it_or_mixes_with_answers(brittle):
    server = brittle("--concurrency", "thread", workers=1)
    with server.session() as session:
        session.reset()
        for n in range(1, 21):
            assert session.step(how="print")["data"]["observation"]["count"] == n
    assert server.stop() == 0
    assert server.out.text() == server.url + "\n"
    assert len(server.stderr()) < 50_000_000


def test_many_sessions_come_and_go_and_leave_nothing_open(brittle):
    server = brittle("--concurrency", "thread", sessions=40)

    def some(count: int) -> None:
        for n in range(count):
            with admitted_session(server) as session:
                session.reset(seed=n)
                assert session.step()["data"]["observation"]["count"] == n + 1
                if n % 3 == 0:
                    session.send({"type": "close"})
                elif n % 3 == 1:
                    session.socket.socket.close()

    def all_at_once(count: int) -> None:
        threads = [threading.Thread(target=some, args=(count,)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(REPLY * 5)
        assert not any(thread.is_alive() for thread in threads)

    def settled(wanted=None) -> tuple[int, dict[int, tuple[int, int]]]:
        """File descriptors of the server, and with threads those of its workers, once two looks agree with what is wanted or time is up."""
        deadline = time.monotonic() + END
        while True:
            workers = {pid: (len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))) for pid in descendants(server.process.pid)}
            now = (server.fds(), workers)
            if wanted is None or now == wanted or time.monotonic() > deadline:
                return now

    all_at_once(3)
    check_capacity(server, 40)
    before = idle(server, settled)
    all_at_once(30 * ROUNDS)
    check_capacity(server, 40)
    assert settled(before) == before
    print(json.dumps({"sessions": 300 * ROUNDS, "server_fds": before[0]}))


def idle(server, settled):
    """The counts of a server at rest: the same in three looks with an answer of the server between them."""
    deadline = time.monotonic() + END
    looks = [settled()]
    while len(looks) < 3 or not looks[-1] == looks[-2] == looks[-3]:
        server.get("/health")
        looks.append(settled())
        assert time.monotonic() < deadline, "the server does not come to rest"
    return looks[-1]
