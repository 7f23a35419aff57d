"""The example scripts over conda: the same code, the same lines, another backend."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from channel import MINORS, Served
from conftest import BIN, EXAMPLES, MINOR, ROOT, Ran, write


@pytest.fixture(autouse=True)
def one_python(channel):
    if MINOR not in MINORS:
        pytest.skip(f"the channel has no Python {MINOR}, and what is entered must have the caller's")


def script(*argv) -> Ran:
    done = subprocess.run([sys.executable, *map(str, argv)], env=dict(os.environ), capture_output=True, text=True, timeout=1500, check=False)
    return Ran(done).ok()


def test_the_single_environment_script(home, channel):
    text = (EXAMPLES / "task_spec.yaml").read_text()
    assert "  backend: venv\n" in text
    spec = write("task_spec.yaml", text.replace("  backend: venv\n", f"  backend: conda\n  channels: ['{channel.as_uri()}']\n"))
    done = script(EXAMPLES / "test_envharness.py", spec, 64)
    assert re.search(r"^Environment activated: conda-env-sb3_pendulum_training-[a-z0-9]{5}$", done.out, re.MULTILINE)
    for line in ("gymnasium==0.29.1", "stable-baselines3==2.2.1", "torch==2.0.1", "Trained for 64 steps", "Context ended, clean-up done."):
        assert line in done.out.splitlines()


def test_the_batch_script(home, channel):
    code = f"""
        import sys
        sys.path.insert(0, {str(EXAMPLES)!r})
        import test_batch_envharness as batch

        more = {{"backend": "conda", "channels": [{channel.as_uri()!r}], "python": {MINOR!r}}}
        tasks = [
            {{"name": "from_conda", "deps": [], "more": {{**more, "conda_deps": ["gymnasium"]}}}},
            {{"name": "from_pip", "deps": ["gymnasium==0.29.1"], "more": more}},
        ]
        if __name__ == "__main__":
            batch.main(tasks)
        """
    done = script(write("tasks.py", code))
    assert re.search(r"from_conda: conda-env-from_conda-\w{5} has gymnasium \d", done.out)
    assert re.search(r"from_pip: conda-env-from_pip-\w{5} has gymnasium 0.29.1", done.out)
    assert "All tasks completed: ['from_conda', 'from_pip']" in done.out


def test_the_readmes_environment_yml(home, channel):
    """Its commands as they stand; the channel is reached by a mirror."""
    (text,) = re.findall(r"^## From conda$.*?^## ", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    ((name, spec),) = re.findall(r"```yaml\n# (\S+)\n(.*?)```", text, re.DOTALL)
    write(name, spec)
    (commands,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line.removeprefix("$ ").partition("   #")[0].strip() for line in commands.splitlines()]
    assert len(lines) == 3
    environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    with Served(channel) as served:
        write("envharness.yaml", f"mirrors:\n  conda-forge: {served.url}\n")
        for line in lines:
            done = Ran(subprocess.run(line, shell=True, env=environ, capture_output=True, text=True, check=False)).ok()
    assert "manager: conda" in done.out and "manager: pip" in done.out
