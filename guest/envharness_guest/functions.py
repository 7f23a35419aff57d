"""How a function travels: as the source of its module where it can, by cloudpickle where it must.

Source crosses Python versions; byte-code, which cloudpickle sends, does not.
"""

import ast
import base64
import importlib
import os
import site
import sys
import sysconfig
import types

from envharness_guest import codec
from envharness_guest._vendor import cloudpickle


class FunctionError(TypeError):
    """A function that cannot travel."""


def minor():
    """Major and minor version of the running Python."""
    return "%d.%d" % sys.version_info[:2]


def pickler(value):
    """Pickles for any Python from 3.8 on, as far as the value allows."""
    return cloudpickle.dumps(value, protocol=codec.PROTOCOL)


def describe(function, other_minor, allow_pickle):
    """Describes a function for a Python ``other_minor``; raises FunctionError with a remedy when it cannot travel."""
    source = _source(function)
    if source is not None:
        return source
    where = "%s.%s" % (getattr(function, "__module__", "?"), getattr(function, "__qualname__", repr(function)))
    if not allow_pickle:
        raise FunctionError("`%s` can travel by pickle only, which this isolation does not allow" % where)
    if other_minor != minor():
        raise FunctionError(
            "`%s` cannot cross from Python %s to %s: it is a closure, or its script has no main guard. Define it at the"
            " top of a module, or put the script's own work under `if __name__ == \"__main__\":`"
            % (where, minor(), other_minor)
        )
    try:
        data = pickler(function)
    except Exception as error:
        raise FunctionError("`%s` cannot be pickled: %s" % (where, error)) from error
    return {"kind": "pickle", "data": base64.b64encode(data).decode("ascii")}


def _source(function):
    name, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not name or not qualname or "<" in qualname or getattr(function, "__self__", None) is not None:
        if not isinstance(function, types.BuiltinFunctionType) or not name:
            return None
    module = sys.modules.get(name)
    if module is None or _find(module, qualname) is not function:
        return None
    path = getattr(module, "__file__", None)
    if path is None or _installed(path):
        return None if name == "__main__" else {"kind": "import", "module": name, "qualname": qualname}
    if not path.endswith(".py") or not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        text = file.read()
    if name == "__main__" and not _guarded(text):
        return None
    package = module.__package__ if name != "__main__" else ""
    root = os.path.dirname(os.path.abspath(path))
    for _ in [part for part in (package or "").split(".") if part]:
        root = os.path.dirname(root)
    return {
        "kind": "source",
        "module": name,
        "qualname": qualname,
        "package": package or "",
        "path": os.path.abspath(path),
        "root": root,
        "source": base64.b64encode(text).decode("ascii"),
    }


def _find(module, qualname):
    found = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _installed(path):
    """Whether a file belongs to the standard library or to an installed package, and so may be imported there too."""
    path = os.path.abspath(path)
    paths = sysconfig.get_paths()
    folders = [paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]]
    folders += getattr(site, "getsitepackages", list)()
    return "site-packages" in path.split(os.sep) or any(path.startswith(folder + os.sep) for folder in folders)


def _guarded(text):
    """Whether running a script under another name starts nothing: it has a main guard, or nothing but definitions."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    harmless = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    guarded = False
    only_definitions = True
    for node in tree.body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare):
            names = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
            guarded = guarded or "__name__" in names
        elif not isinstance(node, harmless) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            only_definitions = False
    return guarded or only_definitions


def load(described):
    """Finds or makes the function inside the context."""
    kind = described["kind"]
    if kind == "pickle":
        return cloudpickle.loads(base64.b64decode(described["data"]))
    if kind == "import":
        return _find(importlib.import_module(described["module"]), described["qualname"])
    if described["root"] not in sys.path:
        sys.path.append(described["root"])
    source = base64.b64decode(described["source"])
    if described["package"]:
        imported = _import_same(described["module"], source)
        if imported is not None:
            sys.modules["__mp_main__"] = imported
            return _find(imported, described["qualname"])
    module = types.ModuleType("__mp_main__")
    module.__file__ = described["path"]
    module.__package__ = described["package"]
    # Values that name the function's own module must find this one.
    sys.modules["__mp_main__"] = module
    sys.modules["__main__" if described["module"] == "__main__" else described["module"]] = module
    code = compile(source, described["path"], "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return _find(module, described["qualname"])


def _import_same(name, source):
    """A module of a package is imported with its package, as relative imports want it, when it is the same there."""
    module = importlib.import_module(name)
    path = getattr(module, "__file__", None)
    if path is None:
        return None
    with open(path, "rb") as file:
        return module if file.read() == source else None
