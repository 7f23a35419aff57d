"""Clients at the door: addresses, tokens, headers, sockets, TLS, proxies, limits; and tools."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import threading

import pytest
import trustme
from clients import (  # noqa: F401
    answering,
    between_fixture,
    grounds_fixture,
    meadow_fixture,
    passing,
    proxy,
    silent,
)
from serving import WITH, running, serve_fixture, shared_home, start, store_fixture  # noqa: F401
from websockets.sync.server import serve as serve_websocket

import envharness as eh

SETTINGS = [{}, {"protocol": "openenv"}]
LOOK = {"do": "look"}
TOKEN = "s3cret-Token_of.these.tests"


def note(address: str, **settings: object) -> str:
    """What a session says that is opened there."""
    with eh.GenericEnvClient(address, **settings) as env:
        return env.reset(seed=1).observation["note"]


def refused(address: object, **settings: object) -> eh.ConnectError:
    """The error of connecting there, by both faces."""
    with pytest.raises(eh.ConnectError) as blocking:
        eh.GenericEnvClient(address, **settings).sync().reset()

    async def connect():
        await eh.GenericEnvClient(address, **settings)

    with pytest.raises(eh.ConnectError) as awaited:
        asyncio.run(connect())
    assert str(awaited.value) == str(blocking.value) and isinstance(blocking.value, ConnectionError)
    return blocking.value


@pytest.fixture
def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


# Nobody there.


@pytest.mark.parametrize(
    "address",
    ["", " ", "unix:", "ftp://h", "ws://", "http://", "ws://h:99999", "ws://h:x", "://", "ws:// h", "http://[::1", "ws://h:0x1", "\0"],
)
def test_what_is_no_address_is_said_so_before_anything_is_tried(address):
    with pytest.raises(eh.ConnectError, match="is no address of a server") as caught:
        eh.GenericEnvClient(address)
    assert "ws://HOST:PORT" in caught.value.hint


def test_what_is_no_address_and_no_setting_at_all():
    for wrong in (None, 5, b"http://h", ["http://h"], object()):
        with pytest.raises(TypeError, match="an address or something with a url"):
            eh.GenericEnvClient(wrong)
    with pytest.raises(TypeError, match="there is no setting 'timeout'; there are token"):
        eh.GenericEnvClient("http://h", timeout=3)
    for wrong in ({"protocol": "http"}, {"connect_timeout": -1.0}, {"ping_interval": float("nan")}, {"max_message_size": -1}):
        with pytest.raises(ValueError, match="is not known|is no number of"):
            eh.GenericEnvClient("http://h", **wrong)
    for wrong in ({"connect_timeout": "x"}, {"max_message_size": "1M"}, {"token": 5}):
        with pytest.raises(TypeError):
            eh.GenericEnvClient("http://h", **wrong)
    for settings in ({name: None for name in ("connect_timeout", "ping_interval", "max_message_size")}, {"headers": [("a", "b")]}):
        with pytest.raises(eh.ConnectError):
            eh.GenericEnvClient("unix:/none", **settings).sync().connect()
    # A secret in an address is not shown.
    with pytest.raises(eh.ConnectError) as caught:
        eh.GenericEnvClient("ftp://me:hidden@h")
    assert "hidden" not in str(caught.value)
    assert "hidden" not in repr(eh.GenericEnvClient("ws://me:hidden@h:1"))


@pytest.mark.parametrize("settings", SETTINGS)
def test_nobody_listens(settings, free_port, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    for address in (f"http://127.0.0.1:{free_port}", f"127.0.0.1:{free_port}", f"unix:{tmp_path}/none"):
        error = refused(address, **settings)
        assert "cannot connect to" in str(error) and "envharness serve" in error.hint
    assert "server.invalid" in str(refused("http://server.invalid:80", **settings))
    with pytest.raises(eh.ConnectError, match=str(free_port)):
        _ = eh.GenericEnvClient(f"127.0.0.1:{free_port}").sync().contract


ANSWERS = {
    "not found": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", "it answered 404", "there is no environment server at this address"),
    "a page": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "it answered 200", None),
    "a detail": (b'HTTP/1.1 403 No\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{"detail": "not so"}', "403 Forbidden: not so", None),
    "another protocol": (b"220 mail.example ESMTP\r\n", "cannot connect", None),
    "a goodbye": (b"", "cannot connect", None),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_another_server_listens(name, settings, between):
    answer, text, hint = ANSWERS[name]
    error = refused(f"http://127.0.0.1:{between(answering(answer))}", **settings)
    assert text in str(error), str(error)
    assert error.hint == hint or hint is None


def test_an_upgrade_that_does_not_answer_ours(between):
    answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: AAAA\r\n\r\n"
    with pytest.raises(eh.ProtocolError, match="handshake does not answer"):
        eh.GenericEnvClient(f"http://127.0.0.1:{between(answering(answer))}").sync().connect()


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_server_that_is_silent_is_given_up(settings, between):
    error = refused(f"http://127.0.0.1:{between(silent)}", connect_timeout=0.2, **settings)
    assert "no connection within 0.2 s" in str(error)


# Ways in.


@pytest.fixture(scope="module")
def guarded(grounds, tmp_path_factory):
    """A server with a token."""
    home, env = shared_home(tmp_path_factory), {"ENVHARNESS_TOKEN": TOKEN}
    with running(start("meadow:app", *WITH, home=home, cwd=grounds, env=env)) as server:
        yield server


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_token_by_argument_header_or_address(settings, guarded):
    url = guarded.url
    for wrong in ({}, {"token": "wrong"}, {"headers": {"Authorization": "Bearer wrong"}}):
        error = refused(url, **settings, **wrong)
        assert "401" in str(error) and "token=" in error.hint and TOKEN not in str(error)
        with pytest.raises(eh.ClientError, match="401"):
            _ = eh.GenericEnvClient(url, **settings, **wrong).sync().contract
    assert note(url, token=TOKEN, **settings) == note(url.replace("//", f"//me:{TOKEN}@"), **settings) == "[]"
    assert note(url, headers={"Authorization": f"Bearer {TOKEN}"}, **settings) == "[]"
    assert eh.GenericEnvClient(url, token=TOKEN, **settings).sync().contract["name"] == "meadow"
    with pytest.raises(eh.ConnectError, match="a header has a character"):
        eh.GenericEnvClient(url, headers={"a": "b\r\nc: d"}).sync().connect()


def test_headers_reach_the_server():
    heard = []

    def handle(socket):
        heard.append(dict(socket.request.headers.raw_items()))
        socket.send('{"type": "observation", "data": {"observation": {"note": "ok"}, "reward": null, "done": false}}' if socket.recv() else "")
        list(socket)

    with serve_websocket(handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert note(f"http://127.0.0.1:{server.socket.getsockname()[1]}/", headers={"X-Run": "7", "x-who": "me"}) == "ok"
        finally:
            server.shutdown()
            thread.join()
    assert {"x-run": "7", "x-who": "me"}.items() <= {name.lower(): value for name, value in heard[0].items()}.items()


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_unix_socket(settings, home, tmp_path):
    path = tmp_path / "door"
    with eh.serve("native:echo", host=f"unix:{path}") as server:
        for address in (f"unix:{path}", f"unix://{path}", server, server.url):
            with eh.GenericEnvClient(address, **settings) as env:
                env.reset()
                assert env.step({"message": "hello"}).observation["echoed_message"] == "hello"
    error = refused(f"unix:{path}", **settings)
    assert str(path) in str(error)


@pytest.mark.parametrize("settings", SETTINGS)
def test_tls_with_a_ca_of_ones_own(settings, meadow, between, tmp_path):
    ca, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    port = between(passing(meadow.port), ssl=context)
    for address in (f"wss://localhost:{port}", f"https://127.0.0.1:{port}"):
        assert note(address, tls_ca=tmp_path / "ca.pem", **settings) == "[]"
        assert eh.GenericEnvClient(address, tls_ca=tmp_path / "ca.pem", **settings).sync().contract["name"] == "meadow"
        error = refused(address, **settings)
        assert "TLS" in str(error) and "tls_ca" in error.hint
    (tmp_path / "bad.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for bad in ("bad.pem", "none.pem"):
        assert bad in str(refused(f"https://localhost:{port}", tls_ca=tmp_path / bad, **settings))
    assert "TLS" in str(refused(f"https://localhost:{meadow.port}", **settings))


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_proxy_is_used_as_it_is_told(settings, meadow, between, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    heard = []
    port = between(proxy({"server.invalid": meadow.port}, heard))
    url, there = f"http://127.0.0.1:{port}", "http://server.invalid:8123"
    assert note(there, proxy=url, **settings) == "[]" and heard.pop()["target"] == "server.invalid:8123"
    assert eh.GenericEnvClient(there, proxy=url, **settings).sync().contract["name"] == "meadow" and heard.pop()
    assert note(there, proxy=f"http://me:p%40ss@127.0.0.1:{port}", **settings) == "[]"
    assert heard.pop()["proxy-authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        with monkeypatch.context() as context:
            context.setenv(name, url)
            assert note(there, **settings) == "[]" and heard.pop()
            # Loopback is never asked for by way of a proxy, nor is what `no_proxy` names.
            assert note(meadow.url, **settings) == note(f"http://localhost:{meadow.port}", **settings) == "[]" and not heard
            refused(there, proxy=None, **settings)
            context.setenv("no_proxy", ".invalid")
            refused(there, **settings)
            assert not heard
    assert note(meadow.url, proxy=url, **settings) == "[]" and not heard
    error = refused("http://other.invalid:1", proxy=url, **settings)
    assert "403" in str(error) and f"127.0.0.1:{port}" in str(error) and heard.pop()
    assert "proxy" in str(refused(there, proxy="socks5://127.0.0.1:1", **settings))
    assert "proxy" in str(refused(there, proxy=f"http://127.0.0.1:{between(answering(b''))}", **settings))


# Limits.


@pytest.mark.parametrize("settings", SETTINGS)
def test_an_answer_that_is_too_large_is_said_so(settings, meadow):
    with eh.GenericEnvClient(meadow, max_message_size=1_000_000, **settings) as env:
        env.reset()
        assert len(env.step({"do": "large", "n": 900_000}).observation["note"]) == 900_000
        with pytest.raises(eh.ProtocolError, match="a message of .* bytes came"):
            env.step({"do": "large", "n": 4_000_000})
        assert env.reset(seed=1).observation["note"] == "[]"
    with eh.GenericEnvClient(meadow, max_message_size=10_000_000, **settings) as env:
        assert len(env.step({"do": "large", "n": 9_000_000}).observation["note"]) == 9_000_000


@pytest.mark.parametrize("settings", SETTINGS)
def test_an_action_that_is_too_large_is_said_so(settings, serve, grounds):
    server = serve("meadow:app", *WITH, "--max-message-size", "1M", cwd=grounds)
    with eh.GenericEnvClient(server, **settings) as env:
        other = env.new_session()
        env.reset()
        other.reset()
        with pytest.raises(eh.ClientError, match="large|size|length|big|limit|bytes"):
            env.step({"do": "x" * 3_000_000})
        assert env.reset(seed=1).observation["note"] == "[]"
        # Sessions beside it, on the same connection for one, do not notice.
        assert other.step(LOOK).observation["note"] == "look 0" and other.reconnects == 0


# Tools.


TOOLBOX = """
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State


class Toolbox(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("toolbox")
        self.total, self._state = 0, State(episode_id="e", step_count=0)

        @server.tool
        def add(a: int, name: str = "nobody") -> int:
            \"\"\"Adds to this session's total.\"\"\"
            self.total += a
            return self.total

        @server.tool
        def pair(name: str) -> dict:
            return {"name": name, "letters": list(name)}

        @server.tool
        def nothing() -> None:
            pass

        @server.tool
        def break_it(reason: str) -> str:
            raise RuntimeError(reason)

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.total, self._state = seed or 0, State(episode_id=episode_id or "e", step_count=0)
        return Observation(done=False, reward=0.0)

    def _step_impl(self, action, timeout_s=None, **kwargs):
        return Observation(done=False)

    @property
    def state(self):
        return self._state


app = create_app(Toolbox, CallToolAction, CallToolObservation, env_name="toolbox", max_concurrent_envs=8)
"""


@pytest.fixture(scope="module")
def toolbox(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toolbox")
    (folder / "tools.py").write_text(TOOLBOX)
    with running(start("tools:app", *WITH, "--max-sessions", "8", home=shared_home(tmp_path_factory), cwd=folder)) as server:
        yield server


@pytest.mark.parametrize("settings", [*SETTINGS, {"encoding": "msgpack"}])
def test_tools_are_listed_called_and_fail_in_their_session(settings, toolbox):
    async def awaited():
        async with eh.MCPToolClient(toolbox, **settings) as env:
            await env.reset(seed=5)
            tools = await env.list_tools()
            assert await env.list_tools() is tools and await env.list_tools(use_cache=False) == tools
            assert await env.has_tool("add") and not await env.has_tool("none") and await env.get_tool("none") is None
            with pytest.raises(eh.EnvironmentFailed, match="none"):
                await env.call_tool("none")
            return [tools, await env.call_tool("add", a=2, name="n"), await env.call_tool("pair", name="ab")]

    tools, total, pair = asyncio.run(awaited())
    assert [tool.name for tool in tools] == ["add", "pair", "nothing", "break_it"]
    assert tools[0].description == "Adds to this session's total." and tools[0].input_schema["required"] == ["a"]
    assert total == 7 and pair == {"name": "ab", "letters": ["a", "b"]}
    with eh.MCPToolClient(toolbox, **settings) as env:
        assert env.list_tools() == tools and env.list_tools() is env.list_tools()
        assert env.get_tool("add") == tools[0] and env.has_tool("pair") and not env.has_tool("none")
        assert env.call_tool("add", a=3) == 3 and env.call_tool("add", a=3) == 6 and env.call_tool("nothing") is None
        with pytest.raises(eh.EnvironmentFailed, match="bad day"):
            env.call_tool("break_it", reason="bad day")
        with pytest.raises(eh.EnvironmentFailed, match="none"):
            env.call_tool("none", a=1)
        for wrong in ({}, {"a": "x"}, {"a": 1, "b": 2}):
            with pytest.raises(eh.InvalidAction, match="validation error"):
                env.call_tool("add", **wrong)
        assert env.call_tool("add", a=1) == 7
        result = env.step({"type": "call_tool", "tool_name": "add", "arguments": {"a": 1}})
        assert result.observation["result"]["data"] == 8


def test_an_environment_without_tools_says_so(meadow):
    for settings in SETTINGS:
        with eh.MCPToolClient(meadow, **settings) as env:
            with pytest.raises(eh.ClientError):
                env.list_tools()
            assert env.step(LOOK).observation["note"] == "look 0"
