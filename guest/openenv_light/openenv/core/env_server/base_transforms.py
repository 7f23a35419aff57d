"""Transforms that hold for every environment."""

from ... import _missing
from .interfaces import Transform


class CompositeTransform(Transform):
    """Several transforms, one after the other."""

    def __init__(self, transforms):
        """``transforms`` in the order in which they apply."""
        self.transforms = transforms

    def __call__(self, observation):
        """Passes the observation through all of them."""
        for transform in self.transforms:
            observation = transform(observation)
        return observation


class NullTransform(Transform):
    """Changes nothing."""

    def __call__(self, observation):
        """Gives the observation back."""
        return observation


def __getattr__(name):
    raise _missing.name(__name__, name)
