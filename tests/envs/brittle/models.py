"""What brittle takes and shows."""

from openenv.core.env_server.types import Action, Observation


class BrittleAction(Action):
    how: str = ""


class BrittleObservation(Observation):
    count: int = 0
    pid: int = 0
