"""Makes the rigger's table of imports and distributions: ``python scripts/rigger_table.py FOLDER... > TABLE``.

A row says which distribution's wheel provides a module. It comes from what wheels themselves hold: the RECORD of each
``*.dist-info`` below the folders (site-packages, unpacked wheels, a cache of uv), and ``top_level.txt`` of ``*.egg-info`` in source
archives that have no wheel. Nothing is fetched and nothing is guessed; install or unpack what the table should know first:

    for name in $(grep -v '^#' crates/envharness-rigger/data/wanted.txt); do
        uv pip install --no-deps --only-binary :all: --target wheels/$name $name
    done
    python scripts/rigger_table.py wheels > crates/envharness-rigger/data/imports.tsv
"""

from __future__ import annotations

import csv
import datetime
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

#: Folders at the top of wheels that nobody means to import.
JUNK = {
    "test", "tests", "testing", "example", "examples", "docs", "doc", "scripts", "bin", "build", "dist", "benchmarks", "benchmark", "src",
    "data", "share", "include", "lib", "tools", "util", "utils", "__pycache__", "demo", "demos", "licenses", "conftest", "setup", "notebooks",
    "cpp", "assets", "changelog", "packaging_tests", "integration_tests", "schemas", "templates", "static", "tutorials", "_pytest_plugin",
}  # fmt: skip
#: Distributions that are another's name, alias or shadow: they provide nothing of their own.
LEFT_OUT = re.compile(r"^(types-|nvidia-|dup[ab]$|localpkg$|mylib$|tinypkg$|gitpkg$|proj$|moonfish$|fastmcp-slim$)")
MODULE = re.compile(r"^([A-Za-z_]\w*)(\.py|\.pyi?|(\.[\w-]+)*\.(so|pyd))$")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def modules(paths: list[tuple[str, ...]]) -> set[str]:
    """Names that can be imported: regular packages and modules, below namespace packages where those are."""
    regular = {path[:-1] for path in paths if path[-1] in ("__init__.py", "__init__.pyi") or path[-1].startswith("__init__.cp")}
    found: set[str] = set()
    for path in paths:
        for depth in range(1, len(path)):
            if path[:depth] in regular:
                found.add(".".join(path[:depth]))
                break
        else:
            file = MODULE.match(path[-1])
            # A module in a folder without `__init__.py` counts for its folder, unless that is a namespace of many.
            if file and len(path) == 1:
                found.add(file[1])
            elif file and len(path) == 2 and path[-1].endswith(".py"):
                found.add(path[0])
    return {name for name in found if all(re.fullmatch(r"[A-Za-z]\w*", part) for part in name.split(".")) and name.split(".")[0] not in JUNK}


def of_record(folder: Path) -> Iterator[tuple[str, str, str]]:
    record, metadata = folder / "RECORD", folder / "METADATA"
    if not record.is_file() or not metadata.is_file():
        return
    head = metadata.read_text(errors="replace").split("\n\n")[0]
    fields = dict(line.split(": ", 1) for line in head.splitlines() if re.match(r"(Name|Version): ", line))
    with record.open(newline="", errors="replace") as file:
        paths = [tuple(row[0].split("/")) for row in csv.reader(file) if row]
    paths = [p for p in paths if not p[0].endswith((".dist-info", ".data")) and p[0] not in ("..", "__pycache__") and "__pycache__" not in p]
    for name in modules(paths):
        yield name, normal(fields["Name"]), fields["Version"].strip()


def of_archive(path: Path) -> Iterator[tuple[str, str, str]]:
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            if member.name.endswith(".egg-info/top_level.txt") and (file := archive.extractfile(member)):
                name, _, version = path.name.removesuffix(".tar.gz").rpartition("-")
                for line in file.read().decode().split():
                    if line.isidentifier() and line not in JUNK:
                        yield line, normal(name), version


def main() -> None:
    rows: dict[tuple[str, str], str] = {}
    for root in map(Path, sys.argv[1:]):
        found = [row for path in root.rglob("*.dist-info") for row in of_record(path)]
        found += [row for path in root.rglob("*.tar.gz") for row in of_archive(path)]
        for module, distribution, version in found:
            if not LEFT_OUT.match(distribution) and not module.startswith("_"):
                rows[module, distribution] = version
    print(f"# Which distribution's wheel provides which module: made by scripts/rigger_table.py on {datetime.date.today()}, not by hand.")
    for (module, distribution), version in sorted(rows.items()):
        print(f"{module}\t{distribution}\t{version}")


if __name__ == "__main__":
    main()
