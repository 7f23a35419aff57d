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
