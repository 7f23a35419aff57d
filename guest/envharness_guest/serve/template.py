"""The process that has imported the target: it is forked into workers, or becomes one.

It speaks JSON lines on a socket. The front sends `{"op": "load", …}`, then `{"op": "fork", "worker": n}` with two
descriptors (the worker's socket and the pipe of its output), or `{"op": "become", …}` to have this very process as a worker.
The template answers `{"loaded": …}`, `{"forked": n, "pid": …}`, and tells `{"exited": n, "status": …}`.
"""

import array
import gc
import json
import os
import select
import signal
import socket
import sys

from .errors import LoadError, text_of, trace_of


def receive_line(control, state):
    """The next line and the descriptors that came with it; None at the end."""
    while b"\n" not in state["rest"]:
        room = socket.CMSG_LEN(2 * array.array("i").itemsize)
        data, ancillary, _, _ = control.recvmsg(1 << 16, room)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors = array.array("i")
                descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
                state["fds"].extend(descriptors)
        if not data:
            return None, []
        state["rest"] += data
    line, _, state["rest"] = state["rest"].partition(b"\n")
    fds, state["fds"] = state["fds"], []
    return json.loads(line.decode()), fds


def tell(control, **message):
    control.sendall(json.dumps(message).encode() + b"\n")


PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def prctl(option, value):
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # not Linux: the socket's end does it


def die_with_parent():
    """SIGKILL when the parent ends, so that no worker is left behind."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class ServerEnded(BaseException):
    """SIGTERM, which the death of the server sends to the supervisor."""


def supervise():
    """Forks, and goes on in the child; the parent sees to it that nothing the child started outlives it or the server.

    It imports nothing and runs no code of an environment, so it is there when all else is killed. Daemons of environments,
    however often they fork, become its children when their parents end, and it ends them.
    """

    def ended(*_):
        raise ServerEnded

    signal.signal(signal.SIGTERM, ended)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        prctl(PR_SET_CHILD_SUBREAPER, 0)
        die_with_parent()
        return
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)  # the control socket is the child's alone
    status = -signal.SIGKILL
    try:
        while True:
            done, state = os.waitpid(-1, 0)
            if done == pid:
                status = state
                break
    except (ServerEnded, ChildProcessError):
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_children()
    if status >= 0 and os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status) if status >= 0 else signal.SIGKILL
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def end_children():
    """Kills children until there are none: those of a killed child become ours and are next."""
    while True:
        for child in children():
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children():
    """The process ids of our children."""
    own = str(os.getpid())
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/{}/stat".format(name), "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[1].decode() == own and fields[0] != b"Z":
                yield int(name)


def end_holders(inode):
    """Kills what still writes to the output pipe of a worker that has ended: its daemons."""
    wanted = "pipe:[{}]".format(inode)
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        for fd in ("1", "2"):
            try:
                if os.readlink("/proc/{}/fd/{}".format(name, fd)) == wanted:
                    os.kill(int(name), signal.SIGKILL)
                    break
            except OSError:
                continue


def reseed():
    """Workers of one template must not all draw the same numbers."""
    if "random" in sys.modules:
        sys.modules["random"].seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.seed()


def unforkable():
    """Why a fork of this process would not be sound; None where it is."""
    import threading

    if threading.active_count() > 1:
        names = sorted(t.name for t in threading.enumerate() if t is not threading.main_thread())
        return "importing it started threads: {}".format(", ".join(names[:5]))
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "importing it initialised CUDA"
    return None


def become(target, fds, mode, marker):
    """Turns this process into a worker; does not return."""
    data, log = fds
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ["ENVHARNESS_WORKER"] = marker
    try:
        os.setpgid(0, 0)
    except OSError:
        pass  # already the leader of a session
    die_with_parent()
    reseed()
    import faulthandler

    faulthandler.enable(2)
    sock = socket.socket(fileno=data)
    if mode == "async":
        from .aworker import AsyncWorker

        AsyncWorker(target, sock).run()
    from .worker import Worker

    Worker(target, sock).run()


class Template:
    """Forks workers on request and tells of their ends."""

    def __init__(self, control, target):
        self.control, self.target = control, target
        self.children = {}
        self.state = {"rest": b"", "fds": []}

    def run(self):
        # What was imported is not looked at by the collector of any fork, and its pages stay shared.
        gc.collect()
        gc.freeze()
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        pidfds = {}
        while True:
            try:
                ready = poll.poll(50 if len(pidfds) < len(self.children) else None)
            except InterruptedError:
                continue
            for fd, _ in ready:
                if fd in pidfds:
                    poll.unregister(fd)
                    os.close(fd)
                    del pidfds[fd]
            self.reap()
            if any(fd == self.control.fileno() for fd, _ in ready):
                message, fds = receive_line(self.control, self.state)
                if message is None or message["op"] == "quit":
                    os._exit(0)
                if message["op"] == "become":
                    self.control.close()
                    become(self.target, fds, message["mode"], message["marker"])
                pid = self.fork(message, fds)
                if hasattr(os, "pidfd_open"):
                    try:
                        fd = os.pidfd_open(pid)
                    except OSError:
                        continue
                    pidfds[fd] = pid
                    poll.register(fd, select.POLLIN)

    def fork(self, message, fds):
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                self.control.close()
                gc.enable()
                become(self.target, fds, message["mode"], message["marker"])
            finally:
                os._exit(70)
        self.children[pid] = message["worker"], os.fstat(fds[1]).st_ino
        for fd in fds:
            os.close(fd)
        tell(self.control, forked=message["worker"], pid=pid)
        return pid

    def reap(self):
        for pid in list(self.children):
            try:
                done, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                done, status = pid, -1
            if done:
                worker, pipe = self.children.pop(pid)
                tell(self.control, exited=worker, status=status)
                end_holders(pipe)


def main():
    """The start: takes the control socket from standard input, loads, and waits for orders."""
    supervise()
    control = socket.socket(fileno=os.dup(0))
    os.set_inheritable(control.fileno(), False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    state = {"rest": b"", "fds": []}
    message, _ = receive_line(control, state)
    if message is None:
        os._exit(0)
    from .load import load

    try:
        target, loaded = load(message)
    except BaseException as error:
        told = {"message": text_of(error), "kind": type(error).__name__}
        if isinstance(error, LoadError):
            told["hint"], told["missing"] = error.hint, error.missing
            cause = error.__cause__
            told["traceback"] = trace_of(cause) if cause is not None else ""
        else:
            told["traceback"] = trace_of(error)
        tell(control, failed=told)
        os._exit(1)
    loaded["unforkable"], loaded["pid"] = unforkable(), os.getpid()
    tell(control, loaded=loaded)
    template = Template(control, target)
    template.state = state
    template.run()
