"""Processor time of process trees, and the loop in which a driver answers the bench. Standard library only."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib.metadata
import inspect
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
WARMUP = 0.3


def die_with_parent() -> None:
    """Ends this process when the one that started it is gone, however that went."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def adopt_orphans() -> None:
    """Makes processes whose parents have ended children of this one, so that their time is found."""
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def _stat(pid: int | str) -> list[str] | None:
    try:
        # The name in parentheses may contain anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None


def own_seconds() -> float:
    """User and system time of this process alone."""
    return sum(map(int, _stat("self")[11:13])) / TICK


def tree_seconds(roots: list[int]) -> float:
    """User and system time of these processes, all below them or in their sessions, and all that they have waited for."""
    found = {int(entry): stat for entry in os.listdir("/proc") if entry.isdigit() and (stat := _stat(entry))}
    missing = set(roots) - set(found)
    if missing:
        raise RuntimeError(f"process {min(missing)} has ended")
    members = {pid for pid, stat in found.items() if pid in roots or int(stat[3]) in roots}
    while more := {pid for pid, stat in found.items() if int(stat[1]) in members} - members:
        members |= more
    return sum(sum(map(int, found[pid][11:15])) for pid in members) / TICK


class Meter:
    """CPU and wall time of a stretch; `roots` are the other end's processes, None for this process alone."""

    def __init__(self, roots: list[int] | None) -> None:
        self.roots = None if roots is None else [os.getpid(), *roots]

    def start(self) -> None:
        gc.collect()
        self.cpu, self.own, self.wall = self._cpu(), own_seconds(), time.perf_counter()

    def stop(self, steps: int) -> dict:
        wall, own, cpu = time.perf_counter() - self.wall, own_seconds() - self.own, self._cpu() - self.cpu
        return {"steps": steps, "wall": wall, "cpu": cpu, "own": own, "load": os.getloadavg()[0]}

    def _cpu(self) -> float:
        return own_seconds() if self.roots is None else tree_seconds(self.roots)


class Driver:
    """What a side drives: it opens its environments, steps them for some seconds, and closes them."""

    packages: tuple[str, ...] = ()

    def open(self):
        """Connects and resets, or makes the environments."""

    def run(self, seconds: float):
        """Steps until the seconds are over; the number of steps of single environments."""

    def close(self):
        """Ends the sessions."""

    def note(self) -> str:
        """What the table shall say beside the figure."""
        return ""


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in packages}


def answer(driver: Driver, roots: list[int] | None) -> None:
    """Runs `driver` as the lines on standard input ask: `SECONDS` each; the end of the input ends it."""
    adopt_orphans()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What libraries print is no answer.
    meter = Meter(roots)
    asynchronous = inspect.iscoroutinefunction(driver.run)
    try:
        if asynchronous:
            asyncio.run(_answer_async(driver, meter, out))
        else:
            _answer(driver, meter, out)
    except BaseException as error:
        traceback.print_exc()
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=out)
        out.flush()
        os._exit(1)


def _ready(driver: Driver, out) -> None:
    told = {"ready": True, "versions": versions(driver.packages), "python": sys.version.split()[0], "note": driver.note()}
    print(json.dumps(told), file=out)


def _answer(driver: Driver, meter: Meter, out) -> None:
    driver.open()
    _ready(driver, out)
    for line in sys.stdin:
        driver.run(WARMUP)
        meter.start()
        print(json.dumps(meter.stop(driver.run(float(line)))), file=out)
    driver.close()


async def _answer_async(driver: Driver, meter: Meter, out) -> None:
    await driver.open()
    _ready(driver, out)
    # Read on a thread: the sessions' pings are answered meanwhile.
    while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        await driver.run(WARMUP)
        meter.start()
        print(json.dumps(meter.stop(await driver.run(float(line)))), file=out)
    await driver.close()


def steps_of(call, seconds: float) -> int:
    """How often `call` could be made in these seconds; the clock is read every 8 calls."""
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(8):
            call()
        count += 8
    return count


async def sessions_steps(sessions: list, action, seconds: float) -> int:
    """Every session steps as fast as it can, each in a task, for these seconds."""
    end = time.perf_counter() + seconds

    async def play(session) -> int:
        count = 0
        while time.perf_counter() < end:
            result = await session.step(action)
            count += 1
        echoed(result.observation, action.message)
        return count

    return sum(await asyncio.gather(*map(play, sessions)))


def echoed(observation, message: str) -> None:
    """Complains about an observation that is not the echo."""
    if (observation.echoed_message, observation.message_length) != (message, len(message)):
        raise RuntimeError(f"not the echo: {observation!r}")


def cartpole_actions(count: int):
    """The random actions of 256 steps of `count` environments, the same for every side."""
    import numpy

    return numpy.random.default_rng(7).integers(0, 2, (256, count))
