"""Many sessions with one call: the face of a training loop."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envharness import _native
from envharness._errors import ClientError, EnvHarnessError, SessionLost, from_client
from envharness.client._codec import dumps, loads
from envharness.client._endpoint import endpoint
from envharness.client._env import GenericEnvClient
from envharness.client._fleet import close_sessions, open_sessions
from envharness.client._ports import port
from envharness.client._result import StepResult
from envharness.client._spaces import TensorSpace, numpy_or_none, tensor_space

AUTORESET = ("next_step", "same_step", "disabled")
#: The bits of an answer of `envharness.v1`.
_DONE, _TERMINATED, _TRUNCATED = 4, 16, 32


_NOTHING: dict[int, dict[str, Any]] = {}


class Infos(Sequence[dict[str, Any]]):
    """A dict for each slot; those that say nothing are made when they are asked for."""

    __slots__ = ("_count", "_said")

    def __init__(self, count: int, said: dict[int, dict[str, Any]]) -> None:
        """Has ``count`` of them, of which ``said`` are not empty."""
        self._count, self._said = count, said

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    def __getitem__(self, at: Any) -> Any:
        """The one of a slot."""
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(self._count))]
        place = at + self._count if at < 0 else at
        if not 0 <= place < self._count:
            raise IndexError(at)
        return self._said.get(place) or {}

    def __setitem__(self, at: int, info: dict[str, Any]) -> None:
        """Another one for a slot."""
        self._said = {**self._said, at: info}

    def __repr__(self) -> str:
        """As a list of them."""
        return repr(list(self))


@dataclass
class VectorResult:
    """The outcomes of some slots, in their order.

    Attributes:
        slots: The slots, n of them.
        observations: An array of shape ``(n, *shape)`` where the contract has a tensor space, else a list of n; zeros or
            None where a slot failed.
        rewards: n rewards: NaN where the environment gave none, or the slot failed.
        dones: Whether each episode is over.
        terminated: Whether it came to an end of its own; where the environment tells only ``done``, that.
        truncated: Whether it was cut off.
        infos: What the environment adds, a dict each.
        errors: What went wrong, by slot: never a made-up reward.
        final_observations: In ``same_step`` mode, the last observation of each episode that ended, None for the others.
        final_infos: The same of its info.
    """

    slots: Any
    observations: Any
    rewards: Any
    dones: Any
    terminated: Any
    truncated: Any
    infos: Sequence[dict[str, Any]]
    errors: dict[int, EnvHarnessError] = field(default_factory=dict)
    final_observations: list[Any] | None = None
    final_infos: list[Any] | None = None

    def raise_errors(self) -> VectorResult:
        """The result itself, where no slot failed.

        Raises:
            EnvHarnessError: The first failure; its notes name the others.
        """
        if self.errors:
            slot, error = next(iter(self.errors.items()))
            error.details = (*error.details, f"slot {slot}; {len(self.errors)} of {len(self.slots)} slots failed")
            raise error
        return self


class VectorClient:
    """N sessions on one server or several, driven with one call.

    A step of all of them is one message to each server, whose answers come back together. A slot that fails is told in
    :attr:`VectorResult.errors`; the others go on, and the next reset of that slot has a new session.

    **Autoreset**, as Gymnasium names it: ``next_step`` (the default): the step after an end ignores that slot's action,
    begins an episode and gives its first observation, reward 0. ``same_step``: the slot begins anew within the step that
    ended it; the last observation is kept in :attr:`VectorResult.final_observations`. ``disabled``: :meth:`reset` does it.

    >>> import envharness as eh
    >>> with eh.serve("native:cartpole") as server, eh.VectorClient(server.url, 4) as envs:
    ...     _ = envs.reset(seeds=range(4))
    ...     envs.step([{"action": 0}] * 4).rewards.tolist()
    [1.0, 1.0, 1.0, 1.0]

    Attributes:
        num_envs: The slots.
        contract: What the environment takes and gives.
        action_space: The tensor space of actions, or None.
        observation_space: The tensor space of observations, or None.
        autoreset: The mode.
    """

    def __init__(
        self,
        servers: Any,
        num_envs: int,
        *,
        autoreset: str = "next_step",
        encoding: str = "auto",
        action: type | None = None,
        observation: type | None = None,
        request_timeout: float | None = 60.0,
        wait: float | None = None,
        open_options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Opens the sessions.

        Args:
            servers: An address or a Server, or several; sessions go where slots are free.
            num_envs: How many sessions.
            autoreset: ``next_step``, ``same_step`` or ``disabled``.
            encoding: ``tensor``, ``json`` or ``msgpack``; ``auto`` takes ``tensor`` where the contract has tensor spaces
                for both sides, the server speaks it, numpy is there and no models are given; else ``json``.
            action: The class of actions; mappings always do.
            observation: The class of observations; None for mappings.
            request_timeout: The longest call in seconds; None for no limit.
            wait: How many seconds to wait for free sessions before :class:`envharness.Saturated` is raised.
            open_options: What is asked of each instance.
            **settings: As those of :class:`envharness.EnvClient`.

        Raises:
            Saturated: There are not so many free sessions; none is left open.
            ConnectError: No server can be reached.
        """
        if autoreset not in AUTORESET:
            raise ValueError(f"autoreset={autoreset!r} is not known; there are {', '.join(AUTORESET)}")
        if not isinstance(num_envs, int) or num_envs < 1:
            raise ValueError(f"num_envs={num_envs!r} is no number of environments")
        several = isinstance(servers, (list, tuple))
        self._endpoints = [endpoint(server, settings) for server in (servers if several else [servers])]
        if not self._endpoints:
            raise ValueError("no server is named")
        self._opening = json.dumps(dict(open_options or {})), (settings.get("connect_timeout") or 10.0) + (request_timeout or 60.0)
        self._wait, self._timeout = wait, request_timeout
        native = _native.ClientVector(num_envs)
        self._set_up(native, num_envs, autoreset, encoding, action, observation)
        self._sessions = open_sessions(self._endpoints, range(num_envs), *self._opening, wait)
        for slot, session in self._sessions.items():
            native.put(slot, session)
        try:
            self.contract = loads(self._endpoints[0].contract(self._opening[1])[1])
            first = self._sessions[0]
            hello = json.loads(first.hello) if first.is_v1 else {}
            self._settle_encoding(hello.get("encodings", ["json"]))
        except BaseException:
            self.close()
            raise

    @classmethod
    def _in_process(cls, name: str, num_envs: int, autoreset: str, encoding: str) -> VectorClient:
        """A native environment on the caller's thread."""
        if autoreset not in AUTORESET:
            raise ValueError(f"autoreset={autoreset!r} is not known; there are {', '.join(AUTORESET)}")
        self = cls.__new__(cls)
        native = _native.NativeVector(name, num_envs)
        self._endpoints, self._opening, self._wait, self._timeout = [], ("{}", 60.0), None, None
        self._set_up(native, num_envs, autoreset, encoding, None, None)
        self._sessions = {}
        self.contract = native.contract()
        self._settle_encoding(["json", "msgpack", "tensor"])
        return self

    def _set_up(self, native: Any, num_envs: int, autoreset: str, encoding: str, action: Any, observation: Any) -> None:
        self._native, self._numpy = native, numpy_or_none()
        self.num_envs, self.autoreset = num_envs, autoreset
        self.contract: dict[str, Any] = {}
        self.action_space: TensorSpace | None = None
        self.observation_space: TensorSpace | None = None
        self._wanted, self._owned = encoding, None
        self._all = list(range(num_envs))
        self._ended: Any = [True] * num_envs if self._numpy is None else self._numpy.ones(num_envs, dtype=bool)
        self._any_ended = True
        self._lost: set[int] = set()
        self._pending: set[int] = set()
        self._closed = False
        # Values become bytes, and bytes values, as those of one client do.
        self._codec = GenericEnvClient(
            "localhost", action=action, observation=observation, encoding="msgpack" if encoding == "msgpack" else "json"
        )
        self._typed = action is not None or observation is not None

    def _settle_encoding(self, known: Sequence[str]) -> None:
        np = self._numpy
        self.action_space = tensor_space(self.contract, "action")
        self.observation_space = tensor_space(self.contract, "observation")
        both = self.action_space is not None and self.observation_space is not None
        fits = both and np is not None and "tensor" in known and not self._typed
        if self._wanted == "auto":
            self._wanted = "tensor" if fits else "json"
        if self._wanted not in known:
            raise ClientError(f"the server does not speak {self._wanted}; it speaks {', '.join(known)}")
        if self._wanted == "tensor" and not fits:
            raise ClientError('encoding="tensor" needs numpy and tensor spaces on both sides, and takes no models')
        self.encoding = self._wanted
        self._is_raw = self.encoding == "tensor"
        # Arrays are stacked also where they travel as lists.
        self._stacks = self.observation_space is not None and np is not None and not self._typed
        if self._is_raw:
            self._row = self.observation_space.size * np.dtype(self.observation_space.dtype).itemsize  # type: ignore[union-attr]
            self._action_dtype = np.dtype(self.action_space.dtype)  # type: ignore[union-attr]
            self._seen_dtype = np.dtype(self.observation_space.dtype)  # type: ignore[union-attr]
            self._seen_shape = (self.num_envs, *self.observation_space.shape)  # type: ignore[union-attr]
            self._slots = np.arange(self.num_envs)
            self._none = bytes(self.num_envs)

    # One call of all.

    def reset(
        self, seeds: Any = None, slots: Any = None, *, options: Mapping[str, Any] | None = None, **arguments: Any
    ) -> VectorResult:
        """Begins an episode in each slot, in a new session where the last one was lost.

        Args:
            seeds: None, a number (slot i gets ``seeds + i``), or one for each of the slots that are reset.
            slots: The slots, as numbers or as a mask of all; None for all.
            options: Sent as ``options``, as Gymnasium has it.
            **arguments: Sent to each reset as they are.
        """
        self._idle()
        chosen = self._chosen(slots)
        self._send_resets(chosen, self._seeds(seeds, chosen), options, arguments)
        return self._gather(chosen)

    def step(self, actions: Any) -> VectorResult:
        """Takes a step in every slot.

        Args:
            actions: n of them: an array of shape ``(n, *shape)`` where the contract has a tensor space and raw values
                travel, else a sequence of models or mappings.

        Raises:
            ValueError: There are not n of them.
        """
        self._idle()
        if self._is_raw and not self._lost:
            self._begin_turn(actions)
            result = self._finish_turn()
        else:
            self._send_all(actions)
            result = self._gather(self._all)
        return self._begin_again(result) if self.autoreset == "same_step" else result

    # First ready first.

    def send(self, actions: Any, slots: Any = None) -> None:
        """Sends a step to each of some slots; :meth:`recv` gives the outcomes as they come.

        Args:
            actions: One for each of the slots.
            slots: The slots, as numbers or as a mask; None for all.

        Raises:
            ValueError: A slot has a step under way already, or there are not as many actions.
        """
        self._usable()
        chosen = self._chosen(slots)
        if len(actions) != len(chosen):
            raise ValueError(f"{len(actions)} actions for {len(chosen)} slots")
        busy = self._pending.intersection(chosen)
        if busy:
            raise ValueError(f"slot {min(busy)} has a step under way; recv() gives its outcome")
        self._send_steps(chosen, actions, together=False)
        self._pending.update(chosen)

    def recv(self, min_slots: int = 1, timeout: float | None = None) -> VectorResult:
        """The outcomes of steps that were sent, as soon as there are enough; first ready first.

        Args:
            min_slots: How many to wait for.
            timeout: The longest to wait, in seconds; then whatever is there is given, nothing for one.

        Raises:
            ValueError: So many are not under way.
        """
        self._usable()
        if min_slots > len(self._pending):
            raise ValueError(f"{min_slots} outcomes are waited for where {len(self._pending)} steps are under way")
        result = self._taken(None, min_slots, self._limit(timeout))
        self._pending.difference_update(int(slot) for slot in result.slots)
        return self._begin_again(result) if self.autoreset == "same_step" else result

    # The same for event loops.

    async def areset(self, seeds: Any = None, slots: Any = None, **arguments: Any) -> VectorResult:
        """As :meth:`reset`, awaited."""
        self._idle()
        chosen = self._chosen(slots)
        self._send_resets(chosen, self._seeds(seeds, chosen), arguments.pop("options", None), arguments)
        await self._arrived(len(chosen))
        return self._gather(chosen)

    async def astep(self, actions: Any) -> VectorResult:
        """As :meth:`step`, awaited. In ``same_step`` mode the resets block."""
        self._idle()
        if self._is_raw and not self._lost:
            self._begin_turn(actions)
            await self._arrived(self.num_envs)
            result = self._finish_turn()
        else:
            self._send_all(actions)
            await self._arrived(self.num_envs)
            result = self._gather(self._all)
        return self._begin_again(result) if self.autoreset == "same_step" else result

    async def arecv(self, min_slots: int = 1, timeout: float | None = None) -> VectorResult:
        """As :meth:`recv`, awaited."""
        if min_slots > len(self._pending):
            raise ValueError(f"{min_slots} outcomes are waited for where {len(self._pending)} steps are under way")
        await self._arrived(min_slots, timeout)
        return self.recv(0)

    async def _arrived(self, least: int, timeout: float | None = None) -> None:
        if isinstance(self._native, _native.ClientVector):
            await port().rung(self._native, least, timeout)

    # Out.

    def _usable(self) -> None:
        if self._closed:
            raise ClientError("the client is closed")

    def _idle(self) -> None:
        self._usable()
        if self._pending:
            raise ClientError(f"{len(self._pending)} steps are under way", hint="recv() gives their outcomes")

    def _chosen(self, slots: Any) -> list[int]:
        if slots is None:
            return self._all
        given = slots.tolist() if hasattr(slots, "tolist") else list(slots)
        if given and isinstance(given[0], bool):
            if len(given) != self.num_envs:
                raise ValueError(f"a mask of {len(given)} for {self.num_envs} environments")
            given = [slot for slot, wanted in enumerate(given) if wanted]
        chosen = [int(slot) for slot in given]
        bad = [slot for slot in chosen if not 0 <= slot < self.num_envs]
        if bad or len(set(chosen)) != len(chosen):
            raise ValueError(f"the slots are those from 0 to {self.num_envs - 1}, each once")
        return chosen

    def _seeds(self, seeds: Any, chosen: list[int]) -> list[int | None]:
        if seeds is None:
            return [None] * len(chosen)
        if isinstance(seeds, int):
            return [seeds + slot for slot in chosen]
        listed = [None if seed is None else int(seed) for seed in seeds]
        if len(listed) == len(chosen):
            return listed
        if len(listed) == self.num_envs:
            return [listed[slot] for slot in chosen]
        raise ValueError(f"{len(listed)} seeds for {len(chosen)} slots")

    def _send_resets(self, chosen: list[int], seeds: Sequence[int | None], options: Any, arguments: Mapping[str, Any]) -> None:
        self._replace_lost(chosen)
        payloads = []
        for seed in seeds:
            given = dict(arguments)
            if seed is not None:
                given["seed"] = seed
            if options is not None:
                given["options"] = dict(options)
            payloads.append(self._codec._arguments(given) if self.encoding == "msgpack" else dumps(given))
        self._native.send("reset", self.encoding, chosen, payloads, self._timeout, True)
        for slot in chosen:
            self._ended[slot] = False

    def _send_steps(self, chosen: list[int], actions: Any, together: bool) -> None:
        resets: list[int] = []
        steps = chosen
        if self._any_ended and self.autoreset != "disabled":
            resets = [slot for slot in chosen if self._ended[slot]]
            if resets:
                keep = [at for at, slot in enumerate(chosen) if not self._ended[slot]]
                steps = [chosen[at] for at in keep]
                actions = actions[keep] if hasattr(actions, "dtype") else [actions[at] for at in keep]
        # Values first: an action that cannot be sent must not leave half a step behind.
        rows = self._rows(actions, len(steps)) if self._is_raw and steps else b""
        payloads = [] if self._is_raw else [self._action(action) for action in actions]
        self._begun = set(resets)
        if resets:
            self._send_resets(resets, [None] * len(resets), None, {})
            self._any_ended = any(self._ended)
        if not steps:
            return
        if self._is_raw:
            self._native.send_rows(steps, rows, self._timeout, together)
        else:
            self._native.send("step", self.encoding, steps, payloads, self._timeout, together)

    def _send_all(self, actions: Any) -> None:
        if len(actions) != self.num_envs:
            raise ValueError(f"{len(actions)} actions for {self.num_envs} environments")
        self._send_steps(self._all, actions, together=True)

    def _begin_turn(self, actions: Any) -> None:
        """A step of all by raw values; which slots begin anew is settled below Python."""
        rows = self._rows(actions, self.num_envs)
        ended = self._ended.tobytes() if self.autoreset == "next_step" else self._none
        self._native.begin(rows, ended, self._timeout)

    def _finish_turn(self) -> VectorResult:
        np = self._numpy
        seen, rewards, flags, infos, failed = self._native.finish(self._row)
        flags = np.frombuffer(flags, dtype=np.uint8)
        observations = np.frombuffer(seen, dtype=self._seen_dtype).reshape(self._seen_shape)
        notes = Infos(self.num_envs, {slot: loads(info) for slot, info in infos} if infos else _NOTHING)
        result = VectorResult(
            self._slots, observations, np.frombuffer(rewards, dtype=np.float64), (flags & _DONE) != 0,
            (flags & _TERMINATED) != 0, (flags & _TRUNCATED) != 0, notes, {},
        )  # fmt: skip
        self._ended = result.dones.copy()
        self._any_ended = True
        for slot, error in failed:
            result.errors[slot] = from_client(*error)
            result.rewards[slot] = np.nan
        if result.errors:
            self._settled(result)
        return result

    def _rows(self, actions: Any, count: int) -> bytes:
        """Actions as the rows of an array."""
        np, space = self._numpy, self.action_space
        if not hasattr(actions, "dtype") and len(actions) and isinstance(actions[0], Mapping):
            actions = [action["action"] for action in actions]
        array = np.asarray(actions)
        if array.shape != (count, *space.shape):  # type: ignore[union-attr]
            raise ValueError(f"actions of shape {array.shape} where {(count, *space.shape)} is wanted")  # type: ignore[union-attr]
        if array.dtype != self._action_dtype:
            if not np.can_cast(array.dtype, self._action_dtype, "same_kind"):
                raise ValueError(f"actions of type {array.dtype} where {self._action_dtype} is wanted")
            array = array.astype(self._action_dtype)
        return array.tobytes()

    def _action(self, action: Any) -> bytes:
        if self._stacks and self.action_space is not None and not isinstance(action, Mapping):
            action = {"action": action.tolist() if hasattr(action, "tolist") else action}
        return self._codec._action(action)

    def _replace_lost(self, chosen: Sequence[int]) -> None:
        """Slots whose session was lost get a new one."""
        lost = self._lost.intersection(chosen)
        if not lost:
            return
        for slot in lost:
            self._native.put(slot, None)
            self._sessions.pop(slot, None)
        try:
            opened = open_sessions(self._endpoints, sorted(lost), *self._opening, self._wait)
        except ClientError:
            # Their resets fail one by one, and say so.
            return
        for slot, session in opened.items():
            self._sessions[slot] = session
            self._native.put(slot, session)
        self._lost -= lost

    # In.

    def _limit(self, timeout: float | None) -> float | None:
        return timeout

    def _gather(self, chosen: list[int]) -> VectorResult:
        return self._taken(chosen, len(chosen), None)

    def _taken(self, chosen: list[int] | None, least: int, timeout: float | None) -> VectorResult:
        """The outcomes that are there; those of `chosen`, in their order."""
        if self._is_raw:
            return self._taken_rows(chosen, least, timeout)
        np = self._numpy
        results: dict[int, StepResult[Any]] = {}
        errors: dict[int, EnvHarnessError] = {}
        for slot, error, _, payload in self._native.wait(least, timeout):
            if error is None:
                try:
                    results[slot] = self._codec._result(payload)
                except (EnvHarnessError, ValueError, TypeError) as wrong:
                    errors[slot] = wrong if isinstance(wrong, EnvHarnessError) else ClientError(f"an answer does not fit: {wrong}")
            else:
                errors[slot] = from_client(*error)
        order = chosen if chosen is not None else sorted([*results, *errors])
        begun = getattr(self, "_begun", ())
        found = [results.get(slot) for slot in order]
        rewards = [_number(r, slot in begun) for slot, r in zip(order, found)]
        dones = [r is not None and r.done for r in found]
        truncated = [r is not None and r.truncated for r in found]
        terminated = [r is not None and r.terminated for r in found]
        infos = [_info(r, self._stacks) for r in found]
        observations: Any = [None if r is None else r.observation for r in found]
        slots: Any = order
        if np is not None:
            rewards, slots = np.array(rewards, dtype=np.float64), np.array(order, dtype=np.int64)
            dones, truncated, terminated = (np.array(flags, dtype=bool) for flags in (dones, truncated, terminated))
            if self._stacks:
                observations = self._stack(observations)
        return self._settled(VectorResult(slots, observations, rewards, dones, terminated, truncated, infos, errors))

    def _stack(self, observations: list[Any]) -> Any:
        np, space = self._numpy, self.observation_space
        stacked = np.zeros((len(observations), *space.shape), dtype=space.dtype)  # type: ignore[union-attr]
        for at, observation in enumerate(observations):
            if observation is not None:
                stacked[at] = observation["observation"]
        return stacked

    def _taken_rows(self, chosen: list[int] | None, least: int, timeout: float | None) -> VectorResult:
        np, space = self._numpy, self.observation_space
        told, (seen, rewards, flags, infos, failed) = self._native.wait_rows(least, timeout, self._row)
        observations = np.frombuffer(seen, dtype=space.dtype).reshape(self.num_envs, *space.shape)  # type: ignore[union-attr]
        rewards, flags = np.frombuffer(rewards, dtype=np.float64), np.frombuffer(flags, dtype=np.uint8)
        order = chosen if chosen is not None else sorted(told)
        if len(order) != self.num_envs:
            observations, rewards, flags = observations[order], rewards[order], flags[order]
        errors = {slot: from_client(*error) for slot, error in failed}
        notes: list[dict[str, Any]] = [{} for _ in order]
        if infos or errors or self._begun_any():
            at = {slot: place for place, slot in enumerate(order)}
            for slot, info in infos:
                notes[at[slot]] = loads(info)
            for slot in errors:
                rewards[at[slot]] = np.nan
            for slot in self._begun:
                if slot in at and slot not in errors:
                    rewards[at[slot]] = 0.0
        result = VectorResult(
            np.array(order, dtype=np.int64), observations, rewards, (flags & _DONE) != 0, (flags & _TERMINATED) != 0,
            (flags & _TRUNCATED) != 0, notes, errors,
        )  # fmt: skip
        return self._settled(result)

    _begun: Any = ()

    def _begun_any(self) -> bool:
        return bool(self._begun)

    def _settled(self, result: VectorResult) -> VectorResult:
        """What the outcomes mean for the next call."""
        self._begun = ()
        dones = result.dones
        if dones.any() if hasattr(dones, "any") else any(dones):
            self._any_ended = True
            for at, done in enumerate(dones):
                if done:
                    self._ended[int(result.slots[at])] = True
        for slot, error in result.errors.items():
            session = self._sessions.get(slot)
            if isinstance(error, SessionLost) or (session is not None and session.fate is not None) or (self._endpoints and session is None):
                self._lost.add(slot)
                # What it had is gone: the next step begins anew, where it does so by itself.
                self._ended[slot] = self._any_ended = True
        return result

    def _begin_again(self, result: VectorResult) -> VectorResult:
        """In ``same_step`` mode: episodes that ended begin anew, their last observations are kept."""
        ended = [at for at, slot in enumerate(result.slots) if result.dones[at] and int(slot) not in result.errors]
        result.final_observations, result.final_infos = [None] * len(result.slots), [None] * len(result.slots)
        if not ended:
            return result
        fresh = [int(result.slots[at]) for at in ended]
        self._send_resets(fresh, [None] * len(fresh), None, {})
        begun = self._taken(fresh, len(fresh), None)
        self._any_ended = any(self._ended)
        for place, at in enumerate(ended):
            last = result.observations[at]
            result.final_observations[at] = last.copy() if hasattr(last, "dtype") else last
            result.final_infos[at] = result.infos[at]
            result.observations[at], result.infos[at] = begun.observations[place], begun.infos[place]
        result.errors.update(begun.errors)
        return result

    # Life.

    def close(self) -> None:
        """Ends the sessions, and the server where :func:`envharness.local` started it."""
        if self._closed:
            return
        self._closed = True
        sessions, self._sessions = list(self._sessions.values()), {}
        for slot in self._all if sessions else ():
            self._native.put(slot, None)
        close_sessions(sessions)
        if self._owned is not None:
            self._owned.stop(hurry=True)

    def __enter__(self) -> VectorClient:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the sessions."""
        self.close()

    async def __aenter__(self) -> VectorClient:
        """The client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends the sessions."""
        self.close()

    def __len__(self) -> int:
        """The slots."""
        return self.num_envs

    def __repr__(self) -> str:
        """With its size and servers."""
        where = ", ".join(map(str, self._endpoints)) or "this process"
        return f"<envharness.VectorClient of {self.num_envs} on {where}>"


def _number(result: StepResult[Any] | None, begun: bool) -> float:
    if result is None:
        return float("nan")
    if begun:
        return 0.0
    return float("nan") if result.reward is None else float(result.reward)


def _info(result: StepResult[Any] | None, stacked: bool) -> dict[str, Any]:
    if result is None:
        return {}
    if stacked:
        return dict(result.observation.get("info") or {})
    return dict(result.metadata or {})
