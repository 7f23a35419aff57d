"""The exceptions, in one tree::

    EnvHarnessError
    ├── SpecError (ValueError)
    ├── LockError
    ├── PythonNotFoundError (LookupError)
    ├── OutsideError (OSError)          network, disk, another program
    ├── NotAvailableError
    ├── NotRigged                       a task that does not pass its check; see :class:`envharness.EnvRigger`
    ├── ContextError
    │   ├── ActivationError
    │   └── CommandError                a command that failed, with its Result
    │       └── CommandTimeout (TimeoutError)
    ├── ServeError                      a target that cannot be served
    ├── ClientError                     a call to a server that has no answer
    │   ├── ConnectError (ConnectionError)
    │   ├── SessionLost (ConnectionError)
    │   ├── RequestTimeout (TimeoutError)
    │   ├── Saturated                   no session is free
    │   ├── InvalidAction (ValueError)  the action does not fit
    │   ├── EnvironmentFailed           the environment raised
    │   ├── ContractMismatch
    │   └── ProtocolError
    ├── TransferError (OSError)
    ├── CallError (TypeError)           a function or value that cannot travel
    └── RemoteError                     an exception inside that has no twin here
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envharness._result import Result


class EnvHarnessError(Exception):
    """The base of every error of envharness.

    Attributes:
        hint: What to do about it, or None.
        details: Further lines: an explanation, or what a program printed.
    """

    hint: str | None = None
    details: tuple[str, ...] = ()

    def __init__(self, message: str = "", *, hint: str | None = None, details: tuple[str, ...] | list[str] = ()) -> None:
        """Makes an error.

        Args:
            message: What is wrong.
            hint: What to do about it.
            details: Further lines.
        """
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = tuple(details)

    def __str__(self) -> str:
        """The message, the details and the hint."""
        lines = [self.message, *(f"  {line}" for line in self.details)]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self):
        """Keeps hint and details over pickle."""
        state = {key: value for key, value in self.__dict__.items() if key != "message"}
        return (type(self), (self.message,), state)


class SpecError(EnvHarnessError, ValueError):
    """A spec, a setting or a request that was refused; the message names file, line and key."""


class LockError(EnvHarnessError):
    """No versions satisfy a spec, or a lock is stale, missing or broken."""


class PythonNotFoundError(EnvHarnessError, LookupError):
    """No interpreter fits; the details list what was found."""


class OutsideError(EnvHarnessError, OSError):
    """The network, the disk or another program failed."""


class NotAvailableError(EnvHarnessError):
    """Something that the design knows and this version does not do."""


class ContextError(EnvHarnessError):
    """A context that is not there, or not in the state for what was asked."""


class ActivationError(ContextError):
    """This process cannot be activated; the message says why."""


class CommandError(ContextError):
    """A command that failed.

    Attributes:
        result: Its Result, or None.
    """

    result: Result | None = None


class CommandTimeout(CommandError, TimeoutError):
    """Something that took too long; its whole process tree was ended.

    Attributes:
        output: What was printed by then.
    """

    output: str = ""


class ServeError(EnvHarnessError):
    """A target that cannot be served; the details hold the traceback of its own code, where there is one."""


class ClientError(EnvHarnessError):
    """A call to a server that has no answer.

    Attributes:
        code: The server's code, such as ``WORKER_DIED``; None where the server told nothing.
        retryable: Whether the same call, in a new session, may well succeed.
        data: What else the server told, by name.
    """

    code: str | None = None
    retryable: bool = False
    data: dict[str, Any] = {}  # noqa: RUF012


class ConnectError(ClientError, ConnectionError):
    """There is no connection to the server."""


class SessionLost(ClientError, ConnectionError):
    """The session is gone: its worker or its server ended, or the connection broke and could not be made again in time.

    ``reset()`` begins an episode in a new one.
    """


class RequestTimeout(ClientError, TimeoutError):
    """No answer in time. The session lives on; a step that was under way may have been taken."""


class Saturated(ClientError):
    """No session is free.

    Attributes:
        retry_after: After how many seconds it is worth another try, or None.
        active: Sessions in use, or None.
        limit: Sessions that may be in use, or None.
    """

    retry_after: float | None = None
    active: int | None = None
    limit: int | None = None


class InvalidAction(ClientError, ValueError):
    """The action, or the arguments of a reset, do not fit the environment's models.

    Attributes:
        errors: What does not fit, as pydantic tells it: a list of mappings with ``loc``, ``msg``, ``type`` and ``input``.
    """

    errors: list[dict[str, Any]] = []  # noqa: RUF012


class EnvironmentFailed(ClientError):
    """The environment's own code raised.

    Attributes:
        exception: The name of the exception's type, where the server tells it.
    """

    exception: str | None = None


class ContractMismatch(ClientError):
    """The server serves another contract than the client was written for."""


class ProtocolError(ClientError):
    """What came from the server is not the protocol."""


class TransferError(EnvHarnessError, OSError):
    """A file that could not be uploaded or downloaded."""


class CallError(EnvHarnessError, TypeError):
    """A function or a value that cannot travel into a context or out of it."""


class RemoteError(EnvHarnessError):
    """An exception inside a context whose type does not exist here.

    Attributes:
        type_name: The type's full name.
        traceback: The remote traceback as text.
    """

    type_name: str = ""
    traceback: str = ""


class EnvHarnessWarning(UserWarning):
    """Something a person should know."""


_KINDS = {
    "spec": SpecError,
    "lock": LockError,
    "python": PythonNotFoundError,
    "outside": OutsideError,
    "context": ContextError,
    "serve": ServeError,
    "transfer": TransferError,
    "timeout": CommandTimeout,
    "not-available": NotAvailableError,
}


def from_native(kind: str, message: str, details: list[str], hint: str | None, output: str) -> EnvHarnessError:
    """Makes the exception for an error of the native module.

    Args:
        kind: A key of the table above.
        message: What is wrong.
        details: Further lines.
        hint: What to do about it.
        output: What a command had printed when its time was over.
    """
    error = _KINDS[kind](message, hint=hint, details=details)
    if isinstance(error, CommandTimeout):
        error.output = output
    return error


_OF_CODES = {
    "VALIDATION_ERROR": InvalidAction,
    "INVALID_JSON": InvalidAction,
    "EXECUTION_ERROR": EnvironmentFailed,
    "FACTORY_ERROR": EnvironmentFailed,
    "CAPACITY_REACHED": Saturated,
    "WORKER_DIED": SessionLost,
    "STEP_TIMEOUT": SessionLost,
    "SESSION_ERROR": SessionLost,
    "DRAINING": SessionLost,
    "IDLE_TIMEOUT": SessionLost,
    "CONTRACT_MISMATCH": ContractMismatch,
    "DEADLINE_EXCEEDED": RequestTimeout,
    "PROTOCOL_ERROR": ProtocolError,
    "SEQUENCE_ERROR": ProtocolError,
}

_OF_KINDS = {
    "address": ConnectError,
    "connect": ConnectError,
    "lost": SessionLost,
    "timeout": RequestTimeout,
    "protocol": ProtocolError,
    "contract": ContractMismatch,
}


def from_client(kind: str, message: str, hint: str | None, code: str | None, data: str | None) -> EnvHarnessError:
    """Makes the exception for a failure of the native client.

    Args:
        kind: Its kind there.
        message: What is wrong.
        hint: What to do about it.
        code: The server's code.
        data: What the server told, as JSON.
    """
    if kind == "not-available" or code == "NOT_AVAILABLE":
        return NotAvailableError(message, hint=hint)
    if kind != "server":
        return _OF_KINDS.get(kind, ClientError)(message, hint=hint)
    told = json.loads(data or "{}")
    cls = _OF_CODES.get(code or "", ClientError)
    details = []
    if cls is InvalidAction:
        details = [f"{'.'.join(map(str, item.get('loc', ())))}: {item.get('msg', '')}" for item in told.get("errors", [])[:8]]
    if told.get("cause"):
        details.append(str(told["cause"]))
    if told.get("last_output"):
        details.extend(str(told["last_output"]).splitlines()[-8:])
    error = cls(message, hint=hint, details=details)
    error.code, error.data = code, told
    error.retryable = bool(told.get("retryable", cls is Saturated))
    if isinstance(error, Saturated):
        error.retry_after = told.get("retry_after")
        error.active, error.limit = told.get("active_sessions"), told.get("max_sessions")
        # Who names a time for another try lets clients wait.
        error.hint = hint or (
            "wait for a free session by `wait=`, or serve more by `--max-sessions`" if error.retry_after else "close a session, or serve more"
        )
    elif isinstance(error, InvalidAction):
        error.errors = told.get("errors", [])
    elif isinstance(error, EnvironmentFailed):
        error.exception = told.get("exception")
    elif isinstance(error, SessionLost):
        error.hint = hint or "reset() begins an episode in a new session"
    return error
