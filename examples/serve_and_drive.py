"""Both halves: an env package is served from an environment rigged for it, and driven from another.

Run it with `python serve_and_drive.py [FOLDER] [SESSIONS]`.
"""

import sys
import time
from pathlib import Path

import envharness as eh

GUESS = Path(__file__).parent / "guess"


def drive(url, sessions):
    """Plays one episode in each of many sessions at once; returns how many guesses each took."""
    import asyncio
    import json

    from websockets.asyncio.client import connect

    async def play(seed):
        async with connect(url, proxy=None) as socket:

            async def ask(**message):
                await socket.send(json.dumps(message))
                reply = json.loads(await socket.recv())
                if reply["type"] == "error":
                    raise RuntimeError(reply["data"]["message"])
                return reply["data"]

            await ask(type="reset", data={"seed": seed})
            for number in range(1, 11):
                if (await ask(type="step", data={"number": number}))["done"]:
                    return number
            raise RuntimeError("no number was right")

    async def play_all():
        return await asyncio.gather(*(play(seed) for seed in range(sessions)))

    return asyncio.run(play_all())


def main(folder=GUESS, sessions=100):
    """Serves, drives, says how long each took."""
    began = time.perf_counter()
    with eh.serve(folder) as server:
        for note in server.notes:
            print(note)
        print(f"Serving {Path(folder).name} at {server.url} after {time.perf_counter() - began:.2f} s")
        client = eh.create_spec(name="client", pip_deps=["websockets>=15"])
        with eh.create_context(client) as ctx:
            began = time.perf_counter()
            guesses = ctx.call(drive, server.ws_url + "/ws", sessions)
            print(f"{sessions} sessions played an episode each in {time.perf_counter() - began:.2f} s; guessed {sum(guesses)} times")
    print("Server ended, workers gone.")


if __name__ == "__main__":
    main(*(sys.argv[1:2] or [GUESS]), *(int(n) for n in sys.argv[2:3]))
