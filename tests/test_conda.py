"""`backend: conda`: real packages of a real channel, through the command and the Python package."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from channel import MINORS, OTHER_SUBDIR, PLACEHOLDER, SUBDIR, Served, index, interpreters, write_package
from conftest import BIN, write

PYTHON = MINORS[0]


@pytest.fixture
def spec(channel, home):
    """Writes a spec over the channel and gives its path."""

    def make(conda=(), *, pip=(), python: str | None = PYTHON, more: str = "", url: str | None = None, name: str = "c") -> Path:
        lines = [f"name: {name}", f"channels: ['{url or channel.as_uri()}']"]
        lines += [f"python: '{python}'"] if python else []
        lines += ["dependencies:", f"  conda: {json.dumps(list(conda))}", f"  pip: {json.dumps(list(pip))}"]
        return write(f"{name}.yaml", "\n".join([*lines, more]) + "\n")

    return make


@pytest.fixture
def served(channel):
    """The channel over HTTP: conda-lock.yml holds no files."""
    with Served(channel) as place:
        yield place


def test_real_packages_run_from_a_conda_prefix(cli, home, spec):
    code = "import sys, numpy, pandas, sklearn, gymnasium, sysconfig; print(sys.prefix, sysconfig.get_config_var('prefix'), numpy.__version__)"
    done = cli("run", spec(["scikit-learn", "pandas", "gymnasium", "greet"]), "--", "python", "-c", code).ok()
    prefix, config, numpy = done.out.split()
    assert prefix == config and Path(prefix).parent == home / "prefixes" and numpy == "2.0.2"
    assert "Using the backend conda (the spec has conda packages)" in done.err
    assert cli("run", "c.yaml", "--", "greet").ok().out == "hello from greet\n"
    lock = Path("c.lock").read_text()
    assert 'backend = "conda"' in lock and 'build = "py311_0"' in lock and 'depends = ["python 3.11.*"' in lock
    assert cli("lock", "c.yaml", "--locked").ok() and Path("c.lock").read_text() == lock


def test_ids_and_inspect_name_the_backend(cli, home, spec):
    made = cli("create", spec(["six"])).ok().out.strip()
    assert re.fullmatch(r"conda-env-c-[a-z0-9]{5}", made)
    about = cli("inspect", made, "--output-format", "json").ok().json
    assert about["backend"] == "conda" and about["python"].startswith(str(home / "prefixes"))
    assert cli("exec", made, "--", "python", "-c", "import six; print(six.__version__)").ok().out == "1.16.0\n"
    cli("rm", made).ok()


def test_prefixes_are_replaced_in_text_and_in_binaries(cli, home, spec):
    path = spec(["binprefix"])
    text = cli("run", path, "--", "sh", "-c", 'binprefix; textprefix; cat "$CONDA_PREFIX/etc/where.txt"; echo "$CONDA_PREFIX"').ok().out.split()
    assert text[0] == text[1] == text[3] and text[2] == f"{text[0]}/etc"
    assert PLACEHOLDER.encode() not in Path(text[0], "bin/binprefix").read_bytes()


def test_pip_packages_lie_on_top_and_conda_s_versions_bind_them(cli, home, spec):
    path = spec(["numpy"], pip=["python-dateutil==2.8.2", "six"])
    done = cli("run", path, "--", "python", "-c", "import dateutil, six, numpy; print(dateutil.__version__, numpy.__version__)").ok()
    assert done.out == "2.8.2 2.0.2\n"
    lock = Path("c.lock").read_text()
    assert lock.count('name = "numpy"') == 1 and lock.count('index = "pypi"') == 2


def test_scripts_of_pip_packages_find_the_conda_python(cli, home, spec):
    path = spec(["six"], pip=["cowsay==6.1"])
    assert "moo" in cli("run", path, "--", "cowsay", "-t", "moo").ok().out


def test_a_collision_shows_both_sides(cli, home, spec):
    refused = cli("lock", spec(["pandas"], pip=["numpy<2"]))
    assert refused.code == 1
    assert "conda provides `numpy` 2.0.2" in refused.err and "pandas" in refused.err and "numpy<2" in refused.err
    assert "hint: ask conda for a `numpy`" in refused.err
    assert not Path("c.lock").exists()


def test_what_collides_among_conda_packages_is_said(cli, home, spec):
    refused = cli("lock", spec(["needs-greet-one", "needs-greet-two"]))
    assert refused.code == 1 and "needs-greet-one" in refused.err and "greet" in refused.err


def test_a_missing_package_comes_with_near_names_and_other_platforms(cli, home, spec):
    refused = cli("lock", spec(["scikit-laern"]))
    assert refused.code == 1 and "no package `scikit-laern`" in refused.err and "scikit-learn" in refused.err
    refused = cli("lock", spec(["only-elsewhere"]))
    assert refused.code == 1 and OTHER_SUBDIR in refused.err


def test_a_missing_virtual_package_comes_with_the_override(cli, home, spec):
    path = spec(["needs-cuda"])
    refused = cli("lock", path, env={"CONDA_OVERRIDE_CUDA": ""})
    assert refused.code == 1 and "virtual_packages: {__cuda: \"12\"}" in refused.err
    cli("lock", spec(["needs-cuda"], more='virtual_packages: {__cuda: "12.4"}')).ok()
    assert 'virtual_packages = ["__cuda=12.4"]' in Path("c.lock").read_text()


def test_a_channel_that_is_not_there_is_named(cli, home, spec, tmp_path):
    (tmp_path / "nothing").mkdir()
    refused = cli("lock", spec(["six"], url=(tmp_path / "nothing").as_uri()))
    assert refused.code == 3 and "nothing" in refused.err and "hint: " in refused.err
    refused = cli("lock", spec(["six"], url="http://127.0.0.1:9/c"), env={"UV_HTTP_RETRIES": "0"})
    assert refused.code == 3 and "127.0.0.1:9" in refused.err


def test_a_wrong_match_spec_and_a_wrong_backend_are_refused(cli, home, spec):
    refused = cli("lock", spec(["numpy >="]))
    assert refused.code == 1 and "`numpy >=` is not a conda package" in refused.err
    refused = cli("lock", spec(["numpy"], more="backend: venv"))
    assert refused.code == 1 and "use `backend: conda`" in refused.err


def test_auto_takes_conda_for_a_python_that_only_a_channel_has(cli, home, spec, tmp_path):
    path = spec([], python=PYTHON)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYENV_ROOT": str(tmp_path)}
    (exact,) = {version for version in subprocess.run([interpreters()[PYTHON] / "bin/python3", "-V"], capture_output=True, text=True).stdout.split() if version[0].isdigit()}
    write("c.yaml", path.read_text().replace(f"'{PYTHON}'", f"'=={exact}'"))
    done = cli("run", "c.yaml", "--", "python", "-V", env=environ)
    if "Using the backend conda" not in done.err:
        pytest.skip("the machine's own Python fits outside of pyenv too")
    assert done.ok().out == f"Python {exact}\n" and "no Python of this machine fits" in done.err


def test_activation_scripts_are_honoured_and_run_once(cli, home, spec):
    path = spec(["hook"])
    show = ["--", "sh", "-c", 'echo "$HOOK_HOME|$HOOK_LINES|$HOOK_STATIC|$CONDA_PREFIX"']
    home_dir, lines, static, prefix = cli("run", path, *show).ok().out.strip().split("|")
    assert home_dir == f"{prefix}/share/hook" and lines == "a=1;b=2" and static == "from json"
    (kept,) = (home / "records").glob("*.activation")
    stamp = kept.stat().st_mtime_ns
    assert cli("run", path, *show).ok() and kept.stat().st_mtime_ns == stamp


def test_post_link_scripts_are_off_and_said_and_can_be_asked_for(cli, home, spec):
    show = ["--", "sh", "-c", 'ls "$CONDA_PREFIX/share"']
    done = cli("run", spec(["postlinked"]), *show).ok()
    assert "post-link scripts of postlinked are not run" in done.err and "post-link-ran" not in done.out
    done = cli("run", spec(["postlinked"], more="link_scripts: true"), *show).ok()
    assert "post-link-ran" in done.out


def test_a_lock_for_two_platforms_has_one_python(cli, home, spec):
    cli("lock", spec(["numpy"]), "--platform", OTHER_SUBDIR).ok()
    lock = Path("c.lock").read_text()
    assert lock.count('name = "numpy"') == 2 and f'subdir = "{OTHER_SUBDIR}"' in lock
    assert cli("run", "c.yaml", "--", "python", "-c", "import numpy; print(numpy.__version__)").ok().out == "2.0.2\n"


def test_a_lock_keeps_its_versions_until_asked(cli, home, spec, channel, tmp_path):
    mine = tmp_path / "mine"
    shutil.copytree(channel, mine, copy_function=os.link, ignore=shutil.ignore_patterns("repodata*", "shards", ".tmp"))
    (mine / "noarch/greet-2.0-py_0.conda").unlink()
    index(mine)
    path = spec(["greet"], url=mine.as_uri())
    cli("lock", path).ok()
    assert 'version = "1.1"' in Path("c.lock").read_text()
    os.link(channel / "noarch/greet-2.0-py_0.conda", mine / "noarch/greet-2.0-py_0.conda")
    index(mine)
    write("c.yaml", path.read_text().replace('["greet"]', '["greet", "six"]'))
    cli("lock", "c.yaml").ok()
    assert 'version = "1.1"' in Path("c.lock").read_text()
    cli("lock", "c.yaml", "--upgrade-package", "greet").ok()
    assert 'version = "2.0"' in Path("c.lock").read_text()


def test_credentials_come_from_netrc_and_are_not_stored(cli, home, spec, channel):
    with Served(channel, user="reader", password="s3cret-s3cret") as served:
        path = spec(["six"], url=served.url)
        environ = {"ENVHARNESS_CACHE": str(home / "cache"), "UV_HTTP_RETRIES": "0"}
        refused = cli("lock", path, env=environ)
        assert refused.code == 3 and "netrc" in refused.err
        netrc = write("user/.netrc", "machine 127.0.0.1 login reader password s3cret-s3cret\n")
        environ |= {"HOME": str(netrc.parent.resolve()), "NETRC": str(netrc.resolve())}
        assert cli("run", path, "--", "python", "-c", "import six; print(6)", env=environ).ok().out == "6\n"
    found = subprocess.run(["grep", "-rlaF", "s3cret-s3cret", str(home), "c.lock"], capture_output=True, text=True, check=False)
    assert found.stdout == ""


def test_credentials_come_from_a_file_of_rattler_too(cli, home, spec, channel):
    with Served(channel, user="me", password="secret") as served:
        path = spec(["binprefix"], url=served.url)
        login = write("logins.json", json.dumps({"127.0.0.1": {"BasicHTTP": {"username": "me", "password": "secret"}}}))
        environ = {"ENVHARNESS_CACHE": str(home / "cache"), "RATTLER_AUTH_FILE": str(login)}
        refused = cli("lock", path, env={**environ, "RATTLER_AUTH_FILE": "", "HOME": str(home)})
        assert refused.code != 0 and "RATTLER_AUTH_FILE" in refused.err
        cli("run", path, "--", "binprefix", env=environ).ok()
        assert "secret" not in Path("c.lock").read_text()


def test_mirrors_and_offline(cli, home, spec, channel):
    with Served(channel) as served:
        write("envharness.yaml", f"channels: [my-forge]\nmirrors:\n  my-forge: {served.url}\n")
        write("m.yaml", f"name: m\npython: '{PYTHON}'\nbackend: conda\ndependencies:\n  conda: [binprefix]\n")
        environ = {"ENVHARNESS_CACHE": str(home / "cache")}
        cli("run", "m.yaml", "--", "binprefix", env=environ).ok()
        assert 'channel = "my-forge"' in Path("m.lock").read_text() and "127.0.0.1" not in Path("m.lock").read_text()
        cli("store", "clean", "--yes", env=environ).ok()
        asked = len(served.asked)
        cli("run", "m.yaml", "--offline", "--", "binprefix", env=environ).ok()
        assert len(served.asked) == asked
    write("n.yaml", Path("m.yaml").read_text().replace("name: m", "name: n").replace("binprefix", "six"))
    refused = cli("run", "n.yaml", "--offline", "--", "true", env=environ)
    assert refused.code != 0 and "offline" in refused.err


def corrupt(data: bytes) -> bytes:
    return data[: len(data) // 2]


FAULTS = {
    "repodata truncated": (r"repodata.*\.json|shards", corrupt, "lock"),
    "repodata not JSON": (r"repodata|shards", lambda _: b"[" * 100_000, "lock"),
    "repodata refused": (r"repodata|shards", 500, "lock"),
    "package truncated": (r"six-.*\.conda", corrupt, "run"),
    "package replaced": (r"six-.*\.conda", lambda data: data + b"x", "run"),
    "package gone": (r"six-.*\.conda", 404, "run"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_channel_is_an_error_that_leaves_nothing(cli, home, spec, channel, fault):
    pattern, action, command = FAULTS[fault]
    with Served(channel) as served:
        path = spec(["six"], url=served.url)
        environ = {"ENVHARNESS_CACHE": str(home / "cache"), "UV_HTTP_RETRIES": "0"}
        served.faults.append((pattern, action, False))
        tail = [] if command == "lock" else ["--", "true"]
        refused = cli(command, path, *tail, env=environ)
        assert refused.code == (3 if command == "lock" else 125) and "hint: " in refused.err and "panicked" not in refused.err, refused.err
        assert not list((home / "prefixes").iterdir()) and not list((home / "contexts").iterdir())
        served.faults.clear()
        assert cli("run", path, "--", "python", "-c", "import six; print(1)", env=environ).ok().out == "1\n"


def test_a_passing_failure_is_tried_again(cli, home, spec, channel):
    with Served(channel) as served:
        served.faults += [(r"six-.*\.conda", 503, True), (r"repodata", 503, True)]
        environ = {"ENVHARNESS_CACHE": str(home / "cache")}
        cli("run", spec(["six"], url=served.url), "--", "python", "-c", "import six", env=environ).ok()
        assert served.faults == []


@contextlib.contextmanager
def small_disk(folder: Path, size: str):
    """A file system of a size at a folder."""
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=False).returncode != 0:
        pytest.skip("no small file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_said_and_leaves_nothing(cli, home, spec, tmp_path):
    with small_disk(tmp_path / "small", "8m") as small:
        refused = cli("run", spec(["six"]), "--", "true", env={"ENVHARNESS_HOME": str(small / "home"), "ENVHARNESS_LINK_MODE": "copy"})
        assert refused.code == 125 and ("No space left" in refused.err or "disk is full" in refused.err), refused.err
        assert not list((small / "home/prefixes").iterdir())


def test_a_full_disk_under_the_cache_is_said(cli, home, spec, tmp_path):
    path = spec(["six"])
    with small_disk(tmp_path / "small", "4m") as small:
        refused = cli("run", path, "--", "true", env={"ENVHARNESS_CACHE": str(small)})
        assert refused.code == 125 and ("No space left" in refused.err or "disk is full" in refused.err), refused.err
        assert "hint: " in refused.err and not list((home / "prefixes").iterdir())
    cli("run", path, "--", "true").ok()


def test_downloads_are_told_by_bytes(cli, home, spec, served):
    environ = {"ENVHARNESS_CACHE": str(home / "cache")}
    done = cli("--log-level", "DEBUG", "sync", spec(["numpy"], url=served.url), env=environ).ok()
    told = [float(value) for value in re.findall(r"Downloading, ([\d.]+) MiB of [\d.]+ MiB.*event=\"progress\"", done.err)]
    assert told and told == sorted(told) and told[-1] > 8, done.err[-2000:]
    assert re.search(r"numpy-\S+\.conda \(\d.*iB\).*event=\"downloading\"", done.err)


def test_link_modes_are_kept_to(cli, home, spec):
    for mode, links in (("hardlink", True), ("copy", False)):
        environ = {"ENVHARNESS_LINK_MODE": mode, "ENVHARNESS_HOME": str(home / mode), "ENVHARNESS_CACHE": str(home / "cache")}
        cli("run", spec(["six"]), "--", "true", env=environ).ok()
        (module,) = (home / mode / "prefixes").glob("*/lib/python*/site-packages/six.py")
        assert (module.stat().st_nlink > 1) == links, mode


def test_verify_finds_damage_and_the_next_create_mends_it(cli, home, spec, monkeypatch):
    # Files are links into the downloads: what is damaged here must be nobody else's.
    monkeypatch.setenv("ENVHARNESS_CACHE", str(home / "cache"))
    path = spec(["six", "binprefix"])
    cli("run", path, "--", "true", env={"ENVHARNESS_COMPILE": "never"}).ok()
    assert cli("store", "verify").ok()
    (module,) = (home / "prefixes").glob("*/lib/python*/site-packages/six.py")
    module.chmod(0o644)
    text = module.read_bytes()
    module.write_bytes(text[:-2] + b"##")
    assert cli("store", "verify").code != 0
    assert cli("run", path, "--", "python", "-c", "import six; print(six.__version__)").ok().out == "1.16.0\n"
    (module,) = (home / "prefixes").glob("*/lib/python*/site-packages/six.py")
    assert module.read_bytes() == text


def test_byte_code_is_compiled_for_packages_and_the_standard_library(cli, home, spec):
    path = spec(["six"])
    cli("compile", path).ok()
    (prefix,) = (home / "prefixes").iterdir()
    assert list(prefix.glob("lib/python*/site-packages/__pycache__/six.*.pyc"))
    assert len(list(prefix.glob("lib/python*/__pycache__/*.pyc"))) > 50
    assert cli("run", path, "--", "python", "-c", "import six, json").ok()
    assert cli("store", "verify").ok()


def test_many_processes_share_one_build(home, spec):
    path = spec(["numpy"])
    argv = [str(BIN / "envharness"), "run", str(path), "--", "python", "-c", "import numpy; print(numpy.__version__)"]
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    outputs = [process.communicate() for process in started]
    assert {out for out, _ in outputs} == {"2.0.2\n"}, outputs
    assert sum("Installed" in err for _, err in outputs) == 1
    assert len(list((home / "prefixes").iterdir())) == 1


SCRIPT = """
import sys
import envharness as eh

def double(x):
    import numpy, six
    return (numpy.__version__, six.moves.range(x)[-1], int(numpy.arange(x).sum() * 2))

if __name__ == "__main__":
    spec = eh.EnvSpecBuilder().name("py").python("{python}").conda_channel("{channel}").conda_package("numpy=2.0").pip_package("six").build()
    with eh.create_context(spec) as ctx:
        assert ctx.id.startswith("conda-env-py-"), ctx.id
        version, last, total = ctx.call(double, 4)
        assert (version, last, total) == ("2.0.2", 3, 12)
        code, logs = ctx.execute(["python", "-c", "import sys; print(sys.prefix)"])
        assert code == 0 and "/prefixes/" in logs
        ctx.run("python -c 'import numpy'")
        path = ctx.lock.save("py.lock")
    with eh.get_context(spec) as ctx:
        import numpy
        print(numpy.__version__, "/prefixes/" in numpy.__file__, ctx.activated)
"""


def test_the_python_package_works_with_conda(script, home, channel):
    if f"{sys.version_info[0]}.{sys.version_info[1]}" != PYTHON:
        pytest.skip(f"activation needs Python {PYTHON}")
    done = script(SCRIPT.format(python=PYTHON, channel=channel.as_uri())).ok()
    assert done.out.split() == ["2.0.2", "True", "True"]


def test_a_lock_of_a_machine_with_other_hardware_is_refused(cli, home, spec):
    path = spec(["needs-cuda"])
    cli("lock", path, env={"CONDA_OVERRIDE_CUDA": "12.4"}).ok()
    refused = cli("run", path, "--frozen", "--", "true", env={"CONDA_OVERRIDE_CUDA": ""})
    assert refused.code == 125 and "`needs-cuda` needs `__cuda >=12`" in refused.err
    cli("run", path, "--frozen", "--", "true", env={"CONDA_OVERRIDE_CUDA": "12.4"}).ok()


def test_a_cache_on_another_file_system_is_said(cli, home, spec):
    if not Path("/dev/shm").is_dir() or os.stat("/dev/shm").st_dev == os.stat(home.parent).st_dev:
        pytest.skip("there is no second file system here")
    cache = Path(f"/dev/shm/envharness-{os.getpid()}")
    try:
        done = cli("run", spec(["six"]), "--", "python", "-c", "import six", env={"ENVHARNESS_CACHE": str(cache)}).ok()
        assert "another file system" in done.err
    finally:
        shutil.rmtree(cache, ignore_errors=True)


FORMS = {"environment.yml": "e/environment.yml", "explicit": "x/explicit.txt", "conda-lock.yml": "l/conda-lock.yml", "pixi.lock": "p/pixi.lock"}


def test_exports_read_back_as_the_same_packages(cli, home, spec, served):
    cli("lock", spec(["greet", "binprefix"], url=served.url)).ok()

    def packages(lock: str) -> set[tuple[str, ...]]:
        return set(re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"\n(?:channel = .*\n)(?:subdir = .*\n)build = "([^"]+)"', Path(lock).read_text()))

    first = packages("c.lock")
    assert {name for name, *_ in first} == {"python", "greet", "binprefix"}
    for form, file in FORMS.items():
        Path(file).parent.mkdir()
        cli("export", "c.yaml", "--format", form, "-o", file).ok()
        cli("lock", file).ok()
        (lock,) = (path for path in Path(file).parent.glob("*.lock") if path != Path(file))
        assert packages(str(lock)) == first, form
        assert "hello from greet" in cli("run", file, "--", "greet").ok().out


@pytest.mark.parametrize("form", FORMS)
def test_exports_hold_pip_packages_with_their_hashes(cli, home, spec, form, served):
    mine = spec(["greet"], pip=["six==1.16.0", "idna==3.4"], url=served.url)
    cli("lock", mine).ok()

    def pip(lock: Path) -> list[str]:
        return sorted(re.findall(r"(?:six|idna)-[^\"]*\.whl|sha256:[0-9a-f]{64}", "".join(p for p in lock.read_text().split("[[package]]") if "index =" in p)))

    wanted = pip(Path("c.lock"))
    assert len(wanted) == 4
    file = Path(FORMS[form])
    file.parent.mkdir()
    cli("export", mine, "--format", form, "-o", file).ok()
    assert "@" not in file.read_text().split("://", 1)[1].split("/")[0], "credentials"
    cli("lock", file).ok()
    (lock,) = (path for path in file.parent.glob("*.lock") if path != file)
    assert pip(lock) == wanted
    assert cli("run", file, "--", "python", "-c", "import six, idna, sys; print(six.__version__, idna.__version__)").ok().out == "1.16.0 3.4\n"


def test_what_an_export_cannot_hold_is_refused_by_name(cli, home, spec):
    write("mine/pyproject.toml", "[project]\nname = 'mine'\nversion = '1'\n")
    write("mine/mine.py", "")
    refused = cli("export", spec(["greet"], pip=["./mine"]), "--format", "pixi.lock")
    assert refused.code != 0 and "mine" in refused.err and "hint:" in refused.err
    refused = cli("export", spec(["greet"], name="files"), "--format", "conda-lock.yml")
    assert refused.code != 0 and "conda-lock.yml" in refused.err and "hint: " in refused.err, refused.err


def test_pixi_lock_is_one_that_rattler_reads(cli, home, spec):
    rattler = pytest.importorskip("rattler")
    cli("lock", spec(["greet"])).ok()
    cli("export", "c.yaml", "--format", "pixi.lock", "-o", "pixi.lock").ok()
    lock = rattler.LockFile.from_path(Path("pixi.lock"))
    environment = lock.default_environment()
    (platform,) = environment.platforms()
    assert {package.name for package in environment.packages(platform)} == {"python", "greet"}


def test_a_pip_section_keeps_its_markers_and_hashes(cli, home, channel):
    digest = "8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254"
    write(
        "environment.yml",
        f"""\
        name: from-conda
        channels: ['{channel.as_uri()}', nodefaults]
        dependencies:
          - python={PYTHON}
          - greet=1.*
          - pip
          - pip:
              - six==1.16.0 --hash=sha256:{digest}
              - cowsay==6.1 ; python_version < '3.0'
        """,
    )
    cli("lock", "environment.yml").ok()
    (lock,) = Path().glob("environment*.lock")
    text = lock.read_text()
    assert text.count(digest) == 2 and 'name = "cowsay"' not in text and "nodefaults" not in text
    assert cli("run", "environment.yml", "--", "python", "-c", "import six, greet; print(six.__version__)").ok().out == "1.16.0\n"
    exported = cli("export", "environment.yml", "--format", "environment.yml").ok().out
    assert f"six==1.16.0 --hash=sha256:{digest}" in exported


@pytest.mark.parametrize("name", ["../../../evil", "/tmp/evil", "a/../../evil"])
def test_a_channel_cannot_write_outside_of_the_prefix(cli, home, spec, tmp_path, name):
    """Repodata whose file names and builds are paths."""
    mine, stage = tmp_path / "mine", tmp_path / "stage"
    write(stage / "share/evil", "evil\n")
    write_package(mine, stage, name="python", version=f"{PYTHON}.7", depends=["evil"])
    package = write_package(mine, stage, name="evil", version="1.0", depends=[])
    index(mine)
    repodata = mine / SUBDIR / "repodata.json"
    data = json.loads(repodata.read_text())
    record = data["packages.conda"].pop(package.name)
    data["packages.conda"][f"{name}-1.0-h0_0.conda"] = {**record, "build": "../../../h0_0"}
    repodata.write_text(json.dumps(data))
    for other in (mine / SUBDIR).glob("repodata*"):
        if other != repodata:
            other.unlink()
    refused = cli("run", spec(["evil"], url=mine.as_uri()), "--", "true")
    assert refused.code != 0 and "panicked" not in refused.err
    assert not list((home / "prefixes").iterdir()) and not list(tmp_path.rglob("evil-1.0*/share"))
