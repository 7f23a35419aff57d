"""The app of margin."""

from openenv.core.env_server.http_server import create_app

try:
    from ..models import MarginAction, MarginObservation
    from .margin_environment import MarginEnvironment
except ImportError:
    from models import MarginAction, MarginObservation
    from server.margin_environment import MarginEnvironment

app = create_app(MarginEnvironment, MarginAction, MarginObservation, env_name="margin", max_concurrent_envs=4)


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
