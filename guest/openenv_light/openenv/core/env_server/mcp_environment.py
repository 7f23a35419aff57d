"""Environments whose actions are calls to the tools of a FastMCP server."""

import asyncio
import inspect
import os
from abc import abstractmethod
from collections import defaultdict
from contextlib import asynccontextmanager

from ... import _missing
from . import _mcp_threads, _mcp_tools
from .interfaces import Environment
from .mcp_types import (
    RESERVED_TOOL_NAMES,
    CallToolAction,
    CallToolObservation,
    ListToolsAction,
    ListToolsObservation,
    Tool,
    ToolError,
    ToolErrorType,
)
from .types import Observation

#: Seconds that a tool may take in a step without a time-out of its own.
MCP_TOOL_CALL_TIMEOUT = 30.0

#: Modes for which a tool may be registered.
VALID_MODES = {"production", "simulation"}

_UNSET = object()
_JSON_TYPES = {int: "integer", float: "number", bool: "boolean", "int": "integer", "float": "number", "bool": "boolean"}


def get_server_tools(mcp_server):
    """Tool objects of a FastMCP server by name."""
    return {tool.name: tool for tool in _mcp_threads.await_here(_mcp_tools.list_tools(mcp_server))}


class MCPEnvironment(Environment):
    """An environment around a FastMCP server.

    ``ListToolsAction`` and ``CallToolAction`` go to the server's tools, every other action to ``_step_impl``.
    """

    def __init__(self, mcp_server, transform=None):
        """Refuses a server with a tool whose name is the environment's own."""
        super().__init__(transform=transform)
        self._tools = _mcp_tools.Tools(mcp_server)
        self._validate_tool_names(mcp_server)
        self.mcp_server = mcp_server
        self._mcp_client = _UNSET
        self._connection = self._connection_pid = None
        #: Functions and schemas of tools by name and mode; mode None means all.
        self._mode_tools = defaultdict(dict)
        self._mode_tool_schemas = defaultdict(dict)

    @property
    def mcp_client(self):
        """A client of the server for the author's own use; None once the environment is closed."""
        if self._mcp_client is _UNSET:
            self._mcp_client = self._new_client()
        return self._mcp_client

    @mcp_client.setter
    def mcp_client(self, client):
        self._mcp_client = client

    @property
    def supports_code_mode(self):
        """Whether ``execute_code`` may be used."""
        return True

    def _new_client(self):
        from fastmcp import Client

        return Client(self._require_mcp_server())

    def _require_mcp_client(self):
        if self.mcp_client is None:
            raise RuntimeError("MCP client is not available; environment is closed")
        return self.mcp_client

    def _require_mcp_server(self):
        if self.mcp_server is None:
            raise RuntimeError("MCP server is not available; environment is closed")
        return self.mcp_server

    def _open_tools(self):
        """The tools, unless the environment is closed; the text is what peers know."""
        if self.mcp_server is None:
            raise RuntimeError("MCP client is not available; environment is closed")
        if self._tools.server is not self.mcp_server:
            self._tools = _mcp_tools.Tools(self.mcp_server)
        return self._tools

    @asynccontextmanager
    async def mcp_session(self):
        """The connected client, on the running loop; entered again while open, it is the same connection."""
        client = self._require_mcp_client()
        async with client:
            yield client

    def _get_server_tools(self, mcp_server):
        return get_server_tools(mcp_server)

    def _validate_tool_names(self, mcp_server):
        taken = sorted(_mcp_tools.Tools(mcp_server).names() & RESERVED_TOOL_NAMES)
        if taken:
            raise ValueError(
                "MCP tools cannot use reserved names: %s. Reserved names are: %s" % (taken, sorted(RESERVED_TOOL_NAMES))
            )

    def tool(self, mode=None):
        """Decorator that registers a tool, for one mode or for all."""
        if mode is not None and mode not in VALID_MODES:
            raise ValueError("Invalid mode '%s'. Mode must be 'production', 'simulation', or None." % (mode,))

        def register(function):
            name = function.__name__
            if name in RESERVED_TOOL_NAMES:
                raise ValueError(
                    "Tool name '%s' is reserved and cannot be used. Reserved names are: %s"
                    % (name, sorted(RESERVED_TOOL_NAMES))
                )
            self._mode_tools[name][mode] = function
            if mode is None:
                return self._require_mcp_server().tool()(function)
            self._mode_tool_schemas[name][mode] = {
                "name": name,
                "description": function.__doc__ or "",
                "input_schema": _signature_schema(function),
            }
            return function

        return register

    def _mode_function(self, name):
        """The function of a tool registered by mode, and whether the name is registered at all."""
        functions = self._mode_tools.get(name)
        if not functions:
            return None, False
        if None in functions:
            return functions[None], True
        return functions.get(getattr(self, "_mode", None)), True

    def get_callables(self):
        """Functions of the tools by name, as far as the current mode has them."""
        callables = {}
        for name, tool in self._get_server_tools(self.mcp_server).items():
            if callable(getattr(tool, "fn", None)):
                callables[name] = tool.fn
        for name in self._mode_tools:
            function, _ = self._mode_function(name)
            if function is not None and (name not in callables or None not in self._mode_tools[name]):
                callables[name] = function
        return callables

    def execute_code(self, code):
        """Runs Python code with the tools as functions; what it calls ``result`` is the observation's."""
        names = {}
        try:
            exec(code, self.get_callables(), names)
        except SyntaxError as error:
            return Observation(done=False, reward=0.0, metadata={"error": "Syntax error: %s" % error})
        except Exception as error:
            return Observation(done=False, reward=0.0, metadata={"error": str(error)})
        return Observation(done=False, reward=0.0, metadata={"result": names.get("result")})

    def step(self, action, timeout_s=None, **kwargs):
        """Lists tools, calls a tool, or leaves the action to ``_step_impl``."""
        if isinstance(action, ListToolsAction):
            return self._handle_list_tools()
        if isinstance(action, CallToolAction):
            return self._handle_call_tool(action, timeout_s=timeout_s)
        return self._step_impl(action, timeout_s=timeout_s, **kwargs)

    async def step_async(self, action, timeout_s=None, **kwargs):
        """``step`` on the running loop; ``_step_impl`` runs in a thread."""
        if isinstance(action, ListToolsAction):
            return await self._async_handle_list_tools()
        if isinstance(action, CallToolAction):
            return await self._async_handle_call_tool(action, timeout_s=timeout_s)
        return await _mcp_threads.call_async(lambda: self._step_impl(action, timeout_s=timeout_s, **kwargs), None)

    @abstractmethod
    def _step_impl(self, action, timeout_s=None, **kwargs):
        """Takes a step with an action that is no tool action."""

    def close(self):
        """Lets go of the server and its clients; an override calls this one too."""
        connection, self._connection = self._connection, None
        self._mcp_client = None
        self.mcp_server = None
        if connection is not None and self._connection_pid == os.getpid() and not _mcp_threads.on_loop():
            try:
                _mcp_threads.await_here(connection.close(), 5)
            except Exception:
                _mcp_tools.logger.debug("a tool connection did not close", exc_info=True)

    # -- observations ------------------------------------------------------------------------------------------------

    def _handle_list_tools(self):
        try:
            return self._tools_observation(self._list_shown())
        except Exception as error:
            return _no_tools(error)

    async def _async_handle_list_tools(self):
        try:
            return self._tools_observation(await self._list_shown_async())
        except Exception as error:
            return _no_tools(error)

    def _tools_observation(self, shown):
        tools = [_tool_model(tool) for tool in shown if tool.name not in self._mode_tool_schemas]
        for schemas in self._mode_tool_schemas.values():
            schema = schemas.get(None) or schemas.get(getattr(self, "_mode", None))
            if schema is not None:
                tools.append(Tool(**schema))
        return ListToolsObservation(tools=tools)

    def _handle_call_tool(self, action, timeout_s=None):
        timeout = MCP_TOOL_CALL_TIMEOUT if timeout_s is None else timeout_s
        name, arguments = action.tool_name, action.arguments
        function, by_mode = self._mode_function(name)
        try:
            if by_mode:
                return self._mode_observation(name, function, arguments)
            return CallToolObservation(tool_name=name, result=self._call(name, arguments, timeout))
        except asyncio.TimeoutError:
            return _timed_out(name, timeout)
        except Exception as error:
            return _failed(name, error)

    async def _async_handle_call_tool(self, action, timeout_s=None):
        timeout = MCP_TOOL_CALL_TIMEOUT if timeout_s is None else timeout_s
        name, arguments = action.tool_name, action.arguments
        function, by_mode = self._mode_function(name)
        try:
            if by_mode:
                if inspect.iscoroutinefunction(function):
                    return await self._mode_observation_async(name, function, arguments)
                return self._mode_observation(name, function, arguments)
            return CallToolObservation(tool_name=name, result=await self._call_async(name, arguments, timeout))
        except asyncio.TimeoutError:
            return _timed_out(name, timeout)
        except Exception as error:
            return _failed(name, error)

    def _mode_observation(self, name, function, arguments):
        if function is None:
            text = "Tool '%s' not available in %s mode" % (name, getattr(self, "_mode", None))
            return _error(name, ToolErrorType.TOOL_NOT_FOUND, text)
        try:
            if inspect.iscoroutinefunction(function):
                value = _mcp_threads.await_here(function(**arguments))
            else:
                value = function(**arguments)
        except Exception as error:
            return _error(name, ToolErrorType.EXECUTION_ERROR, str(error))
        return _mode_result(name, value)

    async def _mode_observation_async(self, name, function, arguments):
        try:
            value = await function(**arguments)
        except Exception as error:
            return _error(name, ToolErrorType.EXECUTION_ERROR, str(error))
        return _mode_result(name, value)

    # -- tools, for the worker too -----------------------------------------------------------------------------------

    def _mcp_list_tools(self):
        """The tools as ``tools/list`` shows them: JSON-able dicts."""
        return [_mcp_tools.dump_tool(tool) for tool in self._list_shown()]

    async def _mcp_list_tools_async(self):
        """The same on the running loop."""
        return [_mcp_tools.dump_tool(tool) for tool in await self._list_shown_async()]

    def _mcp_call_tool(self, name, arguments=None):
        """The result of a call as ``tools/call`` shows it, or the error whose text the answer carries; no time-out."""
        return _mcp_tools.dump_result(self._call(name, arguments or {}, None))

    async def _mcp_call_tool_async(self, name, arguments=None):
        """The same on the running loop."""
        return _mcp_tools.dump_result(await self._call_async(name, arguments or {}, None))

    def _list_shown(self):
        tools = self._open_tools()
        table = tools.current() or _mcp_threads.await_here(tools.load())
        if table is None:
            return _mcp_threads.await_here(self._connected_list())
        return [entry.shown for entry in table.values()]

    async def _list_shown_async(self):
        table = await self._open_tools().load()
        if table is None:
            async with self.mcp_session() as client:
                return await client.list_tools()
        return [entry.shown for entry in table.values()]

    def _call(self, name, arguments, timeout):
        tools = self._open_tools()
        table = tools.current() or _mcp_threads.await_here(tools.load())
        entry = _entry(table, name)
        if entry is None:
            return _mcp_threads.await_here(self._connected_call(name, arguments), timeout)
        if entry.is_async:
            return _mcp_threads.await_here(entry.run_async(arguments), timeout)
        if timeout is None:
            return entry.run(arguments)
        return _mcp_threads.call(lambda: entry.run(arguments), timeout)

    async def _call_async(self, name, arguments, timeout):
        entry = _entry(await self._open_tools().load(), name)
        if entry is None:
            return await asyncio.wait_for(self._session_call(name, arguments), timeout)
        if entry.is_async:
            return await asyncio.wait_for(entry.run_async(arguments), timeout)
        return await _mcp_threads.call_async(lambda: entry.run(arguments), timeout)

    async def _session_call(self, name, arguments):
        async with self.mcp_session() as client:
            return await client.call_tool(name, arguments)

    async def _connected(self):
        """A client that stays connected on the process's loop."""
        if not _mcp_threads.on_loop():
            return None
        # One that was opened before a fork belongs to the parent's loop.
        if self._connection is None or self._connection_pid != os.getpid():
            self._connection, self._connection_pid = self._new_client(), os.getpid()
        if not self._connection.is_connected():
            await self._connection.__aenter__()
        return self._connection

    async def _connected_call(self, name, arguments):
        client = await self._connected()
        if client is not None:
            return await client.call_tool(name, arguments)
        async with self._new_client() as client:
            return await client.call_tool(name, arguments)

    async def _connected_list(self):
        client = await self._connected()
        if client is not None:
            return await client.list_tools()
        async with self._new_client() as client:
            return await client.list_tools()


def _entry(table, name):
    """A tool to be called without a client, or None; a tool that is not there is an error at once."""
    if table is None:
        return None
    if name not in table:
        from fastmcp.exceptions import ToolError as UnknownToolError

        raise UnknownToolError("Unknown tool: %r" % (name,))
    return table[name] if table[name].direct else None


def _tool_model(tool):
    # The second is FastMCP 3's name; asked of FastMCP 4 it warns.
    schema = getattr(tool, "input_schema", None)
    if schema is None:
        schema = getattr(tool, "inputSchema", None)
    return Tool(name=tool.name, description=tool.description or "", input_schema=schema or {})


def _signature_schema(function):
    """JSON Schema of a function's parameters, as far as their plain types say it."""
    schema = {"type": "object", "properties": {}, "required": []}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = parameter.annotation
        known = _JSON_TYPES.get(kind, "string") if isinstance(kind, (type, str)) else "string"
        schema["properties"][name] = {"type": known}
        if parameter.default is inspect.Parameter.empty:
            schema["required"].append(name)
    return schema


def _mode_result(name, value):
    result = _mcp_tools.call_result(
        content=[_mcp_tools.text_content(str(value))],
        structured_content={"result": value},
        meta=None,
        data=value,
        is_error=False,
    )
    return CallToolObservation(tool_name=name, result=result)


def _no_tools(error):
    return ListToolsObservation(tools=[], metadata={"error": str(error), "error_type": "list_tools_failed"})


def _error(name, kind, text):
    return CallToolObservation(tool_name=name, result=None, error=ToolError(error_type=kind, message=text))


def _timed_out(name, timeout):
    return _error(name, ToolErrorType.TIMEOUT, "Tool '%s' timed out after %s seconds" % (name, timeout))


def _failed(name, error):
    """The kind of a failure is read from its text, as peers know it."""
    text = str(error)
    lower = text.lower()
    if "not found" in lower or "unknown tool" in lower:
        kind = ToolErrorType.TOOL_NOT_FOUND
    elif "invalid" in lower or "argument" in lower:
        kind = ToolErrorType.INVALID_ARGS
    else:
        kind = ToolErrorType.EXECUTION_ERROR
    return _error(name, kind, text)


def __getattr__(name):
    raise _missing.name(__name__, name)
