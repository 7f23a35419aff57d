"""From a task to an environment that runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from envharness import _native
from envharness._errors import EnvHarnessError
from envharness._runtime import on_event, rig
from envharness._spec import load_spec


class NotRigged(EnvHarnessError):
    """A task does not pass its check, whatever was tried; ``details`` say what stands in the way, the hint what to do.

    Attributes:
        rigged: The account: every attempt, and the plan that came furthest.
    """

    rigged: Rigged


class Rigged:
    """How the rigging of a task ended.

    Attributes:
        passed: Whether the spec and its lock passed their check.
        attempts: One mapping an attempt: how far it came, what failed, what was changed for the next.
        reasons: Why each package is there, by its requirement.
        remarks: What a person should know.
        obstacles: What stands in the way.
        advice: What a person could do.
        record: All of it, as ``envharness rig --output-format json`` prints it.
    """

    def __init__(self, record: dict[str, Any]) -> None:
        """Takes a record."""
        self.record = record
        self.passed: bool = record["passed"]
        self.attempts: list[dict[str, Any]] = record["attempts"]
        self.remarks: list[str] = record["remarks"]
        self.obstacles: list[str] = record["obstacles"]
        self.advice: list[str] = record["advice"]
        self.reasons: dict[str, str] = {p["requirement"]: p["reason"] for p in record["plan"]["packages"].values()}

    def __repr__(self) -> str:
        """The name, the end and the number of attempts."""
        return f"<Rigged {self.record['name']}: {'passed' if self.passed else 'not passed'} after {len(self.attempts)} attempts>"

    @property
    def path(self) -> Path | None:
        """Where the spec was written."""
        return Path(self.record["spec"]) if self.record["spec"] else None

    @property
    def spec(self) -> _native.Spec:
        """The spec that passed.

        Raises:
            NotRigged: None did.
        """
        self.check()
        return load_spec(self.record["spec"])

    def check(self) -> Rigged:
        """Returns itself.

        Raises:
            NotRigged: The check did not pass.
        """
        if not self.passed:
            message = f"`{self.record['name']}` does not pass its check after {len(self.attempts)} attempts"
            error = NotRigged(message, hint="; ".join(self.advice) or None, details=self.obstacles)
            error.rigged = self
            raise error
        return self


class EnvRigger:
    """Turns tasks into specs that work: reads what a task says, decides with reasons, tries, and mends what fails.

    >>> import envharness as eh
    >>> rigged = eh.EnvRigger().rig("train.py", check=["python", "train.py"])  # doctest: +SKIP
    >>> with eh.get_context(rigged.spec) as ctx:  # doctest: +SKIP
    ...     ctx.run("python train.py")
    """

    def __init__(
        self,
        *,
        attempts: int = 8,
        budget: float = 1800.0,
        timeout: float = 600.0,
        advisor: str | None = None,
        on_event: Callable[[str, str, str | None], object] | None = None,
    ) -> None:
        """Sets what holds for every task.

        Args:
            attempts: The most attempts.
            budget: The longest time for all of them, in seconds.
            timeout: The longest run of a check, in seconds.
            advisor: A command that is asked where no rule knows a way.
            on_event: Called with the name of an event, its text and a hint; shown on a terminal by default.
        """
        if attempts < 1:
            raise ValueError("attempts must be at least 1")
        self._options: dict[str, Any] = {"attempts": attempts, "budget": budget, "timeout": timeout, "advisor": advisor}
        self._on_event = on_event or _shown

    def rig(
        self,
        target: str | os.PathLike[str],
        check: Sequence[str] | str | None = None,
        *,
        python: str | None = None,
        date: str | None = None,
        packages: Iterable[str] = (),
        output: str | os.PathLike[str] | None = None,
        force: bool = False,
        trust: bool = False,
    ) -> Rigged:
        """Rigs a task.

        Args:
            target: A script, a notebook, a folder, a spec, a lock or a git address.
            check: The command that tells that it works, as words or as one line; its imports by default. It runs the task's own code.
            python: The Python.
            date: The day that versions are of, or ``none``.
            packages: Further packages.
            output: The spec's file; beside the target by default.
            force: Whether a file there is replaced.
            trust: Whether a command that the target's README tells may be the check.

        Returns:
            How it ended, whether the check passed or not.

        Raises:
            SpecError: The target is nothing that can be rigged, or contradicts itself.
            OutsideError: The index, the disk or another program failed.
        """
        return self._rig(os.fspath(target), False, check, python, date, packages, output, force, trust)

    def rig_traceback(self, traceback: str, check: Sequence[str] | str | None = None, **options: Any) -> Rigged:
        """Rigs what a traceback tells of; the options are :meth:`rig`'s."""
        defaults: dict[str, Any] = {"python": None, "date": None, "packages": (), "output": None, "force": False, "trust": False}
        unknown = options.keys() - defaults.keys()
        if unknown:
            raise TypeError(f"rig_traceback has no option {sorted(unknown)[0]!r}")
        return self._rig(traceback, True, check, **{**defaults, **options})

    def _rig(
        self,
        target: str,
        traceback: bool,
        check: Sequence[str] | str | None,
        python: str | None,
        date: str | None,
        packages: Iterable[str],
        output: str | os.PathLike[str] | None,
        force: bool,
        trust: bool,
    ) -> Rigged:
        words = shlex.split(check) if isinstance(check, str) else list(check) if check is not None else None
        if words == []:
            raise ValueError("the check is an empty command")
        record = _native.rig_task(
            rig(), target, traceback=traceback, check=words, python=python, date=date, packages=list(packages),
            output=None if output is None else os.fspath(output), force=force, trust=trust, on_event=self._on_event, **self._options,
        )
        return Rigged(record)


def _shown(name: str, text: str, hint: str | None) -> None:
    on_event("resolved" if name == "attempt" else name, text, hint)
