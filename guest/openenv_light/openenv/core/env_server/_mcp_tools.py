"""Calls to the tools of a FastMCP server without a client, a transport and an event loop between.

A plain function needs its arguments checked, itself called and its value wrapped. What needs more (middleware, injected
parameters, mounted servers, time-outs of a tool's own) goes through FastMCP's client, as everything does in openenv. Both
give the same results, and the same texts of errors.
"""

import inspect
import logging

from . import _mcp_threads

logger = logging.getLogger("openenv.tools")


def text_content(text):
    """A text block of MCP."""
    try:
        from mcp.types import TextContent
    except ImportError:
        from mcp_types import TextContent
    return TextContent(type="text", text=text)


def call_result(**fields):
    """FastMCP's result of a call."""
    from fastmcp.client.client import CallToolResult

    return CallToolResult(**fields)


def dump_tool(tool):
    """A tool as ``tools/list`` shows it."""
    data = tool.model_dump(mode="json")
    # FastMCP 4 names its fields the Python way; the wire knows the MCP names.
    names = {"input_schema": "inputSchema", "output_schema": "outputSchema"}
    return {names.get(key, key): value for key, value in data.items()}


def dump_result(result):
    """A result as ``tools/call`` shows it."""
    from pydantic_core import to_jsonable_python

    return {
        "content": [block.model_dump(mode="json") for block in result.content],
        "structured_content": to_jsonable_python(result.structured_content, fallback=str),
        "meta": to_jsonable_python(result.meta, fallback=str),
        "data": to_jsonable_python(result.data, fallback=str),
        "is_error": result.is_error,
    }


class Tools:
    """The tools of one server, looked up once and again after each change."""

    def __init__(self, server):
        """Looks at nothing yet: tools may still be added."""
        self.server = server
        self._mark = None
        self._table = None

    def names(self):
        """Names of all tools."""
        local = self._local()
        if local is not None and not self._transforms():
            return {component.name for component in local if hasattr(component, "parameters")}
        return {tool.name for tool in _mcp_threads.await_here(list_tools(self.server))}

    def current(self):
        """The table by name where it is known and still right, else None."""
        if self._table is not None and self._fingerprint() == self._mark:
            return self._table
        return None

    async def load(self):
        """The table by name, or None for a server that only its client understands."""
        table = self.current()
        if table is not None:
            return table
        mark = self._fingerprint()
        if mark is None:
            return None
        tools = await list_tools(self.server)
        table = {tool.name: _Entry(self.server, tool) for tool in tools}
        if len(table) != len(tools):
            # Several versions of a tool under one name: FastMCP knows which one is meant.
            return None
        # The components are held, or an id could come again for another one.
        self._held = self._local()
        self._table, self._mark = table, mark
        return table

    def _local(self):
        """The components of a server that has none but its own, else None."""
        providers = getattr(self.server, "providers", None)
        if not isinstance(providers, (list, tuple)) or len(providers) != 1:
            return None
        components = getattr(providers[0], "_components", None)
        return list(components.values()) if isinstance(components, dict) else None

    def _transforms(self):
        owners = [self.server] + list(getattr(self.server, "providers", ()))
        return sum(len(getattr(owner, "_transforms", ())) for owner in owners)

    def _fingerprint(self):
        components = self._local()
        if components is None or self._transforms() or not _plain_middleware(self.server):
            return None
        return tuple(map(id, components))


async def list_tools(server):
    """The server's tool objects."""
    if hasattr(server, "list_tools"):
        return list(await server.list_tools())
    tools = await server.get_tools()
    return list(tools.values()) if isinstance(tools, dict) else list(tools)


def _plain_middleware(server):
    """Whether nothing of the author's stands between a call and its tool."""
    usual = "fastmcp.server.middleware.dereference"
    return all(type(one).__module__ == usual for one in getattr(server, "middleware", ()))


class _Entry:
    """One tool: how it is shown, and how it is called."""

    def __init__(self, server, tool):
        self.name = tool.name
        self.tool = tool
        self.shown = tool.to_mcp_tool(name=tool.name)
        self.masked = bool(getattr(server, "_mask_error_details", False))
        self.is_async = False
        self.direct = self._prepare(server)

    def _prepare(self, server):
        """Whether the tool is a plain function, and all there is to calling it."""
        tool = self.tool
        if getattr(server, "strict_input_validation", False) or getattr(server, "_strict_input_validation", False):
            return False
        if getattr(tool, "timeout", None) is not None or getattr(tool, "auth", None):
            return False
        if getattr(getattr(tool, "task_config", None), "mode", "forbidden") == "required":
            return False
        try:
            from fastmcp.server.dependencies import without_injected_parameters
            from fastmcp.tools.function_tool import FunctionTool
            from fastmcp.utilities.json_schema_type import json_schema_to_type
            from fastmcp.utilities.types import get_cached_typeadapter
        except ImportError:
            return False
        if type(tool) is not FunctionTool or not hasattr(tool, "convert_result"):
            return False
        if without_injected_parameters(tool.fn) is not tool.fn or _asks_for_context(tool.fn):
            return False
        from pydantic import TypeAdapter

        self.adapter = get_cached_typeadapter(tool.fn)
        self.is_async = inspect.iscoroutinefunction(tool.fn) or inspect.iscoroutinefunction(
            getattr(tool.fn, "__call__", None)  # noqa: B004
        )
        schema = tool.output_schema
        self.wraps = bool(schema and schema.get("x-fastmcp-wrap-result"))
        self.validator = self.reader = None
        if schema:
            from jsonschema.validators import validator_for

            self.validator = validator_for(schema)(schema)
            inner = schema.get("properties", {}).get("result", schema) if self.wraps else schema
            try:
                self.reader = TypeAdapter(json_schema_to_type(inner))
            except Exception:
                # FastMCP's client gives no data for a schema it cannot turn into a type.
                logger.debug("the output schema of tool %r becomes no type", self.name, exc_info=True)
        return True

    def run(self, arguments):
        """Calls a sync tool."""
        try:
            value = self.adapter.validate_python(arguments)
            if inspect.isawaitable(value):
                value = _mcp_threads.await_here(_awaited(value))
            elif inspect.isasyncgen(value):
                value = _mcp_threads.await_here(_gathered(value))
            elif inspect.isgenerator(value):
                value = list(value)
            result = self.tool.convert_result(value)
        except Exception as error:
            raise self._error(error) from error
        return self._result(result)

    async def run_async(self, arguments):
        """Calls a tool that awaits, on the running loop."""
        try:
            value = self.adapter.validate_python(arguments)
            if inspect.isawaitable(value):
                value = await value
            if inspect.isasyncgen(value):
                value = await _gathered(value)
            elif inspect.isgenerator(value):
                value = list(value)
            result = self.tool.convert_result(value)
        except Exception as error:
            raise self._error(error) from error
        return self._result(result)

    def _error(self, error):
        """The error that a client would see."""
        from fastmcp.exceptions import FastMCPError, NotFoundError, ToolError
        from pydantic import ValidationError

        if isinstance(error, NotFoundError):
            return ToolError("Unknown tool: %r" % self.name)
        if isinstance(error, (FastMCPError, ValidationError)):
            return ToolError(str(error))
        logger.warning("tool %r failed", self.name, exc_info=error)
        known = _upstream(error)
        if known is not None:
            return ToolError(known)
        if self.masked:
            return ToolError("Error calling tool %r" % self.name)
        return ToolError("Error calling tool %r: %s" % (self.name, error))

    def _result(self, result):
        from fastmcp.exceptions import ToolError

        structured, meta = result.structured_content, result.meta
        if getattr(result, "is_error", False):
            first = result.content[0] if result.content else None
            raise ToolError(getattr(first, "text", None) or "Tool '%s' returned an error" % self.name)
        data = None
        if self.validator is not None:
            self._check(structured, bool(meta))
        if structured:
            inner = structured
            if self.wraps or ((meta or {}).get("fastmcp") or {}).get("wrap_result"):
                inner = structured.get("result")
            if self.validator is None:
                data = inner
            elif self.reader is not None:
                try:
                    data = self.reader.validate_python(inner)
                except ValueError:
                    logger.warning("the structured content of tool %r is not of its type", self.name, exc_info=True)
        return call_result(content=list(result.content), structured_content=structured, meta=meta, data=data, is_error=False)

    def _check(self, structured, by_client):
        """Holds the structured content against the tool's output schema; server and client say it in their own words."""
        from fastmcp.exceptions import ToolError

        if structured is None:
            if by_client:
                raise RuntimeError("Tool %s has an output schema but did not return structured content" % self.name)
            raise ToolError("Output validation error: outputSchema defined but no structured output returned")
        if self.validator.is_valid(structured):
            return
        from jsonschema.exceptions import best_match

        error = best_match(self.validator.iter_errors(structured))
        if by_client:
            raise RuntimeError("Invalid structured content returned by tool %s: %s" % (self.name, error))
        raise ToolError("Output validation error: %s" % error.message)


async def _awaited(value):
    return await value


async def _gathered(value):
    return [item async for item in value]


_CONTEXT_CALLS = frozenset(["get_context", "get_http_request", "get_http_headers", "get_access_token"])


def _asks_for_context(function):
    """Whether a tool may reach for the request by a call of its own, which only a client's call has."""
    function = inspect.unwrap(getattr(function, "func", function))
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    # A helper of the module may be what asks.
    return not _CONTEXT_CALLS.isdisjoint(function.__globals__) or _names_context(code)


def _names_context(code):
    if not _CONTEXT_CALLS.isdisjoint(code.co_names):
        return True
    return any(_names_context(inner) for inner in code.co_consts if inspect.iscode(inner))


def _upstream(error):
    """FastMCP's words for two faults of a service behind a tool."""
    if type(error).__module__.split(".")[0] != "httpx":
        return None
    import httpx

    if isinstance(error, httpx.HTTPStatusError) and error.response.status_code == 429:
        return "Rate limited by upstream API, please retry later"
    if isinstance(error, httpx.TimeoutException):
        return "Upstream request timed out, please retry"
    return None
