"""Client of toolbox."""

from openenv.core.mcp_client import MCPToolClient


class ToolboxEnv(MCPToolClient):
    pass
