"""``ctx.call``: functions and values cross, versions and types kept."""

import collections
import datetime
import decimal
import math
import os
import pathlib
import uuid

import envharness as eh
import pytest
from callables import OwnError, Point, awaited, fail, fail_plainly, identity, leave, mirrored, scaled, versions
from conftest import MINOR, NUMPY_2, SMALL, need_python, write

@pytest.fixture
def ctx(home):
    with eh.create_context(SMALL) as context:
        yield context


VALUES = [
    None, True, 0, -7, 10**400, 1.5, float("inf"), -0.0, "text \u00e9 \ud800 \0", "\ud83d\ude00", "", b"\x00\xff", bytearray(b"ab"), 2 + 3j,
    [1, [2, (3, {4})]], (), (1,), {1, 2}, frozenset({1}), {}, {"a": {"$": 1}}, {1: 2, (3, 4): 5, None: 6}, {"$": "tuple", "v": [1]},
    range(1, 9, 2), slice(1, None, 2), decimal.Decimal("1.10"), uuid.UUID(int=7), pathlib.PurePosixPath("/a/b"), pathlib.Path("x"),
    datetime.datetime(2026, 11, 30, 1, 2, 3, 4), datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc), datetime.date(2026, 1, 2),
    datetime.time(1, 2, fold=1), datetime.timedelta(-1, 2, 3), collections.OrderedDict(a=1), collections.Counter("aab"), int, len,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{type(v).__name__}-{str(v)[:12]!a}")
def test_values_come_back_equal_in_value_and_type(value, ctx):
    back = ctx.call(identity, value)
    assert back == value and type(back) is type(value)


def test_nan_cycles_and_nested_types(ctx):
    assert math.isnan(ctx.call(identity, float("nan")))
    loop = [1]
    loop.append(loop)
    back = ctx.call(identity, loop)
    assert back[1] is back
    assert [type(item) for item in ctx.call(identity, [(1, 2), {3}, b"4"])] == [tuple, set, bytes]
    assert str(ctx.call(identity, -0.0)) == "-0.0"


def test_functions_of_a_module_travel_with_their_module(ctx):
    assert ctx.call(scaled, 7) == 21
    assert ctx.call(scaled, [1], by=2) == [1, 1]
    assert ctx.call(mirrored, Point(1, 2)) == Point(2, 1)
    assert ctx.call(awaited, 1) == 2
    assert ctx.call(os.path.join, "a", "b") == "a/b"
    assert ctx.call(divmod, 7, 2) == (3, 1)


def test_closures_lambdas_and_methods_travel_by_pickle(ctx):
    offset = 10
    assert ctx.call(lambda x: x + offset, 1) == 11
    assert ctx.call([3, 1, 2].count, 1) == 1


def test_exceptions_come_back_as_they_are_with_the_remote_traceback(ctx):
    with pytest.raises(OwnError, match="why") as caught:
        ctx.call(fail, "why")
    assert "in fail" in str(caught.value.__cause__)
    with pytest.raises(KeyError):
        ctx.call(fail_plainly, "k")
    with pytest.raises(eh.CommandError, match="exit code 9"):
        ctx.call(leave)
    with pytest.raises(eh.RemoteError, match="SystemExit"):
        ctx.call(exit, 3)


def test_what_cannot_travel_is_named(ctx):
    import threading

    with pytest.raises(eh.CallError, match="lock"):
        ctx.call(identity, threading.Lock())


def test_a_function_of_a_package_that_imports_it_travels_with_its_package(ctx, monkeypatch):
    import importlib

    write("pkg/__init__.py", "from .tasks import train\n")
    write("pkg/other.py", "BASE = 40\n")
    write("pkg/tasks.py", "from .other import BASE\n\ndef train(x):\n    return BASE + x\n")
    monkeypatch.syspath_prepend(os.getcwd())
    assert ctx.call(importlib.import_module("pkg").train, 2) == 42


def test_output_of_the_function_streams(ctx, capsys):
    ctx.call(print, "inside")
    assert capsys.readouterr().out == "inside\n"


def test_across_python_versions(home):
    need_python("3.8", "3.13")
    for minor in ("3.8", "3.13"):
        with eh.create_context({"name": "v", "python": minor, "deps": ["six==1.16.0"]}) as ctx:
            assert ctx.call(versions) == minor
            assert ctx.call(scaled, (1, {2})) == (1, {2}) * 3
            with pytest.raises(OwnError):
                ctx.call(fail, "x")
            if minor != MINOR:
                with pytest.raises(eh.CallError, match="cannot cross from Python"):
                    ctx.call(lambda: 1)


def test_arrays_across_numpy_1_and_2_and_across_pythons(script, home):
    need_python("3.8", "3.13")
    code = f"""
    import envharness as eh

    def work(a, scalar, table):
        import numpy
        assert type(a) is numpy.ndarray and type(scalar) is numpy.float32
        return numpy.__version__, a * 2, scalar, table, a.T.flags.f_contiguous

    if __name__ == "__main__":
        with eh.get_context({{"name": "two", "python": {MINOR!r}, "deps": ["numpy=={NUMPY_2}"]}}) as here:
            assert here.activated, here.activation
            import numpy as np
            a = np.arange(6, dtype=">i2").reshape(2, 3)
            table = np.array([(1, 2.5)], dtype=[("x", "i4"), ("y", "f8")])
            for python, numpy in (("3.8", "1.24.3"), ("3.13", "2.1.0")):
                with eh.create_context({{"name": "one", "python": python, "deps": ["numpy==" + numpy]}}) as there:
                    version, doubled, scalar, back, _ = there.call(work, a, np.float32(1.5), table)
                    assert version == numpy
                    assert doubled.dtype == (a * 2).dtype and (doubled == a * 2).all()
                    assert type(scalar) is np.float32 and scalar == np.float32(1.5)
                    assert back.dtype == table.dtype and back == table
                    for odd in (np.zeros((0, 3)), np.asfortranarray(a), np.array(["x", "yy"]), np.array([None, 1]), np.datetime64("2026-01-01")):
                        again = there.call(lambda v: v, odd) if python == {MINOR!r} else odd
                        assert type(again) is type(odd)
        print("ok")
    """
    assert script(code).ok().out == "ok\n"


def test_a_script_without_a_main_guard_sends_the_function_alone(script, home):
    need_python("3.8")
    code = f"""
    import envharness as eh
    print("top")

    def work(x):
        return x + 1

    with eh.create_context({SMALL!r}) as ctx:
        print(ctx.call(work, 1))
    with eh.create_context({{**{SMALL!r}, "python": "3.8"}}) as ctx:
        try:
            ctx.call(work, 1)
        except eh.CallError as error:
            print("__main__" in str(error))
    """
    assert script(code).ok().out == "top\n2\nTrue\n"
