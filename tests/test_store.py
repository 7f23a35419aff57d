"""The store: finished once, shared, verified, collected."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import envharness as eh
import pytest
from conftest import BIN, MINOR, SMALL, write

SPEC = f"name: small\npython: '{MINOR}'\ndeps: [six==1.16.0, idna==3.4]\n"


@pytest.fixture
def spec(home):
    write("s.yaml", SPEC)
    return "s.yaml"


def prefix_of(cli, spec) -> Path:
    return Path(cli("sync", spec, "--output-format", "json").ok().json["prefix"])


def test_a_changed_prefix_is_found_put_aside_and_built_anew(cli, spec, home):
    prefix = prefix_of(cli, spec)
    site = next(prefix.glob("lib/*/site-packages"))
    site.chmod(0o755)
    (site / "planted.py").write_text("x = 1\n")
    done = cli("run", spec, "--", "python", "-c", "import planted")
    assert done.code == 1 and "was changed (unexpected: " in done.err and "ModuleNotFoundError" in done.err
    assert len(list((home / "quarantine").glob("*.txt"))) == 1
    cli("store", "verify").ok()
    (site / "six.py").parent.chmod(0o755)
    (site / "six.py").unlink()
    cli("run", spec, "--", "python", "-c", "import six").ok()


def test_verify_follows_every_hash_and_repair_puts_aside(cli, spec):
    prefix = prefix_of(cli, spec)
    cli("store", "verify").ok()
    file = next(prefix.glob("lib/*/site-packages/idna/core.py"))
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    # Of the same size: only the content tells. Another inode, since the downloads share this one.
    file.parent.chmod(0o755)
    file.unlink()
    file.write_bytes(data)
    assert cli("store", "verify", "--quick").code == 0
    broken = cli("store", "verify")
    assert broken.code == 1 and "changed: lib/" in broken.out and "idna/core.py" in broken.out
    report = cli("store", "verify", "--repair", "--output-format", "json").json
    assert report["broken"] == 1
    cli("run", spec, "--", "python", "-c", "import idna.core").ok()
    cli("store", "verify").ok()


def test_damage_that_reached_the_downloads_is_fetched_anew(cli, spec, home):
    cold = {"ENVHARNESS_CACHE": str(home / "own-cache")}
    prefix = Path(cli("sync", spec, "--output-format", "json", env=cold).ok().json["prefix"])
    file = next(prefix.glob("lib/*/site-packages/six.py"))
    file.chmod(0o644)
    # One inode with the downloads: a rebuild from them alone would bring the damage back.
    with open(file, "a") as handle:
        handle.write("raise SystemError('damaged')\n")
    assert cli("store", "verify", env=cold).code == 1
    done = cli("run", spec, "--", "python", "-c", "import six; print(six.__version__)", env=cold).ok()
    assert done.out == "1.16.0\n" and "fetched again" in done.err
    cli("store", "verify", env=cold).ok()


def test_a_used_context_is_not_taken_however_old(cli, spec, home):
    write("k.yaml", SPEC + "resources: {timeouts: {idle: 1}}\n")
    env_id = eh.create_env("k.yaml")
    with eh.attach(env_id).popen(["sleep", "300"]) as process:
        with sqlite3.connect(home / "state.db") as db:
            db.execute("UPDATE contexts SET expires = 1")
        assert cli("gc", "--output-format", "json").ok().json["contexts"] == []
        assert process.poll() is None
    assert cli("gc", "--output-format", "json").ok().json["contexts"] == [env_id]


def test_a_link_in_the_place_of_the_workdir_is_removed_and_not_followed(home, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "results").write_text("x")
    with eh.get_context(SMALL, activate=False) as ctx:
        ctx.run(f"rmdir {ctx.workdir} && ln -s {precious} {ctx.workdir}", stream=False)
    with eh.get_context(SMALL, activate=False) as again:
        assert again.id == ctx.id and again.workdir.is_dir() and not again.workdir.is_symlink()
    assert (precious / "results").read_text() == "x"


def test_keeping_beside_gc_loses_nothing(cli, home):
    with eh.create_context(SMALL):
        pass
    write("keep.py", f"import envharness as eh\nfor _ in range(40):\n    with eh.create_context({SMALL!r}, on_exit='keep') as c: print(c.id, flush=True)\n")
    makers = [subprocess.Popen([sys.executable, "keep.py"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    while any(maker.poll() is None for maker in makers):
        eh.gc()
    kept = {line for maker in makers for line in maker.communicate()[0].split()}
    assert len(kept) == 80 and kept <= {context["id"] for context in eh.list_contexts()}


def test_moved_times_alone_are_no_fault(cli, spec):
    prefix = prefix_of(cli, spec)
    folder = next(prefix.glob("lib/*/site-packages/idna"))
    os.utime(folder, (1, 1))
    done = cli("run", spec, "--", "python", "-c", "import idna").ok()
    assert "changed" not in done.err


def test_a_prefix_without_its_row_is_adopted_and_a_newer_store_refused(cli, spec, home):
    prefix = prefix_of(cli, spec)
    with sqlite3.connect(home / "state.db") as db:
        db.execute("DELETE FROM prefixes")
    cli("run", spec, "--", "true").ok()
    assert prefix.is_dir()
    with sqlite3.connect(home / "state.db") as db:
        assert db.execute("SELECT count(*) FROM prefixes").fetchone() == (1,)
        db.execute("PRAGMA user_version = 99")
    refused = cli("list")
    assert refused.code == 3 and "format 99" in refused.err and "update envharness" in refused.err


def test_a_prefix_of_another_boot_without_a_durable_mark_is_verified_first(cli, spec, home):
    prefix = prefix_of(cli, spec)
    with sqlite3.connect(home / "state.db") as db:
        db.execute("UPDATE prefixes SET boot_id = 'another', durable = 0")
    file = next(prefix.glob("lib/*/site-packages/six.py"))
    file.chmod(0o644)
    text = file.read_bytes()
    try:
        # As a power cut leaves a file: the right size, the wrong content.
        with open(file, "r+b") as handle:
            handle.write(b"\0" * 100)
        done = cli("run", spec, "--", "true")
        assert "was changed (changed: " in done.err
    finally:
        with open(file, "r+b") as handle:
            handle.write(text)


def test_many_processes_create_one_cold_spec_and_one_builds(cli, spec, home):
    cli("lock", spec).ok()
    code = "import envharness as eh\nwith eh.create_context('s.yaml') as c: print(c.prefix, c.execute(['python', '-c', 'import six; print(six.__version__)']).logs.strip())\n"
    write("one.py", code)
    processes = [subprocess.Popen([sys.executable, "one.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(16)]
    outputs = {process.communicate(timeout=120) for process in processes}
    assert len(outputs) == 1 and all(process.returncode == 0 for process in processes), outputs
    assert len(list((home / "prefixes").iterdir())) == 1
    # Byte-code that was being compiled ended with its starter.
    cli("gc").ok()
    assert list((home / "tmp").iterdir()) == []


def test_byte_code_is_compiled_once_and_shared(cli, home):
    write("a.yaml", f"name: a\npython: '{MINOR}'\ncompile: eager\ndeps: [six==1.16.0, idna==3.4]\n")
    write("b.yaml", f"name: b\npython: '{MINOR}'\ncompile: never\ndeps: [six==1.16.0]\n")
    prefix = prefix_of(cli, "a.yaml")
    cached = next(prefix.glob("lib/*/site-packages/__pycache__/six.*.pyc"))
    assert cached.read_bytes()[4:8] == b"\x01\0\0\0", "an unchecked hash (PEP 552)"
    other = prefix_of(cli, "b.yaml")
    assert list(other.rglob("*.pyc")) == []
    cli("compile", "b.yaml").ok()
    shared = next(other.glob("lib/*/site-packages/__pycache__/six.*.pyc"))
    assert shared.stat().st_ino == cached.stat().st_ino
    cli("store", "verify").ok()
    done = cli("run", "a.yaml", "--", "python", "-v", "-c", "import six").ok()
    assert "matches" in done.err and f"code object from '{cached}'" in done.err


def test_byte_code_comes_behind_the_first_create(cli, home):
    write("a.yaml", f"name: a\npython: '{MINOR}'\ndeps: [six==1.16.0]\n")
    with eh.create_context("a.yaml") as ctx:
        for _ in range(400):
            if list(ctx.prefix.rglob("*.pyc")):
                break
            time.sleep(0.02)
        assert list(ctx.prefix.rglob("six.*.pyc"))
    cli("store", "verify").ok()
    with eh.create_context("a.yaml") as ctx:
        assert ctx.execute(["python", "-c", "import six"]).ok


def test_gc_takes_what_nobody_uses_and_never_what_is_used(cli, spec, home, monkeypatch):
    # Byte-code made behind the context would be one more user of the prefix.
    monkeypatch.setenv("ENVHARNESS_COMPILE", "never")
    write("t.yaml", f"name: t\npython: '{MINOR}'\ndeps: [six==1.16.0]\n")
    used = prefix_of(cli, spec)
    free = prefix_of(cli, "t.yaml")
    with eh.create_context(spec) as ctx:
        dry = cli("gc", "--max-size", "0", "--dry-run", "--output-format", "json").ok().json
        assert dry["prefixes"] == [free.name] and dry["in_use"] == 1 and free.is_dir()
        report = cli("gc", "--max-size", "0", "--output-format", "json").ok().json
        assert report["prefixes"] == [free.name] and report["bytes"] > 0
        assert used.is_dir() and not free.exists()
        assert ctx.execute(["python", "-c", "import idna"]).ok
    cli("gc", "--max-age", "1d").ok()
    assert used.is_dir()
    cli("gc", "--max-age", "0s").ok()
    assert not used.exists()


def test_gc_removes_what_crashes_left(cli, spec, home):
    prefix_of(cli, spec)
    (home / "tmp" / "build-abandoned" / "x").mkdir(parents=True)
    (home / "contexts" / "venv-env-lost-aaaaa" / "work").mkdir(parents=True)
    (home / "prefixes" / "feedfeed").mkdir()
    report = cli("gc", "--output-format", "json").ok().json
    assert report["leftovers"] >= 3
    assert list((home / "tmp").iterdir()) == [] and list((home / "contexts").iterdir()) == []
    assert not (home / "prefixes" / "feedfeed").exists()


def test_store_commands(cli, spec, home):
    prefix = prefix_of(cli, spec)
    assert cli("store", "dir").ok().out.strip() == str(home)
    size = cli("store", "size", "--output-format", "json").ok().json
    assert size["prefixes"][0]["key"] == prefix.name and size["prefixes"][0]["bytes"] > 0
    assert prefix.name in cli("store", "size").ok().out
    assert cli("store", "clean", input="").code == 1 and prefix.is_dir()
    cli("store", "clean", "--yes").ok()
    assert not prefix.exists()
    cli("run", spec, "--", "python", "-c", "import six").ok()


def test_an_unprivileged_user_can_do_it_all(home, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not on this machine")
    import tempfile

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        base = Path(folder)
        base.chmod(0o777)
        python = Path("/usr/bin/python3")
        if not python.exists() or not os.access(BIN / "envharness", os.X_OK):
            pytest.skip("there is no interpreter that another user can start")
        tool = base / "envharness"
        shutil.copy(BIN / "envharness", tool)
        shutil.copy(BIN / "uv", base / "uv")
        (base / "s.yaml").write_text(f"name: small\npython: {python}\nbackend: host\n")
        version = subprocess.run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=True).stdout.strip()
        (base / "v.yaml").write_text(f"name: small\npython: '{version}'\ndeps: [six==1.16.0]\ncompile: eager\n")
        environ = {"PATH": "/usr/bin:/bin", "HOME": folder, "ENVHARNESS_HOME": f"{folder}/home", "ENVHARNESS_CACHE": f"{folder}/cache", "LANG": "C.UTF-8"}
        environ.update({k: v for k, v in os.environ.items() if k.startswith("SSL_CERT") or k.lower().endswith("_proxy")})
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

        def run(*args):
            done = subprocess.run([*user, str(tool), *args], env=environ, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        out = run("run", "v.yaml", "--", "sh", "-c", "python -c 'import six; print(six.__version__)'; id -u; touch $VIRTUAL_ENV/x 2>&1; true")
        assert out.startswith("1.16.0\n65534\n") and ("Read-only" in out or "Permission denied" in out)
        run("run", "s.yaml", "--", "python3", "-c", "print(1)")
        (base / "w.yaml").write_text((base / "v.yaml").read_text() + "writable: true\n")
        out = run("run", "w.yaml", "--", "sh", "-c", "echo 'X = 1' >> $(python -c 'import six; print(six.__file__)') && python -c 'import six; print(six.X)'")
        assert out == "1\n"
        run("store", "verify")
        run("gc", "--max-size", "0")
        run("store", "clean", "--yes")
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)


def test_two_stores_do_not_know_each_other(home, monkeypatch, tmp_path):
    with eh.create_context(SMALL, on_exit="keep"):
        pass
    monkeypatch.setenv("ENVHARNESS_HOME", str(tmp_path / "other"))
    assert eh.list_contexts() == []
