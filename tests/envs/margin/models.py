"""What margin takes and shows."""

from typing import Any, Dict, List, Optional, Union

from openenv.core.env_server.interfaces import Action, Observation
from pydantic import Field


class MarginAction(Action):
    line: int
    text: Union[str, List[str]] = ""


class MarginObservation(Observation):
    page: Optional[str] = None
    legal: List[int] = Field(default_factory=list)
    info: Dict[str, Any] = Field(default_factory=dict)
