"""Many sessions with one call: values, resets, order, failures, several servers, event loops."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clients import Seen, grounds_fixture, sessions_of, stock_fixture, until  # noqa: F401
from serving import WITH, reference_fixture, serve_fixture, store_fixture  # noqa: F401
from vectors import module_fixture, parts, plain, plant_fixture, samples, served_fixture, told  # noqa: F401

import envharness as eh

gymnasium = pytest.importorskip("gymnasium")
HAS_MODES = hasattr(gymnasium.vector, "AutoresetMode")
MODES = ["next_step", "same_step", "disabled"]
KINDS = ["Drift", "Picture", "Grid", "Half"]


@pytest.fixture(name="ways", scope="session")
def ways_fixture():
    """The encodings where both spaces are tensors."""
    return ["tensor", "json", "msgpack"]


@pytest.fixture(name="gate")
def gate_fixture(grounds):
    """A file that a step waits for, where workers see it."""
    return str(grounds / f"{os.urandom(4).hex()}.gate")


# Values.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_episodes_are_equal_by_every_encoding(kind, mode, served, module, ways):
    server = served(f"plant:{kind}")
    space = getattr(module, kind)
    actions = samples(space.action_space, 3, 25)
    heard = {}
    for encoding in ways:
        with eh.VectorClient(server, 3, autoreset=mode, encoding=encoding) as envs:
            assert envs.encoding == encoding and envs.observation_space.shape == space.observation_space.shape
            heard[encoding] = told(envs, actions)
    assert heard["json"] == heard["tensor"] == heard["msgpack"]
    flags = [step["dones"] for step in heard["json"]]
    assert sum(sum(flag[2]) for flag in flags) > 5
    with eh.VectorClient(server, 3, autoreset=mode) as envs:
        assert envs.encoding == "tensor" and told(envs, actions) == heard["json"]


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_observations_of_other_spaces_are_given_one_by_one(encoding, served):
    server = served("plant:Chest")
    with eh.VectorClient(server, 2, encoding=encoding) as envs, eh.GenericEnvClient(server, encoding=encoding) as env:
        assert envs.observation_space is None and envs.action_space.dtype == "int64"
        result = envs.reset(seeds=[4, 5])
        one = env.reset(seed=5)
        assert isinstance(result.observations, list) and plain(result.observations[1]) == plain(one.observation)
        for action in ([1, 0], np.array([1, 0]), [{"action": 1}, {"action": 0}]):
            result, one = envs.step(action), env.step({"action": 0})
            assert plain(result.observations[1]) == plain(one.observation)
            assert (result.rewards[1], result.dones[1], result.infos[1]) == (one.reward, one.done, {})
            if one.done:
                break
    with pytest.raises(eh.ClientError, match=r"does not speak tensor|needs numpy and tensor spaces"):
        eh.VectorClient(server, 2, encoding="tensor")
    until(lambda: sessions_of(server) == 0, "the end of the sessions")


def test_what_would_be_stacked_can_be_left_as_it_came(served):
    with eh.VectorClient(served("plant:Drift"), 2, stack=False) as envs:
        assert envs.encoding == "json"
        observation = envs.reset(seeds=1).observations[1]
        assert set(observation) == {"observation", "terminated", "truncated", "info"}
        assert envs.step(np.zeros((2, 2), np.float32)).observations[0]["observation"]


@pytest.mark.parametrize("target", ["gym:CartPole-v1", "gym:Pendulum-v1", "native:cartpole"])
def test_gymnasiums_own_and_native_environments(target, serve):
    space = gymnasium.make(target[4:]).action_space if target.startswith("gym:") else gymnasium.spaces.Discrete(2)
    actions = samples(space, 4, 210 if "Pendulum" in target else 60)
    server = serve(target)
    heard = []
    for encoding in ("tensor", "json", "msgpack"):
        with eh.VectorClient(server.url, 4, encoding=encoding) as envs:
            heard.append(told(envs, actions))
    if target.startswith("native:"):
        for encoding in ("tensor", "json", "msgpack"):
            with eh.local(target, 4, encoding=encoding) as envs:
                assert "this process" in repr(envs)
                heard.append(told(envs, actions))
    assert all(one == heard[0] for one in heard)


@pytest.mark.skipif(not HAS_MODES, reason="gymnasium before 1.1 has no autoreset modes")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("default")
def test_episodes_are_those_of_gymnasiums_vector(kind, mode, served, module):
    cls = getattr(module, kind)
    theirs = gymnasium.vector.SyncVectorEnv([cls] * 3, autoreset_mode=gymnasium.vector.AutoresetMode[mode.upper()])
    ends = 0
    with eh.VectorClient(served(f"plant:{kind}"), 3, autoreset=mode) as envs:

        def same(result: eh.VectorResult, right: Any) -> None:
            assert plain(result.observations) == plain(right[0])
            for ours, expected in zip((result.rewards, result.terminated, result.truncated), right[1:4]):
                assert plain(ours) == plain(expected)
            finals = right[4].get("final_obs", [None] * 3)
            assert plain(result.final_observations or [None] * 3) == plain(list(finals))

        assert plain(envs.reset(seeds=9).observations) == plain(theirs.reset(seed=9)[0])
        for action in samples(cls.action_space, 3, 40):
            result, right = envs.step(action), theirs.step(action)
            same(result, right)
            ends += result.dones.sum()
            if mode == "disabled" and result.dones.any():
                begun = envs.reset(slots=result.dones)
                seen, _ = theirs.reset(options={"reset_mask": result.dones})
                assert plain(begun.observations) == plain(seen[result.dones])
                assert begun.slots.tolist() == np.flatnonzero(result.dones).tolist()
    theirs.close()
    assert ends > 5


class Say(Seen):
    """The observation of a package of the tests."""


def test_models_of_actions_and_observations(serve, grounds):
    import pydantic

    class Pick(pydantic.BaseModel):
        do: str = "pick"
        n: int = 2

    server = serve("meadow:app", *WITH, cwd=grounds)
    with eh.VectorClient(server, 2, action=Pick, observation=Say) as typed, eh.VectorClient(server, 2) as envs:
        assert typed.encoding == envs.encoding == "json" and envs.action_space is None
        left, right = typed.reset(seeds=3), envs.reset(seeds=3)
        assert all(isinstance(one, Say) for one in left.observations) and np.isnan(right.rewards).all()
        for _ in range(4):
            left, right = typed.step([Pick(), Pick(n=1)]), envs.step([{"do": "pick", "n": 2}, {"do": "pick", "n": 1}])
            assert [one.flowers for one in left.observations] == [one["flowers"] for one in right.observations]
            assert plain(left.rewards) == plain(right.rewards) and plain(left.dones) == plain(right.dones)
            assert left.infos == right.infos
        assert right.dones.all() and typed.step([Pick()] * 2).rewards.tolist() == envs.step([{}] * 2).rewards.tolist() == [0.0, 0.0]
        for wrong in ([5, 6], np.zeros(2), [Pick(), None]):
            with pytest.raises(TypeError, match="an action is a model or a mapping"):
                envs.step(wrong)
        assert envs.step([Pick()] * 2).errors == {}


def test_arrays_are_the_callers_own(served, ways):
    for encoding in ways:
        with eh.VectorClient(served("plant:Drift"), 3, encoding=encoding) as envs:
            first = envs.reset(seeds=1)
            kept = parts(first)
            result = envs.step(np.zeros((3, 2), np.float32))
            assert parts(first) == kept
            assert (result.observations.dtype, result.observations.shape) == (np.float32, (3, 3))
            assert result.rewards.dtype == np.float64 and result.slots.tolist() == [0, 1, 2]
            for array in (result.observations, result.rewards, result.dones, result.terminated, result.truncated):
                array[0] = 1
            result.infos[1] = {"a": 1}
            assert result.infos[1] == {"a": 1} and result.infos[-1] == result.infos[2] and len(result.infos[:2]) == 2
            with pytest.raises(IndexError):
                _ = result.infos[3]
            assert envs.step(np.zeros((3, 2), np.float32)).slots.tolist() == [0, 1, 2]
            assert len(envs) == 3 and "3 on ws://" in repr(envs)


# Resets.


@pytest.mark.parametrize("encoding", ["tensor", "json"])
def test_seeds_and_slots(encoding, served):
    with eh.VectorClient(served("plant:Drift"), 3, encoding=encoding) as envs:
        by_seed = {seed: envs.reset(seeds=[seed] * 3).observations[0].tolist() for seed in range(4, 10)}

        def seen(*args: Any) -> tuple[list[int], list[int]]:
            result = envs.reset(*args)
            found = [next((seed for seed, value in by_seed.items() if value == one.tolist()), -1) for one in result.observations]
            return result.slots.tolist(), found

        assert seen(4) == seen(np.int64(4)) == seen(range(4, 7)) == seen(np.array([4, 5, 6])) == ([0, 1, 2], [4, 5, 6])
        assert seen([9, None, 4])[1][::2] == [9, 4]
        assert seen([7, 8], [2, 0]) == seen([7, 8], np.array([2, 0])) == ([2, 0], [7, 8])
        assert seen(4, [2, 0]) == ([2, 0], [6, 4])
        assert seen([4, 5, 6], [2, 1, 0]) == ([2, 1, 0], [4, 5, 6])
        assert seen([4, 5, 6], [True, False, True]) == seen([4, 6], np.array([True, False, True])) == ([0, 2], [4, 6])
        assert seen(4, np.zeros(3, bool)) == seen(4, []) == ([], [])
        assert envs.reset(options={"a": 1}).infos[2]["options"] == {"a": 1}
        failed = envs.reset(seeds=[1, -1, 2])
        assert set(failed.errors) == {1} and "-1" in str(failed.errors[1]) and failed.observations[1].tolist() == [0, 0, 0]
        for seeds in ([1, 2], [1.5, 2, 3], "abc", 1.5):
            with pytest.raises((ValueError, TypeError)):
                envs.reset(seeds)
        for slots in ([0, 0], [3], [-1], [True, False], [0.5], 1, [[0]]):
            with pytest.raises((ValueError, TypeError)):
                envs.reset(slots=slots)
        with pytest.raises(TypeError, match="JSON"):
            envs.reset(options={"a": object()})
        assert envs.step(np.zeros((3, 2), np.float32)).errors == {}
    with eh.local("native:cartpole", 2) as envs:
        assert isinstance(envs.reset(seeds=[-1, 1]).errors[0], eh.InvalidAction)


def test_wrong_actions_are_refused_before_anything_is_sent(served):
    for kind, wrong in (
        ("Drift", [np.zeros((2, 2)), np.zeros((3, 3)), [[0, 0]] * 2, np.full((3, 2), "a"), np.zeros((3, 2), complex), [{"move": 1}] * 3, {}]),
        ("Picture", [np.full((3, 3), 300), np.full((3, 3), 0.5), [[0, 1]] * 3]),
    ):
        with eh.VectorClient(served(f"plant:{kind}"), 3) as envs:
            left = [info["left"] - 1 for info in envs.reset(seeds=1).infos]
            for actions in wrong:
                with pytest.raises((ValueError, KeyError)):
                    envs.step(actions)
            result = envs.step(np.zeros((3, *envs.action_space.shape), np.float64 if kind == "Drift" else np.int64))
            assert not result.errors and [info.get("left", count) for info, count in zip(result.infos, left)] == left


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("encoding", ["tensor", "json"])
def test_without_a_reset_the_first_step_begins_the_episodes(encoding, mode, served):
    with eh.VectorClient(served("plant:Switch"), 2, encoding=encoding, autoreset=mode) as envs:
        result = envs.step([0, 0])
        if mode == "disabled":
            assert all(isinstance(error, eh.EnvironmentFailed) for error in result.errors.values()) and len(result.errors) == 2
        else:
            assert not result.errors and result.rewards.tolist() == [0, 0] and result.observations[:, 1].tolist() == [0, 0]


# First ready first.


def test_outcomes_come_first_ready_first(serve, grounds, gate):
    gates = [f"{gate}{slot}" for slot in range(3)]
    with eh.VectorClient(serve("meadow:app", *WITH, "--concurrency", "thread", cwd=grounds), 3) as envs:
        envs.reset(seeds=1)
        envs.send([{"do": "gate", "gate": gate} for gate in gates])
        with pytest.raises(ValueError, match="slot 0 has a step under way"):
            envs.send([{}], [0])
        for call in (lambda: envs.step([{}] * 3), envs.reset, envs.render):
            with pytest.raises(eh.ClientError, match="3 steps are under way"):
                call()
        for bad in (4, -1):
            with pytest.raises(ValueError, match="outcomes are waited for"):
                envs.recv(bad)
        for gate in gates:
            until(lambda gate=gate: os.path.exists(gate + ".began"), "a step")
        assert envs.recv(0).slots.tolist() == envs.recv(3, timeout=0.01).slots.tolist() == []
        Path(gates[2]).touch()
        result = envs.recv()
        assert result.slots.tolist() == [2] and result.observations[0]["note"] == "late"
        envs.send([{"do": "look"}], [2])
        assert envs.recv().observations[0]["note"] == "look 0"
        Path(gates[0]).touch()
        Path(gates[1]).touch()
        assert envs.recv(2).slots.tolist() == [0, 1]
        with pytest.raises(ValueError, match="0 steps are under way"):
            envs.recv()
        for actions, slots in (([{}], None), ([{}] * 3, [0]), ([{}], [3]), ({}, [])):
            with pytest.raises(ValueError):
                envs.send(actions, slots)
        assert envs.step([{"do": "look"}] * 3).errors == {}


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("encoding", ["tensor", "json"])
def test_slots_that_are_sent_by_themselves_give_the_same_episodes(encoding, mode, served):
    server = served("plant:Grid")
    with eh.VectorClient(server, 3, autoreset=mode, encoding=encoding) as one, eh.VectorClient(server, 3, autoreset=mode) as other:
        one.reset(seeds=2)
        other.reset(seeds=2)
        actions = np.array([[0, 1], [2, 0], [1, 1]])
        for _ in range(30):
            expected = other.step(actions)
            one.send(actions[[2, 0]], [2, 0])
            one.send(actions[[1]], np.array([False, True, False]))
            got = {}
            while len(got) < 3:
                result = one.recv(1)
                finals = result.final_observations or [None] * 3
                for at, slot in enumerate(result.slots.tolist()):
                    got[slot] = [result.observations[at], result.rewards[at], result.dones[at], result.infos[at], finals[at]]
            finals = expected.final_observations or [None] * 3
            rows = zip(expected.observations, expected.rewards, expected.dones, expected.infos, finals)
            assert plain([got[slot] for slot in range(3)]) == plain([list(row) for row in rows])


def test_a_slot_begins_again_while_others_are_slow(serve, grounds, gate):
    with eh.VectorClient(serve("meadow:app", *WITH, "--concurrency", "thread", cwd=grounds), 2, autoreset="same_step") as envs:
        envs.reset(seeds=1)
        envs.send([{"do": "gate", "gate": gate}], [1])
        for step in range(1, 9):
            envs.send([{"do": "look"}], [0])
            result = envs.recv().raise_errors()
            assert result.slots.tolist() == [0] and result.dones.tolist() == [step % 4 == 0]
            assert (result.final_observations[0] is not None) == (step % 4 == 0)
        Path(gate).touch()
        assert envs.recv().observations[0]["note"] == "late"


# Failures.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("encoding", ["tensor", "json"])
def test_a_failure_is_its_slots_alone(encoding, mode, served):
    with eh.VectorClient(served("plant:Switch", "--concurrency", "process"), 4, encoding=encoding, autoreset=mode) as envs:
        pids = envs.reset().observations[:, 0].tolist()
        assert len(set(pids)) == 4
        envs.step([0] * 4)
        result = envs.step([0, 1, 2, 0])
        assert isinstance(result.errors[1], eh.EnvironmentFailed) and isinstance(result.errors[2], eh.SessionLost) and len(result.errors) == 2
        assert "a fuse blew" in str(result.errors[1]) and result.errors[2].code == "WORKER_DIED"
        assert np.isnan(result.rewards).tolist() == [False, True, True, False] and not result.dones.any()
        assert result.observations.tolist() == [[pids[0], 2], [0, 0], [0, 0], [pids[3], 2]]
        if mode == "same_step":
            assert result.final_observations == [None] * 4
        with pytest.raises(eh.EnvironmentFailed, match="slot 1; 2 of 4 slots failed"):
            result.raise_errors()
        if mode == "disabled":
            again = envs.step([0] * 4)
            assert set(again.errors) == {2} and again.observations[1].tolist() == [pids[1], 2]
            assert envs.reset(slots=[2]).raise_errors().slots.tolist() == [2]
        else:
            again = envs.step([0] * 4).raise_errors()
            assert again.rewards.tolist() == [1, 0, 0, 1] and again.observations[:, 1].tolist() == [3, 0, 0, 3]
        last = envs.step([0] * 4).raise_errors()
        assert last.observations[2, 0] not in pids and last.observations[[0, 1, 3], 0].tolist() == [pids[0], pids[1], pids[3]]
        action = [{"action": n} for n in (0, 0, 0, 9)] if encoding == "json" else np.array([0, 0, 0, 9])
        result = envs.step(action)
        assert set(result.errors) == {3} and isinstance(result.errors[3], eh.InvalidAction) and result.rewards[0] == 1


@pytest.mark.parametrize("encoding", ["tensor", "json"])
def test_an_end_whose_next_episode_cannot_begin(encoding, served):
    with eh.VectorClient(served("plant:Switch", "--concurrency", "process"), 2, encoding=encoding, autoreset="same_step") as envs:
        failed = envs.reset(seeds=[1, 2], options={"broken": 2})
        assert set(failed.errors) == {1} and "no start" in str(failed.errors[1])
        envs.reset(slots=[1], options={"next": True})
        result = envs.step([3, 3])
        assert set(result.errors) == {1} and result.dones.tolist() == [True, False] and np.isnan(result.rewards[1])
        assert result.final_observations[0][1] == 1 and result.final_observations[1] is None
        assert envs.step([0, 0]).raise_errors().rewards.tolist() == [1, 0]


def test_a_slot_without_a_server_says_so_until_there_is_one(serve, plant, monkeypatch):
    server = serve("plant:Switch", "--drain-timeout", "0", cwd=plant)
    with eh.VectorClient(server.url, 2, connect_timeout=2.0, reconnect_timeout=0.0) as envs:
        envs.reset()
        server.kill()
        result = envs.step([0, 0])
        assert all(isinstance(error, eh.SessionLost) for error in result.errors.values()) and len(result.errors) == 2
        result = envs.step([0, 0])
        assert all(isinstance(error, eh.ConnectError) for error in result.errors.values()) and len(result.errors) == 2
        monkeypatch.chdir(plant)
        restarted = eh.serve("plant:Switch", port=server.port)
        with restarted:
            assert envs.step([0, 0]).raise_errors().rewards.tolist() == [0, 0]


def test_ctrl_c_ends_a_call_and_muddles_nothing(serve, grounds, gate):
    with eh.VectorClient(serve("meadow:app", *WITH, "--concurrency", "thread", cwd=grounds), 2) as envs:
        envs.reset(seeds=1)
        wait = lambda: (until(lambda: os.path.exists(gate + ".began"), "a step"), os.kill(os.getpid(), signal.SIGINT))  # noqa: E731
        threading.Thread(target=wait).start()
        with pytest.raises(KeyboardInterrupt):
            envs.step([{"do": "look"}, {"do": "gate", "gate": gate}])
        Path(gate).touch()
        assert [one["note"] for one in envs.step([{"do": "pick", "n": 1}] * 2).observations] == ["pick 1"] * 2

        async def play() -> None:
            os.unlink(gate)
            os.unlink(gate + ".began")
            step = asyncio.ensure_future(envs.astep([{"do": "look"}, {"do": "gate", "gate": gate}]))
            while not os.path.exists(gate + ".began"):
                await asyncio.sleep(0.01)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            Path(gate).touch()
            result = await envs.astep([{"do": "look", "n": 7}] * 2)
            assert [one["note"] for one in result.observations] == ["look 7"] * 2

        asyncio.run(play())


# Several servers.


def test_sessions_go_where_slots_are_free(serve, plant):
    one, two = (serve("plant:Switch", "--max-sessions", n, cwd=plant) for n in (2, 5))
    servers = [one, two]
    with eh.VectorClient(servers, 5) as envs:
        assert (sessions_of(one), sessions_of(two)) == (1, 4)
        assert len(set(envs.reset().observations[:, 0].tolist())) >= 2
        with pytest.raises(eh.Saturated) as caught:
            eh.VectorClient(servers, 3)
        assert caught.value.retry_after > 0
        until(lambda: sessions_of(one) + sessions_of(two) == 5, "the end of those that were opened")
        with eh.VectorClient(servers, 2) as more:
            assert (sessions_of(one), sessions_of(two)) == (2, 5) and not more.step([0, 0]).errors
        with pytest.raises(eh.Saturated):
            eh.VectorClient(servers, 3, wait=0.1)
    until(lambda: sessions_of(one) + sessions_of(two) == 0, "the end of the sessions")
    with eh.VectorClient(["127.0.0.1:9", two.url], 3) as envs:
        assert sessions_of(two) == 3 and not envs.step([0] * 3).errors
    with pytest.raises(eh.ConnectError):
        eh.VectorClient(["127.0.0.1:9", "127.0.0.1:10"], 1)
    with eh.VectorClient(one, 1) as held, eh.VectorClient(servers, 5) as envs:
        held.reset()
        one.process.send_signal(signal.SIGTERM)
        until(lambda: one.get("/ready").status_code == 503, "the drain")
        assert not envs.reset(slots=[4]).errors
        with pytest.raises(eh.Saturated):
            eh.VectorClient(servers, 4)


@pytest.mark.parametrize("count", [1, 2])
def test_sessions_are_waited_for(count, serve, plant):
    servers = [serve("plant:Switch", "--max-sessions", "2", cwd=plant) for _ in range(count)]
    holders = [eh.VectorClient(server, 2) for server in servers]

    async def play() -> None:
        waiting = asyncio.ensure_future(asyncio.to_thread(eh.VectorClient, servers, 2, wait=60))
        with pytest.raises(eh.Saturated):
            await asyncio.to_thread(eh.VectorClient, servers, 2, wait=0.05)
        assert not waiting.done()
        holders[-1].close()
        (await waiting).close()

    asyncio.run(play())
    for holder in holders:
        holder.close()


def test_servers_of_different_environments_are_no_vector(served):
    one, two = served("plant:Switch"), served("plant:Drift")
    with pytest.raises(eh.ContractMismatch, match="2 contracts"):
        eh.VectorClient([one, two], 2)
    until(lambda: sessions_of(one) + sessions_of(two) == 0, "the end of the sessions")


def test_a_stock_server_with_several_sessions(grounds, reference, serve):
    stock = reference("meadow:app", grounds, {"MAX_CONCURRENT_ENVS": "3"})
    actions = [[{"do": "pick", "n": n + 1}] * 3 for n in range(4)]
    with eh.VectorClient(stock, 3) as envs:
        assert envs.encoding == "json"
        heard = told(envs, actions)
        with pytest.raises(eh.Saturated, match="capacity"):
            eh.VectorClient(stock, 1)
        with pytest.raises(eh.NotAvailableError):
            envs.render()
        assert not envs.step([{}] * 3).errors
        result = envs.step([{"do": "fail"}, {"n": -1}, {"do": "look"}])
        assert {slot: type(error) for slot, error in result.errors.items()} == {0: eh.EnvironmentFailed, 1: eh.InvalidAction}
        ours = serve("meadow:app", *WITH, cwd=grounds).url
        with eh.VectorClient([stock, ours], 2) as mixed:
            assert mixed.encoding == "json" and len(told(mixed, [[{}] * 2])) == 2
    with eh.VectorClient(ours, 3) as envs:
        assert told(envs, actions) == heard
    for settings in ({"encoding": "msgpack"}, {"open_options": {"render_mode": "ansi"}}):
        with pytest.raises((eh.ClientError, eh.NotAvailableError)):
            eh.VectorClient(stock, 1, **settings)

    def roomy():
        try:
            return eh.VectorClient(stock, 3)
        except eh.Saturated:
            return None

    until(roomy, "three sessions").close()


# Event loops.


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("encoding", ["tensor", "json"])
def test_the_face_for_event_loops(encoding, mode, served, module):
    server, actions = served("plant:Drift"), samples(module.Drift.action_space, 3, 15)
    with eh.VectorClient(server, 3, autoreset=mode, encoding=encoding) as envs:
        expected = told(envs, actions)

    async def play() -> list[Any]:
        async with eh.VectorClient(server, 3, autoreset=mode, encoding=encoding) as envs:
            heard = [parts(await envs.areset(5))]
            for at, action in enumerate(actions):
                if at % 2:
                    envs.send(action)
                    heard.append(parts(await envs.arecv(3)))
                else:
                    heard.append(parts(await envs.astep(action)))
            envs.send(actions[0][:1], [1])
            assert (await envs.arecv(1, timeout=60)).slots.tolist() == [1]
            with pytest.raises(ValueError, match="0 steps are under way"):
                await envs.arecv()
            assert (await envs.areset(slots=[2], options={"a": 1})).infos[0]["options"] == {"a": 1}
        with pytest.raises(eh.ClientError, match="closed"):
            await envs.areset()
        return heard

    assert asyncio.run(play()) == expected

    async def lose() -> None:
        async with eh.VectorClient(served("plant:Switch", "--concurrency", "process"), 2, encoding=encoding, autoreset=mode) as envs:
            await envs.areset()
            assert set((await envs.astep([0, 2])).errors) == {1}
            assert (await envs.astep([0, 0])).raise_errors().rewards.tolist() == [1, 0]
            await envs.astep([2, 0])
            assert not (await envs.areset()).errors

    asyncio.run(lose())


# Settings, pictures, size.


def test_wrong_settings_open_nothing(served):
    server = served("plant:Switch")
    for error, servers, count, options in (
        (ValueError, [], 1, {}),
        (ValueError, server, 0, {}),
        (ValueError, server, 1.5, {}),
        (ValueError, server, 1, {"autoreset": "never"}),
        (ValueError, server, 1, {"encoding": "xml"}),
        (TypeError, server, 1, {"tempo": 3}),
        (TypeError, 5, 1, {}),
        (eh.ConnectError, "http://", 1, {}),
        (eh.ClientError, server, 1, {"encoding": "tensor", "action": dict}),
        (eh.ContractMismatch, server, 1, {"contract": "sha256:" + "0" * 64}),
    ):
        with pytest.raises(error):
            eh.VectorClient(servers, count, **options)
    until(lambda: sessions_of(server) == 0, "the end of the sessions")


def test_pictures_of_every_slot(served):
    with eh.VectorClient(served("plant:Drift"), 2, open_options={"render_mode": "rgb_array"}) as envs:
        left = [info["left"] for info in envs.reset(seeds=1).infos]
        assert [frame.shape for frame in envs.render()] == [(2, 3, 3)] * 2 and [frame[0, 0, 0] for frame in envs.render()] == left
        assert envs.step(np.zeros((2, 2), np.float32)).errors == {}
    with eh.VectorClient(served("plant:Drift"), 1, open_options={"render_mode": "ansi"}, encoding="json") as envs:
        left = envs.reset(seeds=1).infos[0]["left"]
        assert envs.render() == [f"left: {left}"]


def test_more_than_two_hundred_and_fifty_six_sessions(serve):
    server = serve("native:cartpole", "--max-sessions", "600")
    for encoding in ("tensor", "json"):
        with eh.VectorClient([server.url, server.url], 600, encoding=encoding) as envs:
            assert sessions_of(server) == 600 and envs.reset(seeds=1).observations.shape == (600, 4)
            for _ in range(3):
                assert envs.step(np.ones(600, np.int64)).rewards.sum() == 600
        until(lambda: sessions_of(server) == 0, "the end of the sessions")


def test_many_thousand_steps_do_not_grow(serve):
    server = serve("native:cartpole")

    def kilobytes() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

    with eh.VectorClient(server.url, 16, autoreset="same_step") as remote, eh.local("native:cartpole", 16) as local:
        actions = np.arange(16) % 2
        for envs, rounds in ((remote, 2000), (local, 20000)):
            envs.reset(seeds=1)
            for _ in range(rounds // 4):
                envs.step(actions)
            before = kilobytes()
            for _ in range(rounds):
                envs.step(actions)
            assert kilobytes() - before < 4096
    assert until(lambda: sessions_of(server) == 0, "the end of the sessions")
