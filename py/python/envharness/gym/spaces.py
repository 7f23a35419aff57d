"""Spaces and the wire: from a contract to gymnasium spaces, and values of spaces to plain JSON values and back.

A property of the contract that is annotated with ``x-space`` says its space exactly. What is not annotated is derived
from its JSON Schema; ``docs/gym.md`` has the table.
"""

from __future__ import annotations

import inspect
import operator
import string
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np
from gymnasium import Space, spaces

from envharness._errors import EnvHarnessError, NotAvailableError

#: Spaces whose values are single arrays, which clients carry as tensors.
TENSORS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
#: The longest text of a space where the schema has no ``maxLength``, in characters.
TEXT_LENGTH = 4096
#: The characters of a text where nothing else is said.
CHARSET = string.printable
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class Codec:
    """A space, and the two ways between its values and plain values.

    Attributes:
        space: The gymnasium space.
        encode: From a value of the space to what JSON can carry.
        decode: The way back; arrays are new and writable.
    """

    space: Space
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]

    @classmethod
    def of(cls, space: Space) -> Codec:
        """The codec of a space, in the form in which served Gymnasium environments read and write values."""
        return cls(space, lambda value: to_plain(space, value), lambda value: from_plain(space, value))


@dataclass(frozen=True)
class Rules:
    """How schemas without ``x-space`` become spaces.

    Attributes:
        optional: Keep the fields that may be left out of an action, and those of an observation that may be null.
        text_length: The longest text where the schema has none, in characters.
        charset: The characters of texts.
        side: ``action`` or ``observation``.
    """

    optional: bool = False
    text_length: int = TEXT_LENGTH
    charset: str = CHARSET
    side: str = "action"


# Values.


def kind_of(space: Space) -> str:
    """The name of the kind of a space, also for classes derived from gymnasium's."""
    for cls in type(space).__mro__:
        if cls.__module__.startswith("gymnasium.spaces"):
            return cls.__name__
    return type(space).__name__


def to_plain(space: Space, value: Any) -> Any:
    """A value of a space as plain values.

    Args:
        space: The space.
        value: Its value; lists do for arrays.

    Raises:
        TypeError: It is of another type.
        ValueError: It has another shape.
    """
    kind = kind_of(space)
    if kind == "Discrete":
        return operator.index(value)
    if kind in TENSORS:
        return tensor(space.dtype, space.shape, value).tolist()
    if kind == "Dict":
        return {name: to_plain(inner, value[name]) for name, inner in space.spaces.items()}
    if kind == "Tuple":
        return [to_plain(inner, entry) for inner, entry in zip(space.spaces, value)]
    if kind == "Sequence" and not space.stack:
        return [to_plain(space.feature_space, entry) for entry in value]
    if kind == "OneOf":
        index, entry = value
        return [int(index), to_plain(space.spaces[index], entry)]
    return _plain(value)


def tensor(dtype: Any, shape: tuple[int, ...], value: Any) -> np.ndarray:
    """A value as an array of this type and shape, without guessing.

    Raises:
        TypeError: Fractions where the space has whole numbers.
        ValueError: Another shape.
    """
    raw = np.asarray(value)
    if raw.dtype.kind == "f" and np.dtype(dtype).kind in "iub":
        raise TypeError(f"whole numbers are expected, not {raw.dtype}")
    if raw.shape != tuple(shape):
        raise ValueError(f"the shape {tuple(shape)} is expected, not {raw.shape}")
    return raw.astype(dtype, copy=False)


def _plain(value: Any) -> Any:
    """Arrays and numpy numbers as lists and numbers, at any depth."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value


def from_plain(space: Space, value: Any) -> Any:
    """A value of a space from plain values; the way back from :func:`to_plain`.

    A number that the wire had to write as null, since JSON has no NaN, is NaN again.

    Args:
        space: The space.
        value: What came over the wire: plain values, or arrays already.

    Raises:
        TypeError, ValueError, KeyError: It does not fit.
    """
    kind = kind_of(space)
    if kind == "Discrete":
        return np.dtype(space.dtype).type(operator.index(value))
    if kind in TENSORS:
        return _array(space.dtype, tuple(space.shape), value)
    if kind == "Dict":
        return {name: from_plain(inner, value[name]) for name, inner in space.spaces.items()}
    if kind == "Tuple":
        if len(value) != len(space.spaces):
            raise ValueError(f"{len(space.spaces)} entries are expected, not {len(value)}")
        return tuple(from_plain(inner, entry) for inner, entry in zip(space.spaces, value))
    if kind == "Sequence":
        return (
            _stacked(space.feature_space, value)
            if space.stack
            else tuple(from_plain(space.feature_space, entry) for entry in value)
        )
    if kind == "OneOf":
        index, entry = value
        return np.int64(index), from_plain(space.spaces[index], entry)
    if kind == "Graph":
        nodes, edges, links = (
            (value[k] for k in ("nodes", "edges", "edge_links")) if isinstance(value, Mapping) else value
        )
        return spaces.GraphInstance(
            nodes=_stacked(space.node_space, nodes),
            edges=None if edges is None else _stacked(space.edge_space, edges),
            edge_links=None if links is None else np.array(links, dtype=np.int32).reshape(-1, 2),
        )
    return value


def _array(dtype: Any, shape: tuple[int, ...], value: Any) -> np.ndarray:
    """An array that is the caller's own."""
    fresh = isinstance(value, np.ndarray) and value.dtype == dtype and value.flags.writeable
    array = value if fresh else np.array(value, dtype=dtype)
    # Nested lists lose the axes behind an empty one.
    return array if array.shape == shape or array.size else array.reshape(shape)


def _stacked(space: Space, value: Any) -> Any:
    """Many values of one space, joined as gymnasium joins them: the first axis counts them."""
    kind = kind_of(space)
    if kind in TENSORS:
        array = np.array(value, dtype=space.dtype)
        return array if array.size else array.reshape((len(array), *space.shape))
    if kind == "Dict":
        return {name: _stacked(inner, value[name]) for name, inner in space.spaces.items()}
    if kind == "Tuple":
        return tuple(_stacked(inner, entry) for inner, entry in zip(space.spaces, value))
    return tuple(from_plain(space, entry) for entry in value)


# Spaces from their description.


def space_of(described: Mapping[str, Any], path: str = "x-space") -> Space:
    """The space that an ``x-space`` describes.

    Args:
        described: Such as ``{"kind": "Box", "shape": [4], "dtype": "float32", "low": "-inf", "high": [1, 1, 1, 2]}``.
        path: Where it stands, for errors.

    Raises:
        NotAvailableError: A kind that is not known here.
    """
    kind = described.get("kind")
    if kind == "Discrete":
        return _discrete(int(described["n"]), int(described.get("start") or 0), described.get("dtype"))
    if kind == "Box":
        return _box(described["dtype"], described["shape"], described["low"], described["high"])
    if kind == "MultiDiscrete":
        dtype = np.dtype(described.get("dtype") or "int64")
        nvec, start = np.array(described["nvec"], dtype=dtype), described.get("start")
        return spaces.MultiDiscrete(nvec, dtype=dtype, start=None if start is None else np.array(start, dtype=dtype))
    if kind == "MultiBinary":
        return spaces.MultiBinary(described["n"] if "n" in described else described["shape"])
    if kind == "Text":
        charset = described.get("charset")
        return _text(
            described.get("min_length", 1), described["max_length"], CHARSET if charset is None else "".join(charset)
        )
    if kind == "Dict":
        inner = described["spaces"]
        return _dict([(name, space_of(inner[name], f"{path}.{name}")) for name in described.get("keys") or inner])
    if kind in ("Tuple", "OneOf"):
        cls = getattr(spaces, kind, None)
        if cls is None:
            raise NotAvailableError(f"`{path}`: this gymnasium has no {kind} spaces", hint="use gymnasium 1.0 or later")
        return cls([space_of(inner, f"{path}[{index}]") for index, inner in enumerate(described["spaces"])])
    if kind == "Sequence":
        return spaces.Sequence(space_of(described["feature"], f"{path}[]"), stack=bool(described.get("stack")))
    if kind == "Graph":
        edge = described.get("edge")
        return spaces.Graph(
            space_of(described["node"], f"{path}.node"), None if edge is None else space_of(edge, f"{path}.edge")
        )
    raise NotAvailableError(f"`{path}` has a space of the kind {kind!r}, which is not known here", hint=_hint("space"))


def _discrete(count: int, start: int = 0, dtype: Any = None) -> spaces.Discrete:
    """A Discrete; older gymnasium knows int64 alone."""
    if np.dtype(dtype or "int64") == np.int64:
        return spaces.Discrete(count, start=start)
    try:
        return spaces.Discrete(count, start=start, dtype=np.dtype(dtype))
    except TypeError:
        return spaces.Discrete(count, start=start)


def _dict(named: list[tuple[str, Space]]) -> spaces.Dict:
    """A Dict in this order, which gymnasium would make alphabetical."""
    # Without such a parameter the order of an OrderedDict is kept, and other keywords are spaces.
    newer = "sort_keys" in inspect.signature(spaces.Dict.__init__).parameters
    return spaces.Dict(OrderedDict(named), **({"sort_keys": False} if newer else {}))


def _text(least: int, most: int, charset: str) -> spaces.Text:
    """A Text of these lengths, both included."""
    return spaces.Text(int(most), min_length=int(least), charset=charset)


def _box(dtype: Any, shape: Sequence[int], low: Any, high: Any) -> spaces.Box:
    """A Box from bounds that are one number or flat lists, infinities as text."""
    dtype, shape = np.dtype(dtype), tuple(int(size) for size in shape)
    least, most = (_bounds(dtype, shape, bound) for bound in (low, high))
    space = spaces.Box(low=least[0], high=most[0], shape=shape, dtype=dtype.type)
    if dtype.kind in "iu":
        # Where it has no bound gymnasium samples by another rule, and adding one to the largest int64 would overflow.
        space.bounded_below, space.bounded_above = ~least[1], ~most[1]
    return space


def _bounds(dtype: np.dtype, shape: tuple[int, ...], bound: Any) -> tuple[np.ndarray, np.ndarray]:
    """The array of a bound, and where there is none."""
    flat = [
        float(entry) if isinstance(entry, str) else entry
        for entry in (bound if isinstance(bound, (list, tuple)) else [bound])
    ]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        # Gymnasium writes no bound as the end of int64, older ones as two before it.
        none = [
            entry in (float("-inf"), float("inf"))
            or (dtype == np.int64 and not int(_INT64.min) + 2 < entry < int(_INT64.max) - 2)
            for entry in flat
        ]
        flat = [
            info.min if entry == float("-inf") else info.max if entry == float("inf") else int(entry) for entry in flat
        ]
    else:
        none = [False] * len(flat)
    array, gaps = np.array(flat, dtype=dtype), np.array(none)
    if len(flat) == 1:
        return np.full(shape, array[0], dtype=dtype), np.full(shape, gaps[0])
    return array.reshape(shape), gaps.reshape(shape)


# Spaces from JSON Schemas.


def codec_of(schema: Mapping[str, Any], rules: Rules | None = None, path: str = "value") -> Codec:
    """The codec of a JSON Schema.

    Args:
        schema: The schema, with its ``$defs``.
        rules: What to do where the schema leaves it open.
        path: What to call it in errors.

    Raises:
        NotAvailableError: A part has no space; the message names its path, the hint says what to pass.
    """
    return _Reader(schema, rules or Rules()).codec(schema, path)


@dataclass
class _Reader:
    """Reads one schema; references are looked up in its root."""

    root: Mapping[str, Any]
    rules: Rules
    open: list[str] = field(default_factory=list)

    def codec(self, schema: Any, path: str) -> Codec:
        """The codec of a node."""
        depth = len(self.open)
        try:
            node, _ = self.resolve(schema, path)
            return self.node(node, path)
        finally:
            del self.open[depth:]

    def resolve(self, schema: Any, path: str) -> tuple[Mapping[str, Any], bool]:
        """A node without references and without its null, and whether null was allowed."""
        if not isinstance(schema, Mapping):
            raise self.refused(path, "its schema allows anything")
        nullable = False
        while True:
            rest = dict(schema)
            if rest.get("x-space"):
                return rest, nullable
            if "$ref" in rest:
                ref = rest.pop("$ref")
                if ref in self.open:
                    raise self.refused(path, "it contains itself")
                self.open.append(ref)
                schema = {**self.at(ref, path), **rest}
            elif len(rest.get("allOf", ())) == 1:
                (inner,) = rest.pop("allOf")
                schema = {**inner, **rest}
            elif "anyOf" in rest or "oneOf" in rest:
                name = "anyOf" if "anyOf" in rest else "oneOf"
                branches = rest.pop(name)
                real = [branch for branch in branches if branch.get("type") != "null"]
                nullable = nullable or len(real) < len(branches)
                if len(real) != 1:
                    if all(branch.get("type") in ("integer", "number") and "enum" not in branch for branch in real):
                        return {"type": "number"}, nullable
                    raise self.refused(path, "it is one of several types")
                schema = {**real[0], **rest}
            elif isinstance(rest.get("type"), list):
                real = [name for name in rest["type"] if name != "null"]
                nullable = nullable or len(real) < len(rest["type"])
                if len(real) != 1:
                    raise self.refused(path, "it is one of several types")
                schema = {**rest, "type": real[0]}
            else:
                return rest, nullable

    def at(self, ref: str, path: str) -> Mapping[str, Any]:
        """What a reference within the document points to."""
        node: Any = self.root
        try:
            for part in ref.removeprefix("#/").split("/") if ref.startswith("#/") else [ref]:
                node = node[part.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError):
            raise self.refused(path, f"it refers to `{ref}`, which is not in its schema") from None
        return node

    def node(self, node: Mapping[str, Any], path: str) -> Codec:
        """The codec of a resolved node."""
        if node.get("x-space"):
            return Codec.of(space_of(node["x-space"], path))
        if "const" in node or "enum" in node:
            return self.choice([node["const"]] if "const" in node else list(node["enum"]), path)
        kind = node.get("type", "object" if "properties" in node else None)
        if (
            kind == "integer"
            and {"minimum", "exclusiveMinimum"} & set(node)
            and {"maximum", "exclusiveMaximum"} & set(node)
        ):
            low, high = _limits(node, whole=True)
            if _INT64.min <= low <= high <= _INT64.max and high - low < _INT64.max:
                return Codec.of(_discrete(high - low + 1, low))
        if kind in ("integer", "number", "array"):
            numbers = self.numbers(node, path)
            if numbers is not None:
                return Codec.of(_box(*numbers))
        if kind == "boolean":
            return Codec(
                spaces.Discrete(2), lambda value: bool(operator.index(value)), lambda value: np.int64(bool(value))
            )
        if kind == "string":
            most = node.get("maxLength", max(self.rules.text_length, node.get("minLength", 0)))
            return Codec.of(_text(node.get("minLength", 0), most, self.rules.charset))
        if kind == "array":
            return self.row(node, path)
        if kind == "object":
            return self.record(self.chosen(node, path), path)
        raise self.refused(path, "its schema allows anything" if kind is None else f"it is of type {kind}")

    def choice(self, values: list[Any], path: str) -> Codec:
        """One of listed values: whole numbers in a row are themselves, other values their place in the list."""
        if any(isinstance(value, (dict, list)) for value in values) or not values:
            raise self.refused(path, "its choices are not plain values")
        if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            low = min(values)
            if sorted(values) == list(range(low, low + len(values))):
                return Codec.of(_discrete(len(values), low))

        def encode(index: Any) -> Any:
            number = operator.index(index)
            if not 0 <= number < len(values):  # -1 would be the last
                raise ValueError(f"`{path}` has {len(values)} choices, and none at {number}")
            return values[number]

        def decode(value: Any) -> Any:
            # 1, 1.0 and True are equal in Python and different in JSON.
            found = [
                index
                for index, known in enumerate(values)
                if known == value and isinstance(known, bool) is isinstance(value, bool)
            ]
            if not found:
                raise ValueError(f"`{path}` is {value!r}, which is none of its choices")
            return np.int64(found[0])

        return Codec(spaces.Discrete(len(values)), encode, decode)

    def numbers(self, node: Mapping[str, Any], path: str) -> tuple[Any, list[int], list[Any], list[Any]] | None:
        """Type, shape and flat bounds, where a node is a number or an array of numbers with a fixed shape."""
        kind = node.get("type")
        if "enum" in node or "const" in node or node.get("x-space"):
            return None
        if kind in ("integer", "number"):
            low, high = _limits(node, whole=kind == "integer")
            return (np.dtype("int64" if kind == "integer" else "float64"), [], [low], [high])
        if kind != "array":
            return None
        entries = [self.inner_numbers(entry, path) for entry in self.entries(node, path)]
        if not entries or any(entry is None or entry[1] != entries[0][1] for entry in entries):
            return None
        dtype = max((entry[0] for entry in entries), key=lambda dtype: dtype.kind == "f")
        low, high = ([bound for entry in entries for bound in entry[side]] for side in (2, 3))
        return dtype, [len(entries), *entries[0][1]], low, high

    def inner_numbers(self, schema: Any, path: str) -> Any:
        """The numbers of an entry; null has no place among them."""
        depth = len(self.open)
        try:
            node, nullable = self.resolve(schema, f"{path}[]")
            return None if nullable else self.numbers(node, f"{path}[]")
        finally:
            del self.open[depth:]

    def entries(self, node: Mapping[str, Any], path: str) -> list[Any]:
        """The schemas of the entries of an array, one each."""
        least, most, first = node.get("minItems", 0), node.get("maxItems"), node.get("prefixItems")
        if first is not None and (node.get("items") is False or most == len(first)) and least == len(first):
            return list(first)
        if first is None and most is not None and least == most and "items" in node:
            return [node["items"]] * most
        raise self.refused(path, "it is a list whose length is not fixed")

    def row(self, node: Mapping[str, Any], path: str) -> Codec:
        """An array of a fixed length that is not all numbers."""
        entries = [self.codec(entry, f"{path}[{index}]") for index, entry in enumerate(self.entries(node, path))]
        if not entries:
            raise self.refused(path, "it is an empty list")

        def decode(values: Any) -> tuple[Any, ...]:
            if len(values) != len(entries):
                raise ValueError(f"`{path}` has {len(values)} entries instead of {len(entries)}")
            return tuple(entry.decode(value) for entry, value in zip(entries, values))

        encode = lambda values: [entry.encode(value) for entry, value in zip(entries, values)]  # noqa: E731
        return Codec(spaces.Tuple([entry.space for entry in entries]), encode, decode)

    def chosen(self, node: Mapping[str, Any], path: str, without: Sequence[str] = ()) -> dict[str, Any]:
        """The properties of an object that take part, by name."""
        named = {name: schema for name, schema in node.get("properties", {}).items() if name not in without}
        if not named:
            raise self.refused(path, "it is an object without named fields")
        if self.rules.optional:
            return named
        if self.rules.side == "action":
            required = set(node.get("required", ()))
            # An action none of whose fields is required would be empty.
            return {name: schema for name, schema in named.items() if name in required} or named
        return {name: schema for name, schema in named.items() if not self.nullable(schema, f"{path}.{name}")} or named

    def nullable(self, schema: Any, path: str) -> bool:
        """Whether a field may be null."""
        depth = len(self.open)
        try:
            return self.resolve(schema, path)[1]
        except NotAvailableError:
            return any(
                isinstance(branch, Mapping) and branch.get("type") == "null" for branch in schema.get("anyOf", ())
            )
        finally:
            del self.open[depth:]

    def record(self, chosen: Mapping[str, Any], path: str) -> Codec:
        """Named fields as a Dict."""
        fields = {name: self.codec(schema, f"{path}.{name}") for name, schema in chosen.items()}
        return Codec(
            _dict([(name, codec.space) for name, codec in fields.items()]),
            lambda value: {name: codec.encode(value[name]) for name, codec in fields.items()},
            lambda value: {name: codec.decode(value[name]) for name, codec in fields.items()},
        )

    def refused(self, path: str, why: str) -> NotAvailableError:
        """The error of a part that has no space."""
        return NotAvailableError(f"`{path}` has no space: {why}", hint=_hint(self.rules.side))


def _limits(node: Mapping[str, Any], *, whole: bool) -> tuple[Any, Any]:
    """The bounds of a number, both included."""
    low, high = node.get("minimum", float("-inf")), node.get("maximum", float("inf"))
    above, below = node.get("exclusiveMinimum"), node.get("exclusiveMaximum")
    if whole:
        low = low if low == float("-inf") else int(np.ceil(low)) if isinstance(low, float) else low
        high = high if high == float("inf") else int(np.floor(high)) if isinstance(high, float) else high
    if above is not None:
        low = max(low, int(above // 1) + 1 if whole else float(np.nextafter(above, np.inf)))
    if below is not None:
        high = min(high, -int(-below // 1) - 1 if whole else float(np.nextafter(below, -np.inf)))
    return low, high


def _hint(side: str) -> str:
    """What to pass where no space can be derived."""
    if side == "action":
        return "pass `action_space=`, and `encode=`, which makes the action's dict from a value of that space"
    return "pass `observation_space=`, and `decode=`, which makes a value of that space from the observation's dict"


# The two sides of a contract.

_FLAGS = ("terminated", "truncated")


class Actions:
    """The action space of a contract, and its values as messages.

    Attributes:
        space: The space of one action.
        is_tensor: Whether clients take a batch of actions as one array.
    """

    def __init__(
        self,
        contract: Mapping[str, Any],
        rules: Rules,
        space: Space | None = None,
        encode: Callable[[Any], Any] | None = None,
    ) -> None:
        """Reads the contract.

        Args:
            contract: With the JSON Schema ``action``.
            rules: What to do where the schema leaves it open.
            space: The space to use instead.
            encode: From a value of the space to the action's dict.

        Raises:
            NotAvailableError: A field has no space, or it is not clear what the given space stands for.
        """
        schema = contract.get("action") or {}
        properties = schema.get("properties", {})
        fields = [name for name in properties if name != "metadata"]
        self._encode, self.is_tensor = encode, False
        if space is None:
            if properties.get("action", {}).get("x-space"):
                codec, self._name = codec_of(properties["action"], rules, "action.action"), "action"
                self.is_tensor = encode is None and _is_tensor(codec.space)
            else:
                reader = _Reader(schema, rules)
                chosen = reader.chosen(schema, "action", ("metadata",))
                self._name = next(iter(chosen)) if len(chosen) == 1 else None
                codec = (
                    reader.codec(chosen[self._name], f"action.{self._name}")
                    if self._name
                    else reader.record(chosen, "action")
                )
        else:
            codec = Codec.of(space)
            self._name = _named(space, fields)
            if self._name is None and encode is None and not _is_part(space, fields):
                raise NotAvailableError(
                    f"the action has the fields {', '.join(fields)}; which the space is for is not clear",
                    hint=_hint("action"),
                )
        self.space, self._codec = codec.space, codec

    def encode(self, action: Any) -> dict[str, Any]:
        """The message of an action.

        Raises:
            TypeError, ValueError, KeyError: It is not of the space.
        """
        if self._encode is not None:
            return self._encode(action)
        value = self._codec.encode(action)
        return value if self._name is None else {self._name: value}


class Observations:
    """The observation space of a contract, and its values from messages.

    Attributes:
        space: The space of one observation.
        is_tensor: Whether clients give a batch of observations as one array.
        render_modes: What the environment can render to, as it says.
        render_fps: Its frames per second, or None.
    """

    def __init__(
        self,
        contract: Mapping[str, Any],
        rules: Rules,
        space: Space | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> None:
        """Reads the contract.

        Args:
            contract: With the JSON Schema ``observation``.
            rules: What to do where the schema leaves it open.
            space: The space to use instead.
            decode: From the observation's dict to a value of the space.

        Raises:
            NotAvailableError: A field has no space, or it is not clear what the given space stands for.
        """
        schema = contract.get("observation") or {}
        properties = schema.get("properties", {})
        reader = _Reader(schema, rules)
        aside = [
            "metadata",
            "done",
            "reward",
            *(name for name in _FLAGS if properties.get(name, {}).get("type") == "boolean"),
        ]
        if not properties.get("info", {"properties": True}).get("properties"):
            aside.append("info")
        fields = [name for name in properties if name not in aside]
        self._decode, self.is_tensor = decode, False
        if space is None:
            if properties.get("observation", {}).get("x-space"):
                codec, self._name = codec_of(properties["observation"], rules, "observation.observation"), "observation"
                self.is_tensor = decode is None and _is_tensor(codec.space)
            else:
                chosen = reader.chosen(schema, "observation", aside)
                self._name = next(iter(chosen)) if len(chosen) == 1 else None
                codec = (
                    reader.codec(chosen[self._name], f"observation.{self._name}")
                    if self._name
                    else reader.record(chosen, "observation")
                )
        else:
            codec = Codec.of(space)
            self._name = _named(space, fields)
            if self._name is None and decode is None and not _is_part(space, fields):
                raise NotAvailableError(
                    f"the observation has the fields {', '.join(fields)}; which the space is for is not clear",
                    hint=_hint("observation"),
                )
        self.space, self._codec = codec.space, codec
        used = () if decode is not None else (self._name,) if self._name else tuple(codec.space.spaces)
        self._not_info = {*used, "metadata", "done", "reward", "info", *_FLAGS}
        self.render_modes = render_modes_of(schema)
        self.render_fps = (schema.get("x-gym") or {}).get("render_fps")

    def decode(self, observation: Mapping[str, Any]) -> Any:
        """A value of the space.

        Args:
            observation: The observation's dict.

        Raises:
            EnvHarnessError: It does not fit the contract; what `decode=` raises is left as it is.
        """
        if self._decode is not None:
            return self._decode(observation)
        try:
            return self._codec.decode(observation if self._name is None else observation[self._name])
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            what = f"`{error.args[0]}` is missing" if isinstance(error, KeyError) and error.args else str(error)
            raise EnvHarnessError(
                f"an observation does not fit {self.space}: {what}", hint=_hint("observation")
            ) from error

    def part(self, value: Any) -> Any:
        """A value of the space from that part of an observation alone, as clients give tensors."""
        return from_plain(self.space, value)

    def info(self, observation: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What is beside the value of the space: ``info``, other fields, and ``metadata`` where there is any."""
        told = observation.get("info")
        info = {name: value for name, value in observation.items() if name not in self._not_info}
        info.update(told if isinstance(told, Mapping) else {} if told is None else {"info": told})
        metadata = metadata or observation.get("metadata")
        if metadata:
            info["metadata"] = dict(metadata)
        return info

    def ends(self, observation: Mapping[str, Any], metadata: Mapping[str, Any] | None, done: bool) -> tuple[bool, bool]:
        """Whether the episode ended by itself, and whether it was cut off.

        What the observation or its metadata say holds. A ``done`` that nothing explains is an end by itself.
        """
        flags = []
        for name in _FLAGS:
            told = (place.get(name) for place in (observation, metadata or {}, observation.get("metadata") or {}))
            flags.append(next((flag for flag in told if isinstance(flag, bool)), None))
        terminated, truncated = flags
        if terminated is None and truncated is not None:
            terminated = bool(done) and not truncated
        if truncated is None:
            truncated = bool(done) and terminated is False
        terminated = bool(done) if terminated is None else terminated
        return terminated or (bool(done) and not truncated), truncated


def render_modes_of(schema: Mapping[str, Any]) -> list[str]:
    """The render modes that the schema of an observation tells of."""
    shown = schema.get("x-gym") or {}
    # A window of the server's is not here, and gymnasium makes lists of frames itself.
    return [mode for mode in shown.get("render_modes") or () if mode != "human" and not mode.endswith("_list")]


def _is_tensor(space: Space) -> bool:
    """Whether the values are single arrays of numbers that travel as they are; arrays of bool do not."""
    return kind_of(space) in TENSORS and np.dtype(space.dtype).kind in "iuf"


def _named(space: Space, fields: Sequence[str]) -> str | None:
    """The one field that a given space stands for, or None."""
    if _is_part(space, fields):
        return None
    return fields[0] if len(fields) == 1 else None


def _is_part(space: Space, fields: Sequence[str]) -> bool:
    """Whether a given space names fields."""
    return kind_of(space) == "Dict" and set(space.spaces) <= set(fields)
