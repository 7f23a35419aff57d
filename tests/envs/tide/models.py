"""What tide takes and shows."""

from openenv.core.env_server.types import Action, Observation


class TideAction(Action):
    by: int


class TideObservation(Observation):
    level: int = 0
    history: list[int] = []
