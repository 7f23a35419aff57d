"""Reads the sources that are named on standard input and prints what they say: ``python -I -S -B read.py``.

The input is a JSON list of paths; the output is one JSON object. It needs no package and runs nothing of what it reads.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from envharness_guest.rigger import notebook, setupfile, syntax  # noqa: E402

#: A source of more bytes is data.
MOST = 2_000_000


def decode(raw):
    import io
    import tokenize

    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return raw.decode(encoding)
    except (SyntaxError, LookupError, UnicodeDecodeError):
        return raw.decode("latin-1")


def read(path):
    try:
        with open(path, "rb") as file:
            raw = file.read(MOST + 1)
    except OSError as error:
        return {"error": error.strerror or str(error)}
    if len(raw) > MOST:
        return {"error": "is larger than a source is"}
    text, shell, version = decode(raw), [], None
    if path.endswith(".ipynb"):
        try:
            text, shell, version = notebook.read(text)
        except (ValueError, AttributeError, TypeError) as error:
            return {"error": "is no notebook: %s" % error}
    answer = syntax.read(text)
    answer["shell"], answer["version"] = shell, version
    if os.path.basename(path) == "setup.py":
        answer["setup"] = setupfile.read(text)
    return answer


def standard():
    """Names of the standard library, of this version and of those before."""
    names = set(getattr(sys, "stdlib_module_names", ())) or {os.path.splitext(name)[0] for name in os.listdir(os.path.dirname(os.__file__))}
    names |= {module.split(".")[0] for module, name in list(syntax.REMOVED) + list(syntax.ADDED) if name is None}
    return sorted(names | set(sys.builtin_module_names))


def safe(path):
    """As `read`; a file that the reader fails on is left out and stops no other."""
    try:
        answer = read(path)
        json.dumps(answer)
        return answer
    except (Exception, RecursionError, MemoryError) as error:
        return {"error": "cannot be read: %s" % type(error).__name__}


if __name__ == "__main__":
    paths = json.load(sys.stdin)
    answer = json.dumps({"standard": standard(), "files": {path: safe(path) for path in paths}}, ensure_ascii=False)
    # A lone surrogate, which a source may hold, is no text anywhere else.
    sys.stdout.buffer.write(answer.encode("utf-8", "replace"))
