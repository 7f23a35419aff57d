"""The authoring API of openenv 0.10.0, light: env packages import it inside envharness's workers.

It holds what env packages import: models, base classes, rubrics, tool environments, clients. It holds no server: the
``create_app`` family records what it was given, and envharness serves it. A name that is not here is named by the error.
"""

from importlib import import_module

from . import _aliases, _missing

__version__ = "0.10.0"
__all__ = ["core", "GenericEnvClient", "GenericAction", "SyncEnvClient"]

_aliases.install()

_LAZY = {
    "GenericEnvClient": ".core.generic_client",
    "GenericAction": ".core.generic_client",
    "SyncEnvClient": ".core.sync_client",
}


def __getattr__(name):
    if name == "core":
        return import_module(".core", __name__)
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name], __name__), name)
        globals()[name] = value
        return value
    raise _missing.name(__name__, name)


def __dir__():
    return sorted(set(globals()) | set(__all__))
