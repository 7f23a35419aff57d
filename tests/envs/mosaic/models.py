"""What mosaic takes and shows."""

from typing import List

from openenv.core.env_server.types import Action, Observation


class MosaicAction(Action):
    row: int
    column: int
    value: int


class MosaicObservation(Observation):
    grid: List[List[int]] = []
    text: str = ""
