"""The typed echo environment with msgspec structs."""

from uuid import uuid4

import msgspec


class EchoAction(msgspec.Struct):
    message: str


class EchoObservation(msgspec.Struct):
    echoed_message: str = ""
    message_length: int = 0
    done: bool = False
    reward: float = 0.0


class EchoState(msgspec.Struct):
    episode_id: str
    step_count: int = 0


class EchoEnvironment:
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self._state = EchoState(str(uuid4()))

    def reset(self) -> EchoObservation:
        self._state = EchoState(str(uuid4()))
        return EchoObservation("ready")

    def step(self, action: EchoAction) -> EchoObservation:
        self._state.step_count += 1
        return EchoObservation(action.message, len(action.message), False, len(action.message) * 0.1)

    @property
    def state(self) -> EchoState:
        return self._state
