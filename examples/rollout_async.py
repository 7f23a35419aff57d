"""An asyncio rollout: many episodes at once, typed, over one connection.

Run it with `python rollout_async.py [EPISODES] [AT_ONCE]`.
"""

import asyncio
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import envharness as eh


@dataclass
class Guess:
    """An action of the environment in `guess/`."""

    number: int


@dataclass
class Answer:
    """What it shows."""

    hint: str = ""


class GuessClient(eh.EnvClient):
    """A typed client: actions and observations are the classes above."""

    action_type, observation_type = Guess, Answer


async def episode(env, seed):
    """Guesses without looking twice at a number; the steps that were taken."""
    numbers = random.Random(seed).sample(range(1, 11), 10)
    await env.reset(seed=seed)
    for steps, number in enumerate(numbers, 1):
        result = await env.step(Guess(number))
        if result.done:
            return steps, result.reward
    return steps, 0.0


async def rollout(url, episodes, at_once):
    """Episodes on as many sessions as are wanted at once; each session plays many."""
    seeds = iter(range(episodes))

    async def session():
        async with GuessClient(url, request_timeout=30) as env:
            return [await episode(env, seed) for seed in seeds]

    played = await asyncio.gather(*(session() for _ in range(at_once)))
    return [outcome for outcomes in played for outcome in outcomes]


def main(episodes=500, at_once=64):
    """Serves the environment, plays, says how it went."""
    with eh.serve(Path(__file__).parent / "guess") as server:
        outcomes = asyncio.run(rollout(server.url, episodes, at_once))
    steps = sum(steps for steps, _ in outcomes)
    print(f"{len(outcomes)} episodes, {steps} steps, mean reward {sum(reward for _, reward in outcomes) / len(outcomes):.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
