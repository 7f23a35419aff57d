"""What compass takes and shows; Heading is a plain class."""

from openenv.core.env_server.types import Action, Observation, State


class Heading:
    """Degrees from north; not a pydantic model."""

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees % 360

    def to_json(self) -> dict:
        return {"degrees": self.degrees}

    @classmethod
    def from_json(cls, value: dict) -> "Heading":
        return cls(value["degrees"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heading) and other.degrees == self.degrees

    __hash__ = None


class CompassAction(Action):
    turn_to: Heading


class CompassObservation(Observation):
    heading: Heading = Heading(0)
    trail: list[Heading] = []


class CompassState(State):
    heading: Heading = Heading(0)
