"""Compiles byte-code for the builder: reads jobs from standard input, a JSON list ``[source, target, hash]`` a line.

Writes PEP 552 unchecked-hash files, and only for a source whose SHA-256 is the one its wheel recorded. A fourth item is
the path that the source will have, when that is another one.
"""

import base64
import hashlib
import importlib.util
import json
import marshal
import os
import sys


def recorded(data):
    """The hash of a source as ``RECORD`` writes it."""
    digest = hashlib.sha256(data).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def compile_one(source, target, wanted, name=None):
    """Compiles one module; one that does not compile (a template, a test of syntax errors) has no byte-code."""
    with open(source, "rb") as file:
        data = file.read()
    if recorded(data) != wanted:
        return
    try:
        code = compile(data, name or source, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    # PEP 552: magic number, flags (1: by hash, not checked at import), hash of the source, code.
    content = importlib.util.MAGIC_NUMBER + b"\1\0\0\0" + importlib.util.source_hash(data) + marshal.dumps(code)
    folder = os.path.dirname(target)
    if folder not in _made:
        os.makedirs(folder, exist_ok=True)
        _made.add(folder)
    with open(target, "wb") as file:
        file.write(content)


#: Folders that are there.
_made = set()


def main():
    """Reads every job before the first is done, so that the writer is never kept waiting."""
    for line in sys.stdin.read().splitlines():
        # A full disk ends the job: what is kept afterwards must be whole.
        compile_one(*json.loads(line))


if __name__ == "__main__":
    main()
