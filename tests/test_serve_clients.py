"""The stock clients and tools, unchanged, against our server."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from serving import (  # noqa: F401
    ENVS,
    RECORDED,
    WITH,
    old_reference_python,
    reference_python,
    run_stock,
    serve_fixture,
    store_fixture,
)

PYTHONS = {"openenv-0.10.0": reference_python, "openenv-core-0.3.0": old_reference_python}


@pytest.fixture(params=PYTHONS)
def stock(request, tmp_path):
    """Runs a script under a stock client; what it prints last is JSON."""
    python = PYTHONS[request.param]()
    return lambda code, *args: run_stock(python, tmp_path, code, *args)


SYNC = """
import json, sys
from openenv.core.generic_client import GenericEnvClient

with GenericEnvClient(base_url=sys.argv[1]).sync() as client:
    heard = []
    for episode in range(3):
        result = client.reset(seed=episode, episode_id=f"e{episode}")
        heard.append([result.observation["said"], result.observation["feather"], result.done])
        while not result.done:
            result = client.step({"message": "hi", "times": 2})
            heard.append([result.observation["said"], result.reward, result.done])
        heard.append(client.state())
    try:
        client.step({"message": ""})
    except RuntimeError as error:
        heard.append(str(error))
    heard.append(client.step({"message": "on"}).observation["said"])
print(json.dumps(heard))
"""
ASYNC = """
import asyncio, json, sys
from openenv.core.generic_client import GenericEnvClient

async def episode(n):
    async with GenericEnvClient(base_url=sys.argv[1]) as client:
        result = await client.reset(seed=n, episode_id=f"e{n}")
        rewards = []
        while not result.done:
            result = await client.step({"message": "x" * (n + 1)})
            rewards.append(result.reward)
        return [rewards, await client.state()]

async def main():
    return await asyncio.gather(*(episode(n) for n in range(6)))

print(json.dumps(asyncio.run(main())))
"""
TYPED = """
import json, sys
from parrot import ParrotAction, ParrotEnv

with ParrotEnv(base_url=sys.argv[1]).sync() as client:
    client.reset()
    result = client.step(ParrotAction(message="typed", volume="high"))
    print(json.dumps([type(result.observation).__name__, result.observation.said, result.reward, result.done, client.state().step_count]))
"""


@pytest.fixture
def parrot(serve, tmp_path):
    shutil.copytree(ENVS / "parrot", tmp_path / "parrot")
    return serve(tmp_path / "parrot").url


def test_whole_episodes_by_the_sync_client(stock, parrot):
    heard = stock(SYNC, parrot)
    refused = heard[-2]
    assert "Invalid message" in refused and "VALIDATION_ERROR" in refused
    assert heard[-1] == "on"
    assert [e[2] for e in heard[:4]] == [False, False, False, True] and heard[4] == {"episode_id": "e0", "step_count": 3}
    assert heard[1] == ["hi hi", 0.5, False] and len(heard) == 17


def test_concurrent_episodes_by_the_async_client(stock, parrot):
    heard = stock(ASYNC, parrot)
    assert heard == [[[(n + 1) / 10] * 3, {"episode_id": f"e{n}", "step_count": 3}] for n in range(6)]


def test_the_packages_typed_client(stock, parrot):
    assert stock(TYPED, parrot) == ["ParrotObservation", "TYPED", 0.5, False, 1]


def test_a_stock_client_hears_of_capacity_and_of_a_dead_environment(stock, serve, tmp_path):
    shutil.copytree(ENVS / "brittle", tmp_path / "brittle")
    server = serve(tmp_path / "brittle", "--max-sessions", "1")
    code = """
    import json, sys
    from openenv.core.generic_client import GenericEnvClient

    def told(call):
        try:
            return repr(call())
        except Exception as error:
            return str(error)

    heard = []
    with GenericEnvClient(base_url=sys.argv[1]).sync() as one:
        one.reset()
        two = GenericEnvClient(base_url=sys.argv[1]).sync()
        heard.append(told(lambda: (two.connect(), two.reset())))
        heard.append(told(lambda: one.step({"how": "sigkill"})))
    while True:
        with GenericEnvClient(base_url=sys.argv[1]).sync() as three:
            answer = told(lambda: three.reset(seed=4).observation["count"])
        if "CAPACITY_REACHED" not in answer:
            break
    heard.append(answer)
    print(json.dumps(heard))
    """
    full, died, after = stock(code, server.url)
    assert "Server at capacity: 1/1 sessions active" in full
    assert "WORKER_DIED" in died
    assert after == "4"


TOOLS = """
import asyncio, json, sys
from openenv.core.mcp_client import MCPToolClient

async def main():
    async with MCPToolClient(base_url=sys.argv[1]) as client:
        await client.reset()
        tools = sorted(tool.name for tool in await client.list_tools())
        said = await client.call_tool("echo_message", message="hi")
        both = await client.call_tool("echo_with_length", message="abc")
        try:
            await client.call_tool("nope")
            failed = ""
        except Exception as error:
            failed = str(error)
        state = await client.state()
        return [tools, said, both, failed, state.step_count]

print(json.dumps(asyncio.run(main())))
"""


@pytest.fixture
def tools(serve):
    return serve("tool_echo:app", *WITH, "--max-sessions", "4", cwd=RECORDED)


def test_tools_by_the_stock_tool_client(stock, tools):
    names, said, both, failed, _ = stock(TOOLS, tools.url)
    assert names == ["echo_message", "echo_with_length"]
    assert said == "hi" and both == {"message": "abc", "length": 3} and "nope" in failed


def test_tool_clients_give_their_sessions_back(tools, tmp_path):
    for _ in range(3):
        run_stock(reference_python(), tmp_path, TOOLS, tools.url)
    held = [tools.session() for _ in range(4)]
    try:
        assert [session.state()["type"] for session in held] == ["state"] * 4
    finally:
        for session in held:
            session.socket.close()


@pytest.mark.parametrize("client", ["fastmcp", "mcp"])
def test_a_stock_mcp_client_connects_lists_and_calls(client, tools, tmp_path):
    code = {
        "fastmcp": """
        import asyncio, json, sys
        import fastmcp

        async def main():
            async with fastmcp.Client(sys.argv[1] + "/mcp") as client:
                await client.ping()
                tools = await client.list_tools()
                result = await client.call_tool("echo_message", {"message": "hi"})
                return [sorted(tool.name for tool in tools), result.content[0].text]

        print(json.dumps(asyncio.run(main())))
        """,
        "mcp": """
        import asyncio, json, sys
        from mcp import ClientSession
        from mcp.client.streamable_http import streamablehttp_client

        async def main():
            async with streamablehttp_client(sys.argv[1] + "/mcp") as (read, write, _):
                async with ClientSession(read, write) as session:
                    await session.initialize()
                    tools = await session.list_tools()
                    result = await session.call_tool("echo_message", {"message": "hi"})
                    return [sorted(tool.name for tool in tools.tools), result.content[0].text]

        print(json.dumps(asyncio.run(main())))
        """,
    }[client]
    assert run_stock(reference_python(), tmp_path, code, tools.url) == [["echo_message", "echo_with_length"], "hi"]


@pytest.mark.parametrize("mode", ["simulation", "production"])
def test_their_validation_passes(mode, serve):
    server = serve("tool_echo:app", *WITH, "--mode", mode, cwd=RECORDED)
    command = [reference_python().parent / "openenv", "validate", "--url", server.url, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout[done.stdout.index("{") :])
    assert report["passed"] is True, report
    assert len(report["criteria"]) == 6 and all(item["passed"] for item in report["criteria"])


def test_a_message_of_100_mb_reaches_the_stock_client(tmp_path, serve):
    server = serve("value_probe:app", *WITH, cwd=RECORDED)
    code = """
    import json, sys
    from openenv.core.generic_client import GenericEnvClient

    with GenericEnvClient(base_url=sys.argv[1], max_message_size_mb=200).sync() as client:
        client.reset()
        print(json.dumps(len(client.step({"kind": "large", "n": 100_000_000}).observation["value"])))
    """
    assert run_stock(reference_python(), tmp_path, code, server.url) == 100_000_000
