"""Values of many sessions to bytes and back, by the encoding that they travel in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envharness._errors import ClientError, ContractMismatch, EnvHarnessError, ProtocolError, from_client
from envharness.client._codec import loads
from envharness.client._env import GenericEnvClient
from envharness.client._result import StepResult
from envharness.client._spaces import TensorSpace, numpy_or_none, tensor_space
from envharness.client._vector_result import Infos, VectorResult

ENCODINGS = ("auto", "json", "msgpack", "tensor")
#: The bits of an answer of `envharness.v1`.
DONE, TERMINATED, TRUNCATED = 4, 16, 32


class Values:
    """The encoding of a vector, and what it makes of actions and answers."""

    num_envs: int
    contract: Mapping[str, Any]
    _native: Any
    _all: list[int]

    def _set_up_values(self, encoding: str, action: type | None, observation: type | None, stack: bool) -> None:
        if encoding not in ENCODINGS:
            raise ValueError(f"encoding={encoding!r} is not known; there are {', '.join(ENCODINGS)}")
        self._numpy = numpy_or_none()
        self.action_space: TensorSpace | None = None
        self.observation_space: TensorSpace | None = None
        self.encoding, self._typed, self._may_stack = encoding, action is not None or observation is not None, stack
        # Values become bytes, and bytes values, as those of one client do.
        self._codec = GenericEnvClient(
            "localhost", action=action, observation=observation, encoding="msgpack" if encoding == "msgpack" else "json"
        )
        #: The slots whose next outcome is that of a reset in the place of a step.
        self._begun: set[int] = set()

    def _settle_values(self, known: Sequence[str]) -> None:
        """Settles what travels, by the contract and the encodings that every server speaks."""
        np = self._numpy
        self.action_space = tensor_space(self.contract, "action")
        self.observation_space = tensor_space(self.contract, "observation")
        # Arrays are taken and given also where they travel as lists.
        self._wraps = self.action_space is not None and not self._typed
        self._stacks = self._may_stack and self.observation_space is not None and np is not None and not self._typed
        fits = self._wraps and self._stacks and "tensor" in known
        wanted = ("tensor" if fits else "json") if self.encoding == "auto" else self.encoding
        if wanted not in known:
            raise ClientError(f"the server does not speak {wanted}; it speaks {', '.join(known)}")
        if wanted == "tensor" and not fits:
            raise ClientError('encoding="tensor" needs numpy and tensor spaces on both sides, and takes no models')
        self.encoding, self._is_raw = wanted, wanted == "tensor"
        if self._is_raw:
            self._action_dtype = np.dtype(self.action_space.dtype)  # type: ignore[union-attr]
            self._seen_dtype = np.dtype(self.observation_space.dtype)  # type: ignore[union-attr]
            self._seen_shape = (self.num_envs, *self.observation_space.shape)  # type: ignore[union-attr]
            self._row = self.observation_space.size * self._seen_dtype.itemsize  # type: ignore[union-attr]
            # Every result has the same one.
            self._slots = np.arange(self.num_envs)
            self._slots.flags.writeable = False

    # Out.

    def _rows(self, actions: Any, count: int) -> bytes:
        """Actions as the rows of an array."""
        np, space = self._numpy, self.action_space
        if not hasattr(actions, "dtype") and len(actions) and isinstance(actions[0], Mapping):
            actions = [action["action"] for action in actions]
        array = np.asarray(actions)
        if array.shape != (count, *space.shape):  # type: ignore[union-attr]
            raise ValueError(f"actions of shape {array.shape} where {(count, *space.shape)} is wanted")  # type: ignore[union-attr]
        if array.dtype != self._action_dtype:
            array = self._cast(array)
        return array.tobytes()

    def _cast(self, array: Any) -> Any:
        """The same numbers in the type of the space."""
        np, wanted = self._numpy, self._action_dtype
        if not np.can_cast(array.dtype, wanted, "same_kind"):
            raise ValueError(f"actions of type {array.dtype} where {wanted} is wanted")
        cast = array.astype(wanted)
        if wanted.kind in "iu" and not np.array_equal(cast, array):
            raise ValueError(f"actions of type {array.dtype} with numbers that {wanted} lacks")
        return cast

    def _action(self, action: Any) -> bytes:
        """One action as a payload."""
        if self._wraps and not isinstance(action, Mapping):
            action = {"action": action.tolist() if hasattr(action, "tolist") else action}
        return self._codec._action(action)

    # In.

    def _taken(self, chosen: list[int] | None, least: int, timeout: float | None, native: Any = None) -> VectorResult:
        """The outcomes that are there; those of `chosen`, in their order."""
        taken = self._taken_rows if self._is_raw else self._taken_values
        return self._settled(taken(chosen, least, timeout, native or self._native))

    def _settled(self, result: VectorResult) -> VectorResult:
        raise NotImplementedError

    def _taken_values(self, chosen: list[int] | None, least: int, timeout: float | None, native: Any) -> VectorResult:
        np = self._numpy
        results: dict[int, StepResult[Any]] = {}
        errors: dict[int, EnvHarnessError] = {}
        for slot, error, _, payload in native.wait(least, timeout):
            if error is not None:
                errors[slot] = from_client(*error)
                continue
            try:
                results[slot] = result = self._codec._result(payload)
                result.reward = 0.0 if slot in self._begun else _number(result.reward)
            except (EnvHarnessError, ValueError, TypeError) as wrong:
                results.pop(slot, None)
                errors[slot] = wrong if isinstance(wrong, EnvHarnessError) else ProtocolError(f"an answer does not fit: {wrong}")
        order = chosen if chosen is not None else sorted([*results, *errors])
        self._begun.difference_update(order)
        observations = self._stack(order, results, errors) if self._stacks else None
        found = [results.get(slot) for slot in order]
        if observations is None:
            observations = [None if result is None else result.observation for result in found]
        rewards: Any = [float("nan") if result is None else result.reward for result in found]
        ends = [(False, False) if result is None else _ends(result) for result in found]
        terminated: Any = [ended for ended, _ in ends]
        truncated: Any = [cut for _, cut in ends]
        dones: Any = [ended or cut for ended, cut in ends]
        infos = [_info(result, self._stacks) for result in found]
        slots: Any = list(order)
        if np is not None:
            rewards, slots = np.array(rewards, dtype=np.float64), np.array(order, dtype=np.int64)
            dones, truncated, terminated = (np.array(flags, dtype=bool) for flags in (dones, truncated, terminated))
        return VectorResult(slots, observations, rewards, dones, terminated, truncated, infos, errors)

    def _stack(self, order: list[int], results: dict[int, StepResult[Any]], errors: dict[int, EnvHarnessError]) -> Any:
        """Observations as one array; what does not fit the space is an error of its slot."""
        np, space = self._numpy, self.observation_space
        stacked = np.zeros((len(order), *space.shape), dtype=space.dtype)  # type: ignore[union-attr]
        for at, slot in enumerate(order):
            if slot not in results:
                continue
            try:
                # A NaN may have come as null; lists lose the axes behind an empty one.
                value = np.array(results[slot].observation["observation"], dtype=space.dtype)  # type: ignore[union-attr]
                if value.shape != space.shape and (value.size or stacked[at].size):  # type: ignore[union-attr]
                    raise ValueError(f"its shape is {value.shape}")
                if value.size:
                    stacked[at] = value
            except (TypeError, ValueError, KeyError, OverflowError) as wrong:
                del results[slot]
                errors[slot] = ProtocolError(f"an observation is no {space}: {wrong}")
        return stacked

    def _taken_rows(self, chosen: list[int] | None, least: int, timeout: float | None, native: Any) -> VectorResult:
        np = self._numpy
        told, (seen, rewards, flags, infos, failed) = native.wait_rows(least, timeout, self._row)
        observations = np.frombuffer(seen, dtype=self._seen_dtype).reshape(self._seen_shape)
        rewards, flags = np.frombuffer(rewards, dtype=np.float64), np.frombuffer(flags, dtype=np.uint8)
        order = chosen if chosen is not None else sorted(told)
        slots = np.array(order, dtype=np.int64)
        if order is not self._all:
            observations, rewards, flags = observations[slots], rewards[slots], flags[slots]
        errors = {slot: from_client(*error) for slot, error in failed}
        at = {slot: place for place, slot in enumerate(order)} if infos or errors or self._begun else {}
        notes = Infos(len(order), {at[slot]: loads(info) for slot, info in infos})
        for slot in errors:
            rewards[at[slot]] = np.nan
        for slot in self._begun.intersection(at).difference(errors):
            rewards[at[slot]] = 0.0
        self._begun.difference_update(order)
        ends = ((flags & bit) != 0 for bit in (DONE, TERMINATED, TRUNCATED))
        return VectorResult(slots, observations, rewards, *ends, notes, errors)


def encodings_of(sessions: Iterable[Any]) -> list[str]:
    """The encodings that the servers of all these sessions speak."""
    known = ["json", "msgpack", "tensor"]
    for told in {session.hello if session.is_v1 else None for session in sessions}:
        spoken = ["json"] if told is None else json.loads(told).get("encodings", ["json"])
        known = [name for name in known if name in spoken]
    return known


def one_contract(contracts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The contract of all servers.

    Raises:
        ContractMismatch: They serve different ones.
    """
    digests = {contract["digest"] for contract in contracts if contract.get("digest")}
    if len(digests) > 1:
        raise ContractMismatch(f"the servers serve {len(digests)} contracts: {', '.join(sorted(digests))}")
    return contracts[0]


def _number(reward: Any) -> float:
    return float("nan") if reward is None else float(reward)


def _ends(result: StepResult[Any]) -> tuple[bool, bool]:
    """Whether an episode ended of its own, and whether it was cut off: a ``done`` always is one of the two."""
    terminated, truncated = result.terminated, result.truncated
    if result.done and not terminated and not truncated:
        # Where it is told that it did not end of its own, and no more, it was cut off.
        return _told(result, "truncated") is not None, _told(result, "truncated") is None
    return terminated, truncated


def _told(result: StepResult[Any], name: str) -> Any:
    observation = result.observation
    told = observation.get(name) if isinstance(observation, dict) else getattr(observation, name, None)
    return (result.metadata or {}).get(name) if told is None else told


def _info(result: StepResult[Any] | None, stacked: bool) -> dict[str, Any]:
    if result is None:
        return {}
    told = result.observation.get("info") if stacked else result.metadata
    return dict(told) if isinstance(told, Mapping) else {}
