"""A group rollout as GRPO has it: each prompt is answered by a group, and what counts is how an answer does within its group.

A table of preferences stands for the language model, so that the loop is all there is to see; it is also a test: after a few
rounds the table knows each prompt's number. Run it with `python group_rollout.py [ROUNDS]`.
"""

import math
import random
import sys
from pathlib import Path

import envharness as eh

PROMPTS, GROUP, NUMBERS, RATE = 4, 16, 10, 2.0


def sample(preferences, rng):
    """A number by the softmax of the preferences, and its probabilities."""
    weights = [math.exp(p - max(preferences)) for p in preferences]
    probabilities = [w / sum(weights) for w in weights]
    return rng.choices(range(NUMBERS), probabilities)[0], probabilities


def advantages(rewards):
    """Each reward against its group: zero mean, unit deviation."""
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((r - mean) ** 2 for r in rewards) / len(rewards))
    return [(r - mean) / (deviation + 1e-6) for r in rewards]


def main(rounds=40):
    """Trains, and says how often the table is right."""
    rng = random.Random(0)
    policy = [[0.0] * NUMBERS for _ in range(PROMPTS)]
    slots = [(prompt, member) for prompt in range(PROMPTS) for member in range(GROUP)]
    with (
        eh.serve(Path(__file__).parent / "guess") as server,
        eh.VectorClient(server, len(slots), autoreset="disabled", wait=60) as envs,
    ):
        for _ in range(rounds):
            # All members of a group begin with the same prompt: the same seed.
            envs.reset(seeds=[prompt for prompt, _ in slots]).raise_errors()
            answers = [sample(policy[prompt], rng) for prompt, _ in slots]
            envs.send([{"number": number + 1} for number, _ in answers])
            rewards = [0.0] * len(slots)
            waiting = len(slots)
            while waiting:
                ready = envs.recv()  # first ready first: a slow member holds nobody up
                ready.raise_errors()
                waiting -= len(ready.slots)
                for slot, reward in zip(ready.slots, ready.rewards):
                    rewards[slot] = reward
            for prompt in range(PROMPTS):
                group = range(prompt * GROUP, (prompt + 1) * GROUP)
                for slot, advantage in zip(group, advantages([rewards[slot] for slot in group])):
                    number, probabilities = answers[slot]
                    for n in range(NUMBERS):
                        gradient = (1.0 if n == number else 0.0) - probabilities[n]
                        policy[prompt][n] += RATE * advantage * gradient / GROUP
    print(f"mean reward of the last round: {sum(rewards) / len(rewards):.2f}")
    return sum(rewards) / len(rewards)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
