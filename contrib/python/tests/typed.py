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


def errors() -> bool:
    try:
        asyncio.run(awaited())
    except longhaul.TemporaryError as error:
        return error.retry and error.code.startswith("un")
    return False
