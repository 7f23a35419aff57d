"""Tries imports in a context: ``python probe.py < question``; the answer is one JSON line on the descriptor of standard output.

The question is a JSON object: ``modules`` (names to import), ``uses`` (dotted names that must be there). Packages are
imported, the task's own code is not.
"""

import sys

# The folder of this file is not what imports should find first.
del sys.path[0]

import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import traceback  # noqa: E402
import types  # noqa: E402


def failure(kind, name, error):
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {
        "kind": kind,
        "name": name,
        "error": type(error).__name__,
        "message": str(error),
        "missing": getattr(error, "name", None) if isinstance(error, ImportError) else None,
        "traceback": "".join(lines)[-6000:],
    }


def load(name):
    """Imports a module; `SystemExit` and the like of a package are failures, not ends."""
    try:
        importlib.import_module(name)
        return None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a package raises
        return error


def look(name):
    """The error of a dotted name that is not there; `None` where it is, or where nobody can tell."""
    parts = name.split(".")
    value, at = None, 0
    for end in range(len(parts), 0, -1):
        value = sys.modules.get(".".join(parts[:end]))
        if value is not None:
            at = end
            break
    for index in range(at, len(parts)):
        if not isinstance(value, (types.ModuleType, type)) or value is None:
            return None
        try:
            value = getattr(value, parts[index])
        except AttributeError as error:
            inside = ".".join(parts[: index + 1])
            if isinstance(value, types.ModuleType) and load(inside) is None and inside in sys.modules:
                value = sys.modules[inside]
                continue
            # What a class makes up is not to be known by its name.
            return error if isinstance(value, types.ModuleType) or type(value) is type else None
        except BaseException:  # lazy objects that need a running program
            return None
    return None


def main():
    question = json.load(sys.stdin)
    # What packages print while they are imported must not mix with the answer.
    out = os.dup(1)
    os.dup2(2, 1)
    import warnings

    warnings.simplefilter("ignore")
    failures, loaded = [], []
    for name in question["modules"]:
        error = load(name)
        if error is None:
            loaded.append(name)
        else:
            failures.append(failure("module", name, error))
    failed = {f["name"] for f in failures}
    for name in question["uses"]:
        if any(name == f or name.startswith(f + ".") for f in failed):
            continue
        error = look(name)
        if error is not None:
            failures.append(failure("use", name, error))
    text = json.dumps({"loaded": loaded, "failures": failures, "python": sys.version.split()[0]})
    os.write(out, text.encode())
    # Threads of packages must not keep the answer waiting.
    os._exit(0)


if __name__ == "__main__":
    main()
