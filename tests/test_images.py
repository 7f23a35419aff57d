"""Images without an engine: built from real conda packages, read by skopeo, run in a root of their own, pushed and pulled."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from channel import MINORS
from conftest import need_python, write
from engines import dockerd
from images import Layout, files_of, registry, rootfs, run_in, tokens

PYTHON = MINORS[0]
NUMPY = ["numpy", "python-dateutil", "six"]


def need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not on this machine")


@pytest.fixture
def spec(channel, home):
    """Writes a spec over the channel and gives its path."""

    def make(conda=(), *, pip=(), more: str = "", name: str = "trainer") -> Path:
        lines = [f"name: {name}", f"channels: ['{channel.as_uri()}']", f"python: '{PYTHON}'", "dependencies:"]
        lines += [f"  conda: {json.dumps(list(conda))}", f"  pip: {json.dumps(list(pip))}"]
        return write(f"{name}.yaml", "\n".join([*lines, more]) + "\n")

    return make


def blobs(home: Path) -> set[str]:
    return {path.name for path in (home / "images/blobs/sha256").iterdir()}


def test_the_same_lock_gives_the_same_bytes_in_two_stores(cli, home, spec, tmp_path):
    path = spec(NUMPY, pip=["typing-extensions==4.12.2"])
    first = cli("image", "build", path, "-t", "trainer:1", "-o", "one", "--output-format", "json").ok().json
    other = {"ENVHARNESS_HOME": str(tmp_path / "other")}
    second = cli("image", "build", path, "-t", "trainer:1", "-o", "two", "--output-format", "json", env=other).ok().json
    assert first == second and files_of(Path("one")) == files_of(Path("two"))
    layout = Layout(Path("one"))
    assert 3 <= len(layout.layers) <= 40 and set(layout.titles) >= {"numpy", "python", "environment"}
    seen = {}
    for digest in layout.layers:
        members = layout.members(digest)
        assert [m.name for m in members] == sorted((m.name for m in members), key=lambda name: name.rstrip("/"))
        assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 315532800)}
        for member in members:
            assert member.mode == 0o1777 if member.name == "work" else member.mode in ((0o777,) if member.issym() else (0o644, 0o755))
            assert member.isdir() or member.name not in seen, f"{member.name} is in two layers"
            seen[member.name] = digest
    packed = b"".join(layout.tar(digest) for digest in layout.layers)
    assert str(home).encode() not in packed and str(tmp_path).encode() not in packed
    assert "opt/envharness/env/lib/python3.11/site-packages/__pycache__/typing_extensions.cpython-311.pyc" in seen
    assert layout.config["created"] == "1980-01-01T00:00:00Z"
    # A build that was done before is found by what decided it.
    assert cli("image", "build", path, "-t", "trainer:2", "--output-format", "json").ok().json["digest"] == first["digest"]
    later = cli("image", "build", path, "-t", "trainer:3", "-o", "three", env={"SOURCE_DATE_EPOCH": "1700000000"}).ok()
    assert later.out.strip() != first["digest"] and Layout(Path("three")).config["created"] == "2023-11-14T22:13:20Z"


def test_a_changed_package_changes_its_layer_alone(cli, home, spec):
    packages = [*NUMPY, "greet", "hook"]
    cli("image", "build", spec([*packages[:3], "greet ==1.0", "hook"]), "-o", "one").ok()
    before = blobs(home)
    cli("image", "build", spec([*packages[:3], "greet ==1.1", "hook"]), "-o", "two").ok()
    one, two = Layout(Path("one")).titles, Layout(Path("two")).titles
    assert set(one) == set(two)
    (changed,) = {title for title in one if one[title] != two[title]}
    assert changed.startswith("packages ")
    # One layer, one configuration, one manifest.
    assert len(blobs(home) - before) == 3
    names = [member.name for member in Layout(Path("two")).members(two[changed])]
    assert any(name.endswith("conda-meta/greet-1.1-py_0.json") for name in names)


def test_skopeo_reads_it_in_every_form(cli, home, spec):
    need("skopeo")
    digest = cli("image", "build", spec(["six"]), "-t", "team/trainer:1", "-o", "layout", "--label", "a=b").ok().out.strip()
    inspect = lambda place: json.loads(subprocess.run(["skopeo", "inspect", place], capture_output=True, check=True).stdout)  # noqa: E731
    assert inspect("oci:layout")["Digest"] == digest == inspect(f"oci:{home}/images:team/trainer:1")["Digest"]
    about = inspect("oci:layout")
    assert about["Labels"]["a"] == "b" and about["Labels"]["org.envharness.spec"] == "trainer"
    assert "CONDA_PREFIX=/opt/envharness/env" in about["Env"]
    for output, form, place in (("a.tar", "oci", "oci-archive:a.tar"), ("b.tar", "docker", "docker-archive:b.tar"), ("b.tar", "docker", "oci-archive:b.tar")):
        cli("image", "build", "trainer.yaml", "-t", "team/trainer:1", "-o", output, "--format", form).ok()
        assert inspect(place)["Labels"]["org.envharness.spec"] == "trainer"
        target = f"copy-{place.split(':')[0]}"
        subprocess.run(["skopeo", "copy", "--quiet", place, f"dir:{target}"], check=True, capture_output=True)
        assert len(json.loads((Path(target) / "manifest.json").read_text())["layers"]) == len(Layout(Path("layout")).layers)


@pytest.mark.skipif(os.geteuid() != 0, reason="a root of its own needs root")
def test_an_image_runs_on_a_small_base(cli, home, spec, tmp_path):
    need("busybox", "chroot")
    base = rootfs(tmp_path / "base")
    path = spec(["numpy", "hook", "binprefix", "greet"], more="env_vars: {GREETING: hello}")
    done = cli("image", "build", path, "--base", base, "-o", "image", "--workdir", "/work", "--", "python", "-m", "greet").ok()
    assert "GNU C library" not in done.err
    layout = Layout(Path("image"))
    assert layout.config["config"]["Cmd"] == ["python", "-m", "greet"] and layout.config["config"]["WorkingDir"] == "/work"
    root = layout.unpack(tmp_path / "root")
    code = "import sys, os, numpy, numpy.linalg; print(sys.prefix, numpy.__version__, numpy.linalg.__cached__, os.environ['GREETING'], os.environ['HOOK_HOME'], os.getcwd())"
    ran = run_in(root, layout.config, "python", "-c", code)
    assert ran.returncode == 0, ran.stderr
    prefix, version, cached, greeting, hook, cwd = ran.stdout.split()
    assert (prefix, version, greeting, cwd) == ("/opt/envharness/env", "2.0.2", "hello", "/work")
    assert hook == "/opt/envharness/env/share/hook"
    # Byte-code that nobody looks at the source for.
    data = (root / cached.lstrip("/")).read_bytes()
    assert data[4:8] == b"\1\0\0\0" and b"lib/python3.11/site-packages/numpy/linalg" in data
    assert run_in(root, layout.config, "binprefix").stdout == "/opt/envharness/env\n"
    assert run_in(root, layout.config, "greet").stdout == "hello from greet\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="an engine of its own needs root")
def test_docker_loads_runs_and_saves_it(cli, home, spec, tmp_path):
    need("docker", "dockerd", "busybox")
    base = rootfs(tmp_path / "base")
    cli("image", "build", spec(["numpy"]), "--base", base, "-t", "team/n:1", "-o", "n.tar", "--format", "docker", "--user", "1000:1000").ok()
    with dockerd() as engine:
        def run(*args):
            return subprocess.run(["docker", "-H", engine.address, *args], capture_output=True, text=True, check=False)

        assert run("load", "-i", "n.tar").stdout == "Loaded image: team/n:1\n"
        code = "import numpy, os; open('mine', 'w'); print(numpy.__version__, os.getuid(), os.getcwd())"
        ran = run("run", "--rm", "--network", "none", "team/n:1", "python", "-c", code)
        assert ran.stdout == "2.0.2 1000 /work\n", ran.stderr
        changing = run("run", "--rm", "--network", "none", "team/n:1", "touch", "/opt/envharness/env/bin/mine")
        assert changing.returncode != 0 and "Permission denied" in changing.stderr
        assert run("save", "team/n:1", "-o", "saved.tar").returncode == 0
    # What docker saves has the same content, in its own form.
    cli("image", "build", spec(["six"], name="on"), "--base", "saved.tar", "-t", "on:1", "-o", "on").ok()
    cli("image", "build", "trainer.yaml", "--base", base, "-t", "team/n:1", "-o", "n").ok()
    loaded = Layout(Path("n")).config["rootfs"]["diff_ids"]
    assert Layout(Path("on")).config["rootfs"]["diff_ids"][: len(loaded)] == loaded


@pytest.mark.skipif(os.geteuid() != 0, reason="a root of its own needs root")
def test_a_venv_needs_a_base_with_its_python(cli, home, spec, tmp_path):
    need("busybox", "chroot")
    need_python(PYTHON)
    write("v.yaml", f"name: v\npython: '{PYTHON}'\ndependencies: ['six==1.16.0', 'numpy==2.0.2']\n")
    refused = cli("image", "build", "v.yaml")
    assert refused.code == 1 and "a venv stands on a Python of its machine" in refused.err and f"a Python {PYTHON} in it" in refused.err
    empty = rootfs(tmp_path / "empty")
    refused = cli("image", "build", "v.yaml", "--base", empty)
    assert refused.code == 1 and f"the lock wants Python {PYTHON}, and its base has none" in refused.err
    # A base with a Python is one of ours: conda's own, where a distribution has its.
    cli("image", "build", spec(["pytz"], name="base"), "--base", empty, "--target", "/usr/local", "-t", "base:1", "-o", "base.tar", "--format", "docker").ok()
    for number, given in enumerate(("base:1", "base.tar")):
        cli("image", "build", "v.yaml", "--base", given, "-o", f"image-{number}").ok()
    assert Layout(Path("image-0")).layers == Layout(Path("image-1")).layers
    layout = Layout(Path("image-0"))
    root = layout.unpack(tmp_path / "root")
    ran = run_in(root, layout.config, "python", "-c", "import sys, six, numpy; print(sys.prefix, sys.base_prefix, six.__version__, numpy.__version__)")
    assert ran.stdout == "/opt/envharness/env /usr/local 1.16.0 2.0.2\n", ran.stderr


def test_push_and_pull_keep_the_digest(cli, home, spec, tmp_path):
    need("docker-registry")
    with registry(tmp_path / "registry") as host:
        made = cli("image", "build", spec(NUMPY), "-t", "trainer:1", "--output-format", "json").ok().json
        assert cli("image", "push", "trainer:1", f"{host}/team/trainer:1").ok().out.strip() == made["digest"]
        other = {"ENVHARNESS_HOME": str(tmp_path / "other")}
        got = cli("image", "pull", f"{host}/team/trainer:1", "--output-format", "json", env=other).ok().json
        assert got["digest"] == made["digest"] and got["layers"] == made["layers"] and got["lock_digest"] is None
        (listed,) = cli("image", "list", "--output-format", "json", env=other).ok().json["images"]
        assert listed["name"] == f"{host}/team/trainer:1" and listed["digest"] == made["digest"]
        # Layers that another repository has are mounted: nothing is sent.
        cli("image", "push", f"{host}/team/trainer:1", f"{host}/team/second:1", env=other).ok()
        links = list((tmp_path / "registry/data/docker/registry/v2/repositories/team/second/_layers/sha256").iterdir())
        assert len(links) == len(made["layers"]) + 1
        absent = cli("image", "pull", f"{host}/team/nobody:1")
        assert absent.code == 3 and f"has no `{host}/team/nobody:1`" in absent.err


def test_damage_at_a_registry_is_found(cli, home, spec, tmp_path):
    need("docker-registry")
    with registry(tmp_path / "registry") as host:
        made = cli("image", "build", spec(["six"]), "-t", f"{host}/trainer:1", "--output-format", "json").ok().json
        cli("image", "push", f"{host}/trainer:1").ok()
        largest = max(made["layers"], key=lambda layer: layer["bytes"])["digest"].split(":")[1]
        stored = tmp_path / "registry/data/docker/registry/v2/blobs/sha256" / largest[:2] / largest / "data"
        whole = stored.read_bytes()
        other = {"ENVHARNESS_HOME": str(tmp_path / "other"), "UV_HTTP_RETRIES": "1"}
        for wrong in (whole[:-100], b"x" + whole[1:], whole + b"x"):
            stored.write_bytes(wrong)
            done = cli("image", "pull", f"{host}/trainer:1", env=other)
            assert done.code == 3 and f"the blob sha256:{largest}" in done.err and "is damaged" in done.err, done.err
            assert not (tmp_path / "other/images/blobs/sha256" / largest).exists()
            assert cli("image", "list", "--output-format", "json", env=other).ok().json["images"] == []
            assert not [p for p in (tmp_path / "other/tmp").iterdir() if p.name.startswith("image")]
        stored.write_bytes(whole)
        assert cli("image", "pull", f"{host}/trainer:1", "--output-format", "json", env=other).ok().json["digest"] == made["digest"]


def test_a_registry_is_told_who_one_is(cli, home, spec, tmp_path):
    need("docker-registry", "htpasswd")
    entry = subprocess.run(["htpasswd", "-nbB", "user", "secret"], capture_output=True, text=True, check=True).stdout.strip()
    with registry(tmp_path / "registry", htpasswd=entry + "\n") as host:
        cli("image", "build", spec(["six"]), "-t", "trainer:1").ok()
        config = tmp_path / "docker"
        environ = {"DOCKER_CONFIG": str(config), "REGISTRY_AUTH_FILE": ""}
        refused = cli("image", "push", "trainer:1", f"{host}/trainer:1", env=environ)
        assert refused.code == 3 and "none is known" in refused.err and f"docker login {host}" in refused.err
        auth = base64.b64encode(b"user:wrong").decode()
        write(config / "config.json", json.dumps({"auths": {host: {"auth": auth}}}))
        refused = cli("image", "push", "trainer:1", f"{host}/trainer:1", env=environ)
        assert refused.code == 3 and f"`{host}` refused" in refused.err and "wrong" not in refused.err
        auth = base64.b64encode(b"user:secret").decode()
        write(config / "config.json", json.dumps({"auths": {host: {"auth": auth}}}))
        cli("image", "push", "trainer:1", f"{host}/trainer:1", env=environ).ok()
        # A helper is asked as docker asks it.
        helper = write(tmp_path / "bin/docker-credential-tests", f"""\
            #!/bin/sh
            read host; [ "$1 $host" = "get {host}" ] && echo '{{"ServerURL": "", "Username": "user", "Secret": "secret"}}'
            """)
        helper.chmod(0o755)
        write(config / "config.json", json.dumps({"credHelpers": {host: "tests"}}))
        path = {**environ, "PATH": f"{helper.parent}:{os.environ['PATH']}"}
        cli("image", "push", "trainer:1", f"{host}/trainer:2", env=path).ok()
        broken = cli("image", "push", "trainer:1", f"{host}/trainer:3", env=environ)
        assert broken.code == 3 and "docker-credential-tests` cannot be started" in broken.err


def test_a_token_is_fetched_where_a_registry_wants_one(cli, home, spec, tmp_path):
    need("docker-registry")
    made = cli("image", "build", spec(["six"]), "-t", "trainer:1", "--output-format", "json").ok().json
    with registry(tmp_path / "registry") as inner, tokens(inner, "user", "se:cret") as (host, asked):
        file = write(tmp_path / "auth.json", json.dumps({"auths": {host: {"auth": base64.b64encode(b"user:se:cret").decode()}}}))
        environ = {"REGISTRY_AUTH_FILE": str(file)}
        cli("image", "push", "trainer:1", f"{host}/trainer:1", env=environ).ok()
        # One token serves all requests of a push.
        assert len(asked) == 1 and "service=tests" in asked[0] and "scope=repository%3Atrainer%3Apull%2Cpush" in asked[0]
        other = {**environ, "ENVHARNESS_HOME": str(tmp_path / "other")}
        assert cli("image", "pull", f"{host}/trainer:1", "--output-format", "json", env=other).ok().json["digest"] == made["digest"]
        refused = cli("image", "pull", f"{host}/trainer:1", env={"REGISTRY_AUTH_FILE": str(tmp_path / "none.json")})
        assert refused.code == 3 and "no token was given (401" in refused.err and "cret" not in refused.err


def test_list_and_prune(cli, home, spec):
    cli("image", "build", spec(["six"]), "-t", "a:1").ok()
    cli("image", "build", spec(["six", "pytz"]), "-t", "b:1").ok()
    text = cli("image", "ls").ok().out
    assert text.splitlines()[0].split() == ["NAME", "DIGEST", "LOCK", "LAYERS", "SIZE"] and "a:1" in text and "b:1" in text
    assert cli("image", "prune").ok().out == ""
    before = blobs(home)
    dry = cli("image", "prune", "b:1", "--dry-run", "--output-format", "json").ok().json
    assert dry["images"] == ["b:1"] and dry["blobs"] > 2 and blobs(home) == before
    assert cli("image", "prune", "b:1").ok().out == "b:1\n"
    left = cli("image", "list", "--output-format", "json").ok().json
    assert [image["name"] for image in left["images"]] == ["a:1"] and blobs(home) < before
    # What is left is whole.
    cli("image", "build", "trainer.yaml", "-t", "b:2", "-o", "again").ok()
    assert Layout(Path("again")).config["rootfs"]["diff_ids"]
    cli("image", "prune", "--all").ok()
    assert blobs(home) == set() and not list((home / "images/layers").iterdir())
    unknown = cli("image", "prune", "nobody:1")
    assert unknown.code == 1 and "no image `nobody:1`" in unknown.err


def test_wrong_inputs_are_told_and_leave_nothing(cli, home, spec, tmp_path):
    path = spec(["six"])
    cli("image", "build", path, "-t", "good:1", "-o", "good").ok()
    before = blobs(home)
    index = (home / "images/index.json").read_text()

    def refused(*args, code=1, says=(), **more):
        done = cli("image", *args, **more)
        assert done.code == code, (done.code, done.err)
        for text in says:
            assert text in done.err, done.err
        assert "hint:" in done.err
        assert blobs(home) == before and (home / "images/index.json").read_text() == index
        assert not [p for p in (home / "tmp").iterdir() if p.name.startswith("image")]

    for name in ("Bad:1", "a:-x", "a//b:1", "x@sha256:12", ""):
        refused("build", path, "--tag", name, says=["is not the name of an image"])
    refused("build", path, "--base", "nowhere", says=["neither a path nor an image of the store"])
    layout = Layout(Path("good"))
    layer = Path("good/blobs") / layout.layers[0].replace(":", "/")

    def broken(name: str, change) -> str:
        shutil.copytree("good", name)
        change(Path(name))
        return name

    at = lambda folder: folder / layer.relative_to("good")  # noqa: E731
    # Its blobs are known to this store: another one has to read them.
    empty = {"ENVHARNESS_HOME": str(tmp_path / "empty")}
    for name, change, text in (
        ("truncated", lambda folder: at(folder).write_bytes(layer.read_bytes()[:-7]), "damaged"),
        ("flipped", lambda folder: at(folder).write_bytes(b"x" + layer.read_bytes()[1:]), "damaged"),
        ("missing", lambda folder: at(folder).unlink(), "it is missing"),
        ("no-index", lambda folder: (folder / "index.json").write_text("{"), "is not an image that can be read"),
        ("nothing", lambda folder: (folder / "index.json").write_text('{"schemaVersion": 2, "manifests": []}'), "it has 0 images"),
    ):
        done = cli("image", "build", path, "--base", broken(name, change), env=empty)
        assert done.code in (1, 3) and text in done.err and "hint:" in done.err, done.err
        assert not cli("image", "list", "--output-format", "json", env=empty).ok().json["images"]
    write("text", "no tar at all\n")
    refused("build", path, "--base", "text", says=["it is no tar"])
    with tarfile.open("leads.tar", "w") as tar:
        for name in ("manifest.json", "../out"):
            tar.addfile(tarfile.TarInfo(name))
    refused("build", path, "--base", "leads.tar", says=["leads out of it"])
    refused("push", "nobody:1", says=["no image `nobody:1`"])
    refused("pull", "127.0.0.1:9/a:1", code=3, says=["cannot be reached"], env={"UV_HTTP_RETRIES": "0"})
    refused("pull", "127.0.0.1:9/a:1", "--offline", says=["while offline"])
    write("full/other.txt", "mine\n")
    kept = cli("image", "build", path, "-t", "good:1", "-o", "full")
    assert kept.code == 3 and "has other things in it" in kept.err and os.listdir("full") == ["other.txt"]
    # Damage in the store itself is found when the blob is used.
    stored = home / "images/blobs/sha256" / layout.layers[0].split(":")[1]
    stored.chmod(0o644)
    stored.write_bytes(b"x" + stored.read_bytes()[1:])
    done = cli("image", "build", path, "-t", "good:1", "-o", "out")
    assert done.code == 3 and "damaged" in done.err and not Path("out").exists()
    assert [p for p in Path().iterdir() if p.name.startswith(".out")] == []
    # It is taken away, so that the next build makes it anew.
    cli("image", "build", path, "-t", "good:1", "-o", "out").ok()
    assert files_of(Path("out")) == files_of(Path("good"))
