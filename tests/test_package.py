"""The package: light to import, typed, checked stubs, its examples and its map of requirements."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import envharness as eh
import pytest
from conftest import BIN, EXAMPLES, INTERPRETERS, MINOR, ROOT, Ran, clean_environ, need_python, write

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_importing_loads_no_third_party_module_and_starts_nothing(script, home):
    code = """
    import sys, threading
    before = set(sys.modules)
    import envharness
    assert threading.active_count() == 1
    stdlib = set(sys.stdlib_module_names) if hasattr(sys, "stdlib_module_names") else None
    new = {name.split(".")[0] for name in set(sys.modules) - before} - {"envharness"}
    if stdlib is not None:
        assert not new - stdlib, new - stdlib
    assert not {"asyncio", "subprocess", "sqlite3", "numpy", "uv"} & set(sys.modules)
    tasks = open("/proc/self/status").read().split("Threads:")[1].split()[0]
    print(tasks)
    """
    assert script(code).ok().out == "1\n"
    assert not home.exists()


def test_the_package_depends_on_the_uv_wheel_alone(home):
    from importlib.metadata import files, metadata

    needs = [need for need in metadata("envharness").get_all("Requires-Dist") if "extra ==" not in need]
    assert [re.split("[<>=]", need)[0] for need in needs] == ["uv"]
    assert any(path.name == "py.typed" for path in files("envharness"))
    with open(BIN / "envharness", "rb") as command:
        assert command.read(4) == b"\x7fELF", "the command is the Rust binary itself"


def test_stubs_match_the_extension_module(home):
    if sys.version_info < (3, 10):
        pytest.skip("the stub uses syntax of 3.10")
    environ = {**os.environ, "MYPYPATH": ""}
    command = [sys.executable, "-m", "mypy.stubtest", "envharness._native", "--ignore-missing-stub"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 0, done.stdout


def test_every_public_name_has_a_docstring(home):
    assert eh.__version__ == eh._native.__version__
    for name in eh.__all__:
        thing = getattr(eh, name)
        if callable(thing):
            assert thing.__doc__, name
            for attribute, member in vars(thing).items() if isinstance(thing, type) else ():
                if callable(member) and not attribute.startswith("_"):
                    assert member.__doc__, f"{name}.{attribute}"


def test_errors_are_one_tree_and_survive_pickle(home):
    import pickle

    errors = [getattr(eh, name) for name in eh.__all__ if name.endswith(("Error", "Timeout"))]
    assert all(issubclass(error, eh.EnvHarnessError) for error in errors)
    error = pickle.loads(pickle.dumps(eh.SpecError("x", hint="h", details=["d"])))
    assert str(error) == "x\n  d\nhint: h" and isinstance(error, ValueError)
    result = pickle.loads(pickle.dumps(eh.Result(3, "logs", stdout="logs", command=("a",))))
    code, logs = result
    assert (code, logs, result.stdout, str(result)) == (3, "logs", "logs", "logs")


def readme_blocks(language: str) -> list[str]:
    # What needs a conda channel is in test_conda_examples.py.
    text = re.sub(r"^## From conda$.*?(?=^## )", "", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_readmes_example_runs(script, home):
    example = readme_blocks("python")[0]
    assert len(example.strip().splitlines()) <= 20
    done = script(example.replace("3.11", MINOR)).ok()
    assert "six 1.16.0" in done.out


def test_the_readmes_shell_lines_run(cli, home):
    write("task_spec.yaml", readme_blocks("yaml")[0].replace("3.11", MINOR))
    for block in (*readme_blocks("yaml"), *readme_blocks("python")):
        if named := re.match(r"# (guess/\S+)\n", block):
            write(named[1], block)
    lines = [line for block in readme_blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    assert len(lines) >= 8
    environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    with contextlib.ExitStack() as stack:
        for line in lines:
            run_line(line, environ, stack)


def run_line(line: str, environ: dict, stack: contextlib.ExitStack) -> None:
    """Runs a line of the README as a shell does; a server stays until the others are done."""
    command = line[2:].split("  #")[0]
    if " serve " in command:
        server = stack.enter_context(subprocess.Popen(shlex.split(command), env=environ, stdout=subprocess.PIPE, text=True))
        stack.callback(server.terminate)
        assert server.stdout.readline().startswith("http://127.0.0.1:"), line
    else:
        done = subprocess.run(["bash", "-c", command], env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_python_examples_in_the_docs_run(page, script, home):
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
        write("task_spec.yaml", f"name: demo\npython: '{MINOR}'\ndeps: [six==1.16.0]\n")
        write("train.py", "def train(steps):\n    return {'steps': steps}\n")
        script(block.replace("3.11", MINOR), name=f"example{number}.py").ok()


def map_of_requirements() -> dict:
    return tomllib.loads((ROOT / "tests" / "requirements.toml").read_text())


def test_every_requirement_names_a_test_that_exists(home):
    mapped = map_of_requirements()
    wanted = {f"A{number}" for number in range(1, 213)} | {f"B{number}" for number in range(1, 77)}
    assert set(mapped) >= wanted, sorted(wanted - set(mapped))
    sources = {path.name: path.read_text() for path in (ROOT / "tests").glob("test_*.py")}
    later = {"conda", "containers", "confinement", "GPU", "the rigger", "task queues", "schedulers", "monitoring"}
    later |= {"contract changes", "scaffolding", "the web interface"}
    for item, value in mapped.items():
        for reference in [value] if isinstance(value, str) else value:
            if reference.startswith("later: "):
                assert reference.removeprefix("later: ") in later, f"{item}: {reference}"
            elif reference.startswith("context: "):
                assert len(reference) > 12
            else:
                name, _, test = reference.partition("::")
                assert f"def {test}(" in sources.get(name, ""), f"{item}: {reference}"


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """One store with torch in it for the tests that need it."""
    need_python("3.11")
    if MINOR not in ("3.9", "3.10", "3.11"):
        pytest.skip("torch 2.0.1 has no wheel for this Python")
    folder = tmp_path_factory.mktemp("big")

    def run(*argv, cwd=folder, timeout=1500):
        environ = clean_environ(folder / "home")
        return Ran(subprocess.run([str(a) for a in argv], env=environ, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False))

    return run


def test_the_single_environment_script_as_a_user_runs_it(big, home):
    for round_number in range(2):
        done = big(sys.executable, EXAMPLES / "test_envharness.py", *([EXAMPLES / "task_spec.yaml", 64] if round_number == 0 else [])).ok()
        assert re.search(r"^Environment activated: venv-env-sb3_pendulum_training-[a-z0-9]{5}$", done.out, re.MULTILINE)
        for line in ("gymnasium==0.29.1", "stable-baselines3==2.2.1", "torch==2.0.1", "Context ended, clean-up done."):
            assert line in done.out.splitlines()
        assert ("Trained for 64 steps" in done.out) == (round_number == 0)
    # The base has what it had before: nothing, or a release of its own.
    after = big(sys.executable, "-c", "import gymnasium; print(gymnasium.__version__)")
    assert "0.29.1" not in after.out and (after.code == 0 or "ModuleNotFoundError" in after.err)


def test_torch_is_entered_left_and_entered_again_three_times(big, home, tmp_path):
    path = write(
        tmp_path / "again.py",
        f"""
        import envharness as eh
        spec = eh.load_spec({str(EXAMPLES / "task_spec.yaml")!r})
        for _ in range(3):
            with eh.get_context(spec) as ctx:
                assert ctx.activated, ctx.activation
                import torch, numpy
                assert float((torch.ones(2, 2) @ torch.ones(2, 2)).sum()) == 8.0
                assert torch.from_numpy(numpy.ones(3)).sum().item() == 3.0
        print("ok")
        """,
    )
    assert big(sys.executable, path).ok().out == "ok\n"


def test_the_spec_to_the_letter_creates_prints_and_warns(big, home, tmp_path):
    text = (EXAMPLES / "task_spec.yaml").read_text()
    letter = write(tmp_path / "task_spec.yaml", "\n".join(line for line in text.splitlines() if "numpy" not in line))
    done = big(sys.executable, EXAMPLES / "test_envharness.py", letter).ok()
    assert "gymnasium==0.29.1" in done.out and "torch==2.0.1" in done.out
    assert "built before numpy 2: " in done.err and "torch 2.0.1" in done.err and "numpy<2" in done.err


def test_the_batch_script_as_a_user_runs_it(home):
    need_python("3.11")
    if MINOR not in ("3.9", "3.10", "3.11"):
        pytest.skip("ray 2.5.1 has no wheel for this Python")
    done = Ran(subprocess.run([sys.executable, str(EXAMPLES / "test_batch_envharness.py")], env=dict(os.environ), capture_output=True, text=True, timeout=900, check=False)).ok()
    assert re.search(r"sb3_pendulum: venv-env-sb3_pendulum-\w{5} has gymnasium 0.29.1", done.out)
    assert re.search(r"ray_rllib_cartpole: venv-env-ray_rllib_cartpole-\w{5} has gymnasium 0.26.3", done.out)
    assert "All tasks completed: ['ray_rllib_cartpole', 'sb3_pendulum']" in done.out
    code = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import test_batch_envharness as batch
if __name__ == "__main__":
    batch.TASKS[1]["deps"][0] = "gymnasium==0.29.1"
    print(batch.main(batch.TASKS))
"""
    path = write("letter.py", code)
    letter = Ran(subprocess.run([sys.executable, str(path)], env=dict(os.environ), capture_output=True, text=True, timeout=900, check=False)).ok()
    assert "(['sb3_pendulum'], ['ray_rllib_cartpole'])" in letter.out
    assert "ray_rllib_cartpole failed: no versions satisfy" in letter.out
    assert "`gymnasium==0.29.1` could be `gymnasium==0.26.3`" in letter.out


def test_a_new_member_gets_the_identical_environment_from_the_lock(cli, home, tmp_path):
    write("task_spec.yaml", f"name: team\npython: '{MINOR}'\ndeps: [python-dateutil]\n")
    cli("lock").ok()
    show = ["--", "python", "-c", "from importlib.metadata import version; print(version('python-dateutil'))"]
    mine = cli("run", "task_spec.yaml", *show).ok().out
    theirs = cli("run", "task_spec.yaml", "--locked", *show, env={"ENVHARNESS_HOME": str(tmp_path / "another")}).ok().out
    assert mine == theirs


def test_every_interpreter_that_the_set_up_found_is_one(home):
    assert MINOR in INTERPRETERS and all(Path(path).is_file() for path in INTERPRETERS.values())
