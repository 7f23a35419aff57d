"""Activation: the calling process sees the packages, and afterwards is as it was."""

import pytest
from conftest import MINOR, NUMPY_2, NUMPY_2_OTHER, SMALL, need_python, write

# numpy >= 2 with native code that cannot be imported twice.
NUMPY = {"name": "np", "python": MINOR, "no_build": True, "deps": [f"numpy=={NUMPY_2}"]}


def test_enter_leave_and_enter_again(script, home):
    code = f"""
    import os, sys
    import envharness as eh
    before = (list(sys.path), sys.executable, sys.prefix, dict(os.environ), list(sys.meta_path), set(sys.modules))
    kept = None
    for _ in range(3):
        with eh.get_context({{**{SMALL!r}, "env_vars": {{"A": "1"}}}}) as ctx:
            assert ctx.activated, ctx.activation
            import six
            from six.moves import urllib
            assert kept in (None, six), "the same object comes back"
            kept = six
            assert six.__version__ == "1.16.0" and six.__file__.startswith(str(ctx.prefix))
            assert sys.executable == str(ctx.python) and os.environ["VIRTUAL_ENV"] == str(ctx.prefix) and os.environ["A"] == "1"
            assert sys.dont_write_bytecode
            import subprocess
            out = subprocess.run([sys.executable, "-c", "import six; print(six.__version__)"], capture_output=True, text=True)
            assert out.stdout == "1.16.0\\n"
        try:
            import six as again
            raise SystemExit("six is still importable")
        except ModuleNotFoundError:
            pass
        assert (list(sys.path), sys.executable, sys.prefix, dict(os.environ), list(sys.meta_path)) == before[:5]
        assert not [name for name in sys.modules if name.split(".")[0] == "six"]
    print("ok")
    """
    assert script(code).ok().out == "ok\n"


@pytest.mark.parametrize("spec", [NUMPY])
def test_native_packages_are_entered_left_and_entered_again_three_times(spec, script, home):
    code = f"""
    import envharness as eh
    for _ in range(3):
        with eh.get_context({spec!r}) as ctx:
            assert ctx.activated, ctx.activation
            import numpy
            assert int(numpy.ones((3, 3)).sum()) == 9 and numpy.linalg.inv(numpy.eye(2)).shape == (2, 2)
    print("ok")
    """
    assert script(code).ok().out == "ok\n"


def test_a_missing_dependency_is_missing_here_too(script, home):
    # pytest is installed in the base environment and not in the spec.
    code = f"""
    import envharness as eh
    with eh.get_context({SMALL!r}) as ctx:
        try:
            import pytest
            raise SystemExit("the base leaked in")
        except ModuleNotFoundError:
            pass
        import json, envharness
    with eh.get_context({SMALL!r}, inherit_base=True) as ctx:
        import pytest, six
    print("ok")
    """
    assert script(code).ok().out == "ok\n"


def test_a_base_module_that_the_prefix_has_too_is_set_aside_and_put_back(script, home):
    code = f"""
    import packaging, packaging.version
    import envharness as eh
    base = packaging
    with eh.get_context({{"name": "p", "python": {MINOR!r}, "deps": ["packaging==20.9"]}}) as ctx:
        assert ctx.activated, ctx.activation
        import packaging
        assert packaging.__version__ == "20.9" and packaging is not base
    import packaging
    assert packaging is base and packaging.__version__ != "20.9"
    print("ok")
    """
    assert script(code).ok().out == "ok\n"


def test_auto_declines_with_a_reason_and_true_raises(script, home):
    need_python("3.9", "3.12")
    other = "3.12" if MINOR != "3.12" else "3.9"
    code = f"""
    import warnings
    import envharness as eh
    other = {{**{SMALL!r}, "python": {other!r}}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with eh.get_context(other) as ctx:
            assert not ctx.activated and "Python {other}" in ctx.activation
            assert ctx.call(divmod, 7, 2) == (3, 1)
    assert len(caught) == 1 and "is not activated" in str(caught[0].message) and caught[0].filename == __file__
    try:
        with eh.get_context(other, activate=True):
            pass
    except eh.ActivationError as error:
        assert "cannot activate" in str(error)
    else:
        raise SystemExit("no error")
    with eh.get_context({SMALL!r}) as one:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with eh.get_context({{**{SMALL!r}, "deps": ["six==1.15.0"]}}) as two:
                assert not two.activated and "another environment is active" in two.activation
                assert two.execute(["python", "-c", "import six; print(six.__version__)"]).logs == "1.15.0\\n"
        import six
        assert six.__version__ == "1.16.0"
        with eh.get_context({SMALL!r}) as nested:
            assert nested.activated
        import six
    print("ok")
    """
    assert script(code).ok().out == "ok\n"


def test_a_native_module_loaded_from_elsewhere_declines(script, home):
    code = f"""
    import warnings
    import envharness as eh
    with eh.get_context({NUMPY!r}) as ctx:
        import numpy
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with eh.get_context({{**{NUMPY!r}, "deps": ["numpy=={NUMPY_2_OTHER}"]}}) as other:
            assert not other.activated and "`numpy`" in other.activation, other.activation
            assert other.execute(["python", "-c", "import numpy; print(numpy.__version__)"]).logs == "{NUMPY_2_OTHER}\\n"
    with eh.get_context({NUMPY!r}) as ctx:
        assert ctx.activated
        import numpy
        assert numpy.__version__ == {NUMPY_2!r}
    print("ok")
    """
    assert script(code).ok().out == "ok\n"


def test_explicit_activation_and_destroying_the_active_one(script, home):
    code = f"""
    import sys
    import envharness as eh
    base = sys.executable
    env_id = eh.create_env({SMALL!r})
    eh.activate(env_id)
    import six
    eh.deactivate()
    assert sys.executable == base and "six" not in sys.modules
    eh.deactivate()
    eh.activate(env_id)
    eh.destroy_env(env_id)
    assert sys.executable == base
    try:
        eh.activate(env_id)
    except eh.ContextError:
        print("ok")
    """
    assert script(code).ok().out == "ok\n"


def test_an_exception_in_the_block_ends_the_activation(script, home):
    code = f"""
    import sys
    import envharness as eh
    before = list(sys.path)
    try:
        with eh.get_context({SMALL!r}) as ctx:
            raise RuntimeError("x")
    except RuntimeError:
        pass
    assert sys.path == before and ctx.state == "idle"
    print("ok")
    """
    assert script(code).ok().out == "ok\n"


def test_a_child_started_by_multiprocessing_goes_on_in_the_environment(script, home):
    code = f"""
    import multiprocessing
    import envharness as eh

    def work(x):
        import six
        return x, six.__version__

    if __name__ == "__main__":
        with eh.get_context({SMALL!r}) as ctx:
            assert ctx.activated
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.apply(work, (1,)))
    """
    assert script(code, timeout=60).ok().out == "(1, '1.16.0')\n"


def test_two_specs_of_one_prefix_stack_and_a_late_close_harms_nobody(script, home):
    code = f"""
    import os
    import envharness as eh
    one, two = ({{**{SMALL!r}, "env_vars": {{"WHO": who}}}} for who in ("one", "two"))
    with eh.get_context(one) as a:
        with eh.get_context(two) as b:
            assert b.activated and os.environ["WHO"] == "two"
        assert os.environ["WHO"] == "one"
        env_id = eh.create_env(one)
        eh.destroy_env(env_id)
        import six
    assert "WHO" not in os.environ
    a = eh.get_context(one).__enter__()
    eh.deactivate()
    b = eh.get_context(two).__enter__()
    a.close()
    assert b.activated and os.environ["WHO"] == "two"
    import six
    b.close()
    print("ok")
    """
    assert script(code).ok().out == "ok\n"


def test_the_callers_own_modules_stay_with_an_editable_dependency(script, home):
    write("proj/pyproject.toml", '[project]\nname = "proj"\nversion = "1"\n[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[tool.setuptools]\npy-modules = ["projmod"]\n')
    write("proj/projmod.py", "X = 1\n")
    write("proj/helper.py", "Y = 2\n")
    code = f"""
    import sys
    import helper
    import envharness as eh
    with eh.get_context({{"name": "e", "python": {MINOR!r}, "deps": ["-e ./proj"]}}) as ctx:
        import projmod
    assert sys.modules["helper"] is helper and "__main__" in sys.modules
    print("ok")
    """
    assert script(code, name="proj/main.py").ok().out == "ok\n"


def test_an_activated_process_writes_no_byte_code_into_a_prefix(script, home, cli):
    code = f"""
    import os, subprocess, sys
    import envharness as eh
    assert not sys.dont_write_bytecode
    with eh.get_context({{**{NUMPY!r}, "compile": "never"}}) as ctx:
        import numpy
        subprocess.run([sys.executable, "-c", "import numpy.linalg"], check=True)
        print(len(list(ctx.prefix.rglob("*.pyc"))))
    """
    assert script(code).ok().out == "0\n"
    cli("store", "verify").ok()
