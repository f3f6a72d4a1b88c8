"""Requests to a daemon of this host at its administrator's socket: their words, and their answers.

In: the socket and what is asked. Out: requests that `longhaul.admin` waits for and
`longhaul.aio.admin` awaits. The program asks at the socket: what is said there is its own. Must not
know how a process is run, nor a daemon.
"""

from __future__ import annotations

from typing import Callable, Dict, Generic, List, Optional, Type, TypeVar

from . import _exits, _options
from ._events import AdminClient, AdminDone, AdminSession, AdminStatus, Event, Summary
from ._options import Location, Rate, Time
from ._run import Run

T = TypeVar("T")
E = TypeVar("E", bound=Event)

Where = Dict[str, Optional[Location]]
"""The socket of a daemon, or the config file that names it."""


class Request(Generic[T]):
    """A request that is answered by events."""

    def __init__(self, words: _options.Words, read: Callable[[List[Event]], T]) -> None:
        self.words = words
        self.read = read

    def start(self) -> Run[Summary]:
        """Asks."""
        return Run(self.words.words, Summary)

    def result(self) -> T:
        """Asks, and waits for the answer."""
        with self.start() as run:
            events = list(run)
        return self.read(events)


def _request(verb: str, where: Where, read: Callable[[List[Event]], T], name: Optional[str] = None) -> Request[T]:
    words = _options.Words("admin", verb)
    words.options(_options.ADMIN, dict(where))
    if name is not None:
        words.name(name)
    return Request(words, read)


def _all(kind: Type[E]) -> Callable[[List[Event]], List[E]]:
    return lambda events: [event for event in events if isinstance(event, kind)]


def _one(kind: Type[E]) -> Callable[[List[Event]], E]:
    def read(events: List[Event]) -> E:
        for event in events:
            if isinstance(event, kind):
                return event
        raise _exits.OutputError(f"the program ended well and told no {kind.__name__}: is it of another version?")

    return read


def status(where: Where) -> Request[AdminStatus]:
    """The daemon as a whole."""
    return _request("status", where, _one(AdminStatus))


def sessions(where: Where) -> Request[List[AdminSession]]:
    """The sessions that run."""
    return _request("sessions", where, _all(AdminSession))


def clients(where: Where) -> Request[List[AdminClient]]:
    """The clients that may connect."""
    return _request("clients", where, _all(AdminClient))


def reload(where: Where) -> Request[AdminDone]:
    """Has the configuration read again."""
    return _request("reload", where, _one(AdminDone))


def drain(where: Where, deadline: Optional[Time], end: bool) -> Request[AdminDone]:
    """Lets no session begin, or lets them begin again."""
    words = _options.Words("admin", "drain")
    words.options(_options.ADMIN_DRAIN, {**where, "deadline": deadline, "end": end})
    return Request(words, _one(AdminDone))


def set_rate(where: Where, rate: Optional[Rate], client: Optional[str], root: Optional[str]) -> Request[AdminDone]:
    """Sets a rate until the next reload."""
    words = _options.Words("admin", "set-rate")
    words.options(_options.ADMIN_RATE, {**where, "client": client, "root": root})
    words.rate(rate)
    return Request(words, _one(AdminDone))


def kick(where: Where, session: str) -> Request[AdminDone]:
    """Ends a session."""
    return _request("kick", where, _one(AdminDone), session)


def revoke(where: Where, client: str) -> Request[AdminDone]:
    """Knows a client no more until the next reload."""
    return _request("revoke", where, _one(AdminDone), client)
