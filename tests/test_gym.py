"""Served environments as gymnasium has them: spaces, the five values of a step, vectors beside gymnasium's own."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from dataclasses import dataclass, field

import pytest
from conftest import ROOT

gymnasium = pytest.importorskip("gymnasium")
np = pytest.importorskip("numpy")
# Last, since the folder has a small `envharness` of its own.
sys.path.append(str(ROOT / "guest"))

import envharness as eh  # noqa: E402
import envharness.gym as eg  # noqa: E402
from envharness.gym.spaces import Actions, Codec, Observations, Rules, codec_of, from_plain, space_of, to_plain  # noqa: E402
from envharness_guest.serve import gymtarget  # noqa: E402
from gymnasium import spaces as s  # noqa: E402
from gymnasium.utils.env_checker import check_env  # noqa: E402

HAS_VECTOR = hasattr(gymnasium.vector, "AutoresetMode")
needs_vector = pytest.mark.skipif(not HAS_VECTOR, reason="gymnasium before 1.1 has no autoreset modes")
# Gymnasium warns of bounds that are wide, of Text that it cannot flatten, and of what older ones do with newer numpy.
pytestmark = pytest.mark.filterwarnings("default")


def equal(one, other):
    """The same values of the same types, bit by bit."""
    if type(one) is not type(other) and not (isinstance(one, dict) and isinstance(other, dict)):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())
    return bool(one == other)


# A fake of the wire: local gymnasium environments behind the guest's own codec and JSON text.


def number(value):
    value = value.item()
    return str(value) if value in (float("inf"), float("-inf")) else value


def bound(array):
    array = np.asarray(array)
    flat = [number(value) for value in array.ravel()]
    return flat[0] if flat and all(value == flat[0] for value in flat) else flat


def x_space(space):
    """What gym targets annotate."""
    kind = type(space).__name__
    described = {"kind": kind}
    if kind == "Discrete":
        return {**described, "n": int(space.n), "start": int(space.start), "dtype": str(np.dtype(space.dtype))}
    if kind == "Box":
        return {
            **described,
            "shape": list(space.shape),
            "dtype": str(space.dtype),
            "low": bound(space.low),
            "high": bound(space.high),
        }
    if kind == "MultiDiscrete":
        return {
            **described,
            "nvec": space.nvec.tolist(),
            "start": space.start.tolist(),
            "dtype": str(space.dtype),
            "shape": list(space.shape),
        }
    if kind == "MultiBinary":
        return {**described, "shape": list(space.shape), "n": space.n if isinstance(space.n, int) else list(space.n)}
    if kind == "Text":
        return {
            **described,
            "min_length": space.min_length,
            "max_length": space.max_length,
            "charset": "".join(space.character_list),
        }
    if kind == "Dict":
        return {**described, "spaces": {name: x_space(inner) for name, inner in space.spaces.items()}}
    if kind in ("Tuple", "OneOf"):
        return {**described, "spaces": [x_space(inner) for inner in space.spaces]}
    if kind == "Sequence":
        return {**described, "feature": x_space(space.feature_space), "stack": space.stack}
    if kind == "Graph":
        return {**described, "node": x_space(space.node_space), "edge": space.edge_space and x_space(space.edge_space)}
    raise AssertionError(kind)


def gym_contract(env, modes):
    schemas = gymtarget.GymCodec(env.action_space, env.observation_space).schemas()
    schemas["action"]["properties"]["action"]["x-space"] = x_space(env.action_space)
    schemas["observation"]["properties"]["observation"]["x-space"] = x_space(env.observation_space)
    schemas["observation"]["x-gym"] = {"id": "Fake-v0", "render_modes": modes, "render_fps": 50}
    schemas["reset"] = {
        "type": "object",
        "properties": {"seed": {}, "episode_id": {}, "options": {}},
        "additionalProperties": False,
    }
    return json.loads(json.dumps({"name": "fake", "version": "1", "digest": "d", **schemas}))


@dataclass
class Result:
    observation: dict
    reward: float | None
    done: bool
    metadata: dict | None = None


class GymWire:
    """One gymnasium environment, spoken to by JSON."""

    def __init__(self, make, options=None):
        self.env = gymtarget.GymEnvironment(make(**(options or {})))
        self.codec = gymtarget.GymCodec(self.env.env.action_space, self.env.env.observation_space)
        modes = ["human", "rgb_array", "rgb_array_list"] if make is Rich else []
        self.contract = gym_contract(self.env.env, modes)

    def reset(self, **given):
        return self.heard(self.env.reset(**given))

    def step(self, action):
        return self.heard(self.env.step(self.codec.action(json.dumps(action).encode())))

    def heard(self, value):
        data, _ = self.codec.observation(value, False)
        reply = json.loads(data)
        return Result(reply["observation"], reply["reward"], reply["done"])

    def render(self):
        return self.env.env.render()

    def state(self):
        return dict(self.env.state)

    def close(self):
        self.env.close()


class ScriptWire:
    """A pydantic package that says what it was told to say."""

    def __init__(self, contract, replies):
        self.contract, self.replies, self.asked = contract, list(replies), []

    def reset(self, **given):
        self.asked.append(("reset", given))
        return self.replies.pop(0)

    def step(self, action):
        self.asked.append(("step", action))
        return self.replies.pop(0)

    def close(self):
        self.asked.append(("close", None))


@dataclass
class FakeVector:
    """The vector client over wires, one after the other."""

    wires: list
    autoreset: str
    broken: set = field(default_factory=set)

    def __post_init__(self):
        self.num_envs, self.contract = len(self.wires), self.wires[0].contract
        self.observation_space, self.action_space = (self.tensor_space(side) for side in ("observation", "action"))
        self.ended, self.last = [False] * self.num_envs, [None] * self.num_envs
        self.closed = 0

    def tensor_space(self, side):
        described = self.contract[side]["properties"][side].get("x-space", {"kind": None})
        tensor = described["kind"] in ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
        return space_of(described) if tensor else None

    def reset(self, seeds=None, slots=None, options=None):
        chosen = list(range(self.num_envs) if slots is None else np.flatnonzero(slots))
        given = {} if options is None else {"options": options}
        results, errors = [], {}
        for slot in chosen:
            seed = None if seeds is None else seeds[slot]
            self.ended[slot] = False
            results.append(self.wires[slot].reset(**given, **({} if seed is None else {"seed": seed})))
        return self.joined(chosen, results, errors)

    def step(self, actions):
        assert len(actions) == self.num_envs and isinstance(actions, np.ndarray) is (self.action_space is not None)
        results, errors, finals = [None] * self.num_envs, {}, [None] * self.num_envs
        for slot, wire in enumerate(self.wires):
            action = {"action": actions[slot].tolist()} if self.action_space else actions[slot]
            if slot in self.broken:
                errors[slot], self.ended[slot] = eh.OutsideError("the worker died"), True
                self.broken.discard(slot)
            elif self.ended[slot] and self.autoreset != "disabled":
                results[slot] = wire.reset()
                results[slot].reward, self.ended[slot] = 0.0, False
            else:
                results[slot] = wire.step(action)
                self.ended[slot] = results[slot].done
                if results[slot].done and self.autoreset == "same_step":
                    finals[slot] = results[slot]
                    fresh = wire.reset()
                    results[slot] = Result(fresh.observation, finals[slot].reward, True)
                    self.ended[slot] = False
        return self.joined(list(range(self.num_envs)), results, errors, finals)

    def joined(self, slots, results, errors, finals=None):
        ends = [final or result for final, result in zip(finals or results, results)]

        def flags(name):
            return np.array([bool(end and end.observation[name]) for end in ends])

        space = self.observation_space

        def seen(result):
            if result is None:
                return np.zeros(space.shape, space.dtype) if space else None
            return from_plain(space, result.observation["observation"]) if space else result.observation

        def info(result):
            return dict(result.observation["info"]) if result and space else {}

        observations = [seen(result) for result in results]
        rewards = [np.nan if result is None or result.reward is None else result.reward for result in results]
        return eh.VectorResult(
            slots=np.array(slots),
            observations=np.stack(observations) if space else observations,
            rewards=np.array(rewards),
            dones=flags("terminated") | flags("truncated"),
            terminated=flags("terminated"),
            truncated=flags("truncated"),
            infos=[info(result) for result in results],
            errors=errors,
            final_observations=None if finals is None else [final and seen(final) for final in finals],
            final_infos=None if finals is None else [final and info(final) for final in finals],
        )

    def render(self):
        return [wire.render() for wire in self.wires]

    def close(self):
        self.closed += 1
        for wire in self.wires:
            wire.close()


@pytest.fixture
def world(monkeypatch):
    """Puts makers of wires behind addresses; the clients that are made are kept."""
    places, made = {}, []

    class Client:
        def __init__(self, url, token=None, headers=None, request_timeout=60.0, open_options=None):
            self.given = {
                "token": token,
                "headers": headers,
                "request_timeout": request_timeout,
                "open_options": open_options,
            }
            self.wire, self.connected, self.closed = places[url](open_options), 0, 0
            self.contract, self.step, self.reset = self.wire.contract, self.wire.step, self.wire.reset
            made.append(self)

        def sync(self):
            return self

        def connect(self):
            self.connected += 1

        def render(self):
            return self.wire.render()

        def state(self):
            return self.wire.state()

        def close(self):
            self.closed += 1
            self.wire.close()

    def vector(url, num_envs, autoreset, stack, token, headers, request_timeout, open_options):
        urls = url if isinstance(url, list) else [url]
        made.append(FakeVector([places[urls[slot % len(urls)]](open_options) for slot in range(num_envs)], autoreset))
        return made[-1]

    monkeypatch.setattr(eh, "GenericEnvClient", Client, raising=False)
    monkeypatch.setattr(eh, "VectorClient", vector, raising=False)
    return type("World", (), {"places": places, "made": made})


def cartpole(**options):
    return gymnasium.make("CartPole-v1", disable_env_checker=True, max_episode_steps=12, **options)


class Rich(gymnasium.Env):
    """Composite spaces, infos of all kinds, episodes of random length."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = s.Dict(
            {
                "at": s.Box(-1, 1, (2,), np.float32),
                "room": s.Discrete(4, start=-1),
                "word": s.Text(5, charset="abc"),
                "pair": pair_space(),
            }
        )
        self.action_space = s.Dict({"push": s.Box(-1, 1, (2,), np.float32), "key": s.MultiBinary(3)})

    def look(self):
        rng = self.np_random
        return {
            "at": rng.uniform(-1, 1, 2).astype(np.float32),
            "room": np.int64(rng.integers(-1, 3)),
            "word": "abc"[: rng.integers(1, 3)],
            "pair": (np.int64(rng.integers(2)), rng.integers(0, 5, 3).astype(np.int8)),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {"begun": True, "options": dict(options or {})}

    def step(self, action):
        assert self.action_space.contains(action), action
        draw = self.np_random.random()
        info = {"draw": float(draw), "inner": {"half": float(draw / 2)}, "name": f"{draw:.2f}"}
        if draw < 0.3:
            info["rare"] = 7
        return self.look(), float(action["push"].sum()), bool(draw < 0.2), bool(0.2 < draw < 0.3), info

    def render(self):
        return np.full((4, 6, 3), 9, np.uint8)


def pair_space():
    return s.Tuple((s.Discrete(2), s.Box(0, 4, (3,), np.int8)))


# Spaces.

SPACES = [
    s.Discrete(2),
    s.Discrete(5, start=-2),
    s.Box(-1, 1, (3, 2), np.float32),
    s.Box(np.array([-4.8, -np.inf], np.float32), np.array([4.8, np.inf], np.float32), dtype=np.float32),
    s.Box(-np.inf, np.inf, (), np.float64),
    s.Box(0, 255, (4, 5, 3), np.uint8),
    s.Box(-3, np.inf, (2,), np.int64),
    s.Box(0, 1, (0, 3), np.float32),
    s.MultiDiscrete([2, 3, 4]),
    s.MultiDiscrete(np.array([[1, 2], [3, 4]]), dtype=np.int32, start=np.array([[0, -1], [5, 0]])),
    s.MultiBinary(4),
    s.MultiBinary([2, 3]),
    s.Text(6, min_length=0, charset="xyz"),
    s.Dict({"b": s.Discrete(3), "a": s.Dict({"c": s.Box(0, 1, (2,), np.float32)})}),
    s.Tuple((s.Discrete(2), s.Text(3), s.Tuple((s.MultiBinary(2),)))),
    s.Sequence(s.Box(0, 1, (2,), np.float32)),
    s.Sequence(s.Dict({"x": s.Discrete(3)})),
    s.Sequence(s.Box(0, 1, (2,), np.float32), stack=True),
    s.Sequence(s.Dict({"x": s.Discrete(3), "y": s.Box(0, 1, (2,), np.float32)}), stack=True),
    s.Graph(s.Box(-1, 1, (3,), np.float32), s.Discrete(4)),
    s.Graph(s.Discrete(5), None),
]
if hasattr(s, "OneOf"):
    SPACES.append(s.OneOf([s.Discrete(3), s.Dict({"x": s.Box(0, 1, (2,), np.float32)})]))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_every_kind_of_space_crosses_with_its_values(space):
    again = space_of(json.loads(json.dumps(x_space(space))))
    assert again == space and type(again) is type(space)
    space.seed(3)
    again.seed(3)
    for _ in range(20):
        value = space.sample()
        assert equal(again.sample(), value)
        sent = json.loads(json.dumps(gymtarget.to_json(space, value), allow_nan=False))
        back = from_plain(again, sent)
        assert again.contains(back), back
        assert equal(plain_types(back), plain_types(value))
        assert json.loads(json.dumps(to_plain(again, value))) == sent
        if not guest_cannot_read(space):
            assert space.contains(gymtarget.from_json(space, json.loads(json.dumps(to_plain(again, value)))))


def guest_cannot_read(space):
    """Graphs, an axis of length 0, stacks of composite values."""
    stacked = isinstance(space, s.Sequence) and space.stack and isinstance(space.feature_space, s.Dict)
    return isinstance(space, s.Graph) or stacked or 0 in (space.shape or ())


def plain_types(value):
    """NumPy's own scalars and ours may differ in class where they are equal; edges' links come in two widths."""
    if isinstance(value, s.GraphInstance):
        return tuple(None if part is None else np.asarray(part).tolist() for part in value)
    return value


def test_a_number_that_is_none_on_the_wire_is_nan():
    box = s.Box(-np.inf, np.inf, (2,), np.float32)
    assert np.isnan(from_plain(box, [None, 1.5])[0])
    frozen = np.ones(2, np.float32)
    frozen.flags.writeable = False
    assert from_plain(box, frozen).flags.writeable


def test_values_of_another_type_or_shape_are_not_bent():
    with pytest.raises(TypeError):
        to_plain(s.Discrete(3), 1.7)
    with pytest.raises(TypeError, match="whole numbers"):
        to_plain(s.MultiDiscrete([3, 3]), [0.5, 1])
    with pytest.raises(ValueError, match=r"\(2,\) is expected, not \(3,\)"):
        to_plain(s.Box(0, 1, (2,)), [0, 0, 0])


def test_an_unknown_kind_is_named():
    with pytest.raises(eh.NotAvailableError, match=r"`x-space\.a` has a space of the kind 'Fractal'"):
        space_of({"kind": "Dict", "spaces": {"a": {"kind": "Fractal"}}})


@pytest.mark.parametrize(
    ("schema", "space", "pairs"),
    [
        ({"type": "integer", "minimum": 2, "maximum": 5}, s.Discrete(4, start=2), [(3, 3)]),
        ({"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 5}, s.Discrete(2, start=3), [(3, 3)]),
        ({"enum": [0, 1, 2], "type": "integer"}, s.Discrete(3), [(2, 2)]),
        ({"enum": [3, 1, 2], "type": "integer"}, s.Discrete(3, start=1), [(3, 3)]),
        ({"enum": [1, 10], "type": "integer"}, s.Discrete(2), [(1, 10)]),
        ({"enum": ["UP", "DOWN"], "type": "string"}, s.Discrete(2), [(0, "UP"), (1, "DOWN")]),
        ({"enum": [True, 1, None]}, s.Discrete(3), [(0, True), (1, 1), (2, None)]),
        ({"const": "go"}, s.Discrete(1), [(0, "go")]),
        ({"type": "boolean"}, s.Discrete(2), [(1, True), (0, False)]),
        ({"type": "number"}, s.Box(-np.inf, np.inf, (), np.float64), []),
        ({"type": "number", "minimum": 0, "maximum": 1.5}, s.Box(0, 1.5, (), np.float64), []),
        ({"type": "integer", "minimum": 0}, None, []),
        ({"type": "string", "maxLength": 7}, None, [("abc", "abc")]),
        (
            {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]},
            s.Box(-np.inf, np.inf, (), np.float64),
            [],
        ),
        ({"type": ["boolean", "null"]}, s.Discrete(2), []),
        (
            {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "number", "maximum": 3}},
            s.Box(-np.inf, 3, (2,), np.float64),
            [],
        ),
        (
            {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"type": "integer"}, {"type": "integer"}]},
            s.Box(-np.inf, np.inf, (2,), np.int64),
            [],
        ),
        (
            {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"type": "boolean"}, {"enum": ["a", "b"]}]},
            s.Tuple((s.Discrete(2), s.Discrete(2))),
            [((1, 1), [True, "b"])],
        ),
        (
            {
                "$ref": "#/$defs/P",
                "$defs": {
                    "P": {"properties": {"c": {"$ref": "#/$defs/C"}}, "required": ["c"]},
                    "C": {"enum": ["r", "g"]},
                },
            },
            s.Dict({"c": s.Discrete(2)}),
            [({"c": 1}, {"c": "g"})],
        ),
    ],
    ids=str,
)
def test_json_schemas_become_spaces(schema, space, pairs):
    codec = codec_of(schema)
    if space is not None:
        assert codec.space == space
    for value, wire in pairs:
        assert codec.encode(value) == wire and type(codec.encode(value)) is type(wire)
        assert plain(codec.decode(wire)) == plain(value)
    for _ in range(5):
        value = codec.space.sample()
        back = codec.decode(json.loads(json.dumps(codec.encode(value))))
        assert codec.space.contains(back) and equal(plain(back), plain(value))


def plain(value):
    return gymtarget.plain(value)


def test_a_nested_array_has_the_bounds_of_its_places():
    row = {"type": "array", "minItems": 3, "maxItems": 3, "items": {"type": "integer", "minimum": 0}}
    box = codec_of({"type": "array", "prefixItems": [row, row], "items": False, "minItems": 2}).space
    assert box.shape == (2, 3) and box.dtype == np.int64 and (box.low == 0).all()
    assert box.contains(box.sample())


@pytest.mark.parametrize(
    ("schema", "path", "why"),
    [
        ({"type": "array", "items": {"type": "integer"}}, "action.a", "length is not fixed"),
        ({}, "action.a", "allows anything"),
        ({"type": "object"}, "action.a", "without named fields"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "action.a", "several types"),
        ({"$ref": "#/$defs/T"}, "action.a.t", "contains itself"),
        (None, "action", "without named fields"),
    ],
    ids=["list", "any", "object", "union", "recursive", "empty"],
)
def test_what_has_no_space_is_named_with_what_to_pass(schema, path, why):
    recursive = {"T": {"properties": {"t": {"$ref": "#/$defs/T"}}}}
    schema = {"type": "object", "properties": {} if schema is None else {"a": schema}, "$defs": recursive}
    with pytest.raises(eh.NotAvailableError) as caught:
        Actions({"action": schema}, Rules())
    assert caught.value.message.startswith(f"`{path}` has no space: ") and why in caught.value.message
    assert "`action_space=`" in caught.value.hint and "`encode=`" in caught.value.hint
    with pytest.raises(eh.NotAvailableError) as caught:
        Observations({"observation": schema}, Rules(side="observation"))
    assert "`observation_space=`" in caught.value.hint and "`decode=`" in caught.value.hint


METADATA = {"type": "object", "additionalProperties": True}


def schema_of(required=(), **properties):
    return {"type": "object", "properties": {"metadata": METADATA, **properties}, "required": list(required)}


def test_an_action_of_one_field_is_that_field_and_of_more_a_dict():
    one = Actions({"action": schema_of(["move"], move={"enum": ["L", "R"]})}, Rules())
    assert one.space == s.Discrete(2) and one.encode(1) == {"move": "R"}
    two = Actions({"action": schema_of(["move", "far"], move={"enum": ["L", "R"]}, far={"type": "boolean"})}, Rules())
    assert two.encode({"move": 0, "far": 1}) == {"move": "L", "far": True}


def test_fields_that_may_be_left_out_are_unless_they_are_asked_for():
    schema = schema_of(["move"], move={"enum": ["L", "R"]}, note={"anyOf": [{"type": "string"}, {"type": "null"}]})
    assert Actions({"action": schema}, Rules()).space == s.Discrete(2)
    assert set(Actions({"action": schema}, Rules(optional=True)).space.spaces) == {"move", "note"}
    assert Actions({"action": schema_of(move={"enum": [0, 1]})}, Rules()).space == s.Discrete(2)
    seen = {
        "x": {"type": "integer"},
        "y": {"type": "integer"},
        "hint": {"anyOf": [{"type": "array"}, {"type": "null"}]},
    }
    observations = Observations({"observation": schema_of(**seen)}, Rules(side="observation"))
    assert set(observations.space.spaces) == {"x", "y"}
    assert observations.info({"x": 1, "y": 2, "hint": [3], "done": False}) == {"hint": [3]}


def test_given_spaces_stand_for_fields_or_need_a_codec():
    contract = {
        "action": schema_of(["code"], code={"type": "array", "items": {"type": "integer"}}),
        "observation": schema_of(a={"type": "number"}, b={"type": "array"}),
    }
    assert Actions(contract, Rules(), s.MultiDiscrete([4, 4])).encode([1, 2]) == {"code": [1, 2]}
    assert Actions(contract, Rules(), s.Discrete(3), lambda value: {"code": [int(value)] * 3}).encode(2) == {
        "code": [2, 2, 2]
    }
    some = Observations(contract, Rules(), s.Dict({"a": s.Box(0, 1, (), np.float64)}))
    assert some.decode({"a": 0.5, "b": []}) == {"a": np.array(0.5)} and some.info({"a": 0.5, "b": [1]}) == {"b": [1]}
    with pytest.raises(eh.NotAvailableError, match="has the fields a, b; which the space is for is not clear"):
        Observations(contract, Rules(), s.Discrete(3))
    own = Observations(contract, Rules(), s.Discrete(9), lambda seen: len(seen["b"]))
    assert own.decode({"a": 1, "b": [1, 2]}) == 2 and own.info({"a": 1, "b": [1]}) == {"a": 1, "b": [1]}


def test_an_observation_that_does_not_fit_is_an_error_that_says_so():
    observations = Observations(
        {"observation": schema_of(move={"enum": ["L", "R"]}, x={"type": "integer"})}, Rules(side="observation")
    )
    with pytest.raises(eh.EnvHarnessError, match=r"does not fit Dict.*`x` is missing"):
        observations.decode({"move": "L"})
    with pytest.raises(eh.EnvHarnessError, match="'U', which is none of its choices"):
        observations.decode({"move": "U", "x": 1})


@pytest.mark.parametrize(
    ("observation", "metadata", "done", "ends"),
    [
        ({"terminated": True, "truncated": False}, None, True, (True, False)),
        ({"terminated": False, "truncated": True}, None, True, (False, True)),
        ({"terminated": True, "truncated": True}, None, True, (True, True)),
        ({}, {"truncated": True}, True, (False, True)),
        ({"metadata": {"truncated": True}}, None, True, (False, True)),
        ({"terminated": False}, None, True, (False, True)),
        ({"truncated": False}, None, True, (True, False)),
        ({"terminated": False, "truncated": False}, None, True, (True, False)),
        ({"terminated": "no"}, None, False, (False, False)),
        ({}, None, True, (True, False)),
        ({}, None, False, (False, False)),
    ],
)
def test_an_end_is_what_the_observation_says_and_a_done_alone_is_its_own(observation, metadata, done, ends):
    assert (
        Observations({"observation": schema_of(x={"type": "number"})}, Rules()).ends(observation, metadata, done)
        == ends
    )


# One environment.


@pytest.mark.parametrize("make", [cartpole, Rich], ids=["cartpole", "rich"])
def test_gymnasiums_checker_passes(world, make):
    world.places["ws://fake"] = lambda options: GymWire(make, options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = eg.make("ws://fake")
        check_env(env)
        env.close()
    told = [str(w.message) for w in caught]
    # What it says of these environments' own spaces it says of the local ones as well.
    assert not [text for text in told if "is -infinity" not in text and "is infinity" not in text], told
    assert all(client.closed == 1 for client in world.made)


@pytest.mark.parametrize("make", [cartpole, Rich], ids=["cartpole", "rich"])
def test_an_episode_is_the_local_one(world, make):
    world.places["unix:/x"] = lambda options: GymWire(make, options)
    local, env = make(), eg.make("unix:/x")
    assert env.observation_space == local.observation_space and env.action_space == local.action_space
    local.action_space.seed(5)
    for seed in (3, None):
        assert equal(env.reset(seed=seed), local.reset(seed=seed))
        for _ in range(30):
            action = local.action_space.sample()
            ours, theirs = env.step(action), local.step(action)
            assert equal(ours[:1] + ours[2:], theirs[:1] + tuple(bool(flag) for flag in theirs[2:4]) + theirs[4:])
            assert ours[1] == pytest.approx(theirs[1]) and type(ours[1]) is float
            if ours[2] or ours[3]:
                break
    assert env.state()["step_count"] > 0
    env.close()
    env.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.reset()


def test_rendering_is_asked_for_when_the_instance_is_made(world):
    world.places["ws://fake"] = lambda options: GymWire(Rich, options)
    world.places["ws://plain"] = lambda options: GymWire(Rich)
    env = eg.make("ws://fake", render_mode="rgb_array", token="t", request_timeout=3.0)
    assert world.made[-1].given == {
        "token": "t",
        "headers": None,
        "request_timeout": 3.0,
        "open_options": {"render_mode": "rgb_array"},
    }
    assert env.metadata == {"render_modes": ["rgb_array"], "render_fps": 50} and env.render_mode == "rgb_array"
    env.reset()
    assert env.render().shape == (4, 6, 3)
    env.close()
    with pytest.raises(eh.NotAvailableError, match="no render mode `ansi`; there are: rgb_array"):
        eg.make("ws://plain", render_mode="ansi")
    assert world.made[-1].closed == 1
    plain = eg.make("ws://fake")
    assert world.made[-1].given["open_options"] is None
    with pytest.warns(UserWarning, match="without a render mode"):
        assert plain.render() is None
    plain.close()


def grid_contract():
    """As OpenEnv's packages have it: nothing annotated."""
    flag = {"type": "boolean", "default": False}
    seen = schema_of(
        ["x", "y"], done=flag, reward={"anyOf": [{"type": "number"}, {"type": "null"}]},
        x={"type": "integer", "minimum": 0, "maximum": 4}, y={"type": "integer", "minimum": 0, "maximum": 4},
    )  # fmt: skip
    reset = {"type": "object", "properties": {"seed": {}, "episode_id": {}, "level": {}}, "additionalProperties": True}
    return {
        "name": "grid",
        "action": schema_of(["move"], move={"enum": ["UP", "DOWN"]}),
        "observation": seen,
        "reset": reset,
        "state": {},
    }


def test_a_package_without_spaces_gives_the_five_values(world):
    replies = [
        Result({"x": 0, "y": 0}, None, False),
        Result({"x": 1, "y": 0}, -0.1, False, {"tries": 1}),
        Result({"x": 2, "y": 0, "metadata": {"truncated": True}}, None, True),
    ]
    wire = ScriptWire(grid_contract(), replies)
    world.places["http://grid"] = lambda options: wire
    env = eg.make("http://grid")
    assert env.observation_space == s.Dict({"x": s.Discrete(5), "y": s.Discrete(5)}) and env.metadata == {
        "render_modes": []
    }
    with pytest.warns(eh.EnvHarnessWarning, match="reset does not take colour"):
        assert env.reset(seed=4, options={"level": 2, "colour": "red"}) == ({"x": 0, "y": 0}, {})
    assert env.step(1) == ({"x": 1, "y": 0}, -0.1, False, False, {"metadata": {"tries": 1}})
    assert env.step(0) == (
        {"x": 2, "y": 0},
        0.0,
        False,
        True,
        {"metadata": {"truncated": True}, "reward_missing": True},
    )
    env.close()
    assert wire.asked == [
        ("reset", {"level": 2, "seed": 4}),
        ("step", {"move": "DOWN"}),
        ("step", {"move": "UP"}),
        ("close", None),
    ]


def test_options_go_where_the_reset_takes_them(world):
    contract = grid_contract()
    for reset, given in [
        ({"properties": {"options": {}}}, {"options": {"a": 1}}),
        ({"properties": {"a": {}}}, {"a": 1}),
        (None, {"options": {"a": 1}}),
    ]:
        wire = ScriptWire({**contract, "reset": reset}, [Result({"x": 0, "y": 0}, None, False)] * 2)
        world.places["http://grid"] = lambda options, wire=wire: wire
        env = eg.make("http://grid")
        env.reset(options={"a": 1})
        env.reset(options={})
        env.close()
        assert wire.asked[:2] == [("reset", given), ("reset", {})]


def test_what_cannot_be_made_leaves_nothing_open(world):
    contract = {**grid_contract(), "action": schema_of(["q"], q={"type": "array"})}
    world.places["http://grid"] = lambda options: ScriptWire(contract, [])
    with pytest.raises(eh.NotAvailableError, match=r"`action\.q`"):
        eg.make("http://grid")
    assert world.made[-1].closed == 1


class FakeServer:
    """What `serve` gives."""

    def __init__(self, url):
        self.url, self.stopped = url, 0

    def stop(self, *, hurry=False):
        self.stopped += 1


@pytest.fixture
def served(world, monkeypatch):
    servers = []

    def serve(target, **options):
        servers.append(FakeServer("http://own"))
        servers[-1].given = (target, options)
        return servers[-1]

    world.places["http://own"] = lambda options: GymWire(cartpole, options)
    monkeypatch.setattr(eh, "serve", serve)
    return servers


def test_a_target_is_served_as_long_as_the_environment_is_open(served):
    env = eg.make("gym:CartPole-v1", serve={"packages": ["gymnasium"]})
    assert served[0].given == ("gym:CartPole-v1", {"packages": ["gymnasium"]})
    env.reset(seed=1)
    assert served[0].stopped == 0
    env.close()
    env.close()
    assert served[0].stopped == 1


def test_gymnasium_makes_them_by_id(served, world, monkeypatch):
    eg.registration.plugin()
    eg.registration.plugin()  # again changes nothing, and nothing is overridden
    env = gymnasium.make("envharness/CartPole-v0", disable_env_checker=True)
    assert served[0].given[0] == "native:cartpole" and isinstance(env.unwrapped, eg.RemoteEnv)
    assert env.spec.id == "envharness/CartPole-v0"
    env.close()
    world.places["ws://fake"] = lambda options: GymWire(Rich, options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = gymnasium.make("envharness.gym:envharness/Remote-v0", url="ws://fake", render_mode="rgb_array_list")
        env.reset(seed=1)
        env.step(env.action_space.sample())
        assert [frame.shape for frame in env.render()] == [(4, 6, 3), (4, 6, 3)]
    assert not caught, [str(w.message) for w in caught]
    env.close()
    monkeypatch.delitem(gymnasium.registry, "mine/Maze-v0", raising=False)
    eg.register("mine/Maze-v0", "mazes:Maze", serve={"workers": 1}, text_length=9)
    env = gymnasium.make("mine/Maze-v0", disable_env_checker=True)
    assert served[-1].given == ("mazes:Maze", {"workers": 1})
    env.close()
    del gymnasium.registry["mine/Maze-v0"]


# Vectors.


def both(world, make, count, mode, **options):
    """Ours over the fake, and gymnasium's own over the same environments."""
    world.places["ws://fake"] = lambda given: GymWire(make, given)
    ours = eg.make_vec("ws://fake", count, autoreset_mode=mode, **options)
    theirs = gymnasium.vector.SyncVectorEnv([make] * count, autoreset_mode=ours.autoreset_mode)
    return ours, theirs


def same(ours, theirs):
    """Equal values in equal forms; numbers that crossed as JSON may have become wider."""
    if isinstance(theirs, dict):
        return (
            isinstance(ours, dict)
            and ours.keys() == theirs.keys()
            and all(same(ours[key], theirs[key]) for key in theirs)
        )
    if isinstance(theirs, tuple):
        return isinstance(ours, tuple) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, np.ndarray):
        if theirs.dtype == object:
            return ours.dtype == object and len(ours) == len(theirs) and all(map(same, ours, theirs))
        return (
            ours.dtype == theirs.dtype
            and ours.shape == theirs.shape
            and np.allclose(ours, theirs, atol=1e-6, rtol=1e-6)
        )
    return ours == theirs


@needs_vector
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("make", [cartpole, Rich], ids=["cartpole", "rich"])
def test_a_vector_is_gymnasiums_own(world, make, mode):
    ours, theirs = both(world, make, 3, mode)
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    for name in ("action_space", "observation_space", "single_action_space", "single_observation_space", "num_envs"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert same(ours.reset(seed=7), theirs.reset(seed=7))
    theirs.action_space.seed(1)
    ends = 0
    for _ in range(60):
        actions = theirs.action_space.sample()
        left, right = ours.step(actions), theirs.step(actions)
        assert same(left, right), (left, right)
        ended = right[2] | right[3]
        ends += ended.sum()
        if mode == "disabled" and ended.any():
            with pytest.raises(gymnasium.error.ResetNeeded):
                ours.step(actions)
            mask = {"reset_mask": ended}
            assert same(ours.reset(options=mask), theirs.reset(options=dict(mask)))
            assert "reset_mask" in mask
    assert ends > 5
    assert same(ours.reset(seed=[1, 2, 3]), theirs.reset(seed=[1, 2, 3]))
    ours.close()
    ours.close()
    theirs.close()
    assert world.made[-1].closed == 1
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        ours.reset()


@needs_vector
def test_what_a_vector_returned_stays_as_it_was(world):
    ours, theirs = both(world, cartpole, 2, "next_step")
    first, _ = ours.reset(seed=1)
    kept = first.copy()
    ours.step(np.array([0, 1]))
    assert (first == kept).all()
    first[:] = 9
    assert (ours.step(np.array([0, 1]))[0] != 9).all()
    ours.close()
    theirs.close()


@needs_vector
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_a_failed_slot_raises_and_the_others_are_not_lost(world, mode):
    ours, theirs = both(world, cartpole, 3, mode)
    ours.reset(seed=1)
    theirs.reset(seed=1)
    world.made[-1].broken = {1}
    actions = np.array([0, 1, 0])
    with pytest.raises(eg.VectorStepError, match="1 of 3 slots failed") as caught:
        ours.step(actions)
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, eh.EnvHarnessError) and isinstance(error.errors[1], eh.OutsideError)
    assert "slot 1: the worker died" in str(error)
    observations, rewards, terminated, truncated, infos = error.result
    right = theirs.step(actions)
    assert (observations[[0, 2]] == right[0][[0, 2]]).all() and rewards[[0, 2]].tolist() == [1, 1]
    assert np.isnan(rewards[1]) and not terminated.any() and truncated.tolist() == [False, True, False]
    assert infos["_error"].tolist() == [False, True, False]
    ours.close()
    theirs.close()


@needs_vector
@pytest.mark.parametrize("make", [cartpole, Rich], ids=["cartpole", "rich"])
def test_a_failed_slot_can_be_told_in_the_infos(world, make):
    ours, theirs = both(world, make, 3, "next_step", on_error="info")
    ours.reset(seed=1)
    world.made[-1].broken = {2}
    observations, rewards, _, truncated, infos = ours.step(ours.action_space.sample())
    assert np.isnan(rewards[2]) and truncated[2] and isinstance(infos["error"][2], eh.OutsideError)
    rows = observations if make is cartpole else observations["at"]
    assert (rows[2] == 0).all() and (rows[:2] != 0).any()
    observations, rewards, _, truncated, infos = ours.step(ours.action_space.sample())
    assert rewards[2] == 0 and not truncated[2] and "error" not in infos
    ours.close()
    theirs.close()


@needs_vector
def test_a_missing_reward_is_said_to_be_missing(world):
    ours, theirs = both(world, cartpole, 2, "next_step")
    ours.reset(seed=1)
    wire = world.made[-1].wires[1]
    real = wire.step
    wire.step = lambda action: Result(real(action).observation, None, False)
    _, rewards, _, _, infos = ours.step(np.array([0, 1]))
    assert rewards.tolist() == [1, 0] and infos["reward_missing"].tolist() == infos["_reward_missing"].tolist() == [
        False,
        True,
    ]
    ours.close()
    theirs.close()


@needs_vector
def test_wrong_modes_masks_seeds_and_actions_are_refused(world):
    ours, theirs = both(world, cartpole, 2, gymnasium.vector.AutoresetMode.NEXT_STEP)
    theirs.close()
    with pytest.raises(ValueError, match="autoreset_mode is next_step, same_step, disabled"):
        eg.make_vec("ws://fake", 2, autoreset_mode="sometimes")
    with pytest.raises(ValueError, match="on_error is"):
        eg.make_vec("ws://fake", 2, on_error="ignore")
    for mask in (np.zeros(2, np.bool_), np.ones(3, np.bool_), np.ones(2)):
        with pytest.raises(ValueError, match="reset_mask is a bool array"):
            ours.reset(options={"reset_mask": mask})
    with pytest.raises(ValueError, match="2 seeds are expected"):
        ours.reset(seed=[1, 2, 3])
    ours.reset()
    with pytest.raises(ValueError, match=r"the shape \(2,\) is expected"):
        ours.step(np.array([0, 1, 1]))
    ours.close()


@needs_vector
def test_gymnasium_makes_vectors_by_id_over_several_servers(served, world):
    envs = gymnasium.make_vec("envharness/CartPole-v0", num_envs=3)
    assert isinstance(envs, eg.RemoteVectorEnv) and envs.spec.id == "envharness/CartPole-v0" and envs.num_envs == 3
    envs.reset(seed=1)
    envs.close()
    assert served[0].stopped == 1
    world.places.update({"ws://a": lambda options: GymWire(cartpole), "ws://b": lambda options: GymWire(cartpole)})
    envs = eg.make_vec(["ws://a", "ws://b"], 4)
    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    wrapped.reset(seed=1)
    finished = 0
    for _ in range(40):
        infos = wrapped.step(wrapped.action_space.sample())[4]
        finished += infos.get("_episode", np.zeros(4)).sum()
    assert finished > 3
    wrapped.close()


# Imports.


def test_the_package_does_without_gymnasium():
    code = """
import sys
import envharness
assert not {"gymnasium", "numpy", "envharness.gym"} & set(sys.modules), "envharness imports too much"
sys.modules["gymnasium"] = None
import envharness.gym
assert "numpy" not in sys.modules
try:
    envharness.gym.make("ws://x")
except envharness.NotAvailableError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "`envharness.gym.make` needs gymnasium, which is not installed\nhint: pip install gymnasium\n"


def test_every_public_name_is_there_and_said():
    names = eg.__all__ if HAS_VECTOR else [name for name in eg.__all__ if name in ("make", "register", "RemoteEnv")]
    for name in names:
        assert getattr(eg, name).__doc__
    assert set(names) <= set(dir(eg))
    if not HAS_VECTOR:
        with pytest.raises(eh.NotAvailableError, match=r"needs gymnasium 1\.1"):
            _ = eg.make_vec
    with pytest.raises(AttributeError):
        _ = eg.nothing
    assert Codec.of(s.Discrete(2)).space == s.Discrete(2)
