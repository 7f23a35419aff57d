"""A served environment as a `gymnasium.Env`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, Callable

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ClosedEnvironmentError

import envharness
from envharness._errors import EnvHarnessWarning, NotAvailableError
from envharness.gym.spaces import CHARSET, TEXT_LENGTH, Actions, Observations, Rules, render_modes_of

#: What addresses begin with; everything else is a target to serve.
ADDRESSES = ("ws://", "wss://", "http://", "https://", "unix:")
#: The place of the class, as gymnasium names it.
ENTRY_POINT = "envharness.gym.env:RemoteEnv"
REMOTE_ID = "envharness/Remote-v0"


class RemoteEnv(gymnasium.Env):
    """One instance of a served environment.

    Attributes:
        action_space: From the contract's ``action``.
        observation_space: From the contract's ``observation``.
        metadata: ``render_modes`` and ``render_fps``, as the environment says.
        render_mode: What it was made with.
        contract: What the server promises: name, version, schemas, digest.
    """

    # Read by `gymnasium.make` before there is an instance. Without `human`, so that it shows frames by its own wrapper.
    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "depth_array", "ansi"], "render_fps": 30}  # noqa: RUF012
    _client: Any = None
    _server: Any = None

    def __init__(
        self,
        url: str | os.PathLike[str] | type,
        render_mode: str | None = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        request_timeout: float = 60.0,
        open_options: Mapping[str, Any] | None = None,
        action_space: gymnasium.Space | None = None,
        observation_space: gymnasium.Space | None = None,
        encode: Callable[[Any], dict[str, Any]] | None = None,
        decode: Callable[[Any], Any] | None = None,
        optional: bool = False,
        text_length: int = TEXT_LENGTH,
        charset: str = CHARSET,
        missing_reward: float = 0.0,
        serve: Mapping[str, Any] | None = None,
    ) -> None:
        """Connects.

        Args:
            url: An address (``ws://``, ``http://``, ``unix:``), or what :func:`envharness.serve` takes, which is then
                served from this process as long as the environment is open.
            render_mode: ``rgb_array``, ``depth_array`` or ``ansi``, where the environment has it; the instance is made
                with it.
            token: What the server wants to be shown.
            headers: Further HTTP headers.
            request_timeout: The longest answer in seconds.
            open_options: What the instance is made with; our own server alone takes them.
            action_space: The space to use instead of the contract's.
            observation_space: The space to use instead of the contract's.
            encode: From an action to the message's dict.
            decode: From the observation's dict to a value of the observation space.
            optional: Keep the fields that an action may leave out, and those of an observation that may be null.
            text_length: The longest text where the schema has none, in characters.
            charset: The characters of texts.
            missing_reward: The reward where the environment gave none.
            serve: Arguments for :func:`envharness.serve`, where `url` is a target.

        Raises:
            NotAvailableError: A field has no space, or there is no such render mode.
            EnvHarnessError: No connection, or no such target.
        """
        self.render_mode, self.missing_reward = render_mode, missing_reward
        address, self._server = served(url, serve)
        try:
            options = given_options(open_options, render_mode)
            settings = {"token": token, "headers": headers, "request_timeout": request_timeout}
            check_render_mode(address, render_mode, settings)
            client = envharness.GenericEnvClient(address, open_options=options, **settings).sync()
            client.connect()
            self._client = client
            self.contract: dict[str, Any] = client.contract
            rules = {"optional": optional, "text_length": text_length, "charset": charset}
            self._actions = Actions(self.contract, Rules(side="action", **rules), action_space, encode)
            self._observations = Observations(
                self.contract, Rules(side="observation", **rules), observation_space, decode
            )
            self.metadata = metadata_of(self._observations)
        except BaseException:
            self.close()
            raise
        self.action_space, self.observation_space = self._actions.space, self._observations.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: The seed of the environment; None goes on with its random numbers.
            options: Given to the environment as ``options`` where its reset takes them, else by their names.

        Returns:
            The observation and its info.

        Raises:
            EnvHarnessError: The server refused, or does not answer.
        """
        super().reset(seed=seed)
        given = reset_arguments(self.contract, options)
        if seed is not None:
            given["seed"] = seed
        result = self._open.reset(**given)
        return self._observations.decode(result.observation), self._observations.info(
            result.observation, result.metadata
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one step.

        Args:
            action: A value of the action space.

        Returns:
            Observation, reward, terminated, truncated, info. Where the environment gave no reward it is
            `missing_reward`, and ``info["reward_missing"]`` is true.

        Raises:
            EnvHarnessError: The server refused the action, or does not answer.
            TypeError, ValueError: The action is not of the space.
        """
        result = self._open.step(self._actions.encode(action))
        observation = result.observation
        info = self._observations.info(observation, result.metadata)
        if result.reward is None:
            info["reward_missing"] = True
        terminated, truncated = self._observations.ends(observation, result.metadata, result.done)
        reward = self.missing_reward if result.reward is None else float(result.reward)
        return self._observations.decode(observation), reward, terminated, truncated, info

    def state(self) -> dict[str, Any]:
        """The environment's state, as the server tells it."""
        return self._open.state()

    def render(self) -> Any:
        """The frame: uint8 (height, width, 3) for ``rgb_array``, text for ``ansi``; None without a render mode."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() gives nothing without a render mode, such as make(..., render_mode='rgb_array')"
            )
            return None
        return self._open.render()

    def close(self) -> None:
        """Ends the session, and the server where it is this environment's own; again does nothing."""
        client, self._client = self._client, None
        server, self._server = self._server, None
        try:
            if client is not None:
                client.close()
        finally:
            if server is not None:
                server.stop(hurry=True)

    @property
    def _open(self) -> Any:
        """The client of an environment that is not closed."""
        if self._client is None:
            raise ClosedEnvironmentError("the environment is closed")
        return self._client


def make(url: str | os.PathLike[str] | type, render_mode: str | None = None, **options: Any) -> RemoteEnv:
    """Makes a `gymnasium.Env` of a served environment, without wrappers.

    `gymnasium.make("envharness.gym:envharness/Remote-v0", url=...)` makes the same with gymnasium's wrappers.

    Args:
        url: An address or a target, as :class:`RemoteEnv` takes it.
        render_mode: What to render to.
        options: The further arguments of :class:`RemoteEnv`.

    Raises:
        EnvHarnessError: As :class:`RemoteEnv` raises.
    """
    env = RemoteEnv(url, render_mode, **options)
    kwargs = {"url": url, "render_mode": render_mode, **options}
    env.spec = EnvSpec(REMOTE_ID, entry_point=ENTRY_POINT, order_enforce=False, disable_env_checker=True, kwargs=kwargs)
    return env


# What the vector environment does in the same way.


def served(url: Any, options: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """The address of what was given, and the server that was started for it, or None."""
    if isinstance(url, str) and url.startswith(ADDRESSES):
        return url, None
    server = envharness.serve(url, **(options or {}))
    return server.url, server


def given_options(open_options: Mapping[str, Any] | None, render_mode: str | None) -> dict[str, Any] | None:
    """What an instance is made with, or None where nothing is asked for: stock servers take nothing."""
    options = dict(open_options or {})
    if render_mode is not None:
        options["render_mode"] = render_mode
    return options or None


def check_render_mode(address: Any, render_mode: str | None, settings: Mapping[str, Any]) -> None:
    """Looks into the contract before an instance is asked for, whose refusal could not say what there is.

    Raises:
        NotAvailableError: The environment does not render so.
    """
    if render_mode is None:
        return
    client = envharness.GenericEnvClient(address, **settings).sync()
    try:
        contract = client.contract
    finally:
        client.close()
    modes = render_modes_of(contract.get("observation") or {})
    if render_mode not in modes:
        hint = (
            "`gymnasium.make` shows `rgb_array` frames in a window here"
            if render_mode == "human" and "rgb_array" in modes
            else None
        )
        raise NotAvailableError(f"no render mode `{render_mode}`; there are: {', '.join(modes) or 'none'}", hint=hint)


def metadata_of(observations: Observations) -> dict[str, Any]:
    """The metadata of an instance."""
    metadata: dict[str, Any] = {"render_modes": list(observations.render_modes)}
    if observations.render_fps is not None:
        metadata["render_fps"] = observations.render_fps
    return metadata


def reset_arguments(contract: Mapping[str, Any], options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The reset arguments that carry options.

    A reset that takes ``options`` gets them so. Where the contract names other arguments, those that are named are
    passed; what it does not name would be dropped by the server, and is warned about. A server without a contract gets
    ``options``.
    """
    if not options:
        return {}
    named = (contract.get("reset") or {}).get("properties")
    if not named or "options" in named:
        return {"options": dict(options)}
    dropped = [name for name in options if name not in named]
    if dropped:
        warnings.warn(f"the environment's reset does not take {', '.join(dropped)}", EnvHarnessWarning, stacklevel=3)
    return {name: value for name, value in options.items() if name in named}
