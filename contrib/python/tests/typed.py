"""Never run: the type checker reads it. What users write has the types that they expect."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Optional

import longhaul
import longhaul.aio


def transfers() -> None:
    with longhaul.push(Path("run7"), "lh://node.example/data/", rate="1Gbit/s", exclude=["*.tmp"]) as transfer:
        for event in transfer:
            if isinstance(event, longhaul.File):
                digest: Optional[str] = event.b3
                print(digest, event.path.upper(), event.path_bytes.decode())
    done: longhaul.Summary = transfer.result(timeout=1.5)
    print(done.bytes_committed + 1)
    longhaul.pull([b"lh://node.example/data/\xff", "lh://node.example/data/a"], Path("."), lanes=4, retry_for=600)
    longhaul.push("a", "b", lanse=4)  # type: ignore[call-arg]
    longhaul.push("a", "b", memory=1.5)  # type: ignore[arg-type]


async def awaited() -> longhaul.Summary:
    async with longhaul.aio.pull("lh://node.example/data/a", ".") as transfer:
        async for event in transfer:
            print(event.type)
    await longhaul.aio.push("a", "b")
    return await longhaul.push("a", "b")


def campaigns() -> int:
    campaign = longhaul.jobs.add(["a", Path("b")], "lh://node.example/data/", name="atlas", rate="1Gbit/s", priority=7)
    number: int = longhaul.jobs.plan(campaign).shards
    with longhaul.jobs.run(campaign, drain=True, max_time=600) as mover:
        for event in mover:
            if isinstance(event, longhaul.JobShard):
                number += event.bytes_moved
    seconds: float = mover.result().seconds
    for left in longhaul.jobs.watch("atlas", every=1):
        number += left.links[0].left.bytes + int(seconds)
    for fault in longhaul.jobs.report("atlas").faults:
        print(fault.path_bytes.decode(), fault.given_up)
    for member in longhaul.jobs.add_all(["a", "lh://node.example/data/b"], [Path("c"), "d"], name="raw"):
        number += longhaul.jobs.left(member).total.files
    for link in longhaul.jobs.links():
        number += longhaul.jobs.link(link, movers=2, rate="1Gbit/s", close=True).movers_busy
    weight: int = longhaul.jobs.set(campaign, weight=7, calendar="none").rules.weight
    longhaul.jobs.link((".", "node.example"), calendar="in UTC: nights closed", rate=10**9)
    longhaul.jobs.set("atlas", rate="1Gbit/s")  # type: ignore[call-arg]
    number += weight
    longhaul.jobs.add("a", "b", dry_run=True)  # type: ignore[call-arg]
    longhaul.jobs.left(1.5)  # type: ignore[arg-type]
    return number + longhaul.jobs.retry("atlas", "not-found")


async def awaited_campaigns() -> str:
    campaign = await longhaul.aio.jobs.add("a", "b")
    await longhaul.aio.jobs.run(campaign, drain=True)
    async for left in longhaul.aio.jobs.watch(campaign):
        print(left.eta_s)
    return (await longhaul.aio.jobs.wait(campaign, max_time=10)).state


def errors() -> bool:
    try:
        asyncio.run(awaited())
    except longhaul.TemporaryError as error:
        return error.retry and error.code.startswith("un")
    return False


async def administration() -> Optional[float]:
    status = longhaul.admin.status(socket=Path("admin.sock"))
    names: list[str] = [root.name for root in status.roots]
    for session in longhaul.admin.sessions():
        longhaul.admin.kick(session.session).details[0].upper()
    longhaul.admin.set_rate("8Gbit/s", client="cern")
    longhaul.admin.drain("soon")  # type: ignore[call-arg]
    await longhaul.aio.admin.revoke("cern")
    return (await longhaul.aio.admin.status()).drain_s if names else None
