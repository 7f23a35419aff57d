"""An environment whose fields hold objects of a plain class."""

from typing import Any, Optional

from openenv.core.env_server.interfaces import Environment

try:
    from ..models import CompassAction, CompassObservation, CompassState, Heading
except ImportError:
    from models import CompassAction, CompassObservation, CompassState, Heading


class CompassEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.trail: list[Heading] = []
        self._state = CompassState(episode_id="compass")

    def reset(self, seed: Optional[int] = None, **kwargs: Any) -> CompassObservation:
        self.trail = []
        self._state = CompassState(episode_id="compass", heading=Heading(seed or 0))
        return CompassObservation(heading=self._state.heading)

    def step(self, action: CompassAction, **kwargs: Any) -> CompassObservation:
        if not isinstance(action.turn_to, Heading):
            raise TypeError(f"a {type(action.turn_to).__name__} is no heading")
        self.trail.append(self._state.heading)
        self._state.heading = action.turn_to
        self._state.step_count += 1
        return CompassObservation(heading=action.turn_to, trail=self.trail)

    @property
    def state(self) -> CompassState:
        return self._state
