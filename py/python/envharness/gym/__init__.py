"""Served environments as gymnasium has them: `make` gives a `gymnasium.Env`, `make_vec` a `gymnasium.vector.VectorEnv`.

>>> import envharness.gym
>>> env = envharness.gym.make("ws://127.0.0.1:8000")  # doctest: +SKIP
>>> observation, info = env.reset(seed=1)  # doctest: +SKIP

With gymnasium installed, importing this registers the ids of ``envharness/``. Without it, what is here says so when it
is used. gymnasium 1.1 and later; `make` and `register` with 0.29 and 1.0 too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from envharness._errors import NotAvailableError

if TYPE_CHECKING:
    from envharness.gym.env import RemoteEnv as RemoteEnv
    from envharness.gym.env import make as make
    from envharness.gym.registration import register as register
    from envharness.gym.vector import RemoteVectorEnv as RemoteVectorEnv
    from envharness.gym.vector import VectorStepError as VectorStepError
    from envharness.gym.vector import make_vec as make_vec

__all__ = ["RemoteEnv", "RemoteVectorEnv", "VectorStepError", "make", "make_vec", "register"]

_PLACES = {
    "RemoteEnv": "env",
    "RemoteVectorEnv": "vector",
    "VectorStepError": "vector",
    "make": "env",
    "make_vec": "vector",
    "register": "registration",
}

try:
    import gymnasium as _gymnasium  # noqa: F401
except ImportError as error:
    _missing: ImportError | None = error
else:
    _missing = None
    from envharness.gym.registration import plugin as _plugin

    _plugin()


def __getattr__(name: str) -> Any:
    """What is here, loaded when it is asked for.

    Raises:
        NotAvailableError: gymnasium is not installed, or too old for it.
    """
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _missing is not None:
        raise NotAvailableError(
            f"`envharness.gym.{name}` needs gymnasium, which is not installed", hint="pip install gymnasium"
        ) from _missing
    if _PLACES[name] == "vector":
        import gymnasium.vector

        if not hasattr(gymnasium.vector, "AutoresetMode"):
            raise NotAvailableError(
                f"`envharness.gym.{name}` needs gymnasium 1.1, and {gymnasium.__version__} is installed",
                hint="pip install -U gymnasium",
            )
    value = getattr(importlib.import_module(f"envharness.gym.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
