"""Spaces of Gymnasium: their description in a contract, and the values of a single tensor as raw bytes."""

from struct import Struct, error

from ..msgpack import DTYPES
from . import frames
from .jsontext import dumps
from .plain import invalid

#: The spaces whose value is one array or one number.
TENSORS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
#: A `Discrete` of up to so many values has each of them ready.
READY = 1024
#: Up to so many numbers are compared with their bounds one by one, which is quicker than numpy for few.
FEW = 8


def kind_of(space):
    return type(space).__name__


def describe(space):
    """The space as JSON, from which a client makes it anew; None where it has a part that is no space of Gymnasium's own.

    Bounds are flat lists, or one number where they are the same everywhere; infinite ones are "inf" and "-inf". A `Dict` has the
    order of its `spaces` in `keys` too, since a JSON object may lose it. The dtype of a `Discrete` is that of its raw values.
    """
    try:
        return _described(space)
    except LookupError:
        return None


def _described(space):
    kind = kind_of(space)
    if kind == "Discrete":
        return {"kind": kind, "n": int(space.n), "start": int(space.start), "dtype": "int64"}
    if kind == "Box":
        return {"kind": kind, **_array_facts(space), "low": _bounds(space.low), "high": _bounds(space.high)}
    if kind == "MultiDiscrete":
        start = getattr(space, "start", None)
        start = {"start": start.tolist()} if start is not None and start.any() else {}
        return {"kind": kind, "nvec": space.nvec.tolist(), **start, **_array_facts(space)}
    if kind == "MultiBinary":
        shape = [int(size) for size in space.shape]
        return {"kind": kind, **_array_facts(space), "n": shape[0] if len(shape) == 1 else shape}
    if kind == "Text":
        # Its characters are a set, whose order differs from one process to the next.
        charset = "".join(sorted(space.character_set))
        return {"kind": kind, "min_length": int(space.min_length), "max_length": int(space.max_length), "charset": charset}
    if kind == "Dict":
        return {"kind": kind, "spaces": {key: _described(inner) for key, inner in space.spaces.items()}, "keys": list(space.spaces)}
    if kind in ("Tuple", "OneOf"):
        return {"kind": kind, "spaces": [_described(inner) for inner in space.spaces]}
    if kind == "Sequence":
        return {"kind": kind, "feature": _described(space.feature_space), "stack": bool(getattr(space, "stack", False))}
    if kind == "Graph":
        edge = space.edge_space
        return {"kind": kind, "node": _described(space.node_space), "edge": None if edge is None else _described(edge)}
    raise LookupError(kind)


def _array_facts(space):
    return {"shape": [int(size) for size in space.shape], "dtype": str(space.dtype)}


def _bounds(array):
    flat = [value if abs(value) != float("inf") else "inf" if value > 0 else "-inf" for value in array.ravel().tolist()]
    return flat[0] if flat and all(value == flat[0] for value in flat) else flat


class Tensors:
    """The raw values of an action space and an observation space that are single tensors."""

    def __init__(self, action_space, observation_space):
        self.action_space, self._write = action_space, writer_of(observation_space)
        self._read = reader_of(action_space)
        self._length = Struct("<dI").pack

    def action(self, payload):
        """The action of its bytes; raises `Invalid`."""
        action = self._read(payload)
        if action is None:
            raise self._refused(payload)
        return action

    def _refused(self, payload):
        # With what the value of JSON would be, where the bytes are a value at all.
        return invalid("value_error", ["action"], "Value is not in {}".format(self.action_space), value_of(self.action_space, payload))

    def observation(self, value):
        """The answer to a reset or a step: its bytes and its flags."""
        seen, reward, terminated, truncated, info = value
        data = self._write(seen)
        bits = (frames.DONE | frames.TERMINATED if terminated else 0) | (frames.DONE | frames.TRUNCATED if truncated else 0)
        head = self._length(_NAN if reward is None else reward, len(data))
        return head + data + info_text(info) if info else head + data, bits

    def stepper(self, instance):
        """A function from the bytes of an action to the answer of a session: all of a step in one call, and in as few as can be."""
        read, write, pack, ok, ends = self._read, self._write, self._length, frames.OK, self.observation
        step = instance.env.step

        def run(payload):
            action = read(payload)
            if action is None:
                raise self._refused(payload)
            instance.steps += 1
            value = step(action)
            seen, reward, terminated, truncated, info = value
            if terminated or truncated or info or reward is None:
                data, bits = ends(value)
                return ok, bits, data
            data = write(seen)
            return ok, 0, pack(reward, len(data)) + data

        return run


_NAN = float("nan")


def info_text(info):
    from .gymtarget import plain

    return dumps(plain(info))[0]


def no_tensor(space):
    """Why a space is no single tensor; None where it is one."""
    if kind_of(space) not in TENSORS:
        return "a {}".format(kind_of(space))
    if kind_of(space) != "Discrete" and (space.dtype.kind not in "iuf" or space.dtype.name not in {name for name, _, _ in DTYPES}):
        return "of {}".format(space.dtype.name)
    return None


def value_of(space, payload):
    """What raw bytes say, for an error's item."""
    import numpy

    dtype = numpy.dtype("<i8") if kind_of(space) == "Discrete" else space.dtype.newbyteorder("<")
    count = 1
    for size in space.shape:
        count *= size
    if len(payload) != count * dtype.itemsize:
        return "{} bytes in the place of {}".format(len(payload), count * dtype.itemsize)
    return numpy.frombuffer(payload, dtype).reshape(space.shape).tolist()


def reader_of(space):
    """A function from bytes to a value of the space, None for bytes that are none."""
    import numpy

    if kind_of(space) == "Discrete":
        return _discrete_reader(space, numpy)
    shape, dtype = space.shape, space.dtype
    wire = dtype.newbyteorder("<")
    count = int(numpy.prod(shape))
    size, swapped = count * dtype.itemsize, wire != dtype
    low, high = _limits(space, numpy)
    letter = next(letter for name, letter, _ in DTYPES if name == dtype.name)
    numbers, limits = Struct("<{}{}".format(count, letter)).unpack, list(zip(low.ravel().tolist(), high.ravel().tolist()))
    # Where every value of the dtype is within the bounds there is nothing to compare, as for pictures.
    free = dtype.kind in "iu" and bool((low == numpy.iinfo(dtype).min).all() and (high == numpy.iinfo(dtype).max).all())

    def read(payload):
        if len(payload) != size:
            return None
        if count <= FEW:
            for value, (least, most) in zip(numbers(payload), limits):
                # A NaN is not between any bounds.
                if not least <= value <= most:
                    return None
        # Bytes may not be written to, and an environment may write to its action.
        array = numpy.ndarray(shape, wire, bytearray(payload))
        if swapped:
            array = array.astype(dtype)
        if count > FEW and not free and not ((array >= low).all() and (array <= high).all()):
            return None
        return array

    return read


def _discrete_reader(space, numpy):
    start, stop, kind = int(space.start), int(space.start) + int(space.n), number_of(space)
    pack = Struct("<q").pack
    if stop - start <= READY:
        # One look-up judges length and bounds and gives the number.
        return {pack(value): kind(value) for value in range(start, stop)}.get
    unpack = Struct("<q").unpack

    def read(payload):
        if len(payload) != 8:
            return None
        value = unpack(payload)[0]
        return kind(value) if start <= value < stop else None

    return read


def number_of(space):
    """The type of a `Discrete`'s values; versions before 1.2 know int64 alone."""
    import numpy

    return numpy.dtype(space.dtype or numpy.int64).type


def _limits(space, numpy):
    """The least and the greatest value of each place, as `contains` of the space has them."""
    if kind_of(space) == "Box":
        return space.low, space.high
    if kind_of(space) == "MultiDiscrete":
        start = numpy.zeros_like(space.nvec) + getattr(space, "start", 0)
        return start, start + (space.nvec - 1)
    return numpy.zeros(space.shape, space.dtype), numpy.ones(space.shape, space.dtype)


def writer_of(space):
    """A function from an observation to its bytes; raises ValueError for one that has no place in the space's dtype and shape."""
    import numpy

    if kind_of(space) == "Discrete":
        pack = Struct("<q").pack

        def write_number(seen):
            try:
                return pack(seen)
            except error:
                raise ValueError("the observation is {!r}, which is not in {}".format(seen, space)) from None

        return write_number
    shape, dtype, ndarray = space.shape, space.dtype, numpy.ndarray
    wire = dtype.newbyteorder("<")
    native = wire == dtype

    def write(seen):
        if not (native and type(seen) is ndarray and seen.dtype is dtype and seen.shape == shape):
            seen = converted(numpy.asarray(seen), space, wire)
        return seen.tobytes()

    return write


def converted(array, space, dtype):
    """An array as the space has it; a number that the dtype cannot hold is an error, and never another number."""
    import numpy

    if array.shape != space.shape:
        raise ValueError("the observation has the shape {}, and its space {}".format(array.shape, space.shape))
    if array.dtype.kind not in "biuf":
        raise ValueError("the observation is of {}, and its space of {}".format(array.dtype, space.dtype))
    out = array.astype(dtype)
    if out.dtype.kind != "f" and not numpy.array_equal(out, array):
        raise ValueError("the observation has numbers that are no {}".format(space.dtype))
    return out
