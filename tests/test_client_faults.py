"""Nothing hangs: whatever a server does, every public call of every client ends in time, by a typed error or an answer."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import inspect
import itertools
import os
import resource
import time

import envharness as eh
import envharness.gym
import gymnasium
import pytest
from envharness.client._env import SyncEnvClient
from envharness.client._mcp import SyncMCPToolClient
from envharness.compat.openenv import EnvClient as CompatClient
from envharness.compat.openenv import GenericEnvClient as CompatGeneric
from envharness.compat.openenv import MCPToolClient as CompatTools
from envharness.compat.openenv import SyncEnvClient as CompatSync
from fake_server import MANNERS, fake_server
from serving import ROUNDS

#: The time that calls have by their own settings, and the time after which the test says that they hang.
LIMIT, WATCHDOG = 0.8, 60.0
TYPED = (eh.EnvHarnessError,)
#: The last are json's and pydantic's, as with OpenEnv.
COMPAT = (RuntimeError, ConnectionError, TimeoutError, asyncio.TimeoutError, ValueError)
SETTINGS = {"request_timeout": LIMIT, "connect_timeout": LIMIT, "max_message_size": 1 << 20}
COMPAT_SETTINGS = {"connect_timeout_s": LIMIT, "message_timeout_s": LIMIT, "max_message_size_mb": 1.0}
ACTION = {"action": 1}
#: Each client has a connection of its own: what one of them meets must not be another's.
numbers = itertools.count(1)


def settings() -> dict:
    return {**SETTINGS, "headers": {"x-client": str(next(numbers))}}


ENV_CALLS = {
    "connect": lambda env: env.connect(),
    "reset": lambda env: env.reset(seed=1),
    "step": lambda env: env.step(ACTION),
    "state": lambda env: env.state(),
    "render": lambda env: env.render(),
    "fetch_contract": lambda env: env.fetch_contract(),
    "new_session": lambda env: env.new_session(),
    "close": lambda env: env.close(),
}
TOOL_CALLS = {
    "list_tools": lambda env: env.list_tools(use_cache=False),
    "call_tool": lambda env: env.call_tool("echo", message="m"),
    "get_tool": lambda env: env.get_tool("echo"),
    "has_tool": lambda env: env.has_tool("echo"),
}
VECTOR_CALLS = {
    "reset": lambda env: env.reset(seeds=1),
    "step": lambda env: env.step([ACTION] * 3),
    "send": lambda env: (env.send([ACTION] * 3), env.recv(3)),
    "recv": lambda env: (env.send([ACTION], slots=[1]), env.recv(1)),
    "render": lambda env: env.render(),
    "close": lambda env: env.close(),
}
VECTOR_AWAITED = {
    "areset": lambda env: env.areset(seeds=1),
    "astep": lambda env: env.astep([ACTION] * 3),
    "arecv": lambda env: (env.send([ACTION], slots=[1]), env.arecv(1))[1],
}
GYM_CALLS = {
    "reset": lambda env: env.reset(seed=1),
    "step": lambda env: env.step(env.action_space.sample()),
    "state": lambda env: env.state(),
    "render": lambda env: env.render(),
    "close": lambda env: env.close(),
}
GYM_VECTOR_CALLS = {
    "reset": lambda env: env.reset(seed=1),
    "step": lambda env: env.step(env.action_space.sample()),
    "render": lambda env: env.render(),
    "close": lambda env: env.close(),
}
COMPAT_CALLS = {
    "connect": lambda env: env.connect(),
    "reset": lambda env: env.reset(seed=1),
    "step": lambda env: env.step(ACTION),
    "state": lambda env: env.state(),
    "new_session": lambda env: env.new_session(),
    "disconnect": lambda env: env.disconnect(),
    "close": lambda env: env.close(),
}
#: Public names that say nothing to a server.
QUIET = {
    eh.EnvClient: {"sync"},
    SyncEnvClient: set(),
    eh.GenericEnvClient: {"sync"},
    eh.MCPToolClient: {"sync"},
    SyncMCPToolClient: set(),
    eh.VectorClient: set(),
    envharness.gym.RemoteEnv: {"get_wrapper_attr", "has_wrapper_attr", "set_wrapper_attr"},
    envharness.gym.RemoteVectorEnv: {"close_extras"},
    CompatClient: {"sync", "from_docker_image", "from_env"},
    CompatGeneric: {"sync", "from_docker_image", "from_env"},
    CompatTools: {"sync", "from_docker_image", "from_env"},
    CompatSync: set(),
}
TABLE = {
    eh.EnvClient: ENV_CALLS,
    SyncEnvClient: ENV_CALLS,
    eh.GenericEnvClient: ENV_CALLS,
    eh.MCPToolClient: {**ENV_CALLS, **TOOL_CALLS},
    SyncMCPToolClient: {**ENV_CALLS, **TOOL_CALLS},
    eh.VectorClient: {**VECTOR_CALLS, **VECTOR_AWAITED},
    envharness.gym.RemoteEnv: GYM_CALLS,
    envharness.gym.RemoteVectorEnv: GYM_VECTOR_CALLS,
    CompatClient: COMPAT_CALLS,
    CompatGeneric: COMPAT_CALLS,
    CompatTools: {**COMPAT_CALLS, **TOOL_CALLS},
    CompatSync: COMPAT_CALLS,
}


@pytest.mark.parametrize("cls", TABLE, ids=lambda cls: f"{cls.__module__.split('.')[1]}.{cls.__name__}")
def test_no_public_call_is_forgotten(cls):
    public = {name for name, value in inspect.getmembers(cls) if not name.startswith("_") and callable(value)}
    # What gymnasium itself has and ours does not say again asks nothing of a server.
    inherited = {name for base in (gymnasium.Env, gymnasium.vector.VectorEnv) if issubclass(cls, base) for name in vars(base)}
    own = {name for name in public if name not in inherited or name in vars(cls) or name in TABLE[cls]}
    assert own - QUIET[cls] == set(TABLE[cls]), "a public call that the table does not know, or one that is gone"


class Case:
    """A client, how it is made, and one of its calls."""

    def __init__(self, name, make, call, allowed, reset, awaited=False) -> None:
        self.name, self.make, self.call, self.allowed, self.reset, self.awaited = name, make, call, allowed, reset, awaited
        self.client = None

    def attempt(self, work) -> BaseException | None:
        """Does it; its typed error, or None for an answer."""
        try:
            work()
        except self.allowed as error:
            # A failure of the tests' own would be one of these too.
            if "coroutine" in str(error):
                raise
            return error
        return None

    def run(self, work=None):
        """The call, on a fresh client where there is none."""

        def play():
            if self.client is None:
                self.client = self.make()
            return (work or self.call)(self.client)

        if not self.awaited:
            return self.attempt(play)

        async def awaited():
            value = play()
            if inspect.isawaitable(value):
                await value

        return self.attempt(lambda: asyncio.run(awaited()))


def cases(fake, prefix: str) -> list[Case]:
    found, url = [], fake.url
    # A stock server takes no options, and draws nothing.
    mode = "ansi" if fake.speaks == "envharness.v1" else None

    def add(kind, make, calls, allowed, reset, awaited=False):
        found.extend(Case(f"{prefix}{kind}.{name}", make, call, allowed, reset, awaited) for name, call in calls.items())

    def reset(env):
        return env.reset()

    def vector():
        return eh.VectorClient(url, 3, **settings())

    add("EnvClient", lambda: eh.GenericEnvClient(url, **settings()), ENV_CALLS, TYPED, reset, awaited=True)
    add("SyncEnvClient", lambda: eh.GenericEnvClient(url, **settings()).sync(), ENV_CALLS, TYPED, reset)
    add("MCPToolClient", lambda: eh.MCPToolClient(url, **settings()), TOOL_CALLS, TYPED, reset, awaited=True)
    add("SyncMCPToolClient", lambda: eh.MCPToolClient(url, **settings()).sync(), TOOL_CALLS, TYPED, reset)
    add("VectorClient", vector, VECTOR_CALLS, TYPED, lambda env: env.reset().raise_errors())
    add("VectorClient", vector, VECTOR_AWAITED, TYPED, lambda env: env.reset().raise_errors(), awaited=True)

    def gym():
        return envharness.gym.make(url, mode, request_timeout=LIMIT, headers={"x-client": str(next(numbers))})

    def gym_vector():
        return envharness.gym.make_vec(url, 3, render_mode=mode, request_timeout=LIMIT, token=str(next(numbers)))

    for kind, make, calls in (("gym.Env", gym, GYM_CALLS), ("gym.VectorEnv", gym_vector, GYM_VECTOR_CALLS)):
        calls = {name: call for name, call in calls.items() if name != "render" or mode}
        add(kind, make, calls, TYPED, reset)
    add("compat.GenericEnvClient", lambda: CompatGeneric(url, **COMPAT_SETTINGS), COMPAT_CALLS, COMPAT, reset, awaited=True)
    add("compat.SyncEnvClient", lambda: CompatGeneric(url, **COMPAT_SETTINGS).sync(), COMPAT_CALLS, COMPAT, reset)
    tools = {**COMPAT_CALLS, **TOOL_CALLS}
    add("compat.MCPToolClient", lambda: CompatTools(url, **COMPAT_SETTINGS), tools, COMPAT, reset, awaited=True)
    add("compat.SyncMCPToolClient", lambda: CompatTools(url, **COMPAT_SETTINGS).sync(), tools, COMPAT, reset)
    return found


def all_at_once(pool, work) -> dict[str, BaseException | None]:
    """Runs calls in threads; what hangs is named."""
    began = time.monotonic()
    futures = {pool.submit(run): name for name, run in work.items()}
    done, hanging = concurrent.futures.wait(futures, WATCHDOG)
    if hanging:
        # Threads that never end would keep the interpreter from ending.
        print("they hang:", sorted(futures[future] for future in hanging), flush=True)
        os._exit(3)
    wrong = {futures[future]: future.exception() for future in done if future.exception() is not None}
    assert not wrong, f"{ {name: repr(error) for name, error in wrong.items()} }, after {time.monotonic() - began:.1f} s"
    return {futures[future]: future.result() for future in done}


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(256) as threads:
        yield threads


def works_again(case: Case) -> None:
    """The same client goes on by reset(); it may learn of its loss by that, and be late."""
    until = time.monotonic() + WATCHDOG / 2
    while (error := case.run(case.reset)) is not None:
        assert time.monotonic() < until, f"{case.name}: {error!r}"


@pytest.mark.parametrize(("speaks", "manner"), [(speaks, manner) for speaks, manners in MANNERS.items() for manner in manners])
def test_every_call_ends_and_the_client_works_again(speaks, manner, pool):
    with fake_server(speaks) as fake:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        fresh, under_way = cases(fake, "fresh "), cases(fake, "")
        chosen = fresh + under_way
        heard = all_at_once(pool, {case.name: lambda case=case: case.run(case.reset) for case in under_way})
        assert not any(heard.values()), heard
        fake.turn(manner)
        all_at_once(pool, {case.name: case.run for case in chosen})
        again = [case for case in chosen if not case.name.endswith((".close", ".disconnect", ".send", ".recv", ".arecv"))]
        for _ in range(min(ROUNDS - 1, 2)):
            # What a call met may have left something behind.
            all_at_once(pool, {case.name: case.run for case in again})
        fake.turn("good")
        all_at_once(pool, {case.name: lambda case=case: works_again(case) for case in again})
        made = [case for case in chosen if case.client is not None]
        all_at_once(pool, {case.name: lambda case=case: case.run(lambda env: env.close()) for case in made})
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 600_000, f"the memory has grown by {grown} KiB"
        del chosen, fresh, under_way, again, made
        gc.collect()
