"""A client without types: dicts in, dicts out."""

from .. import _missing
from .client_types import StepResult
from .env_client import EnvClient


class GenericEnvClient(EnvClient):
    """A client of any environment; nothing of the environment's code is needed."""

    def _step_payload(self, action):
        if isinstance(action, dict):
            return action
        if hasattr(action, "model_dump"):
            return action.model_dump()
        return dict(vars(action)) if hasattr(action, "__dict__") else dict(action)

    def _parse_result(self, payload):
        return StepResult(
            observation=payload.get("observation", {}),
            reward=payload.get("reward"),
            done=payload.get("done", False),
            metadata=payload.get("metadata"),
        )

    def _parse_state(self, payload):
        return payload


class GenericAction(dict):
    """An action by keywords: a dict that shows that it is one."""

    def __init__(self, **kwargs):
        """The action's fields."""
        super().__init__(kwargs)

    def __repr__(self):
        """The call that makes it."""
        return "GenericAction(%s)" % ", ".join("%s=%r" % item for item in self.items())


def __getattr__(name):
    raise _missing.name(__name__, name)
