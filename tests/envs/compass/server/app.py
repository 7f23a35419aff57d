"""The app of compass."""

from openenv.core.env_server.http_server import create_app

try:
    from ..models import CompassAction, CompassObservation, CompassState
    from .compass_environment import CompassEnvironment
except ImportError:
    from models import CompassAction, CompassObservation, CompassState
    from server.compass_environment import CompassEnvironment

app = create_app(CompassEnvironment, CompassAction, CompassObservation, env_name="compass", max_concurrent_envs=4, state_cls=CompassState)


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
