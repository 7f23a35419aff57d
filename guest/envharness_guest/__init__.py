"""Code of envharness that runs inside contexts: pure Python 3.8+, without dependencies."""
