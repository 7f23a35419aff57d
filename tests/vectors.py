"""What the tests of vectors share: Gymnasium environments of many kinds, and what an episode of several of them is."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write
from serving import WITH, running, shared_home, start, start_reference

import envharness as eh

PLANT = '''
"""Gymnasium environments: one for each kind of space, and one that does as it is told."""

import os
import signal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text


class Episodes(gymnasium.Env):
    """Episodes of random length that end in either way, with infos now and then."""

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 5}
    action_space = Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 7))
        self.pushed = 0.0
        return self.look(), {"left": self.left, **({"options": options} if options else {})}

    def step(self, action):
        self.left -= 1
        self.pushed += float(np.sum(action))
        info = {"left": self.left} if self.left % 2 else {}
        cut = self.left % 3 == 0
        return self.look(), self.pushed / 3, self.left <= 0 and not cut, self.left <= 0 and cut, info

    def render(self):
        return np.full((2, 3, 3), self.left, np.uint8) if self.render_mode == "rgb_array" else "left: {}".format(self.left)


class Drift(Episodes):
    observation_space, action_space = Box(-np.inf, np.inf, (3,), np.float32), Box(-1, 1, (2,), np.float32)

    def look(self):
        return np.array([self.pushed, self.np_random.random(), self.left], np.float32)


class Picture(Episodes):
    observation_space, action_space = Box(0, 255, (4, 5, 3), np.uint8), MultiBinary(3)

    def look(self):
        return self.np_random.integers(0, 255, (4, 5, 3)).astype(np.uint8)


class Grid(Episodes):
    observation_space, action_space = Discrete(5, start=-2), MultiDiscrete([3, 2])

    def look(self):
        return np.int64(self.np_random.integers(-2, 3))


class Half(Episodes):
    """A NaN among its numbers."""

    observation_space = Box(-np.inf, np.inf, (2, 2), np.float16)

    def look(self):
        return np.array([[np.nan, self.np_random.random()], [-0.0, self.left]], np.float16)


class Chest(Episodes):
    observation_space = Dict({"gold": Box(0, 1, (2,), np.float64), "key": Discrete(3), "name": Text(4, charset="ab")})

    def look(self):
        return {"gold": self.np_random.random(2), "key": self.np_random.integers(3), "name": "ab"[: 1 + self.left % 2]}


class Switch(gymnasium.Env):
    """0 goes on, 1 raises, 2 ends the process, 3 ends the episode; it shows its process, and how often it was stepped."""

    observation_space, action_space = Box(0, 2**40, (2,), np.int64), Discrete(4)
    broken = False

    def look(self):
        return np.array([os.getpid(), self.steps], np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if type(self).broken or (seed is not None and (options or {}).get("broken") == seed):
            type(self).broken = False
            raise RuntimeError("no start")
        type(self).broken = bool((options or {}).get("next"))
        self.steps = 0
        return self.look(), {}

    def step(self, action):
        if action == 1:
            raise RuntimeError("a fuse blew")
        if action == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1
        return self.look(), 1.0, bool(action == 3), False, {}
'''


@pytest.fixture(name="plant", scope="session")
def plant_fixture(tmp_path_factory) -> Path:
    """The folder of the module."""
    return write(tmp_path_factory.mktemp("plant") / "plant.py", PLANT).parent


@pytest.fixture(name="module")
def module_fixture(plant, monkeypatch):
    """The module in this process."""
    monkeypatch.syspath_prepend(str(plant))
    return importlib.import_module("plant")


@pytest.fixture(name="served", scope="module")
def served_fixture(plant, tmp_path_factory):
    """Serves an environment once for all tests of a module of tests that ask for it; `serve` ends with the test."""
    servers: dict[tuple[Any, ...], Any] = {}

    def of(target: str, *args: Any):
        key = (target, *args)
        if key not in servers:
            servers[key] = running(start(target, *args, home=shared_home(tmp_path_factory), cwd=plant))
            servers[key] = (servers[key], servers[key].__enter__())
        return servers[key][1]

    yield of
    for manager, _ in servers.values():
        manager.__exit__(None, None, None)


def plain(value: Any) -> Any:
    """Values that compare, arrays with their types."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value


def parts(result: eh.VectorResult) -> dict[str, Any]:
    """All of a result in values that compare."""
    assert not result.errors, result.errors
    return {name: plain(list(value) if name == "infos" else value) for name, value in vars(result).items()}


def told(envs: eh.VectorClient, actions: list[Any], seed: int = 5) -> list[dict[str, Any]]:
    """Episodes: a reset, steps, a masked reset in `disabled` mode where episodes end."""
    heard = [parts(envs.reset(seeds=seed))]
    for action in actions:
        result = envs.step(action)
        heard.append(parts(result))
        if envs.autoreset == "disabled" and result.dones.any():
            heard.append(parts(envs.reset(slots=result.dones)))
    return heard


def samples(space: Any, count: int, steps: int) -> list[Any]:
    """Batches of actions."""
    space.seed(3)
    return [np.array([space.sample() for _ in range(count)]) for _ in range(steps)]


#: An env package of one module, whose spaces are told by its schemas alone; the reference serves it too.
ORCHARD = '''
"""An orchard: a walk between five trees."""

import os
import random
from typing import Any, List, Literal, Optional

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class Walk(Action):
    move: Literal["left", "stay", "right"]


class Trees(Observation):
    at: int = Field(default=0, ge=0, le=4)
    ripe: bool = False
    apples: List[float] = Field(default=[0.0, 0.0], min_length=2, max_length=2)


class Orchard(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state, self._random = State(episode_id="none", step_count=0), random.Random(0)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, at: int = 2, **kwargs: Any) -> Trees:
        self._at = at
        if seed is not None:
            self._random = random.Random(seed)
        self._state = State(episode_id=episode_id or "e", step_count=0)
        return Trees(at=self._at)

    def step(self, action: Walk, timeout_s: Optional[float] = None, **kwargs: Any) -> Trees:
        self._state.step_count += 1
        self._at = min(4, max(0, self._at + {"left": -1, "stay": 0, "right": 1}[action.move]))
        cut = self._state.step_count == 6
        reward = None if action.move == "stay" else self._random.random()
        apples = [self._random.random(), float(self._at)]
        done, told = self._at == 4 or cut, {"truncated": True} if cut else {}
        return Trees(at=self._at, ripe=self._at > 2, apples=apples, reward=reward, done=done, metadata=told)

    @property
    def state(self) -> State:
        return self._state


app = create_app(Orchard, Walk, Trees, env_name="orchard", max_concurrent_envs=int(os.getenv("MAX_CONCURRENT_ENVS", "32")))
'''


@pytest.fixture(name="orchards", scope="module")
def orchards_fixture(tmp_path_factory):
    """The addresses of our server of the orchard and of the reference's."""
    folder = write(tmp_path_factory.mktemp("orchard") / "orchard.py", ORCHARD).parent
    ours = start("orchard:app", *WITH, home=shared_home(tmp_path_factory), cwd=folder)
    with running(ours), running(start_reference("orchard:app", cwd=folder)) as stock:
        yield ours.url, stock.url
