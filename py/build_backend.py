"""Builds the wheel: maturin's, with the Rust command ``envharness`` among its scripts.

Command and extension module come out of one cargo build with one profile, so that nothing is compiled twice.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import maturin

_ROOT = Path(__file__).resolve().parent.parent
_PROFILE = os.environ.get("ENVHARNESS_BUILD_PROFILE", "release")


def _build_command() -> None:
    packages = ["--package", "envharness-py", "--package", "envharness-cli"]
    subprocess.run(["cargo", "build", "--locked", "--profile", _PROFILE, *packages], cwd=_ROOT, check=True)
    metadata = subprocess.run(
        ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"], cwd=_ROOT, check=True, stdout=subprocess.PIPE
    )
    target = Path(json.loads(metadata.stdout)["target_directory"])
    scripts = _ROOT / "py" / "data" / "scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    shutil.copy2(target / _PROFILE / "envharness", scripts / "envharness")


def _settings(config_settings):
    settings = dict(config_settings or {})
    settings.setdefault("build-args", f"--profile {_PROFILE}")
    return settings


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the command, then the wheel (PEP 517)."""
    _build_command()
    return maturin.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the command, then the editable wheel (PEP 660)."""
    _build_command()
    return maturin.build_editable(wheel_directory, _settings(config_settings), metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    """Builds the source archive (PEP 517)."""
    return maturin.build_sdist(sdist_directory, config_settings)


def _data_folder() -> None:
    (_ROOT / "py" / "data" / "scripts").mkdir(parents=True, exist_ok=True)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Writes the metadata (PEP 517)."""
    _data_folder()
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def get_requires_for_build_wheel(config_settings=None):
    """Nothing beside maturin itself: cargo is there or the build cannot be."""
    return []


get_requires_for_build_editable = get_requires_for_build_wheel
get_requires_for_build_sdist = get_requires_for_build_wheel
