"""Clients and what they are told: both protocols, both directions, models, errors, tools."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
from typing import Any, Optional

import msgspec
import numpy
import pydantic
import pytest
from clients import (  # noqa: F401
    ACTIONS,
    Seen,
    cellar_fixture,
    grounds_fixture,
    meadow_fixture,
    stock_fixture,
    until,
)
from serving import (  # noqa: F401
    WITH,
    old_reference_python,
    reference_fixture,
    reference_python,
    run_stock,
    serve_fixture,
    store_fixture,
)

import envharness as eh

#: The servers and what is spoken with them.
WAYS = {"v1": ("meadow", {}), "openenv": ("meadow", {"protocol": "openenv"}), "stock": ("stock", {})}


class Way:
    """A server, and how it is spoken to."""

    def __init__(self, name: str, request: pytest.FixtureRequest) -> None:
        self.name, (fixture, self.settings) = name, WAYS[name]
        self.server = request.getfixturevalue(fixture)

    def client(self, cls: Any = eh.GenericEnvClient, **settings: Any) -> Any:
        return cls(self.server.url, **self.settings, **settings)


@pytest.fixture(params=WAYS)
def way(request):
    return Way(request.param, request)


# The same episode by every pair of client and server.

STOCK_EPISODE = """
import inspect, json, sys
from openenv.core.generic_client import GenericEnvClient

with GenericEnvClient(base_url=sys.argv[1]).sync() as client:
    heard = []
    for result in [client.reset(seed=11, episode_id="same"), *(client.step(action) for action in json.loads(sys.argv[2]))]:
        metadata = getattr(result, "metadata", None) or result.observation.get("metadata") or None
        heard.append([result.observation, result.reward, result.done, metadata])
    print(json.dumps([heard, client.state()]))
"""


def episode(url: str, **settings: Any) -> Any:
    with eh.GenericEnvClient(url, **settings) as env:
        results = [env.reset(seed=11, episode_id="same"), *map(env.step, ACTIONS)]
        heard = [[result.observation, result.reward, result.done, result.metadata] for result in results]
        return [heard, env.state()]


def test_the_same_episode_by_every_pair_of_client_and_server(meadow, stock, tmp_path):
    python, actions = reference_python(), json.dumps(ACTIONS)
    by_stock = {name: run_stock(python, tmp_path, STOCK_EPISODE, url, actions) for name, url in (("stock", stock.url), ("ours", meadow.url))}
    by_ours = {"stock": episode(stock.url), "openenv": episode(meadow.url, protocol="openenv"), "v1": episode(meadow.url, protocol="envharness.v1")}
    expected = by_stock["stock"]
    assert [step[2] for step in expected[0]] == [False, False, False, False, True] and expected[1]["picked"] == 6
    assert expected[0][2][3] == {"last": False} and expected[0][3][1] is None
    assert by_stock["ours"] == expected
    assert by_ours == dict.fromkeys(by_ours, expected)
    assert episode(meadow.url, encoding="msgpack") == expected


def test_the_old_reference_serves_the_same_episode_to_our_client(grounds, reference, tmp_path):
    url = reference("meadow:app", grounds, {"MAX_CONCURRENT_ENVS": "4"}, python=old_reference_python())
    expected = run_stock(old_reference_python(), tmp_path, STOCK_EPISODE, url, json.dumps(ACTIONS))
    heard = episode(url)
    assert heard == expected and heard[1]["step_count"] == 4


def test_what_is_spoken_is_known_and_can_be_forced(meadow, stock):
    for server, settings, protocol in ((meadow, {}, "envharness.v1"), (meadow, {"protocol": "openenv"}, "openenv"), (stock, {}, "openenv")):
        client = eh.GenericEnvClient(server, **settings).sync()
        assert client.protocol is None and client.session_id is None and not client.is_connected
        with client:
            assert client.protocol == protocol and client.is_connected and client.reconnects == 0
            assert (client.session_id is None) == (protocol == "openenv")
            assert client.base_url == server.url and server.url.replace("http", "ws") in repr(client)
        assert not client.is_connected
    with pytest.raises(eh.NotAvailableError, match=r"envharness\.v1"):
        eh.GenericEnvClient(stock.url, protocol="envharness.v1").sync().connect()


def test_the_contract_is_told_without_a_session_and_from_a_stock_server(way):
    client = way.client().sync()
    told = client.contract
    assert told["name"].lower() == "meadow" and set(told["action"]["properties"]) >= {"do", "n", "gate"}
    assert told is client.fetch_contract() and not client.is_connected
    assert asyncio.run(way.client().fetch_contract()) == told
    assert ("digest" in told) == (way.name != "stock")


# Models.


class SeenDefault(msgspec.Struct, frozen=True):
    """Has what stands beside an observation."""

    flowers: int
    note: str
    value: Any = None
    reward: Optional[float] = None
    done: bool = False
    metadata: dict[str, Any] = {}


class SeenRequired(msgspec.Struct):
    flowers: int
    reward: Optional[float]
    done: bool


class Glance(pydantic.BaseModel):
    flowers: int
    note: str


class GlanceStruct(msgspec.Struct):
    flowers: int
    note: str


@dataclasses.dataclass
class GlanceRecord:
    flowers: int
    note: str


@dataclasses.dataclass
class SeenRecord:
    flowers: int
    reward: Optional[float] = None
    done: bool = False
    metadata: Optional[dict[str, Any]] = None


class Pick(pydantic.BaseModel):
    do: str = "pick"
    n: int = 2


class PickStruct(msgspec.Struct):
    do: str = "pick"
    n: int = 2


@dataclasses.dataclass
class PickRecord:
    do: str = "pick"
    n: int = 2


class Basket(pydantic.BaseModel):
    picked: int
    step_count: int


class BasketStruct(msgspec.Struct):
    picked: int
    step_count: int


@dataclasses.dataclass
class BasketRecord:
    picked: int
    step_count: int


OBSERVATIONS = [Seen, SeenDefault, SeenRequired, SeenRecord, Glance, GlanceStruct, GlanceRecord]


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_observations_of_every_kind_of_model(observation, encoding, meadow):
    with eh.GenericEnvClient(meadow, encoding=encoding) as plain, eh.EnvClient(meadow, observation=observation, encoding=encoding) as env:
        for one, other in ((plain.reset(seed=1), env.reset(seed=1)), *((plain.step(action), env.step(action)) for action in ACTIONS)):
            assert isinstance(other.observation, observation) and other.observation.flowers == one.observation["flowers"]
            assert (other.reward, other.done, other.metadata) == (one.reward, one.done, one.metadata)
            for name in ("reward", "done"):
                assert getattr(other.observation, name, getattr(one, name)) == getattr(one, name)
            assert getattr(other.observation, "metadata", one.metadata) in (one.metadata, one.metadata or {})


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize(("action", "state"), [(Pick, Basket), (PickStruct, BasketStruct), (PickRecord, BasketRecord), (dict, None)])
def test_actions_and_states_of_every_kind_of_model(action, state, encoding, meadow):
    with eh.EnvClient(meadow, action=action, state=state, encoding=encoding) as env:
        env.reset()
        for _ in range(2):
            assert env.step(action(do="pick", n=2)).observation["note"] == "pick 2"
        told = env.state()
        assert told == state(picked=4, step_count=2) if state else (told["picked"], told["step_count"]) == (4, 2)
        for wrong in ([1], "pick", None, 5, Pick):
            with pytest.raises(TypeError, match="an action is a model or a mapping"):
                env.step(wrong)
        assert env.step({"do": "look"}).observation["note"] == "look 0"


class Narrow(pydantic.BaseModel):
    flowers: str


class NarrowStruct(msgspec.Struct):
    flowers: str


@dataclasses.dataclass
class NarrowRecord:
    flowers: str
    lacking: int


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize("model", [Narrow, NarrowStruct, NarrowRecord])
def test_answers_that_do_not_fit_are_protocol_errors_and_the_session_lives(model, encoding, meadow):
    with eh.EnvClient(meadow, observation=model, state=model, encoding=encoding) as env:
        for call in (env.reset, env.state):
            with pytest.raises(eh.ProtocolError, match=f"(?s)does not fit {model.__name__}.*flowers" if call == env.reset else "does not fit") as caught:
                call()
            assert caught.value.__cause__ is not None
        assert env.is_connected


class Translated(eh.EnvClient):
    """As OpenEnv's typed clients are written."""

    def _step_payload(self, action):
        return {"do": "pick", "n": action}

    def _parse_result(self, payload):
        observation = Seen(**{**payload["observation"], "reward": payload.get("reward"), "done": payload["done"]})
        return eh.StepResult(observation, payload.get("reward"), payload["done"])

    def _parse_state(self, payload):
        return payload["picked"]


class Named(eh.EnvClient):
    observation_type, state_type = Glance, Basket


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_subclasses_translate_or_name_their_models(encoding, meadow):
    with Translated(meadow, encoding=encoding) as env:
        env.reset(seed=1)
        result = env.step(3)
        assert isinstance(result.observation, Seen) and result.observation.note == "pick 3" and result.reward == result.observation.reward
        assert env.state() == 3
    with Named(meadow, encoding=encoding) as env:
        assert isinstance(env.reset(seed=1).observation, Glance) and isinstance(env.state(), Basket)

    async def play():
        async with Translated(meadow, encoding=encoding) as env:
            await env.reset()
            return (await env.step(2)).observation.note, await env.state()

    assert asyncio.run(play()) == ("pick 2", 2)


def test_results_tell_truncation_apart_and_compare():
    result = eh.StepResult({"a": 1}, 1.0, True, {"truncated": True})
    assert result.truncated and not result.terminated and result == eh.StepResult({"a": 1}, 1.0, True, {"truncated": True})
    assert eh.StepResult({"truncated": False}, 1.0, True).terminated and not eh.StepResult({}).terminated
    assert result != 5 and "metadata={'truncated': True}" in repr(result) and "metadata" not in repr(eh.StepResult({}))


# Values.

VALUES = {"nan": float("nan"), "inf": [float("inf"), -float("inf")], "bytes": b"\x00\xff", "big": 2**80}


def test_msgpack_carries_what_json_lacks_both_ways(cellar):
    with eh.GenericEnvClient(cellar, encoding="msgpack") as env:
        for kind, expected in VALUES.items():
            result = env.step({"kind": kind})
            assert repr(result.observation["value"]) == repr(expected)
            assert repr(env.step({"kind": "given", "given": expected}).observation["value"]) == repr(expected)
            assert repr(env.reset(start=expected).observation["value"]) == repr(expected)
        assert env.step({"kind": "nan"}).reward != env.step({"kind": "nan"}).reward
        array = env.step({"kind": "array"}).observation["value"]
        assert array.dtype == numpy.int16 and array.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert env.state()["array"].dtype == numpy.float32
        given = {"array": numpy.eye(2), "number": numpy.float32(1.5), "model": Pick(), "record": PickRecord(), "pair": (1, 2), "set": {1}}
        pick = {"do": "pick", "n": 2}
        told = {"array": [[1.0, 0.0], [0.0, 1.0]], "number": 1.5, "model": pick, "record": pick, "pair": [1, 2], "set": [1]}
        assert env.step({"kind": "given", "given": given}).observation["value"] == told
    with eh.GenericEnvClient(cellar) as env:
        assert env.step({"kind": "given", "given": given}).observation["value"] == told
        assert env.step({"kind": "nan"}).observation["value"] is None and env.step({"kind": "big"}).observation["value"] == 2**80
        with pytest.raises(TypeError, match='encoding="msgpack"'):
            env.step({"kind": "given", "given": b"\xff"})
        with pytest.raises(eh.EnvironmentFailed, match="utf-8"):
            env.step({"kind": "bytes"})


def test_msgpack_is_refused_where_it_is_not_spoken(stock, meadow):
    for client in (eh.GenericEnvClient(stock, encoding="msgpack"), eh.GenericEnvClient(meadow, encoding="msgpack", protocol="openenv")):
        with pytest.raises(eh.ClientError, match="JSON alone") as caught:
            client.sync().connect()
        assert "encoding" in caught.value.hint
    with pytest.raises(ValueError, match="there are json and msgpack"):
        eh.GenericEnvClient(stock, encoding="xml")


# Errors.


def test_what_does_not_fit_and_what_fails_is_told_and_the_session_lives(way):
    with way.client() as env:
        env.reset(seed=1)
        with pytest.raises(eh.InvalidAction, match="greater than or equal to 0") as caught:
            env.step({"n": -1})
        error = caught.value
        assert isinstance(error, ValueError) and error.code == "VALIDATION_ERROR" and not error.retryable
        assert [(item["loc"], item["type"], item["input"]) for item in error.errors] == [(["n"], "greater_than_equal", -1)]
        with pytest.raises(eh.EnvironmentFailed, match="a mole was here") as caught:
            env.step({"do": "fail"})
        assert caught.value.code == "EXECUTION_ERROR" and caught.value.exception == ("RuntimeError" if way.name == "v1" else None)
        with pytest.raises(eh.EnvironmentFailed, match="no meadow today"):
            env.reset(broken=True)
        with pytest.raises(eh.NotAvailableError, match="render" if way.name == "v1" else "has no such call"):
            env.render()
        assert env.step({"do": "look"}).observation["note"] == "look 0"


@pytest.mark.parametrize("name", WAYS)
def test_a_full_server_is_told_with_its_numbers(name, grounds, serve, reference):
    if name == "stock":
        url = reference("meadow:app", grounds, {"MAX_CONCURRENT_ENVS": "1"})
    else:
        url = serve("meadow:app", *WITH, "--max-sessions", "1", cwd=grounds).url
    settings = WAYS[name][1]
    with eh.GenericEnvClient(url, **settings) as one:
        one.reset()
        for call in ("reset", "state"):
            other = eh.GenericEnvClient(url, **settings).sync()
            with pytest.raises(eh.Saturated, match="at capacity") as caught:
                getattr(other, call)()
            error = caught.value
            assert (error.active, error.limit, error.retryable, error.code) == (1, 1, True, "CAPACITY_REACHED")
            assert (error.retry_after or 0) > 0 if name == "v1" else error.retry_after is None
            assert error.hint
            other.close()
    other = eh.GenericEnvClient(url, **settings).sync()

    def admitted():
        try:
            return other.reset()
        except eh.Saturated:
            return None

    # The same client gets in once there is room.
    until(admitted, "a session")
    other.close()


@pytest.mark.parametrize("protocol", ["envharness.v1", "openenv"])
def test_who_closes_a_session_and_opens_another_is_not_refused(serve, grounds, protocol):
    server = serve("meadow:app", *WITH, "--max-sessions", "1", cwd=grounds)
    for seed in range(20):
        with eh.GenericEnvClient(server, protocol=protocol) as env:
            assert env.reset(seed=seed).observation["note"] == "[]"


def test_a_client_waits_for_a_free_session(serve, grounds):
    server = serve("meadow:app", *WITH, "--max-sessions", "1", cwd=grounds)

    async def play():
        one = await eh.GenericEnvClient(server)
        waiting = asyncio.ensure_future(eh.GenericEnvClient(server, wait=60).connect())
        # Who asked later has been refused by now.
        with pytest.raises(eh.Saturated):
            await eh.GenericEnvClient(server, wait=0.05).connect()
        assert not waiting.done()
        await one.close()
        async with await waiting as other:
            return (await other.reset(seed=1)).observation["note"]

    assert asyncio.run(play()) == "[]"
    # When to give up does not hang on when the server is pinged.
    with eh.GenericEnvClient(server, wait=60), pytest.raises(eh.Saturated):
        eh.GenericEnvClient(server, wait=0.1, ping_interval=3600.0, request_timeout=5.0).sync().connect()


@pytest.mark.parametrize("name", ["v1", "openenv"])
def test_a_killed_worker_costs_the_session_and_reset_begins_another(name, request, caplog):
    way = Way(name, request)
    with way.client() as env:
        env.reset()
        first = env.step({"do": "pid"}).observation["value"]
        os.kill(first, signal.SIGKILL)
        with pytest.raises(eh.SessionLost) as caught:
            until(lambda: env.step({"do": "look"}) and None, "the end of the session")
        assert isinstance(caught.value, ConnectionError) and caught.value.code == "WORKER_DIED" and "reset()" in caught.value.hint
        with pytest.raises(eh.SessionLost):
            env.step({"do": "look"})
        assert env.reset(seed=3).observation["note"] == "[]"
        assert env.step({"do": "pid"}).observation["value"] != first and env.is_connected
    assert "a new session begins" in caplog.text


def test_a_closed_client_is_not_used_again(way):
    client = way.client().sync()
    with client:
        client.reset()
    for call in (client.connect, client.reset, lambda: client.step({}), client.state, client.render):
        with pytest.raises(eh.ClientError, match="the client is closed"):
            call()
    client.close()

    async def play():
        client = way.client()
        await client.close()
        for call in (client.connect, client.reset, lambda: client.step({}), client.state, client.render):
            with pytest.raises(eh.ClientError, match="the client is closed"):
                await call()

    asyncio.run(play())


def test_the_contract_that_was_asked_for_is_served_or_it_is_said(meadow, tmp_path):
    told = eh.GenericEnvClient(meadow).sync().contract
    file = tmp_path / "contract.json"
    file.write_text(json.dumps(told))
    for contract in (told["digest"], told, file, str(file)):
        with eh.GenericEnvClient(meadow, contract=contract) as env:
            env.reset()
    for settings in ({}, {"protocol": "openenv"}):
        with pytest.raises(eh.ContractMismatch, match=told["digest"]) as caught:
            eh.GenericEnvClient(meadow, contract="sha256:" + "0" * 64, **settings).sync().reset()
        assert "contract show" in caught.value.hint
