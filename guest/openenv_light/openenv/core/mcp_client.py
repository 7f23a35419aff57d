"""Clients of environments whose actions are tool calls.

Tools are listed and called over HTTP in a session that reset, step and state then share over a WebSocket.
"""

import asyncio
import json
import urllib.error
import urllib.request
from urllib.parse import urlencode, urlsplit, urlunsplit

from pydantic import ConfigDict

from .. import _missing
from .client_types import StepResult
from .env_client import EnvClient
from .env_server.mcp_types import CallToolAction, CallToolObservation, ListToolsAction, ListToolsObservation, Tool, ToolError
from .env_server.types import Observation, State


class GenericMCPObservation(Observation):
    """An observation with whatever fields the environment gives it."""

    model_config = ConfigDict(extra="allow", validate_assignment=True, arbitrary_types_allowed=True)


def _tool(payload):
    schema = payload.get("input_schema", payload.get("inputSchema", {}))
    return Tool(name=payload.get("name", ""), description=payload.get("description") or "", input_schema=schema)


class MCPClientBase(EnvClient):
    """Lists tools; a subclass says how they are called."""

    def __init__(
        self,
        base_url,
        connect_timeout_s=10.0,
        message_timeout_s=60.0,
        websocket_ping_interval_s=20.0,
        websocket_ping_timeout_s=20.0,
        provider=None,
        mode=None,
        max_message_size_mb=100.0,
        headers=None,
    ):
        """Like ``EnvClient``, in production mode alone."""
        if mode is None:
            mode = "production"
        if mode.lower() != "production":
            raise ValueError(
                "MCPToolClient only supports 'production' mode, got '%s'. Use GenericEnvClient for simulation mode." % mode
            )
        super().__init__(
            base_url=base_url,
            connect_timeout_s=connect_timeout_s,
            message_timeout_s=message_timeout_s,
            max_message_size_mb=max_message_size_mb,
            websocket_ping_interval_s=websocket_ping_interval_s,
            websocket_ping_timeout_s=websocket_ping_timeout_s,
            provider=provider,
            mode=mode,
            headers=headers,
        )
        self.use_production_mode = True
        self._tools_cache = None
        self._production_session_id = None
        self._request_number = 0
        self._opening = None

    def _mcp_url(self):
        parts = urlsplit(self._base_url)
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + "/mcp", "", ""))

    async def _mcp_request(self, method, params=None):
        """The result of a JSON-RPC request; RuntimeError with the error's text."""
        self._request_number += 1
        body = {"jsonrpc": "2.0", "method": method, "params": params or {}, "id": self._request_number}
        data = json.dumps(body).encode("utf-8")
        if __name__.startswith("envharness."):
            from envharness.compat.transport import post

            answer = await post(self._base_url, "/mcp", data, self._headers, self._message_timeout)
        else:
            headers = dict(self._headers or {}, **{"Content-Type": "application/json"})
            request = urllib.request.Request(self._mcp_url(), data, headers)
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(None, _fetch, request, self._message_timeout)
        if not isinstance(answer, dict):
            raise RuntimeError("the reply is no object")
        error = answer.get("error")
        if error is not None:
            raise RuntimeError(error.get("message", "unknown error") if isinstance(error, dict) else str(error))
        return answer.get("result")

    async def _ensure_session(self):
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._production_session_id is None:
                try:
                    result = await self._mcp_request("openenv/session/create")
                except RuntimeError as error:
                    raise RuntimeError("Failed to create MCP session: %s" % error) from error
                if not isinstance(result, dict) or not result.get("session_id"):
                    raise RuntimeError("Failed to create MCP session: missing session_id")
                self._production_session_id = result["session_id"]
        return self._production_session_id

    async def _connect_async(self):
        self._start_provider_if_needed()
        try:
            session_id = await self._ensure_session()
            plain = self._ws_url
            self._ws_url = "%s?%s" % (plain, urlencode({"session_id": session_id}))
            try:
                await super()._connect_async()
            finally:
                self._ws_url = plain
        except BaseException:
            await self._close_async()
            raise
        return self

    async def _close_async(self):
        # The server closes a session only once no socket is on it.
        await self._disconnect_async()
        session_id, self._production_session_id = self._production_session_id, None
        self._opening = None
        if session_id is not None:
            try:
                await self._mcp_request("openenv/session/close", {"session_id": session_id})
            except (OSError, RuntimeError, ValueError):
                # The server may be gone, and the session with it.
                pass
        await super()._close_async()

    async def list_tools(self, use_cache=True):
        """The environment's tools; an empty list where they cannot be had."""
        if use_cache and self._tools_cache is not None:
            return self._tools_cache
        try:
            result = await self._mcp_request("tools/list", {"session_id": await self._ensure_session()})
            self._tools_cache = [_tool(payload) for payload in result["tools"]]
        except (OSError, RuntimeError, ValueError, KeyError, TypeError):
            return []
        return self._tools_cache

    def _step_payload(self, action):
        if isinstance(action, ListToolsAction):
            return {"type": "list_tools"}
        if isinstance(action, CallToolAction):
            return {"type": "call_tool", "tool_name": action.tool_name, "arguments": action.arguments}
        return action.model_dump() if hasattr(action, "model_dump") else {"action": str(action)}

    def _parse_result(self, payload):
        fields = payload.get("observation", {})
        if not isinstance(fields, dict):
            raise RuntimeError("Server error: an observation is no object (code: UNKNOWN)")
        fields = dict(fields)
        common = {
            "done": payload.get("done", False),
            "reward": payload.get("reward"),
            "metadata": payload.get("metadata", fields.get("metadata", {})),
        }
        if "tools" in fields:
            observation = ListToolsObservation(tools=[_tool(tool) for tool in fields["tools"]], **common)
        elif "tool_name" in fields:
            observation = CallToolObservation(
                tool_name=fields["tool_name"],
                result=fields.get("result"),
                error=ToolError(**fields["error"]) if fields.get("error") else None,
                **common
            )
        else:
            observation = GenericMCPObservation(**dict(fields, **common))
        return StepResult(
            observation=observation, reward=common["reward"], done=common["done"], metadata=payload.get("metadata")
        )

    def _parse_state(self, payload):
        return State(episode_id=payload.get("episode_id"), step_count=payload.get("step_count", 0))


class MCPToolClient(MCPClientBase):
    """Calls one tool at a time."""

    async def call_tool(self, name, **kwargs):
        """The tool's value; RuntimeError with the text of its failure."""
        params = {"name": name, "arguments": kwargs, "session_id": await self._ensure_session()}
        try:
            result = await self._mcp_request("tools/call", params)
        except RuntimeError as error:
            raise RuntimeError("Tool '%s' failed: %s" % (name, error)) from error
        return result["data"] if isinstance(result, dict) and "data" in result else result

    async def get_tool(self, name):
        """The tool of that name, or None."""
        for tool in await self.list_tools():
            if tool.name == name:
                return tool
        return None

    async def has_tool(self, name):
        """Whether there is a tool of that name."""
        return await self.get_tool(name) is not None


def _fetch(request, timeout):
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def __getattr__(name):
    raise _missing.name(__name__, name)
