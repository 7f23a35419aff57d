"""The smoke test of an env package, in a context: it loads, makes one instance, and that resets: ``python smoke.py FOLDER APP``."""

import asyncio
import inspect
import os
import sys

# The folder of this file is not what imports should find first.
sys.path[0] = GUEST = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main(folder, app):
    from envharness_guest.serve.errors import Failure, LoadError, text_of
    from envharness_guest.serve.load import load

    sys.path.append(sys.path.pop(0))
    name = os.path.basename(folder)
    packages = {name: folder} if os.path.isfile(os.path.join(folder, "__init__.py")) else {}
    message = {
        "kind": "folder", "target": app, "paths": [folder], "packages": packages, "cwd": folder,
        "light": os.path.join(GUEST, "openenv_light"),
    }  # fmt: skip
    try:
        target, told = load(message)
        if target is None:
            print("the application loads; it has routes of its own")
            return 0
        instance = target.make()
        result = instance.reset()
        if inspect.isawaitable(result):
            asyncio.run(wait(result))
    except (Failure, LoadError) as error:
        import traceback

        traceback.print_exception(type(error), error, error.__traceback__)
        print("{}: {}".format(type(error).__name__, text_of(error)), file=sys.stderr)
        return 1
    print("{} loads and resets".format(told["class"]))
    return 0


async def wait(result):
    return await result


if __name__ == "__main__":
    code = main(os.path.abspath(sys.argv[1]), sys.argv[2])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the environment must not keep the answer waiting.
    os._exit(code)
