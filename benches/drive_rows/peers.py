"""The peers' drivers, run by the Python of each peer's own environment: ``peers.py KIND COUNT URL PID,…``."""

from __future__ import annotations

import asyncio
import itertools
import sys
import warnings
from pathlib import Path

from measure import Driver, answer, cartpole_actions, echoed, sessions_steps, steps_of

MESSAGE = "Hello from the trainer"


def echo_client():
    """The typed client of the echo package, as `openenv init` writes one, and an action."""
    from openenv.core import EnvClient
    from openenv.core.client_types import StepResult
    from openenv.core.env_server.types import State

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "serve_envs"))
    from typed_echo import EchoAction, EchoObservation

    class EchoEnv(EnvClient[EchoAction, EchoObservation, State]):
        def _step_payload(self, action: EchoAction) -> dict:
            return {"message": action.message}

        def _parse_result(self, payload: dict) -> StepResult[EchoObservation]:
            data = payload.get("observation", {})
            observation = EchoObservation(
                echoed_message=data.get("echoed_message", ""),
                message_length=data.get("message_length", 0),
                done=payload.get("done", False),
                reward=payload.get("reward"),
                metadata=payload.get("metadata", data.get("metadata", {})),
            )
            return StepResult(
                observation=observation,
                reward=payload.get("reward"),
                done=payload.get("done", False),
                metadata=payload.get("metadata"),
            )

        def _parse_state(self, payload: dict) -> State:
            return State(episode_id=payload.get("episode_id"), step_count=payload.get("step_count", 0))

    return EchoEnv, EchoAction(message=MESSAGE)


class OpenEnv(Driver):
    packages = ("openenv", "websockets", "pydantic", "uvicorn")

    def __init__(self, count: int, url: str) -> None:
        self.count, self.url = count, url

    async def open(self) -> None:
        make, self.action = echo_client()
        self.sessions = [make(base_url=self.url) for _ in range(self.count)]
        await asyncio.gather(*(session.connect() for session in self.sessions))
        await asyncio.gather(*(session.reset(seed=number) for number, session in enumerate(self.sessions)))

    async def run(self, seconds: float) -> int:
        return await sessions_steps(self.sessions, self.action, seconds)

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in self.sessions))


class OpenEnvSync(OpenEnv):
    def open(self) -> None:
        make, self.action = echo_client()
        self.session = make(base_url=self.url).sync()
        self.session.connect()
        self.session.reset(seed=0)

    def run(self, seconds: float) -> int:
        steps = steps_of(lambda: self.session.step(self.action), seconds)
        echoed(self.session.step(self.action).observation, MESSAGE)
        return steps + 1

    def close(self) -> None:
        self.session.close()


class Vector(Driver):
    """A vector environment of gymnasium's face in this process, with workers of its own or without."""

    def __init__(self, count: int, _url: str) -> None:
        self.count, self.episodes = count, 0

    def open(self) -> None:
        warnings.simplefilter("ignore")
        self.env = self.make()
        self.env.reset(seed=7)
        self.actions = itertools.cycle(list(cartpole_actions(self.count).astype(self.env.action_space.dtype)))

    def run(self, seconds: float) -> int:
        ended = 0

        def step() -> None:
            nonlocal ended
            _, _, terminated, _, _ = self.env.step(next(self.actions))
            ended += terminated[0]

        steps = steps_of(step, seconds)
        # A random policy keeps the pole for some 22 steps.
        if steps > 400 and not 10 < steps / max(ended, 1) < 60:
            raise RuntimeError(f"{ended} episodes of the first environment in {steps} steps are not CartPole's")
        return steps * self.count

    def close(self) -> None:
        self.env.close()


class GymAsync(Vector):
    packages = ("gymnasium", "numpy")

    def make(self):
        import gymnasium

        options = {"shared_memory": True}
        return gymnasium.make_vec("CartPole-v1", self.count, vectorization_mode="async", vector_kwargs=options)


class GymSync(Vector):
    packages = ("gymnasium", "numpy")

    def make(self):
        import gymnasium

        return gymnasium.make_vec("CartPole-v1", self.count, vectorization_mode="sync")


class EnvPool(Vector):
    packages = ("envpool", "numpy")

    def open(self) -> None:
        warnings.simplefilter("ignore")
        import envpool
        import numpy

        self.env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=self.count, num_threads=1, seed=7)
        self.env.reset()
        self.actions = itertools.cycle(list(cartpole_actions(self.count).astype(numpy.int32)))


KINDS = {"openenv": OpenEnv, "openenv-sync": OpenEnvSync, "gym-async": GymAsync, "gym-sync": GymSync, "envpool": EnvPool}

if __name__ == "__main__":
    kind, count, url, pids = sys.argv[1:5]
    answer(KINDS[kind](int(count), url), None if pids == "self" else [int(pid) for pid in pids.split(",") if pid])
