"""The app of parrot."""

from openenv.core.env_server.http_server import create_app

try:
    from ..models import ParrotAction, ParrotObservation
    from .parrot_environment import ParrotEnvironment
except ImportError:
    from models import ParrotAction, ParrotObservation
    from server.parrot_environment import ParrotEnvironment

app = create_app(ParrotEnvironment, ParrotAction, ParrotObservation, env_name="parrot", max_concurrent_envs=8)


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
