"""Client of brittle."""

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import State

from .models import BrittleAction, BrittleObservation


class BrittleEnv(EnvClient[BrittleAction, BrittleObservation, State]):
    def _step_payload(self, action):
        return action.model_dump(exclude={"metadata"})

    def _parse_result(self, payload):
        observation = BrittleObservation(**{**payload["observation"], "reward": payload.get("reward"), "done": payload["done"]})
        return StepResult(observation=observation, reward=payload.get("reward"), done=payload["done"])

    def _parse_state(self, payload):
        return State(**payload)
