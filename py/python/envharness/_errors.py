"""The exceptions, in one tree::

    EnvHarnessError
    ├── SpecError (ValueError)
    ├── LockError
    ├── PythonNotFoundError (LookupError)
    ├── OutsideError (OSError)          network, disk, another program
    ├── NotAvailableError
    ├── ContextError
    │   ├── ActivationError
    │   └── CommandError                a command that failed, with its Result
    │       └── CommandTimeout (TimeoutError)
    ├── ServeError                      a target that cannot be served
    ├── TransferError (OSError)
    ├── CallError (TypeError)           a function or value that cannot travel
    └── RemoteError                     an exception inside that has no twin here
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
