"""msgpack and raw tensors of the guest: the packer against the real one, and each codec's sessions driven without a server."""

import asyncio
import dataclasses
import datetime
import enum
import json
import math
import random
import socket
import struct
import sys
import threading
import typing
import uuid

import gymnasium
import msgpack
import msgspec
import jsonschema
import numpy as np
import pydantic
import pytest
from conftest import ROOT
from gymnasium import spaces

sys.path.insert(0, str(ROOT / "guest"))

from envharness_guest import msgpack as own
from envharness_guest.msgpack import Tensor, packb, unpackb
from envharness_guest.serve import frames, load
from envharness_guest.serve.aworker import AsyncWorker
from envharness_guest.serve.contract import contract_of
from envharness_guest.serve.gymtarget import GymCodec, gym_class_target, gym_target
from envharness_guest.serve.plain import PlainCodec
from envharness_guest.serve.session import Session
from envharness_guest.serve.spaces import describe
from envharness_guest.serve.target import PydanticCodec, Target
from envharness_guest.serve.worker import perform

M, T = frames.MSGPACK, frames.TENSOR


# The packer.

EDGES = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
EDGES += [-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63)]


def some(rng, depth=4):
    """A value at random, of what both packers have."""
    kind = rng.randrange(9 if depth else 7)
    size = rng.choice([0, 1, 3, 15, 16, 31, 32, 40, 255, 256, 300])
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice(EDGES) if rng.random() < 0.5 else rng.randrange(-(2**63), 2**64)
    if kind in (2, 3):
        return rng.choice([rng.uniform(-1e9, 1e9), math.inf, -math.inf, -0.0, 5e-324])
    if kind in (4, 5):
        return "".join(rng.choice("abé漢🙂\n\0") for _ in range(size))
    if kind == 6:
        return rng.randbytes(size)
    if kind == 7:
        return [some(rng, depth - 1) for _ in range(rng.choice([0, 1, 3, 15, 17]))]
    return {"k%d" % i: some(rng, depth - 1) for i in range(rng.choice([0, 1, 3, 15, 17]))}


def test_msgpack_is_what_the_real_package_writes_and_reads():
    rng = random.Random(5)
    for value in [*EDGES, "x" * 65535, "x" * 65536, b"y" * 65536, list(range(70000)), {str(i): i for i in range(70000)}]:
        assert packb(value) == msgpack.packb(value)
        assert unpackb(packb(value)) == value
    for _ in range(400):
        value = some(rng)
        data = packb(value)
        assert data == msgpack.packb(value)
        assert unpackb(data) == value == msgpack.unpackb(data)
    assert math.isnan(unpackb(packb(math.nan)))
    assert unpackb(msgpack.packb(0.5, use_single_float=True)) == 0.5
    for whole in (2**64, -(2**63) - 1, 10**4000, -(10**4000)):
        assert unpackb(packb(whole)) == whole
        assert msgpack.unpackb(packb(whole)) == msgpack.ExtType(2, str(whole).encode())


@pytest.mark.parametrize("name", [name for name, _, _ in own.DTYPES])
def test_arrays_of_every_dtype_cross(name):
    numbers = np.arange(-6, 18).reshape(2, 3, 4).astype(name)
    shapes = (numbers, numbers[:, ::2], numbers.T, numbers[0, 0, 0:1], np.asarray(numbers[0, 0, 0]), numbers[:0], numbers[:, :0])
    for array in (*shapes, numbers.astype(numbers.dtype.newbyteorder(">"))):
        data = packb(array)
        back = unpackb(data)
        assert back.dtype == np.dtype(name) and back.shape == array.shape and back.flags.writeable
        assert np.array_equal(back, array)
        assert unpackb(data, lists=True) == array.tolist()
        code, ndim, zero = struct.unpack_from("<BBH", msgpack.unpackb(data).data)
        assert (own.DTYPES[code - 1][0], ndim, zero) == (name, array.ndim, 0)
    if name != "bool":
        assert unpackb(packb(np.dtype(name).type(7))) == 7


def test_without_numpy_arrays_are_tensors(monkeypatch):
    data = packb(np.arange(3, dtype="i2"))
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert unpackb(data) == Tensor("int16", (3,), b"\0\0\1\0\2\0")
    assert packb(Tensor("int16", (3,), b"\0\0\1\0\2\0")) == data
    with pytest.raises(TypeError):
        packb(Tensor("complex64", (0,), b""))


def test_what_has_no_place_is_refused():
    for value in (object(), {1, 2}, 1j, np.array([None]), np.array([1j]), np.array("a"), {(1,): 2}, {b"a": 1}):
        with pytest.raises(TypeError):
            packb(value)
    deep = []
    for _ in range(300):
        deep = [deep]
    for value in ("\ud800", {"\ud800": 1}, deep, 10**5000):
        with pytest.raises(ValueError):
            packb(value)

    class Number(enum.IntEnum):
        ONE = 1

    assert unpackb(packb({2: 2, 1.5: 3, None: 4, True: 5, np.int64(9): 6})) == {"2": 2, "1.5": 3, "null": 4, "true": 5, "9": 6}
    assert unpackb(msgpack.packb({1: 2, -7: 3})) == {"1": 2, "-7": 3}
    odd = [Number.ONE, np.float32(0.5), np.str_("a"), np.bool_(True), bytearray(b"b"), (1,)]
    assert unpackb(packb(odd)) == [1, 0.5, "a", True, b"b", [1]]
    assert unpackb(packb([{2}], default=list)) == [[2]]
    with pytest.raises(ValueError):
        packb(object(), default=lambda value: value)


def test_hostile_bytes_are_a_value_error_and_cost_little():
    rng = random.Random(11)
    seeds = [packb(some(rng)) for _ in range(60)] + [packb([np.zeros((2, 3), "f4"), 2**70, {"a": b"xyz"}])]
    seeds += [packb({"observation": {"x": np.arange(5)}, "reward": 1.0, "done": False})]
    for _ in range(20000):
        data = bytearray(rng.choice(seeds)) if rng.random() < 0.7 else bytearray(rng.randbytes(rng.randrange(1, 40)))
        for _ in range(rng.randrange(4)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        data = bytes(data[: rng.randrange(len(data) + 1)]) if rng.random() < 0.3 else bytes(data)
        try:
            unpackb(data, rng.random() < 0.5)
        except ValueError:
            pass
    good = packb({"a": [1, 2.5, "text", b"bytes", 2**80, np.arange(4)]})
    for end in range(len(good)):
        with pytest.raises(ValueError):
            unpackb(good[:end])

    def array(dims, data=b""):
        return msgpack.packb(msgpack.ExtType(1, struct.pack("<BBH%dI" % len(dims), 2, len(dims), 0, *dims) + data))

    bad = [
        b"", good + b"\0", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xa1\xff",
        b"\x81\x90\x01", b"\x91" * 100000, b"\x81\xa1a" * 5000, b"\xc7\x00\x01",
        array([2**32 - 1] * 8), array([3], b"ab"), array([0] + [2**32 - 1] * 8), array([1] * 40, b"a"),
        *(msgpack.packb(msgpack.ExtType(2, digits)) for digits in (b"1_0", b"", b"-", b"--1", b"9" * 5000)),
        msgpack.packb(msgpack.ExtType(5, b"x")), msgpack.packb(msgpack.Timestamp(1, 2)),
    ]  # fmt: skip
    for data in bad:
        with pytest.raises(ValueError):
            unpackb(data)
    with pytest.raises(ValueError):
        unpackb(array([2**31, 2, 0]), lists=True)
    assert unpackb(b"\xc7\x05\x01\x01\x00\x00\x00\x07").tolist() is True


# Sessions.


def ask(session, op, value=None, flags=M):
    kind, bits, data = perform(session, op, flags, b"" if value is None else packb(value))
    return kind, bits, unpackb(data) if kind == frames.OK and data else json.loads(data or b"null")


def opened(factory, codec, **facts):
    session = Session(Target(factory, codec, "it", "It", **facts), 1)
    assert perform(session, frames.OPEN, 0, b"") == (frames.OK, 0, b"")
    return session


class Color(enum.Enum):
    RED = "red"


class Inner(pydantic.BaseModel):
    when: datetime.date = datetime.date(2024, 1, 2)
    names: set = pydantic.Field(default_factory=lambda: {"a"})
    color: Color = Color.RED


class Observation(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    done: bool = False
    reward: typing.Optional[float] = None
    metadata: dict = pydantic.Field(default_factory=dict)
    picture: bytes = b"\xff\x00"
    pixels: typing.Any = None
    level: float = math.nan
    inner: Inner = pydantic.Field(default_factory=Inner)
    at: tuple = (1, 2)
    key: uuid.UUID = uuid.UUID(int=7)


class Action(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    numbers: typing.List[float]
    data: bytes = b""


class State(pydantic.BaseModel):
    step_count: int = 0
    best: float = math.inf


class Modelled:
    def __init__(self):
        self.state = State()

    def reset(self, seed=None):
        return Observation(pixels=np.full((2, 2), seed or 0, "u1"))

    def step(self, action):
        self.state.step_count += 1
        return Observation(reward=sum(action.numbers), done=len(action.data) > 1, picture=b"p", metadata={"got": action.data})


def test_a_pydantic_environment_speaks_msgpack():
    session = opened(Modelled, PydanticCodec(Action, Observation, State))
    kind, bits, reply = ask(session, frames.RESET, {"seed": 3, "unknown": 1})
    assert (kind, bits) == (frames.OK, 0)
    assert list(reply) == ["observation", "reward", "done"]
    seen = reply["observation"]
    assert seen["pixels"].tolist() == [[3, 3], [3, 3]] and seen["pixels"].dtype == np.uint8
    assert math.isnan(seen["level"]) and seen["picture"] == b"\xff\x00"
    assert seen["inner"] == {"when": "2024-01-02", "names": ["a"], "color": "red"}
    assert seen["at"] == [1, 2] and seen["key"] == str(uuid.UUID(int=7))
    kind, bits, reply = ask(session, frames.STEP, {"numbers": np.array([1.5, 2.0]), "data": b"\xfe\xff"})
    assert (kind, bits, reply["reward"], reply["done"], reply["metadata"]) == (frames.OK, frames.DONE, 3.5, True, {"got": b"\xfe\xff"})
    assert ask(session, frames.STATE) == (frames.OK, 0, {"step_count": 1, "best": math.inf})
    kind, _, items = ask(session, frames.STEP, {"numbers": ["x"]})
    assert kind == frames.INVALID and items[0]["loc"] == ["numbers", 0]
    # What JSON has no way to show must not keep an error from being told.
    assert ask(session, frames.STEP, {"numbers": math.nan})[2][0]["input"] is None
    assert ask(session, frames.STEP, {"numbers": b"\xff"})[0] == frames.INVALID
    assert ask(session, frames.STEP, [1])[0] == frames.INVALID
    kind, _, data = perform(session, frames.STEP, M, b"\x81")
    assert kind == frames.INVALID and json.loads(data)[0]["type"] == "msgpack_invalid"
    kind, _, failed = ask(session, frames.STEP, {"numbers": []}, flags=T)
    assert (kind, failed["code"]) == (frames.FAILED, "NOT_AVAILABLE")
    assert ask(session, frames.RENDER)[2]["code"] == "NOT_AVAILABLE"
    # JSON is as it was.
    kind, bits, data = perform(session, frames.STEP, 0, b'{"numbers":[1]}')
    assert (kind, bits, json.loads(data)["reward"]) == (frames.OK, frames.NOT_FINITE, 1.0)


@dataclasses.dataclass
class Push:
    force: float
    left: bool = False


@dataclasses.dataclass
class Seen:
    x: float
    grid: typing.Any = None
    reward: float = 0.0
    done: bool = False


class Record(msgspec.Struct, rename="camel"):
    some_bytes: bytes
    grid: typing.Any = None
    reward: float = 0.0
    done: bool = False


class Pull(msgspec.Struct):
    force: float
    names: typing.List[str] = []


class OfRecords:
    made = Seen

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self):
        return Seen(x=math.nan, grid=np.eye(2, dtype="f4"))

    def step(self, action):
        return Seen(x=action.force, reward=1.0, done=True)

    def render(self):
        return np.zeros((1, 2, 3), "u1") if self.render_mode != "ansi" else "##"


class OfStructs(OfRecords):
    metadata: typing.ClassVar = {"render_modes": ["rgb_array", "ansi"]}

    def reset(self):
        return Record(some_bytes=b"\xff", grid=np.arange(2))

    def step(self, action):
        return Record(some_bytes=action.names[0].encode(), reward=action.force, done=True)

    def state(self):
        return Record(some_bytes=b"\x01")


class OfAnything:
    def reset(self):
        return np.zeros(3), {"why": {1}}

    def step(self, action):
        return {"sum": action["n"].sum(), "kind": type(action["n"]).__name__}, 1, False, {}


def test_records_structs_and_plain_values_speak_msgpack():
    session = opened(OfRecords, PlainCodec(Push, Seen, None))
    _, _, reply = ask(session, frames.RESET)
    assert math.isnan(reply["observation"]["x"]) and reply["observation"]["grid"].dtype == np.float32
    assert ask(session, frames.STEP, {"force": 2}) == (frames.OK, frames.DONE, {"observation": {"x": 2.0, "grid": None}, "reward": 1.0, "done": True})
    assert ask(session, frames.STEP, {"force": "no"})[2][0]["loc"] == ["force"]
    assert ask(session, frames.RENDER)[2].shape == (1, 2, 3)

    session = opened(OfStructs, PlainCodec(Pull, Record, None))
    _, _, reply = ask(session, frames.RESET)
    assert reply["observation"]["someBytes"] == b"\xff" and reply["observation"]["grid"].tolist() == [0, 1]
    _, bits, reply = ask(session, frames.STEP, {"force": 1.5, "names": ["a"]})
    assert (bits, reply["observation"]["someBytes"], reply["reward"]) == (frames.DONE, b"a", 1.5)
    assert ask(session, frames.STEP, {"force": 1, "names": [3]})[0] == frames.INVALID
    assert ask(session, frames.STATE)[2]["someBytes"] == b"\x01"

    session = opened(OfAnything, PlainCodec(None, None, None))
    _, _, reply = ask(session, frames.RESET)
    assert reply["observation"]["value"].tolist() == [0, 0, 0] and reply["metadata"] == {"why": [1]}
    assert ask(session, frames.STEP, {"n": np.array([1, 2])})[2]["observation"] == {"sum": 3, "kind": "ndarray"}


def test_a_render_mode_goes_to_the_constructor_that_takes_it():
    target = Target(OfStructs, PlainCodec(Pull, Record, None), "it", "It")
    for mode, picture in (("ansi", "##"), ("rgb_array", [[[0, 0, 0], [0, 0, 0]]])):
        session = Session(target, 1)
        assert perform(session, frames.OPEN, 0, json.dumps({"render_mode": mode}).encode())[0] == frames.OK
        seen = ask(session, frames.RENDER)[2]
        assert (seen if mode == "ansi" else seen.tolist()) == picture
    for environment, words in ((OfStructs, "there are rgb_array, ansi"), (Modelled, "this environment has none")):
        session = Session(Target(environment, PlainCodec(None, None, None), "it", "It"), 1)
        kind, _, data = perform(session, frames.OPEN, 0, b'{"render_mode":"human"}')
        assert kind == frames.FAILED and json.loads(data)["code"] == "FACTORY_ERROR" and words in json.loads(data)["message"]


# Gymnasium.


def raw(data):
    """Reward, observation and info of a raw answer."""
    reward, length = struct.unpack_from("<dI", data)
    return reward, data[12 : 12 + length], data[12 + length :]


def gym_session(name):
    target, contract = gym_target("gym:" + name)
    session = Session(target, 1)
    assert perform(session, frames.OPEN, 0, b"")[0] == frames.OK
    return session, contract


def test_an_episode_of_cartpole_is_the_same_in_all_three_forms():
    session, _ = gym_session("CartPole-v1")
    rng = random.Random(3)
    for seed in range(6):
        actions, episodes = [rng.randrange(2) for _ in range(500)], []
        start = json.dumps({"seed": seed, "episode_id": "e"}).encode()
        for flags in (0, M, T):
            rows = []
            for number, action in enumerate([None, *actions]):
                if number == 0:
                    payload, op = packb({"seed": seed, "episode_id": "e"}) if flags == M else start, frames.RESET
                else:
                    payload = {0: b'{"action":%d}' % action, M: packb({"action": action}), T: struct.pack("<q", action)}[flags]
                    op = frames.STEP
                kind, bits, data = perform(session, op, flags, payload)
                assert kind == frames.OK
                if flags == T:
                    reward, seen, info = raw(data)
                    assert info == b"" and bool(bits & frames.DONE) == bool(bits & (frames.TERMINATED | frames.TRUNCATED))
                    rows.append((np.frombuffer(seen, "<f4").tolist(), None if math.isnan(reward) else reward, bits & frames.TERMINATED > 0))
                else:
                    reply = json.loads(data) if flags == 0 else unpackb(data)
                    inner = reply["observation"]
                    assert flags == 0 or inner["observation"].dtype == np.float32
                    rows.append(([float(n) for n in inner["observation"]], reply["reward"], inner["terminated"]))
                if bits & frames.DONE:
                    break
            episodes.append(rows)
            assert json.loads(perform(session, frames.STATE, 0, b"")[2]) == {"episode_id": "e", "step_count": len(rows) - 1}
        assert episodes[0] == episodes[1] == episodes[2]
        assert ask(session, frames.STATE)[2]["episode_id"] == "e"


def test_a_time_limit_is_truncation():
    session, contract = gym_session("Pendulum-v1")
    assert contract["observation"]["x-gym"]["max_episode_steps"] == 200
    assert perform(session, frames.RESET, T, b'{"seed":1}')[0] == frames.OK
    for number in range(200):
        kind, bits, data = perform(session, frames.STEP, T, struct.pack("<f", 0.5))
        assert kind == frames.OK and len(raw(data)[1]) == 12
        assert bits == (frames.DONE | frames.TRUNCATED if number == 199 else 0)


def test_raw_actions_outside_of_the_space_are_refused():
    session, _ = gym_session("CartPole-v1")
    perform(session, frames.RESET, T, b"")
    for payload, value in ((struct.pack("<q", 2), 2), (struct.pack("<q", -1), -1), (b"\0" * 4, None), (b"", None), (b"\0" * 9, None)):
        kind, _, data = perform(session, frames.STEP, T, payload)
        (item,) = json.loads(data)
        assert kind == frames.INVALID and (item["type"], item["loc"]) == ("value_error", ["action"])
        assert item["msg"] == "Value is not in Discrete(2)" and (value is None or item["input"] == value)
        assert value is None or json.loads(perform(session, frames.STEP, 0, b'{"action":%d}' % value)[2])[0] == item
    assert json.loads(perform(session, frames.STATE, 0, b"")[2])["step_count"] == 0
    session, _ = gym_session("Pendulum-v1")
    perform(session, frames.RESET, T, b"")
    for value in (2.5, -3.0, math.nan, math.inf):
        assert perform(session, frames.STEP, T, struct.pack("<f", value))[0] == frames.INVALID


class Mirror(gymnasium.Env):
    """Gives back the action as the observation, and changes it in place."""

    def __init__(self, action_space, observation_space=None, seen=None, info=None):
        self.action_space, self.observation_space = action_space, observation_space or action_space
        self.seen, self.info = seen, info or {}

    def reset(self, seed=None, options=None):
        return self.observation_space.sample() if self.seen is None else self.seen, {}

    def step(self, action):
        assert self.action_space.contains(action)
        if isinstance(action, np.ndarray):
            before = action.copy()
            action[...] = 0
            action = before
        return action if self.seen is None else self.seen, np.float32(0.5), np.bool_(False), True, self.info


def mirrored(*arguments, **more):
    target, contract = gym_class_target(type("Mirrored", (Mirror,), {"__init__": lambda self: Mirror.__init__(self, *arguments, **more)}))
    session = Session(target, 1)
    assert perform(session, frames.OPEN, 0, b"")[0] == frames.OK
    return session, contract


SINGLE = [
    spaces.Discrete(3, start=-1),
    spaces.Discrete(5000, start=7),
    spaces.Box(-1, 1, (3,), np.float32),
    spaces.Box(np.array([-1.0, -np.inf, 0]), np.array([1.0, np.inf, 0.5]), dtype=np.float64),
    spaces.Box(-np.inf, np.inf, (4, 5), np.float32),
    spaces.Box(-2, 2, (), np.float16),
    spaces.Box(0, 255, (6, 5, 3), np.uint8),
    spaces.Box(0, 200, (6, 5), np.uint8),
    spaces.Box(-5, 9, (2, 2), np.int16),
    spaces.MultiDiscrete([3, 4, 5]),
    spaces.MultiDiscrete([[3, 4], [2, 2]], start=[[0, 1], [0, -1]]),
    spaces.MultiBinary(4),
    spaces.MultiBinary([3, 4]),
]


@pytest.mark.parametrize("space", SINGLE, ids=str)
def test_raw_values_of_every_single_tensor_cross(space):
    session, contract = mirrored(space)
    dtype = np.dtype("<i8") if isinstance(space, spaces.Discrete) else space.dtype
    assert perform(session, frames.RESET, T, b"")[0] == frames.OK
    space.seed(4)
    for _ in range(30):
        value = np.asarray(space.sample())
        kind, bits, data = perform(session, frames.STEP, T, value.astype(dtype).tobytes())
        assert (kind, bits) == (frames.OK, frames.DONE | frames.TRUNCATED)
        reward, seen, info = raw(data)
        assert (reward, info) == (0.5, b"") and np.array_equal(np.frombuffer(seen, dtype).reshape(value.shape), value)
        _, bits, reply = ask(session, frames.STEP, {"action": value})
        assert bits == frames.DONE and np.array_equal(reply["observation"]["observation"], value)
    # What the space refuses is refused, byte for byte as `contains` has it.
    rng = np.random.default_rng(9)
    for _ in range(200):
        wrong = rng.bytes(max(dtype.itemsize * int(np.prod(space.shape)), 1))
        array = np.frombuffer(wrong, dtype).reshape(space.shape)
        fits = space.contains(array[()] if isinstance(space, spaces.Discrete) else array)
        assert (perform(session, frames.STEP, T, wrong)[0] == frames.OK) == fits
    assert perform(session, frames.STEP, T, wrong + b"\0")[0] == frames.INVALID
    told = contract["action"]["properties"]["action"]["x-space"]
    assert told == contract["observation"]["properties"]["observation"]["x-space"] == json.loads(json.dumps(told, allow_nan=False))
    assert made(told) == space


def made(told):
    """The space of its description, as a client makes it."""
    def bound(value):
        return np.float64(value) if isinstance(value, str) else value

    kind = told["kind"]
    if kind == "Discrete":
        return spaces.Discrete(told["n"], start=told["start"])
    if kind == "Box":
        low, high = (np.array([bound(n) for n in told[k]]).reshape(told["shape"]) if isinstance(told[k], list) else bound(told[k]) for k in ("low", "high"))
        return spaces.Box(low, high, tuple(told["shape"]), np.dtype(told["dtype"]).type)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(told["nvec"], start=told.get("start"), dtype=np.dtype(told["dtype"]).type)
    if kind == "MultiBinary":
        return spaces.MultiBinary(told["n"])
    if kind == "Text":
        return spaces.Text(told["max_length"], min_length=told["min_length"], charset=told["charset"])
    if kind == "Dict":
        return spaces.Dict([(key, made(told["spaces"][key])) for key in told["keys"]])
    if kind in ("Tuple", "OneOf"):
        return getattr(spaces, kind)([made(inner) for inner in told["spaces"]])
    if kind == "Sequence":
        return spaces.Sequence(made(told["feature"]), stack=told["stack"])
    return spaces.Graph(made(told["node"]), made(told["edge"]) if told["edge"] else None)


MANY = [
    spaces.Dict({"b": spaces.Box(0, 1, (2,)), "a": spaces.Discrete(4)}),
    spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(3)]),
    spaces.Sequence(spaces.Discrete(3)),
    spaces.Sequence(spaces.Box(0, 1, (2,)), stack=True),
    spaces.Text(5, charset="abc"),
    spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (1,))]),
    spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
    spaces.Graph(spaces.Discrete(3), None),
]


@pytest.mark.parametrize("space", MANY, ids=str)
def test_other_spaces_are_described_and_have_no_raw_values(space):
    told = describe(space)
    assert made(json.loads(json.dumps(told))) == space
    session, _ = mirrored(spaces.Discrete(2), space, seen=space.sample())
    for op, payload in ((frames.RESET, b""), (frames.STEP, b"\0" * 8)):
        kind, _, data = perform(session, op, T, payload)
        failed = json.loads(data)
        assert (kind, failed["code"]) == (frames.FAILED, "NOT_AVAILABLE")
        assert "the observation space is no single tensor" in failed["message"] and "action space" not in failed["message"]
    kind, _, reply = ask(session, frames.STEP, {"action": 1})
    assert kind == frames.OK and reply["done"] and "observation" in reply["observation"]


def test_a_space_of_another_making_is_not_described():
    class Odd(spaces.Box):
        pass

    space = Odd(0, 1, (2,))
    assert describe(space) is None and describe(spaces.Dict({"a": space})) is None
    codec = GymCodec(space, spaces.Discrete(2))
    assert codec.tensors is None and "x-space" not in codec.schemas()["action"]["properties"]["action"]


def test_infos_and_observations_that_are_not_quite_of_the_space():
    box = spaces.Box(-10, 10, (2,), np.float32)
    info = {"array": np.arange(2), "nan": math.nan, "deep": {"x": (np.float32(1.5), None)}}
    session, _ = mirrored(spaces.Discrete(2), box, seen=np.array([1.5, 2.0]), info=info)
    kind, _, data = perform(session, frames.STEP, T, struct.pack("<q", 1))
    _, seen, told = raw(data)
    assert kind == frames.OK and np.frombuffer(seen, "<f4").tolist() == [1.5, 2.0]
    assert json.loads(told) == {"array": [0, 1], "nan": None, "deep": {"x": [1.5, None]}}
    seen = ask(session, frames.STEP, {"action": 1})[2]["observation"]
    assert isinstance(seen["info"]["array"], np.ndarray) and math.isnan(seen["info"]["nan"]) and seen["info"]["deep"] == {"x": [1.5, None]}
    for wrong, words in ((np.zeros(3), "shape"), ("text", "shape"), (np.array(["a", "b"]), "<U1")):
        session, _ = mirrored(spaces.Discrete(2), box, seen=wrong)
        kind, _, data = perform(session, frames.STEP, T, struct.pack("<q", 1))
        assert kind == frames.FAILED and words in json.loads(data)["message"]
    session, _ = mirrored(spaces.Discrete(2), spaces.Box(0, 9, (1,), np.uint8), seen=[3.5])
    assert perform(session, frames.STEP, T, struct.pack("<q", 1))[0] == frames.FAILED
    # Half a choice is none, in JSON too.
    session, _ = mirrored(spaces.MultiDiscrete([3, 3]))
    assert perform(session, frames.STEP, 0, b'{"action":[0.5,1]}')[0] == frames.INVALID
    assert perform(session, frames.STEP, 0, b'{"action":[1.0,1]}')[0] == frames.OK
    for wrong in ({"action": b"\xff"}, {"action": math.nan}, {"action": {"a": np.zeros(2)}}, {}, {"action": [0, 1], "x": b""}, [1]):
        assert ask(session, frames.STEP, wrong)[0] == frames.INVALID


def test_gymnasium_draws_when_it_was_asked_to():
    target, contract = gym_target("gym:FrozenLake-v1")
    facts = contract["observation"]["x-gym"]
    assert facts["id"] == "FrozenLake-v1" and "ansi" in facts["render_modes"] and facts["max_episode_steps"] == 100
    session = Session(target, 1)
    assert perform(session, frames.OPEN, 0, b'{"render_mode":"ansi"}')[0] == frames.OK
    perform(session, frames.RESET, T, b'{"seed":1}')
    assert "FFF" in ask(session, frames.RENDER)[2]
    kind, _, data = perform(Session(target, 2), frames.OPEN, 0, b'{"render_mode":"hologram"}')
    assert kind == frames.FAILED and all(mode in json.loads(data)["message"] for mode in facts["render_modes"])
    env = target.make().env
    assert "PassiveEnvChecker" not in repr(env) and "TimeLimit" in repr(env)
    assert contract_of(target.codec, target.environment_class())["action"]["properties"]["action"]["x-space"]["kind"] == "Discrete"
    json.dumps(load.facts_of(target.environment_class()))


class Later:
    def __init__(self, render_mode=None):
        self.drawn = render_mode

    async def reset_async(self, seed=None):
        await asyncio.sleep(0)
        return Seen(x=float(seed), grid=np.arange(3))

    async def step_async(self, action):
        await asyncio.sleep(0)
        return Seen(x=action.force, reward=2.0)

    reset = step = None

    def state(self):
        return {"n": math.inf}

    def render(self):
        return self.drawn


def test_an_asynchronous_worker_answers_in_the_same_forms():
    ours, theirs = socket.socketpair()
    worker = AsyncWorker(Target(Later, PlainCodec(Push, Seen, None), "it", "It"), theirs)
    answers, done = [], threading.Event()

    async def serve():
        worker.loop = asyncio.get_running_loop()
        from concurrent.futures import ThreadPoolExecutor

        worker.pool = ThreadPoolExecutor(1)
        requests = [
            (frames.OPEN, 0, b'{"render_mode":"ansi"}'),
            (frames.RESET, M, packb({"seed": 4})),
            (frames.STEP, M, packb({"force": 1.5})),
            (frames.STATE, M, b""),
            (frames.RENDER, 0, b""),
            (frames.STEP, T, b"\0" * 8),
            (frames.STEP, M, b"\xc1"),
        ]
        for number, (op, flags, payload) in enumerate(requests):
            worker.dispatch(op, flags, 1, number, payload)
        while not done.is_set():
            await asyncio.sleep(0.001)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        reader = frames.Reader()
        ours.settimeout(20)
        while len(answers) < 7:
            answers += reader.feed(ours.recv(1 << 16))
    finally:
        done.set()
        thread.join()
        ours.close()
        theirs.close()
    assert [kind for kind, *_ in answers] == [frames.OK] * 5 + [frames.FAILED, frames.INVALID]
    reset, step, state, picture = (unpackb(answer[4]) for answer in answers[1:5])
    assert reset["observation"]["x"] == 4.0 and reset["observation"]["grid"].tolist() == [0, 1, 2]
    assert step == {"observation": {"x": 1.5, "grid": None}, "reward": 2.0, "done": False}
    assert (state, picture) == ({"n": math.inf}, "ansi")


@pytest.mark.parametrize("space", [*SINGLE, spaces.Box(0, 1, (2, 3), bool)], ids=str)
def test_the_schema_of_a_space_fits_its_values(space):
    session, contract = mirrored(space)
    jsonschema.Draft202012Validator.check_schema(contract["action"])
    assert perform(session, frames.RESET, 0, b"{}")[0] == frames.OK
    space.seed(4)
    for _ in range(10):
        action = {"action": np.asarray(space.sample()).tolist()}
        jsonschema.validate(action, contract["action"])
        kind, _, data = perform(session, frames.STEP, 0, json.dumps(action).encode())
        assert kind == frames.OK and json.loads(data)["observation"]["observation"] == action["action"]
