"""What lone takes and shows."""

from openenv.core.env_server.types import Action, Observation


class LoneAction(Action):
    add: int


class LoneObservation(Observation):
    total: int = 0
    made: int = 0
