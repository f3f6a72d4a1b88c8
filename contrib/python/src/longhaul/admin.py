"""A daemon of this host, looked after by its administrator: `longhaul admin` for scripts.

In: the daemon's socket, or the config file that names it. Out: what the daemon says, as
dataclasses. Each function waits for its answer; `longhaul.aio.admin` has the same for asyncio.
Without `socket` and `config` those of the environment and the usual places hold, as for the
command. Must not know how a process is run.
"""

from __future__ import annotations

from typing import List, Optional

from . import _admin
from ._events import AdminClient, AdminDone, AdminSession, AdminStatus
from ._options import Location, Rate, Time

__all__ = ["clients", "drain", "end_drain", "kick", "reload", "revoke", "sessions", "set_rate", "status"]


def status(*, socket: Optional[Location] = None, config: Optional[Location] = None) -> AdminStatus:
    """Tells of the daemon as a whole."""
    return _admin.status({"socket": socket, "config": config}).result()


def sessions(*, socket: Optional[Location] = None, config: Optional[Location] = None) -> List[AdminSession]:
    """Lists the sessions that run."""
    return _admin.sessions({"socket": socket, "config": config}).result()


def clients(*, socket: Optional[Location] = None, config: Optional[Location] = None) -> List[AdminClient]:
    """Lists the clients that may connect, with their rights."""
    return _admin.clients({"socket": socket, "config": config}).result()


def reload(*, socket: Optional[Location] = None, config: Optional[Location] = None) -> AdminDone:
    """Has the configuration read again. A wrong one raises, and the old one holds."""
    return _admin.reload({"socket": socket, "config": config}).result()


def drain(
    *,
    deadline: Optional[Time] = None,
    socket: Optional[Location] = None,
    config: Optional[Location] = None,
) -> AdminDone:
    """Lets no session begin any more. Those that run go on, for as long as `deadline` says; `None`: to their end.

    It does not wait for them: `status().load.sessions` counts those that are left.
    """
    return _admin.drain({"socket": socket, "config": config}, deadline, end=False).result()


def end_drain(*, socket: Optional[Location] = None, config: Optional[Location] = None) -> AdminDone:
    """Lets sessions begin again."""
    return _admin.drain({"socket": socket, "config": config}, None, end=True).result()


def set_rate(
    rate: Optional[Rate],
    *,
    client: Optional[str] = None,
    root: Optional[str] = None,
    socket: Optional[Location] = None,
    config: Optional[Location] = None,
) -> AdminDone:
    """Sets a rate until the next reload: that of a client, of a root, or of all sessions. `None`: no limit."""
    return _admin.set_rate({"socket": socket, "config": config}, rate, client, root).result()


def kick(session: str, *, socket: Optional[Location] = None, config: Optional[Location] = None) -> AdminDone:
    """Ends a session, which its first digits name. It can be gone on with."""
    return _admin.kick({"socket": socket, "config": config}, session).result()


def revoke(client: str, *, socket: Optional[Location] = None, config: Optional[Location] = None) -> AdminDone:
    """Knows a client no more until the next reload, and ends its sessions."""
    return _admin.revoke({"socket": socket, "config": config}, client).result()
