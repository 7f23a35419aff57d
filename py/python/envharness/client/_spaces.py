"""Tensor spaces of a contract: the ones whose values are one array of one shape and type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

_KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
#: The numbers that travel raw.
_NUMBERS = frozenset(
    ("float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
)


class TensorSpace(NamedTuple):
    """The shape and the numpy type of a space's values."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Numbers in one value."""
        return math.prod(self.shape)


def tensor_space(contract: Mapping[str, Any], side: str) -> TensorSpace | None:
    """The tensor space of ``action`` or ``observation``; None where a value is more than one array."""
    schema = contract.get(side) or {}
    space = (schema.get("properties") or {}).get(side, {}).get("x-space") or {}
    kind = space.get("kind")
    if kind not in _KINDS:
        return None
    if kind == "Discrete":
        return TensorSpace("int64", ())
    shape, dtype = space.get("shape"), space.get("dtype", "int8" if kind == "MultiBinary" else "int64")
    if shape is None:
        shape = space.get("n") if kind == "MultiBinary" else _shape_of(space.get("nvec"))
    shape = tuple(shape) if isinstance(shape, (list, tuple)) else (int(shape),)
    return TensorSpace(dtype, shape) if dtype in _NUMBERS else None


def _shape_of(value: Any) -> tuple[int, ...]:
    return (len(value), *_shape_of(value[0])) if isinstance(value, list) and value else ()


def numpy_or_none() -> Any:
    """numpy, where it is installed."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy
