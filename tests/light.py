"""What the tests of the light openenv share: interpreters that have it, snippets, recordings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import BIN, CACHE, ROOT

LIGHT = ROOT / "guest" / "openenv_light"
WIRE = ROOT.parent / "shared" / "openenv-wire"
#: The project's own copies where there are any.
RECORDINGS = ROOT / "tests" / "recordings" if (ROOT / "tests" / "recordings").is_dir() else WIRE
ENVS = RECORDINGS / "envs"
HINT = "hint: serve it with --reference, which puts the real openenv package back"


def make_venv(folder: Path, python: str, *packages: str) -> str:
    """An interpreter with packages; skips by name where they cannot be had."""
    uv = BIN / "uv"
    if not uv.is_file():
        pytest.skip("the uv binary is not beside this Python")
    environ = dict(os.environ, UV_CACHE_DIR=str(CACHE / "uv"))
    subprocess.run([uv, "venv", "-q", folder, "--python", python], check=True, env=environ)
    binary = folder / "bin" / "python"
    done = subprocess.run([uv, "pip", "install", "-q", "-p", binary, *packages], env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{', '.join(packages)} cannot be installed here: {done.stderr.strip()[-300:]}")
    return str(binary)


def runner(binary: str, folder: Path):
    """A function that runs a snippet and gives the JSON values that it printed, one a line."""

    def run(code: str, *, path: tuple[Path, ...] = (), install: bool = True, warnings: str = "error", **environ: str) -> list:
        head = "import json, warnings\nimport openenv._aliases\nopenenv._aliases.install()\n" if install else "import json\n"
        script = folder / "snippet.py"
        script.write_text(head + "def show(value): print(json.dumps(value))\n" + textwrap.dedent(code))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPENENV_", "ENABLE_WEB", "MAX_CONCURRENT"))}
        clean.update(PYTHONPATH=":".join(map(str, (LIGHT, *path))), PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS=warnings, **environ)
        done = subprocess.run([binary, script], capture_output=True, text=True, env=clean, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.fixture(scope="session")
def tools_python(tmp_path_factory):
    return make_venv(tmp_path_factory.mktemp("light") / "venv", sys.executable, "pydantic>=2.12", "fastmcp>=3,<4")


@pytest.fixture
def light(tools_python, tmp_path):
    return runner(tools_python, tmp_path)


@pytest.fixture
def tools(tools_python, tmp_path):
    """FastMCP's own dependencies warn; that is theirs."""
    run = runner(tools_python, tmp_path)
    return lambda code, **kwargs: run(code, warnings="ignore", **kwargs)


def recorded(name: str) -> dict[str, dict]:
    """What a real server answered, by case."""
    path = RECORDINGS / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"{path.name} of the wire recordings is not beside the project")
    return {case["case"]: case for case in map(json.loads, path.read_text().splitlines())}
