"""What the sources of an env package import, by syntax tree; nothing of them is run.

Prints one JSON object: `imports` (top-level module: where it is first imported), `own_routes` (why the application is more
than `create_app` makes) and `unreadable` (files that do not parse).
"""

import ast
import json
import os
import sys

#: What an application of FastAPI has and `create_app`'s result needs not be asked for.
ROUTES = {
    "add_api_route", "add_api_websocket_route", "add_event_handler", "add_exception_handler", "add_middleware", "add_route",
    "delete", "exception_handler", "get", "head", "include_router", "middleware", "mount", "on_event", "options", "patch",
    "post", "put", "route", "router", "state", "websocket", "websocket_route",
}  # fmt: skip
MAKERS = {"create_app", "create_fastapi_app", "create_web_interface_app"}
SKIPPED = {"__pycache__", "node_modules", "tests", "test", "build", "dist"}


def sources(folder):
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in SKIPPED and not f.endswith(".egg-info"))
        if "pyvenv.cfg" in files:
            folders[:] = []
            continue
        for name in sorted(files):
            if name.endswith(".py"):
                yield os.path.join(place, name)


def imported(tree):
    """Top-level names that importing the module needs; what only its `main` imports is left out."""

    def visit(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and child.name == "main":
                continue
            if isinstance(child, ast.If) and "__main__" in ast.dump(child.test):
                continue
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield alias.name, child.lineno
            elif isinstance(child, ast.ImportFrom) and not child.level and child.module:
                yield child.module, child.lineno
            else:
                yield from visit(child)

    return visit(tree)


def name_of(call):
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", None)


def own_routes(tree):
    """Why the module's application has routes of its own: the first use that says so, and its line."""
    applications = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            maker = name_of(node.value)
            if maker in ("FastAPI", "Starlette"):
                return "it makes a {} of its own".format(maker), node.lineno
            if maker in MAKERS:
                applications.update(t.id for t in node.targets if isinstance(t, ast.Name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in applications and node.attr in ROUTES:
            return "it uses `{}.{}`".format(node.value.id, node.attr), node.lineno
    return None


def main():
    folder, application = sys.argv[1], sys.argv[2]
    told = {"imports": {}, "own_routes": None, "unreadable": []}
    for path in sources(folder):
        where = os.path.relpath(path, folder)
        try:
            with open(path, "rb") as file:
                tree = ast.parse(file.read(), path)
        except (SyntaxError, ValueError) as error:
            told["unreadable"].append("{}: {}".format(where, error))
            continue
        for module, line in imported(tree):
            told["imports"].setdefault(module, "{}:{}".format(where, line))
        if where == application:
            found = own_routes(tree)
            if found:
                told["own_routes"] = "{} ({}:{})".format(found[0], where, found[1])
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
