"""OpenEnv's client names over envharness's native core: an OpenEnv training script changes one import.

``from openenv import GenericEnvClient`` becomes ``from envharness.compat.openenv import GenericEnvClient``, and
``openenv.core.env_client`` becomes ``envharness.compat.openenv.core.env_client``. Typed clients, subclasses with
``_step_payload``, ``_parse_result`` and ``_parse_state``, work as they are. The modules are those that answer ``openenv``
inside environment workers: one source for both. They need pydantic, as OpenEnv does; gradio and FastAPI are not imported.

>>> from envharness.compat.openenv import GenericEnvClient
>>> GenericEnvClient(base_url="http://localhost:8000").base_url
'http://localhost:8000'
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from envharness._runtime import rig

#: Submodules are the guest's.
__path__ = [str(Path(rig().guest) / "openenv_light" / "openenv")]

_LAZY = {
    "EnvClient": ".core.env_client",
    "GenericAction": ".core.generic_client",
    "GenericEnvClient": ".core.generic_client",
    "MCPToolClient": ".core.mcp_client",
    "StepResult": ".core.client_types",
    "SyncEnvClient": ".core.sync_client",
}

__all__ = ["EnvClient", "GenericAction", "GenericEnvClient", "MCPToolClient", "StepResult", "SyncEnvClient", "core"]


def __getattr__(name: str) -> Any:
    """Loads what is asked for."""
    if name == "core":
        return import_module(".core", __name__)
    if name not in _LAZY:
        raise AttributeError(f"envharness.compat.openenv has no {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_LAZY[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What can be asked for."""
    return sorted({*globals(), *__all__})
