"""What dice takes and shows."""

from openenv.core.env_server.types import Action, Observation


class DiceAction(Action):
    keep: list[bool] = []


class DiceObservation(Observation):
    rolled: list[int] = []
    sides: int = 0
