"""The base class of rubrics: children by attribute, hooks, sync or async by what ``forward`` is."""

import inspect
from abc import ABC, abstractmethod

from ... import _missing


class Rubric(ABC):
    """Gives an action and its observation a score.

    A rubric set as an attribute of another is its child. Calling a rubric runs the hooks around ``forward`` and keeps the
    score as ``last_score``; where ``forward`` must be awaited, so must the call.
    """

    def __init__(self):
        """Has to be called before children are set."""
        # Past __setattr__, which needs the first of these.
        vars(self).update(_rubric_children={}, _forward_hooks=[], _forward_pre_hooks=[], last_score=None)

    def __setattr__(self, name, value):
        """Registers rubrics as children."""
        if isinstance(value, Rubric):
            self._rubric_children[name] = value
        object.__setattr__(self, name, value)

    @abstractmethod
    def forward(self, action, observation):
        """The score, usually 0.0 to 1.0; may be a coroutine function."""
        raise NotImplementedError

    def __call__(self, action, observation):
        """The score, or a coroutine of it."""
        if inspect.iscoroutinefunction(self.forward):
            return self._call_async(action, observation, self.forward(action, observation))
        self._before(action, observation)
        score = self.forward(action, observation)
        if inspect.iscoroutine(score):
            # A sync forward that hands on the call of an async child.
            return self._after_awaiting(action, observation, score)
        return self._after(action, observation, score)

    async def _call_async(self, action, observation, waiting):
        await self._before_async(action, observation)
        return await self._after_awaiting(action, observation, waiting)

    async def _after_awaiting(self, action, observation, waiting):
        return await self._after_async(action, observation, await waiting)

    def _before(self, action, observation, start=0):
        """Runs the hooks before ``forward``, from the one numbered ``start`` on."""
        for hook in self._forward_pre_hooks[start:]:
            hook(self, action, observation)

    async def _before_async(self, action, observation, start=0):
        for hook in self._forward_pre_hooks[start:]:
            waiting = hook(self, action, observation)
            if inspect.iscoroutinefunction(hook):
                await waiting

    def _before_until_async(self, action, observation):
        """Runs those hooks that come before the first async one; gives their number.

        A container learns only from its children whether it is to be awaited, and hooks run before the children.
        """
        for number, hook in enumerate(self._forward_pre_hooks):
            if inspect.iscoroutinefunction(hook):
                return number
            hook(self, action, observation)
        return len(self._forward_pre_hooks)

    def _after(self, action, observation, score):
        self.last_score = score
        for hook in self._forward_hooks:
            hook(self, action, observation, score)
        return score

    async def _after_async(self, action, observation, score):
        self.last_score = score
        for hook in self._forward_hooks:
            waiting = hook(self, action, observation, score)
            if inspect.iscoroutinefunction(hook):
                await waiting
        return score

    def register_forward_hook(self, hook):
        """``hook(rubric, action, observation, score)`` runs after each call."""
        self._forward_hooks.append(hook)

    def register_forward_pre_hook(self, hook):
        """``hook(rubric, action, observation)`` runs before each call."""
        self._forward_pre_hooks.append(hook)

    def children(self):
        """The rubrics that are attributes."""
        yield from self._rubric_children.values()

    def named_children(self):
        """The same with their names."""
        yield from self._rubric_children.items()

    def rubrics(self):
        """All rubrics below, each before its own children."""
        for _, rubric in self.named_rubrics():
            yield rubric

    def named_rubrics(self, prefix=""):
        """The same with their dotted paths."""
        for name, child in self._rubric_children.items():
            path = "%s.%s" % (prefix, name) if prefix else name
            yield path, child
            yield from child.named_rubrics(path)

    def get_rubric(self, path):
        """The rubric at a dotted path."""
        rubric = self
        for name in path.split("."):
            if name not in rubric._rubric_children:
                raise KeyError("Rubric path not found: %s" % path)
            rubric = rubric._rubric_children[name]
        return rubric

    def reset(self):
        """Forgets what was gathered in an episode."""

    def state_dict(self):
        """The rubric's settings."""
        return {}

    def load_state_dict(self, state):
        """Takes settings over."""


def __getattr__(name):
    raise _missing.name(__name__, name)
