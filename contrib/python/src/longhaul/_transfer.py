"""Transfers: runs of `push`, `pull`, `copy` and `ls`.

In: the words of a command line. Out: a run that knows its progress. Must not know what the words
mean.
"""

from __future__ import annotations

from typing import IO, Optional, Sequence

from ._events import Event, Progress, Summary
from ._run import Run


class Transfer(Run[Summary]):
    """A transfer that runs, or ran.

    Iterating gives its events, each once; `result()` waits for the end. The transfer goes on
    whether or not anybody reads the events. As a context manager it waits at the end of the block,
    and raises what `result()` raises; a block that raises cancels it.
    """

    _WHAT = "transfer"

    def __init__(
        self,
        words: Sequence[bytes],
        *,
        stdin: Optional[IO[bytes]] = None,
        events: bool = True,
        terminal: bool = False,
    ) -> None:
        self._progress: Optional[Progress] = None
        super().__init__(words, Summary, stdin=stdin, events=events, terminal=terminal)

    @property
    def progress(self) -> Optional[Progress]:
        """The latest `progress` event."""
        return self._progress

    def _heard(self, event: Event) -> None:
        if isinstance(event, Progress):
            self._progress = event
        super()._heard(event)
