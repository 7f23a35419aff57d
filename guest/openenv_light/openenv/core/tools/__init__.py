"""Tools for environments: git repositories and Python code."""

from importlib import import_module

from ... import _missing

_SOURCES = {"GitServerClient": "git_server_client", "RepoInfo": "git_server_client", "PyExecutor": "local_python_executor"}
__all__ = list(_SOURCES)


def __getattr__(name):
    if name not in _SOURCES:
        raise _missing.name(__name__, name)
    value = getattr(import_module("." + _SOURCES[name], __name__), name)
    globals()[name] = value
    return value
