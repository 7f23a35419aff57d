"""Replays recorded conversations against a server and compares the answers."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
from serving import REPLY, open_socket, request
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

RECORDINGS = Path(__file__).resolve().parent / "recordings"
UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


class Anything:
    """Equal to every text that begins so."""

    def __init__(self, start: str = "") -> None:
        self.start = start

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.startswith(self.start)

    def __repr__(self) -> str:
        return f"<{self.start}…>"


def load(name: str) -> dict[str, dict[str, Any]]:
    """The cases of a recording by name."""
    cases = [json.loads(line) for line in (RECORDINGS / f"{name}.jsonl").read_text().splitlines()]
    return {case["case"]: case for case in cases}


def normal(value: Any) -> Any:
    """Without what may differ between two runs: ids, and the pages and contexts of pydantic's errors."""
    if isinstance(value, dict):
        error = {"type", "loc", "msg"} <= value.keys()
        return {k: normal(v) for k, v in value.items() if not (error and k in ("url", "ctx"))}
    if isinstance(value, list):
        return [normal(item) for item in value]
    if isinstance(value, str):
        return UUID.sub("<uuid>", value)
    return value


def replay(base: str, case: dict[str, Any]) -> Any:
    """What the server answers to a recorded case, in the form that ``expected`` has."""
    return replay_http(base, case) if case["transport"] == "http" else replay_ws(base, case)


def expected(case: dict[str, Any]) -> Any:
    """What was recorded."""
    if case["transport"] == "http":
        return {"status": case["status"], "content_type": case.get("content_type"), "reply": normal(case["reply"])}
    return [normal(step["recv"]) for step in case["steps"]]


def replay_http(base: str, case: dict[str, Any]) -> dict[str, Any]:
    body = case["body"]
    options: dict[str, Any] = {}
    if isinstance(body, dict) and "$raw" in body:
        options = {"content": body["$raw"], "headers": {"content-type": "application/json"}}
    elif body is not None:
        options = {"json": body}
    try:
        answer = request(case["method"], base + case["path"], **options)
    except httpx.HTTPError as error:
        return {"status": None, "content_type": None, "reply": {"$dropped": type(error).__name__}}
    kind = answer.headers.get("content-type", "")
    return {"status": answer.status_code, "content_type": kind, "reply": normal(answer.json() if "json" in kind else answer.text[:200])}


def replay_ws(base: str, case: dict[str, Any], hold: int = 0) -> list[Any]:
    """The replies in order; a session that the recording left open must be alive at the end."""
    answers: list[Any] = []
    url = base.replace("http", "ws", 1)
    with contextlib.ExitStack() as stack:
        for _ in range(hold):
            stack.enter_context(contextlib.closing(admitted(url + "/ws")))
        socket = stack.enter_context(contextlib.closing(open_socket(url + case["path"])))
        for step in case["steps"]:
            try:
                if (sent := step["send"]) is not None:
                    socket.send(sent if isinstance(sent, str) else sent["$binary"].encode() if "$binary" in sent else json.dumps(sent))
                answers.append(normal(json.loads(socket.recv(timeout=REPLY))))
            except ConnectionClosed as closed:
                answers.append({"$closed": {"code": closed.rcvd.code, "reason": closed.rcvd.reason} if closed.rcvd else None})
                break
        else:
            assert socket.ping().wait(REPLY), f"{case['case']}: the session is dead"
    return answers


def admitted(url: str, within: float = REPLY) -> ClientConnection:
    """A session of one's own; slots of sessions that just ended may take a moment to be free."""
    deadline = time.monotonic() + within
    while True:
        socket = open_socket(url)
        with contextlib.suppress(ConnectionClosed):
            socket.send('{"type":"state"}')
            if json.loads(socket.recv(timeout=REPLY))["type"] == "state":
                return socket
        socket.close()
        assert time.monotonic() < deadline, "no slot came free"


def talk(base: str, messages: list[Any], path: str = "/ws") -> list[Any]:
    """The replies to messages of one's own."""
    return replay_ws(base, {"case": "talk", "path": path, "steps": [{"send": message} for message in messages]})
