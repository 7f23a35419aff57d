"""The command line: commands, flags, output forms, exit codes, settings."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, MINOR, ROOT, write

SPEC = f"name: small\npython: '{MINOR}'\ndeps: [six==1.16.0]\n"


@pytest.fixture
def spec(home):
    write("task_spec.yaml", SPEC)
    return "task_spec.yaml"


def test_version_help_and_the_slow_twin(cli, home):
    version = cli("--version").ok().out
    assert re.fullmatch(r"envharness \d+\.\d+\.\d+\n", version)
    assert subprocess.run([BIN / "python", "-m", "envharness", "--version"], capture_output=True, text=True, check=True).stdout == version
    text = cli("--help").ok().out
    for command in "init lock sync create run exec shell list inspect cp logs rm gc export store compile doctor completions config".split():
        assert re.search(rf"^  {command}\b", text, re.MULTILINE), command
        assert cli(command, "--help").ok().out
    assert "Exit codes" in text
    assert cli("frobnicate").code == 2
    assert "lock" in cli("lok").err


def test_the_reference_in_the_docs_is_what_the_command_prints(cli, home):
    for columns in ("", "60", "200"):
        assert cli("reference", env={"COLUMNS": columns}).ok().out == (ROOT / "docs" / "cli.md").read_text(), "run `make gen`"


def test_create_list_inspect_exec_logs_cp_and_rm(cli, spec):
    env_id = cli("create").ok().out.strip()
    assert re.fullmatch(r"venv-env-small-[a-z0-9]{5}", env_id)
    (listed,) = cli("list", "--output-format", "json").ok().json["contexts"]
    assert listed["id"] == env_id and listed["state"] == "idle"
    assert json.loads(cli("list", "--output-format", "jsonl").ok().out)["id"] == env_id
    assert env_id in cli("ls").ok().out
    details = cli("inspect", env_id[:-1], "--output-format", "json").ok().json
    assert details["id"] == env_id and details["spec"]["name"] == "small" and details["isolation"] == "none"
    assert f"id: {env_id}" in cli("inspect", env_id).ok().out
    done = cli("exec", env_id, "-e", "A=1", "--", "sh", "-c", "echo $A; cat; exit 7", input="in")
    assert (done.code, done.out) == (7, "1\nin")
    result = cli("exec", env_id, "--output-format", "json", "--", "sh", "-c", "echo o; echo e >&2").ok().json
    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("o\n", "e\n", 0)
    assert cli("exec", env_id, "--timeout", "300ms", "--", "sleep", "300").code == 124
    assert cli("exec", env_id, "--", "no-such-command").code == 125
    write("file", "content")
    cli("cp", "file", f"{env_id}:/agent/file").ok()
    assert cli("exec", env_id, "--", "cat", "/agent/file").ok().out == "content"
    cli("cp", f"{env_id}:/agent/file", "back").ok()
    assert Path("back").read_text() == "content"
    assert "ID:PATH" in cli("cp", "a", "b").err
    assert "exit 7" in cli("logs", env_id).ok().out
    assert len(cli("logs", env_id, "-n", "1").ok().out.splitlines()) == 1
    other = cli("create").ok().out.strip()
    ambiguous = cli("inspect", "venv-env-small-")
    assert ambiguous.code == 1 and env_id in ambiguous.err and other in ambiguous.err
    assert cli("rm", env_id).ok().out.strip() == env_id
    gone = cli("inspect", env_id)
    assert gone.code == 1 and "no context" in gone.err and "hint:" in gone.err
    assert cli("rm", "--all").code == 1
    cli("rm", "--all", "--yes").ok()
    assert cli("list", "--output-format", "json").ok().json["contexts"] == []


def test_a_context_that_is_held_is_removed_by_force_only(cli, spec):
    import envharness as eh

    with eh.create_context(spec) as ctx:
        refused = cli("rm", ctx.id)
        assert refused.code == 1 and "in use" in refused.err
        cli("rm", ctx.id, "--force").ok()


def test_run_passes_code_and_output_and_reuses(cli, spec):
    done = cli("run", spec, "--", "sh", "-c", "echo out; echo err >&2; exit 5")
    assert (done.code, done.out) == (5, "out\n") and "err" in done.err
    cli("run", spec, "--", "sh", "-c", "touch $ENVHARNESS_WORKDIR/x").ok()
    assert cli("run", spec, "--no-fresh", "--", "sh", "-c", "ls $ENVHARNESS_WORKDIR").ok().out == "x\n"
    assert cli("run", spec, "--", "sh", "-c", "ls $ENVHARNESS_WORKDIR").ok().out == ""
    assert len(cli("list", "--output-format", "json").json["contexts"]) == 1
    assert cli("run", "missing.yaml", "--", "true").code == 125
    assert cli("run", spec).code == 2
    assert cli("run", "--", "echo", "the folder's own").ok().out == "the folder's own\n"


def test_shell_opens_on_a_terminal(home, cli, spec):
    import pty

    env_id = cli("create").ok().out.strip()
    master, slave = pty.openpty()
    environ = {**os.environ, "SHELL": "/bin/sh", "PS1": "$ "}
    process = subprocess.Popen([BIN / "envharness", "shell", env_id], stdin=slave, stdout=slave, stderr=slave, env=environ, start_new_session=True)
    os.close(slave)
    os.write(master, b"python -c 'import six; print(six.__version__ * 2)'; exit 4\n")
    output = b""
    try:
        while chunk := os.read(master, 4096):
            output += chunk
    except OSError:
        pass
    assert process.wait(60) == 4
    assert b"1.16.01.16.0" in output
    os.close(master)


def test_output_is_quiet_plain_and_data_only_on_stdout(cli, spec):
    done = cli("sync", spec).ok()
    assert done.out == "" and "Synced 1 package in" in done.err
    assert "\x1b" not in done.err
    assert cli("sync", spec, "-q").ok().err == ""
    assert "DEBUG" in cli("sync", spec, "--log-level", "DEBUG").ok().err
    assert "\x1b" not in cli("check", "nothing.yaml", env={"NO_COLOR": "1", "CLICOLOR_FORCE": ""}).err
    with open("/dev/full", "w") as full:
        failed = subprocess.run([BIN / "envharness", "export", spec], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert failed.returncode == 3 and "No space left" in failed.stderr


def test_init_writes_commented_settings_once(cli, home):
    cli("init", "--example").ok()
    text = Path("envharness.yaml").read_text()
    for key in ("backend", "image_registry", "python_downloads", "gc", "max_size", "limits", "timeouts", "index", "mirrors", "cache"):
        assert re.search(rf"^#\s+{key}:", text, re.MULTILINE), key
    assert Path(".envharness/spec.schema.json").is_file()
    again = cli("init")
    assert again.code == 1 and "--force" in again.err
    cli("init", "--force").ok()
    cli("config", "show").ok()
    cli("check").ok()
    # Uncommented, every line is a setting.
    lines = [line[2:] if line.startswith("# ") else line for line in text.splitlines()[3:]]
    body = "\n".join(line for line in lines if not line.lstrip().startswith("#") and ":" in line)
    Path("envharness.yaml").write_text(re.sub(r"^(?=\S)(?!\w+:).*$", "", body, flags=re.MULTILINE) + "\n")


def test_settings_merge_in_order_and_say_where_each_comes_from(cli, home):
    def show(*args, **env):
        return cli("config", "show", "--output-format", "json", *args, env=env).ok().json["settings"]

    assert show()["compile"] == {"value": "lazy", "source": "default"}
    user = Path(os.environ["XDG_CONFIG_HOME"]) / "envharness" / "envharness.yaml"
    write(user, "compile: never\ngc:\n  max_age: 1d\noffline: true\n")
    assert show()["compile"] == {"value": "never", "source": f"{user}:1"}
    write("envharness.yaml", "compile: eager\n")
    settings = show()
    assert settings["compile"]["value"] == "eager" and settings["gc.max_age"]["value"] == "1d"
    assert settings["compile"]["source"].endswith("project/envharness.yaml:1")
    assert show(ENVHARNESS_COMPILE="lazy")["compile"] == {"value": "lazy", "source": "ENVHARNESS_COMPILE"}
    assert show("--offline")["offline"]["source"] == "--offline"
    assert show(ENVHARNESS_INDEX="https://me:secret@example.org/simple")["index"]["value"] == "https://****@example.org/simple"
    for text, words in (("compil: lazy\n", "did you mean `compile`"), ("compile: maybe\n", "envharness.yaml:1"), ("- a\n", "a mapping"), ("gc: {max_size: big}\n", "8G")):
        write("envharness.yaml", text)
        failed = cli("config", "show")
        assert failed.code == 1 and words in failed.err, failed.err
    Path("envharness.yaml").unlink()
    write(".envharness/config.json", '{"compile": "eager"}')
    assert show()["compile"]["value"] == "eager"


def test_doctor_reports_and_fails_without_uv(cli, home):
    report = cli("doctor", "--output-format", "json").ok().json
    names = {finding["name"]: finding for finding in report["findings"]}
    assert report["ok"] and names["uv"]["ok"] and MINOR in names["python"]["text"] and names["database"]["ok"]
    broken = cli("doctor", env={"PATH": "/nowhere", "ENVHARNESS_UV": "/nowhere/uv"})
    assert "uv" in broken.out


def test_completion_knows_the_ids(cli, spec):
    env_id = cli("create").ok().out.strip()
    assert "COMPLETE=bash" in cli("completions", "bash").ok().out
    environ = {**os.environ, "COMPLETE": "bash", "_CLAP_COMPLETE_INDEX": "2", "_CLAP_IFS": "\n"}
    done = subprocess.run([BIN / "envharness", "--", "envharness", "inspect", "ven"], env=environ, capture_output=True, text=True, check=True)
    assert env_id in done.stdout


def test_check_prints_the_normal_form(cli, spec):
    report = cli("check", spec, "--output-format", "json").ok().json
    assert report["spec"] == {"name": "small", "python": MINOR, "dependencies": {"pip": ["six==1.16.0"]}}
    assert cli("validate", spec).ok().out.startswith("name: small\n")


def test_max_parallel_builds_wait_for_each_other(cli, home):
    write("a.yaml", f"name: a\npython: '{MINOR}'\ndeps: [six==1.16.0]\n")
    write("b.yaml", f"name: b\npython: '{MINOR}'\ndeps: [idna==3.4]\n")
    environ = {**os.environ, "ENVHARNESS_MAX_PARALLEL": "1"}
    processes = [subprocess.Popen([BIN / "envharness", "sync", name], env=environ, stderr=subprocess.DEVNULL) for name in ("a.yaml", "b.yaml")]
    assert [process.wait(120) for process in processes] == [0, 0]
