"""The old name of ``openenv.core``."""

import sys
import warnings

import openenv.core

warnings.warn("openenv_core is the old name of openenv.core; import from there", DeprecationWarning, stacklevel=2)

sys.modules[__name__] = openenv.core
