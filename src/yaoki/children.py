"""Child processes of our own: how they are started, talked to, killed, and how they ended.

A child is a new interpreter, never a fork. It leads a session of its own, so a signal to its
parent's process group (Ctrl-C, a supervisor's killpg) does not reach it, and one to its own group
reaches all that it started. It is told what to do over a line, and hears on it that its parent is
gone. Nothing is pickled.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

Target = Callable[["Line", Any], int | None]
"""What a child runs: it gets its line and its arguments, and returns its exit code."""

LOOK_EVERY = 0.05
"""Seconds between two looks whether a child lives, where the system cannot tell at once."""

HEARD = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)
)
"""The signals that a child does not hear before it has said by `hear` what they mean."""


class Gone(Exception):
    """The other end of the line is closed: that process has ended, or will never say more."""


def pipe(duplex: bool = True) -> tuple[Any, Any]:
    """Two connections to each other; from the first to the second only, unless `duplex`."""
    # Imported when it is needed: an app that only enqueues has no use for it.
    from multiprocessing.connection import Pipe

    one, other = Pipe(duplex)
    return (one, other) if duplex else (other, one)


def wait_for(things: Sequence[Any], timeout: float | None = None) -> list[Any]:
    """Those of some connections and descriptors that can be read, or are closed."""
    from multiprocessing.connection import wait

    return wait(things, timeout)


class Line:
    """One end of the line between a process and its child: messages, whole or not at all."""

    def __init__(self, end: Any) -> None:
        self.end = end
        """The connection itself, for `wait_for`."""
        self._lock = threading.Lock()

    def send(self, message: object) -> bool:
        """Say it; False when nobody is there any more. From any thread."""
        said = msgspec.msgpack.encode(message)
        with self._lock, suppress(OSError, ValueError):
            self.end.send_bytes(said)
            return True
        return False

    def receive(self, kind: type[T], timeout: float | None = None) -> T | None:
        """The next message; None after `timeout` seconds without one (None: no limit). Gone."""
        said = self.take(timeout)
        return None if said is None else msgspec.msgpack.decode(said, type=kind)

    def take(self, timeout: float | None = None) -> bytes | None:
        """The same, as it came."""
        try:
            if timeout is not None and not self.end.poll(timeout):
                return None
            said: bytes = self.end.recv_bytes()
        except (OSError, EOFError, ValueError):
            raise Gone from None
        return said

    def close(self) -> None:
        with suppress(OSError):
            self.end.close()


class Child:
    """A process that was started here. Its methods may be called from any thread."""

    def __init__(self, running: "subprocess.Popen[bytes]", line: Line) -> None:
        self.pid, self.line = running.pid, line
        self._running, self._lock = running, threading.Lock()
        self._watch = _death_watch(running.pid)
        self.spares_rest = True
        """What it had started may go on when it has exited by itself."""

    def send(self, message: object) -> bool:
        """Say it to the child; False when it is gone."""
        return self.line.send(message)

    def receive(self, kind: type[T], timeout: float | None = None) -> T | None:
        """The child's next message; None when there was none in time. Gone when it has ended.

        What it had said before it ended is read first, also when it left a process behind that
        holds the line open.
        """
        said = self.take(timeout)
        return None if said is None else msgspec.msgpack.decode(said, type=kind)

    def take(self, timeout: float | None = None) -> bytes | None:
        """The same, as it came."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            ended = self.ended
            wait = 0.0 if ended else self._next_look(end)
            if self.line.end in wait_for([self.line.end, *self.watches], wait):
                return self._said()
            if ended:
                raise Gone
            if end is not None and time.monotonic() >= end:
                return None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False when it has not in time."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.ended:
            if end is not None and time.monotonic() >= end:
                return False
            if self._watch is None:
                time.sleep(LOOK_EVERY)
            else:
                wait_for(self.watches, self._next_look(end))
        return True

    def _said(self) -> bytes | None:
        try:
            return self.line.take()
        except Gone:
            self.wait(1.0)  # its line is closed a moment before the system says that it ended
            raise

    def _next_look(self, end: float | None) -> float | None:
        waits = [] if self._watch is not None else [LOOK_EVERY]
        if end is not None:
            waits.append(max(end - time.monotonic(), 0.0))
        return min(waits, default=None)

    @property
    def watches(self) -> list[int]:
        """What becomes readable when the child ends, where there is such a thing."""
        return [] if self._watch is None else [self._watch]

    @property
    def ended(self) -> bool:
        """It has ended. What it had started is killed with it, unless it ended by itself."""
        with self._lock:
            if self._running.returncode is None and _has_ended(self._running):
                if not (self.spares_rest and _ended_well(self._running)):
                    _kill_group(self._running)
                self._running.wait()
            return self._running.returncode is not None

    def kill(self) -> None:
        """SIGKILL to the child and all that it started. No harm when it has ended already."""
        with self._lock:
            if self._running.returncode is None:
                _kill_group(self._running)

    def signal(self, number: int) -> None:
        """Send a signal to the child alone."""
        with self._lock, suppress(OSError):
            if self._running.returncode is None:
                self._running.send_signal(number)

    @property
    def exit_code(self) -> int | None:
        """None while it lives; -9 when signal 9 killed it."""
        return self._running.returncode if self.ended else None

    @property
    def how_it_ended(self) -> str:
        """In words that follow its name: "killed by signal 9 (SIGKILL)", "exited with code 3"."""
        code = self.exit_code
        return "still runs" if code is None else in_words(code)

    def close(self) -> None:
        """Let go of it; nobody may be waiting. A child that lives hears that its parent is gone."""
        self.line.close()
        watch, self._watch = self._watch, None
        if watch is not None:
            os.close(watch)


def start(target: str, args: object = None, *, with_main: bool = False) -> Child:
    """Run `module:function` in a new process; `args` is anything that msgspec can encode.

    The function gets its end of the line and the arguments, as plain values. `with_main`: the
    child imports the parent's `__main__` first, as multiprocessing does (as `__mp_main__`), for
    what is defined there.
    """
    ours, theirs = pipe()
    try:
        with _deaf():
            running = _started(theirs)
    finally:
        theirs.close()
    child = Child(running, Line(ours))
    child.send({"target": target, "args": args, "main": _main() if with_main else {}})
    return child


def hear(heard: Callable[[int], None]) -> None:
    """In a child: from now on `heard` gets each SIGTERM and SIGINT, those until now included.

    In the main thread. To be called again when other code may have set handlers of its own.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        heard(number)

    for number in HEARD:
        signal.signal(number, handle)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)


def imports_program() -> bool:
    """Is a new process importing the program that began it, ours or one of multiprocessing's?"""
    known: Any = sys.modules.get("multiprocessing.process")
    return known is not None and getattr(known.current_process(), "_inheriting", False)


def is_child() -> bool:
    """Is this one of our own?"""
    return _is_child


_is_child = False


def in_words(code: int) -> str:
    """How a process ended, by its exit code."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"killed by signal {-code}"


# The parent's side


def _started(theirs: Any) -> "subprocess.Popen[bytes]":
    handle = theirs.fileno()
    if sys.platform != "win32":
        return subprocess.Popen(
            _command(handle),
            pass_fds=[handle],
            start_new_session=True,
        )
    os.set_handle_inheritable(handle, True)
    return subprocess.Popen(
        _command(handle),
        startupinfo=subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]}),
        creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
    )


def _command(handle: int) -> list[str]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    path = json.dumps([each or os.getcwd() for each in sys.path])
    # What the parent was called with is for people who look at a list of processes.
    return [sys.executable, *flags, "-c", _FIRST_WORDS, str(handle), path, *sys.argv]


_FIRST_WORDS = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "handle = int(sys.argv[1]); del sys.argv[:3]; "
    "from yaoki.children import begin; begin(handle)"
)


@contextmanager
def _deaf() -> Iterator[None]:
    """A process that begins in here gets no SIGTERM or SIGINT until it calls `hear`.

    They wait for it: there is no moment at which one of them would end it half started.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _main() -> dict[str, Any]:
    """How the child finds our `__main__` again."""
    from multiprocessing import spawn

    known = spawn.get_preparation_data("yaoki")
    ways = ("init_main_from_name", "init_main_from_path")
    return {name: known[name] for name in ways if name in known}


_system: Any = os
"""For what not every system has."""


def _death_watch(pid: int) -> int | None:
    """A descriptor that is readable when the process has ended; None where there are none."""
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):  # a kernel before 5.3, or a sandbox that does not know it
            watch: int = _system.pidfd_open(pid)
            return watch
    return None


def _has_ended(running: "subprocess.Popen[bytes]") -> bool:
    """Has it ended? Its number stays taken, if it can: who is killed afterwards is nobody else."""
    return running.poll() is not None if _waitid is None else _told_by_system(running) is not None


def _ended_well(running: "subprocess.Popen[bytes]") -> bool:
    """It has ended: by itself, and not by a signal?"""
    if running.returncode is not None:
        return running.returncode >= 0
    told = _told_by_system(running)
    return told is _UNKNOWN or told.si_code == _system.CLD_EXITED


_waitid = getattr(os, "waitid", None)
_UNKNOWN = object()


def _told_by_system(running: "subprocess.Popen[bytes]") -> Any:
    """How it ended, which can be asked again; None: it lives."""
    if _waitid is None:
        return None
    how = _system.WEXITED | _system.WNOHANG | _system.WNOWAIT
    try:
        return _waitid(_system.P_PID, running.pid, how)
    except ChildProcessError:  # somebody else has waited for it
        return _UNKNOWN


def _kill_group(running: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        if hasattr(os, "killpg"):
            _system.killpg(running.pid, signal.SIGKILL)
        else:
            running.kill()


# The child's side


class Order(msgspec.Struct):
    """The first message: what the child is there for."""

    target: str
    args: Any
    main: dict[str, Any]


def begin(handle: int) -> None:
    """The life of a child; ends the process."""
    global _is_child
    _is_child = True
    line = Line(_joined(handle))
    try:
        order = line.receive(Order)
    except Gone:
        sys.exit(1)
    assert order is not None
    if order.main:
        _import_main(order.main)
    module, _, name = order.target.partition(":")
    target: Target = getattr(importlib.import_module(module), name)
    try:
        code = target(line, order.args)
    except Gone:  # the parent is gone, and nobody is left to work for
        code = 1
    sys.exit(code)


def _joined(handle: int) -> Any:
    from multiprocessing import connection

    if sys.platform == "win32":
        os.set_handle_inheritable(handle, False)
        return connection.PipeConnection(handle)
    os.set_inheritable(handle, False)
    return connection.Connection(handle)


def _import_main(where: dict[str, Any]) -> None:
    from multiprocessing import process, spawn

    current: Any = process.current_process()
    current._inheriting = True
    try:
        spawn.prepare(where)
    finally:
        del current._inheriting
