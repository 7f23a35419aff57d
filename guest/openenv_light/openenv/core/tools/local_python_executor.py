"""Python code in the interpreter of ``smolagents``."""

import json
import traceback

from ... import _missing
from ..env_server.types import CodeExecResult


class PyExecutor:
    """Runs code in smolagents' interpreter, which keeps its variables from one run to the next."""

    def __init__(self, additional_imports=None):
        """``additional_imports`` are modules that the code may import beyond the usual ones."""
        try:
            from smolagents import LocalPythonExecutor
        except ImportError as error:
            raise ImportError("PyExecutor needs the package `smolagents`, which is not installed here") from error
        self._executor = LocalPythonExecutor(additional_authorized_imports=list(additional_imports or ()))
        self._executor.send_tools({"format_exc": traceback.format_exc, "safe_json_dumps": _dumps})

    def run(self, code):
        """What the code printed, its last value, and how it ended."""
        try:
            done = self._executor(code)
        except Exception:
            return CodeExecResult(stdout="", stderr=traceback.format_exc(), exit_code=1)
        written = [str(done.logs)] if getattr(done, "logs", None) else []
        if getattr(done, "output", None) is not None:
            written.append(_shown(done.output))
        # smolagents has named them differently over time.
        errors = [str(value) for value in (getattr(done, name, None) for name in ("error", "exception")) if value]
        return CodeExecResult(stdout="\n".join(written), stderr="\n".join(errors), exit_code=_exit_code(done, errors))


def _dumps(value):
    return json.dumps(value, default=repr)


def _shown(value):
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)


def _exit_code(done, errors):
    if hasattr(done, "exit_code"):
        return int(done.exit_code or 0)
    if hasattr(done, "success"):
        return 0 if done.success else 1
    return 1 if errors else 0


def __getattr__(name):
    raise _missing.name(__name__, name)
