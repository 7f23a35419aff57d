"""Third-party code, unchanged: cloudpickle 3.1.3 (BSD-3-Clause, see LICENSE-cloudpickle)."""
