"""Locks: resolved, stable, kept, refused, explained, exported."""

import re
import subprocess
import sys
from pathlib import Path

import envharness as eh
import pytest
from conftest import BIN, INTERPRETERS, MINOR, need_python, write

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SPEC = f"name: small\npython: '{MINOR}'\ndeps:\n  - python-dateutil==2.8.2\n"


def public_index() -> str:
    """The address of the public index, as pip knows it."""
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def spec(home):
    write("s.yaml", SPEC)
    return "s.yaml"


def test_same_input_gives_the_same_bytes_and_the_lock_says_it_all(cli, spec):
    first = cli("lock", spec, "--output-format", "json").ok().json
    text = Path("s.lock").read_text()
    Path("s.lock").unlink()
    cli("lock", spec).ok()
    assert Path("s.lock").read_text() == text
    lock = tomllib.loads(text)
    packages = {package["name"]: package for package in lock["package"]}
    assert packages["python-dateutil"]["version"] == "2.8.2"
    assert packages["six"]["via"] == ["python-dateutil"]
    assert packages["six"]["index"] == "pypi"
    file = packages["python-dateutil"]["files"][0]
    assert file["name"] == "python_dateutil-2.8.2-py2.py3-none-any.whl" and file["size"] > 0
    assert re.fullmatch("sha256:[0-9a-f]{64}", file["hash"])
    assert lock["python"]["version"].startswith(MINOR) and lock["python"]["reason"]
    assert lock["spec"] == eh.load_spec(spec).digest == first["spec_digest"]
    # Addresses are made at install: a mirror never lands in a lock.
    assert "http" not in text


def test_locked_refuses_a_stale_lock_with_the_reason_and_frozen_takes_it(cli, spec):
    assert "there is no lock" in cli("lock", spec, "--locked").err
    cli("lock", spec).ok()
    text = Path("s.lock").read_text()
    cli("lock", spec, "--locked").ok()
    write(spec, SPEC + "  - idna\n")
    stale = cli("lock", spec, "--locked")
    assert stale.code == 1 and "`pip` now has `idna`" in stale.err and "envharness lock" in stale.err
    assert cli("run", spec, "--locked", "--", "true").code == 125
    cli("run", spec, "--frozen", "--", "python", "-c", "import six").ok()
    assert Path("s.lock").read_text() == text


def test_a_changed_description_keeps_the_lock(cli, spec):
    cli("lock", spec).ok()
    text = Path("s.lock").read_text()
    write(spec, SPEC + "description: another\nenv_vars: {A: '1'}\nresources: {memory: 1G}\n")
    cli("sync", spec, "--locked").ok()
    assert Path("s.lock").read_text() == text


def test_versions_are_kept_until_an_upgrade_is_asked_for(cli, home):
    write("s.yaml", f"name: a\npython: '{MINOR}'\ndeps: [six==1.15.0, idna==3.4]\n")
    cli("lock", "s.yaml").ok()
    write("s.yaml", f"name: a\npython: '{MINOR}'\ndeps: [six, idna]\n")

    def versions():
        lock = tomllib.loads(Path("s.lock").read_text())
        return {package["name"]: package["version"] for package in lock["package"]}

    cli("lock", "s.yaml").ok()
    assert versions() == {"six": "1.15.0", "idna": "3.4"}
    done = cli("lock", "s.yaml", "--upgrade-package", "six").ok()
    assert "changed six 1.15.0 ->" in done.err
    assert versions()["idna"] == "3.4" and versions()["six"] != "1.15.0"
    cli("lock", "s.yaml", "--upgrade").ok()
    assert versions()["idna"] != "3.4"


def test_exclude_newer_sees_the_past(cli, home):
    write("s.yaml", f"name: a\npython: '{MINOR}'\ndeps: [idna]\nexclude-newer: 2022-06-01\n")
    lock = cli("lock", "s.yaml", "--output-format", "json").ok().json
    assert lock["packages"][0]["version"] == "3.3"


def test_offline_resolves_from_downloads_and_says_what_is_missing(cli, spec):
    cli("lock", spec).ok()
    Path("s.lock").unlink()
    cli("lock", spec, "--offline").ok()
    write(spec, SPEC.replace("python-dateutil==2.8.2", "zope.interface==5.4.0"))
    failed = cli("lock", spec, "--offline", "--cache", "cold")
    assert failed.code in (1, 3) and "error:" in failed.err


def test_another_platform_on_request(cli, home):
    write("s.yaml", f"name: a\npython: '{MINOR}'\ndeps: [markupsafe==2.1.5]\n")
    cli("lock", "s.yaml", "--platform", "linux-aarch64", "--platform", "osx-arm64").ok()
    lock = tomllib.loads(Path("s.lock").read_text())
    assert lock["platforms"] == ["linux-aarch64", "linux-x86_64", "macos-aarch64"]
    names = [file["name"] for file in lock["package"][0]["files"]]
    for part in ("x86_64", "aarch64", "macosx"):
        assert any(part in name for name in names)
    assert "unknown platform" in cli("lock", "s.yaml", "--platform", "amiga").err
    # The lock keeps what it was made for.
    cli("lock", "s.yaml", "--upgrade").ok()
    assert tomllib.loads(Path("s.lock").read_text())["platforms"] == lock["platforms"]


def test_a_collision_is_explained_with_who_asks_and_what_to_try(cli, home):
    write("s.yaml", f"name: rllib\npython: '{MINOR}'\ndeps:\n  - gymnasium==0.29.1\n  - ray[rllib]==2.5.1\n")
    failed = cli("lock", "s.yaml")
    assert failed.code == 1
    for words in ("gymnasium==0.26.3", "`gymnasium==0.29.1` is asked for by s.yaml:4", "`ray[rllib]==2.5.1` is asked for by s.yaml:5", "hint:"):
        assert words in failed.err
    assert "could be `gymnasium==0.26.3`" in failed.err
    assert not Path("s.lock").exists()


def test_a_name_that_does_not_exist_is_named(cli, home):
    write("s.yaml", f"name: a\npython: '{MINOR}'\ndeps: [this-package-does-not-exist-at-all]\n")
    failed = cli("lock", "s.yaml")
    assert failed.code == 1 and "this-package-does-not-exist-at-all" in failed.err and "hint:" in failed.err


def test_numpy_2_beside_old_native_wheels_is_warned_of(home):
    need_python("3.11")
    with pytest.warns(eh.EnvHarnessWarning, match=r"numpy 2\.0\.2 beside .*torch 2\.0\.1") as caught:
        eh.lock({"name": "a", "python": "3.11", "deps": ["torch==2.0.1", "numpy==2.0.2"]})
    assert "numpy<2" in str(caught[0].message)


def test_export_is_what_pip_and_uv_install(cli, spec, tmp_path):
    requirements = cli("export", spec).ok().out
    assert "python-dateutil==2.8.2 \\\n    --hash=sha256:" in requirements
    write("r.txt", requirements)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--target", "t", "-r", "r.txt"],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    cli("export", spec, "--format", "pylock.toml", "-o", "pylock.toml").ok()
    pylock = tomllib.loads(Path("pylock.toml").read_text())
    assert pylock["lock-version"] == "1.0"
    assert {p["name"]: p["version"] for p in pylock["packages"]} == {"python-dateutil": "2.8.2", "six": pylock["packages"][1]["version"]}
    # And it is a spec again.
    again = cli("lock", "pylock.toml", "--output-format", "json").ok().json
    assert {p["name"] for p in again["packages"]} == {"python-dateutil", "six"}


def test_a_mirror_serves_and_is_not_recorded(cli, spec):
    cli("lock", spec).ok()
    text = Path("s.lock").read_text()
    write("envharness.yaml", f"mirrors:\n  pypi: {public_index()}/\n")
    Path("s.lock").unlink()
    cli("lock", spec).ok()
    assert Path("s.lock").read_text() == text
    cli("sync", spec, "--locked").ok()
    write("envharness.yaml", "mirrors:\n  pypi: http://127.0.0.1:9/simple\n")
    failed = cli("lock", spec, "--upgrade", env={"ENVHARNESS_CACHE": str(Path("cold").resolve()), "UV_HTTP_RETRIES": "0"})
    assert failed.code == 3 and "hint:" in failed.err


def test_a_broken_or_newer_lock_is_refused(cli, spec):
    cli("lock", spec).ok()
    text = Path("s.lock").read_text()
    for bad, words in ((text.replace("version = 1", "version = 99", 1), "format 99"), (text[:200] + "[[", "line"), ("x = 1\n", "version")):
        Path("s.lock").write_text(bad)
        failed = cli("lock", spec)
        assert failed.code == 1 and words in failed.err and "hint:" in failed.err
        assert Path("s.lock").read_text() == bad


@pytest.mark.parametrize("minor", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def test_every_python_of_the_machine_is_found_and_used(minor, cli, home):
    need_python(minor)
    write("s.yaml", f"name: a\npython: '{minor}'\ndeps: [six==1.16.0]\n")
    done = cli("run", "s.yaml", "--", "python", "-c", "import six, sys; print('%d.%d' % sys.version_info[:2], sys.prefix != sys.base_prefix)").ok()
    assert done.out.split() == [minor, "True"]


def test_a_specifier_a_path_and_none_that_fits(cli, home):
    need_python("3.9", "3.10")
    write("s.yaml", "name: a\npython: '>=3.9,<3.11'\ndeps: [six==1.16.0]\n")
    version = cli("run", "s.yaml", "--", "python", "--version").ok().out
    assert version.startswith(("Python 3.9", "Python 3.10"))
    write("t.yaml", "name: a\npython: '>=3.99'\ndeps: [six==1.16.0]\n")
    failed = cli("lock", "t.yaml", env={"ENVHARNESS_PYTHON_DOWNLOADS": "never"})
    assert failed.code == 3 and "no Python fits `>=3.99`" in failed.err and "found:" in failed.err
    assert INTERPRETERS["3.9"] in failed.err


def test_a_python_by_path_and_in_conda_is_found_and_shims_are_no_interpreters(cli, home, tmp_path):
    need_python("3.9")
    environment = tmp_path / "by-path"
    subprocess.run([INTERPRETERS["3.9"], "-m", "venv", "--without-pip", environment], check=True)
    write("p.yaml", f"name: a\npython: {environment}/bin/python\ndeps: [six==1.16.0]\n")
    write("d.yaml", f"name: a\npython: {environment}\ndeps: [six==1.16.0]\n")
    for name in ("p.yaml", "d.yaml"):
        for _ in range(2):
            assert cli("run", name, "--", "python", "--version").ok().out.startswith("Python 3.9.")
    # A conda environment, and a folder of shims that start nothing: only the first is an interpreter.
    user = tmp_path / "user"
    conda = user / ".conda" / "envs" / "x" / "bin"
    conda.mkdir(parents=True)
    (conda / "python").symlink_to(INTERPRETERS["3.9"])
    shims = user / ".pyenv" / "shims"
    shims.mkdir(parents=True)
    write(shims / "python3.9", "#!/bin/sh\nexit 9\n").chmod(0o755)
    write("c.yaml", "name: a\npython: '3.9'\ndeps: [six==1.16.0]\n")
    environ = {"HOME": str(user), "PYENV_ROOT": str(user / ".pyenv"), "PATH": f"{shims}:{BIN}:/usr/bin:/bin", "ENVHARNESS_PYTHON_DOWNLOADS": "never"}
    done = cli("lock", "c.yaml", env=environ).ok()
    assert INTERPRETERS["3.9"] in done.err
    write("b.yaml", "name: a\npython: ./b.yaml\ndeps: [six==1.16.0]\n")
    failed = cli("lock", "b.yaml")
    assert failed.code == 3 and "b.yaml` is not a Python that works" in failed.err


def test_a_python_that_does_not_resolve_gives_way_to_one_that_does(home):
    need_python("3.8", "3.13")
    # numpy 1.24.3 has no wheel for 3.12 and later, and does not build there.
    code = (
        "import envharness as eh\n"
        "lock = eh.lock({'name': 'a', 'deps': ['numpy==1.24.3'], 'no_build': True})\n"
        "print(lock.python, '|', lock.python_reason)\n"
    )
    done = subprocess.run([str(BIN / "python"), "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("3.8", "3.9", "3.10", "3.11"))


def test_local_paths_and_git_are_locked_by_content(cli, home):
    write("pkg/pyproject.toml", '[project]\nname = "localpkg"\nversion = "1.0"\n[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n')
    write("pkg/localpkg.py", "VALUE = 1\n")
    write("s.yaml", f"name: a\npython: '{MINOR}'\ndeps: [./pkg]\n")
    show = ["--", "python", "-c", "import localpkg; print(localpkg.VALUE)"]
    assert cli("run", "s.yaml", *show).ok().out == "1\n"
    assert str(Path.cwd()) not in Path("s.lock").read_text()
    write("pkg/localpkg.py", "VALUE = 22\n")
    stale = cli("run", "s.yaml", "--locked", *show)
    assert stale.code == 125 and "the source `./pkg` changed" in stale.err
    assert cli("run", "s.yaml", *show).ok().out == "22\n"
    write("e.yaml", f"name: e\npython: '{MINOR}'\ndeps: ['-e ./pkg']\n")
    assert cli("run", "e.yaml", *show).ok().out == "22\n"
    write("pkg/localpkg.py", "VALUE = 333\n")
    assert cli("run", "e.yaml", "--locked", *show).ok().out == "333\n"
    git = ["git", "-C", "pkg", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    write("g.yaml", f"name: g\npython: '{MINOR}'\ndeps: ['localpkg @ git+file://{Path('pkg').resolve()}']\n")
    assert cli("run", "g.yaml", *show).ok().out == "333\n"
    assert commit in Path("g.lock").read_text()


def test_find_links_hashes_and_no_build(cli, home):
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", "wheels", "six==1.16.0"], check=True)
    write("s.yaml", f"name: a\npython: '{MINOR}'\ndeps: [six==1.16.0]\nfind_links: [./wheels]\n")
    cli("run", "s.yaml", "--", "python", "-c", "import six").ok()
    write("f.yaml", f"name: f\npython: '{MINOR}'\ndeps: [six==1.16.0]\n")
    cli("run", "f.yaml", "--find-links", Path("wheels").resolve(), "--index", public_index(), "--no-build", "--", "true").ok()
    write("h.txt", "six==1.16.0 --hash=sha256:" + "0" * 64 + "\n")
    failed = cli("lock", "h.txt")
    assert failed.code in (1, 3) and "hash" in failed.err
    # Only a source archive exists of this one.
    write("n.yaml", f"name: n\npython: '{MINOR}'\ndeps: [docopt==0.6.2]\nno_build: true\n")
    failed = cli("lock", "n.yaml")
    assert failed.code in (1, 3) and "docopt" in failed.err


def test_specs_without_a_file_keep_their_lock_in_the_store(home):
    spec = {"name": "a", "python": MINOR, "deps": ["six==1.16.0"]}
    lock = eh.lock(spec)
    kept = list((home / "specs").glob("*.lock"))
    assert len(kept) == 1 and kept[0].read_text() == lock.to_toml()
    # Another name, the same lock.
    eh.lock({**spec, "name": "b"})
    assert len(list((home / "specs").glob("*.lock"))) == 1
    lock.save("mine.lock")
    assert eh.Lock.parse(Path("mine.lock").read_text()).digest == lock.digest
    assert lock.packages == {"six": "1.16.0"} and lock.python.startswith(MINOR)


@pytest.mark.parametrize("spec", [
    {"name": "e", "deps": ["six"], "isolation": "standard"},
    {"name": "f", "deps": ["six"], "isolation": "strict"},
])
def test_what_is_not_there_yet_is_read_digested_and_refused_at_lock(spec, home):
    assert eh.create_spec(**spec).digest.startswith("sha256:")
    with pytest.raises(eh.NotAvailableError, match="not available yet"):
        eh.lock(spec)
