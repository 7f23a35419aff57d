"""A conda channel of real packages, made on this machine once and kept by the hash of this file.

`python tests/channel.py FOLDER` builds it. It has relocatable CPythons made from the machine's own interpreters, wheels of
the package index repacked as conda packages, and a few small packages that each show one thing: a prefix in a binary, a
noarch entry point, an activation script, a post-link script, a need for `__cuda`. `Served` gives it over loopback HTTP.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.server
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from pathlib import Path

#: What conda-build compiles into its packages; the installer replaces it by the prefix.
PLACEHOLDER = "/opt/placeholder_" + "x" * 200
SUBDIR = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}[platform.machine()]
OTHER_SUBDIR = {"linux-64": "linux-aarch64", "linux-aarch64": "linux-64"}[SUBDIR]
#: Minor versions of Python that the channel has where the machine has them; the first is the one with all packages.
MINORS = ("3.11", "3.12")
#: Packages of the index by name and version, with what the conda package depends on; `None` is a pure package.
NATIVE = {
    "numpy": ("2.0.2", []),
    "scipy": ("1.13.1", ["numpy >=1.23,<3"]),
    "pandas": ("2.2.3", ["numpy >=1.23", "python-dateutil >=2.8.2", "python-tzdata >=2022.7", "pytz >=2020.1"]),
    "scikit-learn": ("1.5.2", ["numpy >=1.19.5", "scipy >=1.6", "joblib >=1.2", "threadpoolctl >=3.1"]),
}
#: The smaller second Python has these alone.
SECOND = ("numpy",)
PURE = {
    "python-dateutil": ("python-dateutil", "2.9.0.post0", ["six >=1.5"]),
    "python-tzdata": ("tzdata", "2024.2", []),
    "pytz": ("pytz", "2024.2", []),
    "six": ("six", "1.16.0", []),
    "joblib": ("joblib", "1.4.2", []),
    "threadpoolctl": ("threadpoolctl", "3.5.0", []),
    "gymnasium": ("gymnasium", "1.0.0", ["numpy >=1.21", "cloudpickle >=1.2", "typing-extensions >=4.3", "farama-notifications >=0.0.1"]),
    "cloudpickle": ("cloudpickle", "3.1.0", []),
    "typing-extensions": ("typing_extensions", "4.12.2", []),
    "farama-notifications": ("farama-notifications", "0.0.4", []),
}
SKIPPED = ("test", "tests", "idlelib", "turtledemo", "ensurepip", "lib2to3", "__pycache__", "site-packages", "config-")


def write_package(channel: Path, stage: Path, *, name: str, version: str, depends: list[str], subdir: str = SUBDIR, build: str = "h0_0", build_number: int = 0, noarch: str | None = None, link: dict | None = None, prefixed: dict[str, str] | None = None, constrains: list[str] | None = None) -> Path:
    """Packs a folder as a `.conda` archive. `prefixed` maps files that hold the placeholder to `text` or `binary`."""
    import zstandard

    files = sorted(p for p in stage.rglob("*") if p.is_symlink() or p.is_file())
    paths = []
    for path in files:
        relative = path.relative_to(stage).as_posix()
        entry: dict = {"_path": relative, "path_type": "softlink" if path.is_symlink() else "hardlink"}
        if not path.is_symlink():
            entry |= {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "size_in_bytes": path.stat().st_size}
        if mode := (prefixed or {}).get(relative):
            entry |= {"prefix_placeholder": PLACEHOLDER, "file_mode": mode}
        paths.append(entry)
    index = {"name": name, "version": version, "build": build, "build_number": build_number, "depends": depends, "constrains": constrains or [], "subdir": "noarch" if noarch else subdir, "timestamp": 1700000000000}
    index |= {"noarch": noarch} if noarch else {"arch": subdir.split("-")[1], "platform": subdir.split("-")[0]}
    info = {"index.json": index, "paths.json": {"paths": paths, "paths_version": 1}, "about.json": {}}
    if link:
        info["link.json"] = link
    stem = f"{name}-{version}-{build}"

    def packed(fill) -> bytes:
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
            fill(tar)
        return zstandard.ZstdCompressor(level=3).compress(raw.getvalue())

    def info_part(tar: tarfile.TarFile) -> None:
        for file, value in info.items():
            data = json.dumps(value).encode()
            member = tarfile.TarInfo(f"info/{file}")
            member.size, member.mtime = len(data), 1700000000
            tar.addfile(member, io.BytesIO(data))

    def file_part(tar: tarfile.TarFile) -> None:
        for path in files:
            tar.add(path, path.relative_to(stage).as_posix(), recursive=False)

    folder = channel / ("noarch" if noarch else subdir)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{stem}.conda"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
        archive.writestr(f"pkg-{stem}.tar.zst", packed(file_part))
        archive.writestr(f"info-{stem}.tar.zst", packed(info_part))
    return target


def interpreters() -> dict[str, Path]:
    """The machine's shared-library CPythons by minor version: a folder with `bin` and `lib` each."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {}
    for minor in MINORS:
        for folder in sorted(root.glob(f"{minor}.*")):
            if any(folder.glob("lib/libpython3*.so.1.0")):
                found[minor] = folder
    return found


def relocatable_python(source: Path, minor: str, stage: Path) -> tuple[str, dict[str, str]]:
    """Copies a CPython without tests and packages and makes it find its libraries beside itself; returns its version and
    the files that hold the placeholder."""
    version = subprocess.run([source / "bin" / f"python{minor}", "-I", "-S", "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True, check=True).stdout.strip()
    library = f"lib/python{minor}"
    skip = lambda folder, names: [n for n in names if n in SKIPPED or n.startswith("config-")]  # noqa: E731
    shutil.copytree(source / library, stage / library, symlinks=True, ignore=skip)
    (stage / library / "site-packages").mkdir()
    write(stage / library / "site-packages" / "README.txt", "packages go here\n")
    (stage / "bin").mkdir()
    shutil.copy2(source / "bin" / f"python{minor}", stage / "bin" / f"python{minor}")
    for name in ("python", "python3"):
        (stage / "bin" / name).symlink_to(f"python{minor}")
    (shared,) = source.glob(f"lib/libpython{minor}.so.1.0")
    shutil.copy2(shared, stage / "lib" / shared.name)
    os.chmod(stage / "lib" / shared.name, 0o755)
    (stage / "lib" / f"libpython{minor}.so").symlink_to(shared.name)
    rpath = lambda file, value: subprocess.run(["patchelf", "--set-rpath", value, file], check=True)  # noqa: E731
    rpath(stage / "bin" / f"python{minor}", "$ORIGIN/../lib")
    rpath(stage / "lib" / shared.name, "$ORIGIN")
    for module in (stage / library / "lib-dynload").glob("*.so"):
        rpath(module, "$ORIGIN/../..")
    prefixed = {}
    for path in [*stage.rglob("_sysconfigdata*.py"), *stage.rglob("*.pc")]:
        path.write_text(path.read_text().replace(str(source), PLACEHOLDER))
        prefixed[path.relative_to(stage).as_posix()] = "text"
    return version, prefixed


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def installed_wheel(uv: str, requirement: str, minor: str, target: Path) -> None:
    """Unpacks one wheel of the index into a folder, without what it depends on."""
    argv = [uv, "pip", "install", "--quiet", "--no-config", "--no-deps", "--only-binary", ":all:", "--link-mode", "copy", "--python", sys.executable, "--python-version", minor, "--target", target, requirement]
    subprocess.run(argv, check=True)
    for leftover in (target / ".lock", target / "bin"):
        shutil.rmtree(leftover, ignore_errors=True) if leftover.is_dir() else leftover.unlink(missing_ok=True)


PROGRAM = r"""
#include <stdio.h>
static const char prefix[sizeof(PREFIX) + 8] = PREFIX;
int main(void) { const char *volatile where = prefix; puts(where); return 0; }
"""


def small_packages(channel: Path, work: Path) -> None:
    """Packages that each show one thing."""

    def stage(name: str) -> Path:
        folder = work / name
        folder.mkdir()
        return folder

    binary = stage("binprefix")
    source = write(work / "binprefix.c", PROGRAM)
    (binary / "bin").mkdir()
    subprocess.run(["cc", "-O1", f'-DPREFIX="{PLACEHOLDER}"', source, "-o", binary / "bin/binprefix"], check=True)
    write(binary / "etc/where.txt", f"{PLACEHOLDER}/etc\n")
    write(binary / "bin/textprefix", f"#!/bin/sh\necho {PLACEHOLDER}\n", 0o755)
    write_package(channel, binary, name="binprefix", version="1.0", depends=[], prefixed={"bin/binprefix": "binary", "etc/where.txt": "text", "bin/textprefix": "text"})

    greet = stage("greet")
    write(greet / "site-packages/greet/__init__.py", "def main():\n    print('hello from greet')\n")
    link = {"noarch": {"type": "python", "entry_points": ["greet = greet:main"]}, "package_metadata_version": 1}
    for version in ("1.0", "1.1", "2.0"):
        write_package(channel, greet, name="greet", version=version, depends=["python >=3.8"], build="py_0", noarch="python", link=link)

    hook = stage("hook")
    write(hook / "etc/conda/activate.d/hook.sh", 'export HOOK_HOME="$CONDA_PREFIX/share/hook"\nexport HOOK_LINES="a=1;b=2"\nunset HOOK_GONE\n')
    write(hook / "etc/conda/env_vars.d/hook.json", '{"HOOK_STATIC": "from json"}')
    write(hook / "share/hook/data", "data\n")
    write_package(channel, hook, name="hook", version="1.0", depends=[], build="0", noarch="generic")

    post = stage("postlinked")
    write(post / "bin/.postlinked-post-link.sh", '#!/bin/sh\necho ran > "$PREFIX/share/post-link-ran"\n', 0o755)
    write(post / "share/postlinked", "data\n")
    write_package(channel, post, name="postlinked", version="1.0", depends=[])

    empty = stage("empty")
    write(empty / "share/empty/README", "nothing\n")
    write_package(channel, empty, name="needs-cuda", version="1.0", depends=["__cuda >=12"])
    write_package(channel, empty, name="needs-greet-one", version="1.0", depends=["greet <2"], build="0", noarch="generic")
    write_package(channel, empty, name="needs-greet-two", version="1.0", depends=["greet >=2"], build="0", noarch="generic")
    # Another platform, to resolve for: its packages are never installed here.
    write_package(channel, empty, name="python", version="3.11.7", depends=[], subdir=OTHER_SUBDIR)
    write_package(channel, empty, name="numpy", version="2.0.1", depends=["python 3.11.*"], subdir=OTHER_SUBDIR)
    write_package(channel, empty, name="only-elsewhere", version="1.0", depends=[], subdir=OTHER_SUBDIR)


def build(channel: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "uv"
    found = interpreters()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for minor, source in found.items():
            stage = work / f"python-{minor}"
            stage.mkdir()
            version, prefixed = relocatable_python(source, minor, stage)
            write_package(channel, stage, name="python", version=version, depends=[], build=f"h{minor.replace('.', '')}_0", prefixed=prefixed)
            for name, (release, depends) in NATIVE.items():
                if minor != MINORS[0] and name not in SECOND:
                    continue
                stage = work / f"{name}-{minor}"
                installed_wheel(uv, f"{name}=={release}", minor, stage / f"lib/python{minor}/site-packages")
                tag = "py" + minor.replace(".", "")
                write_package(channel, stage, name=name, version=release, depends=[f"python {minor}.*", *depends], build=f"{tag}_0")
        for name, (project, release, depends) in PURE.items():
            stage = work / name
            installed_wheel(uv, f"{project}=={release}", MINORS[0], stage / "site-packages")
            write_package(channel, stage, name=name, version=release, depends=["python >=3.8", *depends], build="pyhd_0", noarch="python")
        small_packages(channel, work)
    index(channel)


def index(channel: Path) -> None:
    """Writes `repodata.json`, its compressed twin and the shards of every platform's folder."""
    import asyncio

    from rattler.index import index_fs

    asyncio.run(index_fs(channel))


def get(cache: Path) -> Path:
    """The channel's folder, built where it is not there yet; safe for several processes at once."""
    identity = f"{Path(__file__).read_text()}{sorted(map(str, interpreters().values()))}"
    folder = cache / f"channel-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            draft = cache / f"{folder.name}.draft"
            shutil.rmtree(draft, ignore_errors=True)
            build(draft)
            draft.rename(folder)
    return folder


class Served:
    """A channel over loopback HTTP. `faults` maps a regular expression of the path to what to answer instead: a status, or
    a function from the bytes to other bytes; `once` ones are forgotten after their first use. `asked` notes each path."""

    def __init__(self, folder: Path, *, user: str | None = None, password: str | None = None) -> None:
        self.asked: list[str] = []
        self.faults: list[tuple[str, object, bool]] = []
        outer, wanted = self, None
        if user is not None:
            import base64

            wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

        class Handler(http.server.SimpleHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __init__(self, *args):
                super().__init__(*args, directory=str(folder))

            def do_HEAD(self):
                self.answer(False)

            def do_GET(self):
                self.answer(True)

            def answer(self, with_body: bool) -> None:
                outer.asked.append(self.path)
                if wanted and self.headers.get("Authorization") != wanted:
                    return self.reply(401, b"", with_body)
                for fault in list(outer.faults):
                    pattern, action, once = fault
                    if re.search(pattern, self.path):
                        if once:
                            outer.faults.remove(fault)
                        if isinstance(action, int):
                            return self.reply(action, b"", with_body)
                        path = Path(self.translate_path(self.path))
                        return self.reply(200, action(path.read_bytes()), with_body)
                path = Path(self.translate_path(self.path))
                if not path.is_file():
                    return self.reply(404, b"", with_body)
                return self.reply(200, path.read_bytes(), with_body)

            def reply(self, status: int, body: bytes, with_body: bool) -> None:
                self.send_response(status)
                if status == 401:
                    self.send_header("WWW-Authenticate", 'Basic realm="channel"')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if with_body:
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Served:
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


if __name__ == "__main__":
    print(get(Path(sys.argv[1])))
