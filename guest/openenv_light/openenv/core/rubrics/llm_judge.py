"""A language model as a rubric."""

import re

from ... import _missing
from .base import Rubric


class LLMJudge(Rubric):
    """Asks a model, and reads the score from its answer."""

    def __init__(self, prompt_template, client, *, score_pattern=None, default_score=0.0, normalize=True):
        """The template has places for ``{action}`` and ``{observation}``; ``client`` is an LLMClient.

        The score is the first number of the answer, or what ``score_pattern`` finds (its first group where it has one);
        ``default_score`` where nothing is found; held to 0..1 unless ``normalize`` is false.
        """
        super().__init__()
        self.prompt_template = prompt_template
        self._client = client
        self._score_pattern = re.compile(score_pattern or r"(\d+\.?\d*)")
        self.default_score = default_score
        self.normalize = normalize

    async def forward(self, action, observation):
        """The score of the model's answer."""
        return self._parse_score(await self._client.complete(self._render_prompt(action, observation)))

    def _render_prompt(self, action, observation):
        return self.prompt_template.format(action=action, observation=observation)

    def _parse_score(self, response):
        found = self._score_pattern.search(response)
        if found is None:
            return self.default_score
        try:
            score = float(found.group(1 if found.lastindex else 0))
        except (TypeError, ValueError, IndexError):
            return self.default_score
        return max(0.0, min(1.0, score)) if self.normalize else score

    def state_dict(self):
        """Settings, without the client."""
        return {
            "prompt_template": self.prompt_template,
            "score_pattern": self._score_pattern.pattern,
            "default_score": self.default_score,
            "normalize": self.normalize,
        }

    def load_state_dict(self, state):
        """Takes over what is in ``state``."""
        self.prompt_template = state.get("prompt_template", self.prompt_template)
        self._score_pattern = re.compile(state.get("score_pattern", self._score_pattern.pattern))
        self.default_score = state.get("default_score", self.default_score)
        self.normalize = state.get("normalize", self.normalize)


def __getattr__(name):
    raise _missing.name(__name__, name)
