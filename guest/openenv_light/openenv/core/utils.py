"""Small helpers of clients and environments."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor


def run_async_safely(coro):
    """The result of a coroutine, whether or not an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coro)
    # A running loop cannot be entered a second time; another thread gets one of its own.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, coro).result()


def convert_to_ws_url(url):
    """The WebSocket form of a server's URL; without a scheme it is plain."""
    url = url.rstrip("/")
    if url.startswith("http://"):
        return "ws://" + url[len("http://") :]
    if url.startswith("https://"):
        return "wss://" + url[len("https://") :]
    if url.startswith(("ws://", "wss://")):
        return url
    return "ws://" + url


def hf_space_subdomain(repo_id):
    """The name under which a Space of the Hub is served: lower case, with dashes."""
    return re.sub(r"[^a-z0-9]", "-", repo_id.lower())


def __getattr__(name):
    from .. import _missing

    raise _missing.name(__name__, name)
