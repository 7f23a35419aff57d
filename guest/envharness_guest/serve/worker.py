"""A worker for synchronous environments: sessions on the main thread, or each on a thread of its own."""

import asyncio
import inspect
import os
import sys
import threading
from queue import SimpleQueue
from time import monotonic, perf_counter, sleep

from . import capture, frames
from .errors import trace_of
from .jsontext import dump_plain
from .session import Session, fresh

#: Steps that must have measured below FAST at p99 before a class runs on the main thread.
LEARN_FROM = 200
FAST = 0.001
#: A step on the main thread that takes longer makes later sessions run on threads.
SLOW = 0.05
#: Answers wait for others of the same batch for this long at most.
GATHER = 0.001
#: What a session's thread needs: deep recursion in an environment must not be its limit, nor thousands of threads the machine's.
STACK = 1 << 20


class Channel:
    """The socket to the front, for any thread."""

    def __init__(self, sock):
        self.sock = sock
        self._lock = threading.Lock()

    def send(self, data):
        with self._lock:
            self.sock.sendall(data)

    def answer(self, kind, flags, session, request, payload):
        self.send(frames.answer(kind, flags, session, request, payload))

    def log(self, session, stream, text):
        self.answer(frames.LOG, 0, session, 0, bytes((stream,)) + text.encode("utf-8", "replace"))

    def event(self, **event):
        self.answer(frames.EVENT, 0, 0, 0, dump_plain(event))


def run_coroutine(call):
    """The value of a call that may give an awaitable, on a thread without a loop."""
    value = call()
    if not inspect.isawaitable(value):
        return value

    async def wait():
        return await value

    return asyncio.run(wait())


def perform(session, op, flags, payload):
    """One request on this thread."""
    if op == frames.STEP:
        return session.step(flags, payload)
    if op == frames.RESET:
        return session.reset(flags, payload)
    if op == frames.STATE:
        return session.state(flags)
    try:
        if op == frames.OPEN:
            return session.open(payload)
        if op == frames.RENDER:
            return session.drawn(run_coroutine(session.render_call()))
        if op == frames.MCP:
            from .jsontext import dumps

            method, arguments, shape = session.mcp_call(payload)
            return frames.OK, 0, dumps(shape(run_coroutine(lambda: method(*arguments))))[0]
    except BaseException as error:
        return session.failed(error)
    return session.close()


def ask_fresh(target, op, payload):
    """A question to a fresh instance, on this thread."""
    probe = Session(target, 0)
    try:
        instance, name, call, shape = fresh(target, op, payload)
        probe.instance = instance
        try:
            value = shape(run_coroutine(call))
        except BaseException as error:
            from .target import Tasks

            return probe.failed(Tasks.error(name, error))
        return frames.OK, 0, value
    except BaseException as error:
        return probe.failed(error)
    finally:
        probe.close()


class Learner:
    """Decides from measured steps whether a class may run on the main thread."""

    def __init__(self, channel):
        self._channel, self._times, self._told = channel, [], False

    def on_thread(self, seconds):
        if self._told:
            return
        self._times.append(seconds)
        if len(self._times) >= LEARN_FROM:
            times, self._times = sorted(self._times), []
            if times[int(len(times) * 0.99) - 1] < FAST:
                self._told = True
                self._channel.event(event="mode", mode="inline")

    def on_main(self, seconds):
        if seconds > SLOW and not self._told:
            self._told = True
            self._channel.event(event="mode", mode="thread")


class ThreadRunner:
    """A session on a thread of its own: constructor, calls and close, as thread-bound libraries need it."""

    def __init__(self, worker, session):
        self._worker, self._session, self._queue = worker, session, SimpleQueue()
        self.put = self._queue.put
        threading.Thread(target=self._run, name="session-{}".format(session.id), daemon=True).start()

    def _run(self):
        session, worker = self._session, self._worker
        capture.current.set(session.id)
        while True:
            op, flags, request, payload = self._queue.get()
            began = perf_counter()
            kind, bits, data = perform(session, op, flags, payload)
            if op == frames.STEP:
                worker.learner.on_thread(perf_counter() - began)
            if op == frames.CLOSE:
                worker.forget(session.id)
            worker.channel.answer(kind, bits, session.id, request, data)
            if op == frames.CLOSE or (op == frames.OPEN and kind != frames.OK):
                return


class Worker:
    """Serves one socket until its other end closes."""

    def __init__(self, target, sock):
        self.target, self.channel = target, Channel(sock)
        self.learner = Learner(self.channel)
        self.sessions = {}
        threading.stack_size(STACK)

    def forget(self, session):
        """The session is closed; what it had printed goes out."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, capture.SessionStream):
                stream.forget(session)
        self.sessions.pop(session, None)

    def run(self):
        receive = self.channel.sock.recv
        reader = frames.Reader()
        capture.install(self.channel.log)
        while True:
            try:
                data = receive(1 << 18)
            except InterruptedError:
                continue
            if not data:
                return self.end()
            self.batch(reader.feed(data))

    def batch(self, batch):
        """Answers a batch. Sessions of the main thread answer together, but none waits long for another."""
        out, began = [], perf_counter()
        sessions, set_current, pack = self.sessions, capture.current.set, frames.answer
        before = began
        for op, flags, session, request, payload in batch:
            runner = sessions.get(session)
            if type(runner) is Session:
                set_current(session)
                if op == frames.STEP:
                    kind, bits, data = runner.step(flags, payload)
                    now = perf_counter()
                    if now - before > SLOW:
                        self.learner.on_main(now - before)
                else:
                    kind, bits, data = perform(runner, op, flags, payload)
                    now = perf_counter()
                    if op == frames.CLOSE:
                        self.forget(session)
            elif runner is not None:
                runner.put((op, flags, request, payload))
                continue
            else:
                answer = self.without_session(op, flags, session, request, payload)
                if answer is None:
                    continue
                kind, bits, data = answer
                now = perf_counter()
            out.append(pack(kind, bits, session, request, data))
            before = now
            if now - began > GATHER:
                self.channel.send(b"".join(out))
                out, began = [], now
        set_current(0)
        if out:
            self.channel.send(b"".join(out))

    def without_session(self, op, flags, session, request, payload):
        if op == frames.PING:
            return frames.OK, 0, b""
        if op in (frames.TASK, frames.METADATA):
            # It may be slow, and sessions must not wait for it.
            def ask():
                kind, bits, data = ask_fresh(self.target, op, payload)
                self.channel.answer(kind, bits, session, request, data)

            threading.Thread(target=ask, daemon=True).start()
            return None
        if op != frames.OPEN:
            return frames.FAILED, 0, dump_plain({"code": "SESSION_ERROR", "message": "Unknown session"})
        made = Session(self.target, session)
        if not flags & frames.INLINE:
            self.sessions[session] = runner = ThreadRunner(self, made)
            # Every thread that waits for the interpreter wakes once in this time to ask for it: with thousands of threads
            # that alone would keep the cores busy.
            sys.setswitchinterval(0.005 * max(1.0, len(self.sessions) / 64))
            runner.put((op, flags, request, payload))
            return None
        capture.current.set(session)
        answer = perform(made, op, flags, payload)
        capture.current.set(0)
        if answer[0] == frames.OK:
            self.sessions[session] = made
        return answer

    def end(self):
        """The front is gone: instances are closed, but not waited for."""

        def close(runner):
            if isinstance(runner, ThreadRunner):
                runner.put((frames.CLOSE, 0, 0, b""))
            else:
                try:
                    runner.close()
                except BaseException as error:
                    print(trace_of(error))
                self.sessions.pop(runner.id, None)

        def close_all():
            for runner in list(self.sessions.values()):
                close(runner)

        closer = threading.Thread(target=close_all, daemon=True)
        until = monotonic() + 2
        closer.start()
        closer.join(2)
        # Sessions with a thread of their own close there.
        while self.sessions and monotonic() < until:
            sleep(0.005)
        os._exit(0)
