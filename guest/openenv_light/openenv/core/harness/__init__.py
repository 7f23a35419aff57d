"""Rollouts: sessions with tools, and loops that drive them.

Of the reference's package this is the part for trainers: sessions, tool results, the loop over a model. Wrapping an agent
that runs inside the environment is not part of it.
"""

from ... import _missing
from .loops import (
    CLIHarnessAdapter,
    HarnessAdapter,
    HarnessRolloutResult,
    HarnessRunLimits,
    MCPHarnessAdapter,
    ModelStep,
    ModelStepResult,
    RolloutEvent,
    SessionMCPBridge,
    ToolTraceEntry,
    build_harness_rollout_func,
)
from .sessions import (
    RESERVED_TOOL_NAMES,
    Message,
    ResourceSession,
    ResourceSessionFactory,
    StepEnvSessionAdapter,
    ToolResult,
    VerifyResult,
)

__all__ = [
    "CLIHarnessAdapter",
    "HarnessAdapter",
    "HarnessRolloutResult",
    "HarnessRunLimits",
    "MCPHarnessAdapter",
    "Message",
    "ModelStep",
    "ModelStepResult",
    "RESERVED_TOOL_NAMES",
    "ResourceSession",
    "ResourceSessionFactory",
    "RolloutEvent",
    "SessionMCPBridge",
    "StepEnvSessionAdapter",
    "ToolResult",
    "ToolTraceEntry",
    "VerifyResult",
    "build_harness_rollout_func",
]


def __getattr__(name):
    raise _missing.name(__name__, name)
