"""Any `gymnasium.Env` as a target: its spaces become a contract, its arrays nested lists.

An action is `{"action": value}`; an observation is `{"observation": value, "terminated": bool, "truncated": bool, "info": {…}}`.
"""

from .errors import LoadError, text_of
from .jsontext import dumps, loads
from .plain import invalid
from .target import Target


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
    return finish(lambda: gymnasium.make(name), first, name)


def gym_class_target(cls):
    """A class derived from `gymnasium.Env`."""
    return finish(cls, cls(), cls.__name__)


def finish(make, first, name):
    codec = GymCodec(first.action_space, first.observation_space)
    first.close()

    class Environment(GymEnvironment):
        """Instances of one environment; the class carries the name."""

        def __init__(self):
            super().__init__(make())

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
    return Target(Environment, codec, name, Environment.__name__), schemas


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

    def close(self):
        self.env.close()


class GymCodec:
    """Values of spaces as JSON."""

    validation_error = None
    _tool_actions = None

    def __init__(self, action_space, observation_space):
        self.action_space, self.observation_space = action_space, observation_space
        self.action_cls = None

    def action(self, payload):
        data = loads(payload)
        extra = next((k for k in data if k not in ("action", "metadata")), None)
        if extra is not None:
            raise invalid("extra_forbidden", [extra], "Extra inputs are not permitted", data[extra])
        if "action" not in data:
            raise invalid("missing", ["action"], "Field required", data)
        value = data["action"]
        try:
            action = from_json(self.action_space, value)
            fits = self.action_space.contains(action)
        except (TypeError, ValueError, KeyError, OverflowError):
            fits = False
        if not fits:
            raise invalid("value_error", ["action"], "Value is not in {}".format(self.action_space), value)
        return action

    def observation(self, value, http):
        seen, reward, terminated, truncated, info = value
        inner = {
            "observation": to_json(self.observation_space, seen),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "info": plain(info),
        }
        done = bool(terminated or truncated)
        reply = {"observation": inner, "reward": None if reward is None else float(reward), "done": done}
        if http:
            reply["metadata"] = None
        data, bad = dumps(reply)
        return data, (1 if done else 0) | (2 if bad else 0)

    def state(self, value):
        return dumps(value)

    def schemas(self):
        def record(title, properties, required):
            return {"title": title, "type": "object", "properties": properties, "required": required, "additionalProperties": False}

        observation = record(
            "GymObservation",
            {
                "observation": schema_of(self.observation_space),
                "terminated": {"type": "boolean"},
                "truncated": {"type": "boolean"},
                "info": {"type": "object"},
            },
            ["observation", "terminated", "truncated", "info"],
        )
        metadata = {"type": "object", "additionalProperties": True}
        return {
            "action": record("GymAction", {"action": schema_of(self.action_space), "metadata": metadata}, ["action"]),
            "observation": observation,
            "reset_observation": observation,
            "state": record(
                "GymState", {"episode_id": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "step_count": {"type": "integer"}}, ["episode_id", "step_count"]
            ),
        }


def kind_of(space):
    return type(space).__name__


def from_json(space, value):
    """A value of the space from JSON."""
    import numpy

    kind = kind_of(space)
    if kind == "Discrete":
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(value)
        return numpy.int64(value)
    if kind in ("Box", "MultiDiscrete", "MultiBinary"):
        array = numpy.asarray(value, dtype=space.dtype)
        return array.reshape(space.shape) if array.size == int(numpy.prod(space.shape)) and array.shape == space.shape else array
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


def plain(value):
    """Arrays and numpy numbers as lists and numbers, at any depth."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(entry) for entry in value]
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    return str(value)


def schema_of(space):
    """The JSON Schema of a space's values."""
    import numpy

    kind = kind_of(space)
    if kind == "Discrete":
        return {"type": "integer", "minimum": int(space.start), "maximum": int(space.start + space.n - 1)}
    if kind == "Box":
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
