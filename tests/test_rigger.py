"""From a task to an environment that runs: what is read, what is decided and why, what is mended, and what is refused."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, CACHE, MINOR, ROOT, need_python, write
from programs import BROKEN, PROGRAMS, take


def rig(cli, *args, **options):
    return cli("rig", "--output-format", "json", *args, **options)


def git(*args, cwd):
    environ = {**os.environ, "GIT_AUTHOR_DATE": "2022-06-01T12:00:00", "GIT_COMMITTER_DATE": "2022-06-01T12:00:00"}
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *args]
    subprocess.run(command, cwd=cwd, env=environ, check=True, capture_output=True)


TRAIN = """
    import numpy as np
    import yaml

    try:
        import wandb
    except ImportError:
        wandb = None


    def main():
        import six

        print(six.moves.range(2), np.arange(3).astype(np.float), yaml.dump({"a": 1}))


    if __name__ == "__main__":
        main()
    """


def test_a_script_gets_a_spec_with_reasons_and_a_lock_that_answers_it(cli, home):
    need_python("3.11")
    write("train.py", TRAIN)
    done = cli("rig", "train.py", "--", "python", "train.py").ok()
    assert done.out.strip() == str(Path("train_spec.yaml").resolve())
    assert "with your rights" in done.err and "1. Python 3.11" in done.err and "passed" in done.err
    text = Path("train_spec.yaml").read_text()
    assert "numpy<1.24  # train.py:2 imports numpy" in text and "uses numpy.float" in text
    assert "pyyaml  # train.py:3 imports yaml" in text and "six  # train.py:12" in text and "wandb" not in text
    assert all("  # " in line for line in text.splitlines() if line.strip().startswith("- "))
    assert "has wheels up to 3.11" in text
    cli("lock", "train_spec.yaml", "--locked").ok()
    assert "a: 1" in cli("run", "train_spec.yaml", "--locked", "--", "python", "train.py").ok().out
    # Anew over one's own; never over another's.
    cli("rig", "train.py").ok()
    Path("train_spec.yaml").write_text("name: mine\n")
    refused = cli("rig", "train.py")
    assert refused.code == 1 and "--force" in refused.err and Path("train_spec.yaml").read_text() == "name: mine\n"


def test_explain_prints_the_evidence_and_tries_nothing(cli, home):
    write("train.py", TRAIN)
    document = rig(cli, "train.py", "--explain").ok().json
    needs = {i["module"]: i["need"] for i in document["evidence"]["imports"]}
    assert needs == {"numpy": "required", "yaml": "required", "wandb": "optional", "six": "lazy"}
    assert document["evidence"]["uses"]["numpy.float"] == "train.py:14"
    assert "train.py:14 uses numpy.float" in cli("rig", "train.py", "--explain").ok().out
    assert not Path("train_spec.yaml").exists() and not list((home / "prefixes").glob("*"))


def test_what_a_name_only_looks_like_is_never_installed(cli, home):
    write("a.py", "import nunpy\nimport no_such_module_anywhere_at_all.part\n")
    ended = rig(cli, "a.py")
    assert ended.code == 1 and ended.json["passed"] is False
    told = "\n".join(ended.json["obstacles"])
    assert "looks like `numpy`" in told and "no_such_module_anywhere_at_all" in told and "a.py:1" in told
    assert ended.json["plan"]["packages"] == {} and not Path("a_spec.yaml").exists()
    assert "--with" in cli("rig", "a.py").err


def test_a_namesake_of_the_tasks_own_module_is_not_taken(cli, home):
    # Whoever lost a module of their own: the index has a namesake of most names.
    write("b.py", "import fixpath\n")
    ended = rig(cli, "b.py")
    assert ended.code == 1 and "nothing tells that it is what is meant" in ended.json["obstacles"][0]
    # Nor by the way of a rule, when a command is what meets that it is missing.
    ended = rig(cli, "b.py", "--", "python", "b.py")
    assert ended.code == 1 and {tuple(map(str, attempt["changes"])) for attempt in ended.json["attempts"]} == {()}
    assert "--with fixpath" in str(ended.json) and not Path("b_spec.yaml").exists()
    write("lazy.py", "def later():\n    import fixpath\n\nlater()\n")
    ended = rig(cli, "lazy.py", "--", "python", "lazy.py")
    assert ended.code == 1 and not Path("lazy_spec.yaml").exists()
    assert rig(cli, "b.py", "--with", "fixpath").ok().json["passed"]


def test_a_squatter_among_the_requirements_is_replaced_and_said(cli, home):
    write("requirements.txt", "sklearn\nsix==1.16.0\n")
    write("c.py", "import sklearn\n")
    document = rig(cli, "c.py", "--explain").ok().json
    assert sorted(document["decision"]["plan"]["packages"]) == ["scikit-learn", "six"]
    assert any("refused" in remark and "scikit-learn" in remark for remark in document["decision"]["remarks"])


def test_the_table_is_made_of_what_wheels_hold(home):
    import numpy

    made = subprocess.run([BIN / "python", ROOT / "scripts" / "rigger_table.py", Path(numpy.__file__).parent.parent], capture_output=True, text=True, check=True)
    rows = dict(line.split("\t")[:2] for line in made.stdout.splitlines() if not line.startswith("#"))
    assert rows["numpy"] == "numpy" and rows["pytest"] == "pytest" and rows["attr"] == "attrs" and rows["xdist"] == "pytest-xdist"
    assert not any(module.startswith("_") or module in ("tests", "docs") for module in rows)


def test_a_notebook_with_its_own_installs(cli, home):
    cells = [
        {"cell_type": "markdown", "source": "import nothing"},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip install six==1.15.0\n"]},
        {"cell_type": "code", "source": "import six\nawait_me = six.PY3"},
    ]
    Path("n.ipynb").write_text(json.dumps({"cells": cells, "metadata": {"language_info": {"version": "3.10.4"}}, "nbformat": 4}))
    ended = rig(cli, "n.ipynb").ok().json
    assert ended["versions"]["six"] == "1.15.0" and Path("n_spec.yaml").is_file()
    assert ended["plan"]["python"] == {"value": "3.10", "reason": "n.ipynb was run with it"}


def test_a_folder_says_it_in_many_files(cli, home):
    write("p/pkg/__init__.py", "import six\nfrom . import inner\n")
    write("p/pkg/inner.py", "import toml\n")
    write("p/tests/test_it.py", "import pytest\nimport pkg\n")
    write("p/Dockerfile", "FROM python:3.10-slim\nRUN apt-get update && apt-get install -y libgl1 \\\n    && pip install toml==0.10.1\n")
    write("p/README.md", "```\npip install six==1.15.0\npython -m pkg\n```\n")
    write("p/pyproject.toml", "[project]\nname = 'p'\nversion = '1'\nrequires-python = '>=3.8'\ndependencies = ['idna<3']\n")
    write("p/setup.py", "open('escaped', 'w')\nfrom setuptools import setup\nREQUIRES = ['certifi']\nsetup(install_requires=REQUIRES + ['attrs'])\n")
    document = rig(cli, "p", "--explain").ok().json
    packages = {name: p["requirement"] for name, p in document["decision"]["plan"]["packages"].items()}
    assert packages == {"toml": "toml==0.10.1", "six": "six==1.15.0", "idna": "idna<3", "certifi": "certifi", "attrs": "attrs"}
    assert document["decision"]["plan"]["python"]["value"] == "3.10" and document["evidence"]["system"] == ["libgl1"]
    assert document["evidence"]["commands"] == ["python -m pkg"]
    ended = rig(cli, "p").ok().json
    assert ended["spec"] == str(Path("p/task_spec.yaml").resolve()) and not Path("escaped").exists() and not Path("p/escaped").exists()


def test_conda_packages_and_a_modules_own_place_are_kept(cli, home):
    write("q/environment.yml", "name: q\nchannels: [conda-forge]\ndependencies: [python=3.11, numpy, pip, {pip: [six==1.16.0]}]\n")
    write("q/main.py", "import numpy\nimport six\n")
    document = rig(cli, "q", "--explain").ok().json
    assert sorted(document["decision"]["plan"]["packages"]) == ["six"] and "- numpy\n" in document["spec_text"]
    assert "conda-forge" in document["spec_text"] and document["decision"]["plan"]["python"]["value"] == "3.11"
    # A script beside its project's modules finds them where it is run.
    write("w/setup.cfg", "[metadata]\nname = w\n")
    write("w/lib/__init__.py", "import six\nVALUE = six.PY3\n")
    write("w/scripts/run.py", "from lib import VALUE\nprint('found', VALUE)\n")
    ended = rig(cli, "w/scripts/run.py", "--", "python", "w/scripts/run.py").ok().json
    assert list(ended["plan"]["packages"]) == ["six"] and ended["plan"]["env"]["PYTHONPATH"]["value"] == "."
    assert "found True" in cli("run", "scripts/run_spec.yaml", "--", "python", "scripts/run.py", cwd="w").ok().out


def test_a_git_address_is_cloned_and_its_day_counts(cli, home, tmp_path):
    repository = tmp_path / "upstream"
    write(repository / "run.py", "import six\nprint(six.__version__)\n")
    git("init", "-q", cwd=repository)
    git("add", ".", cwd=repository)
    git("commit", "-qm", "x", cwd=repository)
    ended = rig(cli, f"git+file://{repository}", "--", "python", "run.py").ok().json
    assert ended["plan"]["exclude_newer"]["value"] == "2022-06-02" and ended["plan"]["python"]["value"] == "3.10"
    assert ended["versions"]["six"] == "1.16.0" and "2022-06-01" in Path("upstream/task_spec.yaml").read_text()
    again = rig(cli, f"git+file://{repository}")
    assert again.code == 1 and "there already" in again.err
    newest = rig(cli, "upstream", "--date", "none", "--force").ok().json
    assert newest["plan"]["exclude_newer"] is None


def test_a_traceback_tells_what_is_missing(cli, home):
    write("t.py", "import six\n")
    text = f'Traceback (most recent call last):\n  File "{Path("t.py").resolve()}", line 1, in <module>\n    import six\nModuleNotFoundError: No module named \'six\'\n'
    ended = rig(cli, "-", input=text).ok().json
    assert ended["kind"] == "traceback" and "six" in ended["versions"] and Path("t_spec.yaml").is_file()
    assert "traceback" in cli("rig", "-", input="all is well").err


def test_an_env_package_is_rigged_with_what_the_guest_answers_for(cli, home):
    shutil.copytree(ROOT / "examples" / "guess", "guess")
    ended = rig(cli, "guess").ok().json
    assert ended["kind"] == "env-package" and not any(name.startswith("openenv") for name in ended["versions"])
    text = Path("guess/task_spec.yaml").read_text()
    assert "loads and resets" in text and "pydantic  # openenv.yaml" in text
    source = Path("guess/app.py").read_text()
    Path("guess/app.py").write_text(re.sub(r"(def reset\(.*?\).*?:\n)", r"\1        raise RuntimeError('it does not reset')\n", source))
    broken = rig(cli, "guess")
    assert broken.code == 1 and "it does not reset" in broken.json["obstacles"][0]


def test_a_lock_whose_packages_vanished_moves_to_what_is_nearest(cli, home):
    write("s.yaml", f"name: s\npython: '{MINOR}'\ndeps: [six, idna]\n")
    cli("lock", "s.yaml").ok()
    text = Path("s.lock").read_text()
    Path("s.lock").write_text(re.sub(r'(name = "six"\nversion = ")[\d.]+', r"\g<1>1.16.99", text))
    idna = re.search(r'name = "idna"\nversion = "([\d.]+)', text)[1]
    ended = rig(cli, "s.lock").ok().json
    assert ended["versions"]["six"] == "1.16.0" and ended["versions"]["idna"] == idna and len(ended["attempts"]) == 2
    assert "no file answers six==1.16.99" in Path("s_rigged.yaml").read_text()


def test_a_python_2_program_and_other_things_that_cannot_be_rigged(cli, home):
    write("old.py", "import os\nprint 'hello'\n")
    assert "Python 2" in cli("rig", "old.py").err
    write("bad.py", "def f(:\n")
    assert "line 1" in cli("rig", "bad.py").err
    assert "no such file" in cli("rig", "nothing.py").err
    Path("empty").mkdir()
    assert "neither Python nor" in cli("rig", "empty").err
    write("x.py", "import tomllib\nimport distutils\n")
    told = cli("rig", "x.py", "--explain").ok().out
    assert "tomllib" in told and 'python: "3.11"' in told
    write("y.py", "from itertools import batched\nimport distutils\n")
    refused = cli("rig", "y.py")
    assert refused.code == 1 and "batched" in refused.err and "distutils" in refused.err and "--python" in refused.err


def test_a_readmes_command_runs_only_when_it_is_trusted(cli, home):
    write("r/main.py", "import six\n")
    write("r/README.md", "    $ python -c \"open('ran', 'w')\"\n")
    ended = rig(cli, "r").ok().json
    assert not Path("ran").exists() and not Path("r/ran").exists()
    rig(cli, "r", "--trust").ok()
    assert Path("r/ran").exists() and ended["passed"]


def test_a_hostile_folder_writes_nowhere(cli, home, tmp_path):
    outside = tmp_path / "outside.yaml"
    outside.write_text("kept")
    write("h/main.py", "import six\n")
    write("h/setup.py", f"open({str(tmp_path / 'planted')!r}, 'w')\n")
    write("h/conftest.py", f"open({str(tmp_path / 'planted')!r}, 'w')\n")
    write("h/requirements.txt", "-e .\nsix\n")
    Path("h/task_spec.yaml").symlink_to(outside)
    Path("h/leak.py").symlink_to("/etc/hostname")
    git("init", "-q", cwd="h")
    with Path("h/.git/config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = touch {tmp_path / 'planted'}\n\tpager = touch {tmp_path / 'planted'}\n")
    refused = rig(cli, "h")
    assert refused.code == 1 and outside.read_text() == "kept"
    # A clone with parts left out fetches them by the program that its configuration names.
    with Path("h/.git/config").open("a") as config:
        config.write(f'[extensions]\n\tpartialClone = o\n[remote "o"]\n\turl = /nowhere\n\tpromisor = true\n\tuploadpack = "touch {tmp_path / "planted"};"\n')
    settings = Path("h/.git/config")
    settings.write_text(settings.read_text().replace("repositoryformatversion = 0", "repositoryformatversion = 1"))
    Path("h/.git/HEAD").write_text("0123456789012345678901234567890123456789\n")
    document = rig(cli, "h", "--force").ok().json
    assert outside.read_text() == "kept" and not Path("h/task_spec.yaml").is_symlink()
    assert not (tmp_path / "planted").exists() and "leak.py" not in str(document)


def test_a_file_that_cannot_be_read_stops_no_other(cli, home):
    write("h/main.py", "import six\n")
    write("h/deep.ipynb", "[" * 100_000)
    write("h/surrogate.py", "import importlib\nimportlib.import_module('\\ud800')\n")
    write("h/setup.py", "from setuptools import setup\na = ['x']\n" + "a = a + a\n" * 60 + "setup(install_requires=[1, a], python_requires=3.6)\n")
    write("h/lines.py", "\n" * 300_000 + "print 'old'\n")
    Path(os.fsdecode(b"h/\xff.py")).write_text("import six\n")
    document = rig(cli, "h", "--explain").ok().json
    assert list(document["decision"]["plan"]["packages"]) == ["six"]


def test_what_the_task_s_syntax_needs_no_proposal_overrides(cli, home):
    write("m.py", "import six\nmatch six.PY3:\n    case True:\n        raise SystemExit(1)\n")
    write("advise.py", "import json\nprint(json.dumps({'changes': [{'python': '3.9'}], 'reason': 'older'}))\n")
    ended = rig(cli, "m.py", "--attempts", "3", "--advisor", f"{BIN / 'python'} advise.py", "--", "python", "m.py")
    assert ended.code == 1 and {tuple(map(str, attempt["changes"])) for attempt in ended.json["attempts"]} == {()}
    assert "there is no Python 3.9 here" in str(ended.json)


def test_what_only_a_person_can_do_is_said(cli, home):
    write("d.py", "import six\nopen('data/train.csv')\n")
    ended = rig(cli, "d.py", "--", "python", "d.py")
    assert ended.code == 1 and len(ended.json["attempts"]) == 1
    assert ended.json["attempts"][0]["findings"][0]["rule"] == "data-missing" and "data/train.csv" in str(ended.json["advice"] + ended.json["attempts"])
    write("net.py", "import urllib.request\nurllib.request.urlopen('http://nowhere.invalid')\n")
    ended = rig(cli, "net.py", "--", "python", "net.py")
    assert ended.code == 1 and ended.json["attempts"][0]["findings"][0]["rule"] == "network-needed"
    assert not Path("net_spec.yaml").exists()


def test_a_module_that_moved_is_offered_and_not_done(cli, home):
    write("g.yaml", "name: g\npython: '3.11'\ndeps: [gymnasium==1.0.0]\n")
    ended = rig(cli, "g.yaml", "--attempts", "1", "--", "python", "-c", "import gym")
    assert ended.code == 1
    (finding,) = ended.json["attempts"][0]["findings"]
    assert finding["rule"] == "module-missing" and "gymnasium" in finding["offer"]
    assert "the budget of 1 attempts is spent" in ended.json["obstacles"]


ADVISOR = """
    import json, sys

    question = json.load(sys.stdin)
    assert question["problems"] and question["evidence"]["kind"] == "spec" and question["machine"]["pythons"]
    if question["refused"]:
        print(json.dumps({"changes": [{"env": ["MODE", "quiet"]}], "reason": "it wants a mode"}))
    else:
        print(json.dumps({"changes": [{"add": "sklearn"}], "reason": "a guess"}))
    """


def test_an_advisor_passes_the_same_gate(cli, home):
    write("advisor.py", ADVISOR)
    write("s.yaml", "name: s\ndeps: [six==1.16.0]\n")
    check = ["--", "python", "-c", "import os; assert os.environ['MODE'] == 'quiet'"]
    assert rig(cli, "s.yaml", *check).code == 1
    ended = rig(cli, "s.yaml", "--advisor", f"{BIN / 'python'} advisor.py", *check).ok().json
    assert [a["changes"] for a in ended["attempts"]] == [[{"env": ["MODE", "quiet"]}], []]
    assert "it wants a mode (advisor)" in Path("s_rigged.yaml").read_text()
    assert "advisor" in cli("rig", "s.yaml", "--force", "--advisor", "false", *check).err


def test_the_same_from_python(home):
    import envharness as eh

    write("train.py", TRAIN)
    with pytest.warns(eh.EnvHarnessWarning, match="with your rights"):
        rigged = eh.EnvRigger(attempts=3).rig("train.py", check=["python", "-c", "import yaml, numpy"])
    assert rigged.passed and rigged.path == Path("train_spec.yaml").resolve() and "numpy<1.24" in rigged.reasons
    with eh.create_context(rigged.spec) as ctx:
        assert ctx.execute(["python", "-c", "import six"]).exit_code == 0
    write("lost.py", "import nunpy\n")
    lost = eh.EnvRigger().rig("lost.py")
    with pytest.raises(eh.NotRigged, match="looks like `numpy`") as raised:
        lost.check()
    assert raised.value.rigged is lost and raised.value.hint
    with pytest.raises(eh.SpecError, match="no such file"):
        eh.EnvRigger().rig("nothing.py")
    text = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'six'\n"
    assert eh.EnvRigger().rig_traceback(text, output="t.yaml").passed


def run_program(cli, program, folder):
    path = take(program, folder, CACHE)
    check = [word.format(path.name) for word in program.check]
    words = ["--", *check] if check else []
    return rig(cli, path.name, "--timeout", "5m", *words, cwd=folder, env=dict(program.env), timeout=1800)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.ci], ids=lambda p: p.name)
def test_real_programs(program, cli, home, tmp_path):
    ended = run_program(cli, program, tmp_path / "program").ok().json
    assert set(ended["plan"]["packages"]) <= set(program.distributions), "a distribution that is not meant"


@pytest.mark.parametrize("broken", [b for b in BROKEN if b.ci], ids=lambda b: b.name)
def test_broken_specs_are_mended(broken, cli, home):
    need_python("3.9", "3.11")
    write("broken.yaml", f"name: broken\n{broken.spec}")
    ended = rig(cli, "broken.yaml", "--", *broken.check).ok().json
    assert len(ended["attempts"]) <= 3
    cli("run", "broken_rigged.yaml", "--locked", "--", *broken.check).ok()


STORIES = re.findall(r"^### (.*?)$(.*?)(?=^##)", (ROOT / "docs" / "rigger.md").read_text() + "\n##", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("title", "story"), STORIES, ids=[title for title, _ in STORIES])
def test_the_stories_of_the_docs_are_true(title, story, home):
    """Files are written, commands are run, and what they print is what the page shows; times and versions of today aside."""
    need_python("3.9", "3.11", "3.12")
    commands = 0
    for language, block in re.findall(r"```(\w+)\n(.*?)```", story, re.DOTALL):
        if named := re.match(r"# (\S+\.\w+)\n", block):
            write(named[1], block)
        if language != "console":
            continue
        for command, shown in re.findall(r"^\$ (.*?)$\n(.*?)(?=^\$ |\Z)", block, re.MULTILINE | re.DOTALL):
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
            printed = done.stderr + done.stdout
            for line in filter(None, shown.splitlines()):
                assert plain(line) in plain(printed), f"{command}: {line}\n{printed}"
            commands += 1
    assert commands >= 2, title


def plain(text: str) -> str:
    """Without what differs from day to day: times, counts of packages, patch releases, folders."""
    text = re.sub(r"\d+ packages?|\d+\.\d+ s\b|/\S*/", "_", text)
    return re.sub(r"(\d+\.\d+)\.\d+", r"\1", text)
