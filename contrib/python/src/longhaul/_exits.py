"""Exit codes and faults: the one table of both, and the exceptions that they become.

In: an exit code and the `fault` events of a run. Out: an exception with all that they say. Must
not know how a program is run. The tests compare the tables with docs/EXIT-CODES.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, NamedTuple, Optional, Sequence, Tuple, Type, Union

if TYPE_CHECKING:
    from ._events import Fault, JobSummary, Summary


class LonghaulError(Exception):
    """A run that did not end with exit code 0.

    `exit` is the exit code, and the other attributes are those of the `fault` event that led to it.
    `str()` is the message, with the hint in a line of its own.
    """

    def __init__(
        self,
        message: str,
        *,
        exit: int = 1,
        code: str = "unclassified",
        blame: str = "local",
        retry: bool = False,
        object: str = "",
        hint: str = "",
        faults: Sequence[Fault] = (),
        summary: Union[Summary, JobSummary, None] = None,
        stderr: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit = exit
        """The exit code."""
        self.code = code
        """The stable name of the failure, as docs/EXIT-CODES.md lists them."""
        self.blame = blame
        """The side whose failure it is: `local`, `peer`, `path` or `bug`."""
        self.retry = retry
        """True if the same call may succeed later with nothing changed by hand."""
        self.object = object
        """The path or the address that it concerns. It may be empty."""
        self.hint = hint
        """What to do next, for people. It may be empty."""
        self.faults = tuple(faults)
        """The `fault` events of the run: the first thousand, and the last."""
        self.summary = summary
        """The `summary` event. `None` if the program died before it wrote one."""
        self.stderr = stderr
        """The end of what the program wrote to its standard error."""

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    @property
    def resumable(self) -> bool:
        """Whether the same call, made again with nothing changed, continues the run."""
        known = EXITS.get(self.exit)
        return known is not None and known.resumable


class UsageError(LonghaulError):
    """The arguments or a configuration file are wrong (exit code 2)."""


class NotFoundError(LonghaulError):
    """A source or the destination does not exist (exit code 3)."""


class DeniedError(LonghaulError):
    """Keys, rights or permissions forbid it (exit code 4)."""


class TemporaryError(LonghaulError):
    """The failure may pass: a retry may work (exit code 5)."""


class MismatchError(LonghaulError):
    """Bytes that arrived are not those that were sent, after every try (exit code 6)."""


class UnableError(LonghaulError):
    """This host or the other one cannot do it, as without space on the disk (exit code 7)."""


class PartialError(LonghaulError):
    """Some files failed, and the rest is done (exit code 23)."""


class ChangedError(LonghaulError):
    """Some sources changed or vanished, and the rest is done (exit code 24)."""


class InterruptedRunError(LonghaulError):
    """The run was stopped, by `cancel()` or from outside (exit codes 130 and 143)."""


class BinaryNotFoundError(LonghaulError):
    """The program itself is not there, or cannot be started."""


class OutputError(LonghaulError):
    """The program died, or what it wrote is no event."""


class Exit(NamedTuple):
    """A row of the table of exit codes."""

    status: str
    resumable: bool
    error: Type[LonghaulError]


class FaultKind(NamedTuple):
    """A row of the table of faults."""

    retry: bool
    exit: int


EXITS: Dict[int, Exit] = {
    0: Exit("complete", False, LonghaulError),
    1: Exit("failed", False, LonghaulError),
    2: Exit("usage", False, UsageError),
    3: Exit("not-found", False, NotFoundError),
    4: Exit("denied", False, DeniedError),
    5: Exit("temporary", True, TemporaryError),
    6: Exit("mismatch", False, MismatchError),
    7: Exit("unable", False, UnableError),
    23: Exit("partial", False, PartialError),
    24: Exit("changed", False, ChangedError),
    130: Exit("interrupted", True, InterruptedRunError),
    141: Exit("broken-pipe", False, OutputError),
    143: Exit("terminated", True, InterruptedRunError),
}

FAULTS: Dict[str, FaultKind] = {
    "unclassified": FaultKind(False, 1),
    "usage": FaultKind(False, 2),
    "not-found": FaultKind(False, 3),
    "denied": FaultKind(False, 4),
    "unreachable": FaultKind(True, 5),
    "lost": FaultKind(True, 5),
    "timed-out": FaultKind(True, 5),
    "busy": FaultKind(True, 5),
    "mismatch": FaultKind(False, 6),
    "no-space": FaultKind(False, 7),
    "read-only": FaultKind(False, 7),
    "io": FaultKind(False, 7),
    "exists": FaultKind(False, 23),
    "changed": FaultKind(True, 24),
    "vanished": FaultKind(False, 24),
    "in-the-way": FaultKind(False, 23),
    "unsupported": FaultKind(False, 7),
    "protocol": FaultKind(False, 1),
    "interrupted": FaultKind(False, 130),
    "terminated": FaultKind(False, 143),
    "internal": FaultKind(False, 1),
    "exhausted": FaultKind(True, 5),
    "target-failed": FaultKind(False, 7),
    "superseded": FaultKind(False, 4),
    "incomplete": FaultKind(False, 23),
    "published": FaultKind(False, 23),
}


def failure(
    exit: int, faults: Sequence[Fault], summary: Union[Summary, JobSummary, None], stderr: str
) -> LonghaulError:
    """The exception of a run that ended with this exit code, which is not 0."""
    known = EXITS.get(exit)
    error = known.error if known else LonghaulError
    fault = _decisive(exit, faults)
    if fault is not None:
        return error(
            fault.message,
            exit=exit,
            code=fault.code,
            blame=fault.blame,
            retry=fault.retry,
            object=fault.object,
            hint=fault.hint,
            faults=faults,
            summary=summary,
            stderr=stderr,
        )
    status = summary.status if summary is not None and summary.status else known.status if known else "failed"
    message, code = f"longhaul ended with exit code {exit} ({status})", status
    if summary is None:
        error = OutputError
        message += " and without a summary" + (f": {stderr.strip()}" if stderr.strip() else "")
    retry = known is not None and known.resumable
    return error(message, exit=exit, code=code, retry=retry, faults=faults, summary=summary, stderr=stderr)


def _decisive(exit: int, faults: Sequence[Fault]) -> Optional[Fault]:
    """The fault that led to the exit code: the last that leads there, or else the last."""
    leading: Tuple[Fault, ...] = tuple(f for f in faults if f.code in FAULTS and FAULTS[f.code].exit == exit)
    return leading[-1] if leading else faults[-1] if faults else None
