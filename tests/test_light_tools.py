"""The light openenv's tool environments: what a stock server answers, at a fraction of its cost."""

from __future__ import annotations

import json
import textwrap

from light import ENVS, recorded, tools, tools_python  # noqa: F401

def test_tools_answer_as_recorded(tools):
    cases = recorded("tool_echo")
    steps = [step for step in cases["tools through step"]["steps"] if step["send"]["type"] == "step"]
    answers = tools(
        f"""
        import asyncio
        import pydantic_core
        from tool_echo import ToolEchoEnvironment
        from openenv.core.env_server.mcp_types import CallToolAction
        from openenv.core.env_server.serialization import deserialize_action, serialize_observation
        env = ToolEchoEnvironment()
        show(env._mcp_list_tools())
        show(env._mcp_call_tool("echo_message", {{"message": "hi"}}))
        show(asyncio.run(env._mcp_list_tools_async()))
        show(asyncio.run(env._mcp_call_tool_async("echo_message", {{"message": "hi"}})))
        try:
            env._mcp_call_tool("nope", {{}})
        except Exception as error:
            show(str(error))
        for data in json.loads({json.dumps([step["send"]["data"] for step in steps])!r}):
            action = deserialize_action(data, CallToolAction)
            for observation in (env.step(action), asyncio.run(env.step_async(action))):
                print(pydantic_core.to_json(serialize_observation(observation)).decode())
        """,
        path=(ENVS,),
    )
    listed = cases["mcp tools/list"]["reply"]["result"]["tools"]
    called = cases["mcp tools/call"]["reply"]["result"]
    assert answers[:5] == [listed, called, listed, called, cases["mcp unknown tool"]["reply"]["error"]["message"]]
    for number, step in enumerate(steps):
        one, other = answers[5 + 2 * number : 7 + 2 * number]
        assert one == other == without_links(step["recv"]["data"], one)


def without_links(wanted: dict, got: dict) -> dict:
    """Pydantic's links carry its version; where only they differ, the texts are equal."""
    said, meant = (side["observation"].get("error") or {} for side in (got, wanted))
    if said and meant:
        strip = [[line for line in side["message"].splitlines() if "errors.pydantic.dev" not in line] for side in (said, meant)]
        assert strip[0] == strip[1] and said["error_type"] == meant["error_type"]
        return {**wanted, "observation": {**wanted["observation"], "error": said}}
    return wanted


TOOLS = """
import asyncio, logging, threading, time
logging.disable(logging.CRITICAL)
from fastmcp import Context, FastMCP
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.env_server.types import Action, Observation, State

class Env(MCPEnvironment):
    def reset(self, seed=None, episode_id=None, **kwargs): return Observation()
    def _step_impl(self, action, timeout_s=None, **kwargs): return Observation(metadata={"was": type(action).__name__})
    @property
    def state(self): return State()

server = FastMCP("server")

def called(env, name, timeout=None, **arguments):
    observation = env.step(CallToolAction(tool_name=name, arguments=arguments), timeout_s=timeout)
    if observation.error is not None:
        return [observation.error.error_type.value, observation.error.message]
    return observation.result.data

def called_async(env, name, timeout=None, **arguments):
    observation = asyncio.run(env.step_async(CallToolAction(tool_name=name, arguments=arguments), timeout_s=timeout))
    return observation.error.error_type.value if observation.error else observation.result.data
"""


def test_tools_of_every_kind_are_called(tools):
    answers = tools(
        TOOLS
        + textwrap.dedent(
            """
            @server.tool
            def runs_a_loop() -> int: return asyncio.run(asyncio.sleep(0, 5))
            @server.tool
            async def waits(text: str) -> str:
                await asyncio.sleep(0)
                return text
            @server.tool
            async def with_context(text: str, context: Context) -> str:
                await context.info("seen by the client")
                return text + str(bool(context.request_id))
            @server.tool
            def asks_for_context() -> bool:
                from fastmcp.server.dependencies import get_context
                return get_context() is not None
            @server.tool
            def fails(): raise RuntimeError("boom")
            @server.tool
            def fails_otherwise(): raise ValueError("invalid move")
            @server.tool
            def promises() -> int: return "text"
            part = FastMCP("part")
            @part.tool
            def inner(number: int) -> int: return number
            env = Env(server)
            for call in (called, called_async):
                show([call(env, "runs_a_loop"), call(env, "waits", text="a"), call(env, "with_context", text="b"),
                      call(env, "asks_for_context")])
            show([called(env, "fails"), called(env, "fails_otherwise"), called(env, "promises")[0], called(env, "nope")])
            @server.tool
            def later() -> str: return "added"
            show([called(env, "later"), env.step(Action()).metadata, asyncio.run(env.step_async(Action())).metadata])
            server.mount(part, "part")
            show([called(env, "part_inner", number=3), called(env, "later"), len(env.step(ListToolsAction()).tools)])
            env.close()
            show([called(env, "later"), env.step(ListToolsAction()).metadata["error_type"]])
            """
        )
    )
    closed = "MCP client is not available; environment is closed"
    assert answers == [
        [5, "a", "bTrue", True],
        [5, "a", "bTrue", True],
        [
            ["execution_error", "Error calling tool 'fails': boom"],
            ["invalid_args", "Error calling tool 'fails_otherwise': invalid move"],
            "invalid_args",
            ["tool_not_found", "Unknown tool: 'nope'"],
        ],
        ["added", {"was": "Action"}, {"was": "Action"}],
        [3, "added", 9],
        [["execution_error", closed], "list_tools_failed"],
    ]


def test_a_tool_that_takes_too_long_is_given_up_and_the_next_call_answers(tools):
    answers = tools(
        TOOLS
        + textwrap.dedent(
            """
            release = threading.Event()
            @server.tool
            def stuck() -> int:
                release.wait()
                return 1
            @server.tool
            async def stuck_async() -> int:
                await asyncio.sleep(3600)
            @server.tool
            def quick() -> int: return 2
            env = Env(server)
            show(called(env, "stuck", 0.05))
            show([called(env, "stuck_async", 0.05)[0], called_async(env, "stuck_async", 0.05), called(env, "quick")])
            release.set()
            show(called(env, "quick"))
            # As a worker ends: threads in native code and the end of an interpreter do not go together before Python 3.14.
            import os, sys
            sys.stdout.flush()
            os._exit(0)
            """
        )
    )
    assert answers == [["timeout", "Tool 'stuck' timed out after 0.05 seconds"], ["timeout", "timeout", 2], 2]


def test_a_forked_child_calls_tools_with_threads_of_its_own(tools):
    answers = tools(
        TOOLS
        + textwrap.dedent(
            """
            import os, sys
            @server.tool
            def echo(text: str) -> str: return text
            @server.tool
            async def echo_async(text: str) -> str: return text
            @server.tool
            async def connected(text: str, context: Context) -> str: return text
            env = Env(server)
            names = ("echo", "echo_async", "connected")
            show([called(env, name, text="p") for name in names])
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                show([called(env, name, text="c") for name in names])
                sys.stdout.flush()
                os._exit(0)
            show(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            """
        )
    )
    assert answers == [["p"] * 3, ["c"] * 3, 0]


def test_tools_by_mode_code_and_reserved_names(tools):
    answers = tools(
        TOOLS
        + textwrap.dedent(
            """
            @server.tool
            def add(a: int, b: int) -> int: return a + b
            env = Env(server)
            @env.tool()
            def always(a: int): return a * 2
            @env.tool(mode="simulation")
            def only(a: int, b: float, c: bool, d="z"):
                "doc"
                return a
            @env.tool(mode="production")
            async def only(a: int): return -a
            show([called(env, "always", a=2), called(env, "only", a=1)])
            env._mode = "simulation"
            show([called(env, "only", a=1, b=1.0, c=True), env.step(ListToolsAction()).tools[-1].model_dump()])
            env._mode = "production"
            show([called(env, "only", a=1), called_async(env, "only", a=1), sorted(env.get_callables())])
            show([env.execute_code(code).metadata for code in ("result = add(1, 2) + always(4)", "result = 1 / 0", "result = (")])
            def attempt(call):
                try:
                    call()
                except ValueError as error:
                    show(str(error))
            attempt(lambda: env.tool(mode="other"))
            def reset(): pass
            attempt(lambda: env.tool()(reset))
            bad = FastMCP("bad")
            bad.tool(reset)
            attempt(lambda: Env(bad))
            """
        )
    )
    parameters = {"a": {"type": "integer"}, "b": {"type": "number"}, "c": {"type": "boolean"}, "d": {"type": "string"}}
    schema = {"type": "object", "properties": parameters, "required": ["a", "b", "c"]}
    reserved = "Reserved names are: ['close', 'reset', 'state', 'step']"
    assert answers[0] == [4, ["tool_not_found", "Tool 'only' not available in None mode"]]
    assert answers[1] == [1, {"name": "only", "description": "doc", "input_schema": schema}]
    assert answers[2] == [-1, -1, ["add", "always", "only"]]
    assert answers[3][:2] == [{"result": 11}, {"error": "division by zero"}]
    assert answers[3][2]["error"].startswith("Syntax error: ")
    assert answers[4:] == [
        "Invalid mode 'other'. Mode must be 'production', 'simulation', or None.",
        f"Tool name 'reset' is reserved and cannot be used. {reserved}",
        f"MCP tools cannot use reserved names: ['reset']. {reserved}",
    ]
