"""Our drivers and servers: ``ours.py KIND COUNT URL-OR-TARGET PID,…``, or ``ours.py serve TARGET OPTIONS``."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from pathlib import Path

import envharness as eh
from measure import Driver, answer, cartpole_actions, echoed, sessions_steps, steps_of

MESSAGE = "Hello from the trainer"


def pydantic_models():
    from models import EchoAction, EchoObservation

    return EchoAction, EchoObservation


def struct_models():
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "serve_envs"))
    from struct_echo import EchoAction, EchoObservation

    return EchoAction, EchoObservation


class Typed(Driver):
    packages = ("envharness", "pydantic")

    def __init__(self, count: int, url: str) -> None:
        self.count, self.url = count, url

    async def open(self) -> None:
        action, observation = pydantic_models()
        self.action = action(message=MESSAGE)
        self.sessions = [eh.EnvClient(self.url, action=action, observation=observation) for _ in range(self.count)]
        await asyncio.gather(*(session.connect() for session in self.sessions))
        await asyncio.gather(*(session.reset(seed=number) for number, session in enumerate(self.sessions)))

    async def run(self, seconds: float) -> int:
        return await sessions_steps(self.sessions, self.action, seconds)

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in self.sessions))

    def note(self) -> str:
        return f"protocol {self.sessions[0].protocol}"


class Sync(Typed):
    def open(self) -> None:
        action, observation = pydantic_models()
        self.action = action(message=MESSAGE)
        self.session = eh.EnvClient(self.url, action=action, observation=observation).sync()
        self.session.connect()
        self.session.reset(seed=0)

    def run(self, seconds: float) -> int:
        steps = steps_of(lambda: self.session.step(self.action), seconds)
        echoed(self.session.step(self.action).observation, MESSAGE)
        return steps + 1

    def close(self) -> None:
        self.session.close()

    def note(self) -> str:
        return f"protocol {self.session.protocol}"


class Frames(Typed):
    """Typed actions and observations, those of all sessions in a frame."""

    types = staticmethod(pydantic_models)

    def open(self) -> None:
        action, observation = self.types()
        self.vector = eh.VectorClient(self.url, self.count, action=action, observation=observation)
        self.vector.reset(seeds=range(self.count))
        self.actions = [action(message=MESSAGE) for _ in range(self.count)]

    def run(self, seconds: float) -> int:
        def step():
            result = self.vector.step(self.actions).raise_errors()
            # Every observation is taken, should they be made when they are.
            return list(result.observations), result.rewards, result.dones

        steps = steps_of(step, seconds)
        observations, rewards, dones = step()
        for observation, reward, done in zip(observations, rewards, dones):
            echoed(observation, MESSAGE)
            if done or abs(reward - len(MESSAGE) * 0.1) > 1e-9:
                raise RuntimeError(f"not the echo: {reward!r}, {done!r}")
        return (steps + 1) * self.count

    def close(self) -> None:
        self.vector.close()

    def note(self) -> str:
        return ""


class StructFrames(Frames):
    packages = ("envharness", "msgspec")
    types = staticmethod(struct_models)


class Arrays(Driver):
    """CartPole by arrays; `url` is an address, or a target that is driven in process."""

    packages = ("envharness", "numpy")

    def __init__(self, count: int, url: str) -> None:
        self.count, self.url = count, url

    def open(self) -> None:
        if self.url.startswith(("gym:", "native:")):
            self.vector = eh.local(self.url, num_envs=self.count, autoreset="next_step")
        else:
            self.vector = eh.VectorClient(self.url, self.count, autoreset="next_step")
        self.vector.reset(seeds=range(self.count))
        self.actions = itertools.cycle(list(cartpole_actions(self.count)))

    def run(self, seconds: float) -> int:
        ended = 0

        def step():
            nonlocal ended
            result = self.vector.step(next(self.actions)).raise_errors()
            ended += result.dones[0]
            return result.observations, result.rewards

        steps = steps_of(step, seconds)
        observations, rewards = step()
        if observations.shape != (self.count, 4) or len(rewards) != self.count:
            raise RuntimeError(f"{self.count} environments gave observations of the shape {observations.shape}")
        # A random policy keeps the pole for some 22 steps.
        if steps > 400 and not 10 < steps / max(ended, 1) < 60:
            raise RuntimeError(f"{ended} episodes of the first environment in {steps} steps are not CartPole's")
        return (steps + 1) * self.count

    def close(self) -> None:
        self.vector.close()


KINDS = {"typed": Typed, "sync": Sync, "frames": Frames, "struct-frames": StructFrames, "arrays": Arrays}


def serve(target: str, options: str) -> None:
    with eh.serve(target, **json.loads(options)) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:4])
    else:
        kind, count, url, pids = sys.argv[1:5]
        answer(KINDS[kind](int(count), url), None if pids == "self" else [int(pid) for pid in pids.split(",") if pid])
