"""The table of ARCHITECTURE.md is true: dependencies point one way, and files keep their size."""

import json
import re
import subprocess

from conftest import ROOT

ALLOWED = {
    "envharness-spec": set(),
    "envharness-store": {"envharness-spec"},
    "envharness-sandbox": {"envharness-spec"},
    "envharness-conda": set(),
    "envharness-engine": set(),
    "envharness-rig": {"envharness-conda", "envharness-engine", "envharness-spec", "envharness-store", "envharness-sandbox"},
    "envharness-image": {"envharness-spec", "envharness-store"},
    "envharness-rigger": {"envharness-rig", "envharness-spec", "envharness-store"},
    "envharness-wire": {"envharness-spec"},
    "envharness-native": {"envharness-spec"},
    "envharness-worker": {"envharness-wire", "envharness-native"},
    "envharness-server": {"envharness-spec", "envharness-wire", "envharness-worker", "envharness-native"},
    "envharness-client": {"envharness-wire", "envharness-native"},
    "envharness-serve": {
        "envharness-spec", "envharness-store", "envharness-rig", "envharness-server", "envharness-worker", "envharness-native",
    },
    "envharness-cli": {
        "envharness-spec", "envharness-store", "envharness-sandbox", "envharness-rig", "envharness-rigger", "envharness-image",
        "envharness-serve", "envharness-server", "envharness-worker",
    },
    "envharness-py": {
        "envharness-spec", "envharness-store", "envharness-rig", "envharness-serve", "envharness-server", "envharness-worker",
        "envharness-cli", "envharness-client", "envharness-wire", "envharness-native", "envharness-rigger",
    },
    "envharness-loadgen": set(),
}


def test_dependencies_point_one_way():
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    packages = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)["packages"]
    own = {package["name"]: {d["name"] for d in package["dependencies"] if d["name"].startswith("envharness-")} for package in packages}
    assert set(own) == set(ALLOWED)
    for name, uses in own.items():
        assert uses <= ALLOWED[name], f"{name} uses {uses - ALLOWED[name]}"


def test_files_keep_their_size_and_unsafe_stays_in_one_crate():
    sources = [p for folder in ("crates", "py/src", "py/python") for p in (ROOT / folder).rglob("*") if p.suffix in (".rs", ".py")]
    assert len(sources) > 50
    for path in sources:
        assert len(path.read_text().splitlines()) <= 800, path
        if path.suffix == ".rs" and "envharness-sandbox" not in path.parts:
            uses = re.findall(r"\bunsafe \{", path.read_text())
            assert len(uses) <= (1 if path.name == "database.rs" else 0), path


def test_the_project_speaks_of_itself_alone():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    home = "/ro" + "ot/"
    for name in files:
        if name.endswith((".rs", ".py", ".md", ".toml", ".sh", ".yaml", ".json", "run", "Makefile")):
            assert home not in (ROOT / name).read_text(errors="replace"), name
