"""``envharness.compat.openenv``: a script of OpenEnv's clients says the same with one import root in place of the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from clients import grounds_fixture, meadow_fixture, stock_fixture  # noqa: F401
from conftest import write
from serving import RECORDED, WITH, reference_python, run_stock, running, shared_home, start, start_reference
from wire import normal

import envharness

ROOT = re.compile(r"\b(from|import) openenv\b")
HEAD = """
import asyncio, json, sys, time
from openenv import GenericEnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.generic_client import GenericAction
from openenv.core.sync_client import SyncEnvClient

url = sys.argv[1]
heard = []

def told(call):
    try:
        return repr(call())
    except Exception as error:
        return [type(error).__name__, str(error)]

async def atold(awaitable):
    try:
        return repr(await awaitable)
    except Exception as error:
        return [type(error).__name__, str(error)]

def plain(result):
    return [result.observation, result.reward, result.done, result.metadata]
"""
SCRIPTS = {
    "sync": """
with GenericEnvClient(base_url=url).sync() as env:
    heard.append(type(env).__name__)
    for seed in (1, 2):
        heard.append(plain(env.reset(seed=seed, episode_id="e%d" % seed)))
        for action in ({"do": "pick", "n": 1}, GenericAction(do="pick", n=2), {"do": "look"}, {"do": "pick", "n": 3}):
            heard.append(plain(env.step(action)))
        heard.append(env.state())
env = GenericEnvClient(base_url=url + "/")
heard.append([env.base_url, plain(env.reset(seed=3)), plain(env.step({"n": 1})), env.state()])
env.close()
with GenericEnvClient(base_url=url.replace("http", "ws")) as env:
    heard.append(plain(env.reset(seed=4)))
""",
    "async": """
async def episode(seed):
    async with GenericEnvClient(base_url=url) as env:
        found = [plain(await env.reset(seed=seed, episode_id="e%d" % seed))]
        for n in range(4):
            found.append(plain(await env.step({"do": "pick", "n": n})))
        return found + [await env.state()]

async def main():
    return await asyncio.gather(*(episode(seed) for seed in range(4)))

heard.append(asyncio.run(main()))
""",
    "typed": """
from typing import Any, Dict
from pydantic import BaseModel

class Pick(BaseModel):
    n: int = 0
    do: str = "pick"

class Seen(BaseModel):
    flowers: int
    note: str

class Meadow(EnvClient[Pick, Seen, Dict[str, Any]]):
    def _step_payload(self, action):
        return action.model_dump()

    def _parse_result(self, payload):
        seen = payload["observation"]
        return StepResult(observation=Seen(flowers=seen["flowers"], note=seen["note"]), reward=payload.get("reward"), done=payload.get("done", False))

    def _parse_state(self, payload):
        return {"steps": payload["step_count"], **payload}

with Meadow(base_url=url).sync() as env:
    for result in (env.reset(seed=7, episode_id="e"), env.step(Pick(n=2)), env.step(Pick(n=1, do="look"))):
        heard.append([type(result).__name__, result.observation.model_dump(), result.reward, result.done])
    heard.append(env.state())

async def main():
    async with Meadow(base_url=url) as env:
        await env.reset(seed=7)
        return (await env.step(Pick(n=2))).observation.model_dump()

heard.append(asyncio.run(main()))
heard.append(told(lambda: EnvClient(base_url=url))[0])
""",
    "new_session": """
with GenericEnvClient(base_url=url).sync() as env:
    env.reset(seed=1, episode_id="one")
    env.step({"n": 1})
    other = env.new_session()
    heard.append(isinstance(other, SyncEnvClient))
    other.reset(seed=2, episode_id="two")
    heard.append([env.state(), other.state()])

async def main():
    async with GenericEnvClient(base_url=url) as env:
        other = await env.new_session()
        await env.reset(seed=1, episode_id="one")
        await other.reset(seed=1, episode_id="two")
        await other.step({"n": 1})
        return [await env.state(), await other.state()]

heard.append(asyncio.run(main()))
""",
    "errors": """
with GenericEnvClient(base_url=url).sync() as env:
    env.reset(seed=1)
    heard.append(told(lambda: env.step({"n": -1})))
    heard.append(told(lambda: env.step({"nothing": 1})))
    heard.append(told(lambda: env.step({"do": "fail"})))
    heard.append(told(lambda: env.reset(broken=True)))
    heard.append(plain(env.reset(seed=1)))
heard.append(told(lambda: GenericEnvClient()))
heard.append(told(lambda: GenericEnvClient(base_url=url, mode="neither")))
heard.append(told(lambda: setattr(GenericEnvClient(base_url=url), "_mode", "production")))
nobody = told(lambda: GenericEnvClient(base_url="http://127.0.0.1:9", connect_timeout_s=5.0).sync().connect())
heard.append([nobody[0], nobody[1].split("/ws: ")[0]])

async def mixed():
    env = GenericEnvClient(base_url=url)
    await env.reset(seed=1)
    found = await asyncio.to_thread(told, lambda: env.sync().reset())
    await env.close()
    return found

heard.append(asyncio.run(mixed()))
""",
    "closed": """
async def main():
    env = GenericEnvClient(base_url=url)
    await env.reset(seed=1, episode_id="e")
    await env.step({"n": 1})
    await env.close()
    again = plain(await env.reset(seed=1, episode_id="f"))
    found = [again, await env.state()]
    await env.disconnect()
    await env.disconnect()
    await env.close()
    return found

heard.append(asyncio.run(main()))
""",
    "loops": """
env = GenericEnvClient(base_url=url)

async def play(seed):
    found = plain(await env.reset(seed=seed, episode_id="e%d" % seed))
    return [found, plain(await env.step({"do": "pick", "n": seed}))]

heard.append(asyncio.run(play(1)))
heard.append(asyncio.run(play(2)))

async def end():
    await env.close()

asyncio.run(end())
""",
    "timeouts": """
import os
gate = os.path.join(sys.argv[2], "%d.gate" % os.getpid())

async def main():
    async with GenericEnvClient(base_url=url, message_timeout_s=2.0) as env:
        await env.reset(seed=1, episode_id="e")
        found = [(await atold(env.step({"do": "gate", "gate": gate})))[0] in ("TimeoutError",)]
        open(gate, "w").close()
        # The late answer is nobody's: the next call has a session of its own.
        found.append(plain(await env.reset(seed=1, episode_id="f")))
        found.append(plain(await env.step({"do": "pick", "n": 1})))
        task = asyncio.ensure_future(env.step({"do": "gate", "gate": gate + "-2"}))
        while not os.path.exists(gate + "-2.began"):
            await asyncio.sleep(0.01)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            found.append("cancelled")
        open(gate + "-2", "w").close()
        found.append(plain(await env.reset(seed=2, episode_id="g")))
        return found

heard.append(asyncio.run(main()))
""",
}
TOOLS = """
import asyncio, json, sys
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.mcp_client import MCPToolClient

url = sys.argv[1]

async def told(awaitable):
    try:
        return repr(await awaitable)
    except Exception as error:
        return [type(error).__name__, str(error)]

async def main():
    async with MCPToolClient(base_url=url) as env:
        await env.reset()
        tools = await env.list_tools()
        found = [[type(tool).__name__, tool.name, tool.description, tool.input_schema] for tool in tools]
        found.append(await env.call_tool("echo_message", message="hi"))
        found.append(await env.call_tool("echo_with_length", message="abc"))
        found.append([await env.has_tool("echo_message"), await env.has_tool("nope"), (await env.get_tool("echo_message")).name])
        found.append(await told(env.call_tool("nope")))
        found.append(await told(env.call_tool("echo_message", wrong=1)))
        result = await env.step(CallToolAction(tool_name="echo_message", arguments={"message": "by a step"}))
        found.append([type(result.observation).__name__, result.observation.tool_name, result.done])
        result = await env.step(ListToolsAction())
        found.append([type(result.observation).__name__, [tool.name for tool in result.observation.tools]])
        found.append(type(await env.state()).__name__)
        return found

heard = [asyncio.run(main())]
with MCPToolClient(base_url=url).sync() as env:
    env.reset()
    heard.append([[tool.name for tool in env.list_tools()], env.call_tool("echo_message", message="sync")])
try:
    MCPToolClient(base_url=url, mode="simulation")
except ValueError as error:
    heard.append(str(error))
print(json.dumps(heard))
"""


@pytest.fixture
def both(tmp_path):
    """Runs a script under the real OpenEnv and under ours: what each has heard."""

    def run(code: str, *args: str) -> tuple[object, object]:
        assert ROOT.search(code)
        theirs = run_stock(reference_python(), tmp_path, code, *args)
        ours = run_stock(Path(sys.executable), tmp_path, ROOT.sub(r"\1 envharness.compat.openenv", code), *args)
        return normal(ours), normal(theirs)

    return run


@pytest.mark.parametrize("server", ["meadow", "stock"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_hears_the_same(name, server, both, grounds, request):
    code = HEAD + SCRIPTS[name] + "\nprint(json.dumps(heard, default=dict))\n"
    ours, theirs = both(code, request.getfixturevalue(server).url, str(grounds))
    assert ours == theirs and theirs


@pytest.fixture(params=["ours", "theirs"])
def toolbox(request, tmp_path_factory):
    if request.param == "ours":
        server = start("tool_echo:app", *WITH, "--max-sessions", "8", home=shared_home(tmp_path_factory), cwd=RECORDED)
    else:
        server = start_reference("tool_echo:app", cwd=RECORDED)
    with running(server):
        yield server.url


def test_tool_clients_hear_the_same(toolbox, both):
    ours, theirs = both(TOOLS, toolbox)
    assert ours == theirs and theirs


IMPORTS = """
import json, sys
before = list(sys.meta_path)
import envharness.compat.openenv
import envharness.compat.openenv.core.env_client
import envharness.compat.openenv.core.mcp_client
from envharness.compat.openenv import EnvClient, GenericEnvClient, MCPToolClient, StepResult, SyncEnvClient, core
loaded = sorted({name.split(".")[0] for name in sys.modules})
print(json.dumps({"hooks": sys.meta_path == before, "loaded": loaded, "place": GenericEnvClient.__module__}))
"""
BESIDE = """
import json, sys
from envharness.compat.openenv import GenericEnvClient as Ours
from openenv import GenericEnvClient as Theirs
import openenv, openenv.core.env_server, openenv_core
from openenv.core.env_client import EnvClient
print(json.dumps([Ours is not Theirs, issubclass(Theirs, EnvClient), not issubclass(Ours, EnvClient), openenv.__file__, Ours.__module__, Theirs.__module__]))
"""


def test_an_import_brings_nothing_along(tmp_path):
    told = run_stock(Path(sys.executable), tmp_path, IMPORTS)
    assert told["hooks"] is True and told["place"] == "envharness.compat.openenv.core.generic_client"
    heavy = {"gradio", "fastapi", "uvicorn", "starlette", "websockets", "httpx", "fastmcp", "mcp", "numpy", "requests"}
    assert not heavy & set(told["loaded"]) and not {"openenv", "openenv_core", "core"} & set(told["loaded"])


def test_it_stands_beside_a_real_openenv(tmp_path):
    # A folder of this package alone, before the packages of the real one.
    package = Path(envharness.__file__).parent
    (tmp_path / "envharness").symlink_to(package)
    told = run_stock(reference_python(), tmp_path, BESIDE)
    assert told[:3] == [True, True, True]
    assert Path(told[3]).is_relative_to(reference_python().parent.parent)
    assert told[4:] == ["envharness.compat.openenv.core.generic_client", "openenv.core.generic_client"]


def test_without_pydantic_it_says_what_is_missing(tmp_path):
    write(tmp_path / "pydantic.py", "raise ImportError(\"No module named 'pydantic'\")\n")
    code = "from envharness.compat.openenv import MCPToolClient"
    environ = {"PATH": os.defpath, "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode and "pydantic" in done.stderr.splitlines()[-1]
