"""What a `setup.py` declares, by its syntax tree; it is never run."""

import ast

#: Longer than anything that a setup declares.
MOST = 100_000
KEYS = ("install_requires", "python_requires", "name")


def literal(node, names):
    """The value of an expression of constants, lists and names of such; `None` where it is more."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        return [value for value in (literal(item, names) for item in node.elts) if value is not None]
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = literal(node.left, names), literal(node.right, names)
        fits = type(left) is type(right) and isinstance(left, (str, list)) and len(left) + len(right) <= MOST
        return left + right if fits else None
    return None


def read(text):
    """Declared requirements and the Python that is asked for."""
    answer = {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return answer
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = literal(node.value, names)
            if value is not None:
                names[node.targets[0].id] = value
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", None)) == "setup":
            for keyword in node.keywords:
                value = literal(keyword.value, names) if keyword.arg in KEYS else None
                if keyword.arg == "install_requires":
                    value = [one for one in ([value] if isinstance(value, str) else value or []) if isinstance(one, str)] or None
                elif not isinstance(value, str):
                    value = None
                if value is not None:
                    answer[keyword.arg] = [value] if keyword.arg == "install_requires" and isinstance(value, str) else value
    return answer
