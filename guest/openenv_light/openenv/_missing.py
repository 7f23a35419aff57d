"""Errors for what the light openenv does not have: they name it and say how to get the real package."""

import opcode
import sys

HINT = "hint: serve it with --reference, which puts the real openenv package back"

_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]


def name(module, missing):
    """The error for a name that a module lacks, to be raised by the module's ``__getattr__``.

    ``from module import name`` swallows the text of an AttributeError, so that statement gets an ImportError; every other
    reader, ``hasattr`` among them, gets an AttributeError.
    """
    text = "envharness's light openenv has no `%s` in `%s`; %s" % (missing, module, HINT)
    try:
        frame = sys._getframe(2)
        importing = frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM
    except (ValueError, IndexError):
        importing = False
    if importing:
        return ImportError(text, name=module)
    return AttributeError(text)


def module(fullname):
    """The error for a submodule that is not here."""
    return ModuleNotFoundError("envharness's light openenv has no module `%s`; %s" % (fullname, HINT), name=fullname)
