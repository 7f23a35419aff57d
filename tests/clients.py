"""What the tests of clients share: environments that do as they are told, and doors of other kinds in front of a server."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Union

import pydantic
import pytest
from conftest import write
from serving import END, REPLY, WITH, Server, running, shared_home, start, start_reference

#: An env package of one module that the reference serves too.
MEADOW = '''
"""A meadow: seeds, rewards and ends, and faults to order."""

import os
import random
import time
from pathlib import Path
from typing import Any, Optional

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class MeadowAction(Action):
    do: str = "look"
    n: int = Field(default=0, ge=0)
    gate: str = ""


class MeadowObservation(Observation):
    flowers: int = 0
    note: str = ""
    value: Any = None


class MeadowState(State):
    picked: int = 0


class Meadow(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._random = random.Random(0)
        self._state = MeadowState(episode_id="none", step_count=0)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> MeadowObservation:
        if kwargs.get("broken"):
            raise RuntimeError("no meadow today")
        self._random = random.Random(seed)
        self._state = MeadowState(episode_id=episode_id or "e", step_count=0)
        return MeadowObservation(flowers=self._random.randrange(100), note=str(sorted(kwargs)))

    def step(self, action: MeadowAction, timeout_s: Optional[float] = None, **kwargs: Any) -> MeadowObservation:
        self._state.step_count += 1
        if action.do == "fail":
            raise RuntimeError("a mole was here")
        if action.do == "pid":
            return MeadowObservation(value=os.getpid())
        if action.do == "large":
            return MeadowObservation(note="x" * action.n)
        if action.do == "gate":
            # Says that it has begun, and waits to be let go.
            Path(action.gate + ".began").touch()
            while not Path(action.gate).exists():
                time.sleep(0.005)
            return MeadowObservation(note="late")
        self._state.picked += action.n
        done = self._state.step_count >= 4
        return MeadowObservation(
            flowers=self._random.randrange(100),
            note="{} {}".format(action.do, action.n),
            value={"deep": [1, 2.5, None, "\\u00e4"]},
            reward=self._random.random() if action.n else None,
            done=done,
            metadata={"last": done} if action.n > 1 else {},
        )

    @property
    def state(self) -> MeadowState:
        return self._state


app = create_app(
    Meadow, MeadowAction, MeadowObservation, env_name="meadow", max_concurrent_envs=int(os.getenv("MAX_CONCURRENT_ENVS", "32")),
)
'''

#: Of no framework; what it gives has no place in JSON.
CELLAR = '''
"""A cellar: values that msgpack has and JSON lacks."""

from dataclasses import dataclass, field
from typing import Any

import numpy


@dataclass
class Take:
    kind: str = ""
    given: Any = None


@dataclass
class Seen:
    value: Any = None
    reward: Any = None
    done: bool = False


@dataclass
class Shelf:
    taken: int = 0
    array: Any = None


class Cellar:
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        self._shelf = Shelf()

    def reset(self, seed: int = 0, start: Any = None) -> Seen:
        self._shelf = Shelf()
        return Seen(start)

    def step(self, action: Take) -> Seen:
        self._shelf.taken += 1
        self._shelf.array = numpy.arange(self._shelf.taken, dtype="float32")
        values = {
            "nan": float("nan"),
            "inf": [float("inf"), -float("inf")],
            "bytes": b"\\x00\\xff",
            "array": numpy.arange(6, dtype="int16").reshape(2, 3),
            "big": 2**80,
            "given": action.given,
            "type": type(action.given).__name__,
        }
        return Seen(values[action.kind], reward=float("nan") if action.kind == "nan" else 1.5)

    @property
    def state(self) -> Shelf:
        return self._shelf
'''

#: An episode of the meadow; it ends with the last.
ACTIONS: list[dict[str, Any]] = [{"do": "pick", "n": 1}, {"do": "pick", "n": 2}, {"do": "look"}, {"do": "pick", "n": 3}]


class Seen(pydantic.BaseModel):
    """What the meadow shows, with the fields and the strictness of OpenEnv's base of observations."""

    model_config = pydantic.ConfigDict(extra="forbid", validate_assignment=True, arbitrary_types_allowed=True)
    done: bool = False
    reward: Union[bool, int, float, None] = None
    metadata: Dict[str, Any] = pydantic.Field(default_factory=dict)  # noqa: UP006
    flowers: int = 0
    note: str = ""
    value: Any = None


@pytest.fixture(name="grounds", scope="session")
def grounds_fixture(tmp_path_factory) -> Path:
    """The folder of the environments."""
    folder = tmp_path_factory.mktemp("grounds")
    write(folder / "meadow.py", MEADOW)
    write(folder / "cellar.py", CELLAR)
    return folder


@pytest.fixture(name="meadow", scope="module")
def meadow_fixture(grounds, tmp_path_factory):
    """Our server of the meadow."""
    args = (*WITH, "--max-sessions", "32", "--allowed-hosts", "server.invalid")
    with running(start("meadow:app", *args, home=shared_home(tmp_path_factory), cwd=grounds)) as server:
        yield server


@pytest.fixture(name="stock", scope="module")
def stock_fixture(grounds):
    """The reference's server of the meadow."""
    with running(start_reference("meadow:app", cwd=grounds, env={"MAX_CONCURRENT_ENVS": "32"})) as server:
        yield server


@pytest.fixture(name="cellar", scope="module")
def cellar_fixture(grounds, tmp_path_factory):
    """Our server of the cellar, in the Python of the tests, which has numpy."""
    with running(start("cellar:Cellar", home=shared_home(tmp_path_factory), cwd=grounds)) as server:
        yield server


def until(found: Callable[[], Any], what: str, within: float = REPLY) -> Any:
    """Waits for something; its first true value."""
    deadline = time.monotonic() + within
    while not (value := found()):
        assert time.monotonic() < deadline, f"{what}: not within {within} s"
        time.sleep(0.01)
    return value


def sessions_of(server: Server) -> int:
    return server.get("/ready").json()["active_sessions"]


def connections_of(server: Server) -> int:
    """The open connections but for the one that asks."""
    text = server.get("/metrics").text
    return sum(int(float(line.split()[-1])) for line in text.splitlines() if line.startswith("envharness_connections")) - 1


class Loop:
    """An event loop in a thread, for what stands between a client and a server."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.servers: list[asyncio.Server] = []
        self.tasks: set[asyncio.Task] = set()
        self.writers: set[asyncio.StreamWriter] = set()
        self.thread.start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(REPLY)

    def listen(self, handler: Any, **options: Any) -> int:
        """Runs a handler for each connection; the port."""

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Kept from the first moment: a handler that is cancelled before it began closes nothing.
            self.writers.add(writer)
            task = self.loop.create_task(handler(reader, writer))
            self.tasks.add(task)
            task.add_done_callback(lambda task: (self.tasks.discard(task), task.cancelled() or task.exception()))

        self.servers.append(self.run(asyncio.start_server(accept, "127.0.0.1", 0, **options)))
        return self.servers[-1].sockets[0].getsockname()[1]

    def drop_all(self) -> None:
        """Breaks the connections that are there now."""
        self.run(self._drop_all())

    async def _drop_all(self) -> None:
        tasks = [task for task in self.tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()
        # Transports close their sockets in the next turn.
        await asyncio.sleep(0)

    async def _end(self) -> None:
        for server in self.servers:
            server.close()
        await asyncio.sleep(0)
        await self._drop_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._drop_all()

    def close(self) -> None:
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(END)
        self.loop.close()


@pytest.fixture(name="between")
def between_fixture():
    """Runs handlers of connections: ``between(handler, **options)`` is the port; ``between.call`` calls in their thread."""
    loop = Loop()

    def listen(handler: Any, **options: Any) -> int:
        return loop.listen(handler, **options)

    listen.call = loop.loop.call_soon_threadsafe
    yield listen
    loop.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
    writer.close()


async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Passes everything on to a port of this machine, and back."""
    try:
        there = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))
    finally:
        writer.close()
        there[1].close()


def passing(port: int) -> Any:
    """A handler that passes everything on."""
    return lambda reader, writer: join(reader, writer, port)


def proxy(names: dict[str, int], heard: list[dict[str, str]]) -> Any:
    """A handler that is a proxy for CONNECT; it alone knows where the names are."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        heard.append({"target": target, **{name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}})
        host, _, port = target.rpartition(":")
        if method != "CONNECT" or host not in names:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await join(reader, writer, names[host] or int(port))

    return handle


def answering(answer: bytes) -> Any:
    """A handler that reads a head and says one thing."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()

    return handle


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A handler that never says a word."""
    with contextlib.suppress(OSError):
        await reader.read()
    writer.close()
