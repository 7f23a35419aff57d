"""The app of tortoise."""

from openenv.core.env_server.http_server import create_app

try:
    from ..models import TortoiseAction, TortoiseObservation
    from .tortoise_environment import TortoiseEnvironment
except ImportError:
    from models import TortoiseAction, TortoiseObservation
    from server.tortoise_environment import TortoiseEnvironment

app = create_app(TortoiseEnvironment, TortoiseAction, TortoiseObservation, env_name="tortoise", max_concurrent_envs=64)


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
