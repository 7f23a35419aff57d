"""msgpack for workers and clients, without a dependency; numpy arrays travel as blocks of their bytes.

What JSON has is packed as msgpack has it, and NaN, infinities and bytes besides. Two extension types carry the rest:

* 1, an array: `code: u8, dimensions: u8, 0: u16, sizes: u32 each, data`, little-endian and row-major.
* 2, an integer of more than 64 bits, as decimal digits.

Names of a map are text, as in JSON: numbers become their text on either way. Text that is no UTF-8, such as half a surrogate
pair, is a ValueError on either way. A numpy number is a number, an array of objects a TypeError. Values may be nested `DEPTH` deep.
"""

import sys
from collections import namedtuple
from struct import Struct, calcsize, error, unpack_from

#: How deep values may be nested.
DEPTH = 200
#: Digits of an integer at most; reading more takes a time that grows with their square.
DIGITS = 4300
#: numpy has at most this many dimensions in every version.
DIMENSIONS = 32

ARRAY, INTEGER = 1, 2
#: For each dtype code from 1: numpy's name, the letter of `struct`, what `dtype.str` says without the byte order.
DTYPES = [
    ("bool", "?", "b1"), ("uint8", "B", "u1"), ("int8", "b", "i1"), ("uint16", "H", "u2"), ("int16", "h", "i2"),
    ("uint32", "I", "u4"), ("int32", "i", "i4"), ("uint64", "Q", "u8"), ("int64", "q", "i8"), ("float16", "e", "f2"),
    ("float32", "f", "f4"), ("float64", "d", "f8"),
]  # fmt: skip
_CODES = {code: at for at, (_, _, code) in enumerate(DTYPES, 1)}
_NAMES = {name: at for at, (name, _, _) in enumerate(DTYPES, 1)}

#: An array where numpy is absent: its dtype by numpy's name, its sizes, its bytes.
Tensor = namedtuple("Tensor", "dtype shape data")

_U8, _U16, _U32, _F64 = Struct(">BB").pack, Struct(">BH").pack, Struct(">BI").pack, Struct(">Bd").pack
_U64, _I64 = Struct(">BQ").pack, Struct(">Bq").pack
_BYTE = [bytes((n,)) for n in range(256)]


def packb(value, default=None):
    """A value as msgpack. What msgpack lacks is given to `default`, whose value is packed in its place."""
    parts = []
    try:
        _pack(parts.append, value, default, DEPTH)
    except error:
        raise ValueError("a value is too large for msgpack") from None
    return b"".join(parts)


def _head(put, length, small, codes):
    """The head of text, bytes, a list or a map; `codes` are those for a length of 8, 16 and 32 bits, or None."""
    if small is not None and length < small[1]:
        put(_BYTE[small[0] | length])
    elif length < 256 and codes[0]:
        put(_U8(codes[0], length))
    elif length < 65536:
        put(_U16(codes[1], length))
    else:
        put(_U32(codes[2], length))


_STR, _BIN, _LIST, _MAP, _EXT = (0xD9, 0xDA, 0xDB), (0xC4, 0xC5, 0xC6), (None, 0xDC, 0xDD), (None, 0xDE, 0xDF), (0xC7, 0xC8, 0xC9)
_SMALL_STR, _SMALL_LIST, _SMALL_MAP = (0xA0, 32), (0x90, 16), (0x80, 16)
_FIXED_EXT = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}


def _text(put, value):
    data = value.encode("utf-8")
    _head(put, len(data), _SMALL_STR, _STR)
    put(data)


def _pack(put, value, default, depth):
    kind = type(value)
    if kind is str:
        _text(put, value)
    elif kind is float:
        put(_F64(0xCB, value))
    elif kind is int:
        _integer(put, value)
    elif kind is bool:
        put(b"\xc3" if value else b"\xc2")
    elif value is None:
        put(b"\xc0")
    elif kind is dict or (kind is not Tensor and isinstance(value, dict)):
        if not depth:
            raise ValueError("a value is nested more than {} deep".format(DEPTH))
        _head(put, len(value), _SMALL_MAP, _MAP)
        for key, entry in value.items():
            _text(put, key if type(key) is str else _key(key))
            _pack(put, entry, default, depth - 1)
    elif kind is list or (kind is not Tensor and isinstance(value, (list, tuple))):
        if not depth:
            raise ValueError("a value is nested more than {} deep".format(DEPTH))
        _head(put, len(value), _SMALL_LIST, _LIST)
        for entry in value:
            _pack(put, entry, default, depth - 1)
    else:
        _rare(put, value, default, depth)


def _integer(put, value):
    if -32 <= value < 128:
        put(_BYTE[value & 0xFF])
    elif value > 0:
        if value < 256:
            put(_U8(0xCC, value))
        elif value < 65536:
            put(_U16(0xCD, value))
        elif value < 1 << 32:
            put(_U32(0xCE, value))
        elif value < 1 << 64:
            put(_U64(0xCF, value))
        else:
            _large(put, value)
    elif value >= -(1 << 63):
        size = 0 if value >= -128 else 1 if value >= -32768 else 2 if value >= -(1 << 31) else 3
        put(_I64(0xD0 + size, value) if size == 3 else _BYTE[0xD0 + size] + value.to_bytes(1 << size, "big", signed=True))
    else:
        _large(put, value)


def _large(put, value):
    # log2(10) is more than 3.32, so that what passes has no more digits than are read.
    if value.bit_length() > DIGITS * 332 // 100 - 8:
        raise ValueError("an integer has more than {} digits".format(DIGITS))
    _extension(put, INTEGER, b"%d" % value)


def _extension(put, code, *parts):
    length = sum(len(part) for part in parts)
    if length in _FIXED_EXT:
        put(_BYTE[_FIXED_EXT[length]])
    else:
        _head(put, length, None, _EXT)
    put(_BYTE[code])
    for part in parts:
        put(part)


def _array(put, code, shape, data):
    _extension(put, ARRAY, Struct("<BBH{}I".format(len(shape))).pack(code, len(shape), 0, *shape), data)


def _key(key):
    """The text of a name that is none, as JSON has it."""
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, (int, float)):
        return (int if isinstance(key, int) else float).__repr__(key)
    inner = getattr(key, "value", None) if hasattr(type(key), "__members__") else getattr(key, "item", lambda: None)()
    if isinstance(inner, (str, int, float)):
        return _key(inner)
    raise TypeError("a name of a map is of the type {}".format(type(key).__name__))


def _rare(put, value, default, depth):
    kind = type(value)
    numpy = sys.modules.get("numpy")
    if kind is Tensor:
        code = _NAMES.get(value.dtype)
        if code is None:
            raise TypeError("an array of {} has no place in msgpack".format(value.dtype))
        return _array(put, code, value.shape, value.data)
    if numpy is not None and isinstance(value, numpy.ndarray):
        code = _CODES.get(value.dtype.str[1:])
        if code is not None:
            return _array(put, code, value.shape, value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes())
        if default is None:
            raise TypeError("an array of {} has no place in msgpack".format(value.dtype))
    elif numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biuf":
        # `float` as a longdouble's own `item` is a longdouble again.
        number = value.item()
        return _pack(put, number if isinstance(number, (bool, int, float)) else float(value), default, depth)
    elif isinstance(value, str):
        return _text(put, str.__str__(value))
    elif isinstance(value, int):
        return _integer(put, int(value))
    elif isinstance(value, float):
        return put(_F64(0xCB, value))
    elif isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        _head(put, len(data), None, _BIN)
        return put(data)
    if default is None:
        raise TypeError("a value of the type {} has no place in msgpack".format(kind.__name__))
    if not depth:
        raise ValueError("a value is nested more than {} deep".format(DEPTH))
    _pack(put, default(value), default, depth - 1)


def unpackb(data, lists=False):
    """The value of msgpack bytes; raises ValueError for anything else. `lists` asks for lists in the place of arrays."""
    data = data if type(data) is bytes else bytes(data)
    try:
        value, at = _unpack(data, 0, len(data), lists, DEPTH)
    except (IndexError, error):
        raise ValueError("the message ends too soon") from None
    if at != len(data):
        raise ValueError("{} bytes follow the value".format(len(data) - at))
    return value


def _unpack(data, at, end, lists, depth):
    """The value that begins at `at`, and where it ends."""
    code = data[at]
    at += 1
    if code < 0x80:
        return code, at
    if code >= 0xE0:
        return code - 256, at
    if code >= 0xA0 and (code < 0xC0 or 0xD9 <= code <= 0xDB):
        size, at = (code & 31, at) if code < 0xC0 else _length(data, at, 1 << (code - 0xD9))
        return str(_piece(data, at, size, end), "utf-8"), at + size
    if code < 0x90 or code >= 0xDE:
        size, at = (code & 15, at) if code < 0x90 else _length(data, at, 2 if code == 0xDE else 4)
        return _map(data, at, end, size, lists, depth)
    if code < 0xA0 or code >= 0xDC:
        size, at = (code & 15, at) if code < 0xA0 else _length(data, at, 2 if code == 0xDC else 4)
        if not depth or size > end - at:
            raise ValueError("a list is nested too deep, or has more entries than there are bytes")
        out = []
        for _ in range(size):
            entry, at = _unpack(data, at, end, lists, depth - 1)
            out.append(entry)
        return out, at
    if code in _NUMBERS:
        read, size = _NUMBERS[code]
        return read(data, at)[0], at + size
    if code in _CONSTANTS:
        return _CONSTANTS[code], at
    if 0xC4 <= code <= 0xC6:
        size, at = _length(data, at, 1 << (code - 0xC4))
        return _piece(data, at, size, end), at + size
    if 0xD4 <= code <= 0xD8:
        size = 1 << (code - 0xD4)
    elif 0xC7 <= code <= 0xC9:
        size, at = _length(data, at, 1 << (code - 0xC7))
    else:
        raise ValueError("there is no value that begins with {}".format(code))
    return _extended(data[at], _piece(data, at + 1, size, end), lists), at + 1 + size


_NUMBERS = {
    code: (Struct(form).unpack_from, calcsize(form))
    for code, form in zip((0xCB, 0xCA, *range(0xCC, 0xD4)), (">d", ">f", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q"))
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def _length(data, at, size):
    if len(data) - at < size:
        raise IndexError
    return int.from_bytes(data[at : at + size], "big"), at + size


def _piece(data, at, size, end):
    if size > end - at:
        raise IndexError
    return data[at : at + size]


def _map(data, at, end, size, lists, depth):
    if not depth or 2 * size > end - at:
        raise ValueError("a map is nested too deep, or has more entries than there are bytes")
    out = {}
    for _ in range(size):
        key, at = _unpack(data, at, end, lists, 0)
        if type(key) is not str:
            if type(key) is not int:
                raise ValueError("a name of a map is neither text nor an integer")
            key = str(key)
        out[key], at = _unpack(data, at, end, lists, depth - 1)
    return out, at


def _extended(kind, data, lists):
    if kind == INTEGER:
        if not data.lstrip(b"-").isdigit() or len(data) > DIGITS or data.rfind(b"-") > 0:
            raise ValueError("an integer is not written in digits")
        return int(data)
    if kind != ARRAY:
        raise ValueError("there is no extension type {}".format(kind))
    code, dimensions = data[0], data[1]
    if not 1 <= code <= len(DTYPES) or dimensions > DIMENSIONS:
        raise ValueError("an array has an unknown dtype or more than {} dimensions".format(DIMENSIONS))
    name, letter, _ = DTYPES[code - 1]
    shape = unpack_from("<{}I".format(dimensions), data, 4)
    count = 1
    for size in shape:
        count *= size
    data = data[4 + 4 * dimensions :]
    if count * calcsize("<" + letter) != len(data):
        raise ValueError("an array of {} {} has {} bytes".format(count, name, len(data)))
    if lists:
        return _nested(unpack_from("<{}{}".format(count, letter), data), shape)
    try:
        import numpy
    except ImportError:
        return Tensor(name, shape, data)
    if name == "bool":
        # Any byte that is not zero; a `bool` of another byte than 0 and 1 is none that numpy knows.
        return (numpy.frombuffer(data, "u1") != 0).reshape(shape) if count else numpy.zeros(shape, name)
    # A copy, that it may be written to and lies where its numbers are aligned.
    return numpy.frombuffer(data, "<" + DTYPES[code - 1][2]).reshape(shape).copy() if count else numpy.zeros(shape, name)


def _nested(values, shape):
    values = list(values)
    if 0 in shape:
        # Its lists are empty, and no bytes bound how many there are.
        shape = shape[: shape.index(0)]
        rows = 1
        for size in shape:
            rows *= size
        if rows > 65536:
            raise ValueError("an empty array has {} rows".format(rows))
        values = [[] for _ in range(rows)]
    for size in reversed(shape):
        values = [values[at : at + size] for at in range(0, len(values), size)]
    return values[0]
