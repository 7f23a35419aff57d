"""A client of `envharness.v1`, written from docs/protocol.md alone: frames, vector tables, msgpack, and a socket."""

from __future__ import annotations

import json
import math
import socket as sockets
import struct
from collections import deque
from typing import Any, NamedTuple

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

PROTOCOL = "envharness.v1"
OPS = "HELLO OPEN ATTACH RESET STEP STATE MCP RENDER CLOSE STEP_MANY RESET_MANY CANCEL CONTRACT INFO EVENT".split()
CODES = """INVALID_JSON UNKNOWN_TYPE VALIDATION_ERROR EXECUTION_ERROR CAPACITY_REACHED FACTORY_ERROR SESSION_ERROR WORKER_DIED
    STEP_TIMEOUT DRAINING IDLE_TIMEOUT REPLY_TOO_LARGE NOT_AVAILABLE CONTRACT_MISMATCH DEADLINE_EXCEEDED CANCELLED SEQUENCE_ERROR
    PROTOCOL_ERROR""".split()
TENSOR, DONE, NOT_FINITE, TERMINATED, TRUNCATED, REPLAYED = 2, 4, 8, 16, 32, 64
ANSWER = 0x80
HEADER = struct.Struct("<IBBHIIQII")
#: dtype codes from 1, and the letters of `struct`.
DTYPES = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64".split()
LETTERS = "?BbHhIiQqefd"


class Torn(ValueError):
    """No sequence of frames, or no table of entries."""


class Frame(NamedTuple):
    op: str
    payload: bytes = b""
    answer: bool = False
    flags: int = 0
    contract: int = 0
    session: int = 0
    sequence: int = 0
    request: int = 0
    status: int = 0
    ack: int = 0

    def encode(self) -> bytes:
        op = OPS.index(self.op) + 1 | (ANSWER if self.answer else 0)
        place = (self.contract, self.session, self.sequence, self.request, self.status, self.ack)
        return HEADER.pack(len(self.payload), op, self.flags, *place) + self.payload

    def json(self) -> Any:
        return json.loads(self.payload)

    @property
    def code(self) -> str:
        return CODES[self.status - 1] if self.status else ""


def frames(message: bytes) -> list[Frame]:
    found, at = [], 0
    while at < len(message):
        head = message[at : at + HEADER.size]
        length, op, flags, *place = HEADER.unpack(head) if len(head) == HEADER.size else [len(message)] * 9
        end = at + HEADER.size + length
        if end > len(message):
            raise Torn(at)
        found.append(Frame(OPS[(op & ~ANSWER) - 1], message[end - length : end], bool(op & ANSWER), flags, *place))
        at = end
    return found


class Ask(NamedTuple):
    session: int
    sequence: int
    payload: bytes


def write_asks(asks: list[Ask], raw: bool) -> bytes:
    table = [struct.pack("<II", a.session, a.sequence) + (b"" if raw else len(a.payload).to_bytes(4, "little")) for a in asks]
    return b"".join(table + [a.payload for a in asks])


def read_asks(payload: bytes, count: int, raw: bool) -> list[Ask]:
    size = 8 if raw else 12
    at = count * size
    if at > len(payload):
        raise Torn(0)
    asks = []
    for entry in range(count):
        session, sequence = struct.unpack_from("<II", payload, entry * size)
        length = (len(payload) - count * size) // count if raw else struct.unpack_from("<I", payload, entry * size + 8)[0]
        asks.append(Ask(session, sequence, payload[at : at + length]))
        at += length
    if at != len(payload):
        raise Torn(at)
    return asks


class Told(NamedTuple):
    session: int
    sequence: int
    status: int
    flags: int
    payload: bytes  # of a raw entry the info; of a failure its error
    reward: float | None = None
    row: bytes | None = None


def write_told(told: list[Told], raw: bool) -> bytes:
    out = [struct.pack("<IIHBBI", t.session, t.sequence, t.status, t.flags, 0, len(t.payload)) for t in told]
    if raw:
        size = max((len(t.row or b"") for t in told), default=0)
        out.insert(0, struct.pack("<I", size))
        out += [struct.pack("<d", math.nan if t.reward is None else t.reward) for t in told]
        out += [t.row or bytes(size) for t in told]
    return b"".join(out + [t.payload for t in told])


def read_told(payload: bytes, count: int, raw: bool) -> list[Told]:
    first = 4 if raw else 0
    size = struct.unpack_from("<I", payload)[0] if raw else 0
    rewards = first + 16 * count
    rows = rewards + 8 * count if raw else rewards
    at, told = rows + size * count, []
    if at > len(payload):
        raise Torn(0)
    for entry in range(count):
        session, sequence, status, flags, _, length = struct.unpack_from("<IIHBBI", payload, first + 16 * entry)
        reward = struct.unpack_from("<d", payload, rewards + 8 * entry)[0] if raw else math.nan
        row = payload[rows + size * entry : rows + size * (entry + 1)] if raw else None
        told.append(Told(session, sequence, status, flags, payload[at : at + length], None if math.isnan(reward) else reward, row))
        at += length
    if at != len(payload):
        raise Torn(at)
    return told


def split_raw(payload: bytes) -> tuple[float | None, bytes, bytes]:
    """Reward, observation and info of a raw answer of one session."""
    reward, length = struct.unpack_from("<dI", payload)
    return None if math.isnan(reward) else reward, payload[12 : 12 + length], payload[12 + length :]


class Array(NamedTuple):
    """An array of msgpack's extension type 1."""

    dtype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...]


def pack(value: Any) -> bytes:
    """A value as msgpack, in its shortest form."""
    if value is None or isinstance(value, bool):
        return b"\xc0" if value is None else b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            return extension(2, str(value).encode())
        if -32 <= value < 128:
            return struct.pack("b", value)
        at = next(at for at in range(4) if (0 <= value < 1 << (8 << at)) or (value < 0 and value >= -(1 << ((8 << at) - 1))))
        return bytes([(0xCC if value >= 0 else 0xD0) + at]) + value.to_bytes(1 << at, "big", signed=value < 0)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, Array):
        code, (count, dimensions) = DTYPES.index(value.dtype), (len(value.values), len(value.shape))
        sizes = struct.pack(f"<BBH{dimensions}I", code + 1, dimensions, 0, *value.shape)
        return extension(1, sizes + struct.pack(f"<{count}{LETTERS[code]}", *value.values))
    if isinstance(value, str):
        return head(len(value.encode()), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + value.encode()
    if isinstance(value, bytes):
        return head(len(value), 0, 0, (0xC4, 0xC5, 0xC6)) + value
    if isinstance(value, list):
        return head(len(value), 0x90, 16, (None, 0xDC, 0xDD)) + b"".join(map(pack, value))
    return head(len(value), 0x80, 16, (None, 0xDE, 0xDF)) + b"".join(pack(k) + pack(v) for k, v in value.items())


def head(length: int, base: int, short: int, codes: tuple) -> bytes:
    if length < short:
        return bytes([base | length])
    at = 0 if length < 256 and codes[0] else 1 if length < 65536 else 2
    return bytes([codes[at]]) + length.to_bytes(1 << at, "big")


def extension(kind: int, data: bytes) -> bytes:
    fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}.get(len(data))
    return (bytes([fixed]) if fixed else head(len(data), 0, 0, (0xC7, 0xC8, 0xC9))) + bytes([kind]) + data


def unpack(data: bytes) -> Any:
    import msgpack

    def extended(kind: int, data: bytes) -> Any:
        if kind == 2:
            return int(data)
        shape = struct.unpack_from(f"<{data[1]}I", data, 4)
        values = struct.unpack_from(f"<{math.prod(shape)}{LETTERS[data[0] - 1]}", data, 4 + 4 * data[1])
        return Array(DTYPES[data[0] - 1], shape, values)

    return msgpack.unpackb(data, ext_hook=extended, strict_map_key=False)


class Socket:
    """A connection: frames out, frames in, one after the other."""

    def __init__(self, url: str, offer: list[str] | None = None, within: float = 60, **options: Any) -> None:
        self.within, self.waiting, self.messages, self.requests = within, deque(), 0, 0
        offered = [PROTOCOL] if offer is None else offer or None
        options = {"subprotocols": offered, "proxy": None, "max_size": None, "compression": None, **options}
        self.socket = connect(url + "/ws", **options).__enter__()

    def send(self, *out: Frame) -> None:
        self.socket.send(b"".join(frame.encode() for frame in out))

    def receive(self) -> Frame:
        while not self.waiting:
            message = self.socket.recv(timeout=self.within)
            assert isinstance(message, bytes), message
            self.messages += 1
            self.waiting += frames(message)
        return self.waiting.popleft()

    def find(self, matches) -> Frame:
        """The first frame that matches; those before it wait on, but for the server's first words."""
        passed = []
        while not matches(frame := self.receive()):
            passed += [frame] if frame.op != "HELLO" else []
        self.waiting.extendleft(reversed(passed))
        return frame

    def ask(self, op: str, payload: Any = b"", **fields: Any) -> Frame:
        """A request, and the answer that has its number."""
        self.requests += 1
        payload = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.send(Frame(op, payload, request=(number := self.requests), **fields))
        return self.find(lambda frame: frame.answer and frame.request == number)

    def closed(self) -> int:
        """Reads to the end; the code of the close."""
        try:
            while True:
                self.socket.recv(timeout=self.within)
        except ConnectionClosed:
            return self.socket.close_code

    def drop(self) -> None:
        """The connection breaks, without a goodbye."""
        self.socket.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.socket.shutdown(sockets.SHUT_RDWR)
        self.socket.socket.close()
