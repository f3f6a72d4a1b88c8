"""Transfers as users run them: events, results, cancelling, odd names and programs that misbehave."""

from __future__ import annotations

import datetime
import os
import pathlib
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import SLOW, Daemon, large, tree

import longhaul

SUMMARY = '{"v":1,"type":"summary","status":"complete","exit":0}'


def _moving(transfer: longhaul.Transfer) -> None:
    """Waits until a transfer runs."""
    assert any(isinstance(event, longhaul.Progress) for event in transfer)


def test_a_push_and_a_pull_give_events_and_the_same_files(place: Daemon, tmp_path: Path) -> None:
    source = tree(tmp_path)
    with longhaul.push(source, place.at()) as transfer:
        events = list(transfer)
    kinds = [type(event) for event in events]
    assert kinds[0] is longhaul.Start and kinds[-1] is longhaul.Summary
    files = {event.path: event for event in events if isinstance(event, longhaul.File)}
    assert set(files) == {"run7/a", "run7/sub/b"}
    assert files["run7/sub/b"].status == "committed" and files["run7/sub/b"].bytes == 5000
    assert len(files["run7/sub/b"].b3 or "") == 64
    assert transfer.progress is not None and transfer.done() and not transfer.cancelled()

    summary = longhaul.pull(place.at("run7"), tmp_path / "back").result()
    assert (summary.files_committed, summary.exit, summary.status) == (2, 0, "complete")
    assert (tmp_path / "back" / "run7" / "sub" / "b").read_bytes() == b"b" * 5000


def test_a_result_waits_without_anybody_reading_the_events(tmp_path: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    for number in range(3000):
        (source / f"a-name-that-is-so-long-that-all-events-fill-a-pipe-many-times-{number}").touch()
    transfer = longhaul.copy(source, tmp_path / "back")
    assert transfer.result(120).files_committed == 3000
    # They are all there afterwards, in order.
    assert sum(isinstance(event, longhaul.File) for event in transfer) == 3000
    assert list(transfer) == []


def test_without_events_only_the_result_is_kept(tmp_path: Path) -> None:
    transfer = longhaul.copy(tree(tmp_path), tmp_path / "back", events=False)
    assert transfer.result().files_committed == 2
    with pytest.raises(ValueError, match="events=False"):
        next(transfer)


@pytest.mark.parametrize("name", [b"-rf", b"--json", b"-", b"a:b", b"h\xff", b"lh:", b"a b;$(x)\n'"])
def test_paths_are_taken_as_they_are(name: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(os.fsdecode(name)).write_bytes(b"content")
    place = pathlib.PurePath(os.fsdecode(name))
    with longhaul.copy(place, tmp_path / "there" / "x") as transfer:
        (file,) = [event for event in transfer if isinstance(event, longhaul.File)]
    assert file.path_bytes == name and file.path == os.fsdecode(name)
    assert (tmp_path / "there" / "x").read_bytes() == b"content"
    # As a destination as well.
    longhaul.copy(tmp_path / "there" / "x", pathlib.PurePath(os.fsdecode(name + b"2"))).result()
    assert Path(os.fsdecode(name + b"2")).read_bytes() == b"content"
    if b":" not in name:
        assert longhaul.copy(name, b"by-bytes").result().files_committed == 1


def test_several_sources_and_lists_of_names(tmp_path: Path) -> None:
    source = tree(tmp_path)
    (source / "c\nd").write_bytes(b"c")
    longhaul.copy([source / "a", os.fsencode(source / "sub")], tmp_path / "two").result()
    assert sorted(os.listdir(tmp_path / "two")) == ["a", "sub"]
    longhaul.copy(source, tmp_path / "listed", files_from=["a", b"c\nd"]).result()
    assert sorted(os.listdir(tmp_path / "listed")) == ["a", "c\nd"]


def test_filters_keep_the_order_of_the_keywords(tmp_path: Path) -> None:
    source = tree(tmp_path)
    longhaul.copy(f"{source}/", tmp_path / "first", include="a", exclude="*").result()
    assert os.listdir(tmp_path / "first") == ["a"]
    longhaul.copy(f"{source}/", tmp_path / "second", exclude="*", include="a").result()
    assert not (tmp_path / "second" / "a").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"retry_for": 0},
        {"retry_for": 1.5},
        {"retry_for": datetime.timedelta(minutes=2)},
        {"stall_timeout": "30s"},
        {"rate": 10**9},
        {"rate": "1Gbit/s"},
        {"memory": 1 << 26, "chunk_size": 1 << 20},
        {"memory": "64MiB", "chunk_size": "1MiB"},
        {"lanes": 2, "depth": 4, "verify": "disk", "if_exists": "fail"},
        {"preserve": "+xattrs"},
        {"preserve": ["mode", "times", "owner"], "numeric_ids": True},
        {"dry_run": True, "include": ["a", "b"], "exclude": None},
        {"extra_args": ["-v", "--io=buffered"], "engine": "threads"},
    ],
)
def test_keywords_become_flags_that_the_program_takes(options: Any, tmp_path: Path) -> None:
    assert longhaul.copy(tree(tmp_path), tmp_path / "back", **options).result().status == "complete"


def test_an_unknown_keyword_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="lanse"):
        longhaul.copy("a", "b", lanse=3)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="empty"):
        longhaul.copy("", "b")


@pytest.mark.parametrize(
    ("source", "options", "error", "code"),
    [
        ("none", {}, longhaul.NotFoundError, "not-found"),
        ("run7", {"extra_args": ["--bogus"]}, longhaul.UsageError, "usage"),
        ("run7", {"if_exists": "fail"}, longhaul.PartialError, "exists"),
    ],
)
def test_failures_are_exceptions(
    source: str, options: Any, error: Any, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tree(tmp_path)
    longhaul.copy("run7", "back").result()
    with pytest.raises(error) as caught, longhaul.copy(source, "back", **options) as transfer:
        list(transfer)
    raised = caught.value
    assert raised.code == code and raised.exit == longhaul.FAULTS[code].exit
    assert raised.blame in ("local", "peer") and not raised.retry
    assert raised.faults[-1].message == raised.message and raised.message in str(raised)
    assert raised.summary is not None and raised.summary.exit == raised.exit
    if raised.hint:
        assert str(raised).endswith(f"\nhint: {raised.hint}")
    if code == "not-found":
        assert raised.object == "none"


def test_a_daemon_that_is_away_is_a_temporary_error(daemon: Daemon) -> None:
    with pytest.raises(longhaul.TemporaryError) as caught:
        longhaul.pull("lh://127.0.0.1:1/data/a", ".", retry_for=0, peer_key=daemon.key).result()
    assert caught.value.retry and caught.value.code == "unreachable" and caught.value.resumable


def test_a_daemon_that_does_not_know_the_key_denies(daemon: Daemon, tmp_path: Path) -> None:
    with pytest.raises(longhaul.DeniedError):
        longhaul.ls(daemon.at(), identity=tmp_path / "another")
    with pytest.raises(longhaul.DeniedError):
        longhaul.ls(daemon.at(), known_hosts=tmp_path / "none")
    assert longhaul.ls(f"lh://{daemon.addr}/", known_hosts=tmp_path / "none", peer_key=daemon.key)[0].kind == "root"


def test_a_listing_gives_entries(place: Daemon, tmp_path: Path) -> None:
    longhaul.push(tree(tmp_path), place.at()).result()
    assert {(entry.path, entry.kind, entry.bytes) for entry in longhaul.ls(place.at("run7"))} == {
        ("a", "file", 100),
        ("sub", "dir", 0),
    }
    assert [entry.path for entry in longhaul.ls(place.at("run7"), recursive=True)] == ["a", "sub", "sub/b"]
    with pytest.raises(longhaul.NotFoundError):
        longhaul.ls(place.at("none"))


def test_a_cancelled_transfer_is_interrupted_and_goes_on_later(place: Daemon, tmp_path: Path) -> None:
    source = large(tmp_path)
    transfer = longhaul.push(source, place.at(), rate=SLOW)
    _moving(transfer)
    assert transfer.cancel() and transfer.cancelled()
    with pytest.raises(longhaul.InterruptedRunError) as caught:
        transfer.result(120)
    assert caught.value.resumable and caught.value.summary is not None
    assert not transfer.cancel()
    assert longhaul.push(source, place.at()).result().files_committed == 1
    assert (place.root / "large").read_bytes() == source.read_bytes()


def test_a_block_that_raises_cancels(place: Daemon, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), longhaul.push(large(tmp_path), place.at(), rate=SLOW) as transfer:
        _moving(transfer)
        raise ZeroDivisionError
    assert transfer.done() and transfer.cancelled()


def test_a_block_that_cancelled_raises_nothing(place: Daemon, tmp_path: Path) -> None:
    with longhaul.push(large(tmp_path), place.at(), rate=SLOW) as transfer:
        _moving(transfer)
        transfer.cancel()
    assert isinstance(transfer.exception(), longhaul.InterruptedRunError)


def test_a_result_that_is_not_there_in_time_leaves_the_transfer_running(place: Daemon, tmp_path: Path) -> None:
    transfer = longhaul.push(large(tmp_path), place.at(), rate=SLOW)
    with pytest.raises(TimeoutError):
        transfer.result(timeout=0.01)
    assert not transfer.done()
    transfer.cancel()
    transfer.exception()


def test_a_callback_is_called_at_the_end(tmp_path: Path) -> None:
    called = threading.Event()
    transfer = longhaul.copy(tree(tmp_path), tmp_path / "back")
    transfer.add_done_callback(lambda ended: called.set() if ended.done() else None)
    transfer.result()
    assert called.wait(60)
    late = threading.Event()
    transfer.add_done_callback(lambda _: late.set())
    assert late.is_set()


def test_an_interpreter_that_ends_takes_its_transfers_along(place: Daemon, tmp_path: Path) -> None:
    lines = f"""
import longhaul
transfer = longhaul.push({os.fspath(large(tmp_path))!r}, {place.at()!r}, rate={SLOW})
next(event for event in transfer if isinstance(event, longhaul.Progress))
print(transfer.pid)
"""
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=120, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_a_forked_process_that_ends_leaves_the_transfers_of_its_parent_alone(place: Daemon, tmp_path: Path) -> None:
    lines = f"""
import os, sys
import longhaul
transfer = longhaul.push({os.fspath(large(tmp_path))!r}, {place.at()!r}, rate=16_000_000)
next(event for event in transfer if isinstance(event, longhaul.Progress))
child = os.fork()
if child == 0:
    # It waits for none of them as it ends, either.
    print(len(longhaul._run._running), flush=True)
    sys.exit(0)
os.waitpid(child, 0)
print(transfer.exception())
"""
    args = [sys.executable, "-W", "ignore", "-c", lines]
    done = subprocess.run(args, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "0\nNone\n"


def test_a_job_in_the_background_that_ignores_interrupts_can_cancel_too(place: Daemon, tmp_path: Path) -> None:
    lines = f"""
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
import longhaul
transfer = longhaul.push({os.fspath(large(tmp_path))!r}, {place.at()!r}, rate={SLOW})
next(event for event in transfer if isinstance(event, longhaul.Progress))
transfer.cancel(grace=1000)
print(transfer.exception().exit)
"""
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "143\n"


# Programs that are not longhaul, or not this one.


@pytest.mark.parametrize(("source", "shares"), [("a", False), ("lh://host:1/data/a", False), ("me@host:a", True)])
def test_only_ssh_gets_the_terminal_where_it_may_ask(source: str, shares: bool, program: Any) -> None:
    program("""print('{"type":"sid","sid":%d}' % os.getsid(0)); print('""" + SUMMARY + "')")
    transfer = longhaul.copy(source, "b")
    assert (next(transfer).raw["sid"] == os.getsid(0)) is shares
    transfer.result(120)


def test_the_fault_that_led_to_the_exit_code_is_the_one_that_is_raised(program: Any) -> None:
    program(
        """
for code in ("exists", "no-space", "changed"):
    print('{"type":"fault","code":"%s","message":"it is %s"}' % (code, code))
print('{"type":"summary","status":"unable","exit":7}')
sys.exit(7)
"""
    )
    with pytest.raises(longhaul.UnableError, match="it is no-space") as caught:
        longhaul.copy("a", "b").result(120)
    assert [fault.code for fault in caught.value.faults] == ["exists", "no-space", "changed"]


def test_the_first_faults_and_the_last_are_kept(program: Any) -> None:
    program(
        """
for number in range(1500):
    print('{"type":"fault","code":"changed","object":"%d"}' % number)
print('{"type":"summary","status":"changed","exit":24}')
sys.exit(24)
"""
    )
    with pytest.raises(longhaul.ChangedError) as caught:
        longhaul.copy("a", "b", events=False).result(120)
    objects = [fault.object for fault in caught.value.faults]
    assert (len(objects), objects[0], objects[-2], objects[-1]) == (1000, "0", "998", "1499")
    assert caught.value.object == "1499"


def test_unknown_events_and_fields_are_kept(program: Any) -> None:
    program(
        """
print('{"v":2,"type":"news","a":1}')
print('{"v":1,"type":"start","session":"5","lanes":"many","added":[1]}')
print('{"v":1,"type":"file","path_b64":"/w==","status":"committed","bytes":3,"adler32":"1"}')
print('%s')
"""
        % SUMMARY
    )
    news, start, file, summary = list(longhaul.copy("a", "b"))
    assert isinstance(news, longhaul.UnknownEvent) and (news.type, news.v, news.raw["a"]) == ("news", 2, 1)
    assert isinstance(start, longhaul.Start) and start.raw["added"] == [1]
    assert (start.session, start.lanes) == ("5", 0)
    assert isinstance(file, longhaul.File) and file.path_bytes == b"\xff" and file.raw["adler32"] == "1"
    assert isinstance(summary, longhaul.Summary)


def test_a_program_that_ignores_the_interrupt_is_killed_after_the_grace(program: Any) -> None:
    program(
        """
for one in (signal.SIGINT, signal.SIGTERM):
    signal.signal(one, signal.SIG_IGN)
print('{"v":1,"type":"progress"}', flush=True)
time.sleep(300)
"""
    )
    transfer = longhaul.copy("a", "b")
    next(transfer)
    transfer.cancel(grace=0.2)
    with pytest.raises(longhaul.OutputError) as caught:
        transfer.result(120)
    assert caught.value.exit == 128 + signal.SIGKILL and "without a summary" in str(caught.value)


def test_full_pipes_hold_nothing_up(program: Any) -> None:
    program(
        """
for _ in range(64):
    os.write(2, b"e" * 65536)
    os.write(1, b'{"v":1,"type":"file","path":"' + b"p" * 65536 + b'"}\\n')
print('%s')
"""
        % SUMMARY
    )
    assert longhaul.copy("a", "b").result(120).exit == 0


def test_a_pipe_that_is_left_open_holds_nothing_up(program: Any) -> None:
    """A connection that ssh shares goes on behind the program, with its pipes."""
    program(
        """
if os.fork() == 0:
    os.setsid()
    for _ in range(10000):
        if os.path.exists(sys.argv[0] + ".over"):
            break
        time.sleep(0.01)
    os._exit(0)
print('%s')
"""
        % SUMMARY
    )
    path = Path(os.environ["LONGHAUL_BINARY"])
    try:
        assert longhaul.copy("a", "b").result(120).exit == 0
    finally:
        path.with_name(path.name + ".over").touch()


@pytest.mark.parametrize(
    ("lines", "error", "text"),
    [
        ("sys.exit(9)", longhaul.OutputError, "exit code 9"),
        ("sys.stderr.write('no such thing'); sys.exit(1)", longhaul.OutputError, "no such thing"),
        ("pass", longhaul.OutputError, "without a summary"),
        ("print('Hello')", longhaul.OutputError, "no event"),
        ("print('[1]')", longhaul.OutputError, "no event"),
        ('print(\'{"type":"summary","exit":77,"status":"odd"}\'); sys.exit(77)', longhaul.LonghaulError, "odd"),
        ("os.kill(os.getpid(), signal.SIGKILL)", longhaul.OutputError, "exit code 137"),
    ],
)
def test_a_program_that_is_another_is_an_error(lines: str, error: Any, text: str, program: Any) -> None:
    program(lines)
    transfer = longhaul.copy("a", "b")
    with pytest.raises(error, match=text):
        transfer.result(120)
    list(transfer)


def test_the_program_is_found_by_variable_in_the_wheel_and_in_the_path(
    monkeypatch: pytest.MonkeyPatch, program: Any, tmp_path: Path
) -> None:
    from longhaul import _binary

    in_wheel = longhaul.find_binary()
    assert Path(in_wheel).parent == Path(sys.executable).parent
    assert longhaul.version().version == longhaul.version().raw["version"] != ""
    named = program("print('no version')")
    assert longhaul.find_binary() == str(named)
    with pytest.raises(longhaul.OutputError):
        longhaul.version()
    monkeypatch.setenv("LONGHAUL_BINARY", str(tmp_path / "none"))
    with pytest.raises(longhaul.BinaryNotFoundError, match="none"):
        longhaul.find_binary()
    monkeypatch.delenv("LONGHAUL_BINARY")
    monkeypatch.setattr(_binary, "_of_the_wheel", lambda: None)
    (tmp_path / "longhaul").symlink_to(named)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert longhaul.find_binary() == str(tmp_path / "longhaul")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(longhaul.BinaryNotFoundError):
        longhaul.find_binary()


def test_iterating_waits_for_events_as_they_come(program: Any, tmp_path: Path) -> None:
    program(
        """
print('{"v":1,"type":"progress","files_total":1}', flush=True)
for _ in range(10000):
    if os.path.exists(sys.argv[0] + ".go"):
        break
    time.sleep(0.01)
print('%s')
"""
        % SUMMARY
    )
    transfer = longhaul.copy("a", "b")
    first = next(transfer)
    assert isinstance(first, longhaul.Progress) and not transfer.done()
    path = Path(os.environ["LONGHAUL_BINARY"])
    path.with_name(path.name + ".go").touch()
    assert isinstance(next(transfer), longhaul.Summary)
    with pytest.raises(StopIteration):
        next(transfer)
    assert transfer.result(120).exit == 0
