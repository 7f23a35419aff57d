"""A number is to be guessed: an env package as small as it can be."""

import random

from openenv.core.env_server import Action, Environment, Observation, State, create_app


class Guess(Action):
    number: int


class Answer(Observation):
    hint: str = ""


class GuessEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.secret = random.Random(seed).randint(1, 10)
        self.episode = State(episode_id=episode_id, step_count=0)
        return Answer(hint="a number from 1 to 10")

    def step(self, action: Guess, timeout_s=None, **kwargs):
        self.episode.step_count += 1
        hit = action.number == self.secret
        return Answer(hint="yes" if hit else "no", done=hit, reward=float(hit))

    @property
    def state(self):
        return self.episode


app = create_app(GuessEnvironment, Guess, Answer, env_name="guess")
