"""envharness, as code that runs inside a context sees it.

There the environment is already what the spec says: ``get_context`` and ``create_context`` of the running spec give the
current context, so that a script works the same from outside and from inside.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

__all__ = [
    "Context",
    "EnvHarnessError",
    "SpecError",
    "create_context",
    "create_spec",
    "current_context",
    "get_context",
    "load_spec",
    "load_spec_from_config",
]

__version__ = "guest"


class EnvHarnessError(Exception):
    """The base of every error of envharness."""


class SpecError(EnvHarnessError, ValueError):
    """A spec that is not the running one."""


class Spec:
    """What can be known of a spec without the resolver: its name."""

    def __init__(self, name, source=None):
        self.name = name
        self.source = source

    def __repr__(self):
        return "<Spec %s>" % self.name


def _normal(name):
    return re.sub(r"\s", "-", str(name).strip().lower())


def load_spec(path):
    """Reads the name of a spec file."""
    with open(os.fspath(path), encoding="utf-8-sig") as file:
        text = file.read()
    found = re.search(r"""^\s*["']?name["']?\s*[:=]\s*["']?([^"'\n#,]+)""", text, re.MULTILINE)
    stem = os.path.basename(os.fspath(path)).split(".")[0]
    return Spec(_normal(found.group(1) if found else stem), os.fspath(path))


def create_spec(name, **_):
    """A spec by name."""
    return Spec(_normal(name))


def load_spec_from_config(config):
    """A spec from a task's configuration."""
    inner = config.get("spec", config)
    return load_spec(inner) if isinstance(inner, (str, os.PathLike)) else Spec(_normal(inner.get("name", "env")))


def _name_of(spec):
    if isinstance(spec, Spec):
        return spec.name
    if isinstance(spec, dict):
        return _normal(spec.get("name", "env"))
    return load_spec(spec).name


class Result(tuple):
    """``(exit_code, logs)``; as text the output."""

    def __new__(cls, exit_code, logs):
        return super().__new__(cls, (exit_code, logs))

    exit_code = property(lambda self: self[0])
    logs = property(lambda self: self[1])

    def __str__(self):
        return self[1]


class Context:
    """The context in which this process runs."""

    def __init__(self):
        self.id = os.environ["ENVHARNESS_CONTEXT"]
        self.name = os.environ.get("ENVHARNESS_SPEC_NAME", "")
        self.workdir = pathlib.Path(os.environ["ENVHARNESS_WORKDIR"])
        self.activated = True
        self.activation = "this process runs in the context"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def __repr__(self):
        return "<Context %s (inside)>" % self.id

    def execute(self, command, cwd=None, env=None, timeout=None):
        """Runs a list of words."""
        variables = dict(os.environ, **(env or {}))
        done = subprocess.run(
            list(command), cwd=cwd, env=variables, timeout=timeout, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False,
        )
        return Result(done.returncode, done.stdout)

    def run(self, line, check=True, cwd=None, env=None, timeout=None):
        """Runs a shell line."""
        result = self.execute(["/bin/sh", "-c", line], cwd, env, timeout)
        sys.stdout.write(result.logs)
        if check and result.exit_code:
            raise EnvHarnessError("`%s` ended with exit code %d" % (line, result.exit_code))
        return result

    def call(self, function, *args, **kwargs):
        """Calls a function here."""
        return function(*args, **kwargs)

    def _place(self, path):
        return str(self.workdir / os.fspath(path))

    def upload_file(self, source, target):
        """Copies a file to its place in the context."""
        target = self._place(target)
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        shutil.copy(os.fspath(source), target)

    def download_file(self, source, target):
        """Copies a file from its place in the context."""
        os.makedirs(os.path.dirname(os.path.abspath(os.fspath(target))), exist_ok=True)
        shutil.copy(self._place(source), os.fspath(target))


def current_context():
    """The context in which this process runs."""
    if "ENVHARNESS_CONTEXT" not in os.environ:
        raise EnvHarnessError("this process runs in no context; install envharness itself to make one")
    return Context()


@contextlib.contextmanager
def get_context(spec, **_):
    """The current context, when ``spec`` is the one it was made for."""
    context, name = current_context(), _name_of(spec)
    if context.name and name != context.name:
        raise SpecError(
            "inside the context of `%s` there is no `%s`: make contexts of other specs from outside" % (context.name, name)
        )
    yield context


create_context = get_context
