"""Old roots of the package: ``openenv_core.*`` and ``core.*`` are the very modules of ``openenv.core.*``.

Two modules of the same source would be two ``Action`` classes, and an instance of one would be no instance of the other.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec

from . import _missing

_TARGET = "openenv.core"


class _AliasLoader:
    """Answers an import with a module that is already there."""

    def __init__(self, target):
        self.target = target
        self.spec = None

    def create_module(self, spec):
        module = import_module(self.target)
        self.spec = module.__spec__
        return module

    def exec_module(self, module):
        # The import system has just put the alias's spec on the shared module; relative imports need the true one.
        module.__spec__ = self.spec


def _alias(fullname, root):
    return ModuleSpec(fullname, _AliasLoader(_TARGET + fullname[len(root):]))


class _First:
    """Submodules of an aliased root; asked before the path, which would load the same files a second time."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname.startswith("openenv_core."):
            return _alias(fullname, "openenv_core")
        if fullname.startswith("core.") and _TARGET in sys.modules and sys.modules.get("core") is sys.modules[_TARGET]:
            return _alias(fullname, "core")
        return None


class _Last:
    """The root ``core`` where nobody else provides it, and the error for submodules that are not here."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname == "core":
            return _alias(fullname, "core")
        # `importlib.util.find_spec` asks without importing, and gets None as for any module that is not there.
        if fullname.startswith("openenv.") and sys._getframe(2).f_code.co_name == "_find_and_load_unlocked":
            raise _missing.module(fullname)
        return None


def install():
    """Makes ``openenv_core`` and ``core`` importable; to be called once a process, again is harmless."""
    if _First not in sys.meta_path:
        sys.meta_path.insert(0, _First)
    # Whatever was added since the last call goes before.
    if _Last in sys.meta_path:
        sys.meta_path.remove(_Last)
    sys.meta_path.append(_Last)
