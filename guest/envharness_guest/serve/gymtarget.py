"""Any `gymnasium.Env` as a target: its spaces become a contract, its arrays nested lists.

An action is `{"action": value}`; an observation is `{"observation": value, "terminated": bool, "truncated": bool, "info": {…}}`.
"""

from . import packed
from .errors import LoadError, text_of
from .jsontext import loads
from .plain import invalid
from .spaces import Tensors, describe, kind_of, no_tensor, number_of
from .target import Codec, Target, takes


def import_gymnasium(target):
    try:
        import gymnasium
    except ImportError as error:
        raise LoadError("`{}` needs gymnasium, which is not in this environment".format(target), "add it by `--with gymnasium`", "gymnasium") from error
    return gymnasium


def gym_target(target):
    """`gym:ID`, as `gymnasium.make` takes it."""
    gymnasium = import_gymnasium(target)
    name = target.partition(":")[2] if target.startswith("gym:") else target
    try:
        first = gymnasium.make(name)
    except Exception as error:
        near = sorted(k for k in gymnasium.registry if k.split("-")[0].lower() == name.split("-")[0].lower())
        hint = "registered: {}".format(", ".join(near)) if near else "`python -c 'import gymnasium; gymnasium.pprint_registry()'` lists them"
        raise LoadError("gymnasium cannot make `{}`: {}".format(name, text_of(error)), hint) from error

    def make(**options):
        # As in gymnasium's own vector environments only the first instance has the checker: what it would find is the same in each,
        # and it looks at every action and observation anew.
        return gymnasium.make(name, disable_env_checker=True, **options)

    return finish(make, first, name)


def gym_class_target(cls):
    """A class derived from `gymnasium.Env`."""
    return finish(cls, cls(), cls.__name__, takes(cls, "render_mode"))


def finish(make, first, name, draws=True):
    """The target and its schemas. `draws` says whether `make` takes a `render_mode`."""
    facts = facts_of_gym(first, name, draws)
    codec = GymCodec(first.action_space, first.observation_space, facts)
    first.close()

    class Environment(GymEnvironment):
        """Instances of one environment; the class carries the name."""

        def __init__(self, render_mode=None):
            super().__init__(make() if render_mode is None else make(render_mode=render_mode))

    Environment.__name__ = Environment.__qualname__ = type(first.unwrapped).__name__
    schemas = codec.schemas()
    schemas["reset"] = {
        "title": "ResetArguments",
        "type": "object",
        "properties": {
            "seed": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None, "title": "Seed"},
            "episode_id": {"anyOf": [{"type": "string", "maxLength": 255}, {"type": "null"}], "default": None, "title": "Episode Id"},
            "options": {"anyOf": [{"type": "object"}, {"type": "null"}], "default": None, "title": "Options"},
        },
        "additionalProperties": False,
    }
    return Target(Environment, codec, name, Environment.__name__, render_modes=facts["render_modes"]), schemas


def facts_of_gym(env, name, draws):
    """What a client's `gymnasium.Env` says of itself beside its spaces."""
    metadata = env.metadata or {}
    fps, spec = metadata.get("render_fps"), getattr(env, "spec", None)
    return {
        "id": name,
        "render_modes": [str(mode) for mode in metadata.get("render_modes") or () if mode] if draws else [],
        "render_fps": plain(fps) if isinstance(plain(fps), (int, float)) else None,
        "max_episode_steps": getattr(spec, "max_episode_steps", None),
    }


class GymEnvironment:
    """A `gymnasium.Env` with OpenEnv's three calls."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env):
        self.env, self.episode_id, self.steps = env, None, 0

    def reset(self, seed=None, episode_id=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        self.episode_id, self.steps = episode_id, 0
        return observation, None, False, False, info

    def step(self, action):
        self.steps += 1
        return self.env.step(action)

    @property
    def state(self):
        return {"episode_id": self.episode_id, "step_count": self.steps}

    def render(self):
        return self.env.render()

    def close(self):
        self.env.close()


class GymCodec(Codec):
    """Values of spaces."""

    lists = False

    def __init__(self, action_space, observation_space, facts=None):
        self.action_space, self.observation_space, self.facts = action_space, observation_space, facts
        self.action_cls = None
        if not no_tensor(action_space) and not no_tensor(observation_space):
            self.tensors = Tensors(action_space, observation_space)

    def why_no_tensors(self):
        spaces = (("action", self.action_space), ("observation", self.observation_space))
        whys = [(name, no_tensor(space)) for name, space in spaces]
        return " and ".join("the {} space is no single tensor: it is {}".format(name, why) for name, why in whys if why)

    def action(self, payload):
        return self.read(loads(payload))

    def read(self, data):
        if not isinstance(data, dict):
            raise invalid("dict_type", [], "Input should be a valid dictionary", plain(data))
        extra = next((k for k in data if k not in ("action", "metadata")), None)
        if extra is not None:
            raise invalid("extra_forbidden", [extra], "Extra inputs are not permitted", plain(data[extra]))
        if "action" not in data:
            raise invalid("missing", ["action"], "Field required", plain(data))
        value = data["action"]
        try:
            action = from_json(self.action_space, value)
            fits = self.action_space.contains(action)
        except (TypeError, ValueError, KeyError, OverflowError):
            fits = False
        if not fits:
            raise invalid("value_error", ["action"], "Value is not in {}".format(self.action_space), plain(value))
        return action

    def msgpack_observation(self, value):
        # Arrays stay arrays.
        reply = self.reply(value, False, kept=True)
        return packed.write(reply), 1 if reply["done"] else 0

    def reply(self, value, http, kept=False):
        seen, reward, terminated, truncated, info = value
        inner = {
            "observation": plain(seen, True) if kept else to_json(self.observation_space, seen),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "info": plain(info, kept),
        }
        done = bool(terminated or truncated)
        reply = {"observation": inner, "reward": None if reward is None else float(reward), "done": done}
        if http:
            reply["metadata"] = None
        return reply

    def state_fields(self, value):
        return value

    def schemas(self):
        def record(title, properties, required):
            return {"title": title, "type": "object", "properties": properties, "required": required, "additionalProperties": False}

        observation = record(
            "GymObservation",
            {
                "observation": described(self.observation_space),
                "terminated": {"type": "boolean"},
                "truncated": {"type": "boolean"},
                "info": {"type": "object"},
            },
            ["observation", "terminated", "truncated", "info"],
        )
        if self.facts is not None:
            observation["x-gym"] = self.facts
        metadata = {"type": "object", "additionalProperties": True}
        return {
            "action": record("GymAction", {"action": described(self.action_space), "metadata": metadata}, ["action"]),
            "observation": observation,
            "reset_observation": observation,
            "state": record(
                "GymState", {"episode_id": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "step_count": {"type": "integer"}}, ["episode_id", "step_count"]
            ),
        }


def from_json(space, value):
    """A value of the space from JSON."""
    import numpy

    kind = kind_of(space)
    if kind == "Discrete":
        if isinstance(value, numpy.ndarray) and value.shape == () and value.dtype.kind in "iu":
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(value)
        return number_of(space)(value)
    if kind in ("Box", "MultiDiscrete", "MultiBinary"):
        given = numpy.asarray(value)
        if given.dtype.kind not in "biuf":
            raise TypeError(value)
        with numpy.errstate(invalid="ignore"):
            array = given.astype(space.dtype)
        if array.dtype.kind != "f" and not numpy.array_equal(array, given):
            raise ValueError(value)  # half a choice is none, and must not become the one below it
        return array
    if kind == "Dict":
        if set(value) != set(space.spaces):
            raise KeyError(value)
        return {key: from_json(inner, value[key]) for key, inner in space.spaces.items()}
    if kind == "Tuple":
        if len(value) != len(space.spaces):
            raise ValueError(value)
        return tuple(from_json(inner, entry) for inner, entry in zip(space.spaces, value))
    if kind == "Sequence":
        return tuple(from_json(space.feature_space, entry) for entry in value)
    if kind == "OneOf":
        index, entry = value
        return index, from_json(space.spaces[index], entry)
    return value


def to_json(space, value):
    """A value of the space as plain values."""
    kind = kind_of(space)
    if kind == "Dict":
        return {key: to_json(inner, value[key]) for key, inner in space.spaces.items()}
    if kind == "Tuple":
        return [to_json(inner, entry) for inner, entry in zip(space.spaces, value)]
    return plain(value)


def plain(value, kept=False):
    """Arrays and numpy numbers as lists and numbers, at any depth; `kept` leaves what msgpack has: arrays of numbers, and bytes."""
    if hasattr(value, "tolist"):
        return value if kept and value.dtype.kind in "biuf" else value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(entry, kept) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(entry, kept) for entry in value]
    if isinstance(value, (str, int, float, bool)) or value is None or (kept and isinstance(value, bytes)):
        return value
    if hasattr(value, "_asdict"):
        return plain(value._asdict(), kept)
    return str(value)


def described(space):
    """The JSON Schema of a space's values, with the space in `x-space` where it can be told."""
    schema, told = schema_of(space), describe(space)
    return schema if told is None else dict(schema, **{"x-space": told})


def schema_of(space):
    """The JSON Schema of a space's values."""
    import numpy

    kind = kind_of(space)
    if kind == "Discrete":
        return {"type": "integer", "minimum": int(space.start), "maximum": int(space.start + space.n - 1)}
    if kind == "Box":
        if space.dtype == bool:
            return nested(space.shape, {"type": "boolean"})
        element = {"type": "integer" if numpy.issubdtype(space.dtype, numpy.integer) else "number"}
        low, high = numpy.min(space.low) if space.low.size else 0, numpy.max(space.high) if space.high.size else 0
        if numpy.isfinite(low):
            element["minimum"] = low.item()
        if numpy.isfinite(high):
            element["maximum"] = high.item()
        return nested(space.shape, element)
    if kind == "MultiBinary":
        return nested(space.shape, {"type": "integer", "minimum": 0, "maximum": 1})
    if kind == "MultiDiscrete":
        return nested(space.shape, {"type": "integer"})
    if kind == "Text":
        return {"type": "string", "minLength": space.min_length, "maxLength": space.max_length}
    if kind == "Dict":
        properties = {key: schema_of(inner) for key, inner in space.spaces.items()}
        return {"type": "object", "properties": properties, "required": sorted(properties), "additionalProperties": False}
    if kind == "Tuple":
        items = [schema_of(inner) for inner in space.spaces]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if kind == "Sequence":
        return {"type": "array", "items": schema_of(space.feature_space)}
    return {}


def nested(shape, element):
    for size in reversed(shape):
        element = {"type": "array", "items": element, "minItems": int(size), "maxItems": int(size)}
    return element
