"""Campaigns of bulk replication, and their movers: `longhaul job` for scripts.

In: campaigns and keyword arguments. Out: what the queue says, as dataclasses, and movers that run.
Each function waits for its answer; `longhaul.aio.jobs` has the same for asyncio. The queue is a
file of this host, or a database, which `queue` names. Must not know how a process is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generator, Iterable, List, Mapping, Optional, Sequence, Union

from . import _jobs, _options
from ._events import JobCampaign, JobLeft, JobLinkRules, JobPart, JobPlanned, JobSite
from ._jobs import CampaignName, LinkName, Mover, Report, Shown, Verification
from ._options import CampaignOptions, Deadline, Location, PartsOptions, Rate, Size, Time, TrustOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "CampaignName",
    "CampaignOptions",
    "LinkName",
    "Mover",
    "PartsOptions",
    "Report",
    "Shown",
    "TrustOptions",
    "Verification",
    "add",
    "add_all",
    "cancel",
    "hold",
    "left",
    "link",
    "links",
    "ls",
    "parts",
    "plan",
    "release",
    "report",
    "retry",
    "run",
    "set",
    "show",
    "site",
    "sites",
    "verify",
    "wait",
    "watch",
]

Sources = Union[Location, Iterable[Location]]


def add(
    sources: Sources,
    dest: Location,
    *,
    queue: Optional[Location] = None,
    extra_args: Iterable[Location] = (),
    **options: Unpack[CampaignOptions],
) -> JobCampaign:
    """Adds a campaign: what is copied, to which directory, and by which rules.

    Nothing of it moves before `plan` has listed its files. Sources at several hosts are a campaign
    each: they raise `UsageError`, and nothing is added; `add_all` takes them.
    """
    return _jobs.add(sources, dest, extra_args, {"queue": queue, **options}).result()


def add_all(
    sources: Sources,
    dests: Sources,
    *,
    queue: Optional[Location] = None,
    extra_args: Iterable[Location] = (),
    **options: Unpack[CampaignOptions],
) -> List[JobCampaign]:
    """Adds a family: a campaign for each destination and for each host of sources, all or none of them.

    `name` is that of the family, of which `run`, `retry`, `report` and `watch` take all campaigns;
    the other functions take one of those that this gives.
    """
    return _jobs.add_all(sources, _options.sequence(dests), extra_args, {"queue": queue, **options}).result()


def plan(
    campaign: CampaignName,
    *,
    queue: Optional[Location] = None,
    extra_args: Iterable[Location] = (),
    **options: Unpack[TrustOptions],
) -> JobPlanned:
    """Lists a campaign's files and cuts them into shards. A call that was stopped goes on if made again.

    Raises `PartialError` where names could not be read: the campaign is planned without them, and
    `report` lists them.
    """
    return _jobs.plan(campaign, extra_args, {"queue": queue, **options}).result()


def parts(
    source: Location,
    out: Location,
    shards: int,
    *,
    extra_args: Iterable[Location] = (),
    **options: Unpack[PartsOptions],
) -> List[JobPart]:
    """Writes so many lists of names for `--files-from` with `--from0`: for movers without a queue.

    Raises `PartialError` where names could not be read: the lists are written without them.
    """
    return _jobs.parts(source, extra_args, {"shards": shards, "out": out, **options}).result()


def ls(*, queue: Optional[Location] = None) -> List[JobCampaign]:
    """Lists the campaigns."""
    return _jobs.ls(queue).result()


def show(campaign: CampaignName, *, queue: Optional[Location] = None) -> Shown:
    """Tells all that a campaign says, what is left of it, and what holds it."""
    return _jobs.show(campaign, queue).result()


def left(campaign: CampaignName, *, queue: Optional[Location] = None) -> JobLeft:
    """Tells what is left of a campaign, by link and by fault, and how long it takes."""
    return _jobs.left(campaign, queue).result()


def wait(campaign: CampaignName, max_time: Optional[Time] = None, *, queue: Optional[Location] = None) -> JobLeft:
    """Waits until a campaign is over, or cannot go on without a user, and gives its figures.

    Raises `PartialError` unless all of its files stand then, and `TemporaryError` if that takes
    longer than `max_time`.
    """
    return _jobs.wait(campaign, max_time, queue).result()


def watch(
    campaign: CampaignName, every: Optional[Time] = None, *, queue: Optional[Location] = None
) -> Generator[JobLeft, None, None]:
    """Tells what is left of a campaign again and again, until what `wait` waits for.

    It ends as `wait` does: it raises `PartialError` unless all of the files stand. A loop that is
    left earlier ends the program that looks.
    """
    with _jobs.watch(campaign, every, queue).start() as run:
        for event in run:
            if isinstance(event, JobLeft):
                yield event


def hold(campaign: CampaignName, *, queue: Optional[Location] = None) -> JobCampaign:
    """Lets nothing of a campaign begin; what is being moved stops in order."""
    return _jobs.steer("hold", campaign, queue).result()


def release(campaign: CampaignName, *, queue: Optional[Location] = None) -> JobCampaign:
    """Lets a campaign go on: one that is held, its shards that are held, and links that closed."""
    return _jobs.steer("release", campaign, queue).result()


def cancel(campaign: CampaignName, *, queue: Optional[Location] = None) -> JobCampaign:
    """Ends a campaign for good; what stands at its destination stays."""
    return _jobs.steer("cancel", campaign, queue).result()


def retry(campaign: CampaignName, code: Optional[str] = None, *, queue: Optional[Location] = None) -> int:
    """Has files tried again that were given up, all or those with one fault. Gives their number."""
    return _jobs.retry(campaign, code, queue).result()


def report(campaign: CampaignName, *, queue: Optional[Location] = None) -> Report:
    """Lists the files that failed, and how each did."""
    return _jobs.report(campaign, queue).result()


def site(
    name: str,
    *,
    host: Union[str, Iterable[str], None] = None,
    drop: Union[str, Iterable[str], None] = None,
    movers_in: Optional[int] = None,
    movers_out: Optional[int] = None,
    queue: Optional[Location] = None,
) -> JobSite:
    """Names the site of hosts, and bounds the movers that read from and write to all of them together."""
    bounds = {"movers_in": movers_in, "movers_out": movers_out}
    return _jobs.site(name, {"host": host, "drop": drop, **bounds, "queue": queue}).result()


def sites(*, queue: Optional[Location] = None) -> List[JobSite]:
    """Lists the sites, and the hosts of each."""
    return _jobs.sites(queue).result()


def set(
    campaign: CampaignName,
    *,
    priority: Optional[int] = None,
    weight: Optional[int] = None,
    deadline: Optional[Deadline] = None,
    calendar: Optional[str] = None,
    retry_rules: Union[str, Mapping[str, int], None] = None,
    queue: Optional[Location] = None,
) -> JobCampaign:
    """Changes rules of a campaign that its owner has not signed, and gives the campaign as it is now.

    A `deadline`, a `calendar` and `retry_rules` of `"none"` are taken away. Raises `UsageError` if
    the campaign is done or cancelled.
    """
    order = {"priority": priority, "weight": weight, "deadline": deadline}
    rules = {"calendar": calendar, "retry_rules": retry_rules, "queue": queue}
    return _jobs.set_rules(campaign, {**order, **rules}).result()


def link(
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
    """Bounds the movers and the rate of a link, gives it hours, or opens, drains or closes it.

    A `rate` and a `calendar` of `"none"` are taken away. Gives the link as it is now. Raises
    `NotFoundError` if no campaign between its hosts was planned yet.
    """
    rules = {"movers": movers, "rate": rate, "calendar": calendar}
    state = {"open": open, "drain": drain, "close": close}
    return _jobs.link(name, {**rules, **state, "queue": queue}).result()


def links(*, queue: Optional[Location] = None) -> List[JobLinkRules]:
    """Lists the links, and the rules of each."""
    return _jobs.links(queue).result()


def verify(
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
    """Reads back what a campaign has delivered, as far as it is due in this `cycle`.

    A daemon that has the files reads them itself. It reads no faster than `budget`, and for no
    longer than `max_time`. Files that are lost, changed, damaged or unread are in its answer. With
    `mend` lost and damaged files are copied anew, from the sources or from `mend_from`; these are in
    the answer as `mended`.
    """
    limits = {"budget": budget, "cycle": cycle, "once": True, "max_time": max_time}
    doubts = {"ignore_changed": ignore_changed, "believe_losses": believe_losses}
    places = {"at": at, "memory": memory, "queue": queue}
    mending = {"mend": mend, "mend_kinds": mend_kinds, "mend_from": mend_from}
    return _jobs.verify(campaign, {**limits, **doubts, **places, **mending, **options}).result()


def run(
    campaign: Optional[CampaignName] = None,
    *,
    drain: bool = False,
    max_time: Optional[Time] = None,
    movers: Optional[int] = None,
    memory: Optional[Size] = None,
    hooks: Optional[Location] = None,
    owner: Union[str, Iterable[str], None] = None,
    allow_unsigned: Union[str, Iterable[str], None] = None,
    queue: Optional[Location] = None,
    events: bool = True,
    extra_args: Iterable[Location] = (),
    **options: Unpack[TrustOptions],
) -> Mover:
    """Starts a mover, for one campaign or for all, and gives it while it runs.

    With `drain` it ends once nothing is left that could be moved without a user; it raises
    `PartialError` unless all files stand then. With `max_time` it ends after that time, and raises
    `TemporaryError` if something is left. Of a queue in a database it moves campaigns of this user and
    of each `owner`, a public key, and those with a name of
    `allow_unsigned` though nobody signed them: whoever may write to the queue says what those move. With
    `events=False` no event is kept for reading.
    """
    orders = {"drain": drain, "max_time": max_time, "movers": movers, "memory": memory, "hooks": hooks}
    owners = {"owner": owner, "allow_unsigned": allow_unsigned}
    return _jobs.mover(campaign, extra_args, events, {**orders, **owners, "queue": queue, **options})
