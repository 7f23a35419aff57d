"""Clients of environment servers: one session, one with tools, or many at once.

>>> import envharness as eh
>>> with eh.serve("native:echo") as server, eh.GenericEnvClient(server.url).sync() as env:
...     _ = env.reset(seed=1)
...     env.step({"message": "hello"}).observation["echoed_message"]
'hello'
"""

from envharness.client._env import EnvClient, GenericEnvClient, SyncEnvClient
from envharness.client._mcp import MCPToolClient, Tool
from envharness.client._result import StepResult
from envharness.client._vector import VectorClient, VectorResult

__all__ = [
    "EnvClient",
    "GenericEnvClient",
    "MCPToolClient",
    "StepResult",
    "SyncEnvClient",
    "Tool",
    "VectorClient",
    "VectorResult",
]
