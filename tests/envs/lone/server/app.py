"""The app of lone."""

from openenv.core.env_server.http_server import create_app

try:
    from ..models import LoneAction, LoneObservation
    from .lone_environment import LoneEnvironment
except ImportError:
    from models import LoneAction, LoneObservation
    from server.lone_environment import LoneEnvironment

app = create_app(LoneEnvironment, LoneAction, LoneObservation, env_name="lone")


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
