"""The light ``openenv`` of the guest: what env packages import behaves as the real package does on the wire.

Everything runs in an interpreter that has pydantic and fastmcp and no openenv, with the light package first on its path.
"""

from __future__ import annotations

import shutil
import textwrap

import pytest
from conftest import INTERPRETERS
from light import ENVS, HINT, light, make_venv, recorded, runner, tools, tools_python  # noqa: F401

# -- models ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain_echo", "value_probe", "tool_echo"])
def test_schemas_of_recorded_environments_are_the_recorded_ones(name, tools):
    reply = recorded(name)["get /schema"]["reply"]
    [schemas] = tools(
        f"""
        import {name}
        app = {name}.app
        show({{key: getattr(app, key + "_cls").model_json_schema() for key in ("action", "observation", "state", "reset_observation")}})
        """,
        path=(ENVS,),
    )
    assert schemas == reply


def test_models_judge_as_the_real_ones(light):
    answers = light(
        """
        from pydantic import ValidationError
        from openenv.core.env_server.types import Action, Observation, State, ServerCapacityStatus, ConcurrencyConfig
        def attempt(make):
            try:
                return make().model_dump(mode="json")
            except ValidationError as error:
                return [item["type"] for item in error.errors()]
        show(attempt(lambda: Action(extra=1)))
        show(attempt(lambda: Observation(reward=True)))
        show(attempt(lambda: Observation(reward=3)))
        show(attempt(lambda: State(step_count=-1)))
        show(attempt(lambda: State(step_count=2, more=[1])))
        show(attempt(lambda: ServerCapacityStatus(active_sessions=3, max_sessions=2)))
        show(ServerCapacityStatus.from_counts(2, 2).is_at_capacity)
        show(attempt(lambda: ConcurrencyConfig(max_concurrent_envs=0)))
        state = State()
        try:
            state.step_count = -1
        except ValidationError:
            show("assignments are judged")
        """
    )
    assert answers == [
        ["extra_forbidden"],
        {"done": False, "reward": True, "metadata": {}},
        {"done": False, "reward": 3, "metadata": {}},
        ["greater_than_equal"],
        {"episode_id": None, "step_count": 2, "more": [1]},
        ["value_error"],
        True,
        ["greater_than_equal"],
        "assignments are judged",
    ]
    assert [type(answers[1]["reward"]), type(answers[2]["reward"])] == [bool, int]


CUSTOM = """
from typing import Dict, List, Optional
from openenv.core.env_server.types import Action, Observation

class Board:
    def __init__(self, cells): self.cells = cells
    def to_json(self): return {"cells": self.cells}
    @classmethod
    def from_json(cls, value): return cls(list(value["cells"]))

class Mark:
    def __init__(self, text): self.text = text
    def to_json(self): return self.text
    @staticmethod
    def from_json(value): return Mark(value)
    @classmethod
    def json_schema(cls): return {"type": "string"}
"""


@pytest.mark.parametrize("future", [False, True], ids=["evaluated", "as-text"])
def test_custom_types_go_to_json_and_back(future, light, tmp_path):
    first = "from __future__ import annotations\n" if future else ""
    body = """
class Move(Action):
    board: Board
    marks: List[Mark] = []
    by_name: Optional[Dict[str, "Board"]] = None

class Seen(Observation):
    board: Optional[Board] = None
"""
    (tmp_path / "custom_models.py").write_text(first + CUSTOM + body)
    answers = light(
        """
        from custom_models import Board, Mark, Move, Seen
        from pydantic import ValidationError
        move = Move.model_validate_json('{"board": {"cells": [1]}, "marks": ["x"], "by_name": {"a": {"cells": []}}}')
        show([type(move.board).__name__, move.board.cells, move.marks[0].text, move.by_name["a"].cells])
        show(json.loads(move.model_dump_json()))
        board = Board([2])
        seen = Seen(board=board)
        show(seen.board is board and seen.model_dump()["board"] is board)
        show(json.loads(seen.model_dump_json()))
        schema = Move.model_json_schema()["properties"]
        show([schema["board"], schema["marks"]["items"]])
        try:
            Move(board={"no": "cells"})
        except ValidationError as error:
            show([(item["loc"], item["msg"]) for item in error.errors()])
        """,
        path=(tmp_path,),
    )
    dumped = {"metadata": {}, "board": {"cells": [1]}, "marks": ["x"], "by_name": {"a": {"cells": []}}}
    assert answers[:2] == [["Board", [1], "x", []], dumped]
    assert answers[2:4] == [True, {"done": False, "reward": None, "metadata": {}, "board": {"cells": [2]}}]
    assert answers[4][1] == {"type": "string"} and answers[4][0].get("type") is None
    assert answers[5] == [[["board"], "Value error, Board.from_json: KeyError: 'cells'"]]


def test_types_that_pydantic_knows_keep_their_form(light):
    answers = light(
        """
        import dataclasses
        from openenv.core.env_server.types import Observation
        @dataclasses.dataclass
        class Point:
            x: int
            def to_json(self): return "text"
            @classmethod
            def from_json(cls, value): return cls(0)
        class Frame:
            def to_json(self): return "no way back"
        class Seen(Observation):
            point: Point
            frame: Frame = None
        show(json.loads(Seen(point={"x": 1}).model_dump_json()))
        show(hasattr(Frame, "__get_pydantic_core_schema__"))
        """
    )
    assert answers == [{"done": False, "reward": None, "metadata": {}, "point": {"x": 1}, "frame": None}, False]


def test_actions_and_observations_cross(light):
    answers = light(
        """
        from openenv.core.env_server.serialization import (
            deserialize_action, deserialize_action_with_preprocessing, serialize_observation)
        from openenv.core.env_server.mcp_types import CallToolAction
        from openenv.core.env_server.types import Action, Observation
        class Own(Action):
            type: str = "own"
            action_id: int = 0
            tokens: list = []
        show(type(deserialize_action({"type": "list_tools"}, Action)).__name__)
        show(type(deserialize_action({"type": "list_tools"}, CallToolAction)).__name__)
        show(deserialize_action({"type": "list_tools"}, Own).type)
        call = {"type": "call_tool", "tool_name": "t", "arguments": '{"a": 1}'}
        show(deserialize_action_with_preprocessing(call, CallToolAction).arguments)
        show(deserialize_action_with_preprocessing({"action_id": "4", "tokens": "[1, 2]"}, Own).model_dump())
        show(serialize_observation(Observation(reward=1, metadata={"a": 1})))
        show(serialize_observation(Observation(done=True)))
        """
    )
    assert answers == [
        "ListToolsAction",
        "ListToolsAction",
        "list_tools",
        {"a": 1},
        {"metadata": {}, "type": "own", "action_id": 4, "tokens": [1, 2]},
        {"observation": {"metadata": {"a": 1}}, "reward": 1, "done": False, "metadata": {"a": 1}},
        {"observation": {"metadata": {}}, "reward": None, "done": True},
    ]


# -- environments and their servers -----------------------------------------------------------------------------------------

ENVIRONMENT = """
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from openenv.core.env_server.types import ConcurrencyConfig

class Env(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def reset(self, seed=None, episode_id=None, **kwargs): return Observation(metadata={"seed": seed})
    def step(self, action, timeout_s=None, **kwargs): return self._apply_transform(Observation(reward=1.0))
    @property
    def state(self): return State()

class One(Env):
    SUPPORTS_CONCURRENT_SESSIONS = False
"""


def test_environments_have_their_twins_and_transforms(light):
    answers = light(
        ENVIRONMENT
        + textwrap.dedent(
            """
            import asyncio
            from openenv.core.env_server.base_transforms import CompositeTransform, NullTransform
            from openenv.core.env_server.interfaces import Transform
            from openenv.core.env_server.web_interface import load_environment_metadata
            class Double(Transform):
                def __call__(self, observation):
                    observation.reward *= 2
                    return observation
            env = Env(transform=CompositeTransform([Double(), NullTransform(), Double()]))
            show(env.step(Action()).reward)
            show(asyncio.run(env.step_async(Action())).reward)
            show(asyncio.run(env.reset_async(seed=3)).metadata)
            show(env.get_metadata().model_dump(exclude_none=True))
            show(load_environment_metadata(Env, "env_name").model_dump(exclude_none=True))
            show([env._apply_rubric(None, None), env.render_web({}), env.web_actions({})])
            class Scored(Env):
                def __init__(self): super().__init__(rubric=lambda action, observation: 0.25)
            show(Scored()._apply_rubric(None, None))
            try:
                Environment()
            except TypeError:
                show("abstract")
            """
        )
    )
    assert answers == [
        4.0,
        4.0,
        {"seed": 3},
        {"name": "Env", "description": "Env environment", "version": "1.0.0"},
        {"name": "env_name", "description": "Env environment", "version": "1.0.0"},
        [0.0, None, []],
        0.25,
        "abstract",
    ]


def test_an_app_records_what_it_was_given(light):
    answers = light(
        ENVIRONMENT
        + textwrap.dedent(
            """
            from openenv.core.env_server.http_server import HTTPEnvServer, created_apps, create_fastapi_app
            app = create_app(Env, Action, Observation, env_name="named", max_concurrent_envs=8)
            show([app.env is Env, app.action_cls is Action, app.observation_cls is Observation, app.state_cls is State])
            show([app.reset_observation_cls is Observation, app.env_name, app.max_concurrent_envs, app.concurrency_config])
            show([app.mode.value, app.title, app.web, app.concurrency.max_concurrent_envs])
            other = create_fastapi_app(lambda: Env(), Action, Observation, concurrency_config=ConcurrencyConfig(session_timeout=5))
            show([other.env_name, other.max_concurrent_envs, other.concurrency_config.session_timeout, other.mode.value])
            show([one is two for one, two in zip(created_apps(), [app, other])])
            HTTPEnvServer(One, Action, Observation).register_routes(app, mode="simulation")
            show([app.env is One, app.env_name, app.mode.value])
            """
        ),
        OPENENV_MODE="production",
        ENABLE_WEB_INTERFACE="true",
    )
    assert answers == [
        [True, True, True, True],
        [True, "named", 8, None],
        ["production", "OpenEnv Environment HTTP API", True, 8],
        ["<lambda>", None, 5.0, "production"],
        [True, True],
        [True, "One", "simulation"],
    ]


def test_wrong_arguments_are_refused_in_the_known_words(light):
    answers = light(
        ENVIRONMENT
        + textwrap.dedent(
            """
            from openenv.core.env_server.exceptions import OpenEnvError
            def attempt(*args, **kwargs):
                try:
                    create_app(*args, **kwargs)
                except Exception as error:
                    show([type(error).__name__, isinstance(error, OpenEnvError), str(error)])
            attempt(Env(), Action, Observation)
            attempt(Env, Action, Observation, max_concurrent_envs=1, concurrency_config=ConcurrencyConfig())
            attempt(One, Action, Observation, max_concurrent_envs=2)
            attempt(Env, Action, Observation, mode="neither")
            """
        )
    )
    assert [answer[:2] for answer in answers] == [
        ["TypeError", False],
        ["ValueError", False],
        ["ConcurrencyConfigurationError", True],
        ["ValueError", False],
    ]
    texts = [answer[2] for answer in answers]
    assert "env must be a callable (class or factory function)" in texts[0]
    assert "Cannot specify both 'max_concurrent_envs' and 'concurrency_config'" in texts[1]
    assert "Environment 'One' is not marked as SUPPORTS_CONCURRENT_SESSIONS" in texts[2]
    assert texts[3] == "Invalid mode: 'neither'. Must be one of: ['simulation', 'production']"


@pytest.mark.parametrize("what", ["get", "post", "mount", "include_router", "add_middleware", "state", "on_event", "router"])
def test_routes_of_its_own_send_a_package_to_the_reference(what, light):
    [answer] = light(
        ENVIRONMENT
        + textwrap.dedent(
            f"""
            from openenv.core.env_server.exceptions import OpenEnvError, OwnRoutesError
            app = create_app(Env, Action, Observation)
            try:
                app.{what}
            except OwnRoutesError as error:
                show([isinstance(error, AttributeError), isinstance(error, OpenEnvError), str(error), hasattr(app, {what!r})])
            """
        )
    )
    assert answer[:2] == [True, True] and answer[3] is False
    assert f"`{what}`" in answer[2] and HINT in answer[2]


def test_a_foreign_app_and_a_direct_call_are_refused_too(light):
    answers = light(
        ENVIRONMENT
        + textwrap.dedent(
            """
            from openenv.core.env_server import HTTPEnvServer
            class FastAPI: pass
            app = create_app(Env, Action, Observation)
            for call in (lambda: HTTPEnvServer(Env, Action, Observation).register_routes(FastAPI()), lambda: app({}, None, None)):
                try:
                    call()
                except Exception as error:
                    show([type(error).__name__, str(error)])
            """
        )
    )
    assert [answer[0] for answer in answers] == ["OwnRoutesError", "OwnRoutesError"]
    assert "FastAPI" in answers[0][1] and all(HINT in answer[1] for answer in answers)


# -- names, old and missing -------------------------------------------------------------------------------------------------


def test_old_roots_are_the_same_modules(light):
    answers = light(
        """
        from core.env_server.types import Action as by_core
        warnings.simplefilter("ignore")
        from openenv_core.env_server.types import Action as by_old_name
        from openenv.core.env_server.types import Action
        import core, openenv.core, openenv_core
        import openenv_core.client_types, core.env_server.http_server
        show([by_core is Action, by_old_name is Action, core is openenv.core, openenv_core is openenv.core])
        show([openenv.core.__spec__.name, openenv_core.client_types.StepResult(1).done])
        """
    )
    assert answers == [[True, True, True, True], ["openenv.core", False]]


def test_an_old_root_works_before_anything_else_was_imported(light):
    answers = light("from openenv_core.env_server import create_app\nshow(create_app.__module__)", install=False, warnings="ignore")
    assert answers == ["openenv.core.env_server.http_server"]


def test_a_core_package_of_the_users_own_wins(light, tmp_path):
    (tmp_path / "own" / "core").mkdir(parents=True)
    (tmp_path / "own" / "core" / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "own" / "core" / "part.py").write_text("ALSO = True\n")
    answers = light("import core.part\nshow([core.MINE, core.part.ALSO])", path=(tmp_path / "own",))
    assert answers == [[True, True]]


def test_what_is_missing_is_named(light):
    answers = light(
        """
        import importlib.util
        statements = [
            "from openenv import AutoEnv",
            "from openenv.core.env_server.http_server import serve_forever",
            "from openenv.core import Nothing",
            "import openenv.harbor.models",
            "from openenv.core.containers.runtime.modal_provider import ModalProvider",
            "from openenv.core.containers.runtime import LocalDockerProvider",
            "import openenv; openenv.AutoAction",
        ]
        for statement in statements:
            try:
                exec(statement)
            except (ImportError, AttributeError) as error:
                show([type(error).__name__, str(error)])
        import openenv
        show([hasattr(openenv, "AutoEnv"), importlib.util.find_spec("openenv.harbor")])
        """
    )
    names = ["AutoEnv", "serve_forever", "Nothing", "openenv.harbor", "modal_provider", "LocalDockerProvider", "AutoAction"]
    kinds = ["ImportError"] * 3 + ["ModuleNotFoundError"] * 2 + ["ImportError", "AttributeError"]
    assert [answer[0] for answer in answers[:-1]] == kinds
    for name, (_, text) in zip(names, answers, strict=False):
        assert name in text and HINT in text
    assert answers[-1] == [False, None]


NAMES = """
openenv.core.client_types:StepResult openenv.core.env_client:EnvClient openenv.core.env_client:StepResult openenv.core:EnvClient
openenv.core.env_server:Action openenv.core.env_server:Environment openenv.core.env_server:MCPEnvironment
openenv.core.env_server.interfaces:Action openenv.core.env_server.interfaces:Message
openenv.core.env_server.interfaces:ModelTokenizer openenv.core.env_server.interfaces:Observation
openenv.core.env_server.interfaces:State openenv.core.env_server.interfaces:TaskProvider
openenv.core.env_server.types:CodeExecResult openenv.core.env_server.types:EnvironmentMetadata
openenv.core.env_server.mcp_types:ListToolsObservation openenv.core.env_server.mcp_types:Tool
openenv.core.containers.runtime:ContainerProvider openenv.core.harness:Message openenv.core.harness:ResourceSession
openenv.core.harness:ResourceSessionFactory openenv.core.harness:StepEnvSessionAdapter openenv.core.harness:ToolResult
openenv.core.harness:VerifyResult openenv.core.llm_client:LLMClient openenv.core.llm_client:ToolCall
openenv.core.llm_client:create_llm_client openenv.core.mcp_client:MCPToolClient openenv.core.rubrics.base:Rubric
openenv.core.rubrics.trajectory:ExponentialDiscountingTrajectoryRubric openenv.core.tools.git_server_client:GitServerClient
openenv.core.tools:PyExecutor openenv:GenericEnvClient openenv:GenericAction openenv:SyncEnvClient
""".split()


def check_names(run) -> None:
    answers = run(
        f"""
        import importlib, importlib.metadata, sys
        for name in {NAMES!r}:
            module, _, attribute = name.partition(":")
            getattr(importlib.import_module(module), attribute)
        show([importlib.metadata.version("openenv"), importlib.metadata.version("openenv-core")])
        show(sorted({{"fastmcp", "fastapi", "gradio", "websockets", "httpx", "openai"}} & set(sys.modules)))
        """
    )
    assert answers == [["0.10.0", "0.10.0"], []]


def test_names_of_public_packages_load_pydantic_alone(light):
    check_names(light)


def test_python_3_8_and_the_first_pydantic_2_will_do(tmp_path):
    if "3.8" not in INTERPRETERS:
        pytest.skip("Python 3.8 is not on this machine")
    run = runner(make_venv(tmp_path / "venv", INTERPRETERS["3.8"], "pydantic==2.0"), tmp_path)
    check_names(run)
    (tmp_path / "custom_models.py").write_text(CUSTOM + "class Move(Action):\n    board: Optional[Board] = None\n")
    [dumped] = run(
        """
        from custom_models import Move
        show(json.loads(Move.model_validate({"board": {"cells": [1]}}).model_dump_json()))
        """,
        path=(tmp_path,),
    )
    assert dumped == {"metadata": {}, "board": {"cells": [1]}}


# -- rubrics ----------------------------------------------------------------------------------------------------------------

RUBRICS = """
import asyncio
from openenv.core.rubrics import *

class Const(Rubric):
    def __init__(self, value):
        super().__init__()
        self.value = value
    def forward(self, action, observation): return self.value

class Awaited(Const):
    async def forward(self, action, observation):
        await asyncio.sleep(0)
        return self.value
"""


def test_rubrics_compose_sync_and_awaited(light):
    answers = light(
        RUBRICS
        + textwrap.dedent(
            """
            show(Sequential()(1, 2))
            show(Sequential(Const(1.0), Const(0.5))(1, 2))
            show(Sequential(Const(0.0), Const(0.5))(1, 2))
            show(asyncio.run(Sequential(Const(1.0), Awaited(0.5), Const(0.25))(1, 2)))
            show([Gate(Const(0.4), 0.5)(1, 2), asyncio.run(Gate(Awaited(0.6), 0.5)(1, 2))])
            show(WeightedSum([Const(1.0), Const(0.5)], [0.25, 0.75])(1, 2))
            show(asyncio.run(WeightedSum([Const(1.0), Awaited(0.5)], [0.5, 0.5])(1, 2)))
            for make in (lambda: WeightedSum([Const(1)], [0.5]), lambda: WeightedSum([], [1.0]), lambda: RubricList()(1, 2)):
                try:
                    make()
                except (ValueError, NotImplementedError) as error:
                    show(str(error))
            """
        )
    )
    assert answers[:7] == [1.0, 0.5, 0.0, 0.25, [0.0, 0.6], 0.625, 0.75]
    assert answers[7:9] == ["Weights must sum to 1.0, got 0.5", "Number of rubrics (0) must match number of weights (1)"]
    assert "RubricList.forward() is not implemented" in answers[9]


def test_rubrics_know_their_children_and_their_hooks(light):
    answers = light(
        RUBRICS
        + textwrap.dedent(
            """
            class Tree(Rubric):
                def __init__(self):
                    super().__init__()
                    self.games = RubricDict({"pong": Const(0.5), "chess": Sequential(Const(1.0))})
                def forward(self, action, observation): return self.games[observation](action, observation)
            tree, log = Tree(), []
            tree.register_forward_pre_hook(lambda rubric, action, observation: log.append("before"))
            tree.register_forward_hook(lambda rubric, action, observation, score: log.append(score))
            show([tree(1, "pong"), tree.last_score, log, tree.games["pong"].last_score])
            show([path for path, _ in tree.named_rubrics()])
            show(tree.get_rubric("games.pong").value)
            try:
                tree.get_rubric("games.go")
            except KeyError as error:
                show(error.args[0])
            """
        )
    )
    assert answers == [
        [0.5, 0.5, ["before", 0.5], 0.5],
        ["games", "games.pong", "games.chess", "games.chess.rubric_0"],
        0.5,
        "Rubric path not found: games.go",
    ]


def test_trajectories_and_judges(light):
    answers = light(
        RUBRICS
        + textwrap.dedent(
            """
            from types import SimpleNamespace as Seen
            class Win(ExponentialDiscountingTrajectoryRubric):
                def score_trajectory(self, trajectory): return 2.0
            win = Win(gamma=0.5, intermediate_reward=0.1)
            show([win(1, Seen(done=False)), win(1, Seen(done=True)), win.compute_step_rewards(), win.state_dict()])
            win.reset()
            show([win.compute_step_rewards(), win.trajectory])
            class Model:
                async def complete(self, prompt):
                    self.prompt = prompt
                    return "I say 7 of 10"
            model = Model()
            judge = LLMJudge("rate {action} and {observation}", model)
            show([asyncio.run(judge("a", "o")), model.prompt, judge.state_dict()["default_score"]])
            show(asyncio.run(LLMJudge("x", model, score_pattern=r"of (\\d+)", normalize=False)(1, 2)))
            """
        )
    )
    assert answers == [
        [0.1, 2.0, [1.0, 2.0], {"intermediate_reward": 0.1, "gamma": 0.5}],
        [[], []],
        [1.0, "rate a and o", 0.0],
        10.0,
    ]


# -- clients, sessions, repositories ------------------------------------------------------------------------------------------


def test_a_client_speaks_the_protocol_from_both_worlds(tools):
    answers = tools(
        """
        import asyncio, threading
        from websockets.asyncio.server import serve
        from openenv import GenericAction, GenericEnvClient

        seen, ready = [], threading.Event()
        async def handle(socket):
            async for text in socket:
                message = json.loads(text)
                seen.append(message)
                if message["type"] == "close":
                    return
                if message.get("data", {}).get("stall"):
                    await asyncio.sleep(3600)
                if message.get("data", {}).get("bad"):
                    answer = {"type": "error", "data": {"message": "Invalid message", "code": "VALIDATION_ERROR"}}
                elif message["type"] == "state":
                    answer = {"type": "state", "data": {"step_count": 1}}
                else:
                    answer = {"type": "observation", "data": {"observation": {"echo": message["data"]}, "reward": 1.0, "done": False}}
                await socket.send(json.dumps(answer))
        async def main():
            global port
            async with serve(handle, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                ready.set()
                await asyncio.Event().wait()
        threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
        ready.wait()
        url = f"http://127.0.0.1:{port}"
        with GenericEnvClient(base_url=url) as client:
            show([client.reset(seed=1).observation, client.step(GenericAction(a=2)).reward, client.state(), client.base_url == url])
            try:
                client.step({"bad": True})
            except RuntimeError as error:
                show(str(error))
        show(seen)
        async def inside():
            async with GenericEnvClient(base_url=url) as client:
                other = await client.new_session()
                return [(await client.reset()).done, (await other.step({"x": 1})).observation]
        show(asyncio.run(inside()))
        with GenericEnvClient(base_url=url, message_timeout_s=0.05).sync() as client:
            try:
                client.step({"stall": True})
            except asyncio.TimeoutError:
                # The late reply goes with its socket.
                client.async_client._message_timeout = 30
                show(client.step({"n": 1}).observation)
        """
    )
    assert answers[0] == [{"echo": {"seed": 1}}, 1.0, {"step_count": 1}, True]
    assert answers[1] == "Server error: Invalid message (code: VALIDATION_ERROR)"
    assert answers[2][:3] == [{"type": "reset", "data": {"seed": 1}}, {"type": "step", "data": {"a": 2}}, {"type": "state"}]
    assert answers[3:] == [[False, {"echo": {"x": 1}}], {"echo": {"n": 1}}]


def test_clients_say_what_they_lack(light, tmp_path):
    answers = light(
        """
        import sys
        from openenv import GenericEnvClient
        from openenv.core.llm_client import create_llm_client
        from openenv.core.mcp_client import MCPToolClient
        from openenv.core.tools import PyExecutor
        for name in ("websockets", "openai", "anthropic", "smolagents"):
            sys.modules[name] = None
        attempts = [
            lambda: GenericEnvClient(base_url="http://127.0.0.1:1").sync().connect(),
            lambda: create_llm_client("openai", "m", "k"),
            lambda: create_llm_client("anthropic", "m", "k"),
            lambda: PyExecutor(),
            lambda: GenericEnvClient.from_docker_image("image").sync(),
            lambda: create_llm_client("other", "m", "k"),
            lambda: GenericEnvClient(),
            lambda: GenericEnvClient(base_url="u", mode="odd"),
            lambda: MCPToolClient("u", mode="simulation"),
        ]
        for attempt in attempts:
            try:
                attempt()
            except (ImportError, NotImplementedError, ValueError) as error:
                show(str(error))
        """
    )
    named = ["`websockets`", "`openai`", "`anthropic`", "`smolagents`", "LocalDockerProvider", "'other'", "base_url or provider"]
    named += ["Invalid mode: 'odd'", "only supports 'production' mode"]
    assert len(answers) == len(named) and all(name in text for name, text in zip(named, answers, strict=True))


def test_a_session_over_a_client_and_a_loop_over_a_model(light):
    answers = light(
        """
        from openenv.core.client_types import StepResult
        from openenv.core.env_server.mcp_types import Tool
        from openenv.core.harness import (MCPHarnessAdapter, ModelStepResult, StepEnvSessionAdapter, SessionMCPBridge,
            build_harness_rollout_func)
        from openenv.core.llm_client import LLMResponse, ToolCall
        class Client:
            closed = 0
            def reset(self, **kwargs): self.kwargs = kwargs; return StepResult("start")
            def step(self, action): return StepResult(action, reward=0.5, done=action == 2)
            def state(self): return {"step_count": 2}
            def close(self): self.closed += 1
        client = Client()
        def make(**kwargs):
            return StepEnvSessionAdapter(client, tool_specs=[Tool(name=kwargs.pop("name", "move"), description="", input_schema={})],
                action_builder=lambda name, arguments: arguments["n"],
                initial_messages_builder=lambda result, task: [{"role": "user", "content": task}], **kwargs)
        session = make(task="go", seed=4)
        bridge = SessionMCPBridge(session)
        show([client.kwargs, session.initial_messages(), session.call_tool("move", {"n": 1}).data["reward"]])
        show(bridge.handle_request({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fly"}})["error"])
        try:
            make(name="reset")
        except ValueError as error:
            show(str(error))
        turns = iter([1, 2])
        def model(messages, tools, sampling):
            return ModelStepResult(LLMResponse("", [ToolCall("c", "move", {"n": next(turns)})]), [1], [2], [0.5])
        class Factory:
            def create(self, task): return make(task=task)
        rollout = build_harness_rollout_func(session_factory=Factory(), harness_adapter=MCPHarnessAdapter(),
            model_step_builder=lambda trainer, session: model)
        show(rollout(["p"], None))
        show(client.closed)
        """
    )
    assert answers == [
        [{"seed": 4}, [{"role": "user", "content": "go"}], 0.5],
        {"code": -32601, "message": "Unknown tool: fly", "data": None},
        "Tool names are reserved for orchestration controls: reset",
        {
            "prompt_ids": [[1, 1]],
            "completion_ids": [[2, 2]],
            "logprobs": [[0.5, 0.5]],
            "env_reward": [0.5],
            "verify_metrics": [{"step_count": 2}],
        },
        1,
    ]


def test_a_workspace_is_put_back_to_its_commit(light, tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not on this machine")
    answers = light(
        f"""
        import subprocess
        from pathlib import Path
        from openenv.core.tools import GitServerClient
        root = Path({str(tmp_path)!r})
        source = root / "served" / "me" / "repo.git"
        source.mkdir(parents=True)
        client = GitServerClient((root / "served").as_uri(), "me", "secret", str(root / "work"))
        def git(*args): return subprocess.run(("git",) + args, cwd=source, check=True, capture_output=True, env=client._git_env)
        git("init", "-q", "-b", "main")
        (source / "file").write_text("one")
        git("add", "."); git("commit", "-qm", "first")
        try:
            client.clone_to_workspace("repo")
        except RuntimeError as error:
            show(str(error))
        client.is_ready = True
        path = Path(client.clone_to_workspace("repo"))
        commit = client.get_current_commit("repo")
        (path / "file").write_text("two"); (path / "extra").write_text("")
        show([client.reset_workspace("repo", commit), (path / "file").read_text(), (path / "extra").exists()])
        show([client.execute_git_command("status --short", "repo"), client.execute_git_command("status", "none")[0]])
        show([client.workspace_exists("repo"), "secret" in (Path.home() / ".gitconfig").read_text()
              if (Path.home() / ".gitconfig").exists() else False])
        """
    )
    assert answers == ["Gitea server is not ready", [True, "one", False], [[0, "", ""], 1], [True, False]]
