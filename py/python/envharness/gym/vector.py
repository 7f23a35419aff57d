"""Served environments as a `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import gymnasium
import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

import envharness
from envharness._errors import EnvHarnessError
from envharness.gym.env import check_render_mode, given_options, metadata_of, served
from envharness.gym.spaces import CHARSET, TEXT_LENGTH, Actions, Observations, Rules, tensor

_MODES = {
    AutoresetMode.NEXT_STEP: "next_step",
    AutoresetMode.SAME_STEP: "same_step",
    AutoresetMode.DISABLED: "disabled",
}
#: What a call gives: with a step's observation, reward, terminated, truncated and infos.
_Step = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class VectorStepError(EnvHarnessError):
    """Slots of a vector failed; what the others did is not lost.

    Attributes:
        errors: The exception of each slot that failed.
        result: What the call would have returned with ``on_error="info"``.
    """

    errors: dict[int, BaseException]
    result: Any = None


class RemoteVectorEnv(VectorEnv):
    """Many instances of served environments, stepped together.

    Attributes:
        num_envs: How many.
        single_action_space: The action space of one instance; `action_space` is that of all.
        single_observation_space: The observation space of one instance; `observation_space` is that of all.
        metadata: ``autoreset_mode``, ``render_modes`` and ``render_fps``.
        contract: What the servers promise: name, version, schemas, digest.
    """

    _client: Any = None
    _server: Any = None

    def __init__(
        self,
        url: str | os.PathLike[str] | type | Sequence[str],
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        on_error: str = "raise",
        render_mode: str | None = None,
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
            url: An address, several to spread the instances over, or a target that is served from this process.
            num_envs: How many instances.
            autoreset_mode: What happens when an episode ends: ``next_step``, ``same_step`` or ``disabled``, with
                gymnasium's meaning of each.
            on_error: What happens when slots fail: ``raise`` raises :class:`VectorStepError`; ``info`` goes on, with
                the slot's reward NaN, its observation empty, truncated, and the exception in ``infos["error"]``.
            render_mode: The instances are made with it.
            token: What the servers want to be shown.
            headers: Further HTTP headers.
            request_timeout: The longest answer in seconds.
            open_options: What the instances are made with; our own server alone takes them.
            action_space: The space of one action to use instead of the contract's.
            observation_space: The space of one observation to use instead of the contract's.
            encode: From an action to the message's dict.
            decode: From the observation's dict to a value of the single observation space.
            optional: Keep the fields that an action may leave out, and those of an observation that may be null.
            text_length: The longest text where the schema has none, in characters.
            charset: The characters of texts.
            missing_reward: The reward where the environment gave none.
            serve: Arguments for :func:`envharness.serve`, where `url` is a target.

        Raises:
            NotAvailableError: A field has no space, or there is no such render mode.
            EnvHarnessError: No connection, or no such target.
            ValueError: No such mode.
        """
        self.autoreset_mode = _mode_of(autoreset_mode)
        if on_error not in ("raise", "info"):
            raise ValueError(f"on_error is `raise` or `info`, not {on_error!r}")
        self.on_error, self.missing_reward, self.render_mode = on_error, missing_reward, render_mode
        several = isinstance(url, Sequence) and not isinstance(url, str)
        address, self._server = (list(url), None) if several else served(url, serve)
        try:
            settings = {"token": token, "headers": headers, "request_timeout": request_timeout}
            check_render_mode(address[0] if several else address, render_mode, settings)
            # What is given instead of the contract's space wants each observation as it came.
            as_told = decode is None and observation_space is None
            self._client = envharness.VectorClient(
                address,
                num_envs,
                autoreset=_MODES[self.autoreset_mode],
                stack=as_told,
                open_options=given_options(open_options, render_mode),
                **settings,
            )
            self.num_envs: int = self._client.num_envs
            self.contract: dict[str, Any] = self._client.contract
            rules = {"optional": optional, "text_length": text_length, "charset": charset}
            self._actions = Actions(self.contract, Rules(side="action", **rules), action_space, encode)
            self._observations = Observations(
                self.contract, Rules(side="observation", **rules), observation_space, decode
            )
            # What the client has as one array is one here.
            self._observations.is_tensor &= as_told and self._client.observation_space is not None
            self._actions.is_tensor &= self._client.action_space is not None
            self.metadata = {**metadata_of(self._observations), "autoreset_mode": self.autoreset_mode}
        except BaseException:
            self.close()
            raise
        self.single_action_space, self.single_observation_space = self._actions.space, self._observations.space
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        # One row an instance: where all is an array, the array; else the values themselves.
        self._rows: Any = None
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins episodes.

        Args:
            seed: One seed, from which instance i gets ``seed + i``, or one for each.
            options: Given to the environments, without ``reset_mask``: a bool array that says which instances to reset.

        Returns:
            The observations of all instances, and the infos of those that were reset.

        Raises:
            VectorStepError: Instances failed, and `on_error` is ``raise``.
            ValueError: A mask or seeds of another length.
        """
        if isinstance(seed, (int, np.integer)):
            super().reset(seed=int(seed))
            seed = [int(seed) + slot for slot in range(self.num_envs)]
        if seed is not None and len(seed) != self.num_envs:
            raise ValueError(f"{self.num_envs} seeds are expected, not {len(seed)}")
        given = dict(options or {})
        mask = _mask_of(given.pop("reset_mask", None), self.num_envs)
        slots = None if mask.all() else mask
        result = self._open.reset(seeds=None if seed is None else list(seed), slots=slots, options=given or None)
        self._ended[mask] = False
        infos: dict[str, Any] = {}
        self._take(result)
        for at, slot in enumerate(result.slots):
            infos = self._add_info(infos, self._info(result, at), int(slot))
        self._ended[list(result.errors)] = True
        returned = (self._observed(), infos)
        self._judge(result.errors, returned)
        return returned

    def step(self, actions: Any) -> _Step:
        """Takes one step in all instances.

        Args:
            actions: A value of the batched action space.

        Returns:
            Observations, rewards float64 (n,), terminated and truncated bool (n,), infos. With ``same_step`` the last
            observation and info of an episode that ended are ``infos["final_obs"]`` and ``infos["final_info"]``.

        Raises:
            VectorStepError: Instances failed, and `on_error` is ``raise``.
            ResetNeeded: An episode has ended, and resets are yours.
            TypeError, ValueError: The actions are not of the space.
        """
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            raise ResetNeeded(
                f"the episodes of {np.flatnonzero(self._ended).tolist()} have ended; reset them with `reset_mask`"
            )
        result = self._open.step(self._messages(actions))
        self._take(result)
        failed = list(result.errors)
        rewards = np.array(result.rewards, dtype=np.float64)
        terminated, truncated = (np.array(flags, dtype=np.bool_) for flags in (result.terminated, result.truncated))
        missing = np.isnan(rewards)
        missing[failed] = False
        rewards[missing] = self.missing_reward
        # A slot that failed earned nothing that is known, and its episode does not go on.
        rewards[failed], terminated[failed], truncated[failed] = np.nan, False, True
        infos: dict[str, Any] = {}
        for slot in range(self.num_envs):
            infos = self._add_info(infos, self._final(result, slot), slot)
            infos = self._add_info(infos, self._info(result, slot), slot)
            if missing[slot]:
                infos = self._add_info(infos, {"reward_missing": True}, slot)
        self._ended = terminated | truncated
        returned = (self._observed(), rewards, terminated, truncated, infos)
        self._judge(result.errors, returned)
        return returned

    def render(self) -> tuple[Any, ...] | None:
        """One frame an instance, as `render_mode` has it; None without a render mode."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() gives nothing without a render mode, such as make_vec(..., render_mode='rgb_array')"
            )
            return None
        return tuple(self._open.render())

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the sessions, and the server where it is this environment's own; `close` calls it once."""
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
        """The client of a vector that is not closed."""
        if self._client is None:
            raise ClosedEnvironmentError("the environments are closed")
        return self._client

    def _messages(self, actions: Any) -> Any:
        """The actions as the client takes them: one array, or a message each."""
        if self._actions.is_tensor:
            return tensor(self.single_action_space.dtype, (self.num_envs, *self.single_action_space.shape), actions)
        return [self._actions.encode(action) for action in iterate(self.action_space, actions)]

    def _take(self, result: Any) -> None:
        """Keeps the observations of the result's slots; those of others stay."""
        slots = np.asarray(result.slots, dtype=np.int64)
        if self._observations.is_tensor:
            if self._rows is None:
                self._rows = create_empty_array(self.single_observation_space, n=self.num_envs, fn=np.zeros)
            self._rows[slots] = result.observations
            self._rows[list(result.errors)] = 0
            return
        if self._rows is None:
            self._rows = [None] * self.num_envs
        for at, slot in enumerate(slots.tolist()):
            failed = slot in result.errors
            self._rows[slot] = self._empty() if failed else self._observations.decode(result.observations[at])

    def _observed(self) -> Any:
        """All observations, as the batched space has them, in arrays of their own."""
        if self._observations.is_tensor:
            return self._rows.copy()
        rows = [self._empty() if row is None else row for row in self._rows]
        space = self.single_observation_space
        return concatenate(space, rows, create_empty_array(space, n=self.num_envs, fn=np.zeros))

    def _empty(self) -> Any:
        """What stands for an observation that is not there."""
        batch = create_empty_array(self.single_observation_space, n=1, fn=np.zeros)
        return next(iter(iterate(batch_space(self.single_observation_space, 1), batch)))

    def _info(self, result: Any, at: int) -> dict[str, Any]:
        """The info of the slot at a place of the result."""
        error = result.errors.get(int(result.slots[at]))
        if error is not None:
            return {"error": error}
        return self._told(result.observations[at], result.infos[at])

    def _told(self, observation: Any, info: Mapping[str, Any] | None) -> dict[str, Any]:
        """An info as one environment has it: beside an array the client gives ``info``, beside a dict the metadata."""
        if self._observations.is_tensor:
            return dict(info or {})
        return self._observations.info(observation, info)

    def _final(self, result: Any, slot: int) -> dict[str, Any]:
        """The end of an episode whose slot was reset within the step."""
        final = None if result.final_observations is None else result.final_observations[slot]
        if final is None:
            return {}
        value = self._observations.part(final) if self._observations.is_tensor else self._observations.decode(final)
        return {"final_obs": value, "final_info": self._told(final, result.final_infos[slot])}

    def _judge(self, errors: Mapping[int, BaseException], result: Any) -> None:
        """Raises what slots raised, where that is asked for."""
        if not errors or self.on_error == "info":
            return
        first = min(errors)
        told = [f"slot {slot}: {error}" for slot, error in sorted(errors.items())]
        error = VectorStepError(
            f"{len(errors)} of {self.num_envs} slots failed",
            details=told[:8] + ([f"and {len(told) - 8} more"] if len(told) > 8 else []),
            hint='on_error="info" goes on with the others',
        )
        error.errors, error.result = dict(errors), result
        raise error from errors[first]


def make_vec(
    url: str | os.PathLike[str] | type | Sequence[str],
    num_envs: int = 1,
    *,
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    **options: Any,
) -> RemoteVectorEnv:
    """Makes a `gymnasium.vector.VectorEnv` of served environments.

    Args:
        url: An address, several, or a target.
        num_envs: How many instances.
        autoreset_mode: ``next_step``, ``same_step`` or ``disabled``, or gymnasium's own.
        options: The further arguments of :class:`RemoteVectorEnv`.

    Raises:
        EnvHarnessError: As :class:`RemoteVectorEnv` raises.
    """
    return RemoteVectorEnv(url, num_envs, autoreset_mode=autoreset_mode, **options)


def _mode_of(mode: str | AutoresetMode) -> AutoresetMode:
    """The mode of a name: ours, or gymnasium's own value."""
    for known, name in _MODES.items():
        if mode in (known, name, known.value):
            return known
    raise ValueError(
        f"autoreset_mode is {', '.join(_MODES.values())} or a gymnasium.vector.AutoresetMode, not {mode!r}"
    )


def _mask_of(mask: Any, count: int) -> np.ndarray:
    """Which slots to reset."""
    if mask is None:
        return np.ones(count, dtype=np.bool_)
    mask = np.asarray(mask)
    if mask.dtype != np.bool_ or mask.shape != (count,) or not mask.any():
        raise ValueError(f"reset_mask is a bool array of shape ({count},) with at least one True")
    return mask
