"""What crossroads takes and shows."""

from openenv.core.env_server.types import Action, Observation


class CrossroadsAction(Action):
    way: str


class CrossroadsObservation(Observation):
    ways: list[str] = []
