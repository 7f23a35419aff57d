"""Rubrics made of rubrics. Each is sync where all its children are, and awaited where one of them is."""

import asyncio
import inspect

from ... import _missing
from .base import Rubric


def _loop_runs():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(score):
    return await score if inspect.iscoroutine(score) else score


class Sequential(Rubric):
    """One after the other until one gives 0; the score is that of the last one.

    Called on an event loop it is always awaited, unless a sync child stops it.
    """

    def __init__(self, *rubrics):
        """``rubrics`` in their order."""
        super().__init__()
        for number, rubric in enumerate(rubrics):
            setattr(self, "rubric_%d" % number, rubric)
        self._rubric_list = list(rubrics)

    def forward(self, action, observation):
        """The score where all children are sync."""
        score = 1.0
        for rubric in self._rubric_list:
            score = rubric(action, observation)
            if score == 0.0:
                return 0.0
        return score

    def __call__(self, action, observation):
        """The score, or a coroutine of it."""
        if not self._rubric_list:
            if _loop_runs():
                return self._rest(action, observation, 1.0, [], 0)
            self._before(action, observation)
            return self._after(action, observation, 1.0)
        ran = self._before_until_async(action, observation)
        score = 1.0
        for number, rubric in enumerate(self._rubric_list):
            score = rubric(action, observation)
            if inspect.iscoroutine(score):
                return self._rest(action, observation, score, self._rubric_list[number + 1 :], ran)
            if score == 0.0:
                self._before(action, observation, ran)
                return self._after(action, observation, 0.0)
        if _loop_runs():
            return self._rest(action, observation, score, [], ran)
        self._before(action, observation, ran)
        return self._after(action, observation, score)

    async def _rest(self, action, observation, score, rubrics, ran):
        await self._before_async(action, observation, ran)
        score = await _awaited(score)
        for rubric in rubrics:
            if score == 0.0:
                break
            score = await _awaited(rubric(action, observation))
        return await self._after_async(action, observation, 0.0 if score == 0.0 else score)

    def __len__(self):
        """How many children."""
        return len(self._rubric_list)

    def __getitem__(self, index):
        """A child by number."""
        return self._rubric_list[index]


class Gate(Rubric):
    """The child's score, or 0 where it is below the threshold."""

    def __init__(self, rubric, threshold=1.0):
        """``rubric`` is the child."""
        super().__init__()
        self.rubric = rubric
        self.threshold = threshold

    def _gated(self, score):
        return 0.0 if score < self.threshold else score

    def forward(self, action, observation):
        """The score where the child is sync."""
        return self._gated(self.rubric(action, observation))

    def __call__(self, action, observation):
        """The score, or a coroutine of it."""
        ran = self._before_until_async(action, observation)
        score = self.rubric(action, observation)
        if inspect.iscoroutine(score):
            return self._rest(action, observation, score, ran)
        self._before(action, observation, ran)
        return self._after(action, observation, self._gated(score))

    async def _rest(self, action, observation, score, ran):
        await self._before_async(action, observation, ran)
        return await self._after_async(action, observation, self._gated(await score))


class WeightedSum(Rubric):
    """The sum of the children's scores, each times its weight; async children run side by side."""

    def __init__(self, rubrics, weights):
        """As many weights as rubrics, together 1."""
        super().__init__()
        if len(rubrics) != len(weights):
            raise ValueError("Number of rubrics (%d) must match number of weights (%d)" % (len(rubrics), len(weights)))
        if abs(sum(weights) - 1.0) > 1e-6:
            raise ValueError("Weights must sum to 1.0, got %s" % sum(weights))
        for number, rubric in enumerate(rubrics):
            setattr(self, "rubric_%d" % number, rubric)
        self._rubric_list = list(rubrics)
        self._weights = list(weights)

    @property
    def weights(self):
        """The weights, as a list of one's own."""
        return list(self._weights)

    def _weighted(self, scores):
        total = 0.0
        for score, weight in zip(scores, self._weights):
            total += score * weight
        return total

    def forward(self, action, observation):
        """The score where all children are sync."""
        return self._weighted(rubric(action, observation) for rubric in self._rubric_list)

    def __call__(self, action, observation):
        """The score, or a coroutine of it."""
        ran = self._before_until_async(action, observation)
        scores = [rubric(action, observation) for rubric in self._rubric_list]
        if any(inspect.iscoroutine(score) for score in scores):
            return self._rest(action, observation, scores, ran)
        self._before(action, observation, ran)
        return self._after(action, observation, self._weighted(scores))

    async def _rest(self, action, observation, scores, ran):
        await self._before_async(action, observation, ran)
        scores = await asyncio.gather(*map(_awaited, scores))
        return await self._after_async(action, observation, self._weighted(scores))


class RubricList(Rubric):
    """Rubrics by number, for a parent that chooses among them."""

    def __init__(self, rubrics=None):
        """``rubrics`` to begin with."""
        super().__init__()
        self._rubrics = []
        self.extend(rubrics or ())

    def forward(self, action, observation):
        """A list has no score of its own."""
        raise NotImplementedError(
            "RubricList.forward() is not implemented. Use RubricList within a parent rubric that defines aggregation."
        )

    def append(self, rubric):
        """Adds one."""
        setattr(self, "rubric_%d" % len(self._rubrics), rubric)
        self._rubrics.append(rubric)

    def extend(self, rubrics):
        """Adds several."""
        for rubric in rubrics:
            self.append(rubric)

    def __len__(self):
        """How many."""
        return len(self._rubrics)

    def __getitem__(self, index):
        """One by number."""
        return self._rubrics[index]

    def __iter__(self):
        """All in order."""
        return iter(self._rubrics)


class RubricDict(Rubric):
    """Rubrics by name, for a parent that chooses among them."""

    def __init__(self, rubrics=None):
        """``rubrics`` to begin with."""
        super().__init__()
        self._rubric_dict = {}
        self.update(rubrics or {})

    def forward(self, action, observation):
        """A dict has no score of its own."""
        raise NotImplementedError(
            "RubricDict.forward() is not implemented. Use RubricDict within a parent rubric that defines aggregation."
        )

    def __setitem__(self, key, rubric):
        """Adds one."""
        setattr(self, key, rubric)
        self._rubric_dict[key] = rubric

    def __getitem__(self, key):
        """One by name."""
        return self._rubric_dict[key]

    def __contains__(self, key):
        """Whether there is one of that name."""
        return key in self._rubric_dict

    def __len__(self):
        """How many."""
        return len(self._rubric_dict)

    def __iter__(self):
        """The names."""
        return iter(self._rubric_dict)

    def keys(self):
        """The names."""
        return iter(self._rubric_dict.keys())

    def values(self):
        """The rubrics."""
        return iter(self._rubric_dict.values())

    def items(self):
        """Both."""
        return iter(self._rubric_dict.items())

    def update(self, rubrics):
        """Adds those of a mapping."""
        for name, rubric in rubrics.items():
            self[name] = rubric


def __getattr__(name):
    raise _missing.name(__name__, name)
