"""Specs from files, mappings, keywords and the builder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Union

from envharness._errors import SpecError
from envharness._native import SPEC_SCHEMA, Spec

#: Everything a function takes as a spec: a Spec, a mapping, or the path of a file.
SpecLike = Union[Spec, Mapping[str, Any], str, "os.PathLike[str]"]


def _to_json(mapping: Mapping[str, Any]) -> str:
    def convert(value: Any) -> Any:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, (set, frozenset)):
            return sorted(value)
        if isinstance(value, Iterable):
            return list(value)
        raise SpecError(f"a spec cannot hold a value of type {type(value).__name__}: {value!r}")

    try:
        return json.dumps(dict(mapping), default=convert, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"the mapping cannot be a spec: {error}") from error
    except TypeError as error:
        raise SpecError(f"the mapping cannot be a spec: {error}", hint="keys are strings") from error


def as_spec(spec: SpecLike) -> Spec:
    """Makes a Spec of whatever stands for one.

    Raises:
        SpecError: When it is refused.
    """
    if isinstance(spec, Spec):
        return spec
    if isinstance(spec, Mapping):
        return Spec.from_json(_to_json(spec))
    if isinstance(spec, (str, os.PathLike)):
        return Spec.load(os.fspath(spec))
    raise SpecError(f"a {type(spec).__name__} is no spec", hint="pass a path, a dict, or what load_spec and create_spec return")


def load_spec(path: str | os.PathLike[str]) -> Spec:
    """Reads a spec file: YAML, TOML, JSON, requirements.txt, pyproject.toml, environment.yml, a PEP 723 script, pylock.toml.

    Args:
        path: The file.

    Raises:
        SpecError: Names the file, the line, the key and the nearest right one.
    """
    return Spec.load(os.fspath(path))


def load_spec_from_config(config: Mapping[str, Any]) -> Spec:
    """Takes the spec out of a task's configuration.

    The mapping's ``spec`` entry (a mapping or a path) counts where there is one, else its spec keys; keys of the task
    itself, such as ``script_path``, are left alone.

    Args:
        config: The configuration.

    Raises:
        SpecError: When it holds no spec, or a near miss of a spec key.
    """
    if not isinstance(config, Mapping):
        raise SpecError(f"a task's configuration is a mapping, not a value of type {type(config).__name__}")
    if isinstance(config.get("spec"), Spec):
        return config["spec"]
    return Spec.from_config(_to_json(config))


def create_spec(
    name: str,
    pip_deps: Iterable[str] | None = None,
    *,
    conda_deps: Iterable[str] | None = None,
    python: str | float | None = None,
    **keys: Any,
) -> Spec:
    """Makes a spec from keywords.

    Args:
        name: The name.
        pip_deps: pip packages.
        conda_deps: conda packages.
        python: A Python version or specifier.
        keys: Any further key of a spec, such as ``env_vars`` or ``resources``.

    Raises:
        SpecError: When it is refused.
    """
    mapping: dict[str, Any] = {"name": name, **keys}
    for key, value in (("pip_deps", pip_deps), ("conda_deps", conda_deps), ("python", python)):
        if value is not None:
            mapping[key] = value if isinstance(value, (str, int, float)) else list(value)
    return as_spec(mapping)


def spec_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a spec."""
    return json.loads(SPEC_SCHEMA)


class EnvSpecBuilder:
    """Makes a spec call by call; each returns the builder.

    >>> EnvSpecBuilder().name("rl").python("3.11").pip_package("six==1.16.0").build().pip
    ['six==1.16.0']
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        self._keys: dict[str, Any] = {}

    def _set(self, key: str, value: Any) -> EnvSpecBuilder:
        self._keys[key] = value
        return self

    def _add(self, key: str, value: str) -> EnvSpecBuilder:
        self._keys.setdefault(key, []).append(value)
        return self

    def name(self, name: str) -> EnvSpecBuilder:
        """Sets the name."""
        return self._set("name", name)

    def description(self, text: str) -> EnvSpecBuilder:
        """Sets the description."""
        return self._set("description", text)

    def python(self, version: str) -> EnvSpecBuilder:
        """Sets the Python version or specifier."""
        return self._set("python", version)

    def backend(self, backend: str) -> EnvSpecBuilder:
        """Sets the backend."""
        return self._set("backend", backend)

    def pip_package(self, requirement: str) -> EnvSpecBuilder:
        """Adds a pip package."""
        return self._add("pip", requirement)

    def conda_package(self, requirement: str) -> EnvSpecBuilder:
        """Adds a conda package."""
        return self._add("conda", requirement)

    def conda_channel(self, channel: str) -> EnvSpecBuilder:
        """Adds a conda channel, after those there are."""
        return self._add("channels", channel)

    def env_var(self, name: str, value: str) -> EnvSpecBuilder:
        """Sets an environment variable."""
        self._keys.setdefault("env_vars", {})[name] = value
        return self

    def secret(self, name: str) -> EnvSpecBuilder:
        """Names a variable whose value is taken when a process starts."""
        return self._add("secrets", name)

    def resource(self, name: str, value: Any) -> EnvSpecBuilder:
        """Sets a limit: ``cpus``, ``memory``, ``pids``, ``disk`` or ``gpu``."""
        self._keys.setdefault("resources", {})[name] = value
        return self

    def build(self) -> Spec:
        """Checks and normalises.

        Raises:
            SpecError: When it is refused.
        """
        return as_spec(self._keys)
