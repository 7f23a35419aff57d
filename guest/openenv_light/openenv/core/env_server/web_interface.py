"""The web interface as packages know it: its application is only described, its metadata and its manager are real."""

import asyncio
import functools
import inspect
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, List, Optional

from pydantic import BaseModel, ConfigDict, Field

from ... import _missing
from ._utils import overrides_method
from .http_server import EnvApp, _create
from .interfaces import Environment
from .serialization import deserialize_action_with_preprocessing, serialize_observation
from .types import EnvironmentMetadata, State


def load_environment_metadata(env, env_name=None):
    """Metadata of an instance, as it gives it; of a class or factory, its name and the README that lies about."""
    if isinstance(env, Environment):
        return env.get_metadata()
    if isinstance(env, functools.partial):
        env = env.func
    class_name = env.__name__ if inspect.isclass(env) else env_name or env.__name__
    return EnvironmentMetadata(
        name=env_name or class_name,
        description="%s environment" % class_name,
        version="1.0.0",
        readme_content=_readme(env_name),
    )


def _readme(env_name):
    candidates = [os.environ.get("ENV_README_PATH")]
    if env_name:
        candidates.append("envs/%s/README.md" % env_name)
    candidates += ["/app/env/README.md", "/app/README.md"]
    for path in candidates:
        if not path:
            continue
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            return text
    return None


class ActionLog(BaseModel):
    """One step in an episode's log."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, defer_build=True)

    timestamp: str = Field(description="When")
    action: Dict[str, Any] = Field(description="What was done")
    observation: Dict[str, Any] = Field(description="What was observed")
    reward: Optional[float] = Field(default=None, description="What it was worth")
    done: bool = Field(description="Whether the episode ended with it")
    step_count: int = Field(description="Steps until then")


class EpisodeState(BaseModel):
    """An episode as the web interface shows it."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, defer_build=True)

    episode_id: Optional[str] = Field(default=None, description="Its id")
    step_count: int = Field(description="Steps so far")
    current_observation: Optional[Dict[str, Any]] = Field(default=None, description="Last observation")
    action_logs: List[ActionLog] = Field(default_factory=list, description="Steps, the oldest first")
    is_reset: bool = Field(default=True, description="Whether no step was taken yet")


class WebInterfaceManager:
    """One environment with the log of its episode, told to all sockets that look on."""

    MAX_ACTION_LOGS = 1000

    def __init__(self, env, action_cls, observation_cls, metadata=None):
        """``env`` is an instance, or a factory that is called once."""
        self.env = env if isinstance(env, Environment) else env()
        self.action_cls = action_cls
        self.observation_cls = observation_cls
        name = type(self.env).__name__
        self.metadata = metadata or EnvironmentMetadata(name=name, description="%s environment" % name)
        self.episode_state = EpisodeState(step_count=0)
        self.connected_clients = []
        # One thread: libraries with a sync interface want to be called from the same one each time.
        self._executor = ThreadPoolExecutor(max_workers=1)

    async def connect_websocket(self, websocket):
        """Accepts a socket and sends it the episode."""
        await websocket.accept()
        self.connected_clients.append(websocket)
        await self._send_state_update()

    async def disconnect_websocket(self, websocket):
        """Forgets a socket."""
        if websocket in self.connected_clients:
            self.connected_clients.remove(websocket)

    async def _send_state_update(self):
        if not self.connected_clients:
            return
        text = json.dumps({"type": "state_update", "episode_state": self.episode_state.model_dump()})
        for client in list(self.connected_clients):
            try:
                await client.send_text(text)
            except Exception:
                # A socket that is gone tells so by failing.
                self.connected_clients.remove(client)

    async def _in_thread(self, function, *args, **kwargs):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, functools.partial(function, *args, **kwargs))

    async def reset_environment(self, reset_kwargs=None):
        """Starts an episode with those arguments that reset takes, and gives the serialised observation."""
        is_async = overrides_method(self.env.reset_async, Environment.reset_async)
        reset = self.env.reset_async if is_async else self.env.reset
        parameters = inspect.signature(reset).parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        kwargs = {key: value for key, value in (reset_kwargs or {}).items() if takes_all or key in parameters}
        observation = await (reset(**kwargs) if is_async else self._in_thread(reset, **kwargs))
        serialized = serialize_observation(observation)
        self.episode_state = EpisodeState(
            episode_id=self.env.state.episode_id, step_count=0, current_observation=serialized["observation"]
        )
        await self._send_state_update()
        return serialized

    async def step_environment(self, action_data):
        """Takes a step, logs it, and gives the serialised observation."""
        action = deserialize_action_with_preprocessing(action_data, self.action_cls)
        observation = await self._in_thread(self.env.step, action)
        state = self.env.state
        serialized = serialize_observation(observation)
        log = ActionLog(
            timestamp=datetime.now().isoformat(),
            action=action.model_dump(exclude={"metadata"}),
            observation=serialized["observation"],
            reward=observation.reward,
            done=observation.done,
            step_count=state.step_count,
        )
        self.episode_state = EpisodeState(
            episode_id=state.episode_id,
            step_count=state.step_count,
            current_observation=serialized["observation"],
            action_logs=(self.episode_state.action_logs + [log])[-self.MAX_ACTION_LOGS :],
            is_reset=False,
        )
        await self._send_state_update()
        return serialized

    def get_state(self):
        """The environment's state as a dict."""
        return self.env.state.model_dump()


def create_web_interface_app(
    env,
    action_cls,
    observation_cls,
    env_name=None,
    max_concurrent_envs=None,
    concurrency_config=None,
    gradio_builder=None,
    custom_tab_name="Custom",
    custom_tab_primary=False,
    show_default_tab=True,
    title_override=None,
    state_cls=State,
    *,
    mode=None,
    reset_observation_cls=None
):
    """Describes an environment's server with its web interface on."""
    return _create(
        EnvApp(
            env,
            action_cls,
            observation_cls,
            env_name,
            max_concurrent_envs,
            concurrency_config,
            gradio_builder,
            custom_tab_name,
            custom_tab_primary,
            show_default_tab,
            title_override,
            state_cls,
            mode,
            reset_observation_cls,
            web=True,
        )
    )


def __getattr__(name):
    raise _missing.name(__name__, name)
