"""Ids for `gymnasium.make`.

gymnasium 1.x has no plugins: it knows the ids when `envharness.gym` is imported, which ``envharness.gym:`` before an id
does by itself. There is no entry point for older ones: every import of gymnasium would import this.
"""

from __future__ import annotations

import os
from typing import Any

#: The environments that need no installation, by id.
NATIVE = {"CartPole-v0": "native:cartpole", "GridWorld-v0": "native:grid_world", "Echo-v0": "native:echo"}

_ENTRY_POINT = "envharness.gym.env:RemoteEnv"
_VECTOR_ENTRY_POINT = "envharness.gym.vector:RemoteVectorEnv"


def register(id: str, target: str | os.PathLike[str] | type, **options: Any) -> None:
    """Registers a target: `gymnasium.make(id)` serves it, and `gymnasium.make_vec(id, num_envs=n)` serves n of it.

    The server runs as long as the environment is open.

    >>> import envharness.gym  # doctest: +SKIP
    >>> envharness.gym.register("mine/Maze-v0", "my_module:Maze", serve={"packages": ["numpy"]})  # doctest: +SKIP

    Args:
        id: As gymnasium has ids: ``[namespace/]name[-vN]``.
        target: An address, or what :func:`envharness.serve` takes.
        options: Further arguments for :class:`RemoteEnv`.
    """
    from gymnasium.envs import registration

    # Whether a remote environment repeats itself is not known here.
    registration.register(
        id=id,
        entry_point=_ENTRY_POINT,
        nondeterministic=True,
        kwargs={"url": target, **options},
        **_vector(registration.EnvSpec),
    )


def plugin() -> None:
    """Registers `envharness/Remote-v0`, which takes ``url=``, and the native environments, where they are not yet."""
    from gymnasium.envs import registration

    if "envharness/Remote-v0" not in registration.registry:
        registration.register(
            id="envharness/Remote-v0", entry_point=_ENTRY_POINT, nondeterministic=True, **_vector(registration.EnvSpec)
        )
    for name, target in NATIVE.items():
        if f"envharness/{name}" not in registration.registry:
            vector = _vector(registration.EnvSpec)
            registration.register(id=f"envharness/{name}", entry_point=_ENTRY_POINT, kwargs={"url": target}, **vector)


def _vector(spec: Any) -> dict[str, str]:
    """Where vectors of it are made, for a gymnasium that asks."""
    return {"vector_entry_point": _VECTOR_ENTRY_POINT} if "vector_entry_point" in spec.__dataclass_fields__ else {}
