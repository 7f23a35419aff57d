"""Rubrics over whole episodes: the score is known at the end, and is then shared out among the steps."""

from abc import abstractmethod

from ... import _missing
from .base import Rubric


class TrajectoryRubric(Rubric):
    """Gathers the steps of an episode, and scores it when it is done."""

    def __init__(self, intermediate_reward=0.0):
        """``intermediate_reward`` is the score of every step before the last."""
        super().__init__()
        self.intermediate_reward = intermediate_reward
        self._trajectory = []

    def forward(self, action, observation):
        """Keeps the step; scores the episode where the observation is done."""
        self._trajectory.append((action, observation))
        if getattr(observation, "done", False):
            return self.score_trajectory(self._trajectory)
        return self.intermediate_reward

    @abstractmethod
    def score_trajectory(self, trajectory):
        """The score of an episode: a list of (action, observation)."""
        raise NotImplementedError

    @abstractmethod
    def compute_step_rewards(self):
        """The episode's score shared out: one reward a step."""
        raise NotImplementedError

    @property
    def trajectory(self):
        """The steps so far, as a list of one's own."""
        return list(self._trajectory)

    def reset(self):
        """Forgets the steps."""
        self._trajectory = []

    def state_dict(self):
        """Settings, without the steps."""
        return {"intermediate_reward": self.intermediate_reward}

    def load_state_dict(self, state):
        """Takes over what is in ``state``."""
        self.intermediate_reward = state.get("intermediate_reward", self.intermediate_reward)


class ExponentialDiscountingTrajectoryRubric(TrajectoryRubric):
    """Step t of T gets ``gamma ** (T - 1 - t)`` times the score."""

    def __init__(self, gamma=0.99, intermediate_reward=0.0):
        """``gamma`` from 0 (the last step gets all) to 1 (all get the same)."""
        super().__init__(intermediate_reward=intermediate_reward)
        if not 0.0 <= gamma <= 1.0:
            raise ValueError("gamma must be in [0, 1], got %s" % gamma)
        self.gamma = gamma

    def compute_step_rewards(self):
        """The discounted rewards."""
        if not self._trajectory:
            return []
        score = self.score_trajectory(self._trajectory)
        last = len(self._trajectory) - 1
        return [score * self.gamma ** (last - step) for step in range(last + 1)]

    def state_dict(self):
        """Settings, without the steps."""
        return dict(super().state_dict(), gamma=self.gamma)

    def load_state_dict(self, state):
        """Takes over what is in ``state``."""
        super().load_state_dict(state)
        self.gamma = state.get("gamma", self.gamma)


def __getattr__(name):
    raise _missing.name(__name__, name)
