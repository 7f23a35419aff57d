"""Models, base classes, rubrics and clients of environments."""

from importlib import import_module

from .. import _missing
from . import env_server

_CLIENTS = {
    "EnvClient": ".env_client",
    "SyncEnvClient": ".sync_client",
    "StepResult": ".client_types",
    "GenericEnvClient": ".generic_client",
    "GenericAction": ".generic_client",
    "MCPClientBase": ".mcp_client",
    "MCPToolClient": ".mcp_client",
    "AnthropicClient": ".llm_client",
    "LLMClient": ".llm_client",
    "LLMResponse": ".llm_client",
    "OpenAIClient": ".llm_client",
    "ToolCall": ".llm_client",
    "create_llm_client": ".llm_client",
}

# `from openenv.core import *` takes the names that cost no further package.
__all__ = sorted(set(env_server.__all__))


def __getattr__(name):
    if name in _CLIENTS:
        value = getattr(import_module(_CLIENTS[name], __name__), name)
    elif name in env_server._SOURCES:
        value = getattr(env_server, name)
    else:
        raise _missing.name(__name__, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(_CLIENTS) | set(__all__))
