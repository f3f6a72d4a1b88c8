"""The spool: nothing is lost, whatever the writer and the reader do in which order."""

from __future__ import annotations

import random
import threading
from typing import List

import pytest

from longhaul import _spool
from longhaul._spool import Spool


@pytest.mark.parametrize("seed", range(20))
def test_lines_come_in_order_through_memory_and_file(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_spool, "MEMORY_MAX", 100)
    monkeypatch.setattr(_spool, "BLOCK", 7)
    chance, spool = random.Random(seed), Spool()
    sent: List[bytes] = []
    got: List[bytes] = []
    for _ in range(300):
        if chance.random() < 0.5:
            lines = [b"%d" % chance.randrange(10**12) * chance.randrange(9) for _ in range(chance.randrange(1, 5))]
            spool.append(b"".join(line + b"\n" for line in lines))
            sent += lines
        else:
            for _ in range(chance.randrange(10)):
                line = spool.get(wait=False)
                if line is None:
                    assert got == sent
                    break
                got.append(line)
    assert not spool.ended
    spool.close()
    got += iter(spool.get, None)  # type: ignore[arg-type]
    assert got == sent and spool.ended


def test_memory_is_bounded() -> None:
    spool = Spool()
    for _ in range(100):
        spool.append(b"x" * 99_999 + b"\n")
    assert spool._ready_bytes <= _spool.MEMORY_MAX
    spool.close()
    assert sum(1 for _ in iter(spool.get, None)) == 100


def test_a_disk_without_space_is_told_to_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_spool, "MEMORY_MAX", 4)
    monkeypatch.setattr(_spool.os, "pwrite", full)
    spool = Spool()
    for line in (b"a\n", b"b\n", b"too long\n"):
        spool.append(line)
    spool.close()
    assert [spool.get(), spool.get()] == [b"a", b"b"]
    with pytest.raises(OSError, match="No space"):
        spool.get()


def test_a_listener_is_told_once_of_a_line_or_the_end() -> None:
    spool, told = Spool(), threading.Semaphore(0)
    spool.listen(told.release)
    assert not told.acquire(blocking=False)
    spool.append(b"a\n")
    assert told.acquire(blocking=False)
    spool.listen(told.release)
    assert told.acquire(blocking=False)
    assert spool.get() == b"a"
    spool.listen(told.release)
    assert not told.acquire(blocking=False)
    spool.close()
    assert told.acquire(blocking=False)
