"""A worker for asynchronous environments: one event loop, a task for each request."""

import asyncio
import inspect
import os
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from . import capture, frames
from .errors import Failure
from .jsontext import dump_plain, dumps
from .session import Session, fresh
from .target import Tasks
from .worker import Channel


class AsyncSession:
    """A session whose requests are answered one after the other, without a thread while it is idle."""

    __slots__ = ("session", "worker", "queue", "busy", "executor", "stack")

    def __init__(self, worker, session):
        self.session, self.worker = session, worker
        self.queue, self.busy, self.executor, self.stack = deque(), False, None, None

    def put(self, item):
        self.queue.append(item)
        if not self.busy:
            self.busy = True
            self.worker.loop.create_task(self.drain())

    async def drain(self):
        capture.current.set(self.session.id)
        while self.queue:
            op, flags, request, payload = self.queue.popleft()
            try:
                kind, bits, data = await self.perform(op, flags, payload)
            except BaseException as error:
                kind, bits, data = self.session.failed(error)
            self.worker.answer(kind, bits, self.session.id, request, data)
            if op == frames.CLOSE or (op == frames.OPEN and kind != frames.OK):
                self.worker.forget(self.session.id)
                return
        self.busy = False

    async def on_thread(self, function):
        """Runs what is synchronous on the session's own thread, made when first needed."""
        if self.executor is None:
            self.executor = ThreadPoolExecutor(1)

        def run():
            capture.current.set(self.session.id)
            return function()

        return await self.worker.loop.run_in_executor(self.executor, run)

    async def perform(self, op, flags, payload):
        session = self.session
        if op == frames.STEP:
            method, action, arguments = session.step_call(flags, payload)
            if session.step_async:
                value = await method(action, **arguments)
            else:
                value = await self.on_thread(lambda: method(action, **arguments))
            return session.observed(value, flags)
        if op == frames.RESET:
            method, arguments = session.reset_call(flags, payload)
            value = await method(**arguments) if session.reset_async else await self.on_thread(lambda: method(**arguments))
            return session.observed(value, flags)
        if op == frames.STATE:
            return session.state(flags)
        if op == frames.OPEN:
            return await self.open(payload)
        if op == frames.RENDER:
            draw = session.render_call()
            picture = await draw() if inspect.iscoroutinefunction(draw) else await self.on_thread(draw)
            return session.drawn(picture)
        if op == frames.MCP:
            method, arguments, shape = session.mcp_call(payload)
            return frames.OK, 0, dumps(shape(await method(*arguments)))[0]
        return await self.close()

    async def open(self, payload):
        # A constructor may block; the pool is shared, since no call of an asynchronous class has a thread of its own.
        answer = await self.worker.loop.run_in_executor(self.worker.pool, self.session.open, payload)
        enter = getattr(self.session.instance, "mcp_session", None)
        if callable(enter):
            self.stack = enter()
            try:
                await self.stack.__aenter__()
            except BaseException:
                self.stack = None
                raise
        return answer

    async def close(self):
        try:
            if self.stack is not None:
                await self.stack.__aexit__(None, None, None)
        except BaseException as error:
            print("closing the tool session: {!r}".format(error))
        executor = self.executor or self.worker.pool
        answer = await self.worker.loop.run_in_executor(executor, self.session.close)
        if self.executor is not None:
            self.executor.shutdown(wait=False)
        return answer


class AsyncWorker:
    """Serves one socket until its other end closes."""

    def __init__(self, target, sock):
        self.target, self.channel = target, Channel(sock)
        self.sessions = {}
        self.loop = self.pool = None
        self._out, self._reader = [], frames.Reader()

    def run(self):
        asyncio.run(self.main())
        os._exit(0)

    async def main(self):
        self.loop = asyncio.get_running_loop()
        self.pool = ThreadPoolExecutor(32)
        capture.install(self.channel.log)
        ended = self.loop.create_future()
        sock = self.channel.sock

        def readable():
            import socket

            try:
                data = sock.recv(1 << 18, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                return
            if not data:
                self.loop.remove_reader(sock.fileno())
                if not ended.done():
                    ended.set_result(None)
                return
            for frame in self._reader.feed(data):
                self.dispatch(*frame)

        self.loop.add_reader(sock.fileno(), readable)
        await ended
        waiting = []
        for session in list(self.sessions.values()):
            waiting.append(asyncio.ensure_future(session.close()))
        if waiting:
            await asyncio.wait(waiting, timeout=2)
        os._exit(0)

    def answer(self, kind, flags, session, request, payload):
        """Answers of one turn of the loop leave together."""
        if not self._out:
            self.loop.call_soon(self.flush)
        self._out.append(frames.answer(kind, flags, session, request, payload))

    def flush(self):
        out, self._out = self._out, []
        self.channel.send(b"".join(out))

    def forget(self, session):
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, capture.SessionStream):
                stream.forget(session)
        self.sessions.pop(session, None)

    def dispatch(self, op, flags, session, request, payload):
        runner = self.sessions.get(session)
        if runner is not None:
            runner.put((op, flags, request, payload))
        elif op == frames.PING:
            self.answer(frames.OK, 0, session, request, b"")
        elif op in (frames.TASK, frames.METADATA):
            self.loop.create_task(self.ask(op, session, request, payload))
        elif op == frames.OPEN:
            self.sessions[session] = runner = AsyncSession(self, Session(self.target, session))
            runner.put((op, flags, request, payload))
        else:
            self.answer(frames.FAILED, 0, session, request, dump_plain({"code": "SESSION_ERROR", "message": "Unknown session"}))

    async def ask(self, op, session, request, payload):
        """A question to a fresh instance."""
        probe, name = Session(self.target, 0), ""
        try:
            made = await self.loop.run_in_executor(self.pool, lambda: fresh(self.target, op, payload))
            probe.instance, name, call, shape = made
            value = await self.loop.run_in_executor(self.pool, call)
            if inspect.isawaitable(value):
                value = await value
            reply = frames.OK, 0, shape(value)
        except BaseException as error:
            if name and not isinstance(error, Failure):
                error = Tasks.error(name, error)
            reply = probe.failed(error)
        await self.loop.run_in_executor(self.pool, probe.close)
        self.answer(reply[0], reply[1], session, request, reply[2])
