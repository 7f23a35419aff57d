"""A server of both protocols that misbehaves as it is told, at any byte: hand-written, so that nothing is too wrong to be sent."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import struct
from typing import Any, Callable

from clients import Loop

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
HELLO, OPEN, ATTACH, RESET, STEP, STATE, MCP, RENDER, END_SESSION = range(1, 10)
STEP_MANY, RESET_MANY, CANCEL, CONTRACT, INFO, EVENT = range(10, 16)
ANSWER = 0x80
#: Length, op, flags, contract, session, sequence, request, status, ack.
HEADER = struct.Struct("<IBBHIIQII")
CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 4000, 4999, 999, 1005, 1006, 65535, None]

SPACE = {"type": "object", "properties": {"action": {"type": "integer", "enum": [0, 1]}}, "required": ["action"], "additionalProperties": False}
SEEN = {"type": "object", "properties": {"value": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["value"], "additionalProperties": False, "x-gym": {"render_modes": ["ansi"]}}
CONTRACT_TEXT = {
    "contract": 1, "name": "fake", "version": "1", "digest": "sha256:" + "0" * 64, "action": SPACE, "observation": SEEN,
    "reset": {"type": "object", "properties": {"seed": {"type": "integer"}}}, "state": {"type": "object"},
}  # fmt: skip
FIRST_WORDS = {
    "protocol": "envharness.v1", "server": "fake/0", "env": "fake", "encodings": ["json"], "draining": False,
    "contract": {"number": 1, "digest": CONTRACT_TEXT["digest"], "version": "1"},
    "sessions": {"active": 0, "max": 4096, "free": 4096}, "limits": {"message": 1 << 20, "window": 16, "resume_seconds": 30.0},
}  # fmt: skip
RESULT = {"observation": {"value": 1}, "reward": 1.0, "done": False}
TOOLS = {"tools": [{"name": "echo", "description": "", "input_schema": {"type": "object"}}]}


def frame(op: int, payload: bytes, declared: int | None = None, fin: bool = True) -> bytes:
    """A WebSocket frame of a server, whatever length it says it has."""
    length = len(payload) if declared is None else declared
    head = bytes([(0x80 if fin else 0) | op])
    if length < 126:
        return head + bytes([length]) + payload
    if length < 65_536:
        return head + bytes([126]) + struct.pack(">H", length) + payload
    return head + bytes([127]) + struct.pack(">Q", length) + payload


def inner(op: int, payload: bytes, *, session: int = 0, sequence: int = 0, request: int = 0, status: int = 0, contract: int = 0, length: int | None = None) -> bytes:
    """A frame of envharness.v1."""
    return HEADER.pack(len(payload) if length is None else length, op, 0, contract, session, sequence, request, status, 0) + payload


def rpc(request: Any) -> dict[str, Any]:
    """A good answer to a JSON-RPC request."""
    method = request.get("method")
    result: Any = {"session_id": "s"}
    if method == "tools/list":
        result = TOOLS
    elif method == "tools/call":
        result = {"data": "echo"}
    return {"jsonrpc": "2.0", "id": request.get("id"), "result": result}


class Fake:
    """The server; :meth:`turn` says how it behaves from now on."""

    def __init__(self, speaks: str) -> None:
        self.speaks, self.manner = speaks, "good"
        self.codes = 0
        self.sessions = 0
        self.loop = Loop()
        self.port = self.loop.listen(self.accept, limit=1 << 22)
        self.url = f"http://127.0.0.1:{self.port}"

    def turn(self, manner: str) -> None:
        """Behaves so from now on. A server that turns good has forgotten everything, as one that was started anew."""
        self.loop.run(self._turn(manner))
        if manner == "good":
            self.loop.drop_all()

    async def _turn(self, manner: str) -> None:
        self.manner = manner

    def stop(self) -> None:
        self.loop.close()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await Connection(self, reader, writer).serve()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError, Over):
            pass
        finally:
            writer.transport.abort()


class Over(Exception):
    """The connection ends here."""


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


class Connection:
    """One connection: it looks at the server's manner before each thing that it says."""

    def __init__(self, fake: Fake, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.fake, self.reader, self.writer = fake, reader, writer
        #: The sessions that it holds.
        self.sessions: set[int] = set()

    @property
    def manner(self) -> str:
        return self.fake.manner

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def say_and_stop(self, data: bytes) -> None:
        await self.say(data)
        await for_ever()

    async def slowly(self, data: bytes) -> None:
        """A byte a second: what is waited for never comes."""
        for byte in data:
            await self.say(bytes([byte]))
            await asyncio.sleep(1)

    # Before the WebSocket.

    async def serve(self) -> None:
        if self.manner == "silent at once":
            await for_ever()
        if self.manner == "closes at once":
            raise Over
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
        await self.at_the_door()
        if "upgrade" not in headers:
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
            return await self.page(method, path, body)
        digest = hashlib.sha1((headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
        answer += base64.b64encode(digest).decode() + "\r\n"
        v1 = self.fake.speaks == "envharness.v1" and "envharness.v1" in headers.get("sec-websocket-protocol", "")
        if v1:
            answer += "Sec-WebSocket-Protocol: envharness.v1\r\n"
        data = (answer + "\r\n").encode()
        if self.manner == "half a handshake":
            await self.say_and_stop(data[: len(data) // 2])
        if self.manner == "a byte a second":
            await self.slowly(data)
        await self.say(data)
        if self.manner == "closes after the handshake":
            raise Over
        if self.manner == "silent after the handshake":
            await for_ever()
        await (self.speak_v1() if v1 else self.speak_openenv())

    async def at_the_door(self) -> None:
        manner = self.manner
        if manner.startswith("status "):
            status = manner.split(" ")[1]
            body = b'{"detail": "go away"}'
            await self.say(f"HTTP/1.1 {status} No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            raise Over
        if manner == "garbage at the door":
            await self.say(bytes(range(256)) * 4)
            raise Over
        if manner == "endless headers":
            await self.say(b"HTTP/1.1 101 Switching Protocols\r\n")
            while True:
                await self.say(b"X-More: " + b"x" * 1000 + b"\r\n")

    async def page(self, method: str, path: str, body: bytes) -> None:
        """A plain HTTP request; what is wrong with messages is wrong with bodies too."""
        pages = {"/contract": CONTRACT_TEXT, "/schema": CONTRACT_TEXT, "/metadata": {"name": "fake", "version": "1"},
            "/ready": {"status": "ready", "active_sessions": 0, "max_sessions": 99, "free_sessions": 99}}  # fmt: skip
        value = rpc(json.loads(body)) if method == "POST" else pages.get(path)
        if value is None or (path == "/contract" and self.fake.speaks == "openenv"):
            return await self.say(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        data = self.spoilt(json.dumps(value).encode())
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        manner = self.manner
        if manner in ("closes after the request", "closes after the handshake", "closes with a code"):
            raise Over
        if manner == "half a frame" or "silent" in manner or "only" in manner:
            await self.say_and_stop(head + b"Content-Length: %d\r\n\r\n" % len(data) + data[: len(data) // 2])
        if manner == "declares 10 GiB":
            await self.say_and_stop(head + b"Content-Length: %d\r\n\r\n" % (10 << 30) + data)
        if manner == "a byte a second":
            await self.slowly(head + b"Content-Length: %d\r\n\r\n" % len(data) + data)
        if manner.startswith("endless"):
            await self.say(head + b"Transfer-Encoding: chunked\r\n\r\n")
            while True:
                await self.say(b"10000\r\n" + bytes(65_536) + b"\r\n")
        await self.say(head + b"Content-Length: %d\r\n\r\n" % len(data) + data)

    def spoilt(self, data: bytes) -> bytes:
        """A body, or what there is in its place."""
        return {
            "no JSON": b"{'a': 1, nonsense",
            "no UTF-8": b'{"type": "\xff\xfe"}',
            "JSON that is no object": b"[1, 2]",
            "a text alone": b'"well"',
            "null": b"null",
            "an empty object": b"{}",
            "deep JSON": b"[" * 100_000,
        }.get(self.manner, data)

    # Messages.

    async def message(self) -> tuple[int, bytes]:
        """The next message of the client; pings are answered."""
        while True:
            first, second = await self.reader.readexactly(2)
            op, length = first & 15, second & 127
            if length == 126:
                (length,) = struct.unpack(">H", await self.reader.readexactly(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", await self.reader.readexactly(8))
            mask = await self.reader.readexactly(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(await self.reader.readexactly(length)))
            if op == PING:
                await self.say(frame(PONG, data))
            elif op == CLOSE:
                await self.say(frame(CLOSE, data[:2]))
                raise Over
            elif op != PONG:
                return op, data

    async def misbehave(self, kind: int) -> None:
        """What does not depend on the protocol; `kind` is that of messages."""
        manner = self.manner
        if "silent" in manner:
            await for_ever()
        if manner.startswith("closes a"):
            raise Over
        if manner == "half a frame":
            await self.say_and_stop(frame(kind, b"{" * 50, declared=100))
        if manner == "half a header":
            await self.say_and_stop(frame(kind, b"", declared=70_000)[:2])
        if manner == "a byte a second":
            await self.slowly(frame(kind, b"x" * 200))
        if manner == "declares 10 GiB":
            await self.say_and_stop(frame(kind, b"{" * 1000, declared=10 << 30))
        if manner == "pings only":
            while True:
                await self.say(frame(PING, b""))
                await asyncio.sleep(0.02)
        if manner == "pongs and texts only":
            while True:
                await self.say(frame(PONG, b"") + frame(TEXT, b""))
                await asyncio.sleep(0.02)
        if manner == "endless messages":
            while True:
                await self.say(frame(kind, bytes(4000)) * 16)
        if manner == "an endless message":
            await self.say(frame(kind, b"x" * 1000, fin=False))
            sent = 0
            while True:
                await self.say(frame(0, b"x" * 16_000, fin=False))
                # Beyond what most clients of the tests take; those that take more must not fill the memory of the machine.
                sent += 16_000
                await asyncio.sleep(0.002 if sent < 4_000_000 else 0.2)
        if manner == "endless bytes":
            while True:
                await self.say(bytes(65_536))
        if manner == "masked frames":
            await self.say(bytes([0x80 | kind, 0x80 | 4, 1, 2, 3, 4, 5, 6, 7, 8]))
            await for_ever()
        if manner == "the wrong kind of frame":
            await self.say(frame(TEXT if kind == BINARY else BINARY, b"{}"))
            await for_ever()
        if manner == "a frame of no kind":
            await self.say_and_stop(frame(11, b"{}"))
        if manner == "closes with a code":
            code = CODES[self.fake.codes % len(CODES)]
            self.fake.codes += 1
            await self.say(frame(CLOSE, b"" if code is None else struct.pack(">H", code) + b"because"))
            raise Over

    # OpenEnv's protocol.

    async def speak_openenv(self) -> None:
        while True:
            op, data = await self.message()
            await self.misbehave(TEXT)
            asked = json.loads(data)
            if asked["type"] == "close":
                raise Over
            kind = {"state": "state", "mcp": "mcp"}.get(asked["type"], "observation")
            value: Any = {"state": {"episode_id": "e", "step_count": 0}, "mcp": rpc(asked.get("data", {}))}.get(kind, RESULT)
            text = self.spoilt(json.dumps({"type": kind, "data": value}).encode())
            if self.manner in OPENENV:
                text = OPENENV[self.manner]
            await self.say(frame(TEXT, text))
            if self.manner == "a reply that nobody asked for":
                await self.say(frame(TEXT, text) * 2)

    # envharness.v1.

    async def speak_v1(self) -> None:
        if self.manner == "first words that are none":
            await self.say(frame(BINARY, inner(HELLO, b"[]")))
        elif self.manner == "an answer before the first words":
            await self.say(frame(BINARY, inner(STEP | ANSWER, b"{}", session=1, sequence=1, request=1)))
        elif self.manner != "no first words":
            await self.say(frame(BINARY, inner(HELLO, json.dumps(FIRST_WORDS).encode())))
        if self.manner == "first words twice":
            await self.say(frame(BINARY, inner(HELLO, json.dumps(FIRST_WORDS).encode())))
        while True:
            _, data = await self.message()
            await self.misbehave(BINARY)
            if self.manner == "no first words":
                await for_ever()
            out = b""
            while data:
                length, op, flags, contract, session, sequence, request, status, ack = HEADER.unpack_from(data)
                payload, data = data[HEADER.size : HEADER.size + length], data[HEADER.size + length :]
                out += self.answer(op, flags, session, sequence, request, payload)
            if out:
                await self.say(frame(BINARY, out))

    def answer(self, op: int, flags: int, session: int, sequence: int, request: int, payload: bytes) -> bytes:
        manner, place = self.manner, {"session": session, "sequence": sequence, "request": request, "contract": 1}
        if op == CANCEL:
            return b""
        if manner in V1:
            return V1[manner](op, place)
        if manner == "a reply that nobody asked for":
            return inner(STEP | ANSWER, b"{}", session=session or 1, sequence=77, request=77)
        if manner == "the wrong id":
            place["request"] += 1000
        elif manner == "the wrong session":
            place["session"] += 1000
        elif manner == "the wrong sequence":
            place["sequence"] += 1000
        elif manner == "the wrong operation":
            op = STATE if op != STATE else STEP
        elif manner == "an operation that is none":
            op = 100
        if op == OPEN:
            self.fake.sessions += 1
            place["session"] = self.fake.sessions
            self.sessions.add(self.fake.sessions)
            told = {"session": self.fake.sessions, "session_id": "s", "contract": 1, "next": 1, "digest": CONTRACT_TEXT["digest"]}
            return inner(op | ANSWER, self.spoilt(json.dumps(told).encode()), **place)
        if op == ATTACH:
            return inner(op | ANSWER, b'{"code":"SESSION_ERROR","message":"gone"}', **{**place, "status": 4})
        if op in (STEP_MANY, RESET_MANY):
            entries = [struct.unpack_from("<III", payload, at * 12)[:2] for at in range(sequence)]
            body = self.spoilt(json.dumps(RESULT).encode())
            table = b"".join(struct.pack("<IIHBBI", one, place, 0, 0, 0, len(body)) for one, place in entries)
            return inner(op | ANSWER, table + body * len(entries), **place)
        if session and session not in self.sessions and op != END_SESSION:
            refusal = b'{"code":"SESSION_ERROR","message":"session is not of this connection"}'
            return inner(op | ANSWER, refusal, **{**place, "status": 4})
        values: dict[int, Any] = {CONTRACT: CONTRACT_TEXT, INFO: FIRST_WORDS, STATE: {"step_count": 0}, END_SESSION: {}}
        value = rpc(json.loads(payload)) if op == MCP else values.get(op, RESULT)
        body = b"\xa1x" if op == RENDER else json.dumps(value).encode()
        return inner(op | ANSWER, self.spoilt(body), **place)


def refusing(data: bytes, status: int = 1) -> Callable[[int, dict[str, int]], bytes]:
    return lambda op, place: inner(op | ANSWER, data, **{**place, "status": status})


SENSELESS = b'{"code": 5, "message": [], "errors": 5, "retryable": "x", "last_output": {}}'
WRONG_ERRORS = b'{"code": "VALIDATION_ERROR", "message": "m", "errors": [5]}'
#: Replies of OpenEnv's protocol.
OPENENV = {
    "NaN": b'{"type": "observation", "data": {"observation": {"value": NaN}, "reward": NaN, "done": NaN}}',
    "an error without sense": b'{"type": "error", "data": ' + SENSELESS + b"}",
    "an error that is none": b'{"type": "error", "data": 5}',
    "errors that are none": b'{"type": "error", "data": ' + WRONG_ERRORS + b"}",
    "data that is no object": b'{"type": "observation", "data": [1]}',
    "data of other types": b'{"type": "observation", "data": {"observation": 5, "reward": "x", "done": "y", "metadata": 1}}',
}
#: Answers of envharness.v1, by what was asked and its place.
V1 = {
    "NaN": lambda op, place: inner(op | ANSWER, b'{"observation": {"value": NaN}, "reward": NaN, "done": NaN}', **place),
    "an error without sense": refusing(SENSELESS),
    "an error that is none": refusing(b"5"),
    "errors that are none": refusing(WRONG_ERRORS),
    "a status that is none": refusing(b"", 0xFFFFFFFF),
    "data that is no object": lambda op, place: inner(op | ANSWER, b"[1]", **place),
    "data of other types": lambda op, place: inner(op | ANSWER, b'{"observation": 5, "reward": "x", "done": "y", "session": "z"}', **place),
    "an inner length of 4 GiB": lambda op, place: inner(op | ANSWER, b"{}", length=0xFFFFFFFF, **place),
    "an inner length cut off": lambda op, place: inner(op | ANSWER, b"{}", **place)[:20],
    "an event without sense": lambda op, place: inner(EVENT, b'{"event": "ended", "session": "x"}') + inner(EVENT, b"[]"),
    "all sessions end": lambda op, place: inner(EVENT, json.dumps({"event": "ended", "session": place["session"]}).encode()),
    "a table without entries": lambda op, place: inner(op | ANSWER, b"", **{**place, "sequence": 0xFFFFFFFF, "session": 0}),
}
SHARED = [
    "silent at once", "silent after the handshake", "half a handshake", "half a frame", "half a header", "a byte a second",
    "closes at once", "closes after the handshake", "closes after the request", "closes with a code",
    "status 500", "status 401", "status 404", "status 200", "status 101", "garbage at the door", "endless headers",
    "declares 10 GiB", "pings only", "pongs and texts only", "endless messages", "an endless message", "endless bytes",
    "masked frames", "the wrong kind of frame", "a frame of no kind", "a reply that nobody asked for",
    "no JSON", "no UTF-8", "JSON that is no object", "a text alone", "null", "an empty object", "deep JSON",
]  # fmt: skip
WORDS = ["no first words", "first words that are none", "first words twice", "an answer before the first words"]
WRONG = ["the wrong id", "the wrong session", "the wrong sequence", "the wrong operation", "an operation that is none"]
MANNERS = {"openenv": [*SHARED, *OPENENV], "envharness.v1": [*SHARED, *V1, *WORDS, *WRONG]}


@contextlib.contextmanager
def fake_server(speaks: str):
    server = Fake(speaks)
    try:
        yield server
    finally:
        server.stop()
