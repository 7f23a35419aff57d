"""The app of ledger."""

from openenv.core.env_server.http_server import create_app

try:
    from ..models import LedgerAction, LedgerObservation, LedgerState
    from .ledger_environment import LedgerEnvironment
except ImportError:
    from models import LedgerAction, LedgerObservation, LedgerState
    from server.ledger_environment import LedgerEnvironment

app = create_app(LedgerEnvironment, LedgerAction, LedgerObservation, env_name="ledger", max_concurrent_envs=4, state_cls=LedgerState)


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
