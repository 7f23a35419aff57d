"""What the rigger asks of a Python: reading a task's sources by syntax tree, and trying imports in a context."""
