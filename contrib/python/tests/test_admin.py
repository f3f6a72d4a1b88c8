"""A daemon that its administrator looks after by scripts, at its socket."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import Callable, List

import pytest
from conftest import SLOW, Daemon, large, tree

import longhaul
import longhaul.aio
from longhaul import admin


def test_a_daemon_says_what_it_is_and_who_may_come(place: Daemon) -> None:
    status = admin.status(socket=place.socket)
    assert (status.state, status.listen, status.key) == ("serving", (place.addr,), place.key)
    assert status.version == longhaul.version().version and status.pid > 1 and status.seconds > 0
    assert [(root.name, root.rate_per_s, root.stored) for root in status.roots] == [("data", None, None)]
    assert 0 <= status.load.sessions <= status.load.sessions_max and status.mover is None
    (client,) = admin.clients(socket=place.socket)
    assert (client.client, client.roots[0].root) == ("tests", "data") and status.clients == 1
    assert set(client.roots[0].rights) == {"read", "create", "modify"} and not client.bench


def test_a_session_is_seen_and_ended_and_goes_on(place: Daemon, tmp_path: Path) -> None:
    source = large(tmp_path)
    transfer = longhaul.push(source, place.at(), rate=SLOW, retry_for=0)
    try:
        started = next(event for event in transfer if isinstance(event, longhaul.Start))
        (seen,) = [one for one in admin.sessions(socket=place.socket) if one.session == started.session]
        assert (seen.client, seen.protect, seen.files_failed) == ("tests", "private", 0)
        assert seen.what.startswith("push to data/")
        ended = admin.kick(started.session, socket=place.socket)
        assert (ended.did, ended.sessions) == ("kick", 1) and ended.details
        with pytest.raises(longhaul.TemporaryError, match="administrator ended this session") as raised:
            transfer.result(timeout=60)
        assert raised.value.resumable
    finally:
        transfer.cancel()
    # The daemon puts it away behind its last word.
    until = time.monotonic() + 60
    while admin.status(socket=place.socket).load.sessions:
        assert time.monotonic() < until


def test_a_drain_lets_no_session_begin_until_it_is_ended(place: Daemon, tmp_path: Path) -> None:
    source = tree(tmp_path)
    assert admin.drain(deadline=600, socket=place.socket).did == "drain"
    try:
        status = admin.status(socket=place.socket)
        assert status.state == "draining" and status.drain_s is not None and 0 < status.drain_s <= 600
        with pytest.raises(longhaul.TemporaryError) as raised:
            longhaul.push(source, place.at(), retry_for=0).result()
        assert raised.value.retry
    finally:
        assert admin.end_drain(socket=place.socket).did == "end-drain"
    assert longhaul.push(source, place.at()).result().files_committed == 2


def test_a_rate_holds_until_the_next_reload(place: Daemon) -> None:
    def rates() -> List[object]:
        status = admin.status(socket=place.socket)
        (client,) = admin.clients(socket=place.socket)
        return [status.load.rate_per_s, status.roots[0].rate_per_s, client.rate_per_s]

    assert rates() == [None, None, None]
    try:
        assert admin.set_rate("8Mbit/s", socket=place.socket).did == "set-rate"
        admin.set_rate(2_000_000, root="data", socket=place.socket)
        admin.set_rate(3_000_000, client="tests", socket=place.socket)
        assert rates() == [1_000_000, 2_000_000, 3_000_000]
        admin.set_rate(None, root="data", socket=place.socket)
        assert rates() == [1_000_000, None, 3_000_000]
    finally:
        assert admin.reload(socket=place.socket).did == "reload"
    assert rates() == [None, None, None]


NO_SUCH: List[Callable[[Path], object]] = [
    lambda socket: admin.kick("ffff", socket=socket),
    lambda socket: admin.revoke("nobody", socket=socket),
    lambda socket: admin.revoke("--end", socket=socket),
    lambda socket: admin.set_rate(100_000, client="nobody", socket=socket),
]


@pytest.mark.parametrize("ask", NO_SUCH)
def test_who_is_not_there_is_said(place: Daemon, ask: Callable[[Path], object]) -> None:
    with pytest.raises(longhaul.NotFoundError) as raised:
        ask(place.socket)
    assert (raised.value.code, raised.value.exit) == ("not-found", 3)


def test_a_daemon_that_is_not_there_is_temporary_and_its_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(longhaul.TemporaryError) as raised:
        admin.status(socket=tmp_path / "none.sock")
    assert raised.value.code == "unreachable" and "none.sock" in raised.value.message


def test_the_socket_of_the_environment_is_the_default(place: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_SOCKET", str(place.socket))
    assert admin.status().key == place.key


def test_an_answer_that_is_missing_is_no_answer(program: Callable[[str], Path]) -> None:
    program('print(json.dumps({"v": 1, "type": "summary", "status": "complete", "exit": 0}))')
    with pytest.raises(longhaul.OutputError, match="AdminStatus"):
        admin.status(socket="any")
    assert admin.sessions(socket="any") == []


def test_it_is_the_same_for_asyncio(place: Daemon) -> None:
    async def main() -> None:
        asked = longhaul.aio.admin
        status = await asked.status(socket=place.socket)
        assert (status.key, status.roots) == (place.key, admin.status(socket=place.socket).roots)
        assert [client.client for client in await asked.clients(socket=place.socket)] == ["tests"]
        assert await asked.sessions(socket=place.socket) == []
        assert (await asked.drain(socket=place.socket)).did == "drain"
        assert (await asked.end_drain(socket=place.socket)).did == "end-drain"
        assert (await asked.set_rate(None, socket=place.socket)).did == "set-rate"
        assert (await asked.reload(socket=place.socket)).did == "reload"
        for refused in (asked.kick("ffff", socket=place.socket), asked.revoke("x", socket=place.socket)):
            with pytest.raises(longhaul.NotFoundError):
                await refused

    asyncio.run(main())


def test_an_event_of_an_administrator_keeps_what_it_does_not_know() -> None:
    event = longhaul.parse(b'{"v":1,"type":"admin_status","pid":7,"load":{"sessions":2},"new":1}')
    assert isinstance(event, longhaul.AdminStatus) and (event.pid, event.load.sessions) == (7, 2)
    assert event.raw["new"] == 1 and dataclasses.replace(event, pid=8).pid == 8
