"""Options: keyword arguments, and the flags that they become.

In: locations and keyword arguments. Out: the words of a command line, as bytes. Must not know what
runs it. No shell ever sees the words.
"""

from __future__ import annotations

import datetime
import math
import os
import tempfile
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Union,
)

if TYPE_CHECKING:
    from typing_extensions import TypedDict
else:
    from typing import TypedDict

Location = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
"""A `str` or `bytes` is a location as on the command line: `lh://HOST/ROOT/PATH`, `HOST:PATH` or a
path. An `os.PathLike` is always a path of this host, whatever colons it has."""

Size = Union[int, str]
"""Bytes, or a text such as `256MiB`."""

Rate = Union[int, float, str]
"""Bytes per second, or a text such as `9.4Gbit/s`."""

Time = Union[int, float, datetime.timedelta, str]
"""Seconds, or a text such as `10m`."""

Deadline = Union[datetime.datetime, Time]
"""A point of time with its time zone, a time from now, or a text such as `2026-12-24T18:00:00Z`."""


class TrustOptions(TypedDict, total=False):
    """Keyword arguments that say which key is shown to a daemon, and whom to trust there."""

    identity: Location
    known_hosts: Location
    trust_on_first_use: bool
    peer_key: str


class KeyOptions(TrustOptions, total=False):
    """Keyword arguments that say how a far host is reached."""

    ssh: str
    remote_longhaul: str
    install: bool


class RuleOptions(TypedDict, total=False):
    """Keyword arguments that say how files are moved. docs/CLI.md says what each flag does."""

    lanes: Union[int, str]
    transport: str
    congestion: str
    path: Union[str, Sequence[str]]
    rate: Rate
    protect: str
    retry_for: Time
    stall_timeout: Time
    port_range: str
    chunk_size: Size
    memory: Size
    depth: Union[int, str]
    io: str
    engine: str
    pin: str
    verify: str
    if_exists: str
    include: Union[str, Sequence[str]]
    exclude: Union[str, Sequence[str]]
    preserve: Union[str, Sequence[str]]
    extra_checksum: Union[str, Sequence[str]]
    map_user: str
    map_group: str
    numeric_ids: bool


class TransferOptions(KeyOptions, RuleOptions, total=False):
    """Keyword arguments of `push`, `pull` and `copy`. docs/CLI.md says what each flag does."""

    target: Union[Location, Sequence[Location]]
    layout: str
    stripe_from: Size
    on_missing: str
    allow_same_device: bool
    as_dataset: str
    also: Union[Location, Sequence[Location]]
    dialler: str
    detach: bool
    attach: str
    stop: bool
    files_from: Union[Location, Sequence[Location]]
    dry_run: bool
    manifest: Location


class CampaignOptions(TrustOptions, RuleOptions, total=False):
    """Keyword arguments of `jobs.add` and `jobs.add_all`. docs/CLI.md says what each flag does."""

    name: str
    priority: int
    weight: int
    deadline: Deadline
    calendar: str
    retry_rules: Union[str, Mapping[str, int]]
    hook: Union[str, Sequence[str]]
    shard_files: int
    shard_bytes: Size
    as_dataset: str
    dialler: str


class PartsOptions(TrustOptions, total=False):
    """Keyword arguments of `jobs.parts`."""

    include: Union[str, Sequence[str]]
    exclude: Union[str, Sequence[str]]


def location(place: Location) -> bytes:
    """The word for a location. A path that would be read as something else gets `./` before it."""
    word = os.fsencode(place)
    if not word:
        raise ValueError("a location is empty")
    local = not isinstance(place, (str, bytes))
    if word == b"-" or (local and b":" in word.split(b"/", 1)[0]):
        return b"./" + word
    return word


def _text(value: object) -> bytes:
    return os.fsencode(value) if isinstance(value, (str, bytes, os.PathLike)) else str(value).encode()


def _size(value: Size) -> bytes:
    return _text(value)


def _rate(value: Rate) -> bytes:
    return value.encode() if isinstance(value, str) else b"%dB/s" % int(value)


def _time(value: Time) -> bytes:
    if isinstance(value, str):
        return value.encode()
    seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else value
    return b"%ds" % math.ceil(seconds)


def _list(value: Union[str, Sequence[str]]) -> bytes:
    return (value if isinstance(value, str) else ",".join(value)).encode()


def _deadline(value: Deadline) -> bytes:
    if not isinstance(value, datetime.datetime):
        return _time(value)
    if value.tzinfo is None:
        raise ValueError(f"the deadline {value} has no time zone")
    return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


def _retry_rules(value: Union[str, Mapping[str, int]]) -> bytes:
    return _list(value if isinstance(value, str) else [f"{code}={tries}" for code, tries in value.items()])


class Option(NamedTuple):
    """A row of the table: the flag of a keyword, and how its value is written."""

    flag: str
    write: Optional[Callable[[Any], bytes]]
    """`None` for a flag without a value."""
    repeats: bool = False


TRUST: Dict[str, Option] = {
    "identity": Option("--identity", location),
    "known_hosts": Option("--known-hosts", location),
    "trust_on_first_use": Option("--trust-on-first-use", None),
    "peer_key": Option("--peer-key", _text),
}

KEYS: Dict[str, Option] = {
    **TRUST,
    "ssh": Option("--ssh", _text),
    "remote_longhaul": Option("--remote-longhaul", _text),
    "install": Option("--install", None),
}

RULES: Dict[str, Option] = {
    "lanes": Option("--lanes", _text),
    "transport": Option("--transport", _text),
    "congestion": Option("--congestion", _text),
    "path": Option("--path", _text, repeats=True),
    "rate": Option("--rate", _rate),
    "protect": Option("--protect", _text),
    "retry_for": Option("--retry-for", _time),
    "stall_timeout": Option("--stall-timeout", _time),
    "port_range": Option("--port-range", _text),
    "chunk_size": Option("--chunk-size", _size),
    "memory": Option("--memory", _size),
    "depth": Option("--depth", _text),
    "io": Option("--io", _text),
    "engine": Option("--engine", _text),
    "pin": Option("--pin", _text),
    "verify": Option("--verify", _text),
    "if_exists": Option("--if-exists", _text),
    "include": Option("--include", _text, repeats=True),
    "exclude": Option("--exclude", _text, repeats=True),
    "preserve": Option("--preserve", _list),
    "extra_checksum": Option("--extra-checksum", _list),
    "map_user": Option("--map-user", _text),
    "map_group": Option("--map-group", _text),
    "numeric_ids": Option("--numeric-ids", None),
}

TRANSFER: Dict[str, Option] = {
    **KEYS,
    **RULES,
    "target": Option("--target", location, repeats=True),
    "layout": Option("--layout", _text),
    "stripe_from": Option("--stripe-from", _size),
    "on_missing": Option("--on-missing", _text),
    "allow_same_device": Option("--allow-same-device", None),
    "as_dataset": Option("--as-dataset", _text),
    "also": Option("--also", location, repeats=True),
    "dialler": Option("--dialler", _text),
    "detach": Option("--detach", None),
    "attach": Option("--attach", _text),
    "stop": Option("--stop", None),
    "files_from": Option("--files-from", location),
    "dry_run": Option("--dry-run", None),
    "manifest": Option("--manifest", location),
}

QUEUE: Dict[str, Option] = {"queue": Option("--queue", location)}

CAMPAIGN: Dict[str, Option] = {
    **QUEUE,
    **TRUST,
    **RULES,
    "name": Option("--name", _text),
    "priority": Option("--priority", _text),
    "weight": Option("--weight", _text),
    "deadline": Option("--deadline", _deadline),
    "calendar": Option("--calendar", _text),
    "retry_rules": Option("--retry-rules", _retry_rules),
    "hook": Option("--hook", _text, repeats=True),
    "shard_files": Option("--shard-files", _text),
    "shard_bytes": Option("--shard-bytes", _size),
    "as_dataset": Option("--as-dataset", _text),
    "dialler": Option("--dialler", _text),
}

FAMILY: Dict[str, Option] = {**CAMPAIGN, "also": Option("--also", location, repeats=True)}

PLAN: Dict[str, Option] = {**QUEUE, **TRUST}

PARTS: Dict[str, Option] = {
    **TRUST,
    "include": RULES["include"],
    "exclude": RULES["exclude"],
    "shards": Option("--shards", _text),
    "out": Option("--out", location),
}

SITE: Dict[str, Option] = {
    **QUEUE,
    "host": Option("--host", _text, repeats=True),
    "drop": Option("--drop", _text, repeats=True),
    "movers_in": Option("--movers-in", _text),
    "movers_out": Option("--movers-out", _text),
}

ADMIN: Dict[str, Option] = {"socket": Option("--socket", location), "config": Option("--config", location)}

ADMIN_DRAIN: Dict[str, Option] = {**ADMIN, "deadline": Option("--deadline", _time), "end": Option("--end", None)}

ADMIN_RATE: Dict[str, Option] = {**ADMIN, "client": Option("--client", _text), "root": Option("--root", _text)}

SET: Dict[str, Option] = {
    **QUEUE,
    "priority": CAMPAIGN["priority"],
    "weight": CAMPAIGN["weight"],
    "deadline": CAMPAIGN["deadline"],
    "calendar": CAMPAIGN["calendar"],
    "retry_rules": CAMPAIGN["retry_rules"],
}

LINK: Dict[str, Option] = {
    **QUEUE,
    "movers": Option("--movers", _text),
    "rate": RULES["rate"],
    "calendar": CAMPAIGN["calendar"],
    "open": Option("--open", None),
    "drain": Option("--drain", None),
    "close": Option("--close", None),
}

WAIT: Dict[str, Option] = {**QUEUE, "max_time": Option("--max-time", _time)}

WATCH: Dict[str, Option] = {**QUEUE, "every": Option("--every", _time)}

RETRY: Dict[str, Option] = {**QUEUE, "code": Option("--code", _text)}

MOVER: Dict[str, Option] = {
    **PLAN,
    "drain": Option("--drain", None),
    "max_time": Option("--max-time", _time),
    "movers": Option("--movers", _text),
    "memory": RULES["memory"],
    "hooks": Option("--hooks", location),
    "owner": Option("--owner", _text, repeats=True),
    "allow_unsigned": Option("--allow-unsigned", _text, repeats=True),
}

VERIFY: Dict[str, Option] = {
    **PLAN,
    "budget": Option("--budget", _rate),
    "cycle": Option("--cycle", _time),
    "once": Option("--once", None),
    "max_time": Option("--max-time", _time),
    "ignore_changed": Option("--ignore-changed", None),
    "believe_losses": Option("--believe-losses", None),
    "at": Option("--at", location),
    "memory": RULES["memory"],
    "mend": Option("--mend", None),
    "mend_kinds": Option("--mend-kinds", _list),
    "mend_from": Option("--mend-from", location, repeats=True),
}


class Words:
    """The words of a command line, and the standard input that they ask for."""

    def __init__(self, *command: str) -> None:
        self.words: List[bytes] = [*(word.encode() for word in command), b"--json"]
        self.stdin: Optional[IO[bytes]] = None
        self.ssh = False
        """Whether ssh leads to one of the locations: it may ask for a password at the terminal."""

    def options(self, table: Dict[str, Option], given: Dict[str, Any]) -> None:
        """Adds the flags of keyword arguments, in their order: the order of filters matters."""
        for name, value in given.items():
            if name not in table:
                raise TypeError(f"there is no option '{name}'; extra_args takes flags that have no keyword")
            if value is None:
                continue
            option, flag = table[name], table[name].flag.encode()
            if option.write is None:
                if value:
                    self.words.append(flag)
            elif name == "files_from" and not isinstance(value, (str, bytes, os.PathLike)):
                self._list_of_files(value)
            else:
                several = option.repeats and not isinstance(value, (str, bytes, os.PathLike))
                for one in value if several else [value]:
                    self.words.append(flag + b"=" + option.write(one))

    def extra(self, args: Iterable[Location]) -> None:
        """Adds words as they are."""
        self.words.extend(os.fsencode(arg) for arg in args)

    def locations(self, places: Iterable[Location]) -> None:
        """Adds locations. None of them is taken for an option."""
        self.words.append(b"--")
        words = [location(place) for place in places]
        self.ssh = any(b":" in word.split(b"/", 1)[0] and not word.startswith(b"lh://") for word in words)
        self.words.extend(words)

    def rate(self, rate: Optional[Rate]) -> None:
        """Adds a rate, or that there is none."""
        self.words += [b"--", b"none" if rate is None else _rate(rate)]

    def name(self, name: str) -> None:
        """Adds a name that is no location. It is not taken for an option."""
        self.names([name])

    def names(self, names: Iterable[str]) -> None:
        """Adds names that are no locations. None of them is taken for an option."""
        self.words += [b"--", *(os.fsencode(name) for name in names)]

    def _list_of_files(self, names: Iterable[Location]) -> None:
        """Has names read from standard input, which is a file without a name: no pipe can fill up."""
        self.stdin = tempfile.TemporaryFile()  # noqa: SIM115, the transfer closes it
        for name in names:
            self.stdin.write(os.fsencode(name) + b"\0")
        self.stdin.seek(0)
        self.words += [b"--files-from=-", b"--from0"]


def sequence(places: Union[Location, Iterable[Location]]) -> List[Location]:
    """One location, or several."""
    return [places] if isinstance(places, (str, bytes, os.PathLike)) else list(places)
