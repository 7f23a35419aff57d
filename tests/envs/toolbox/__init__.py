"""Tools over MCP, some async, one that fails."""

from .client import ToolboxEnv

__all__ = ["ToolboxEnv"]
