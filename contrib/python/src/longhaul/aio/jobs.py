"""Campaigns of bulk replication for asyncio: the functions of `longhaul.jobs`, awaited.

In: what `longhaul.jobs` takes. Out: what it gives, and an `AsyncMover`. A task that is cancelled
while it awaits an answer ends the program that was asked. Must not know how a process is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, AsyncGenerator, Iterable, List, Mapping, Optional, Sequence, Union

from .. import _jobs, _options, jobs
from .._events import JobCampaign, JobLeft, JobLinkRules, JobPart, JobPlanned, JobSite, JobSummary
from .._jobs import CampaignName, Command, LinkName, Mover, Report, Shown, T, Verification
from .._options import CampaignOptions, Deadline, Location, PartsOptions, Rate, Size, Time, TrustOptions
from ..jobs import Sources
from . import AsyncRun

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["AsyncMover"]
__all__ += jobs.__all__  # mypy reads no such line: it knows `AsyncMover` alone of an `import *`.


class AsyncMover(AsyncRun[JobSummary]):
    """A mover that runs, or ran, for asyncio.

    `await mover` gives the summary, or raises as `Mover.result()` does. A task that is cancelled
    while it awaits the mover has it hand back what it is moving, and waits for its end.
    """

    def __init__(self, mover: Mover) -> None:
        super().__init__(mover)
        self.mover = mover
        """The same mover, for code that does not use asyncio."""


async def _answer(command: Command[T]) -> T:
    async with AsyncRun(command.start()) as run:
        events = [event async for event in run]
    return command.read(events)


async def add(
    sources: Sources,
    dest: Location,
    *,
    queue: Optional[Location] = None,
    extra_args: Iterable[Location] = (),
    **options: Unpack[CampaignOptions],
) -> JobCampaign:
    """Adds a campaign, as `longhaul.jobs.add`."""
    return await _answer(_jobs.add(sources, dest, extra_args, {"queue": queue, **options}))


async def add_all(
    sources: Sources,
    dests: Sources,
    *,
    queue: Optional[Location] = None,
    extra_args: Iterable[Location] = (),
    **options: Unpack[CampaignOptions],
) -> List[JobCampaign]:
    """Adds a campaign for each destination and host of sources, as `longhaul.jobs.add_all`."""
    return await _answer(_jobs.add_all(sources, _options.sequence(dests), extra_args, {"queue": queue, **options}))


async def plan(
    campaign: CampaignName,
    *,
    queue: Optional[Location] = None,
    extra_args: Iterable[Location] = (),
    **options: Unpack[TrustOptions],
) -> JobPlanned:
    """Lists a campaign's files and cuts them into shards, as `longhaul.jobs.plan`."""
    return await _answer(_jobs.plan(campaign, extra_args, {"queue": queue, **options}))


async def parts(
    source: Location,
    out: Location,
    shards: int,
    *,
    extra_args: Iterable[Location] = (),
    **options: Unpack[PartsOptions],
) -> List[JobPart]:
    """Writes lists of names for movers without a queue, as `longhaul.jobs.parts`."""
    return await _answer(_jobs.parts(source, extra_args, {"shards": shards, "out": out, **options}))


async def ls(*, queue: Optional[Location] = None) -> List[JobCampaign]:
    """Lists the campaigns."""
    return await _answer(_jobs.ls(queue))


async def show(campaign: CampaignName, *, queue: Optional[Location] = None) -> Shown:
    """Tells all that a campaign says, as `longhaul.jobs.show`."""
    return await _answer(_jobs.show(campaign, queue))


async def left(campaign: CampaignName, *, queue: Optional[Location] = None) -> JobLeft:
    """Tells what is left of a campaign, as `longhaul.jobs.left`."""
    return await _answer(_jobs.left(campaign, queue))


async def wait(campaign: CampaignName, max_time: Optional[Time] = None, *, queue: Optional[Location] = None) -> JobLeft:
    """Waits until a campaign is over, or cannot go on without a user, as `longhaul.jobs.wait`."""
    return await _answer(_jobs.wait(campaign, max_time, queue))


async def watch(
    campaign: CampaignName, every: Optional[Time] = None, *, queue: Optional[Location] = None
) -> AsyncGenerator[JobLeft, None]:
    """Tells what is left of a campaign again and again, as `longhaul.jobs.watch`.

    A loop that is left earlier ends the program that looks with `aclose()`.
    """
    async with AsyncRun(_jobs.watch(campaign, every, queue).start()) as run:
        async for event in run:
            if isinstance(event, JobLeft):
                yield event


async def hold(campaign: CampaignName, *, queue: Optional[Location] = None) -> JobCampaign:
    """Lets nothing of a campaign begin; what is being moved stops in order."""
    return await _answer(_jobs.steer("hold", campaign, queue))


async def release(campaign: CampaignName, *, queue: Optional[Location] = None) -> JobCampaign:
    """Lets a campaign go on: one that is held, its shards that are held, and links that closed."""
    return await _answer(_jobs.steer("release", campaign, queue))


async def cancel(campaign: CampaignName, *, queue: Optional[Location] = None) -> JobCampaign:
    """Ends a campaign for good; what stands at its destination stays."""
    return await _answer(_jobs.steer("cancel", campaign, queue))


async def retry(campaign: CampaignName, code: Optional[str] = None, *, queue: Optional[Location] = None) -> int:
    """Has files tried again that were given up, as `longhaul.jobs.retry`."""
    return await _answer(_jobs.retry(campaign, code, queue))


async def report(campaign: CampaignName, *, queue: Optional[Location] = None) -> Report:
    """Lists the files that failed, and how each did."""
    return await _answer(_jobs.report(campaign, queue))


async def site(
    name: str,
    *,
    host: Union[str, Iterable[str], None] = None,
    drop: Union[str, Iterable[str], None] = None,
    movers_in: Optional[int] = None,
    movers_out: Optional[int] = None,
    queue: Optional[Location] = None,
) -> JobSite:
    """Names the site of hosts, as `longhaul.jobs.site`."""
    bounds = {"movers_in": movers_in, "movers_out": movers_out}
    return await _answer(_jobs.site(name, {"host": host, "drop": drop, **bounds, "queue": queue}))


async def sites(*, queue: Optional[Location] = None) -> List[JobSite]:
    """Lists the sites, as `longhaul.jobs.sites`."""
    return await _answer(_jobs.sites(queue))


async def set(
    campaign: CampaignName,
    *,
    priority: Optional[int] = None,
    weight: Optional[int] = None,
    deadline: Optional[Deadline] = None,
    calendar: Optional[str] = None,
    retry_rules: Union[str, Mapping[str, int], None] = None,
    queue: Optional[Location] = None,
) -> JobCampaign:
    """Changes rules of a campaign, as `longhaul.jobs.set`."""
    order = {"priority": priority, "weight": weight, "deadline": deadline}
    rules = {"calendar": calendar, "retry_rules": retry_rules, "queue": queue}
    return await _answer(_jobs.set_rules(campaign, {**order, **rules}))


async def link(
    name: LinkName,
    *,
    movers: Optional[int] = None,
    rate: Optional[Rate] = None,
    calendar: Optional[str] = None,
    open: bool = False,
    drain: bool = False,
    close: bool = False,
    queue: Optional[Location] = None,
) -> JobLinkRules:
    """Sets the rules of a link, as `longhaul.jobs.link`."""
    rules = {"movers": movers, "rate": rate, "calendar": calendar}
    state = {"open": open, "drain": drain, "close": close}
    return await _answer(_jobs.link(name, {**rules, **state, "queue": queue}))


async def links(*, queue: Optional[Location] = None) -> List[JobLinkRules]:
    """Lists the links, as `longhaul.jobs.links`."""
    return await _answer(_jobs.links(queue))


async def verify(
    campaign: CampaignName,
    budget: Optional[Rate] = None,
    cycle: Optional[Time] = None,
    *,
    max_time: Optional[Time] = None,
    ignore_changed: bool = False,
    believe_losses: bool = False,
    at: Optional[Location] = None,
    memory: Optional[Size] = None,
    mend: bool = False,
    mend_kinds: Union[str, Sequence[str], None] = None,
    mend_from: Optional[Sources] = None,
    queue: Optional[Location] = None,
    **options: Unpack[TrustOptions],
) -> Verification:
    """Reads back what a campaign has delivered, as `longhaul.jobs.verify`."""
    limits = {"budget": budget, "cycle": cycle, "once": True, "max_time": max_time}
    doubts = {"ignore_changed": ignore_changed, "believe_losses": believe_losses}
    places = {"at": at, "memory": memory, "queue": queue}
    mending = {"mend": mend, "mend_kinds": mend_kinds, "mend_from": mend_from}
    return await _answer(_jobs.verify(campaign, {**limits, **doubts, **places, **mending, **options}))


def run(
    campaign: Optional[CampaignName] = None,
    *,
    drain: bool = False,
    max_time: Optional[Time] = None,
    movers: Optional[int] = None,
    memory: Optional[Size] = None,
    owner: Union[str, Iterable[str], None] = None,
    allow_unsigned: Union[str, Iterable[str], None] = None,
    queue: Optional[Location] = None,
    events: bool = True,
    extra_args: Iterable[Location] = (),
    **options: Unpack[TrustOptions],
) -> AsyncMover:
    """Starts a mover, as `longhaul.jobs.run`."""
    mover = jobs.run(
        campaign,
        drain=drain,
        max_time=max_time,
        movers=movers,
        memory=memory,
        owner=owner,
        allow_unsigned=allow_unsigned,
        queue=queue,
        events=events,
        extra_args=extra_args,
        **options,
    )
    return AsyncMover(mover)
