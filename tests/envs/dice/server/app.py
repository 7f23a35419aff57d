"""The app of dice: sides and count come from the environment of the process."""

import os

from openenv.core.env_server.http_server import create_app

try:
    from ..models import DiceAction, DiceObservation
    from .dice_environment import DiceEnvironment
except ImportError:
    from models import DiceAction, DiceObservation
    from server.dice_environment import DiceEnvironment

SIDES = int(os.getenv("DICE_SIDES", "6"))
COUNT = int(os.getenv("DICE_COUNT", "3"))


def create_dice_environment():
    """Make one with the arguments of this process."""
    return DiceEnvironment(SIDES, count=COUNT)


app = create_app(create_dice_environment, DiceAction, DiceObservation, max_concurrent_envs=4)


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
