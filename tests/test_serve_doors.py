"""The doors are shut: names, origins, tokens, and limits on what a peer may send or leave unsaid."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import itertools
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from clients import until
from serving import (  # noqa: F401
    END,
    ENVS,
    RECORDED,
    REPLY,
    WITH,
    Session,
    descendants,
    old_reference_python,
    open_socket,
    reference_python,
    request,
    run_stock,
    running,
    serve_fixture,
    shared_home,
    start,
    store_fixture,
)
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wire import admitted

TOKEN = "s3cret-Token_of.these.tests"
LISTED_HOST, LISTED_ORIGIN = "train.example", "https://ui.example"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with a token and one host and one origin beside loopback."""
    folder = tmp_path_factory.mktemp("guarded")
    token = folder / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    args = ("--token-file", token, "--allowed-hosts", LISTED_HOST, "--allowed-origins", LISTED_ORIGIN, "--max-sessions", "64")
    with running(start("plain_echo:app", *WITH, *args, home=shared_home(tmp_path_factory), cwd=RECORDED)) as server:
        yield server


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A server as it is without options, but for a lower message limit."""
    home = shared_home(tmp_path_factory)
    with running(start("value_probe:app", *WITH, "--max-message-size", LIMIT, "--max-sessions", "64", home=home, cwd=RECORDED)) as server:
        yield server


LIMIT = 65_536


def say(port: int, lines: list[str], body: bytes = b"", keep: bool = False):
    """Sends a request as written; the status and the text of the answer, or the open socket."""
    peer = socket.create_connection(("127.0.0.1", port), timeout=REPLY)
    try:
        peer.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        head = b""
        while b"\r\n\r\n" not in head:
            part = peer.recv(65_536)
            if not part:
                break
            head += part
        status = int(head.split(b" ", 2)[1]) if head else 0
        if keep:
            return status, peer
        if status != 101:
            with contextlib.suppress(OSError):
                while part := peer.recv(65_536):
                    head += part
        return status, head.decode("utf-8", "replace")
    finally:
        if not keep:
            peer.close()


def upgrade(path: str, *headers: str) -> list[str]:
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    return [f"GET {path} HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", key, *headers]


def ask(path: str, *headers: str) -> list[str]:
    return [f"GET {path} HTTP/1.1", "Connection: close", *headers]


def post(path: str, *headers: str) -> list[str]:
    return [f"POST {path} HTTP/1.1", "Connection: close", "Content-Type: text/plain", "Content-Length: 2", *headers]


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


HOSTS = ["127.0.0.1:{port}", "localhost:{port}", LISTED_HOST, "localhost.evil.example", "0.0.0.0:{port}"]
ORIGINS = [None, LISTED_ORIGIN, "null", "http://localhost.evil.example"]
TOKENS = [f"Bearer {TOKEN}", "Bearer wrong", None]
#: What may answer at a shut door.
SHUT = {400, 401, 403, 421}


def may(host: str, origin: str | None, token: str | None) -> bool:
    """The rule, told once more: a known name, no origin or a listed one, and the token."""
    known = host.split(":")[0] in ("127.0.0.1", "localhost", LISTED_HOST)
    return known and origin in (None, LISTED_ORIGIN) and token == f"Bearer {TOKEN}"


def test_hosts_origins_and_tokens_in_all_combinations(guarded):
    wrong = []
    for host, origin, token in itertools.product(HOSTS, ORIGINS, TOKENS):
        headers = [f"Host: {host.format(port=guarded.port)}"]
        headers += [f"Origin: {origin}"] if origin else []
        headers += [f"Authorization: {token}"] if token else []
        open_door = may(host, origin, token)
        for kind, lines, body, success in (
            ("GET", ask("/schema", *headers), b"", 200),
            ("POST", post("/reset", *headers), b"{}", {200, 422}),
            ("ws", upgrade("/ws", *headers), b"", 101),
            ("mcp", upgrade("/mcp", *headers), b"", 101),
        ):
            status, text = say(guarded.port, lines, body)
            good = status in (success if isinstance(success, set) else {success})
            if good != open_door or (not open_door and status not in SHUT) or (not open_door and "echoed_message" in text):
                wrong.append(f"{kind} host={host} origin={origin} token={token}: {status}, should {'pass' if open_door else 'be refused'}")
            if not open_door and host != HOSTS[3] and host != HOSTS[4] and origin in (None, LISTED_ORIGIN) and status != 401:
                wrong.append(f"{kind} {headers}: a missing or wrong token alone is 401, not {status}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        (["Host: [::1]:{port}"], True),
        (["Host: LOCALHOST:{port}"], True),
        (["Host: localhost"], True),
        (["Host: 127.0.0.1:{port}", "Origin: http://127.0.0.1:{port}"], True),
        (["Host: 127.0.0.1:{port}", "Origin: http://127.0.0.1:1"], False),
        (["Host: 127.0.0.1:{port}", "Origin: https://ui.example.evil.example"], False),
        (["Host: 127.0.0.1:{port}", "Origin: http://ui.example"], False),
        (["Host: 127.0.0.1:{port}", "Origin: file://"], False),
        (["Host: 127.0.0.1:{port}", "Origin: https://ui.example", "Origin: http://evil.example"], False),
        (["Host: evil.example", "X-Forwarded-Host: localhost"], False),
        (["Host: 127.0.0.1.evil.example"], False),
        (["Host: train.example@evil.example"], False),
        (["Host: 127.0.0.1:{port}", "Host: evil.example"], False),
        ([], False),
        (["Host: "], False),
    ],
    ids=str,
)
def test_spellings_of_names_and_origins(headers, passes, guarded):
    headers = [line.format(port=guarded.port) for line in headers] + [f"Authorization: Bearer {TOKEN}"]
    for lines, success in ((ask("/schema", *headers), 200), (upgrade("/ws", *headers), 101)):
        status, _ = say(guarded.port, lines)
        assert (status == success) == passes and (passes or status in SHUT), (lines[0], status)


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer {TOKEN}", True),
        (basic("anyone", TOKEN), True),
        (basic("", TOKEN), True),
        (basic("anyone", "wrong"), False),
        (basic(TOKEN, ""), None),
        (f"Bearer {TOKEN} ", None),
        (f"Bearer {TOKEN}x", False),
        (f"Bearer {TOKEN[:-1]}", False),
        ("Bearer ", False),
        ("Bearer", False),
        ("Basic !!!", False),
        (basic("anyone", ""), False),
        (TOKEN, False),
        (f"Token {TOKEN}", False),
    ],
    ids=str,
)
def test_the_token_in_headers(value, passes, guarded):
    headers = [f"Host: localhost:{guarded.port}", f"Authorization: {value}"]
    statuses = {say(guarded.port, ask("/schema", *headers))[0] == 200, say(guarded.port, upgrade("/ws", *headers))[0] == 101}
    assert len(statuses) == 1
    assert passes is None or statuses == {passes}


def test_the_token_as_a_subprotocol_and_nowhere_else(guarded):
    url = guarded.ws_url + "/ws"
    with contextlib.closing(open_socket(url, subprotocols=["openenv", f"bearer.{TOKEN}"])) as ours:
        assert ours.subprotocol == "openenv"
    for protocols in (["openenv", "bearer.wrong"], ["openenv"], ["bearer."], [f"{TOKEN}"]):
        with pytest.raises(InvalidStatus) as refused:
            open_socket(url, subprotocols=protocols)
        assert refused.value.response.status_code == 401
    for query in (f"?token={TOKEN}", f"?access_token={TOKEN}"):
        assert request("GET", guarded.url + "/schema" + query).status_code == 401
    assert request("GET", guarded.url + "/schema", headers={"cookie": f"token={TOKEN}"}).status_code == 401


@pytest.mark.xdist_group("one token on the machine")
@pytest.mark.parametrize("which", ["openenv-0.10.0", "openenv-core-0.3.0"])
def test_a_stock_client_brings_the_token_in_the_url(which, guarded, tmp_path):
    python = reference_python() if which == "openenv-0.10.0" else old_reference_python()
    code = """
    import json, sys
    from openenv.core.generic_client import GenericEnvClient

    with GenericEnvClient(base_url=sys.argv[1]).sync() as client:
        client.reset()
        print(json.dumps(client.step({"message": "hi"}).observation["echoed_message"]))
    """
    assert run_stock(python, tmp_path, code, f"http://anyone:{TOKEN}@127.0.0.1:{guarded.port}") == "hi"


@pytest.mark.xdist_group("one token on the machine")
def test_the_token_is_in_no_argument_log_answer_or_worker(guarded):
    with Session(guarded.ws_url + "/ws", additional_headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        session.reset()
        texts = [say(guarded.port, ask(f"/schema?token={TOKEN}", f"Host: localhost:{guarded.port}", "Authorization: Bearer nope"))[1]]
        texts += [guarded.out.text(), guarded.stderr()]
        for pid in (guarded.process.pid, *descendants(guarded.process.pid)):
            with contextlib.suppress(FileNotFoundError):
                texts.append(Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))
                texts.append(Path(f"/proc/{pid}/environ").read_text(errors="replace"))
    assert not [text for text in texts if TOKEN in text]


@pytest.mark.xdist_group("one token on the machine")
def test_the_token_of_the_environment_is_used_and_kept_from_workers(serve):
    server = serve("plain_echo:app", *WITH, cwd=RECORDED, env={"ENVHARNESS_TOKEN": TOKEN})
    assert server.get("/schema").status_code == 401
    assert server.get("/schema", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    workers = descendants(server.process.pid)
    assert workers
    for pid in workers:
        with contextlib.suppress(FileNotFoundError):
            assert TOKEN not in Path(f"/proc/{pid}/environ").read_text(errors="replace")


@pytest.mark.parametrize("how", ["option", "HOST"])
def test_off_loopback_without_a_token_the_server_does_not_start(how, cli, store):
    args, env = (["--host", "0.0.0.0"], {}) if how == "option" else ([], {"HOST": "0.0.0.0"})
    done = cli("serve", "plain_echo:app", *WITH, *args, "--port", "0", cwd=RECORDED, env=env)
    assert done.code in (1, 2) and "http://" not in done.out
    for name in ("--token-file", "ENVHARNESS_TOKEN", "--insecure"):
        assert name in done.err


@pytest.mark.parametrize("how", ["--token-file", "--insecure"])
def test_off_loopback_with_a_token_or_insecure_it_starts(how, serve, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(stat.S_IRUSR)
    args = ["--token-file", token] if how == "--token-file" else ["--insecure"]
    server = serve("plain_echo:app", *WITH, "--host", "0.0.0.0", *args, cwd=RECORDED)
    assert server.get("/schema").status_code == (401 if how == "--token-file" else 200)
    assert server.get("/schema", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize("text", ["", "\n", "  \n", "two words", "nul\0"], ids=repr)
def test_a_token_file_without_a_token_is_refused(text, cli, store, tmp_path):
    token = tmp_path / "token"
    token.write_text(text)
    done = cli("serve", "plain_echo:app", *WITH, "--token-file", token, "--port", "0", cwd=RECORDED)
    assert done.code not in (0, 101) and "token" in done.err and "http://" not in done.out


# What a peer may send.


def probe(n: int) -> str:
    """A step of exactly ``n`` bytes."""
    frame = '{"type":"step","data":{"kind":""}}'
    return frame.replace('""', f'"{"x" * (n - len(frame))}"')


@pytest.mark.parametrize("compression", [None, "deflate"])
@pytest.mark.parametrize("parts", [1, 7])
def test_a_message_at_the_limit_passes_and_one_byte_more_closes_1009(compression, parts, plain):
    def cut(text: str):
        size = -(-len(text) // parts)
        return text if parts == 1 else [text[n : n + size] for n in range(0, len(text), size)]

    with Session(plain.ws_url + "/ws", compression=compression) as other, Session(plain.ws_url + "/ws", compression=compression) as session:
        session.socket.send(cut(probe(LIMIT)))
        assert session.receive()["type"] == "observation"
        with contextlib.suppress(ConnectionClosed):
            session.socket.send(cut(probe(LIMIT + 1)))
        with pytest.raises(ConnectionClosed):
            session.receive()
        assert session.socket.close_code == 1009
        assert other.state()["type"] == "state"


def test_a_bomb_of_compression_closes_1009(plain):
    with Session(plain.ws_url + "/ws", compression="deflate") as session:
        with contextlib.suppress(ConnectionClosed):
            session.send(probe(300_000_000))
        with pytest.raises(ConnectionClosed):
            session.receive()
        assert session.socket.close_code == 1009
    assert plain.get("/health").status_code == 200


def nested(depth: int) -> str:
    return '{"type":"reset","data":{"x":' + "[" * depth + "]" * depth + "}}"


#: Texts within the limit that parsers trip over; each gets one answer of the kind said, and the session lives.
AWKWARD = {
    "depth 100,000": (lambda: nested(100_000), {"error"}),
    "depth 100,000, unclosed": (lambda: "[" * 100_000, {"error"}),
    "depth 50": (lambda: nested(50), {"observation"}),
    "1,000,000 keys": (lambda: '{"type":"reset","data":{' + ",".join(f'"k{n}":0' for n in range(1_000_000)) + "}}", {"observation", "error"}),
    "1,000,000 keys at the top": (lambda: '{"type":"reset",' + ",".join(f'"k{n}":0' for n in range(1_000_000)) + "}", {"error"}),
    "an integer of 100,000 digits": (lambda: '{"type":"step","data":{"kind":"a","n":' + "9" * 100_000 + "}}", {"error"}),
    "an integer of 1,000 digits": (lambda: '{"type":"reset","data":{"seed":' + "9" * 1_000 + "}}", {"observation", "error"}),
    "an exponent": (lambda: '{"type":"step","data":{"kind":"a","n":1e999999}}', {"error"}),
    "NaN": (lambda: '{"type":"step","data":{"kind":"a","n":NaN}}', {"error"}),
    "-Infinity": (lambda: '{"type":"step","data":{"kind":"a","n":-Infinity}}', {"error"}),
    "duplicate keys": (lambda: '{"type":"state","type":"wat"}', {"error"}),
    "a lone surrogate": (lambda: '{"type":"step","data":{"kind":"\\ud800"}}', {"observation", "error"}),
    "a byte order mark": (lambda: '\ufeff{"type":"state"}', {"error", "state"}),
    "white space": (lambda: ' \t\r\n{"type" : "state"}\n', {"state"}),
    "nothing": (lambda: "", {"error"}),
    "null": (lambda: "null", {"error"}),
    "a number": (lambda: "1", {"error"}),
    "two values": (lambda: '{"type":"state"}{"type":"state"}', {"error"}),
    "a type that is no text": (lambda: '{"type":["reset"]}', {"error"}),
    "NUL in a text": (lambda: '{"type":"step","data":{"kind":"\\u0000"}}', {"observation"}),
    "a raw control character": (lambda: '{"type":"step","data":{"kind":"\x01"}}', {"error"}),
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A server with the limit that a server has without options."""
    home = shared_home(tmp_path_factory)
    with running(start("value_probe:app", *WITH, "--max-sessions", "64", home=home, cwd=RECORDED)) as server:
        yield server


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_json_gets_one_answer_and_the_session_lives(name, wide):
    text, kinds = AWKWARD[name]
    with wide.session() as session:
        session.step(kind="before")
        reply = session.ask(text())
        assert reply["type"] in kinds, reply
        assert reply["type"] != "error" or len(json.dumps(reply)) < 1_000_000, "a refusal is no amplifier"
        state = session.state()
        assert state["type"] == "state" and state["data"]["step_count"] <= 2


def test_text_that_is_not_utf_8_closes_1007(plain):
    for text in (b'{"type":"\xff"}', b"\xc3", b"\xed\xa0\x80"):
        with plain.session() as session:
            session.socket.send(text, text=True)
            with pytest.raises(ConnectionClosed):
                session.receive()
            assert session.socket.close_code == 1007


@pytest.mark.parametrize(
    ("frame", "codes"),
    [
        (b"\x81\x02hi", {1002}),  # unmasked
        (b"\x83\x80\0\0\0\0", {1002}),  # a reserved opcode
        (b"\xc1\x80\0\0\0\0", {1002}),  # a reserved bit
        (b"\x09\x80\0\0\0\0", {1002}),  # a fragmented ping
        (b"\x89\xfe\x00\x7e\0\0\0\0" + b"x" * 126, {1002}),  # a ping of 126 bytes
        (b"\x80\x80\0\0\0\0", {1002}),  # a continuation of nothing
        (b"\x88\x81\0\0\0\0x", {1002}),  # a close code of one byte
        (b"\x88\x82\0\0\0\0\x03\xed", {1002}),  # close with 1005
        (b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", {1009, 1002}),  # a length of 2**63 - 1
        (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", {1009, 1002}),  # a length of 2**64 - 1
    ],
    ids=lambda v: v[:8].hex() if isinstance(v, bytes) else "",
)
def test_frames_against_the_rules_are_closed_with_their_code(frame, codes, plain):
    status, peer = say(plain.port, upgrade("/ws", f"Host: localhost:{plain.port}"), keep=True)
    with contextlib.closing(peer):
        assert status == 101
        peer.sendall(frame)
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while part := peer.recv(65_536):
                got += part
        assert got[:1] == b"\x88" and int.from_bytes(got[2:4], "big") in codes, got
    assert plain.get("/health").status_code == 200


SMUGGLED = b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("lines", "body", "statuses"),
    [
        (["GET /health HTTP/1.1", "Host: localhost", "X-Long: " + "x" * 65_536], b"", {431}),
        (["GET /" + "x" * 65_536 + " HTTP/1.1", "Host: localhost"], b"", {414, 431, 400}),
        (["GET /health HTTP/1.1", "Host: localhost", *(f"X-{n}: 1" for n in range(10_000))], b"", {431, 400}),
        (["POST /reset HTTP/1.1", "Host: localhost", "Content-Length: 2", "Content-Length: 3"], b"{}x", {400}),
        (["POST /reset HTTP/1.1", "Host: localhost", "Content-Length: 2", "Transfer-Encoding: chunked"], SMUGGLED, {200, 400}),
        (["POST /reset HTTP/1.1", "Host: localhost", "Content-Length: -1"], b"", {400}),
        (["POST /reset HTTP/1.1", "Host: localhost", "Content-Length: 99999999999999999999"], b"", {400, 413}),
        (["GET /health HTTP/1.1", "Host: localhost", "X\x00Y: 1"], b"", {400}),
        (["GET /health HTTP/1.1", "Host : localhost"], b"", {400}),
        (["BREW /health HTTP/1.1", "Host: localhost", "Connection: close"], b"", {405, 400, 501}),
        (["\x16\x03\x01\x02\x00"], b"", {400, 0}),
    ],
    ids=lambda v: str(v)[:40] if isinstance(v, list) else "",
)
def test_heads_against_the_rules_are_refused(lines, body, statuses, plain):
    lines = lines if "Connection: close" in lines or len(lines) == 1 else [*lines, "Connection: close"]
    status, text = say(plain.port, lines, body)
    assert status in statuses, text[:300]
    assert text.count("HTTP/1.1 ") <= 1, "a second request was smuggled in"
    assert plain.get("/health").status_code == 200


@pytest.mark.parametrize(("size", "status"), [(LIMIT, 422), (LIMIT + 1, 413)])
def test_a_body_over_the_limit_is_413(size, status, plain):
    body = b'{"action":{}}'
    assert plain.post("/step", content=body + b" " * (size - len(body)), headers={"content-type": "application/json"}).status_code == status


# What a peer may leave unsaid.


def test_half_sent_heads_are_dropped_while_others_are_served(plain):
    halves = [b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Half: ", b"GET", b""]
    with contextlib.ExitStack() as stack:
        peers = []
        for n in range(50):
            peers.append(stack.enter_context(socket.create_connection(("127.0.0.1", plain.port), timeout=REPLY)))
            peers[-1].sendall(halves[n % len(halves)])
        with plain.session() as session:
            assert session.state()["type"] == "state"
        assert plain.get("/health").status_code == 200
        for peer in peers:
            with contextlib.suppress(ConnectionResetError):
                while peer.recv(4096):  # a 408 may be said first; then the end
                    pass


def test_a_body_that_never_comes_is_dropped(plain):
    with socket.create_connection(("127.0.0.1", plain.port), timeout=REPLY) as peer:
        peer.sendall(b'POST /step HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"action"')
        with contextlib.suppress(ConnectionResetError):
            while peer.recv(4096):
                pass


def test_a_peer_that_answers_no_ping_is_let_go_and_its_slot_is_free(serve):
    server = serve("native:echo", "--max-sessions", "1")
    status, peer = say(server.port, upgrade("/ws", f"Host: localhost:{server.port}"), keep=True)
    assert status == 101
    peer.settimeout(REPLY)
    heard = b""
    while part := peer.recv(4096):
        heard += part
    assert heard[:1] == b"\x89"  # a ping came first
    peer.close()
    admitted(server.ws_url + "/ws", END).close()


def test_a_peer_that_never_reads_holds_up_no_other(wide):
    status, peer = say(wide.port, upgrade("/ws", f"Host: localhost:{wide.port}"), keep=True)
    with contextlib.closing(peer):
        assert status == 101
        text = json.dumps({"type": "step", "data": {"kind": "large", "n": 5_000_000}}).encode()
        frame = b"\x81" + bytes([0x80 | len(text)]) + b"\0\0\0\0" + text
        peer.settimeout(0.0)
        for _ in range(40):
            with contextlib.suppress(BlockingIOError):
                peer.send(frame)
        with wide.session() as session:
            for _ in range(100):
                assert session.step(kind="a")["type"] == "observation"
    assert resident(wide.process.pid) < 600 * 2**20


def resident(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_ids_of_sessions_cannot_be_guessed_or_used_twice(serve):
    server = serve("tool_echo:app", *WITH, "--max-sessions", "8", cwd=RECORDED)
    create = {"jsonrpc": "2.0", "method": "openenv/session/create", "id": 1}
    names = [server.post("/mcp", json=create).json()["result"]["session_id"] for _ in range(3)]
    assert len(set(names)) == 3
    closed = {"jsonrpc": "2.0", "method": "openenv/session/close", "params": {"session_id": names[0]}, "id": 1}
    assert server.post("/mcp", json=closed).json()["result"]["closed"] is True
    forged = [names[0], names[1][:-1], names[1].upper() + "0", "../" + names[1], "", "0", "\u00e9", *(os.urandom(16).hex() for _ in range(50))]
    for name in forged:
        call = {"jsonrpc": "2.0", "method": "tools/call", "id": 2, "params": {"name": "echo_message", "arguments": {"message": "x"}, "session_id": name}}
        answer = server.post("/mcp", json=call).json()
        assert "error" in answer or not name, answer
    for name in names[1:]:
        with server.session(f"/ws?session_id={name}") as session:
            assert session.state()["type"] == "state"


def test_a_page_of_another_site_cannot_reach_a_server_without_a_token(serve, tmp_path):
    # No token is needed on loopback, so names and origins are all there is.
    server = serve(ENVS / "parrot")
    assert server.get("/schema").status_code == 200
    for header in ({"origin": "http://evil.example"}, {"origin": "null"}, {"host": "evil.example"}, {"origin": f"http://localhost:{server.port + 1}"}):
        assert server.get("/schema", headers=header).status_code in SHUT
        assert server.post("/reset", headers={**header, "content-type": "text/plain"}, content="{}").status_code in SHUT
        answer = server.get("/schema", headers=header)
        assert "access-control-allow-origin" not in answer.headers


#: It tells its own site what it heard.
PAGE = """<!doctype html><title>elsewhere</title><script>
const port = location.hash.slice(1), tell = (what) => fetch(`/heard/${what}`);
fetch(`http://127.0.0.1:${port}/schema`).then((r) => tell(`fetch:${r.status}`), () => tell("fetch:refused"));
fetch(`http://127.0.0.1:${port}/reset`, {method: "POST", mode: "no-cors", body: "{}"}).then(() => tell("post:opaque"), () => tell("post:refused"));
const socket = new WebSocket(`ws://127.0.0.1:${port}/ws`);
socket.onopen = () => tell("socket:open");
socket.onerror = () => tell("socket:refused");
</script>"""


def test_a_real_browsers_page_of_another_port_hears_nothing(serve, tmp_path):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("chromium is not on this machine")
    server = serve(ENVS / "parrot", "--log-level", "info")
    (tmp_path / "page.html").write_text(PAGE)
    heard: list[str] = []

    class Site(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path.startswith("/heard/"):
                heard.append(self.path.removeprefix("/heard/"))
            super().do_GET()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Site, directory=str(tmp_path))) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{site.server_address[1]}/page.html#{server.port}"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={tmp_path / 'profile'}"]
        with subprocess.Popen([browser, *options, url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as process:
            try:
                until(lambda: {one.split(":")[0] for one in heard} == {"fetch", "post", "socket"}, "three outcomes", 120)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
        site.shutdown()
    assert {"fetch:refused", "socket:refused"} <= set(heard) and "socket:open" not in heard, heard
    # The page was really there: the server refused it by name.
    assert server.stderr().count("this Origin may not use the server") >= 2
    assert server.get("/ready").json()["active_sessions"] == 0
