"""What homebody takes and shows."""

from openenv.core.env_server.types import Action, Observation


class HomebodyAction(Action):
    word: str = ""


class HomebodyObservation(Observation):
    at_home: bool = False
    visits: list[str] = []
