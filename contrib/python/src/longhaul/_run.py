"""Runs: a process that runs, its events as they come, and how it ended.

In: the words of a command line. Out: events, a summary or an exception. Must not know what the
words mean. Each run has one thread, which empties both pipes of the process whoever reads the
events, and which ends with the process.
"""

from __future__ import annotations

import atexit
import logging
import os
import selectors
import signal
import subprocess
import threading
import time
from types import TracebackType
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    Callable,
    Collection,
    Generator,
    Generic,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from . import _events, _exits
from ._binary import find_binary
from ._events import Event, Fault, JobSummary, Summary
from ._spool import Spool

if TYPE_CHECKING:
    from typing_extensions import Self

GRACE_S = 10.0
"""Seconds that a process has after its signal before it is killed: it writes its journal."""

S = TypeVar("S", bound=Union[Summary, JobSummary])
"""The last event of a run, which says how it ended."""

FAULTS_MAX = 1000
STDERR_MAX = 1 << 16
READ_BYTES = 1 << 18
POLL_S = 0.05
"""Seconds between looks at a process where the kernel has no pidfd (before Linux 5.3)."""

_LOG = logging.getLogger("longhaul")
_running: Set[Run[Any]] = set()


class Run(Generic[S]):
    """A run of the program, which goes on or is over.

    Iterating gives its events, each once; `result()` waits for the end. The run goes on whether or
    not anybody reads the events. As a context manager it waits at the end of the block, and raises
    what `result()` raises; a block that raises cancels it.
    """

    _WHAT = "command"
    _GRACE_S = GRACE_S

    def __init__(
        self,
        words: Sequence[bytes],
        summary: Type[S],
        *,
        stdin: Optional[IO[bytes]] = None,
        events: bool = True,
        terminal: bool = False,
        answers: Collection[int] = (0,),
    ) -> None:
        self.args: Tuple[bytes, ...] = (os.fsencode(find_binary()), *words)
        """The command line, the program first."""
        self._spool = Spool() if events else None
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: List[Callable[[Any], object]] = []
        self._summary_type = summary
        self._answers = answers
        self._summary: Optional[S] = None
        self._faults: List[Fault] = []
        self._stderr = b""
        self._unread = b""
        self._garbled: Optional[str] = None
        self._cancelled = False
        self._kill_at: Optional[float] = None
        self._terminal = terminal
        self._process = self._start(stdin)
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="longhaul-run", daemon=True)
        _running.add(self)
        try:
            self._thread.start()
        except RuntimeError:
            _running.discard(self)
            self._process.kill()
            self._process.wait()
            raise

    def _start(self, stdin: Optional[IO[bytes]]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        try:
            # Without our terminal its Ctrl-C does not reach the process: a second signal, ours, would
            # end it before its journal is written. Only ssh may have to ask something there.
            return subprocess.Popen(
                self.args,
                stdin=stdin or subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                start_new_session=not self._terminal,
            )
        except (FileNotFoundError, PermissionError) as error:
            program = os.fsdecode(self.args[0])
            raise _exits.BinaryNotFoundError(
                f"cannot start '{program}': {error.strerror}", code="not-found", object=program
            ) from error
        finally:
            if stdin is not None:
                stdin.close()

    # Watching.

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = self._next(wait=True)
        if event is None:
            raise StopIteration
        return event

    def _next(self, wait: bool) -> Optional[Event]:
        if self._spool is None:
            raise ValueError(f"this {self._WHAT} keeps no events (events=False)")
        while True:
            line = self._spool.get(wait)
            if line is None:
                return None
            try:
                return _events.parse(line, self._summary_type)
            except ValueError:
                continue  # The thread has noted it: `result()` says so.

    def done(self) -> bool:
        """Whether it ended."""
        return self._done.is_set()

    def result(self, timeout: Optional[float] = None) -> S:
        """Waits for the end, and gives the `summary` event.

        Raises `LonghaulError` unless the exit code is 0, and `TimeoutError` if it still runs after
        `timeout` seconds; then it goes on running.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._summary is not None
        return self._summary

    def exception(self, timeout: Optional[float] = None) -> Optional[_exits.LonghaulError]:
        """Waits for the end, and gives what `result()` would raise, or `None`."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"the {self._WHAT} still runs after {timeout} s")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        code = self._process.returncode
        code = code if code >= 0 else 128 - code
        stderr = self._stderr.decode(errors="replace")
        if code in self._answers and self._summary is not None and self._garbled is None:
            return None
        if self._garbled is not None:
            return _exits.OutputError(f"'{os.fsdecode(self.args[0])}' wrote a line that is no event: {self._garbled}")
        if code == 0:
            return _exits.OutputError("longhaul ended without a summary", exit=0, stderr=stderr)
        return _exits.failure(code, self._faults, self._summary, stderr)

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Calls `callback(run)` once it ended, in the run's thread; at once if it has."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def __await__(self) -> Generator[object, None, S]:
        from .aio import AsyncRun

        return AsyncRun(self).__await__()

    # Ending.

    def cancel(self, grace: Optional[float] = None) -> bool:
        """Stops it as Ctrl-C does, and kills it if it still runs after `grace` seconds.

        Does not wait. What is verified and on the disk is kept: the same call continues. Gives
        False if it had ended already. `result()` raises `InterruptedRunError` afterwards.
        """
        grace = self._GRACE_S if grace is None else max(grace, 0.0)
        with self._lock:
            if self._done.is_set():
                return False
            # A process inherits from us that interrupts are ignored, as they are for jobs of a
            # shell script in the background.
            ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            if not self._cancelled:
                self._process.send_signal(signal.SIGTERM if ignored else signal.SIGINT)
            kill_at = time.monotonic() + grace
            self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)
            self._cancelled = True
            os.write(self._wake_write, b"w")
        return True

    def cancelled(self) -> bool:
        """Whether `cancel()` was called while it ran."""
        return self._cancelled

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is KeyboardInterrupt and self._terminal:
            self._done.wait(self._GRACE_S)  # The terminal has told it too.
        if kind is not None:
            self.cancel()
        try:
            failed = self.exception()
        except BaseException:
            self.cancel(grace=0.0)
            raise
        if kind is None and failed is not None and not self._cancelled:
            raise failed

    # The thread.

    def _run(self) -> None:
        try:
            self._watch()
        finally:
            self._process.wait()
            if self._unread:
                self._take(self._unread + b"\n")
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
            with self._lock:
                self._done.set()
                callbacks, self._callbacks = self._callbacks, []
                os.close(self._wake_read)
                os.close(self._wake_write)
            _running.discard(self)
            if self._spool is not None:
                self._spool.close()
            for callback in callbacks:
                try:
                    callback(self)
                except Exception:
                    _LOG.exception("a callback at the end of a %s failed", self._WHAT)

    def _watch(self) -> None:
        """Empties the pipes until the process ended.

        The end of a pipe is no sign of that: what ssh leaves behind may hold it open for long.
        """
        process, pidfd = self._process, _pidfd(self._process.pid)
        assert process.stdout is not None and process.stderr is not None
        takers = {process.stdout.fileno(): self._take_stdout, process.stderr.fileno(): self._take_stderr}
        try:
            with selectors.DefaultSelector() as selector:
                for fd in (*takers, self._wake_read):
                    os.set_blocking(fd, False)
                    selector.register(fd, selectors.EVENT_READ)
                if pidfd is not None:
                    selector.register(pidfd, selectors.EVENT_READ)
                while True:
                    ready = selector.select(self._patience(has_pidfd=pidfd is not None))
                    # Asked before the last reads: what it wrote before its end is then in the pipes.
                    ended = process.poll() is not None
                    for key, _ in ready:
                        if key.fd == self._wake_read:
                            os.read(self._wake_read, 64)
                        elif key.fd in takers and not self._read(key.fd, takers[key.fd]):
                            selector.unregister(key.fd)
                            del takers[key.fd]
                    if ended:
                        for fd, take in takers.items():
                            while self._read(fd, take, empty=False):
                                pass
                        return
        finally:
            if pidfd is not None:
                os.close(pidfd)

    def _patience(self, has_pidfd: bool) -> Optional[float]:
        """Seconds to wait for news. Kills the process where its grace is over."""
        left = None
        if self._kill_at is not None:
            left = self._kill_at - time.monotonic()
            if left <= 0.0:
                self._process.kill()
                left = None
        return left if has_pidfd else POLL_S if left is None else min(left, POLL_S)

    @staticmethod
    def _read(fd: int, take: Callable[[bytes], None], empty: bool = True) -> bool:
        """Takes what a pipe has. False at its end; `empty` is what to say where it has nothing."""
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return empty
        take(data)
        return bool(data)

    def _take_stderr(self, data: bytes) -> None:
        self._stderr = (self._stderr + data)[-STDERR_MAX:]

    def _take_stdout(self, data: bytes) -> None:
        lines, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._unread += data
            return
        self._take(self._unread + lines + newline)
        self._unread = rest

    def _take(self, lines: bytes) -> None:
        """Takes whole lines: all for the spool, and what the end is told by is read here."""
        if self._spool is not None:
            self._spool.append(lines)
        for line in lines.splitlines():
            # Most lines are of files: they are read by whoever wants them.
            if b'"type":"file"' in line[:32]:
                continue
            try:
                event = _events.parse(line, self._summary_type)
            except ValueError:
                self._garbled = self._garbled or repr(line[:200])
                continue
            self._heard(event)

    def _heard(self, event: Event) -> None:
        """Keeps what the end is told by."""
        if isinstance(event, self._summary_type):
            self._summary = event
        elif isinstance(event, Fault):
            if len(self._faults) == FAULTS_MAX:
                self._faults.pop()
            self._faults.append(event)


def _pidfd(pid: int) -> Optional[int]:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


# A process that was forked off ends without the runs of the one that it came from.
os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _stop_all() -> None:
    """Ends what still runs as the interpreter ends: nobody could hear of it any more."""
    left = list(_running)
    for run in left:
        run.cancel()
    for run in left:
        run._done.wait(run._GRACE_S + 1.0)
