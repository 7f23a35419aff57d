"""Match specs and versions mean what they mean to py-rattler: the same channel, the same question, the same answer."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from pathlib import Path

import pytest
from channel import SUBDIR, index, write_package
from conftest import write

rattler = pytest.importorskip("rattler")

VERSIONS = ["0.9", "1.0a1", "1.0rc1", "1.0", "1.0.post1", "1.0.1", "1.1dev1", "1.1", "1.2.3", "1.10", "2.0b2", "2.0", "2.0.0.1", "2024.1", "1!0.1"]
BUILDS = ["h0_0", "py311_1"]
#: Versions in every form that conda knows, then builds, brackets, and what is none.
SPECS = [
    "many", "many 1.0", "many=1.0", "many==1.0", "many=1", "many 1.*", "many 1.0.*", "many>=1.0,<1.1", "many >1.0,<2", "many~=1.0", "many~=1.2.0",
    "many !=2.0", "many >=1,!=1.1,<2", "many 1.0|1.1", "many <1|>=1.10,<2", "many (>=1,<1.1)|2.0", "many 1.1dev1", "many <1.1", "many >=1!0", "many ==1!0.1",
    "many * h0_0", "many 1.0 py311_1", "many=1.0=h0*", "many 1.1 *_1", "many[version='>=1,<2']", "many[version='1.0', build='py311*']", "many[build_number=1]",
    "many[build_number='>0', version='<1.1']", "MANY", "many >=2024", "many =2024", "many 2.0b2", "many <2.0", "many <=2.0.0", "many ==2.0.0.0",
    "many >=", "many =>1", "many [version=", "many 1.0 h0_0 extra words", "=1.0", "many 1..0", "many ~1",
]  # fmt: skip


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """A channel of one package in many versions and two builds, and a Python of no content."""
    folder, empty = tmp_path_factory.mktemp("many"), tmp_path_factory.mktemp("empty")
    write(empty / "share/empty", "nothing\n")
    write_package(folder, empty, name="python", version="3.11.7", depends=[])
    for version, (number, build) in itertools.product(VERSIONS, enumerate(BUILDS)):
        write_package(folder, empty, name="many", version=version, depends=[], build=build, build_number=number)
    index(folder)
    return folder


def answer_of_rattler(channel: Path, spec: str) -> str:
    try:
        wanted = rattler.MatchSpec(spec, strict=False)
        records = asyncio.run(rattler.solve(sources=[channel.as_uri()], specs=[wanted, "python"], platforms=[SUBDIR, "noarch"]))
    except Exception:
        return "refused"
    (found,) = [record for record in records if record.name.normalized == "many"]
    return f"{found.version} {found.build}"


def answer_of_ours(cli, channel: Path, spec: str) -> str:
    write("s.json", json.dumps({"name": "s", "python": "3.11", "channels": [channel.as_uri()], "conda": [spec]}))
    Path("s.json.lock").unlink(missing_ok=True)
    done = cli("lock", "s.json")
    assert "panicked" not in done.err
    if done.code:
        return "refused"
    entry = next(part for part in Path("s.json.lock").read_text().split("[[package]]") if 'name = "many"' in part)
    field = lambda key: re.search(rf'^{key} = "(.*)"$', entry, re.M).group(1)  # noqa: E731
    return f"{field('version')} {field('build')}"


@pytest.mark.parametrize("spec", SPECS)
def test_the_same_package_is_taken_or_the_spec_refused(cli, home, many, spec):
    assert answer_of_ours(cli, many, spec) == answer_of_rattler(many, spec)
