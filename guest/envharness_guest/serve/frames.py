"""The frames between the front and a worker; `frame.rs` of the wire crate is the other end.

`length: u32, op: u8, flags: u8, 0: u16, session: u32, request: u64, payload`, little-endian.
"""

from struct import Struct

HEADER = Struct("<IBBHIQ")
SIZE = HEADER.size

OPEN, RESET, STEP, STATE, CLOSE, MCP, TASK, METADATA, PING, LOAD, RENDER = range(1, 12)
HTTP_SHAPE, INLINE, MSGPACK, TENSOR = 1, 2, 4, 8

OK, FAILED, INVALID, LOG, EVENT = range(1, 6)
DONE, NOT_FINITE, TERMINATED, TRUNCATED = 1, 2, 4, 8

_pack = HEADER.pack


def answer(kind, flags, session, request, payload):
    """One answer as bytes."""
    return _pack(len(payload), kind, flags, 0, session, request) + payload


class Reader:
    """Cuts what a socket gives into frames `(op, flags, session, request, payload)`."""

    def __init__(self):
        self._rest = b""

    def feed(self, data):
        """The frames that are whole now."""
        if self._rest:
            data = self._rest + data
        frames = []
        at, end = 0, len(data)
        unpack = HEADER.unpack_from
        while end - at >= SIZE:
            length, op, flags, _, session, request = unpack(data, at)
            stop = at + SIZE + length
            if stop > end:
                break
            frames.append((op, flags, session, request, data[at + SIZE : stop]))
            at = stop
        self._rest = data[at:]
        return frames
