"""Many sessions with one call: the face of a training loop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from envharness import _native
from envharness._errors import EnvHarnessError, from_client
from envharness.client._codec import contract_of, picture_of
from envharness.client._endpoint import endpoint
from envharness.client._fleet import close_sessions, open_sessions
from envharness.client._vector_result import VectorResult
from envharness.client._vector_slots import Slots
from envharness.client._vector_values import encodings_of, one_contract

AUTORESET = ("next_step", "same_step", "disabled")


class VectorClient(Slots):
    """N sessions on one server or several, driven with one call.

    A step of all of them is one message to each server, whose answers come back together. A slot that fails is told in
    :attr:`VectorResult.errors`; the others go on. Its episode counts as ended, and its next reset has a new session where
    the old one was lost.

    **Autoreset**, as Gymnasium names it: ``next_step`` (the default): the step after an end ignores that slot's action,
    begins an episode and gives its first observation, reward 0. ``same_step``: the slot begins anew within the step that
    ended it; the last observation is kept in :attr:`VectorResult.final_observations`. A slot that failed begins anew with
    the next step in both. ``disabled``: :meth:`reset` does it.

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
        encoding: How values travel: ``tensor``, ``json`` or ``msgpack``.
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
        stack: bool = True,
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
                for both sides, every server speaks it, numpy is there, no models are given and `stack` is true; else ``json``.
            action: The class of actions; mappings always do.
            observation: The class of observations; None for mappings.
            stack: Whether observations of a tensor space are one array; else each is what a single client gives.
            request_timeout: The longest call in seconds; None for no limit.
            wait: How many seconds to wait for free sessions before :class:`envharness.Saturated` is raised.
            open_options: What is asked of each instance.
            **settings: As those of :class:`envharness.EnvClient`.

        Raises:
            Saturated: There are not so many free sessions; none is left open.
            ConnectError: No server can be reached.
            ContractMismatch: The servers serve different environments.
        """
        several = isinstance(servers, (list, tuple))
        self._endpoints = [endpoint(server, settings) for server in (servers if several else [servers])]
        if not self._endpoints:
            raise ValueError("no server is named")
        self._opening = json.dumps(dict(open_options or {})), (settings.get("connect_timeout") or 10.0) + (request_timeout or 60.0)
        self._wait, self._timeout, self._owned = wait, request_timeout, None
        self._set_up(num_envs, autoreset, encoding, action, observation, stack)
        self._set_up_slots(_native.ClientVector(num_envs), num_envs)
        opened = open_sessions(self._endpoints, range(num_envs), *self._opening, wait)
        for slot, (_, session) in opened.items():
            self._keep(slot, session)
        try:
            used = sorted({place for place, _ in opened.values()})
            self.contract = one_contract([contract_of(self._endpoints[place].contract(self._opening[1])[1]) for place in used])
            self._settle_values(encodings_of(self._sessions.values()))
        except BaseException:
            self.close()
            raise

    @classmethod
    def _in_process(cls, name: str, num_envs: int, autoreset: str, encoding: str, stack: bool = True) -> VectorClient:
        """A native environment on the caller's thread."""
        self = cls.__new__(cls)
        self._endpoints, self._opening, self._wait, self._timeout, self._owned = [], ("{}", 60.0), None, None, None
        self._set_up(num_envs, autoreset, encoding, None, None, stack)
        native = _native.NativeVector(name, num_envs)
        self._set_up_slots(native, num_envs)
        self.contract = native.contract()
        self._settle_values(["json", "msgpack", "tensor"])
        return self

    def _set_up(
        self, num_envs: int, autoreset: str, encoding: str, action: type | None, observation: type | None, stack: bool
    ) -> None:
        if autoreset not in AUTORESET:
            raise ValueError(f"autoreset={autoreset!r} is not known; there are {', '.join(AUTORESET)}")
        if not isinstance(num_envs, int) or num_envs < 1:
            raise ValueError(f"num_envs={num_envs!r} is no number of environments")
        self.autoreset = autoreset
        self._set_up_values(encoding, action, observation, stack)

    # One call of all.

    def reset(
        self, seeds: Any = None, slots: Any = None, *, options: Mapping[str, Any] | None = None, **arguments: Any
    ) -> VectorResult:
        """Begins an episode in each slot, in a new session where the last one was lost.

        Args:
            seeds: None, a number (slot i gets ``seeds + i``), or one for each of the slots that are reset, or of all.
            slots: The slots, as numbers or as a mask of all; None for all.
            options: Sent as ``options``, as Gymnasium has it.
            **arguments: Sent to each reset as they are.

        Returns:
            The outcomes of those slots, in their order.
        """
        self._idle()
        chosen = self._chosen(slots)
        given = self._seeds(seeds, chosen)
        self._replace_lost(chosen)
        self._send_resets(chosen, given, options, arguments)
        return self._taken(chosen, len(chosen), None)

    def step(self, actions: Any) -> VectorResult:
        """Takes a step in every slot.

        Args:
            actions: n of them: an array of shape ``(n, *shape)`` where the contract has a tensor space, else a sequence of
                models or mappings.

        Raises:
            ValueError: There are not n of them.
        """
        self._idle()
        if self._is_raw and not self._lost:
            self._begin_turn(actions)
            result = self._finish_turn()
        else:
            self._counted(actions, self._all)
            self._replace_lost(self._anew(self._all))
            self._send_steps(self._all, actions, together=True)
            result = self._taken(self._all, self.num_envs, None)
        again = self._again(result)
        return result if again is None else self._begun_again(result, *again)

    def render(self) -> list[Any]:
        """A picture of each slot: an array, a text or None, as the environment draws it.

        Raises:
            NotAvailableError: The environment, or the server's protocol, draws nothing.
            EnvHarnessError: A slot failed.
        """
        self._idle()
        self._native.send("render", "json", self._all, [b""] * self.num_envs, self._timeout, True)
        told: dict[int, bytes] = {}
        errors: dict[int, EnvHarnessError] = {}
        for slot, error, _, payload in self._native.wait(self.num_envs, None):
            if error is None:
                told[slot] = payload
            else:
                errors[slot] = from_client(*error)
        if errors:
            raise errors[min(errors)]
        return [picture_of(told[slot]) for slot in self._all]

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
        if not self._pending:
            self._idle()
        chosen = self._chosen(slots)
        self._counted(actions, chosen)
        busy = self._pending.intersection(chosen)
        if busy:
            raise ValueError(f"slot {min(busy)} has a step under way; recv() gives its outcome")
        self._replace_lost(self._anew(chosen))
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
        self._awaited(min_slots)
        result = self._received(min_slots, timeout)
        again = self._again(result)
        return result if again is None else self._begun_again(result, *again)

    # The same for event loops.

    async def areset(
        self, seeds: Any = None, slots: Any = None, *, options: Mapping[str, Any] | None = None, **arguments: Any
    ) -> VectorResult:
        """As :meth:`reset`, awaited."""
        await self._aidle()
        chosen = self._chosen(slots)
        given = self._seeds(seeds, chosen)
        await self._areplace_lost(chosen)
        self._send_resets(chosen, given, options, arguments)
        await self._arrived(len(chosen))
        return self._taken(chosen, len(chosen), None)

    async def astep(self, actions: Any) -> VectorResult:
        """As :meth:`step`, awaited. Cancelling it gives the answers up; the steps may have been taken."""
        await self._aidle()
        if self._is_raw and not self._lost:
            self._begin_turn(actions)
            await self._arrived(self.num_envs)
            result = self._finish_turn()
        else:
            self._counted(actions, self._all)
            await self._areplace_lost(self._anew(self._all))
            self._send_steps(self._all, actions, together=True)
            await self._arrived(self.num_envs)
            result = self._taken(self._all, self.num_envs, None)
        return await self._abegun_again(result)

    async def arecv(self, min_slots: int = 1, timeout: float | None = None) -> VectorResult:
        """As :meth:`recv`, awaited."""
        self._awaited(min_slots)
        await self._arrived(min_slots, timeout)
        return await self._abegun_again(self._received(0, None))

    async def _abegun_again(self, result: VectorResult) -> VectorResult:
        again = self._again(result)
        if again is None:
            return result
        await self._arrived(len(again[1]), None, again[2])
        return self._begun_again(result, *again)

    # Life.

    def close(self) -> None:
        """Ends the sessions, and the server where :func:`envharness.local` started it."""
        if self._closed:
            return
        self._closed = True
        sessions, self._sessions = list(self._sessions.values()), {}
        for slot in self._all if sessions else ():
            self._native.put(slot, None)
        try:
            close_sessions(sessions)
        finally:
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
