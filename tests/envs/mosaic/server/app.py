"""The app of mosaic."""

from openenv.core.env_server.http_server import create_app

try:
    from ..models import MosaicAction, MosaicObservation
    from .mosaic_environment import MosaicEnvironment
except ImportError:
    from models import MosaicAction, MosaicObservation
    from server.mosaic_environment import MosaicEnvironment

app = create_app(MosaicEnvironment, MosaicAction, MosaicObservation, env_name="mosaic", max_concurrent_envs=4)


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
