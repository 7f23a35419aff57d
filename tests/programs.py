"""Real programs for the rigger's tests: single files out of source archives on PyPI, taken alone, without their metadata.

An archive is found by ``uv pip compile --format pylock.toml``, fetched and compared with the hash that the index has for it, and kept in
the tests' download cache.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
from dataclasses import dataclass
from pathlib import Path

UV = Path(sys.executable).parent / "uv"


@dataclass(frozen=True)
class Program:
    """A program, and the check that says it works."""

    archive: str
    path: str
    #: Words after ``--``; `{}` is the program. Empty: the imports are the check.
    check: tuple[str, ...] = ("python", "{}")
    #: What the imports must not have been answered with; what they must.
    distributions: tuple[str, ...] = ()
    #: Further files of the archive that belong to the program.
    beside: tuple[str, ...] = ()
    #: One of those that every run of the tests tries.
    ci: bool = False
    #: The program needs this in its environment to end by itself.
    env: tuple[tuple[str, str], ...] = (("MPLBACKEND", "Agg"), ("SDL_VIDEODRIVER", "dummy"), ("SDL_AUDIODRIVER", "dummy"))

    @property
    def name(self) -> str:
        return f"{self.archive.replace('==', '-')}:{Path(self.path).name}"


def fetch(archive: str, cache: Path) -> Path:
    """The source archive of a pinned release."""
    folder = cache / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{archive.replace('==', '-')}.tar.gz"
    if kept.is_file():
        return kept
    command = [UV, "pip", "compile", "-", "--format", "pylock.toml", "--no-deps", "--no-header", "--quiet", "--python", sys.executable]
    done = subprocess.run(command, input=archive + "\n", capture_output=True, text=True, check=True)
    (package,) = tomllib.loads(done.stdout)["packages"]
    source = package["sdist"]
    with urllib.request.urlopen(source["url"]) as reply:
        data = reply.read()
    assert hashlib.sha256(data).hexdigest() == source["hashes"]["sha256"], archive
    partial = kept.with_suffix(f".{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(kept)
    return kept


def take(program: Program, folder: Path, cache: Path) -> Path:
    """Puts a program into an empty folder; its files keep their times."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {program.path, *program.beside}
    with tarfile.open(fetch(program.archive, cache)) as archive:
        for member in archive.getmembers():
            relative = member.name.split("/", 1)[-1]
            if relative in wanted and (file := archive.extractfile(member)):
                target = folder / Path(relative).name
                target.write_bytes(file.read())
                os.utime(target, (member.mtime, member.mtime))
                wanted.discard(relative)
    assert not wanted, f"{program.archive} has no {wanted}"
    return folder / Path(program.path).name


#: Single files of 2019 to today: numerics, statistics, plotting, learning, evolution, graphs, web, storage, simulation.
PROGRAMS: list[Program] = []


@dataclass(frozen=True)
class Broken:
    """A spec that does not work, and the check that says when it does."""

    name: str
    spec: str
    check: tuple[str, ...]
    #: Whether every run of the tests tries it.
    ci: bool = False


def _python(code: str) -> tuple[str, ...]:
    return ("python", "-c", code)


BROKEN = [
    Broken("dead-pin", "python: '3.11'\ndeps: [numpy==1.26.99]\n", _python("import numpy; assert numpy.__version__.startswith('1.26')")),
    Broken("numpy-2-trap", "python: '3.11'\ndeps: [numpy==2.0.2, pandas==2.0.3]\n", _python("import pandas; pandas.DataFrame([1])"), ci=True),
    Broken("python-too-new", "python: '3.12'\ndeps: [numpy==1.21.6]\n", _python("import numpy")),
    Broken("conflicting-pins", "python: '3.9'\ndeps: [flask==1.1.4, jinja2==3.1.2]\n", _python("import flask")),
    Broken("fallen-below", "python: '3.9'\ndeps: [flask==1.1.4, markupsafe]\n", _python("import flask"), ci=True),
    Broken("name-that-is-gone", "python: '3.11'\ndeps: [scipy]\n", _python("from scipy.integrate import simps; simps([1, 2, 3])")),
    Broken("squatter", "python: '3.11'\ndeps: [sklearn]\n", _python("import sklearn.linear_model")),
    Broken("part-that-is-gone", "python: '3.11'\ndeps: [setuptools]\n", _python("import pkg_resources"), ci=True),
    Broken("python-without-a-module", "python: '3.13'\ndeps: [six==1.16.0]\n", _python("import cgi, six")),
    Broken("extra-not-asked-for", "python: '3.11'\ndeps: [pandas==2.2.3]\n", _python("import pandas; pandas.DataFrame([1]).to_excel('x.xlsx')")),
]
