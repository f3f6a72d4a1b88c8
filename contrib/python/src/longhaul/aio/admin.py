"""A daemon of this host for asyncio: the functions of `longhaul.admin`, awaited.

In: what `longhaul.admin` takes. Out: what it gives. A task that is cancelled while it awaits an
answer ends the program that asks. Must not know how a process is run.
"""

from __future__ import annotations

from typing import List, Optional

from .. import _admin
from .._admin import Request, T
from .._events import AdminClient, AdminDone, AdminSession, AdminStatus
from .._options import Location, Rate, Time
from . import AsyncRun

__all__ = ["clients", "drain", "end_drain", "kick", "reload", "revoke", "sessions", "set_rate", "status"]


async def _answer(request: Request[T]) -> T:
    async with AsyncRun(request.start()) as run:
        events = [event async for event in run]
    return request.read(events)


async def status(*, socket: Optional[Location] = None, config: Optional[Location] = None) -> AdminStatus:
    """Tells of the daemon as a whole, as `longhaul.admin.status`."""
    return await _answer(_admin.status({"socket": socket, "config": config}))


async def sessions(*, socket: Optional[Location] = None, config: Optional[Location] = None) -> List[AdminSession]:
    """Lists the sessions that run, as `longhaul.admin.sessions`."""
    return await _answer(_admin.sessions({"socket": socket, "config": config}))


async def clients(*, socket: Optional[Location] = None, config: Optional[Location] = None) -> List[AdminClient]:
    """Lists the clients that may connect, as `longhaul.admin.clients`."""
    return await _answer(_admin.clients({"socket": socket, "config": config}))


async def reload(*, socket: Optional[Location] = None, config: Optional[Location] = None) -> AdminDone:
    """Has the configuration read again, as `longhaul.admin.reload`."""
    return await _answer(_admin.reload({"socket": socket, "config": config}))


async def drain(
    *,
    deadline: Optional[Time] = None,
    socket: Optional[Location] = None,
    config: Optional[Location] = None,
) -> AdminDone:
    """Lets no session begin, as `longhaul.admin.drain`."""
    return await _answer(_admin.drain({"socket": socket, "config": config}, deadline, end=False))


async def end_drain(*, socket: Optional[Location] = None, config: Optional[Location] = None) -> AdminDone:
    """Lets sessions begin again, as `longhaul.admin.end_drain`."""
    return await _answer(_admin.drain({"socket": socket, "config": config}, None, end=True))


async def set_rate(
    rate: Optional[Rate],
    *,
    client: Optional[str] = None,
    root: Optional[str] = None,
    socket: Optional[Location] = None,
    config: Optional[Location] = None,
) -> AdminDone:
    """Sets a rate until the next reload, as `longhaul.admin.set_rate`."""
    return await _answer(_admin.set_rate({"socket": socket, "config": config}, rate, client, root))


async def kick(session: str, *, socket: Optional[Location] = None, config: Optional[Location] = None) -> AdminDone:
    """Ends a session, as `longhaul.admin.kick`."""
    return await _answer(_admin.kick({"socket": socket, "config": config}, session))


async def revoke(client: str, *, socket: Optional[Location] = None, config: Optional[Location] = None) -> AdminDone:
    """Knows a client no more until the next reload, as `longhaul.admin.revoke`."""
    return await _answer(_admin.revoke({"socket": socket, "config": config}, client))
