"""The app of podium."""

from openenv.core.env_server.http_server import create_app

try:
    from ..models import PodiumAction, PodiumObservation
    from .podium_environment import PodiumEnvironment
except ImportError:
    from models import PodiumAction, PodiumObservation
    from server.podium_environment import PodiumEnvironment

app = create_app(PodiumEnvironment, PodiumAction, PodiumObservation, env_name="podium", max_concurrent_envs=4)


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
