"""Compiles byte-code for the builder: reads jobs from standard input, a JSON list ``[source, target, hash]`` a line.

Writes PEP 552 unchecked-hash files, and only for a source whose SHA-256 is the one its wheel recorded.
"""

import base64
import hashlib
import importlib.util
import json
import os
import py_compile
import sys


def recorded(data):
    """The hash of a source as ``RECORD`` writes it."""
    digest = hashlib.sha256(data).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def compile_one(source, target, wanted):
    """Compiles one module; one that does not compile (a template, a test of syntax errors) has no byte-code."""
    with open(source, "rb") as file:
        data = file.read()
    if recorded(data) != wanted:
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    try:
        py_compile.compile(source, cfile=target, doraise=True, invalidation_mode=mode)
    except (py_compile.PyCompileError, SyntaxError, ValueError, RecursionError, UnicodeError):
        return
    # What was compiled is what was hashed: the file holds the source's hash.
    with open(target, "rb") as file:
        header = file.read(16)
    if header[8:16] != importlib.util.source_hash(data):
        os.remove(target)


def main():
    """Reads every job before the first is done, so that the writer is never kept waiting."""
    for line in sys.stdin.read().splitlines():
        source, target, wanted = json.loads(line)
        # A full disk ends the job: what is kept afterwards must be whole.
        compile_one(source, target, wanted)


if __name__ == "__main__":
    main()
