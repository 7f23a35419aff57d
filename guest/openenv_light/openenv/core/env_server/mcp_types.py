"""Models of tools: JSON-RPC, tool actions and observations."""

import json
from enum import Enum
from typing import Any, Dict, List, Optional, Union

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import Literal

from ... import _missing
from .types import Action, BaseMessage, Observation

#: Names that belong to the environment's own interface.
RESERVED_TOOL_NAMES = frozenset(["reset", "step", "state", "close"])


class JsonRpcErrorCode(int, Enum):
    """Codes of JSON-RPC 2.0."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    SERVER_ERROR = -32000


_MESSAGES = {
    JsonRpcErrorCode.PARSE_ERROR: "Parse error",
    JsonRpcErrorCode.INVALID_REQUEST: "Invalid Request",
    JsonRpcErrorCode.METHOD_NOT_FOUND: "Method not found",
    JsonRpcErrorCode.INVALID_PARAMS: "Invalid params",
    JsonRpcErrorCode.INTERNAL_ERROR: "Internal error",
    JsonRpcErrorCode.SERVER_ERROR: "Server error",
}


class McpMethod(str, Enum):
    """Methods that are answered."""

    TOOLS_LIST = "tools/list"
    TOOLS_CALL = "tools/call"


class JsonRpcError(BaseModel):
    """The error of a JSON-RPC response."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    code: int = Field(description="What kind of error")
    message: str = Field(description="What happened")
    data: Optional[Any] = Field(default=None, description="More about it")

    @classmethod
    def from_code(cls, code, message=None, data=None):
        """The error of a code, with the code's usual text unless another is given."""
        return cls(code=code.value, message=message or _MESSAGES.get(code, "Unknown error"), data=data)


class JsonRpcRequest(BaseModel):
    """A JSON-RPC request; further keys are refused."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    jsonrpc: Literal["2.0"] = Field(description="Always 2.0")
    method: str = Field(description="What is asked")
    params: Dict[str, Any] = Field(default_factory=dict, description="With which arguments")
    id: Optional[Union[str, int]] = Field(default=None, description="Comes back with the answer")


class JsonRpcResponse(BaseModel):
    """A JSON-RPC response; dumped, it holds either a result or an error."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    jsonrpc: Literal["2.0"] = Field(default="2.0", description="Always 2.0")
    result: Optional[Any] = Field(default=None, description="What came of it")
    error: Optional[JsonRpcError] = Field(default=None, description="Why nothing came of it")
    id: Optional[Union[str, int]] = Field(default=None, description="The request's id")

    def model_dump(self, **kwargs):
        """The response as a dict; options of pydantic have no effect."""
        data = {"jsonrpc": self.jsonrpc, "id": self.id}
        if self.error is not None:
            data["error"] = self.error.model_dump()
        else:
            data["result"] = self.result
        return data

    def model_dump_json(self, **kwargs):
        """The response as JSON text."""
        return json.dumps(self.model_dump())

    @classmethod
    def success(cls, result, request_id=None):
        """A response with a result."""
        return cls(result=result, id=request_id)

    @classmethod
    def error_response(cls, code, message=None, data=None, request_id=None):
        """A response with the error of a code."""
        return cls(error=JsonRpcError.from_code(code, message, data), id=request_id)


class Tool(BaseModel):
    """A tool as agents see it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    name: str = Field(description="Its name")
    description: str = Field(description="What it does")
    input_schema: Dict[str, Any] = Field(description="JSON Schema of its arguments")


# The texts of the next two classes, CallToolAction and CallToolObservation are part of recorded `/schema` answers.


class ToolErrorType(str, Enum):
    """Types of errors that can occur during tool execution."""

    EXECUTION_ERROR = "execution_error"
    INVALID_ARGS = "invalid_args"
    TRANSPORT_ERROR = "transport_error"
    TOOL_NOT_FOUND = "tool_not_found"
    TIMEOUT = "timeout"


class ToolError(BaseModel):
    """
    Structured error for tool execution failures.

    This is used for transport/framework errors, NOT for errors returned
    by the tool itself (those go in the result field).
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)

    error_type: ToolErrorType = Field(description="Category of the error")
    message: str = Field(description="Human-readable error message")


class ListToolsAction(Action):
    """Asks which tools there are; holds before the first reset too."""

    type: Literal["list_tools"] = Field(default="list_tools", description="Action type discriminator")


class CallToolAction(Action):
    """
    Call a specific tool via MCP.

    This action triggers MCP's tools/call operation with the
    specified tool name and arguments.
    """

    type: Literal["call_tool"] = Field(default="call_tool", description="Action type discriminator")
    tool_name: str = Field(description="Name of the tool to call")
    arguments: Dict[str, Any] = Field(default_factory=dict, description="Arguments to pass to the tool")


class ListToolsObservation(Observation):
    """The tools that there are."""

    tools: List[Tool] = Field(description="Each with the schema of its arguments")


class CallToolObservation(Observation):
    """
    Response from tool execution.

    Contains the tool's result or an error if the call failed.
    Tool-specific errors (from the tool itself) are included in the result.
    Transport/framework errors use the error field.
    """

    tool_name: str = Field(description="Name of the tool that was called")
    result: Any = Field(default=None, description="Tool-specific result (may include tool errors)")
    error: Optional[ToolError] = Field(default=None, description="Transport/framework error if call failed")


class WSMCPMessage(BaseMessage):
    """Frame with a JSON-RPC request."""

    type: Literal["mcp"] = Field(default="mcp", description="Kind of frame")
    data: Dict[str, Any] = Field(description="The request")


class WSMCPResponse(BaseModel):
    """Frame with a JSON-RPC response."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    type: str = Field(default="mcp", description="Kind of frame")
    data: Dict[str, Any] = Field(description="The response")


def __getattr__(name):
    raise _missing.name(__name__, name)
