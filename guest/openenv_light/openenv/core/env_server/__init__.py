"""What an environment's server code imports. Names load their module when first used."""

from importlib import import_module

from ... import _missing

_MODULES = {
    "base_transforms": "CompositeTransform NullTransform",
    "exceptions": "ConcurrencyConfigurationError EnvironmentFactoryError OpenEnvError OwnRoutesError SessionCapacityError "
    "SessionCreationError SessionNotFoundError",
    "http_server": "EnvApp HTTPEnvServer create_app create_fastapi_app",
    "interfaces": "Environment Message ModelTokenizer TaskProvider Transform",
    "mcp_environment": "MCPEnvironment",
    "mcp_types": "CallToolAction CallToolObservation JsonRpcError JsonRpcErrorCode JsonRpcRequest JsonRpcResponse "
    "ListToolsAction ListToolsObservation McpMethod RESERVED_TOOL_NAMES Tool ToolError ToolErrorType WSMCPMessage "
    "WSMCPResponse",
    "serialization": "deserialize_action deserialize_action_with_preprocessing serialize_observation",
    "types": "Action BaseMessage CodeExecResult ConcurrencyConfig EnvironmentMetadata GetTaskRangeRequest GetTaskRequest "
    "HealthResponse HealthStatus ListTasksRequest NumTasksRequest Observation SchemaResponse ServerCapacityStatus "
    "ServerMode SessionInfo State WSCloseMessage WSErrorCode WSErrorResponse WSIncomingMessage WSObservationResponse "
    "WSResetMessage WSStateMessage WSStateResponse WSStepMessage",
    "web_interface": "WebInterfaceManager create_web_interface_app load_environment_metadata",
}
_SOURCES = {name: module for module, names in _MODULES.items() for name in names.split()}

# MCPEnvironment is left out: `import *` would load fastmcp, which most environments do not have.
__all__ = sorted(name for name, module in _SOURCES.items() if module != "mcp_environment")


def __getattr__(name):
    if name not in _SOURCES:
        raise _missing.name(__name__, name)
    value = getattr(import_module("." + _SOURCES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(_SOURCES))
