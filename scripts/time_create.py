"""Prints how long a cached create with a first command takes: ``time_create.py SPEC``."""

import statistics
import sys
import time

import envharness as eh


def main(path, rounds=20):
    """Creates contexts and runs ``true`` in each."""
    spec, times = eh.load_spec(path), []
    for _ in range(rounds):
        start = time.perf_counter()
        with eh.create_context(spec) as ctx:
            ctx.execute(["true"])
            times.append((time.perf_counter() - start) * 1000)
    print(f"a new context and its first command         {statistics.median(times):.1f} ms (median of {rounds})")


if __name__ == "__main__":
    main(sys.argv[1])
