"""A spool: lines that one thread writes and another reads when it likes.

In: lines. Out: the same lines, in order. Must not know what they say. The writer never waits for
the reader, so that the program never waits for whoever reads its events; memory stays bounded, as
what is beyond a megabyte lies in a file without a name.
"""

from __future__ import annotations

import collections
import os
import tempfile
import threading
import weakref
from typing import Callable, Deque, List, Optional

MEMORY_MAX = 1 << 20
BLOCK = 1 << 16


class Spool:
    """Lines on their way from one thread to another."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ready: Deque[bytes] = collections.deque()
        self._ready_bytes = 0
        self._fd: Optional[int] = None
        self._read_at = 0
        self._write_at = 0
        self._rest = b""
        self._closed = False
        self._error: Optional[OSError] = None
        self._listeners: List[Callable[[], None]] = []

    def append(self, lines: bytes) -> None:
        """Takes whole lines, each with its newline. Does not fail: the reader is told instead."""
        with self._changed:
            if self._read_at == self._write_at and self._ready_bytes + len(lines) <= MEMORY_MAX:
                self._take(lines)
            elif self._error is None:
                try:
                    self._write(lines)
                except OSError as error:
                    self._error = error
            self._tell()

    def close(self) -> None:
        """Says that no more comes."""
        with self._changed:
            self._closed = True
            self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls `listener` once, from some thread, as soon as there is a line or the end."""
        with self._changed:
            if self._has_news():
                listener()
            else:
                self._listeners.append(listener)

    def get(self, wait: bool = True) -> Optional[bytes]:
        """The next line, or `None` at the end; without `wait` also while there is none yet."""
        with self._changed:
            while wait and not self._has_news():
                self._changed.wait()
            if not self._ready:
                self._fill()
            if not self._ready:
                return None
            line = self._ready.popleft()
            self._ready_bytes -= len(line) + 1
            return line

    @property
    def ended(self) -> bool:
        """Whether all lines were read, and no more comes."""
        with self._changed:
            return self._closed and not self._ready and self._read_at == self._write_at

    def _has_news(self) -> bool:
        return bool(self._ready) or self._read_at < self._write_at or self._closed or self._error is not None

    def _take(self, lines: bytes) -> None:
        """Takes lines into memory. The last of them may be the beginning of one."""
        *whole, self._rest = (self._rest + lines).split(b"\n")
        self._ready.extend(whole)
        self._ready_bytes += sum(len(line) + 1 for line in whole)

    def _write(self, lines: bytes) -> None:
        if self._fd is None:
            self._fd, name = tempfile.mkstemp(prefix="longhaul-")
            weakref.finalize(self, os.close, self._fd)
            os.unlink(name)
        view = memoryview(lines)
        while view:
            written = os.pwrite(self._fd, view, self._write_at)
            self._write_at += written
            view = view[written:]

    def _fill(self) -> None:
        while not self._ready and self._fd is not None and self._read_at < self._write_at:
            block = os.pread(self._fd, min(BLOCK, self._write_at - self._read_at), self._read_at)
            self._read_at += len(block)
            self._take(block)
        if self._fd is not None and self._read_at == self._write_at > 0:
            os.ftruncate(self._fd, 0)
            self._read_at = self._write_at = 0
        if not self._ready and self._error is not None:
            raise self._error
