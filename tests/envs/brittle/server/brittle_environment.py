"""An environment that ends or stalls its process by every means it is told, in the method it is told."""

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Optional

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

try:
    from ..models import BrittleAction, BrittleObservation
except ImportError:
    from models import BrittleAction, BrittleObservation

#: A file in this folder named by a method says how that method ends, once.
ORDERS = Path(os.getenv("BRITTLE_ORDERS", "/nonexistent"))


def deeper(n: int) -> int:
    return deeper(n + 1) + 1


def overflow() -> None:
    """End the stack itself; interpreters that count C's depth raise RecursionError."""
    value: list = []
    for _ in range(1_000_000):
        value = [value]
    sys.setrecursionlimit(2**31 - 1)
    repr(value)


def end(how: str) -> None:
    """Do what is asked; what is not known is nothing to do."""
    if how == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "sigsegv":
        faulthandler.disable()
        ctypes.string_at(0)
    elif how == "sigabrt":
        os.abort()
    elif how == "sigbus":
        signal.pthread_kill(threading.get_ident(), signal.SIGBUS)
    elif how == "exit":
        os._exit(0)
    elif how == "sys_exit":
        sys.exit(3)
    elif how == "recursion":
        deeper(0)
    elif how == "overflow":
        overflow()
    elif how == "memory":
        raise MemoryError("no memory for this")
    elif how == "stop":
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif how == "busy":
        while True:
            pass
    elif how == "sleep":
        time.sleep(3600)
    elif how == "deaf":
        ctypes.CDLL(None).signal(signal.SIGTERM, 1)
        time.sleep(3600)
    elif how == "gil":
        ctypes.PyDLL(None).sleep(3600)
    elif how == "print":
        os.write(1, b"o" * 1_000_000 + b"\n")
        os.write(2, b"e" * 1_000_000 + b"\n")
    elif how == "thread":
        threading.Thread(target=time.sleep, args=(3600,), daemon=False).start()
    elif how == "child":
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(3600)
            os._exit(0)


def obey(method: str) -> None:
    order = ORDERS / method
    try:
        how = order.read_text()
        order.unlink()
    except OSError:
        return
    end(how)


class BrittleEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        obey("init")
        self.count = 0
        self._state = State(episode_id="brittle", step_count=0)

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, how: str = "") -> BrittleObservation:
        self.count = seed or 0
        self._state = State(episode_id=episode_id or "brittle", step_count=0)
        end(how)
        return BrittleObservation(count=self.count, pid=os.getpid())

    def step(self, action: BrittleAction, timeout_s: Optional[float] = None, **kwargs: Any) -> BrittleObservation:
        self.count += 1
        self._state.step_count += 1
        end(action.how)
        return BrittleObservation(count=self.count, pid=os.getpid(), reward=self.count)

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        obey("close")
