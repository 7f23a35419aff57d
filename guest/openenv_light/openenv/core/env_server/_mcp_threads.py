"""Where tools run: threads without an event loop for sync ones, one loop for those that await.

A thread hop costs some tens of microseconds, a new event loop for each call a thousand. Sync tools run where no loop runs, so
that they may start one themselves. Nothing starts before the first call, and a forked child starts its own.
"""

import asyncio
import contextvars
import os
import queue
import threading


class _Job:
    """A function on its way through a thread."""

    __slots__ = ("context", "done", "error", "function", "value")

    def __init__(self, function):
        self.function = function
        self.context = contextvars.copy_context()
        self.done = threading.Lock()
        self.done.acquire()
        self.value = self.error = None

    def run(self):
        try:
            self.value = self.context.run(self.function)
        except BaseException as error:
            self.error = error
        self.done.release()


class _Thread:
    """One thread that runs one job after the other."""

    def __init__(self):
        self.jobs = queue.SimpleQueue()
        threading.Thread(target=self._work, name="openenv-tool", daemon=True).start()

    def _work(self):
        while True:
            job = self.jobs.get()
            if job is None:
                return
            job.run()
            # A waiting thread holds nothing of the last call.
            del job

    def give_up(self):
        """Ends the thread once its job does."""
        self.jobs.put(None)


class _Process:
    """Idle threads and the loop of one process."""

    def __init__(self):
        self.pid = os.getpid()
        self.idle = []
        self.lock = threading.Lock()
        self.loop = None
        self.loop_thread = None

    def start_loop(self):
        with self.lock:
            if self.loop is None:
                loop = asyncio.new_event_loop()
                self.loop_thread = threading.Thread(target=_run_loop, args=(loop,), name="openenv-tools", daemon=True)
                self.loop_thread.start()
                self.loop = loop
        return self.loop


def _run_loop(loop):
    asyncio.set_event_loop(loop)
    loop.run_forever()


_process = None


def _here():
    global _process
    if _process is None or _process.pid != os.getpid():
        _process = _Process()
    return _process


def call(function, timeout):
    """Runs a function in a thread; asyncio.TimeoutError where it takes longer, and then it goes on unheard."""
    process = _here()
    try:
        thread = process.idle.pop()
    except IndexError:
        thread = _Thread()
    job = _Job(function)
    thread.jobs.put(job)
    if not job.done.acquire(timeout=threading.TIMEOUT_MAX if timeout is None else max(timeout, 0)):
        thread.give_up()
        raise asyncio.TimeoutError()
    process.idle.append(thread)
    if job.error is not None:
        raise job.error
    return job.value


def on_loop():
    """Whether this thread is the one of the loop, where waiting for the loop would wait for ever."""
    process = _here()
    return process.loop_thread is threading.current_thread()


def await_here(coroutine, timeout=None):
    """The result of a coroutine, run on the process's loop; this thread waits."""
    if on_loop():
        # A tool that awaits called the sync interface: a loop of its own, in a thread of its own.
        return call(lambda: asyncio.run(asyncio.wait_for(coroutine, timeout)), None)
    loop = _here().start_loop()
    return asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, timeout), loop).result()


async def call_async(function, timeout):
    """``call`` for code on an event loop."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    process = _here()
    try:
        thread = process.idle.pop()
    except IndexError:
        thread = _Thread()

    def settle(job):
        if future.done():
            return
        if job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(job.value)

    def work():
        # The job reports to the loop itself, so that nobody waits for its lock.
        inner.run()
        try:
            loop.call_soon_threadsafe(settle, inner)
        except RuntimeError:
            # The loop was closed meanwhile: nobody listens.
            pass

    inner = _Job(function)
    thread.jobs.put(_Job(work))
    try:
        value = await asyncio.wait_for(future, timeout)
    except (asyncio.TimeoutError, asyncio.CancelledError):
        thread.give_up()
        raise
    except BaseException:
        process.idle.append(thread)
        raise
    process.idle.append(thread)
    return value
