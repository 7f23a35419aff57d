"""An environment whose actions are calls of tools."""

from typing import Any, Optional
from uuid import uuid4

from fastmcp import FastMCP
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.types import Action, Observation, State


class ToolboxEnvironment(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        mcp = FastMCP("toolbox")
        self.total = 0

        @mcp.tool
        def add(a: int, b: int = 1) -> int:
            """Add two numbers, and remember the sum."""
            self.total += a + b
            return a + b

        @mcp.tool
        async def total() -> dict:
            """All sums so far."""
            return {"total": self.total}

        @mcp.tool
        def break_it(reason: str) -> str:
            """Fail."""
            raise RuntimeError(reason)

        super().__init__(mcp)
        self._state = State(episode_id=str(uuid4()), step_count=0)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> Observation:
        self.total = seed or 0
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return Observation(done=False, reward=0.0, metadata={"status": "ready", "total": self.total})

    def _step_impl(self, action: Action, timeout_s: Optional[float] = None, **kwargs: Any) -> Observation:
        return Observation(metadata={"error": f"{type(action).__name__} is not a tool call"})

    async def step_async(self, action: Action, timeout_s: Optional[float] = None, **kwargs: Any) -> Observation:
        self._state.step_count += 1
        return await super().step_async(action, timeout_s=timeout_s, **kwargs)

    @property
    def state(self) -> State:
        return self._state
