"""The channel that the conda tests use is one that another client installs from: py-rattler, the library of pixi."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from channel import MINORS, PLACEHOLDER, Served, interpreters

rattler = pytest.importorskip("rattler")


def solve(channel: str, specs: list[str]):
    return asyncio.run(rattler.solve(sources=[channel], specs=specs, platforms=["linux-64", "noarch"], virtual_packages=rattler.VirtualPackage.detect()))


def install(records, prefix: Path, cache: Path) -> None:
    asyncio.run(rattler.install(records, target_prefix=str(prefix), cache_dir=str(cache), show_progress=False))


def test_another_client_makes_a_working_environment(channel, tmp_path):
    records = solve(channel.as_uri(), [f"python {MINORS[0]}.*", "scikit-learn", "pandas", "gymnasium", "binprefix", "greet"])
    prefix = tmp_path / "prefix"
    install(records, prefix, tmp_path / "cache")
    code = "import sys, sysconfig, ssl, sqlite3, ctypes, numpy, pandas, sklearn, gymnasium; print(sys.prefix, sysconfig.get_config_var('prefix'))"
    done = subprocess.run([prefix / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(prefix)] * 2
    for program in ("binprefix", "textprefix"):
        assert subprocess.run([prefix / "bin" / program], capture_output=True, text=True, check=True).stdout.strip() == str(prefix)
    assert subprocess.run([prefix / "bin/greet"], capture_output=True, text=True, check=True).stdout == "hello from greet\n"
    assert PLACEHOLDER.encode() not in (prefix / "bin/binprefix").read_bytes()


def test_it_is_served_over_http_too(channel, tmp_path):
    with Served(channel) as served:
        records = solve(served.url, ["binprefix"])
        install(records, tmp_path / "prefix", tmp_path / "cache")
        assert (tmp_path / "prefix/bin/binprefix").exists()
        assert any("binprefix" in path for path in served.asked)


def test_it_has_two_pythons():
    missing = [minor for minor in MINORS if minor not in interpreters()]
    if missing:
        pytest.skip(f"Python {', '.join(missing)} with a shared library is not on this machine")
