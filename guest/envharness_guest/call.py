"""Runs one function call inside a context: ``call.py REQUEST RESULT``."""

import base64
import inspect
import json
import os
import sys
import traceback


def _run(request):
    from envharness_guest import codec, functions

    allow_pickle = request["allow_pickle"]
    pickler = functions.pickler if allow_pickle else None
    try:
        function = functions.load(request["function"])
        args = codec.loads(request["args"], allow_pickle)
        kwargs = codec.loads(request["kwargs"], allow_pickle)
        value = function(*args, **kwargs)
        if inspect.iscoroutine(value):
            import asyncio

            value = asyncio.run(value)
        return {"ok": True, "value": codec.dumps(value, pickler)}
    except BaseException as error:
        described = {
            "ok": False,
            "type": "%s.%s" % (type(error).__module__, type(error).__qualname__),
            "message": str(error),
            "traceback": traceback.format_exc(),
        }
        if pickler is not None:
            try:
                described["pickle"] = base64.b64encode(pickler(error)).decode("ascii")
            except Exception:
                # The text says enough; an exception that holds a socket or a lock cannot travel.
                pass
        return described


def main():
    """Reads the request, runs it, and publishes the result in one step."""
    request_path, result_path = sys.argv[1:3]
    with open(request_path, encoding="ascii") as file:
        request = json.load(file)
    # The script's own folder is first on the path, and nothing of a user's may be shadowed by it.
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[0] = ""
    if here not in sys.path:
        sys.path.append(here)
    sys.argv = [request["function"].get("path", "")]
    result = _run(request)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    temporary = result_path + ".part"
    with open(temporary, "w", encoding="ascii") as file:
        json.dump(result, file)
    os.replace(temporary, result_path)


if __name__ == "__main__":
    main()
