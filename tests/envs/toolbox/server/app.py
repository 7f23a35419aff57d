"""The app of toolbox."""

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

try:
    from .toolbox_environment import ToolboxEnvironment
except ImportError:
    from server.toolbox_environment import ToolboxEnvironment

app = create_app(ToolboxEnvironment, CallToolAction, CallToolObservation, env_name="toolbox", max_concurrent_envs=4)


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
