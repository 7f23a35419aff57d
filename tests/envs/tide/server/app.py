"""The app of tide."""

from openenv.core.env_server import create_app

try:
    from ..models import TideAction, TideObservation
    from .tide_environment import TideEnvironment
except ImportError:
    from models import TideAction, TideObservation
    from server.tide_environment import TideEnvironment

app = create_app(TideEnvironment, TideAction, TideObservation, env_name="tide", max_concurrent_envs=4)


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
