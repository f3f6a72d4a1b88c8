"""Events: what the program tells with `--json`, as typed dataclasses.

In: a line of its standard output. Out: an event. Must not know who reads it. The classes are the
one table of events and fields; the tests compare them with docs/EVENTS.md. Fields that a program
of another version does not tell have their defaults; what this table does not know is in `raw`.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import os
import typing
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple, Type, Union

Object = Mapping[str, Any]


def _name() -> Any:
    """A name that stands in two fields: `NAME` as text, or `NAME_b64` where it is not UTF-8."""
    return field(default="", metadata={"name": True})


def _name_or_none() -> Any:
    return field(default=None, metadata={"name": True})


@dataclass(frozen=True)
class Part:
    """An object within an event whose fields have types too."""


@dataclass(frozen=True)
class Event:
    """Any event. One of a type that this version does not know is an `UnknownEvent`."""

    raw: Object = field(default_factory=dict, repr=False)
    """The whole JSON object, with the fields that this version does not know."""

    @property
    def type(self) -> str:
        """The name of the event."""
        return str(self.raw.get("type", ""))

    @property
    def v(self) -> int:
        """The version of the schema."""
        version = self.raw.get("v", 0)
        return version if isinstance(version, int) else 0

    @property
    def dest(self) -> Optional[str]:
        """The destination that it is about; `None` where a command has one."""
        dest = self.raw.get("dest")
        return dest if isinstance(dest, str) else None


@dataclass(frozen=True)
class UnknownEvent(Event):
    """An event of a type that this version does not know. All of it is in `raw`."""


@dataclass(frozen=True)
class Start(Event):
    """A session stands: both sides know each other and have agreed."""

    session: str = ""
    direction: str = ""
    transport: str = ""
    protect: str = ""
    lanes: int = 0
    chunk_bytes: int = 0
    congestion: str = ""
    sync: Optional[str] = None
    notes: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Progress(Event):
    """The counters of a transfer, once a second."""

    t_s: float = 0.0
    files_total: int = 0
    files_committed: int = 0
    bytes_total: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_durable: int = 0
    bytes_committed: int = 0
    bytes_digested: int = 0
    bytes_per_s: int = 0
    eta_s: Optional[float] = None
    limited_by: Optional[str] = None
    limited_share: Optional[float] = None
    bytes_arrived: int = 0
    bytes_resumed: int = 0
    silent_s: float = 0.0


@dataclass(frozen=True)
class _Named(Event):
    @property
    def path_bytes(self) -> bytes:
        """The bytes of `path`, which need not be UTF-8."""
        return os.fsencode(getattr(self, "path", None) or "")


@dataclass(frozen=True)
class File(_Named):
    """A name is settled: one event for each file and link, and for each name that is left out.

    `path` has bytes that are not UTF-8 as `os.fsdecode` has them; `path_bytes` has them plain.
    """

    path: str = _name()
    status: str = ""
    bytes: int = 0
    b3: Optional[str] = None
    target: Optional[str] = _name_or_none()
    reason: Optional[str] = None
    adler32: Optional[str] = None
    crc32c: Optional[str] = None
    md5: Optional[str] = None
    sha256: Optional[str] = None


@dataclass(frozen=True)
class Lanes(Event):
    """The sending side changed its lanes, or tried and decided not to."""

    t_s: float = 0.0
    lanes: int = 0
    change: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Road(Event):
    """The effect of a session on its path, about once a second."""

    queue_us: Optional[int] = None
    queue_bdp: Optional[float] = None
    own_loss: Optional[float] = None
    loss_beyond_own: Optional[float] = None
    share_beside: Optional[float] = None
    beside_s: Optional[float] = None


@dataclass(frozen=True)
class Paths(Event):
    """The figures of each network path, where a run has several."""

    paths: Tuple[Object, ...] = ()


@dataclass(frozen=True)
class Targets(Event):
    """The figures of each target, where a side receives into several."""

    targets: Tuple[Object, ...] = ()


@dataclass(frozen=True)
class AtRisk(_Named):
    """A target of this side failed on which files were committed in this run."""

    target: int = 0
    path: str = _name()
    files: int = 0
    names: Tuple[Object, ...] = ()


@dataclass(frozen=True)
class NotKept(_Named):
    """Metadata of one kind that was to be carried over and could not be kept."""

    kind: str = ""
    side: str = ""
    reason: str = ""
    entries: int = 0
    path: str = _name()


@dataclass(frozen=True)
class Left(Event):
    """A copy from one daemon to another goes on without this command."""

    order: str = ""


@dataclass(frozen=True)
class Unheard(Event):
    """So many names of a copy between daemons did not fail, and have no event."""

    names: int = 0


@dataclass(frozen=True)
class Deliveries(Event):
    """A source went to several destinations (`also`); a summary of each follows."""

    destinations: int = 0
    complete: int = 0
    bytes_read: int = 0
    bytes_taken: int = 0
    exit: int = 0


@dataclass(frozen=True)
class Fault(Event):
    """Something went wrong: one file, or the whole run."""

    code: str = ""
    blame: str = ""
    retry: bool = False
    object: str = ""
    message: str = ""
    hint: str = ""
    author: str = ""


@dataclass(frozen=True)
class Entry(_Named):
    """A name that `ls` found."""

    path: str = _name()
    location: Optional[str] = None
    kind: str = ""
    bytes: int = 0
    mode: Optional[str] = None
    mtime: Optional[str] = None
    rights: Optional[Tuple[str, ...]] = None
    bytes_held: Optional[int] = None
    since: Optional[str] = None
    owner: Optional[str] = None
    principal: Optional[str] = None
    temporary: Optional[str] = None
    in_use_by: Optional[str] = None


@dataclass(frozen=True)
class Version(Event):
    """The build of the program: the answer to `--version --json`."""

    version: str = ""
    commit: Optional[str] = None
    protocol: int = 0
    features: Tuple[str, ...] = ()
    allocator: str = ""
    crypto: str = ""
    target: str = ""
    profile: str = ""


@dataclass(frozen=True)
class Summary(Event):
    """The last event of every run, also of one that failed."""

    status: str = ""
    exit: int = 0
    files_committed: int = 0
    files_skipped: int = 0
    files_failed: int = 0
    bytes_committed: int = 0
    bytes_resumed: int = 0
    bytes_resent: int = 0
    bytes_read_back: int = 0
    bytes_misread: int = 0
    bytes_digested: int = 0
    seconds: float = 0.0
    bytes_per_s: int = 0
    cpu_s_per_gb: Object = field(default_factory=dict)
    limited_by: Optional[str] = None
    limited_share: Optional[float] = None
    limits: Object = field(default_factory=dict)
    stages: Object = field(default_factory=dict)
    io: Optional[Object] = None
    bytes_moved: int = 0
    bytes_holes: int = 0
    bytes_held: int = 0
    bytes_wanted: int = 0
    paths: Optional[Tuple[Object, ...]] = None
    road: Optional[Object] = None
    ssh: Optional[Object] = None
    troubled_targets: Optional[Tuple[Object, ...]] = None
    files_at_risk: int = 0


@dataclass(frozen=True)
class Amount(Part):
    """Files and their bytes."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class JobRules(Part):
    """The rules by which a campaign goes."""

    priority: int = 0
    weight: int = 0
    deadline: Optional[str] = None
    calendar: str = ""
    retry_rules: str = ""
    hooks: str = ""


@dataclass(frozen=True)
class JobLink(Part):
    """What is left of a campaign on one link."""

    link: int = 0
    state: str = ""
    fault: Optional[str] = None
    left: Amount = field(default_factory=Amount)
    bytes_per_s: int = 0
    # Why nothing begins there though it is open: link-hours, campaign-hours or pause.
    waits: Optional[str] = None


@dataclass(frozen=True)
class JobFaultSum(Part):
    """Files of a campaign that failed and do not stand, with one fault."""

    code: str = ""
    files_waiting: int = 0
    files_failed: int = 0


@dataclass(frozen=True)
class JobCampaign(Event):
    """A campaign of the queue, with its figures."""

    campaign: int = 0
    name: str = ""
    state: str = ""
    rules: JobRules = field(default_factory=JobRules)
    # The field of the event is `from`, which no field of Python can be called.
    from_: Tuple[str, ...] = ()
    to: str = ""
    # The daemon that dials the other one. None if the two ends are not both at daemons, or if the
    # program cannot read the campaign.
    dialler: Optional[str] = None
    owner: Optional[str] = None
    total: Amount = field(default_factory=Amount)
    done: Amount = field(default_factory=Amount)
    failed: Amount = field(default_factory=Amount)
    left: Amount = field(default_factory=Amount)


@dataclass(frozen=True)
class JobPlanned(Event):
    """A campaign that was planned."""

    name: str = ""
    shards: int = 0
    files: int = 0
    bytes: int = 0
    omitted: int = 0


@dataclass(frozen=True)
class JobPart(_Named):
    """A list of names that was written for movers without a queue."""

    path: str = _name()
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class JobLeft(Event):
    """The figures of a campaign. `total` is the sum of `done`, `failed`, `cancelled` and `left`."""

    name: str = ""
    state: str = ""
    total: Amount = field(default_factory=Amount)
    done: Amount = field(default_factory=Amount)
    failed: Amount = field(default_factory=Amount)
    cancelled: Amount = field(default_factory=Amount)
    left: Amount = field(default_factory=Amount)
    held: Amount = field(default_factory=Amount)
    omitted: int = 0
    unclaimed: int = 0
    commit: Optional[str] = None
    eta_s: Optional[float] = None
    links: Tuple[JobLink, ...] = ()
    faults: Tuple[JobFaultSum, ...] = ()


@dataclass(frozen=True)
class JobHeld(Event):
    """A shard that waits for a user."""

    shard: int = 0
    fence: int = 0
    files_left: int = 0
    reason: str = ""


@dataclass(frozen=True)
class JobSite(Event):
    """A host, or a site of hosts, and the movers that may be there at a time."""

    name: str = ""
    movers_in: int = 0
    movers_out: int = 0
    hosts: Tuple[str, ...] = ()


@dataclass(frozen=True)
class JobLinkRules(Event):
    """A link between two hosts, and its rules."""

    link: int = 0
    # The field of the event is `from`, which no field of Python can be called.
    from_: str = ""
    to: str = ""
    state: str = ""
    fault: Optional[str] = None
    movers: int = 0
    movers_busy: int = 0
    limit_bytes_per_s: Optional[int] = None
    calendar: str = ""
    now_bytes_per_s: Optional[int] = None
    waits: Optional[str] = None


@dataclass(frozen=True)
class JobHook(Event):
    """A hook of a campaign, and what it is to be told."""

    hook: str = ""
    events: Tuple[str, ...] = ()
    waiting: int = 0
    given_up: int = 0
    failure: Optional[str] = None


@dataclass(frozen=True)
class JobOmitted(Event):
    """A name that could not be read when a campaign was planned: it is in no shard."""

    object: str = ""
    source: int = 0
    code: str = ""
    message: str = ""


@dataclass(frozen=True)
class JobFault(_Named):
    """A file of a campaign that failed."""

    path: str = _name()
    bytes: int = 0
    code: str = ""
    blame: str = ""
    message: str = ""
    given_up: bool = False
    tries: int = 0
    last: str = ""
    shard: int = 0
    fence: int = 0


@dataclass(frozen=True)
class JobShard(Event):
    """A shard that a mover claimed, or ended with."""

    name: str = ""
    shard: int = 0
    state: str = ""
    fence: int = 0
    unclaimed: bool = False
    files: int = 0
    bytes: int = 0
    files_failed: int = 0
    bytes_moved: int = 0
    limit_bytes_per_s: Optional[int] = None


@dataclass(frozen=True)
class JobBadFile(_Named):
    """A delivered file that is lost, changed, damaged or unread."""

    path: str = _name()
    bytes: int = 0
    kind: str = ""
    message: str = ""
    known: bool = False
    shard: int = 0


@dataclass(frozen=True)
class JobMended(_Named):
    """A bad file that was copied anew, and is well by another reading."""

    path: str = _name()
    bytes: int = 0
    kind: str = ""
    from_: str = ""
    kept: Optional[str] = None
    shard: int = 0


@dataclass(frozen=True)
class JobVerified(Event):
    """A shard that was read back, or given back on the way."""

    shard: int = 0
    state: str = ""
    files: int = 0
    bytes: int = 0
    files_first: int = 0
    files_bad: int = 0
    files_ignored: int = 0
    files_mended: int = 0


@dataclass(frozen=True)
class JobPace(Part):
    """The pace of a rolling verification, and whether the budget suffices for it."""

    cycle_s: float = 0.0
    needed_bytes_per_s: int = 0
    budget_bytes_per_s: Optional[int] = None
    takes_s: Optional[float] = None
    suffices: bool = False


@dataclass(frozen=True)
class JobBadSum(Part):
    """Files of one kind that are known to be bad."""

    kind: str = ""
    files: int = 0


@dataclass(frozen=True)
class JobVerify(Event):
    """The figures of a campaign's verification."""

    name: str = ""
    total: Amount = field(default_factory=Amount)
    never: Amount = field(default_factory=Amount)
    stale: Amount = field(default_factory=Amount)
    oldest: Optional[str] = None
    pace: JobPace = field(default_factory=JobPace)
    bad: Tuple[JobBadSum, ...] = ()
    mended: Amount = field(default_factory=Amount)


@dataclass(frozen=True)
class JobSummary(Event):
    """The last event of every `job` command, also of one that failed."""

    status: str = ""
    exit: int = 0
    files_retried: int = 0
    commit_retried: Optional[str] = None
    seconds: float = 0.0


@dataclass(frozen=True)
class AdminStored(Part):
    """A count of what clients have stored, and its bounds."""

    bytes: int = 0
    bytes_max: Optional[int] = None
    files: int = 0
    files_max: Optional[int] = None


@dataclass(frozen=True)
class AdminLoad(Part):
    """The sessions of a daemon that run, and what they share."""

    sessions: int = 0
    sessions_max: int = 0
    memory_bytes: int = 0
    memory_max: int = 0
    rate_per_s: Optional[int] = None


@dataclass(frozen=True)
class AdminRoot(Part):
    """A root of a daemon."""

    name: str = ""
    rate_per_s: Optional[int] = None
    stored: Optional[AdminStored] = None


@dataclass(frozen=True)
class AdminMover(Part):
    """The mover beside a daemon."""

    movers: int = 0
    shards_moving: int = 0
    shards_ended: int = 0
    files_failed: int = 0
    bytes_moved: int = 0
    fault: Optional[str] = None


@dataclass(frozen=True)
class AdminStatus(Event):
    """A daemon as a whole."""

    version: str = ""
    pid: int = 0
    listen: Tuple[str, ...] = ()
    key: str = ""
    config: Optional[str] = None
    seconds: float = 0.0
    state: str = ""
    drain_s: Optional[float] = None
    load: AdminLoad = field(default_factory=AdminLoad)
    roots: Tuple[AdminRoot, ...] = ()
    clients: int = 0
    mover: Optional[AdminMover] = None


@dataclass(frozen=True)
class AdminSession(Event):
    """A session that runs at a daemon."""

    session: str = ""
    client: str = ""
    peer: str = ""
    what: str = ""
    protect: str = ""
    seconds: float = 0.0
    files_committed: int = 0
    files_failed: int = 0
    bytes_committed: int = 0
    bytes_moved: int = 0
    bytes_per_s: int = 0
    limited_by: Optional[str] = None


@dataclass(frozen=True)
class AdminRights(Part):
    """The rights of a client at one root."""

    root: str = ""
    rights: Tuple[str, ...] = ()


@dataclass(frozen=True)
class AdminClient(Event):
    """A client that may connect to a daemon."""

    client: str = ""
    key: str = ""
    roots: Tuple[AdminRights, ...] = ()
    bench: bool = False
    rate_per_s: Optional[int] = None
    sessions: Optional[int] = None
    stored: Optional[AdminStored] = None


@dataclass(frozen=True)
class AdminDone(Event):
    """A deed that a daemon was asked for is done."""

    did: str = ""
    sessions: int = 0
    details: Tuple[str, ...] = ()


TYPES: Dict[str, Type[Event]] = {
    "start": Start,
    "progress": Progress,
    "file": File,
    "lanes": Lanes,
    "road": Road,
    "paths": Paths,
    "targets": Targets,
    "at_risk": AtRisk,
    "not_kept": NotKept,
    "left": Left,
    "unheard": Unheard,
    "deliveries": Deliveries,
    "fault": Fault,
    "entry": Entry,
    "version": Version,
    "job_campaign": JobCampaign,
    "job_planned": JobPlanned,
    "job_part": JobPart,
    "job_left": JobLeft,
    "job_held": JobHeld,
    "job_site": JobSite,
    "job_link": JobLinkRules,
    "job_hook": JobHook,
    "job_omitted": JobOmitted,
    "job_fault": JobFault,
    "job_shard": JobShard,
    "job_bad_file": JobBadFile,
    "job_mended": JobMended,
    "job_verified": JobVerified,
    "job_verify": JobVerify,
    "admin_status": AdminStatus,
    "admin_session": AdminSession,
    "admin_client": AdminClient,
    "admin_done": AdminDone,
    "summary": Summary,
}

# Events of commands that the module has no functions for. They are UnknownEvents.
UNTYPED = (
    "check",
    "difference",
    "inconsistency",
    "item",
    "listening",
    "manifest",
    "removal",
    "removal_plan",
    "sync",
    "warning",
)
UNTYPED_PREFIXES = ("bench_", "manifest_", "set_")


def parse(line: Union[bytes, str], summary: Type[Event] = Summary) -> Event:
    """The event of one line. Raises `ValueError` where the line is no event.

    `summary` is the class of the last event: that of `job` commands has fields of its own.
    """
    raw = json.loads(line)
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        raise ValueError("the line is no JSON object with a type")
    event = summary if raw["type"] == "summary" else TYPES.get(raw["type"])
    return UnknownEvent(raw=raw) if event is None else event(raw=raw, **_values(event, raw))


def _values(kind: type, raw: Object) -> Dict[str, Any]:
    """The fields of an event, or of a part of it, that the object has."""
    values: Dict[str, Any] = {}
    for name, form in _forms(kind).items():
        told = name.rstrip("_")
        value = _text(raw, told) if form.is_name else form.take(raw.get(told))
        if value is not None:
            values[name] = value
    return values


def _text(raw: Object, name: str) -> Optional[str]:
    """A name that stands as text or, where it is not UTF-8, as base64."""
    plain, coded = raw.get(name), raw.get(f"{name}_b64")
    if isinstance(coded, str):
        return os.fsdecode(base64.b64decode(coded))
    return plain if isinstance(plain, str) else None


@dataclass(frozen=True)
class _Form:
    """The form of a field: its type, an array of it, or a name."""

    kind: type
    is_array: bool
    is_name: bool

    def take(self, value: Any) -> Any:
        """The value, or `None` where it is absent or of another type: then the default holds."""
        if self.is_array:
            fits = isinstance(value, list) and all(self._fits(item) for item in value)
            return tuple(self._made(item) for item in value) if fits else None
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return self._made(value) if self._fits(value) else None

    def _fits(self, value: Any) -> bool:
        if issubclass(self.kind, Part):
            return isinstance(value, dict)
        return isinstance(value, self.kind) and (self.kind is bool or not isinstance(value, bool))

    def _made(self, value: Any) -> Any:
        return self.kind(**_values(self.kind, value)) if issubclass(self.kind, Part) else value


@functools.cache
def _forms(kind: Type[Any]) -> Dict[str, _Form]:
    """The forms of the fields of an event, or of a part of it."""
    hints = typing.get_type_hints(kind)
    forms = {}
    for item in dataclasses.fields(kind):
        if item.name == "raw":
            continue
        hint = hints[item.name]
        if typing.get_origin(hint) is Union:
            (hint,) = (one for one in typing.get_args(hint) if one is not type(None))
        is_array = typing.get_origin(hint) is tuple
        if is_array:
            hint = typing.get_args(hint)[0]
        field_kind = typing.cast(type, dict if hint == Object else hint)
        forms[item.name] = _Form(field_kind, is_array, bool(item.metadata.get("name")))
    return forms
