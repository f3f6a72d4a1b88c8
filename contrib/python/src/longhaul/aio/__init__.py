"""Transfers for asyncio: `longhaul.aio.push(...)`, `pull` and `copy`.

In: what `longhaul.push` takes. Out: an `AsyncTransfer`: awaitable, an asynchronous iterable of
events and an asynchronous context manager. `longhaul.aio.jobs` has campaigns,
and `longhaul.aio.admin` a daemon of this host. Must not know how a
process is run.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Callable, Generator, Generic, Iterable, List, Optional, Type, Union

import longhaul

from .._events import Entry, Event, Progress, Summary
from .._options import KeyOptions, Location, TransferOptions
from .._run import Run, S
from .._transfer import Transfer

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["AsyncRun", "AsyncTransfer", "admin", "copy", "jobs", "ls", "pull", "push"]


class AsyncRun(Generic[S]):
    """A run of the program, which goes on or is over, for asyncio.

    `await run` gives the summary, or raises as `Run.result()` does. A task that is cancelled while
    it awaits the run cancels the run, and waits for its end.
    """

    def __init__(self, run: Run[S]) -> None:
        self.run = run
        """The same run, for code that does not use asyncio."""

    def done(self) -> bool:
        """Whether it ended."""
        return self.run.done()

    def cancel(self, grace: Optional[float] = None) -> bool:
        """Stops it as `Run.cancel()` does, without waiting."""
        return self.run.cancel(grace)

    def __await__(self) -> Generator[object, None, S]:
        return self._result().__await__()

    async def _result(self) -> S:
        await self._end()
        return self.run.result()

    async def _end(self) -> None:
        """Waits for the end. Cancelled meanwhile, it cancels the run and still waits."""
        run = self.run
        cancelled: Optional[asyncio.CancelledError] = None
        while not run.done():
            try:
                await _signalled(lambda tell: run.add_done_callback(lambda _: tell()))
            except asyncio.CancelledError as error:
                cancelled = error
                run.cancel()
        if cancelled is not None:
            raise cancelled

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        run = self.run
        while True:
            event = run._next(wait=False)
            if event is not None:
                return event
            spool = run._spool
            if spool is None or spool.ended:
                raise StopAsyncIteration
            await _signalled(spool.listen)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is not None:
            self.cancel()
        await self._end()
        failed = self.run.exception()
        if kind is None and failed is not None and not self.run.cancelled():
            raise failed


class AsyncTransfer(AsyncRun[Summary]):
    """A transfer that runs, or ran, for asyncio.

    `await transfer` gives the summary, or raises as `Transfer.result()` does. A task that is
    cancelled while it awaits the transfer cancels the transfer, and waits for its end.
    """

    def __init__(self, transfer: Transfer) -> None:
        super().__init__(transfer)
        self.transfer = transfer
        """The same transfer, for code that does not use asyncio."""

    @property
    def progress(self) -> Optional[Progress]:
        """The latest `progress` event."""
        return self.transfer.progress


async def _signalled(register: Callable[[Callable[[], None]], None]) -> None:
    """Waits until another thread calls what `register` is given."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not future.done():
            future.set_result(None)

    def tell() -> None:
        # A loop that was closed waits for nothing.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)

    register(tell)
    await future


def push(
    sources: Union[Location, Iterable[Location]],
    dest: Location,
    *,
    extra_args: Iterable[Location] = (),
    events: bool = True,
    **options: Unpack[TransferOptions],
) -> AsyncTransfer:
    """Sends local files to another host, as `longhaul.push`."""
    return AsyncTransfer(longhaul.push(sources, dest, extra_args=extra_args, events=events, **options))


def pull(
    sources: Union[Location, Iterable[Location]],
    dest: Location,
    *,
    extra_args: Iterable[Location] = (),
    events: bool = True,
    **options: Unpack[TransferOptions],
) -> AsyncTransfer:
    """Fetches files from another host, as `longhaul.pull`."""
    return AsyncTransfer(longhaul.pull(sources, dest, extra_args=extra_args, events=events, **options))


def copy(
    sources: Union[Location, Iterable[Location]],
    dest: Location,
    *,
    extra_args: Iterable[Location] = (),
    events: bool = True,
    **options: Unpack[TransferOptions],
) -> AsyncTransfer:
    """Copies within this host, or to or from another one, as `longhaul.copy`."""
    return AsyncTransfer(longhaul.copy(sources, dest, extra_args=extra_args, events=events, **options))


async def ls(
    places: Union[Location, Iterable[Location]],
    *,
    recursive: bool = False,
    partials: bool = False,
    extra_args: Iterable[Location] = (),
    **options: Unpack[KeyOptions],
) -> List[Entry]:
    """Lists names, sizes and times, as `longhaul.ls`."""
    entries: List[Entry] = []
    listing = longhaul._listing(places, recursive, partials, extra_args, dict(options))
    async with AsyncTransfer(listing) as events:
        async for event in events:
            if isinstance(event, Entry):
                entries.append(event)
    return entries


# Behind the names that it uses.
from . import admin, jobs  # noqa: E402
