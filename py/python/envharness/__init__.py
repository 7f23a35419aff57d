"""envharness: a declarative spec becomes a locked, isolated environment, things run in it, and environments are served.

>>> import envharness as eh
>>> spec = eh.create_spec(name="demo", pip_deps=["six==1.16.0"])
>>> with eh.get_context(spec) as ctx:  # doctest: +SKIP
...     import six
...     print(ctx.id, six.__version__)

Importing this module loads no third-party module and starts nothing; the first call opens the store.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from envharness._aio import acreate_env, adestroy_env, aexecute, alock
from envharness._api import (
    activate,
    attach,
    compile_spec,
    create_context,
    create_env,
    deactivate,
    destroy_env,
    execute,
    gc,
    get_context,
    inspect,
    list_contexts,
    lock,
    warm,
)
from envharness._context import Context, Process
from envharness._errors import (
    ActivationError,
    CallError,
    ClientError,
    CommandError,
    CommandTimeout,
    ConnectError,
    ContextError,
    ContractMismatch,
    EnvHarnessError,
    EnvHarnessWarning,
    EnvironmentFailed,
    InvalidAction,
    LockError,
    NotAvailableError,
    OutsideError,
    ProtocolError,
    PythonNotFoundError,
    RemoteError,
    RequestTimeout,
    Saturated,
    ServeError,
    SessionLost,
    SpecError,
    TransferError,
)
from envharness._native import Lock, Spec, __version__
from envharness._result import Result
from envharness._rigger import EnvRigger, NotRigged, Rigged
from envharness._serve import Server, serve
from envharness._spec import EnvSpecBuilder, create_spec, load_spec, load_spec_from_config, spec_schema

if TYPE_CHECKING:
    from envharness._local import local
    from envharness.client import (
        EnvClient,
        GenericEnvClient,
        MCPToolClient,
        StepResult,
        SyncEnvClient,
        VectorClient,
        VectorResult,
    )

__all__ = [
    "ActivationError",
    "CallError",
    "ClientError",
    "CommandError",
    "CommandTimeout",
    "ConnectError",
    "Context",
    "ContextError",
    "ContractMismatch",
    "EnvClient",
    "EnvHarnessError",
    "EnvHarnessWarning",
    "EnvRigger",
    "EnvSpecBuilder",
    "EnvironmentFailed",
    "GenericEnvClient",
    "InvalidAction",
    "Lock",
    "LockError",
    "MCPToolClient",
    "NotAvailableError",
    "NotRigged",
    "OutsideError",
    "Process",
    "ProtocolError",
    "PythonNotFoundError",
    "RemoteError",
    "RequestTimeout",
    "Result",
    "Rigged",
    "Saturated",
    "ServeError",
    "Server",
    "SessionLost",
    "Spec",
    "SpecError",
    "StepResult",
    "SyncEnvClient",
    "TransferError",
    "VectorClient",
    "VectorResult",
    "__version__",
    "acreate_env",
    "activate",
    "adestroy_env",
    "aexecute",
    "alock",
    "attach",
    "compile_spec",
    "create_context",
    "create_env",
    "create_spec",
    "deactivate",
    "destroy_env",
    "execute",
    "gc",
    "get_context",
    "inspect",
    "list_contexts",
    "load_spec",
    "load_spec_from_config",
    "local",
    "lock",
    "serve",
    "spec_schema",
    "warm",
]

#: What drives environments needs asyncio, and is loaded when it is first asked for.
_LAZY = {
    "EnvClient": "envharness.client",
    "GenericEnvClient": "envharness.client",
    "MCPToolClient": "envharness.client",
    "StepResult": "envharness.client",
    "SyncEnvClient": "envharness.client",
    "VectorClient": "envharness.client",
    "VectorResult": "envharness.client",
    "client": "envharness.client",
    "compat": "envharness.compat",
    "gym": "envharness.gym",
    "local": "envharness._local",
}


def __getattr__(name: str) -> Any:
    """Loads what is asked for."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'envharness' has no attribute {name!r}")
    loaded = import_module(module)
    value = loaded if module == f"envharness.{name}" else getattr(loaded, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What there is, loaded or not."""
    return sorted({*globals(), *__all__})
