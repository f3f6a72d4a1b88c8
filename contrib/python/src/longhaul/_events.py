"""Events: what the program tells with `--json`, as typed dataclasses.

In: a line of its standard output. Out: an event. Must not know who reads it. The classes are the
one table of events and fields; the tests compare them with docs/EVENTS.md. Fields that a program
of another version does not tell have their defaults; what this table does not know is in `raw`.
"""

from __future__ import annotations

import base64
import dataclasses
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
    "fault": Fault,
    "entry": Entry,
    "version": Version,
    "summary": Summary,
}

# Events of commands that the module has no functions for. They are UnknownEvents.
UNTYPED = ("check", "difference", "item", "listening", "manifest", "warning")
UNTYPED_PREFIXES = ("admin_", "bench_", "job_", "manifest_", "set_")


def parse(line: Union[bytes, str]) -> Event:
    """The event of one line. Raises `ValueError` where the line is no event."""
    raw = json.loads(line)
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        raise ValueError("the line is no JSON object with a type")
    event = TYPES.get(raw["type"])
    if event is None:
        return UnknownEvent(raw=raw)
    values: Dict[str, Any] = {}
    for name, form in _FORMS[event].items():
        value = _text(raw, name) if form.is_name else form.take(raw.get(name))
        if value is not None:
            values[name] = value
    return event(raw=raw, **values)


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
            return tuple(value) if isinstance(value, list) and all(self._fits(item) for item in value) else None
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return value if self._fits(value) else None

    def _fits(self, value: Any) -> bool:
        return isinstance(value, self.kind) and (self.kind is bool or not isinstance(value, bool))


def _forms(event: Type[Event]) -> Dict[str, _Form]:
    hints = typing.get_type_hints(event)
    forms = {}
    for item in dataclasses.fields(event):
        if item.name == "raw":
            continue
        hint = hints[item.name]
        if typing.get_origin(hint) is Union:
            (hint,) = (one for one in typing.get_args(hint) if one is not type(None))
        is_array = typing.get_origin(hint) is tuple
        if is_array:
            hint = typing.get_args(hint)[0]
        kind = typing.cast(type, dict if hint == Object else hint)
        forms[item.name] = _Form(kind, is_array, bool(item.metadata.get("name")))
    return forms


_FORMS = {event: _forms(event) for event in TYPES.values()}
