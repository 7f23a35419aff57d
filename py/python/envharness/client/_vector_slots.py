"""The slots of a vector: which are meant, what is under way in them, which begin anew and which are lost."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from envharness import _native
from envharness._errors import ClientError, EnvHarnessError, SessionLost, from_client
from envharness.client._codec import dumps, loads
from envharness.client._fleet import open_sessions
from envharness.client._ports import port
from envharness.client._vector_result import Infos, VectorResult
from envharness.client._vector_values import DONE, TERMINATED, TRUNCATED, Values

_NOTHING: dict[int, dict[str, Any]] = {}


class Slots(Values):
    """Sends to slots, and keeps what their outcomes mean for the next call."""

    autoreset: str
    _endpoints: list[Any]
    _opening: tuple[str, float]
    _wait: float | None
    _timeout: float | None

    def _set_up_slots(self, native: Any, num_envs: int) -> None:
        self._native, self.num_envs = native, num_envs
        self._all = list(range(num_envs))
        self._sessions: dict[int, Any] = {}
        self._ended: Any = [True] * num_envs if self._numpy is None else self._numpy.ones(num_envs, dtype=bool)
        self._lost: set[int] = set()
        #: Why a lost slot has no new session.
        self._refused: EnvHarnessError | None = None
        self._pending: set[int] = set()
        self._closed = False

    # Which.

    def _usable(self) -> None:
        if self._closed:
            raise ClientError("the client is closed")

    def _idle(self) -> None:
        """Nothing may be under way. What a call left behind that Ctrl-C or a cancellation ended is waited for, and counts."""
        self._usable()
        if self._pending:
            raise ClientError(f"{len(self._pending)} steps are under way", hint="recv() gives their outcomes")
        if self._native.due:
            self._taken(None, self._native.due, None)

    async def _aidle(self) -> None:
        if not self._closed and not self._pending and self._native.due:
            await self._arrived(self._native.due)
        self._idle()

    async def _arrived(self, least: int, timeout: float | None = None, native: Any = None) -> None:
        native = native or self._native
        if isinstance(native, _native.ClientVector):
            await port().rung(native, least, timeout)

    def _chosen(self, slots: Any) -> list[int]:
        if slots is None:
            return self._all
        given = slots.tolist() if hasattr(slots, "tolist") else list(slots)
        if given and all(isinstance(slot, bool) for slot in given):
            if len(given) != self.num_envs:
                raise ValueError(f"a mask of {len(given)} for {self.num_envs} environments")
            return [slot for slot, wanted in enumerate(given) if wanted]
        chosen = [operator.index(slot) for slot in given]
        bad = [slot for slot in chosen if not 0 <= slot < self.num_envs]
        if bad or len(set(chosen)) != len(chosen):
            raise ValueError(f"the slots are those from 0 to {self.num_envs - 1}, each once")
        return chosen

    def _seeds(self, seeds: Any, chosen: list[int]) -> list[int | None]:
        if seeds is None:
            return [None] * len(chosen)
        if hasattr(seeds, "__index__") and not getattr(seeds, "ndim", 0):
            return [operator.index(seeds) + slot for slot in chosen]
        listed = [None if seed is None else operator.index(seed) for seed in seeds]
        if len(listed) == len(chosen):
            return listed
        if len(listed) == self.num_envs:
            return [listed[slot] for slot in chosen]
        raise ValueError(f"{len(listed)} seeds for {len(chosen)} slots")

    def _anew(self, chosen: list[int]) -> list[int]:
        """Which of these begin an episode in the place of a step."""
        return [] if self.autoreset == "disabled" else [slot for slot in chosen if self._ended[slot]]

    def _counted(self, actions: Any, chosen: list[int]) -> None:
        if isinstance(actions, Mapping) or len(actions) != len(chosen):
            raise ValueError(f"{len(actions)} actions for {len(chosen)} slots")

    def _awaited(self, min_slots: int) -> None:
        self._usable()
        if not 0 <= min_slots <= len(self._pending):
            raise ValueError(f"{min_slots} outcomes are waited for where {len(self._pending)} steps are under way")

    def _received(self, min_slots: int, timeout: float | None) -> VectorResult:
        result = self._taken(None, min_slots, timeout)
        self._pending.difference_update(int(slot) for slot in result.slots)
        return result

    # Out.

    def _send_resets(
        self,
        chosen: list[int],
        seeds: Sequence[int | None],
        options: Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
        together: bool = True,
        native: Any = None,
    ) -> None:
        payloads = []
        for seed in seeds:
            given = dict(arguments or {})
            if seed is not None:
                given["seed"] = seed
            if options is not None:
                given["options"] = dict(options)
            payloads.append(self._codec._arguments(given) if self.encoding == "msgpack" else dumps(given))
        (native or self._native).send("reset", self.encoding, chosen, payloads, self._timeout, together)
        for slot in chosen:
            self._ended[slot] = False

    def _send_steps(self, chosen: list[int], actions: Any, together: bool) -> None:
        """A step to each; those that have ended begin anew."""
        resets, steps = self._anew(chosen), chosen
        if resets:
            keep = [at for at, slot in enumerate(chosen) if not self._ended[slot]]
            steps = [chosen[at] for at in keep]
            actions = actions[keep] if hasattr(actions, "dtype") else [actions[at] for at in keep]
        # Values first: an action that cannot be sent must not leave half a step behind.
        rows = self._rows(actions, len(steps)) if self._is_raw and steps else b""
        payloads = [] if self._is_raw else [self._action(action) for action in actions]
        if resets:
            self._begun.update(resets)
            self._send_resets(resets, [None] * len(resets), together=together)
        if steps and self._is_raw:
            self._native.send_rows(steps, rows, self._timeout, together)
        elif steps:
            self._native.send("step", self.encoding, steps, payloads, self._timeout, together)

    def _begin_turn(self, actions: Any) -> None:
        """A step of all by raw values; which slots begin anew is settled below Python."""
        rows = self._rows(actions, self.num_envs)
        ended = bytes(self.num_envs) if self.autoreset == "disabled" else self._ended.tobytes()
        self._native.begin(rows, ended, self._timeout)

    def _finish_turn(self) -> VectorResult:
        np = self._numpy
        seen, rewards, flags, infos, failed = self._native.finish(self._row)
        flags = np.frombuffer(flags, dtype=np.uint8)
        observations = np.frombuffer(seen, dtype=self._seen_dtype).reshape(self._seen_shape)
        notes = Infos(self.num_envs, {slot: loads(info) for slot, info in infos} if infos else _NOTHING)
        result = VectorResult(
            self._slots, observations, np.frombuffer(rewards, dtype=np.float64), (flags & DONE) != 0,
            (flags & TERMINATED) != 0, (flags & TRUNCATED) != 0, notes, {},
        )  # fmt: skip
        self._ended = result.dones.copy()
        for slot, error in failed:
            result.errors[slot] = from_client(*error)
            result.rewards[slot] = np.nan
        if result.errors:
            self._settled(result)
        return result

    # Lost sessions.

    def _replace_lost(self, chosen: Sequence[int]) -> None:
        """Slots whose session was lost get a new one; where there is none, what they are asked fails and says so."""
        lost = sorted(self._lost.intersection(chosen))
        if not lost:
            return
        for slot in lost:
            self._native.put(slot, None)
            self._sessions.pop(slot, None)
        try:
            opened = open_sessions(self._endpoints, lost, *self._opening, self._wait)
        except EnvHarnessError as error:
            self._refused = error
            return
        for slot, (_, session) in opened.items():
            if session.is_v1 or self.encoding == "json":
                self._keep(slot, session)

    async def _areplace_lost(self, chosen: Sequence[int]) -> None:
        if self._lost.intersection(chosen):
            await asyncio.to_thread(self._replace_lost, chosen)

    def _keep(self, slot: int, session: Any) -> None:
        self._native.put(slot, session)
        self._sessions[slot] = session
        self._lost.discard(slot)

    # In.

    def _settled(self, result: VectorResult) -> VectorResult:
        """What the outcomes mean for the next call."""
        dones = result.dones
        if dones.any() if hasattr(dones, "any") else any(dones):
            for at, done in enumerate(dones):
                if done:
                    self._ended[int(result.slots[at])] = True
        for slot, error in result.errors.items():
            # Its episode does not go on: the next step begins anew, where it does so by itself.
            self._ended[slot] = True
            session = self._sessions.get(slot)
            if self._endpoints and (session is None or session.fate is not None or isinstance(error, SessionLost)):
                self._lost.add(slot)
                if session is None and self._refused is not None:
                    result.errors[slot] = self._refused
        return result

    def _again(self, result: VectorResult) -> tuple[list[int], list[int], Any] | None:
        """In ``same_step`` mode: begins anew what has ended. The places in the result, their slots, and where outcomes come."""
        if self.autoreset != "same_step":
            return None
        count = len(result.slots)
        result.final_observations, result.final_infos = [None] * count, [None] * count
        places = [at for at in range(count) if result.dones[at] and int(result.slots[at]) not in result.errors]
        if not places:
            return None
        slots, native = [int(result.slots[at]) for at in places], self._native
        if self._pending and isinstance(native, _native.ClientVector):
            # Apart from steps that are under way.
            native = _native.ClientVector(self.num_envs)
            for slot in slots:
                native.put(slot, self._sessions.get(slot))
        self._send_resets(slots, [None] * len(slots), native=native)
        return places, slots, native

    def _begun_again(self, result: VectorResult, places: list[int], slots: list[int], native: Any) -> VectorResult:
        """Puts first observations into the result; the last ones are kept."""
        begun = self._taken(slots, len(slots), None, native)
        for place, at in enumerate(places):
            last = result.observations[at]
            result.final_observations[at] = last.copy() if hasattr(last, "dtype") else last  # type: ignore[index]
            result.final_infos[at] = result.infos[at]  # type: ignore[index]
            result.observations[at] = begun.observations[place]
            result.infos[at] = begun.infos[place]  # type: ignore[index]
            if slots[place] in begun.errors:
                result._fail(at)
        result.errors.update(begun.errors)
        return result
