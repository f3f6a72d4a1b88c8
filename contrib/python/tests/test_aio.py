"""Transfers for asyncio: awaiting, iterating, cancelling."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from conftest import SLOW, Daemon

import longhaul
import longhaul.aio


def _source(top: Path, size: int = 1000) -> Path:
    path = top / "source"
    path.write_bytes(b"x" * size)
    return path


def test_a_transfer_is_awaitable_and_an_async_iterable(place: Daemon, tmp_path: Path) -> None:
    async def main() -> None:
        events = []
        async with longhaul.aio.push(_source(tmp_path), place.at()) as transfer:
            async for event in transfer:
                events.append(type(event))
        assert events[0] is longhaul.Start and events[-1] is longhaul.Summary
        summary = await longhaul.aio.pull(place.at("source"), tmp_path / "back")
        assert summary.files_committed == 1 and transfer.done() and transfer.progress is not None
        # A plain transfer can be awaited too.
        assert (await longhaul.copy(tmp_path / "back", tmp_path / "again")).files_committed == 1
        assert [entry.path for entry in await longhaul.aio.ls(place.at())] == ["source"]
        with pytest.raises(longhaul.NotFoundError):
            await longhaul.aio.copy(tmp_path / "none", tmp_path / "x")
        with pytest.raises(longhaul.NotFoundError):
            async with longhaul.aio.copy(tmp_path / "none", tmp_path / "x"):
                pass

    asyncio.run(main())


def test_several_transfers_run_side_by_side(place: Daemon, tmp_path: Path) -> None:
    async def main() -> None:
        source = _source(tmp_path)
        done = await asyncio.gather(*(longhaul.aio.push(source, place.at(f"to{number}")) for number in range(4)))
        assert [summary.files_committed for summary in done] == [1] * 4

    asyncio.run(main())


@pytest.mark.parametrize("way", ["await", "block"])
def test_a_cancelled_task_cancels_the_transfer_and_waits_for_its_end(way: str, place: Daemon, tmp_path: Path) -> None:
    source = _source(tmp_path, 32 << 20)

    async def main() -> None:
        transfer = longhaul.aio.push(source, place.at(), rate=SLOW)

        async def in_block() -> None:
            async with transfer:
                await asyncio.Event().wait()

        async def awaiting() -> None:
            await transfer

        task = asyncio.ensure_future(in_block() if way == "block" else awaiting())
        async for event in transfer:
            if isinstance(event, longhaul.Progress):
                break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert transfer.done()
        assert isinstance(transfer.transfer.exception(), longhaul.InterruptedRunError)

    asyncio.run(main())


def test_a_time_limit_of_asyncio_ends_the_transfer(place: Daemon, tmp_path: Path) -> None:
    async def main() -> None:
        transfer = longhaul.aio.push(_source(tmp_path, 32 << 20), place.at(), rate=SLOW)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(transfer, 0.5)
        assert transfer.done()

    asyncio.run(main())
