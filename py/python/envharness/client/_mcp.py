"""A client of environments whose actions are tool calls."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from envharness._errors import ClientError, EnvironmentFailed, InvalidAction
from envharness.client._codec import dumps, loads
from envharness.client._env import GenericEnvClient, SyncEnvClient
from envharness.client._ports import port

#: How fastmcp says, by pydantic, that the arguments of a call do not fit.
_MISFIT = re.compile(r"\d+ validation errors? for call\[")


@dataclass(frozen=True)
class Tool:
    """A tool of an environment.

    Attributes:
        name: Its name.
        description: What it does.
        input_schema: The JSON Schema of its arguments.
    """

    name: str
    description: str = ""
    input_schema: dict[str, Any] = field(default_factory=dict)


class MCPToolClient(GenericEnvClient):
    """Lists and calls the tools of an environment in its session, which reset, step and state share.

    >>> async def ask(url):
    ...     async with MCPToolClient(url) as env:
    ...         await env.reset()
    ...         return await env.call_tool("echo_message", message="hello")
    """

    _tools: list[Tool] | None = None
    _requests: int = 0

    def _request(self, method: str, params: dict[str, Any]) -> bytes:
        self._requests += 1
        return dumps({"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params})

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        if not self._usable(again=False):
            await self.connect()
        request = self._request(method, params)
        answer = await port().ask(self._session, "mcp", "json", request, self._timeout)  # type: ignore[arg-type]
        return _result(loads(answer[1]))

    async def list_tools(self, use_cache: bool = True) -> list[Tool]:
        """The tools; asked for once unless ``use_cache`` is false.

        Raises:
            EnvironmentFailed: The environment has none.
        """
        if self._tools is None or not use_cache:
            self._tools = _tools(await self._call("tools/list", {}))
        return self._tools

    async def call_tool(self, name: str, /, **arguments: Any) -> Any:
        """The value that a tool gives.

        Raises:
            EnvironmentFailed: The tool raised, or there is none of that name.
            InvalidAction: The arguments do not fit.
        """
        return _data(await self._call("tools/call", {"name": name, "arguments": arguments}))

    async def get_tool(self, name: str) -> Tool | None:
        """The tool of a name, or None."""
        return next((tool for tool in await self.list_tools() if tool.name == name), None)

    async def has_tool(self, name: str) -> bool:
        """Whether there is a tool of a name."""
        return await self.get_tool(name) is not None

    def sync(self) -> SyncMCPToolClient:
        """The same client with blocking calls."""
        if self._sync is None:
            self._sync = SyncMCPToolClient(self)
        return self._sync  # type: ignore[return-value]


class SyncMCPToolClient(SyncEnvClient[Any, Any, Any]):
    """The blocking face of a :class:`MCPToolClient`."""

    _client: MCPToolClient

    def _call(self, method: str, params: dict[str, Any]) -> Any:
        client = self._client
        if not client._usable(again=False):
            self.connect()
        request = client._request(method, params)
        answer = client._session.call("mcp", "json", request, client._timeout)  # type: ignore[union-attr]
        return _result(loads(answer[1]))

    def list_tools(self, use_cache: bool = True) -> list[Tool]:
        """As :meth:`MCPToolClient.list_tools`."""
        if self._client._tools is None or not use_cache:
            self._client._tools = _tools(self._call("tools/list", {}))
        return self._client._tools

    def call_tool(self, name: str, /, **arguments: Any) -> Any:
        """As :meth:`MCPToolClient.call_tool`."""
        return _data(self._call("tools/call", {"name": name, "arguments": arguments}))

    def get_tool(self, name: str) -> Tool | None:
        """As :meth:`MCPToolClient.get_tool`."""
        return next((tool for tool in self.list_tools() if tool.name == name), None)

    def has_tool(self, name: str) -> bool:
        """As :meth:`MCPToolClient.has_tool`."""
        return self.get_tool(name) is not None


def _result(reply: Any) -> Any:
    """The result of a JSON-RPC reply."""
    error = reply.get("error") if isinstance(reply, dict) else None
    if error:
        message = str(error.get("message", "the tool failed"))
        failed = (InvalidAction if error.get("code") == -32602 or _MISFIT.match(message) else EnvironmentFailed)(message)
        failed.data = error
        raise failed
    if not isinstance(reply, dict) or "result" not in reply:
        raise ClientError(f"a reply has no result: {json.dumps(reply)[:200]}")
    return reply["result"]


def _tools(result: Any) -> list[Tool]:
    tools = result.get("tools", []) if isinstance(result, dict) else []
    return [
        Tool(tool["name"], tool.get("description") or "", tool.get("inputSchema") or tool.get("input_schema") or {})
        for tool in tools
    ]


def _data(result: Any) -> Any:
    if not isinstance(result, dict):
        return result
    if result.get("is_error") or result.get("isError"):
        content = result.get("content") or [{}]
        message = str(content[0].get("text", "the tool failed"))
        raise (InvalidAction if _MISFIT.match(message) else EnvironmentFailed)(message)
    return result["data"] if "data" in result else result
