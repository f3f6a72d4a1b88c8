"""longhaul moves huge datasets disk to disk over wide-area networks, verified and whole.

In: locations and options. Out: transfers that run, their events, and exceptions. The work is done
by the program `longhaul`, which the wheel carries: this module runs it with `--json`, without a
shell. Must not know how data moves. docs/PYTHON.md of the repository is the guide.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Union

from . import _options, admin, jobs
from ._binary import find_binary
from ._events import (
    AdminClient,
    AdminDone,
    AdminLoad,
    AdminMover,
    AdminRights,
    AdminRoot,
    AdminSession,
    AdminStatus,
    AdminStored,
    Amount,
    AtRisk,
    Deliveries,
    Entry,
    Event,
    Fault,
    File,
    JobBadFile,
    JobBadSum,
    JobCampaign,
    JobFault,
    JobFaultSum,
    JobHeld,
    JobHook,
    JobLeft,
    JobLink,
    JobLinkRules,
    JobMended,
    JobOmitted,
    JobPace,
    JobPart,
    JobPlanned,
    JobRules,
    JobShard,
    JobSite,
    JobSummary,
    JobVerified,
    JobVerify,
    Lanes,
    Left,
    NotKept,
    Paths,
    Progress,
    Road,
    Start,
    Summary,
    Targets,
    Unheard,
    UnknownEvent,
    Version,
    parse,
)
from ._exits import (
    EXITS,
    FAULTS,
    BinaryNotFoundError,
    ChangedError,
    DeniedError,
    InterruptedRunError,
    LonghaulError,
    MismatchError,
    NotFoundError,
    OutputError,
    PartialError,
    TemporaryError,
    UnableError,
    UsageError,
)
from ._options import KeyOptions, Location, Rate, Size, Time, TransferOptions
from ._transfer import Transfer

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "EXITS",
    "FAULTS",
    "AdminClient",
    "AdminDone",
    "AdminLoad",
    "AdminMover",
    "AdminRights",
    "AdminRoot",
    "AdminSession",
    "AdminStatus",
    "AdminStored",
    "Amount",
    "AtRisk",
    "BinaryNotFoundError",
    "ChangedError",
    "Deliveries",
    "DeniedError",
    "Entry",
    "Event",
    "Fault",
    "File",
    "InterruptedRunError",
    "JobBadFile",
    "JobBadSum",
    "JobCampaign",
    "JobFault",
    "JobFaultSum",
    "JobHeld",
    "JobHook",
    "JobLeft",
    "JobLink",
    "JobLinkRules",
    "JobMended",
    "JobOmitted",
    "JobPace",
    "JobPart",
    "JobPlanned",
    "JobRules",
    "JobShard",
    "JobSite",
    "JobSummary",
    "JobVerified",
    "JobVerify",
    "KeyOptions",
    "Lanes",
    "Left",
    "Location",
    "LonghaulError",
    "MismatchError",
    "NotFoundError",
    "NotKept",
    "OutputError",
    "PartialError",
    "Paths",
    "Progress",
    "Rate",
    "Road",
    "Size",
    "Start",
    "Summary",
    "Targets",
    "TemporaryError",
    "Time",
    "Transfer",
    "TransferOptions",
    "UnableError",
    "Unheard",
    "UnknownEvent",
    "UsageError",
    "Version",
    "admin",
    "copy",
    "find_binary",
    "jobs",
    "ls",
    "parse",
    "pull",
    "push",
    "version",
]

Sources = Union[Location, Iterable[Location]]


def push(
    sources: Sources,
    dest: Location,
    *,
    extra_args: Iterable[Location] = (),
    events: bool = True,
    **options: Unpack[TransferOptions],
) -> Transfer:
    """Sends local files and directories to another host, and gives the transfer that runs.

    `extra_args` are words of the command line that have no keyword. With `events=False` no event
    is kept for reading, only what `result()` and `progress` need.
    """
    return _start("push", sources, dest, extra_args, events, dict(options))


def pull(
    sources: Sources,
    dest: Location,
    *,
    extra_args: Iterable[Location] = (),
    events: bool = True,
    **options: Unpack[TransferOptions],
) -> Transfer:
    """Fetches files and directories from another host. The arguments are those of `push`."""
    return _start("pull", sources, dest, extra_args, events, dict(options))


def copy(
    sources: Sources,
    dest: Location,
    *,
    extra_args: Iterable[Location] = (),
    events: bool = True,
    **options: Unpack[TransferOptions],
) -> Transfer:
    """Copies within this host, or to or from another one. The arguments are those of `push`."""
    return _start("copy", sources, dest, extra_args, events, dict(options))


def ls(
    places: Sources,
    *,
    recursive: bool = False,
    partials: bool = False,
    extra_args: Iterable[Location] = (),
    **options: Unpack[KeyOptions],
) -> List[Entry]:
    """Lists names, sizes and times of one location or several; of `lh://HOST/` the roots."""
    with _listing(places, recursive, partials, extra_args, dict(options)) as listing:
        return [event for event in listing if isinstance(event, Entry)]


def version() -> Version:
    """The build of the program."""
    args = [find_binary(), "--version", "--json"]
    done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    try:
        event = parse(done.stdout)
    except ValueError:
        event = UnknownEvent()
    if done.returncode != 0 or not isinstance(event, Version):
        raise OutputError(f"'{args[0]}' does not say its version: is it longhaul?", object=args[0])
    return event


def _start(
    command: str, sources: Sources, dest: Location, extra: Iterable[Location], events: bool, options: Dict[str, Any]
) -> Transfer:
    words = _options.Words(command)
    # Nobody reads lines of progress: the events have it.
    words.words.append(b"--progress=none")
    words.options(_options.TRANSFER, options)
    words.extra(extra)
    words.locations([*_options.sequence(sources), dest])
    return Transfer(words.words, stdin=words.stdin, events=events, terminal=words.ssh)


def _listing(
    places: Sources, recursive: bool, partials: bool, extra: Iterable[Location], options: Dict[str, Any]
) -> Transfer:
    words = _options.Words("ls")
    words.words += [b"-R"] * recursive + [b"--partials"] * partials
    words.options(_options.KEYS, options)
    words.extra(extra)
    words.locations(_options.sequence(places))
    return Transfer(words.words, terminal=words.ssh)
