"""OpenEnv's wire protocol: every recorded case is answered as recorded, or better on purpose."""

from __future__ import annotations

import contextlib
import json

import pytest
from serving import (  # noqa: F401
    RECORDED,
    REPLY,
    WITH,
    Session,
    open_socket,
    request,
    running,
    serve_fixture,
    shared_home,
    start,
    start_reference,
    store_fixture,
)
from websockets.exceptions import ConnectionClosed
from wire import Anything, admitted, expected, load, normal, replay, replay_ws, talk

NAMES = ("plain_echo", "value_probe", "tool_echo")
CASES = [(name, case) for name in NAMES for case in load(name)]
LIMIT = {"MAX_CONCURRENT_ENVS": "8"}

STATE = {"type": "state", "data": {"episode_id": "<uuid>", "step_count": 0}}


def error(code: str, message="", **more):
    return {"type": "error", "data": {"message": Anything(message), "code": code, **more}}


NEGATIVE = {"type": "value_error", "loc": ["n"], "msg": "Value error, must not be negative", "input": -1}
PING = {"jsonrpc": "2.0", "method": "ping", "id": 7}
INITIALIZE = {
    "jsonrpc": "2.0",
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
    "id": 6,
}
#: Where we answer otherwise than the reference: the reason, then what is sent and what comes back.
DIFFERENCES = {
    ("plain_echo", "a JSON array ends the session"): (
        "a bad message never costs a session",
        [("[1]", error("INVALID_JSON")), ({"type": "state"}, STATE)],
    ),
    ("plain_echo", "a binary frame ends the session"): (
        "a bad message never costs a session, and the error names binary frames",
        [({"$binary": '{"type":"state"}'}, error("INVALID_JSON")), ({"type": "state"}, STATE)],
    ),
    ("value_probe", "a validator that raises ValueError ends the session (a fault of the reference)"): (
        "a validator's refusal is a refusal like any other",
        [
            ({"type": "step", "data": {"kind": "a", "n": -1}}, error("VALIDATION_ERROR", "Invalid message", errors=[NEGATIVE])),
            ({"type": "state"}, {"type": "state", "data": {"episode_id": None, "step_count": 0, "extra_field": 7}}),
        ],
    ),
    ("value_probe", "step raise"): (
        "the reference cuts the connection at times; an environment's exception is a 500",
        {"status": 500, "content_type": "text/plain; charset=utf-8", "reply": "Internal Server Error"},
    ),
    ("tool_echo", "mcp socket"): (
        "MCP's own methods are answered",
        [(step["send"], normal(step["recv"])) for step in load("tool_echo")["mcp socket"]["steps"][:-1]]
        + [(INITIALIZE, {"jsonrpc": "2.0", "id": 6, "result": ...}), (PING, {"jsonrpc": "2.0", "id": 7, "result": {}})],
    ),
}


def matches(answer, wanted) -> bool:
    """Equality, where ``...`` in what is wanted stands for any value."""
    if wanted is ...:
        return True
    if isinstance(wanted, dict) and isinstance(answer, dict):
        return answer.keys() == wanted.keys() and all(matches(answer[k], v) for k, v in wanted.items())
    if isinstance(wanted, list) and isinstance(answer, list):
        return len(answer) == len(wanted) and all(map(matches, answer, wanted))
    return answer == wanted


def check(base: str, name: str, case: str, differences) -> None:
    recorded = load(name)[case]
    if (name, case) in differences:
        wanted = differences[name, case][1]
        if isinstance(wanted, list):
            recorded = {**recorded, "steps": [{"send": send} for send, _ in wanted]}
            wanted = [reply for _, reply in wanted]
    else:
        wanted = expected(recorded)
    answer = replay_ws(base, recorded, hold=8) if case == "ninth of eight sessions" else replay(base, recorded)
    assert matches(answer, wanted), f"\nanswer {json.dumps(answer)}\nwanted {wanted}"


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Our server for a recorded environment, one for all tests of this file."""
    servers = {}
    with contextlib.ExitStack() as stack:

        def get(name: str) -> str:
            if name not in servers:
                home = shared_home(tmp_path_factory)
                servers[name] = stack.enter_context(running(start(f"{name}:app", *WITH, "--max-message-size", "16777216", home=home, cwd=RECORDED, env=LIMIT))).url
            return servers[name]

        yield get


@pytest.fixture(scope="module")
def theirs():
    servers = {}
    with contextlib.ExitStack() as stack:

        def get(name: str) -> str:
            if name not in servers:
                servers[name] = stack.enter_context(running(start_reference(f"{name}:app", cwd=RECORDED, env=LIMIT))).url
            return servers[name]

        yield get


@pytest.fixture(params=["ours", "theirs"])
def either(request):
    """Ours and the reference: what such a test asserts is true of both."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{n}-{c}" for n, c in CASES])
def test_a_recorded_case_is_answered_as_recorded(name, case, ours):
    check(ours(name), name, case, DIFFERENCES)


@pytest.mark.parametrize("name", NAMES)
def test_the_recordings_are_what_the_reference_answers(name, theirs):
    flaky = {("value_probe", "step raise"): DIFFERENCES["value_probe", "step raise"]}
    for case in load(name):
        check(theirs(name), name, case, flaky)


def test_every_difference_is_a_recorded_case():
    assert DIFFERENCES.keys() <= set(CASES)


# Beyond the recordings, true of both.


def test_requests_sent_ahead_are_answered_in_order(either):
    with Session(either("plain_echo").replace("http", "ws") + "/ws") as session:
        for n in range(200):
            session.send({"type": "step", "data": {"message": "x" * n}} if n % 10 else {"type": "state"})
        for n in range(200):
            reply = session.receive()["data"]
            assert (reply["observation"]["message_length"] == n) if n % 10 else reply["step_count"] == n - n // 10


def test_two_sessions_do_not_see_each_other(either):
    url = either("plain_echo").replace("http", "ws") + "/ws"
    with Session(url) as one, Session(url) as two:
        one.reset(episode_id="one")
        two.reset(episode_id="two")
        one.step(message="a")
        assert one.state()["data"] == {"episode_id": "one", "step_count": 1}
        assert two.state()["data"] == {"episode_id": "two", "step_count": 0}


def test_refused_at_capacity_then_admitted_when_one_leaves(either):
    url = either("plain_echo").replace("http", "ws") + "/ws"
    held = [admitted(url) for _ in range(8)]
    try:
        for _ in range(3):
            with Session(url) as ninth:
                message = "Server at capacity: 8/8 sessions active. Cannot accept new connections."
                refusal = {"message": message, "code": "CAPACITY_REACHED", "active_sessions": 8, "max_sessions": 8}
                assert ninth.receive() == {"type": "error", "data": refusal}
                with pytest.raises(ConnectionClosed):
                    ninth.receive()
                assert ninth.socket.close_code == 1000
        held.pop().close()
        admitted(url).close()
    finally:
        for socket in held:
            socket.close()


def test_capacity_is_told_to_mcp_too(either):
    base = either("tool_echo")
    url = base.replace("http", "ws")
    held = [admitted(url + "/ws") for _ in range(8)]
    message = "Server at capacity: 8/8 sessions active. Cannot accept new connections."
    error = {"code": -32000, "message": message, "data": {"active_sessions": 8, "max_sessions": 8}}
    try:
        with Session(url + "/mcp") as ninth:
            assert ninth.receive() == {"jsonrpc": "2.0", "id": None, "error": error}
        answer = rpc(base, "openenv/session/create")
        assert answer == {"jsonrpc": "2.0", "id": 1, "error": error}
    finally:
        for socket in held:
            socket.close()


def test_a_message_over_16_mib_closes_1009_and_one_under_passes(either):
    url = either("plain_echo").replace("http", "ws") + "/ws"
    limit = 16 * 2**20
    frame = '{"type":"step","data":{"message":"a","metadata":{"padding":""}}}'
    with Session(url) as session:
        reply = session.ask(frame.replace('""', f'"{"x" * (limit - len(frame))}"'))
        assert reply["data"]["observation"]["message_length"] == 1
        with contextlib.suppress(ConnectionClosed):
            session.send(frame.replace('""', f'"{"x" * (limit - len(frame) + 1)}"'))
        with pytest.raises(ConnectionClosed):
            session.receive()
        assert session.socket.close_code == 1009


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reply"),
    [
        ("GET", "/nope", None, 404, {"detail": "Not Found"}),
        ("GET", "/", None, 404, None),
        ("GET", "/step", None, 405, {"detail": "Method Not Allowed"}),
        ("POST", "/state", {}, 405, {"detail": "Method Not Allowed"}),
        ("POST", "/health", {}, 405, {"detail": "Method Not Allowed"}),
        ("GET", "/mcp", None, 405, {"detail": "Method Not Allowed"}),
        ("PUT", "/reset", {}, 405, {"detail": "Method Not Allowed"}),
        ("POST", "/reset", {"episode_id": "x" * 256}, 422, None),
        ("POST", "/reset", {"episode_id": "x" * 255, "seed": 0}, 200, None),
        ("POST", "/reset", {"seed": "7"}, 200, None),
        ("POST", "/reset", {"seed": 1.5}, 422, None),
        ("POST", "/reset", [], 422, None),
        ("POST", "/step", {"action": []}, 422, None),
        ("POST", "/step", {"action": {"message": "a"}, "request_id": "x" * 256}, 422, None),
        ("POST", "/step", {"action": {"message": "a"}, "request_id": "r", "more": 1}, 200, None),
        ("GET", "/plain_echo/splits", None, 501, {"detail": "list_splits is not supported for this environment"}),
        ("GET", "/PLAIN_ECHO/splits", None, 501, {"detail": "list_splits is not supported for this environment"}),
        ("GET", "/bad/splits", None, 404, {"detail": "unknown environment 'bad'"}),
        ("POST", "/plain_echo/tasks", {}, 422, None),
        ("POST", "/plain_echo/tasks", {"split": "train"}, 501, {"detail": "list_tasks is not supported for this environment"}),
    ],
    ids=lambda v: str(v)[:30],
)
def test_http_status_codes(method, path, body, status, reply, either):
    answer = request(method, either("plain_echo") + path, json=body)
    if path == "/" and answer.status_code == 200:
        pytest.skip("ours has a page here")
    assert answer.status_code == status, answer.text
    assert reply is None or answer.json() == reply
    assert status != 405 or answer.headers["allow"]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        ('{"action":{"message":"a"}}', "application/json; charset=utf-8", 200),
        ('{"action":{"message":"a"}}', "application/problem+json", 200),
        ('{"action":{"message":"a"}}', "text/plain", 422),
        ('{"action":{"message":"a"}}', None, 422),
        ("null", "application/json", 422),
        ("", "application/json", 422),
    ],
)
def test_a_body_is_json_only_when_it_says_so(content, kind, status, either):
    answer = request("POST", either("plain_echo") + "/step", content=content, headers={"content-type": kind} if kind else {})
    assert answer.status_code == status, answer.text
    if status == 422:
        assert answer.json()["detail"][0]["loc"] == ["body"]


def wrong_dict(value):
    item = {"type": "dict_type", "loc": ["data"], "msg": "Input should be a valid dictionary", "input": value}
    return error("VALIDATION_ERROR", "Invalid message", errors=[item])


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ('{"type":"reset","data":null}', wrong_dict(None)),
        ('{"type":"reset","data":[]}', wrong_dict([])),
        ('{"type":"step","data":null}', wrong_dict(None)),
        ('{"type":"mcp","data":[]}', wrong_dict([])),
        ('{"type":"STEP"}', error("UNKNOWN_TYPE", "Unknown message type: STEP")),
        ('{"type":null}', error("UNKNOWN_TYPE", "Unknown message type: ")),
        ('{"type":5}', error("UNKNOWN_TYPE", "Unknown message type: 5")),
        ('{"type":"state","type":"wat"}', error("UNKNOWN_TYPE", "Unknown message type: wat")),
        ('\ufeff{"type":"state"}', error("INVALID_JSON", "Invalid JSON: ")),
        ("", error("INVALID_JSON", "Invalid JSON: ")),
        ('{"type":"step","data":{"message":NaN}}', error("VALIDATION_ERROR", errors=...)),
        ('{"type":"step","data":{"message":"\\ud800"}}', error("EXECUTION_ERROR")),
    ],
)
def test_a_bad_message_is_told_apart_and_the_session_lives(message, reply, either):
    first, second = talk(either("plain_echo"), [message, {"type": "state"}])
    assert matches(first, reply), first
    assert second["type"] == "state"


def test_an_environments_exception_is_a_500_each_time(either):
    for _ in range(3):
        answer = request("POST", either("value_probe") + "/step", json={"action": {"kind": "raise"}})
        assert (answer.status_code, answer.headers["content-type"], answer.text) == (500, "text/plain; charset=utf-8", "Internal Server Error")


def test_pages_about_the_api_are_there(either):
    base = either("plain_echo")
    described = request("GET", base + "/openapi.json").json()
    assert described["info"]["version"] and {"/reset", "/step", "/state", "/schema", "/metadata", "/health", "/mcp"} <= described["paths"].keys()
    for page in ("/docs", "/redoc"):
        assert request("GET", base + page).headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    "data",
    [{"seed": -1}, {"seed": "x"}, {"episode_id": "x" * 300}, {"episode_id": None}],
    ids=str,
)
def test_reset_over_websocket_passes_arguments_unchecked(data, either):
    reply = talk(either("plain_echo"), [{"type": "reset", "data": data}])[0]
    assert reply["type"] == "observation"


def test_spacing_and_escapes_of_the_socket_are_compact_utf8(either):
    url = either("value_probe").replace("http", "ws") + "/ws"
    with Session(url) as session:
        session.send({"type": "step", "data": {"kind": "non_ascii"}})
        text = session.socket.recv(timeout=REPLY)
    assert "héllo 世界" in text and '", ' not in text and '": ' not in text


# MCP: sessions made over HTTP, attached to over the socket.


def rpc(base: str, method: str, params=None, id=1):
    message = {"jsonrpc": "2.0", "method": method, "id": id, **({"params": params} if params is not None else {})}
    answer = request("POST", base + "/mcp", json=message)
    assert answer.status_code == 200
    return answer.json()


def echo(base: str, session: str | None = None, name="echo_message"):
    params = {"name": name, "arguments": {"message": "hi"}, **({"session_id": session} if session else {})}
    return rpc(base, "tools/call", params)


def test_a_session_made_over_mcp_is_attached_to_and_closed(either):
    base = either("tool_echo")
    url = base.replace("http", "ws") + "/ws?session_id="
    name = rpc(base, "openenv/session/create")["result"]["session_id"]
    assert echo(base, name)["result"]["data"] == "hi"
    with Session(url + name) as session:
        session.reset(episode_id="mine")
        session.step(type="call_tool", tool_name="echo_message", arguments={"message": "x"})
        # A tool call goes to step_async, so the class's own step, which counts, is not asked.
        assert session.state()["data"] == {"episode_id": "mine", "step_count": 0}
        with Session(url + name) as second:
            message = f"Session {name} already has an attached WebSocket"
            assert second.receive() == {"type": "error", "data": {"message": message, "code": "SESSION_ERROR"}}
        assert rpc(base, "openenv/session/close", {"session_id": name})["result"] == {"session_id": name, "closed": False, "closing": True}
        assert session.state()["data"]["episode_id"] == "mine"
        session.send({"type": "close"})
        with pytest.raises(ConnectionClosed):
            session.receive()
    # The close that was asked for while attached happens at detaching.
    with Session(url + name) as gone:
        assert gone.receive() == {"type": "error", "data": {"message": f"Unknown session_id: {name}", "code": "SESSION_ERROR"}}
    for answer in (rpc(base, "openenv/session/close", {"session_id": name}), echo(base, name)):
        assert answer["error"] == {"code": -32602, "message": f"Unknown session_id: {name}", "data": None}


def test_a_detached_session_keeps_its_state_until_closed(either):
    base = either("tool_echo")
    url = base.replace("http", "ws") + "/ws?session_id="
    name = rpc(base, "openenv/session/create")["result"]["session_id"]
    with Session(url + name) as session:
        session.reset(episode_id="kept")
    session = Session(url + name)
    reply = session.state()
    while reply["data"].get("code") == "SESSION_ERROR":  # the first socket's end may not be seen yet
        session.socket.close()
        session = Session(url + name)
        reply = session.state()
    with session:
        assert reply["data"] == {"episode_id": "kept", "step_count": 0}
    answer = rpc(base, "openenv/session/close", {"session_id": name})["result"]
    assert answer["session_id"] == name and (answer["closed"] or answer["closing"])


def test_an_mcp_call_within_a_session_sees_that_session(either):
    with Session(either("tool_echo").replace("http", "ws") + "/ws") as session:
        call = {"jsonrpc": "2.0", "method": "openenv/session/create", "id": 5}
        name = session.ask({"type": "mcp", "data": call})["data"]["result"]["session_id"]
        close = {"jsonrpc": "2.0", "method": "openenv/session/close", "params": {"session_id": name}, "id": 6}
        refused = session.ask({"type": "mcp", "data": close})["data"]["error"]
        assert refused["code"] == -32600 and "Cannot close active WebSocket-managed session" in refused["message"]
        assert session.state()["type"] == "state"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"jsonrpc": "1.0", "method": "tools/list", "id": 1}, -32600),
        ({"jsonrpc": "2.0", "method": "tools/list", "id": 1, "extra": 1}, -32600),
        ({"jsonrpc": "2.0", "method": "tools/list", "id": 1, "params": [1]}, -32600),
        ({"jsonrpc": "2.0", "method": "tools/call", "id": 1, "params": {}}, -32602),
        ({"jsonrpc": "2.0", "method": "tools/call", "id": 1, "params": {"name": "echo_message", "arguments": {"x": 1}}}, -32603),
        ({"jsonrpc": "2.0", "method": "openenv/session/close", "id": 1}, -32602),
        ([], -32700),
    ],
    ids=str,
)
def test_bad_rpc_is_answered_200_with_its_code(message, code, either):
    answer = request("POST", either("tool_echo") + "/mcp", json=message)
    assert answer.status_code == 200 and answer.json()["error"]["code"] == code, answer.text


# Ours alone.


def test_mcp_of_a_stock_client_is_answered(ours):
    base = ours("tool_echo")
    result = rpc(base, "initialize", INITIALIZE["params"])["result"]
    assert result["protocolVersion"] and "tools" in result["capabilities"] and result["serverInfo"]["name"]
    assert rpc(base, "ping")["result"] == {}
    note = request("POST", base + "/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert note.status_code == 202 and not note.content
    socket = talk(base, [INITIALIZE, PING], path="/mcp")
    assert socket[0]["result"]["serverInfo"] == result["serverInfo"] and socket[1]["result"] == {}


def test_a_refusing_validator_is_422_over_http(ours):
    answer = request("POST", ours("value_probe") + "/step", json={"action": {"kind": "a", "n": -1}})
    assert answer.status_code == 422 and normal(answer.json()) == {"detail": [NEGATIVE]}


def test_a_live_session_is_never_reaped_and_an_idle_one_of_mcp_is(serve):
    # A session that talks or keeps its socket open is live; what an abandoned HTTP session held comes back.
    server = serve("tool_echo:app", *WITH, "--session-timeout", "1", "--max-sessions", "2", cwd=RECORDED)
    with server.session() as session:
        session.reset(episode_id="live")
        rpc(server.url, "openenv/session/create")
        # Both slots are taken; the second is free again once the abandoned session was reaped, and only that one.
        admitted(server.ws_url + "/ws").close()
        assert session.state()["data"] == {"episode_id": "live", "step_count": 0}
        assert session.step(type="call_tool", tool_name="echo_message", arguments={"message": "x"})["type"] == "observation"


@pytest.mark.parametrize("args", [["--mode", "production"], []], ids=["option", "OPENENV_MODE"])
def test_production_shuts_the_simulation_on_http_and_on_the_socket(args, serve):
    env = {} if args else {"OPENENV_MODE": "production"}
    server = serve("tool_echo:app", *WITH, *args, cwd=RECORDED, env=env)
    for method, path in (("POST", "/reset"), ("POST", "/step"), ("GET", "/state")):
        assert request(method, server.url + path, json={}).status_code == 404
        assert path not in server.get("/openapi.json").json()["paths"]
    for message in ({"type": "reset"}, {"type": "step", "data": {"type": "list_tools"}}, {"type": "state"}):
        refused, listed = talk(server.url, [message, {"type": "mcp", "data": {"jsonrpc": "2.0", "method": "tools/list", "id": 1}}])
        assert refused == error("NOT_AVAILABLE")
        assert len(listed["data"]["result"]["tools"]) == 2
    assert server.get("/health").json() == {"status": "healthy"}
    assert echo(server.url)["result"]["data"] == "hi"


def test_the_contract_is_told_beside_the_recorded_body(ours):
    base = ours("plain_echo")
    schema = request("GET", base + "/schema")
    contract = request("GET", base + "/contract")
    assert contract.status_code == 200 and contract.json()
    digest = next(v for k, v in schema.headers.items() if "contract" in k)
    socket = open_socket(base.replace("http", "ws") + "/ws")
    with contextlib.closing(socket):
        assert digest in socket.response.headers.values()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["nothing_here:app"], "nothing_here"),
        (["plain_echo:missing"], "missing"),
        (["plain_echo:EchoAction"], "EchoAction"),
        (["./no-such-folder"], "no-such-folder"),
        (["."], "openenv.yaml"),
        (["plain_echo:app", "--concurrency", "sometimes"], "sometimes"),
        (["plain_echo:app", "--max-sessions", "0"], "max-sessions"),
        (["plain_echo:app", "--token-file", "absent"], "absent"),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_named(args, text, cli, store):
    done = cli("serve", *args[:1], "--port", "0", *(WITH if ":" in args[0] else ()), *args[1:], cwd=RECORDED)
    assert done.code not in (0, 101, -6) and text in done.err and "http://" not in done.out, done.err


def test_a_busy_port_is_named(serve, cli):
    server = serve("plain_echo:app", *WITH, cwd=RECORDED)
    done = cli("serve", "plain_echo:app", *WITH, "--port", server.port, cwd=RECORDED)
    assert done.code not in (0, 101) and str(server.port) in done.err


def test_sigterm_drains_and_exits_0(serve):
    server = serve("plain_echo:app", *WITH, cwd=RECORDED)
    with server.session() as session:
        session.reset()
        session.send({"type": "step", "data": {"message": "last"}})
        assert session.receive()["data"]["observation"]["echoed_message"] == "last"
    assert server.stop() == 0
    assert server.out.text() == server.url + "\n"
    assert "Traceback" not in server.stderr() and "panicked" not in server.stderr()
