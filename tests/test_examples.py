"""The examples that drive environments, as a user runs them, in short form."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import EXAMPLES, ROOT, clean_environ

pytestmark = pytest.mark.xdist_group("examples")


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


def run(name: str, *args: object, home: Path, timeout: float = 600) -> str:
    argv = [sys.executable, str(EXAMPLES / name), *map(str, args)]
    done = subprocess.run(argv, env=clean_environ(home), cwd=home, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_asyncio_rollout(home):
    said = run("rollout_async.py", 60, 16, home=home)
    episodes, steps, reward = re.search(r"(\d+) episodes, (\d+) steps, mean reward ([\d.]+)", said).groups()
    # Ten numbers, none twice: every episode ends with a hit.
    assert int(episodes) == 60 and 60 <= int(steps) <= 600 and float(reward) == 1.0


def test_the_notebook_style_loop(home):
    said = run("rollout_sync.py", home=home).splitlines()
    assert said[0] == "a number from 1 to 10"
    assert any(re.fullmatch(r"\d+ yes 1\.0", line) for line in said)
    assert any("number" in line and "valid integer" in line for line in said)


def test_the_group_rollout_learns(home):
    said = run("group_rollout.py", 30, home=home)
    # A table that knew nothing would hit one time in ten.
    assert float(re.search(r"last round: ([\d.]+)", said)[1]) > 0.5


def test_ppo_trains_on_a_served_environment(home):
    said = run("train_ppo.py", 256, home=home, timeout=1200)
    assert re.search(r"after 256 steps the mean return is \d+", said), said


def test_both_halves(home):
    said = run("serve_and_drive.py", home=home)
    assert re.search(r"100 sessions played an episode each .* guessed \d+ times", said)
    assert said.endswith("Server ended, workers gone.\n")


@pytest.mark.parametrize("name", ["drive_async.py", "drive_sync.py"])
def test_the_readmes_loops(name, home):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    block = next(block for block in blocks if block.startswith(f"# {name}\n"))
    assert len(block.strip().splitlines()) <= 25
    shutil.copytree(EXAMPLES / "guess", home / "guess", dirs_exist_ok=True)
    (home / name).write_text(block)
    done = subprocess.run([sys.executable, name], env=clean_environ(home), cwd=home, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert ("yes 1.0" in done.stdout) if name == "drive_sync.py" else len(json.loads(done.stdout)) == 100
