"""Both halves: an env package is served from an environment rigged for it, and many sessions are driven at once.

Run it with `python serve_and_drive.py [FOLDER] [SESSIONS]`.
"""

import asyncio
import sys
import time
from pathlib import Path

import envharness as eh

GUESS = Path(__file__).parent / "guess"


async def play(url, seed):
    """One episode; how many guesses it took."""
    async with eh.GenericEnvClient(url) as env:
        await env.reset(seed=seed)
        for number in range(1, 11):
            if (await env.step({"number": number})).done:
                return number
    raise RuntimeError("no number was right")


async def play_all(url, sessions):
    """Many episodes at once, over one connection."""
    return await asyncio.gather(*(play(url, seed) for seed in range(sessions)))


def main(folder=GUESS, sessions=100):
    """Serves, drives, says how long each took."""
    began = time.perf_counter()
    with eh.serve(folder) as server:
        for note in server.notes:
            print(note)
        print(f"Serving {Path(folder).name} at {server.url} after {time.perf_counter() - began:.2f} s")
        began = time.perf_counter()
        guesses = asyncio.run(play_all(server.url, sessions))
        print(f"{sessions} sessions played an episode each in {time.perf_counter() - began:.2f} s; guessed {sum(guesses)} times")
    print("Server ended, workers gone.")


if __name__ == "__main__":
    main(*(sys.argv[1:2] or [GUESS]), *(int(n) for n in sys.argv[2:3]))
