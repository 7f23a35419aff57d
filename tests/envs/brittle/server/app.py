"""The app of brittle."""

import os

from openenv.core.env_server.http_server import create_app

try:
    from ..models import BrittleAction, BrittleObservation
    from .brittle_environment import BrittleEnvironment
except ImportError:
    from models import BrittleAction, BrittleObservation
    from server.brittle_environment import BrittleEnvironment

app = create_app(BrittleEnvironment, BrittleAction, BrittleObservation, env_name="brittle", max_concurrent_envs=int(os.getenv("MAX_CONCURRENT_ENVS", "64")))


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
