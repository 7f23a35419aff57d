"""What every test has: a store of its own, a download cache shared by all, real interpreters, the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# A shell in the background starts its programs with SIGINT ignored; what is tested here must hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
#: Downloads are shared: a test that needs a cold cache makes one.
CACHE = Path(os.environ.get("ENVHARNESS_TEST_CACHE", ROOT / ".test" / "cache"))
BIN = Path(sys.executable).parent


def pytest_configure(config):
    config.addinivalue_line("markers", "big: needs torch and some minutes")


def find_interpreters() -> dict[str, str]:
    """Interpreters of the machine by minor version, real paths."""
    found: dict[str, str] = {}
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = sorted(versions.glob("3.*/bin/python"), reverse=True)
    candidates += [Path(folder) / f"python3.{n}" for folder in os.environ["PATH"].split(":") for n in range(8, 14)]
    for path in candidates:
        if not path.is_file() or "shims" in path.parts:
            continue
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found.setdefault(done.stdout.strip(), str(path.resolve()))
    return found


INTERPRETERS = find_interpreters()
MINOR = "{}.{}".format(*sys.version_info[:2])


def need_python(*minors: str) -> None:
    """Skips by name where an interpreter is missing."""
    missing = [minor for minor in minors if minor not in INTERPRETERS]
    if missing:
        pytest.skip(f"Python {', '.join(missing)} is not on this machine")


def clean_environ(home: Path) -> dict[str, str]:
    """The environment of a user's shell with a store of its own; byte-code may be written, as anywhere."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("ENVHARNESS_", "PYTHON", "VIRTUAL_ENV", "CONDA_"))}
    environ["ENVHARNESS_HOME"] = str(home)
    environ["ENVHARNESS_CACHE"] = str(CACHE)
    environ["PATH"] = f"{BIN}:{environ['PATH']}"
    environ["XDG_CONFIG_HOME"] = str(home / "config")
    return environ


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A store of its own and an empty current directory."""
    folder = tmp_path / "home"
    for name in list(os.environ):
        if name.startswith(("ENVHARNESS_", "VIRTUAL_ENV", "CONDA_", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")):
            monkeypatch.delenv(name)
    for name, value in clean_environ(folder).items():
        monkeypatch.setenv(name, value)
    work = tmp_path / "project"
    work.mkdir()
    monkeypatch.chdir(work)
    return folder


@pytest.fixture(scope="session")
def channel() -> Path:
    """The folder of a conda channel with real packages, made once per machine."""
    import shutil

    import channel as made

    for program in ("patchelf", "cc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program}, which the channel is made with, is not on this machine")
    if made.MINORS[0] not in made.interpreters():
        pytest.skip(f"Python {made.MINORS[0]} with a shared library is not on this machine")
    return made.get(CACHE)


class Ran:
    """A finished process."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self):
        return json.loads(self.out)

    def ok(self) -> Ran:
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


@pytest.fixture
def cli(home):
    """Runs the command."""

    def run(*args, input=None, env=None, cwd=None, timeout=600) -> Ran:
        environ = {**os.environ, **(env or {})}
        argv = [str(BIN / "envharness"), *map(str, args)]
        return Ran(subprocess.run(argv, input=input, env=environ, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False))

    return run


@pytest.fixture
def script(home):
    """Runs a Python script in a process of its own, as a user would."""

    def run(code: str, *args, env=None, python=sys.executable, name="script.py", timeout=600) -> Ran:
        path = Path(name)
        path.write_text(textwrap.dedent(code))
        argv = [str(python), str(path), *map(str, args)]
        environ = {**os.environ, **(env or {})}
        return Ran(subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=timeout, check=False))

    return run


def write(path: str | Path, text: str) -> Path:
    """Writes a dedented text file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


#: Two releases of numpy 2 with wheels for this Python.
NUMPY_2, NUMPY_2_OTHER = ("2.1.3", "2.1.2") if sys.version_info >= (3, 13) else ("2.0.2", "2.0.1")
SMALL = {"name": "small", "python": MINOR, "deps": ["six==1.16.0"]}


@pytest.fixture(scope="session")
def base_tars(tmp_path_factory) -> dict[str, Path]:
    """Root file systems for images, with this Python and without one."""
    import engines

    return {
        engines.BASE: engines.base(tmp_path_factory.mktemp("base")),
        engines.BARE: engines.base(tmp_path_factory.mktemp("bare"), None),
    }


def _engine(kind: str, base_tars: dict[str, Path]):
    import engines

    engines.need_engine(kind)
    with engines.dockerd() if kind == "docker" else engines.podman() as engine:
        for name, tar in base_tars.items():
            engines.take(engine, tar, name)
        yield engine


@pytest.fixture(scope="session")
def docker_engine(base_tars):
    """A dockerd with the base images."""
    yield from _engine("docker", base_tars)


@pytest.fixture(scope="session")
def podman_engine(base_tars):
    """A podman with the base images."""
    yield from _engine("podman", base_tars)
