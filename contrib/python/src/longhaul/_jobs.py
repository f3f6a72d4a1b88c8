"""Commands of the queue of bulk replication: their words, and what their events answer.

In: campaigns and keyword arguments. Out: commands that `longhaul.jobs` waits for and
`longhaul.aio.jobs` awaits, and movers. Must not know how a process is run, nor a rule of the
queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Collection, Dict, Generic, Iterable, List, Optional, Tuple, Type, TypeVar, Union

from . import _exits, _options
from ._events import (
    Event,
    Fault,
    JobBadFile,
    JobCampaign,
    JobFault,
    JobHeld,
    JobHook,
    JobLeft,
    JobLinkRules,
    JobMended,
    JobOmitted,
    JobPart,
    JobPlanned,
    JobSite,
    JobSummary,
    JobVerified,
    JobVerify,
)
from ._options import Location
from ._run import Run

T = TypeVar("T")
E = TypeVar("E", bound=Event)

CampaignName = Union[str, int, JobCampaign]
"""A campaign: its name, its number, or what `add`, `ls` and `show` gave."""

LinkName = Union[int, JobLinkRules, Tuple[str, str]]
"""A link: its number, what `links` gave, or the hosts from which and to which it leads."""

MOVER_GRACE_S = 60.0
"""Seconds that a mover has to hand its shards back before it is killed."""


@dataclass(frozen=True)
class Shown:
    """All that a campaign says, what is left of it, and what holds it."""

    campaign: JobCampaign
    left: JobLeft
    held: Tuple[JobHeld, ...] = ()
    """The shards that wait for a user."""
    hooks: Tuple[JobHook, ...] = ()
    """The hooks that are told of it."""


@dataclass(frozen=True)
class Report:
    """The files of a campaign that failed, and the names that could not be planned."""

    faults: Tuple[JobFault, ...] = ()
    omitted: Tuple[JobOmitted, ...] = ()
    complete: bool = True
    """Whether nothing failed, and nothing is left."""


@dataclass(frozen=True)
class Verification:
    """What `verify` read, and what of it is bad."""

    figures: JobVerify
    shards: Tuple[JobVerified, ...] = ()
    """The shards that this call read."""
    bad: Tuple[JobBadFile, ...] = ()
    """The bad files that this call found; `figures.bad` counts those of earlier calls too."""
    faults: Tuple[Fault, ...] = ()
    """Whatever else went wrong."""
    complete: bool = True
    """Whether nothing is known to be bad."""
    mended: Tuple[JobMended, ...] = ()
    """The bad files that this call copied anew."""


class Mover(Run[JobSummary]):
    """A mover that runs, or ran: a process that claims shards and moves them.

    Iterating gives `JobShard` events, two for each shard, and `Fault` events; `result()` waits for
    the end. As a context manager it waits at the end of the block, and raises what `result()`
    raises; a block that raises cancels it. `cancel()` has it hand back what it is moving, for which
    it has a minute.
    """

    _WHAT = "mover"
    _GRACE_S = MOVER_GRACE_S


class Command(Generic[T]):
    """A command that answers and ends."""

    def __init__(
        self,
        words: _options.Words,
        read: Callable[[List[Event]], T],
        answers: Collection[int] = (0,),
    ) -> None:
        self.words = words
        self.read = read
        self.answers = answers

    def start(self) -> Run[JobSummary]:
        """Runs it."""
        return Run(self.words.words, JobSummary, answers=self.answers)

    def result(self) -> T:
        """Runs it, and waits for its answer."""
        with self.start() as run:
            events = list(run)
        return self.read(events)


def add(
    sources: Union[Location, Iterable[Location]], dest: Location, extra: Iterable[Location], options: Dict[str, Any]
) -> Command[JobCampaign]:
    words = _options.Words("job", "add")
    words.options(_options.CAMPAIGN, options)
    places, more = _options.sequence(sources), list(extra)
    words.extra(more)
    if len(places) > 1 or more:
        # There would be a campaign for each host and destination, and this gives one.
        words.extra(["--one"])
    words.locations([*places, dest])
    return Command(words, _one(JobCampaign))


def add_all(
    sources: Union[Location, Iterable[Location]],
    dests: Iterable[Location],
    extra: Iterable[Location],
    options: Dict[str, Any],
) -> Command[List[JobCampaign]]:
    first, *also = _options.sequence(dests) or [b""]
    words = _options.Words("job", "add")
    words.options(_options.FAMILY, {**options, "also": also or None})
    words.extra(extra)
    words.locations([*_options.sequence(sources), first])
    return Command(words, lambda events: _all(JobCampaign, events))


def plan(campaign: CampaignName, extra: Iterable[Location], options: Dict[str, Any]) -> Command[JobPlanned]:
    return Command(_named("plan", campaign, _options.PLAN, options, extra), _one(JobPlanned))


def parts(source: Location, extra: Iterable[Location], options: Dict[str, Any]) -> Command[List[JobPart]]:
    words = _options.Words("job", "plan")
    words.options(_options.PARTS, options)
    words.extra(extra)
    words.locations([source])
    return Command(words, lambda events: _all(JobPart, events))


def ls(queue: Optional[Location]) -> Command[List[JobCampaign]]:
    words = _options.Words("job", "ls")
    words.options(_options.QUEUE, {"queue": queue})
    return Command(words, lambda events: _all(JobCampaign, events))


def show(campaign: CampaignName, queue: Optional[Location]) -> Command[Shown]:
    def read(events: List[Event]) -> Shown:
        held, hooks = tuple(_all(JobHeld, events)), tuple(_all(JobHook, events))
        return Shown(_one(JobCampaign)(events), _one(JobLeft)(events), held, hooks)

    return Command(_named("show", campaign, _options.QUEUE, {"queue": queue}), read)


def left(campaign: CampaignName, queue: Optional[Location]) -> Command[JobLeft]:
    return Command(_named("left", campaign, _options.QUEUE, {"queue": queue}), _one(JobLeft))


def wait(campaign: CampaignName, max_time: Optional[_options.Time], queue: Optional[Location]) -> Command[JobLeft]:
    options = {"queue": queue, "max_time": max_time}
    return Command(_named("wait", campaign, _options.WAIT, options), _one(JobLeft))


def watch(campaign: CampaignName, every: Optional[_options.Time], queue: Optional[Location]) -> Command[JobLeft]:
    options = {"queue": queue, "every": every}
    return Command(_named("watch", campaign, _options.WATCH, options), _the(JobLeft))


def steer(verb: str, campaign: CampaignName, queue: Optional[Location]) -> Command[JobCampaign]:
    return Command(_named(verb, campaign, _options.QUEUE, {"queue": queue}), _one(JobCampaign))


def retry(campaign: CampaignName, code: Optional[str], queue: Optional[Location]) -> Command[int]:
    words = _named("retry", campaign, _options.RETRY, {"queue": queue, "code": code})
    return Command(words, lambda events: _the(JobSummary)(events).files_retried)


def report(campaign: CampaignName, queue: Optional[Location]) -> Command[Report]:
    def read(events: List[Event]) -> Report:
        complete = _the(JobSummary)(events).exit == 0
        return Report(tuple(_all(JobFault, events)), tuple(_all(JobOmitted, events)), complete)

    # That files failed or are left is what was asked, and no failure of the question.
    return Command(_named("report", campaign, _options.QUEUE, {"queue": queue}), read, answers=(0, PARTIAL))


def site(name: str, options: Dict[str, Any]) -> Command[JobSite]:
    words = _options.Words("job", "site")
    words.options(_options.SITE, options)
    words.name(name)
    return Command(words, _the(JobSite))


def sites(queue: Optional[Location]) -> Command[List[JobSite]]:
    words = _options.Words("job", "site")
    words.options(_options.QUEUE, {"queue": queue})
    return Command(words, lambda events: _all(JobSite, events))


def set_rules(campaign: CampaignName, options: Dict[str, Any]) -> Command[JobCampaign]:
    return Command(_named("set", campaign, _options.SET, options), _the(JobCampaign))


def link(name: LinkName, options: Dict[str, Any]) -> Command[JobLinkRules]:
    words = _options.Words("job", "link")
    words.options(_options.LINK, options)
    words.names(name if isinstance(name, tuple) else (str(name.link if isinstance(name, JobLinkRules) else name),))
    return Command(words, _the(JobLinkRules))


def links(queue: Optional[Location]) -> Command[List[JobLinkRules]]:
    words = _options.Words("job", "link")
    words.options(_options.QUEUE, {"queue": queue})
    return Command(words, lambda events: _all(JobLinkRules, events))


def verify(campaign: CampaignName, options: Dict[str, Any]) -> Command[Verification]:
    def read(events: List[Event]) -> Verification:
        shards, bad = tuple(_all(JobVerified, events)), tuple(_all(JobBadFile, events))
        mended, faults = tuple(_all(JobMended, events)), tuple(_all(Fault, events))
        complete = _the(JobSummary)(events).exit == 0
        return Verification(_one(JobVerify)(events), shards, bad, faults, complete, mended)

    # That files are bad is what was asked.
    return Command(_named("verify", campaign, _options.VERIFY, options), read, answers=(0, MISMATCH, PARTIAL))


def mover(campaign: Optional[CampaignName], extra: Iterable[Location], events: bool, options: Dict[str, Any]) -> Mover:
    words = _options.Words("job", "run")
    words.options(_options.MOVER, options)
    words.extra(extra)
    if campaign is not None:
        words.name(_name(campaign))
    return Mover(words.words, JobSummary, events=events)


def _named(
    verb: str,
    campaign: CampaignName,
    table: Dict[str, _options.Option],
    options: Dict[str, Any],
    extra: Iterable[Location] = (),
) -> _options.Words:
    """The words of a command that names a campaign."""
    words = _options.Words("job", verb)
    words.options(table, options)
    words.extra(extra)
    words.name(_name(campaign))
    return words


def _name(campaign: CampaignName) -> str:
    return campaign.name if isinstance(campaign, JobCampaign) else str(campaign)


def _all(kind: Type[E], events: List[Event]) -> List[E]:
    return [event for event in events if isinstance(event, kind)]


def _the(kind: Type[E]) -> Callable[[List[Event]], E]:
    """Reads the last event of a kind."""

    def read(events: List[Event]) -> E:
        found = _all(kind, events)
        if not found:
            raise _exits.OutputError(f"longhaul ended without a {kind.__name__}: is it of another version?")
        return found[-1]

    return read


def _one(kind: Type[E]) -> Callable[[List[Event]], E]:
    """Reads the only event of a kind: a name that stands for several campaigns has no single answer."""

    def read(events: List[Event]) -> E:
        names = [getattr(event, "name", "") for event in _all(kind, events)]
        if len(names) > 1:
            told = f"the answer is about {len(names)} campaigns, {names[0]} to {names[-1]}, and all was done for each"
            raise ValueError(f"{told}: add a family with `add_all`, and name one of its campaigns here")
        return _the(kind)(events)

    return read


PARTIAL = 23
"""The exit code that says that files failed or are left."""

MISMATCH = 6
"""The exit code that says that files have other content."""
