"""The app of homebody."""

from openenv.core.env_server.http_server import create_app

try:
    from ..models import HomebodyAction, HomebodyObservation
    from .homebody_environment import HomebodyEnvironment
except ImportError:
    from models import HomebodyAction, HomebodyObservation
    from server.homebody_environment import HomebodyEnvironment

app = create_app(HomebodyEnvironment, HomebodyAction, HomebodyObservation, env_name="homebody", max_concurrent_envs=8)


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
