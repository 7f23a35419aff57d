"""`envharness.v1` from outside: docs/protocol.json with a client written from docs/protocol.md, and what no script can say."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import secrets
import signal
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

import protocol_client as wire
import pytest
from conftest import write
from protocol_client import Array, Ask, Frame, Socket, Told
from serving import END, REPLY, reference_python, run_stock, running, serve_fixture, shared_home, start, store_fixture  # noqa: F401
from websockets.exceptions import InvalidStatus

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "guest"))

from envharness_guest import msgpack as guest

DOCS = ROOT / "docs"
CONFORMANCE = json.loads((DOCS / "protocol.json").read_text())
TEXT = (DOCS / "protocol.md").read_text()


# Values with named parts: `{"$key": n}` is a secret, `{"$get": n}` what `{"$set": n}` took, `{"$any": true}` whatever is there.


def value_of(value: Any, names: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        if "$key" in value:
            return names.setdefault("key " + value["$key"], secrets.token_hex(16))
        if "$get" in value:
            return names[value["$get"]]
        if "$array" in value:
            described = value["$array"]
            return Array(described["dtype"], tuple(described["shape"]), tuple(described["values"]))
        if "$bytes" in value:
            return bytes.fromhex(value["$bytes"])
        if "$integer" in value:
            return int(value["$integer"])
        if "$float" in value:
            return float(value["$float"])
        if "$repeat" in value:
            return value["$repeat"] * value["times"]
        return {key: value_of(inner, names) for key, inner in value.items()}
    return [value_of(inner, names) for inner in value] if isinstance(value, list) else value


def payload_of(spec: dict[str, Any], names: dict[str, Any]) -> bytes:
    """The bytes of what stands beside a frame's or an entry's fields."""
    if "json" in spec:
        return json.dumps(value_of(spec["json"], names), separators=(",", ":")).encode()
    if "msgpack" in spec:
        return wire.pack(value_of(spec["msgpack"], names))
    if "asks" in spec:
        asks = [Ask(value_of(a["session"], names), a["sequence"], payload_of(a, names)) for a in spec["asks"]]
        return wire.write_asks(asks, spec.get("raw", False))
    if "told" in spec:
        told = [told_of(t, names) for t in spec["told"]]
        return wire.write_told(told, spec.get("raw", False))
    return spec["text"].encode() if "text" in spec else bytes.fromhex(spec.get("hex", ""))


def told_of(spec: dict[str, Any], names: dict[str, Any]) -> Told:
    row = bytes.fromhex(spec["row"]) if "row" in spec else None
    status, flags = number_of(spec.get("status", 0)), spec.get("flags", 0)
    return Told(spec["session"], spec["sequence"], status, flags, payload_of(spec, names), spec.get("reward"), row)


def number_of(status: int | str) -> int:
    return wire.CODES.index(status) + 1 if isinstance(status, str) else status


FIELDS = ("flags", "contract", "session", "sequence", "request", "ack")


def frame_of(spec: dict[str, Any], names: dict[str, Any]) -> Frame:
    fields = {field: value_of(spec[field], names) for field in FIELDS if field in spec}
    return Frame(spec["op"], payload_of(spec, names), spec.get("answer", False), status=number_of(spec.get("status", 0)), **fields)


def matches(found: Any, wanted: Any, names: dict[str, Any], subset: bool = False) -> bool:
    if isinstance(wanted, dict):
        if "$any" in wanted:
            return True
        if "$set" in wanted:
            names[wanted["$set"]] = found
            return True
        if "$match" in wanted:
            return isinstance(found, str) and re.search(wanted["$match"], found) is not None
        if not any(key.startswith("$") for key in wanted):
            if not isinstance(found, dict) or not (wanted.keys() <= found.keys() if subset else wanted.keys() == found.keys()):
                return False
            return all(matches(found[key], inner, names, subset) for key, inner in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(matches(f, w, names, subset) for f, w in zip(found, wanted))
    return found == value_of(wanted, names) and isinstance(found, bool) == isinstance(wanted, bool)


def payload_matches(found: bytes, spec: dict[str, Any], names: dict[str, Any], count: int = 0) -> bool:
    if "json" in spec or "subset" in spec:
        return matches(json.loads(found), spec.get("json", spec.get("subset")), names, "subset" in spec)
    if "msgpack" in spec or "msgpack_subset" in spec:
        return matches(wire.unpack(found), spec.get("msgpack", spec.get("msgpack_subset")), names, "msgpack_subset" in spec)
    if "told" in spec:
        told = wire.read_told(found, count, spec.get("raw", False))
        left = list(spec["told"])
        for entry in told:
            wanted = next((wanted for wanted in left if told_matches(entry, wanted, names)), None)
            if wanted is None:
                return False
            left.remove(wanted)
        return not left
    if "outcome" in spec:
        reward, row, info = wire.split_raw(found)
        return matches({"reward": reward, "row": row.hex(), "info": info.decode()}, spec["outcome"], names)
    return found == payload_of(spec, names) if {"hex", "text"} & spec.keys() else True


def told_matches(entry: Told, wanted: dict[str, Any], names: dict[str, Any]) -> bool:
    place = (entry.session, entry.sequence, entry.status)
    if place != (value_of(wanted["session"], names), wanted["sequence"], number_of(wanted.get("status", 0))):
        return False
    more = {"flags": entry.flags, "reward": entry.reward, "row": entry.row.hex() if entry.row is not None else None}
    return all(matches(more[key], wanted[key], names) for key in more.keys() & wanted.keys()) and payload_matches(entry.payload, wanted, names)


def frame_matches(frame: Frame, wanted: dict[str, Any], names: dict[str, Any]) -> bool:
    if (frame.op, frame.answer, frame.status) != (wanted["op"], wanted.get("answer", False), number_of(wanted.get("status", 0))):
        return False
    if not all(matches(getattr(frame, field), wanted[field], names) for field in FIELDS if field in wanted):
        return False
    return payload_matches(frame.payload, wanted, names, frame.sequence)


class Script:
    """Carries out the steps of a case."""

    def __init__(self, url: str) -> None:
        self.url, self.names, self.sockets = url, {}, {}

    def run(self, steps: list[dict[str, Any]]) -> None:
        for at, step in enumerate(steps):
            verb = next(iter(step))
            try:
                getattr(self, verb)(step[verb], step)
            except Exception as error:
                raise AssertionError(f"step {at}, {json.dumps(step)}: {type(error).__name__} {error}") from error

    def connect(self, name: str, step: dict[str, Any]) -> None:
        headers = {"Authorization": f"Bearer {step['token']}"} if "token" in step else None
        try:
            socket = Socket(self.url, step["offer"], REPLY, additional_headers=headers)
        except InvalidStatus as error:
            assert error.response.status_code == step.get("refused")
            return
        self.sockets[name] = socket
        assert "refused" not in step and socket.socket.subprotocol == step["chosen"], socket.socket.subprotocol
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", socket.socket.response.headers["x-envharness-contract"])

    def send(self, name: str, step: dict[str, Any]) -> None:
        socket = self.sockets[name]
        if "text" in step:
            socket.socket.send(step["text"])
        elif "hex" in step:
            socket.socket.send(bytes.fromhex(step["hex"]))
        elif "bytes" in step:
            with contextlib.suppress(Exception):
                socket.socket.send(bytes(step["bytes"]))
        else:
            socket.send(*(frame_of(frame, self.names) for frame in step["frames"]))

    def expect(self, name: str, step: dict[str, Any]) -> None:
        left = list(step["frames"])
        while left:
            frame = self.sockets[name].receive()
            options = left if step.get("order") == "any" else left[:1]
            wanted = next((wanted for wanted in options if frame_matches(frame, wanted, self.names)), None)
            assert wanted is not None, f"{frame} is none of {options}"
            left.remove(wanted)

    def expect_text(self, name: str, step: dict[str, Any]) -> None:
        text = self.sockets[name].socket.recv(timeout=REPLY)
        assert isinstance(text, str) and matches(json.loads(text), step["subset"], self.names, True), text

    def expect_close(self, name: str, step: dict[str, Any]) -> None:
        assert self.sockets[name].closed() == step["code"], self.sockets[name].socket.close_code

    def drop(self, name: str, step: dict[str, Any]) -> None:
        self.sockets.pop(name).drop()

    def close(self, name: str, step: dict[str, Any]) -> None:
        self.sockets.pop(name).socket.close(step.get("code", 1000))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Servers of the stated targets, one for each target and its arguments."""
    servers: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:

        def get(target: str, args=(), env=None, cwd=None):
            name = json.dumps([target, list(args), env])
            if name not in servers:
                servers[name] = stack.enter_context(running(start(target, *args, home=shared_home(tmp_path_factory), env=env, cwd=cwd)))
            return servers[name]

        yield get


@pytest.mark.parametrize("case", CONFORMANCE["cases"], ids=lambda case: case["name"])
def test_conformance(case, served):
    server = served(case["target"], case.get("args", ()), case.get("env"))
    script = Script(server.ws_url)
    try:
        script.run(case["steps"])
    finally:
        for socket in script.sockets.values():
            socket.socket.close()


@pytest.mark.parametrize("case", CONFORMANCE["codec"], ids=lambda case: case["name"])
def test_codec(case):
    data = bytes.fromhex(case["hex"])
    if case.get("torn"):
        read = {"asks": wire.read_asks, "told": wire.read_told}.get(case["kind"])
        with pytest.raises(wire.Torn):
            wire.frames(data) if read is None else read(data, case["count"], case["raw"])
        return
    if case["kind"] == "frames":
        wanted = [frame_of(frame, {}) for frame in case["frames"]]
        assert wire.frames(data) == wanted and b"".join(frame.encode() for frame in wanted) == data
    elif case["kind"] == "asks":
        assert payload_of(case, {}) == data
        assert wire.read_asks(data, len(case["asks"]), case["raw"]) == [Ask(a["session"], a["sequence"], payload_of(a, {})) for a in case["asks"]]
    elif case["kind"] == "told":
        assert payload_of(case, {}) == data
        size = max((len(t.get("row", "")) // 2 for t in case["told"]), default=0)
        wanted = [told_of(t, {}) for t in case["told"]]
        wanted = [t._replace(row=t.row or bytes(size)) if case["raw"] else t for t in wanted]
        assert wire.read_told(data, len(wanted), case["raw"]) == wanted
    else:
        value = value_of(case["value"], {})
        assert wire.pack(value) == data
        read = wire.unpack(data)
        assert read == value or (isinstance(value, float) and math.isnan(value) and math.isnan(read))
        assert guest.packb(guest_value(value)) == data


def guest_value(value: Any) -> Any:
    """The same for the guest's codec, which is the server's in Python."""
    if isinstance(value, Array):
        letter = wire.LETTERS[wire.DTYPES.index(value.dtype)]
        return guest.Tensor(value.dtype, value.shape, struct.pack(f"<{len(value.values)}{letter}", *value.values))
    if isinstance(value, dict):
        return {key: guest_value(inner) for key, inner in value.items()}
    return [guest_value(inner) for inner in value] if isinstance(value, list) else value


EXAMPLES = re.findall(r"^```frame\n(.*?)^```", TEXT, re.M | re.S)


def described(line: str) -> tuple[list[str], dict[str, Any], bytes]:
    """`WORDS key=value … payload`, where the payload begins with a brace or `hex:`."""
    found = re.match(r"(.*?)(?:\s(\{.*|hex:[0-9a-f ]*))?$", line)
    words = found[1].split()
    payload = (found[2] or "").strip()
    data = bytes.fromhex(payload[4:]) if payload.startswith("hex:") else payload.encode()
    fields = dict(word.split("=") for word in words if "=" in word)
    kinds = {"status": number_of, "reward": float, "row": str}
    return [word for word in words if "=" not in word], {key: kinds.get(key, int)(value) for key, value in fields.items()}, data


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.split("\n")[0][:50])
def test_examples_of_the_page(example):
    lines = example.splitlines()
    hexes = bytes.fromhex("".join(line[2:] for line in lines if line.startswith("= ")))
    first, *entries = [line for line in lines if not line.startswith("= ")]
    words, fields, payload = described(first)
    raw = fields.get("flags", 0) & 3 == wire.TENSOR
    asks, told = [], []
    for line in entries:
        (kind,), parts, data = described(line)
        if kind == "ask":
            asks.append(Ask(parts["session"], parts["sequence"], data))
        else:
            row = bytes.fromhex(parts["row"]) if "row" in parts else None
            told.append(Told(parts["session"], parts["sequence"], parts.get("status", 0), parts.get("flags", 0), data, parts.get("reward"), row))
    payload = wire.write_asks(asks, raw) if asks else wire.write_told(told, raw) if told else payload
    frame = Frame(words[0], payload, "answer" in words, **fields)
    assert frame.encode() == hexes and wire.frames(hexes) == [frame]


def test_the_page_has_the_codes_and_the_operations():
    rows = re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", TEXT, re.M)
    codes = [(int(number), name) for number, name in rows if name in wire.CODES]
    assert codes == list(enumerate(wire.CODES, 1))
    assert [(int(number), name) for number, name in rows if name in wire.OPS] == list(enumerate(wire.OPS, 1))
    assert len(EXAMPLES) >= 8


# What no script can say.


GATED = '''
"""An environment whose steps and constructors wait at gates: FIFOs, whose other end the test holds."""

import os
from dataclasses import dataclass


@dataclass
class Action:
    gate: str = ""
    die: bool = False


@dataclass
class Observation:
    steps: int
    reward: float = 0.0
    done: bool = False


@dataclass
class State:
    steps: int


class Gated:
    SUPPORTS_CONCURRENT_SESSIONS = True
    ENVHARNESS_CONCURRENCY = "thread"

    def __init__(self):
        self.steps = 0
        if os.path.exists(os.environ["GATED_OPENING"]):
            open(os.environ["GATED_OPENING"]).read()

    def reset(self, seed=None, episode_id=None) -> Observation:
        return Observation(self.steps)

    def step(self, action: Action) -> Observation:
        if action.gate:
            open(action.gate).read()
        if action.die:
            os._exit(3)
        self.steps += 1
        return Observation(self.steps)

    @property
    def state(self) -> State:
        return State(self.steps)
'''


class Gate:
    """A place at which an environment waits."""

    def __init__(self, path: Path) -> None:
        self.path, self.end = path, None
        os.mkfifo(path)

    def reached(self) -> Gate:
        """Waits until the environment is there."""
        thread = threading.Thread(target=self.hold, daemon=True)
        thread.start()
        thread.join(REPLY)
        assert self.end is not None, "nobody came to the gate"
        return self

    def hold(self) -> None:
        self.end = os.open(self.path, os.O_WRONLY)

    def open(self) -> None:
        os.close(self.end)


@pytest.fixture(scope="module")
def gated(served, tmp_path_factory):
    """A server whose environments wait at gates, and a maker of gates."""
    folder = tmp_path_factory.mktemp("gated")
    write(folder / "gated.py", GATED)
    numbers = itertools.count()
    server = served("gated:Gated", ["--workers", "2"], {"GATED_OPENING": str(folder / "opening")}, folder)

    def get():
        return Socket(server.ws_url, within=REPLY)

    get.gate = lambda name=None: Gate(folder / (name or f"gate{next(numbers)}"))
    get.server = server
    return get


class Seat:
    """A session, as a client of docs/protocol.md holds it."""

    def __init__(self, socket: Socket, **options: Any) -> None:
        self.key = secrets.token_hex(16)
        self.opened = socket.ask("OPEN", {"key": self.key, **options})
        assert not self.opened.status, self.opened
        self.socket, self.number, self.contract, self.sequence = socket, self.opened.session, self.opened.contract, 0

    def frame(self, op: str, payload: Any = b"", sequence: int | None = None, **fields: Any) -> Frame:
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        payload = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        fields = {"request": 1000 + sequence, "ack": sequence - 1, **fields}
        return Frame(op, payload, contract=self.contract, session=self.number, sequence=sequence, **fields)

    def ask(self, op: str, payload: Any = b"", **fields: Any) -> Frame:
        frame = self.frame(op, payload, **fields)
        self.socket.send(frame)
        return self.socket.find(lambda answer: (answer.session, answer.sequence) == (self.number, frame.sequence))

    def attach(self, socket: Socket) -> Frame:
        self.socket = socket
        return socket.ask("ATTACH", {"key": self.key}, session=self.number)


def until(found, what: str) -> None:
    """Asks until it is so."""
    deadline = time.monotonic() + REPLY
    while not found():
        assert time.monotonic() < deadline, what


def active(socket: Socket) -> int:
    return socket.ask("INFO").json()["sessions"]["active"]


def test_a_request_that_runs_is_not_carried_out_again(gated):
    first, second, gate = gated(), gated(), gated.gate()
    seat = Seat(first)
    step = seat.frame("STEP", {"gate": str(gate.path)})
    first.send(step)
    gate.reached()
    first.drop()
    assert seat.attach(second).json()["next"] == 2
    second.send(step._replace(request=7), step._replace(request=8))
    second.ask("INFO")
    gate.open()
    answer = second.receive()
    assert (answer.sequence, answer.request, answer.code, answer.json()["observation"]) == (1, 8, "", {"steps": 1})
    assert seat.ask("STATE").json() == {"steps": 1}
    second.socket.close()


def test_an_entry_that_runs_while_its_connection_breaks_is_answered_where_it_is_asked_for(gated):
    first, second, gate = gated(), gated(), gated.gate()
    slow, quick = Seat(first), Seat(first)
    entries = [(slow, {"gate": str(gate.path)}), (quick, {})]
    asks = [Ask(seat.number, 1, json.dumps(action).encode()) for seat, action in entries]
    first.send(Frame("STEP_MANY", wire.write_asks(asks, False), contract=slow.contract, sequence=2, request=5))
    gate.reached()
    first.drop()
    for seat, action in entries:
        assert seat.attach(second).json()["next"] == 2
        second.send(seat.frame("STEP", action))
    second.ask("INFO")
    gate.open()
    found = {(answer.session, answer.op): answer.json()["observation"]["steps"] for answer in (second.receive(), second.receive())}
    assert found == {(slow.number, "STEP"): 1, (quick.number, "STEP"): 1}
    assert slow.ask("STATE").json() == quick.ask("STATE").json() == {"steps": 1}
    second.socket.close()


def test_an_answer_reaches_who_has_taken_the_session_over(gated):
    first, second, gate = gated(), gated(), gated.gate()
    seat = Seat(first)
    first.send(seat.frame("STEP", {"gate": str(gate.path)}))
    gate.reached()
    seat.attach(second)
    gate.open()
    assert second.receive().json()["observation"] == {"steps": 1}
    assert first.ask("STATE", session=seat.number, contract=seat.contract, sequence=2).code == "SESSION_ERROR"
    first.socket.close()
    assert seat.ask("STATE").json() == {"steps": 1}
    second.socket.close()


def test_a_close_lets_what_runs_end_and_fails_what_waits(gated):
    socket, gate = gated(), gated.gate()
    seat = Seat(socket)
    until(lambda: active(socket) == 1, "sessions of other tests are left")
    socket.send(seat.frame("STEP", {"gate": str(gate.path)}), seat.frame("STEP", {}, ack=0), seat.frame("STATE", ack=0))
    gate.reached()
    socket.send(Frame("CLOSE", session=seat.number, request=9))
    answers = [socket.receive() for _ in range(3)]
    assert [(a.op, a.sequence, a.code) for a in answers] == [("STEP", 2, "SESSION_ERROR"), ("STATE", 3, "SESSION_ERROR"), ("CLOSE", 0, "")]
    assert socket.ask("ATTACH", {"key": seat.key}).code == "SESSION_ERROR"
    gate.open()
    assert socket.receive().json()["observation"] == {"steps": 1}
    until(lambda: active(socket) == 0, "the session's place is not given back")
    socket.socket.close()


def test_what_has_not_begun_is_cancelled_or_too_late_and_keeps_its_place(gated):
    socket, gate = gated(), gated.gate()
    seat = Seat(socket)
    first = seat.frame("STEP", {"gate": str(gate.path)})
    socket.send(first, seat.frame("STEP", {}, ack=0), seat.frame("STEP", {}, ack=0, status=1), seat.frame("STEP", {}, ack=0))
    gate.reached()
    socket.send(Frame("CANCEL", session=seat.number, request=1002), Frame("CANCEL", session=seat.number, request=first.request))
    socket.ask("INFO")
    late = time.monotonic() + 0.01
    until(lambda: socket.ask("INFO") and time.monotonic() > late, "time stands still")
    gate.open()
    answers = [socket.receive() for _ in range(4)]
    assert [(a.sequence, a.code) for a in answers] == [(1, ""), (2, "CANCELLED"), (3, "DEADLINE_EXCEEDED"), (4, "")]
    again = seat.frame("STEP", {}, sequence=2, ack=0)
    socket.send(again)
    answer = socket.receive()
    assert (answer.code, answer.flags) == ("CANCELLED", wire.REPLAYED)
    assert seat.ask("STATE").json() == {"steps": 2}
    socket.socket.close()


def test_a_death_is_told_to_all_that_waits_and_comes_and_again_after_a_break(gated):
    first, second, gate = gated(), gated(), gated.gate()
    seat = Seat(first)
    first.send(seat.frame("STEP", {"gate": str(gate.path), "die": True}), seat.frame("STEP", {}, ack=0), seat.frame("STATE", ack=0))
    gate.reached().open()
    answers = [first.receive() for _ in range(3)]
    assert [(a.sequence, a.code) for a in answers] == [(1, "WORKER_DIED"), (2, "WORKER_DIED"), (3, "WORKER_DIED")]
    assert answers[0].json()["retryable"] is True and answers[0].json()["exit_code"] == 3
    assert seat.ask("STATE", ack=0).code == "WORKER_DIED"
    first.drop()
    assert seat.attach(second).json()["next"] == 5
    second.send(seat.frame("STEP", {}, sequence=1, ack=0))
    answer = second.receive()
    assert (answer.code, answer.flags) == ("WORKER_DIED", wire.REPLAYED)
    assert Seat(second).ask("STEP", {}).json()["observation"] == {"steps": 1}
    second.socket.close()


@pytest.mark.parametrize("breaks", [False, True])
def test_an_opening_sent_again_while_the_first_is_made_is_one_session(gated, breaks):
    first, second, gate = gated(), gated(), gated.gate("opening")
    until(lambda: active(second) == 0, "sessions of other tests are left")
    key = secrets.token_hex(16)
    first.send(Frame("OPEN", json.dumps({"key": key}).encode(), request=1))
    gate.reached()
    gate.path.unlink()
    second.send(Frame("OPEN", json.dumps({"key": key}).encode(), request=77))
    second.ask("INFO")
    if breaks:
        first.drop()
    gate.open()
    opened = second.receive()
    assert (opened.op, opened.request, opened.code) == ("OPEN", 77, "") and active(second) == 1
    if not breaks:
        # The first one had it for a moment, or not at all; the later has it.
        first.receive()
        answer = first.receive()
        assert answer.op == "OPEN" and (answer.session, answer.code) in ((opened.session, ""), (0, "SESSION_ERROR"))
        assert first.ask("STATE", session=opened.session, contract=1, sequence=1).code == "SESSION_ERROR"
        first.socket.close()
    assert second.ask("STEP", {}, session=opened.session, contract=1, sequence=1).json()["observation"] == {"steps": 1}
    second.socket.close()


def test_a_slow_session_holds_up_no_other_on_its_socket(gated):
    socket, gate = gated(), gated.gate()
    slow, quick = Seat(socket), [Seat(socket) for _ in range(4)]
    held = [slow.frame("STEP", {"gate": str(gate.path)}), *(slow.frame("STEP", {}, ack=0) for _ in range(16))]
    socket.send(*held)
    gate.reached()
    answer = socket.receive()
    assert (answer.session, answer.sequence, answer.code) == (slow.number, 17, "SEQUENCE_ERROR")
    for n in range(1, 51):
        socket.send(*(seat.frame("STEP", {}) for seat in quick))
        found = {(answer.session, answer.json()["observation"]["steps"]) for answer in (socket.receive() for _ in quick)}
        assert found == {(seat.number, n) for seat in quick}
    gate.open()
    assert [socket.receive().sequence for _ in range(16)] == [*range(1, 17)]
    assert slow.ask("STATE", sequence=17).json() == {"steps": 16}
    socket.socket.close()


def test_answers_that_are_ready_together_leave_together(served):
    socket = Socket(served("native:echo").ws_url)
    seats = [Seat(socket) for _ in range(64)]
    before = socket.messages
    socket.send(*(seat.frame("STEP", {"message": "m"}, ack=0) for seat in seats for _ in range(16)))
    answers = [socket.receive() for _ in range(64 * 16)]
    assert {(a.session, a.sequence, a.status) for a in answers} == {(s.number, n, 0) for s in seats for n in range(1, 17)}
    assert socket.messages - before <= 64 * 16 / 8, socket.messages - before
    before = socket.messages
    asks = [Ask(seat.number, 17, b'{"message":"v"}') for seat in seats]
    socket.send(Frame("STEP_MANY", wire.write_asks(asks, False), contract=1, sequence=64, request=3))
    answer = socket.receive()
    assert (answer.sequence, socket.messages - before) == (64, 1)
    assert {t.session for t in wire.read_told(answer.payload, 64, False)} == {seat.number for seat in seats}
    socket.socket.close()


def test_the_server_ends_in_order(serve):
    server = serve("native:cartpole")
    socket = Socket(server.ws_url)
    playing, resting = Seat(socket), Seat(socket)
    playing.ask("RESET", {"seed": 5})
    server.process.send_signal(signal.SIGTERM)
    while (frame := socket.receive()).op != "EVENT":
        pass
    assert frame.json() == {"event": "draining"}
    ended = socket.receive()
    assert (ended.op, ended.json()["event"], ended.json()["session"], ended.json()["code"]) == ("EVENT", "ended", resting.number, "DRAINING")
    assert socket.ask("OPEN", {"key": secrets.token_hex(16)}).code == "DRAINING"
    assert socket.ask("INFO").json()["draining"] is True
    while not (answer := playing.ask("STEP", {"action": 1})).flags & wire.DONE:
        assert not answer.status
    assert playing.sequence == 10
    ended = socket.receive()
    assert (ended.json()["event"], ended.json()["session"]) == ("ended", playing.number)
    assert socket.closed() == 1001
    assert server.process.wait(END) == 0


@pytest.mark.parametrize("grace", ["0s", "300ms"])
def test_a_session_whose_client_stays_away_ends(grace, served):
    server = served("native:echo", ["--resume-timeout", grace, "--max-sessions", "1"])
    first, second = Socket(server.ws_url), Socket(server.ws_url)
    assert first.receive().json()["limits"]["resume_seconds"] == {"0s": 0, "300ms": 0.3}[grace]
    seat = Seat(first)
    assert second.ask("OPEN", {"key": secrets.token_hex(16)}).code == "CAPACITY_REACHED"
    first.drop()
    while (event := second.receive()).op != "EVENT":
        pass
    assert event.json() == {"event": "capacity", "active": 0, "max": 1, "free": 1}
    assert seat.attach(second).code == "SESSION_ERROR"
    Seat(second)
    second.socket.close()


def test_who_comes_back_in_time_and_leaves_again_has_all_the_time_again(served):
    server = served("native:echo", ["--resume-timeout", "2s"])
    seat = Seat(Socket(server.ws_url))
    for n in range(20):
        assert seat.ask("STEP", {"message": "m"}).status == 0
        seat.socket.drop()
        assert seat.attach(Socket(server.ws_url)).json()["next"] == n + 2
    assert seat.ask("STATE").json()["step_count"] == 20
    seat.socket.socket.close()


def test_a_thousand_forged_numbers_and_keys_open_nothing(served):
    server = served("native:echo")
    owner, thief = Socket(server.ws_url), Socket(server.ws_url)
    seats = [Seat(owner) for _ in range(20)]
    expired = [Seat(owner) for _ in range(20)]
    for seat in seats:
        assert seat.ask("STEP", {"message": "mine"}).status == 0
    for seat in expired:
        assert owner.ask("CLOSE", session=seat.number).status == 0
    numbers = [seat.number for seat in seats + expired] + [secrets.randbelow(2**32) for _ in range(400)] + [*range(60)]
    tries = [("STEP", 2), ("STATE", 1), ("RESET", 3)]
    frames = [Frame(op, b"{}", contract=1, session=n, sequence=q, request=5, ack=q) for n in numbers for op, q in tries]
    for at in range(0, len(frames), 100):
        thief.send(*frames[at : at + 100])
    keys = [seat.key for seat in expired] + [secrets.token_hex(16) for _ in range(200)]
    keys += [key for seat in seats for key in (seat.key[:-1] + "x", seat.key.upper() + "x", seat.opened.json()["session_id"])]
    thief.send(*(Frame("ATTACH", json.dumps({"key": key}).encode(), session=seats[0].number, request=6) for key in keys))
    thief.send(*(Frame("CLOSE", session=n, request=7) for n in numbers))
    assert len(frames) + len(keys) > 1000
    thief.receive()
    for _ in range(len(frames) + len(keys)):
        answer = thief.receive()
        assert answer.code == "SESSION_ERROR", answer
    assert all(thief.receive() == Frame("CLOSE", b"", True, session=n, request=7) for n in numbers)
    for seat in seats:
        assert seat.ask("STATE").json()["step_count"] == 1
    owner.socket.close()
    thief.socket.close()


STOCK = """
import json, sys
from openenv.core.generic_client import GenericEnvClient
with GenericEnvClient(base_url=sys.argv[1]).sync() as client:
    client.reset()
    result = client.step({"message": "hi"})
    print(json.dumps([result.observation["echoed_message"], result.reward, result.done, client.state()["step_count"]]))
"""


def test_a_stock_client_sees_the_stock_protocol(served, tmp_path):
    assert run_stock(reference_python(), tmp_path, STOCK, served("native:echo").url) == ["hi", 0.2, False, 1]
