"""Functions that tests call inside contexts. The module travels as source, so it imports what every context has."""

import os
from dataclasses import dataclass

FACTOR = 3


class OwnError(Exception):
    pass


@dataclass
class Point:
    x: int
    y: int


def scaled(value, by=FACTOR):
    return value * by


def versions():
    import sys

    return "%d.%d" % sys.version_info[:2]


def identity(value):
    return value


def fail(message):
    raise OwnError(message)


def fail_plainly(key):
    return {}[key]


def leave():
    os._exit(9)


def mirrored(point):
    assert isinstance(point, Point)
    return Point(point.y, point.x)


async def awaited(value):
    return value + 1
