"""What podium takes and shows."""

from openenv.core.env_server.types import Action, Observation


class PodiumAction(Action):
    name: str
    points: int


class PodiumObservation(Observation):
    ranking: list[tuple[int, str]] = []
    library: str = ""
