"""Prints what driving environments costs, each figure beside its peer's in the same run: ``python benches/drive.py``.

A figure is the processor time of one step of one environment in µs: user and system time of the whole process trees
of both ends, as ``/proc`` has it, over the steps of a stretch. A ratio is the peer's over ours: how many times the
steps for the same processor time. Sides take turns within each round; medians of the rounds are printed. Nothing
leaves the loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from drive_rows.run import PEERS, SERVERS, Server, Side, Trouble
from serve import BENCH, raise_open_files, say

BOTH = "client and server"
#: Name: peer, driver, environments, server or target, and whether the server's time counts.
SIDES: dict[str, tuple[str | None, str, int, str, bool]] = {
    "openenv": ("openenv", "openenv", 128, "stock", True),
    "openenv-plain": ("openenv", "openenv", 128, "stock-plain", True),
    "typed": (None, "typed", 128, "own-typed", True),
    "frames": (None, "frames", 64, "own-typed", True),
    "struct": (None, "struct-frames", 64, "own-struct", True),
    "openenv-sync": ("openenv", "openenv-sync", 1, "stock", False),
    "openenv-sync-plain": ("openenv", "openenv-sync", 1, "stock-plain", False),
    "sync": (None, "sync", 1, "stock", False),
    "async8": ("gymnasium", "gym-async", 8, "", True),
    "async64": ("gymnasium", "gym-async", 64, "", True),
    "sync8": ("gymnasium", "gym-sync", 8, "", True),
    "sync64": ("gymnasium", "gym-sync", 64, "", True),
    "gym8": (None, "arrays", 8, "gym:CartPole-v1", True),
    "gym64": (None, "arrays", 64, "gym:CartPole-v1", True),
    "envpool64": ("envpool", "envpool", 64, "", True),
    "envpool1024": ("envpool", "envpool", 1024, "", True),
    "native64": (None, "arrays", 64, "native:cartpole", True),
    "native1024": (None, "arrays", 1024, "native:cartpole", True),
    "unix1024": (None, "arrays", 1024, "own-unix", True),
}
#: Where our workers find out how long steps take. What is measured begins when they know, as it is for a class in use.
LEARNING = ("own-typed", "own-struct", "gym:CartPole-v1")


@dataclass
class Row:
    what: str
    included: str
    peer_name: str
    peer: str
    ours: str
    bar: float | None = None


ECHO = "typed echo, pydantic, one step a frame, 128 sessions, asyncio driver"
CARTPOLE = "CartPole-v1, random actions, reset at the next step"
ROWS = {
    "typed": Row(ECHO, BOTH, "openenv", "openenv", "typed", 8),
    "typed-plain": Row(ECHO + "; openenv told not to compress", BOTH, "openenv", "openenv-plain", "typed"),
    "frames": Row("the same echo; ours: 64 sessions in a frame", BOTH, "openenv", "openenv", "frames", 20),
    "struct": Row("the same echo; ours: msgspec structs, 64 sessions in a frame", BOTH, "openenv", "openenv", "struct", 100),
    "async8": Row(f"{CARTPOLE}, 8; ours: `gym:`, local", "driver and workers", "gymnasium AsyncVectorEnv", "async8", "gym8", 5),
    "async64": Row(f"{CARTPOLE}, 64; ours: `gym:`, local", "driver and workers", "gymnasium AsyncVectorEnv", "async64", "gym64", 10),
    "sync8": Row(f"{CARTPOLE}, 8; ours: `gym:`, local", "driver and workers", "gymnasium SyncVectorEnv", "sync8", "gym8"),
    "sync64": Row(f"{CARTPOLE}, 64; ours: `gym:`, local", "driver and workers", "gymnasium SyncVectorEnv", "sync64", "gym64"),
    "envpool64": Row(f"{CARTPOLE}, 64; ours: `native:`, local", "one process", "EnvPool, 1 thread", "envpool64", "native64", 10),
    "envpool1024": Row(f"{CARTPOLE}, 1,024; ours: `native:`, local", "one process", "EnvPool, 1 thread", "envpool1024", "native1024", 10),
    "unix": Row(f"{CARTPOLE}, 1,024; ours: `native:` over a Unix socket, one frame a step", "EnvPool: its process; ours: " + BOTH, "EnvPool, 1 thread", "envpool1024", "unix1024", 2),
    "client": Row("typed echo, one session, blocking client, both against openenv's server", "client alone", "openenv SyncEnvClient", "openenv-sync", "sync", 3),
    "client-plain": Row("the same; openenv told not to compress", "client alone", "openenv SyncEnvClient", "openenv-sync-plain", "sync"),
}  # fmt: skip
#: Sides that take turns with each other.
GROUPS = [
    ["openenv", "openenv-plain", "typed", "frames", "struct"],
    ["async8", "sync8", "gym8"],
    ["async64", "sync64", "gym64"],
    ["envpool64", "native64"],
    ["envpool1024", "native1024", "unix1024"],
    ["openenv-sync", "openenv-sync-plain", "sync"],
]


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rounds = 1 if options.quick else options.rounds
        self.seconds = 1.0 if options.quick else options.seconds
        self.rows = {name: ROWS[name] for name in options.rows or ROWS}
        self.results: dict[str, list[dict]] = {}
        self.versions: dict[str, str] = {}
        self.troubles: dict[str, str] = {}
        self.servers: dict[str, Server] = {}
        self.learned: set[str] = set()
        self.sides: dict[str, Side] = {}

    def wanted(self, side: str) -> bool:
        peer = SIDES[side][0] is not None
        return self.options.only in (None, "peers" if peer else "ours") and any(side in (row.peer, row.ours) for row in self.rows.values())

    def group(self, names: list[str]) -> None:
        names = [name for name in names if self.wanted(name)]
        try:
            for name in names:
                self.guarded(name, lambda name=name: self.start(name))
            for number in range(self.rounds):
                for name in names if number % 2 == 0 else names[::-1]:
                    if name in self.sides:
                        self.guarded(name, lambda name=name: self.run(name))
        finally:
            self.stop()

    def guarded(self, name: str, action) -> None:
        """A side that fails says why and takes no further part; the others go on."""
        try:
            action()
        except KeyboardInterrupt:
            raise
        except Exception as error:
            said = str(error) if isinstance(error, Trouble) else f"{type(error).__name__}: {error}"
            self.troubles[name] = " ".join(said.split())
            say(f"# {name}: TROUBLE: {self.troubles[name]}")
            if name in self.sides:
                self.sides.pop(name).stop()

    def start(self, name: str) -> None:
        peer, kind, count, place, whole = SIDES[name]
        if peer:
            PEERS[peer]()
        if place in LEARNING and place not in self.learned:
            self.learned.add(place)
            self.begin(name + "-first", peer, kind, 1, place, whole).run(0.5)
            self.sides.pop(name + "-first").stop()
            if place in self.servers:
                self.servers.pop(place).stop()
        self.versions[name] = self.begin(name, peer, kind, count, place, whole).versions

    def begin(self, name: str, peer: str | None, kind: str, count: int, place: str, whole: bool) -> Side:
        pids = "" if whole else "self"
        if place in SERVERS:
            if place not in self.servers:
                self.servers[place] = SERVERS[place](self.options.workers)
            server = self.servers[place]
            place, pids = server.url, str(server.pid) if whole else pids
        self.sides[name] = Side(name, peer, kind, count, place or "-", pids)
        return self.sides[name]

    def run(self, name: str) -> None:
        result = self.sides[name].run(self.seconds)
        result["us"] = result["cpu"] / result["steps"] * 1e6
        result["rate"] = result["steps"] / result["wall"]
        self.results.setdefault(name, []).append(result)
        cores, driver = result["cpu"] / result["wall"], result["own"] / result["steps"] * 1e6
        figures = f"{result['us']:10.3f} us/step, {driver:9.3f} of it the driver's  {result['rate']:12,.0f} steps/s"
        say(f"# {name:<20} {figures}  {cores:.2f} cores  (load {result['load']:.1f})")

    def stop(self) -> None:
        for running in (self.sides, self.servers):
            while running:
                running.popitem()[1].stop()

    # The table

    def median(self, side: str, key: str) -> float | None:
        found = [result[key] for result in self.results.get(side, [])]
        return statistics.median(found) if found else None

    def table(self) -> None:
        say(
            "\n| row | work | included | peer | peer, CPU µs a step | ours, CPU µs a step | peer / ours | bar | peer, steps/s | ours, steps/s |"
        )
        say("|---|---|---|---|---:|---:|---:|---|---:|---:|")
        for name, row in self.rows.items():
            peer, ours = self.median(row.peer, "us"), self.median(row.ours, "us")
            ratio = peer / ours if peer and ours else None
            judged = "" if row.bar is None or ratio is None else " met" if ratio >= row.bar else " MISSED"
            bar = "-" if row.bar is None else f">= {row.bar:g}x{judged}"
            cells = [name, row.what, row.included, self.peer_name(row), figure(peer), figure(ours), f"{ratio:.1f}x" if ratio else "-", bar]
            say(f"| {' | '.join(cells)} | {rate(self.median(row.peer, 'rate'))} | {rate(self.median(row.ours, 'rate'))} |")
        for name, versions in self.versions.items():
            say(f"# {name}: {versions}")
        for name, trouble in self.troubles.items():
            rows = [row for row, it in self.rows.items() if name in (it.peer, it.ours)]
            say(f"# no or fewer figures of {name} (rows {', '.join(rows)}): {trouble}")

    def peer_name(self, row: Row) -> str:
        """With its version, the first that its driver told."""
        return (
            f"{row.peer_name} ({self.versions[row.peer].partition(',')[0]})" if row.peer in self.versions else f"{row.peer_name} (missing)"
        )


def figure(us: float | None) -> str:
    return "-" if us is None else f"{us:,.0f}" if us >= 100 else f"{us:.3g}"


def rate(steps: float | None) -> str:
    return "-" if steps is None else f"{steps:,.0f}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"any of {', '.join(ROWS)}; all without one")
    parser.add_argument("--only", choices=("peers", "ours"), help="drive the peers or ours only")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each figure, medians are printed")
    parser.add_argument("--seconds", type=float, default=3, help="how long steps are counted in each run")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of our echo servers; the reference has one process")
    parser.add_argument("--json", type=Path, help="write the result of every run to this file")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return options


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments()
    BENCH.mkdir(parents=True, exist_ok=True)
    (BENCH / ".gitignore").write_text("*\n")
    bench = Bench(options)
    raise_open_files()
    uname, count = platform.uname(), len(os.sched_getaffinity(0))
    say(
        f"# {count} cores, {uname.system} {uname.release}, Python {platform.python_version()}, {bench.rounds} rounds of {bench.seconds:g} s, load {os.getloadavg()[0]:.1f}"
    )
    try:
        for names in GROUPS:
            bench.group(names)
    finally:
        bench.table()
        if options.json:
            options.json.write_text(
                json.dumps({"versions": bench.versions, "results": bench.results, "troubles": bench.troubles}, indent=1)
            )
    say(f"\nload average at the end: {os.getloadavg()[0]:.1f}; sides with trouble: {len(bench.troubles)}")
    sys.exit(1 if bench.troubles else 0)


if __name__ == "__main__":
    main()
