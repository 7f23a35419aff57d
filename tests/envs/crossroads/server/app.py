"""The app of crossroads."""

from fastapi import Request, WebSocket
from fastapi.responses import StreamingResponse
from openenv.core.env_server.http_server import create_app

try:
    from ..models import CrossroadsAction, CrossroadsObservation
    from .crossroads_environment import CrossroadsEnvironment
except ImportError:
    from models import CrossroadsAction, CrossroadsObservation
    from server.crossroads_environment import CrossroadsEnvironment

app = create_app(CrossroadsEnvironment, CrossroadsAction, CrossroadsObservation, env_name="crossroads", max_concurrent_envs=4)


@app.get("/extra")
def extra():
    """Answer beside the environment's own routes."""
    return {"extra": True}


@app.post("/extra/echo")
async def echo(request: Request):
    body = await request.body()
    return {"query": dict(request.query_params), "body": body.decode(), "length": len(body)}


@app.get("/extra/stream")
def stream():
    return StreamingResponse((f"part {n}\n" for n in range(100)), media_type="text/plain", headers={"x-own": "1"})


@app.websocket("/extra/socket")
async def socket(websocket: WebSocket):
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text[::-1])


def main(host: str = "127.0.0.1", port: int = 8000):
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
