"""What a command gave."""

from __future__ import annotations

from envharness._errors import CommandError


class Result(tuple):
    """A command's result: unpacks as ``(exit_code, logs)``, and is its output as text.

    Attributes:
        exit_code: The exit code; 128 and the signal's number for a command that a signal ended.
        logs: Standard output and standard error together, in the order in which they came.
        stdout: Standard output alone.
        stderr: Standard error alone.
        elapsed: How long it ran, in seconds.
        omitted: Bytes left out of the middle of a very long output.
        command: The words that were run.
    """

    exit_code: int
    logs: str
    stdout: str
    stderr: str
    elapsed: float
    omitted: int
    command: tuple[str, ...]

    def __new__(
        cls,
        exit_code: int,
        logs: str,
        *,
        stdout: str = "",
        stderr: str = "",
        elapsed: float = 0.0,
        omitted: int = 0,
        command: tuple[str, ...] = (),
    ) -> Result:
        """Makes a result."""
        self = super().__new__(cls, (exit_code, logs))
        self.exit_code, self.logs = exit_code, logs
        self.stdout, self.stderr, self.elapsed, self.omitted, self.command = stdout, stderr, elapsed, omitted, command
        return self

    def __getnewargs_ex__(self):
        """Keeps everything over pickle and copy."""
        names = ("stdout", "stderr", "elapsed", "omitted", "command")
        return ((self.exit_code, self.logs), {name: getattr(self, name) for name in names})

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    def check(self) -> Result:
        """Returns itself.

        Raises:
            CommandError: When the exit code is not 0.
        """
        if self.exit_code:
            words = " ".join(self.command)
            tail = [line for line in self.logs.splitlines() if line][-20:]
            error = CommandError(f"`{words}` ended with exit code {self.exit_code}", details=tail)
            error.result = self
            raise error
        return self

    def __str__(self) -> str:
        """The output."""
        return self.logs

    def __repr__(self) -> str:
        """Exit code and size."""
        return f"Result(exit_code={self.exit_code}, logs=<{len(self.logs)} characters>)"
