"""Files that are opened to be written: temporaries of this host, sent when they are closed.

In: the bytes of a user, and a function that sends a file. Out: the file at its destination, whole,
or nothing of it. Must not know what a path is, nor how it is sent.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import weakref
from typing import Any, Callable, Dict, cast


class Outgoing(io.BufferedRandom):
    """A file that is being written.

    A block that ends with an exception sends nothing, and neither does a file that is forgotten.
    """

    def __init__(self, send: Callable[[str], Dict[str, str]], path: str, autocommit: bool = True) -> None:
        directory = tempfile.mkdtemp(prefix="longhaul-")
        self._forget = weakref.finalize(self, _remove, directory, os.getpid())
        self._temporary = os.path.join(directory, "file")
        self._send = send
        self._settled = not autocommit
        self.path = path
        self.checksums: Dict[str, str] = {}
        """Of what was sent, once it is: `b3`, and those that `extra_checksum` asks for."""
        super().__init__(io.FileIO(self._temporary, "w+b"))

    def close(self) -> None:
        """Sends the file, and raises if that fails. `commit()` then tries again."""
        if self.closed:
            return
        self._end()
        if not self._settled:
            self.commit()

    def commit(self) -> None:
        """Sends what was written. Where that fails it is kept, and may be sent by another call."""
        self._settled = True
        self._end()
        if not self._forget.alive:
            raise ValueError(f"nothing is left to send to '{self.path}': it was sent, or discarded")
        self.checksums = self._send(self._temporary)
        self._forget()

    def discard(self) -> None:
        """Forgets what was written."""
        self._settled = True
        # What is still in memory is not written either: a forked process must not, in its parent's file.
        self.raw.close()
        self._forget()

    def _end(self) -> None:
        """Ends the writing. What the disk of this host did not take whole is never sent."""
        try:
            super().close()
        except BaseException:
            self.discard()
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        else:
            self.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, ValueError):  # It was never opened.
            self.discard()


class OutgoingText(io.TextIOWrapper):
    """Text that is being written, with the rules of `Outgoing`."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        else:
            self.close()

    @property
    def checksums(self) -> Dict[str, str]:
        """Of what was sent, once it is."""
        return cast(Outgoing, self.buffer).checksums

    def commit(self) -> None:
        """Sends what was written, after a `close()` that failed."""
        cast(Outgoing, self.buffer).commit()

    def discard(self) -> None:
        """Forgets what was written."""
        cast(Outgoing, self.buffer).discard()

    def __del__(self) -> None:
        with contextlib.suppress(ValueError):  # It was never opened.
            if not self.closed:
                self.discard()


def _remove(directory: str, owner: int) -> None:
    """Removes a temporary, unless it is of the process that this one was forked from."""
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
