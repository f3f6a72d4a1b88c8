"""Campaigns as scripts make them: added, planned, moved, watched and steered, in a queue of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import pytest
from conftest import SLOW, Daemon, large, tree

import longhaul
import longhaul.aio
from longhaul import jobs

SUMMARY = '{"v":1,"type":"summary","status":"complete","exit":0,"files_retried":0,"seconds":0.1}'


@pytest.fixture(autouse=True)
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A queue that `queue=` has to name: the one of the environment is another."""
    monkeypatch.setenv("LONGHAUL_QUEUE", str(tmp_path / "of-the-environment.db"))
    yield tmp_path / "queue.db"
    assert not (tmp_path / "of-the-environment.db").exists()


def _planned(source: Any, dest: Any, queue: Path, **options: Any) -> longhaul.JobCampaign:
    campaign = jobs.add(source, dest, queue=queue, **options)
    jobs.plan(campaign, queue=queue)
    return campaign


def _drain(queue: Path) -> List[longhaul.Event]:
    with jobs.run(drain=True, queue=queue) as mover:
        return list(mover)


def _amounts(left: longhaul.JobLeft) -> Tuple[object, ...]:
    """What is exact. The rates of links are those of the last minute, so they differ from one question to the next."""
    links = [(link.link, link.state, link.left) for link in left.links]
    return left.name, left.state, left.total, left.done, left.left, links


def test_a_campaign_is_added_planned_moved_and_told(place: Daemon, tmp_path: Path, queue: Path) -> None:
    source = tree(tmp_path)
    campaign = jobs.add(source, place.at(), name="atlas", priority=7, weight=10, queue=queue)
    assert (campaign.name, campaign.state, campaign.from_) == ("atlas", "planning", (str(source),))
    assert (campaign.rules.priority, campaign.rules.weight, campaign.rules.deadline) == (7, 10, None)
    assert campaign.to.startswith("lh://") and campaign.total == longhaul.Amount()

    planned = jobs.plan("atlas", queue=queue)
    assert (planned.name, planned.shards, planned.files, planned.bytes, planned.omitted) == ("atlas", 1, 2, 5100, 0)
    left = jobs.left("atlas", queue=queue)
    assert (left.state, left.left, left.done) == ("running", longhaul.Amount(2, 5100), longhaul.Amount(0, 0))
    assert [(link.state, link.left) for link in left.links] == [("open", longhaul.Amount(2, 5100))]

    with jobs.run("atlas", drain=True, movers=2, memory="64MiB", queue=queue) as mover:
        shards = [event for event in mover if isinstance(event, longhaul.JobShard)]
    assert [(shard.name, shard.state, shard.files_failed) for shard in shards] == [
        ("atlas", "claimed", 0),
        ("atlas", "done", 0),
    ]
    assert shards[1].bytes_moved == 5100 and shards[1].fence == 1 and not shards[1].unclaimed
    assert mover.result().exit == 0 and mover.done() and not mover.cancelled()
    assert (place.root / "run7" / "sub" / "b").read_bytes() == b"b" * 5000

    done = jobs.wait("atlas", queue=queue)
    assert (done.state, done.done, done.left, done.eta_s) == ("done", done.total, longhaul.Amount(), 0.0)
    shown = jobs.show("atlas", queue=queue)
    assert _amounts(shown.left) == _amounts(done) and shown.campaign.done == done.done and shown.held == ()
    assert jobs.report("atlas", queue=queue) == jobs.Report((), (), True)
    assert [campaign.name for campaign in jobs.ls(queue=queue)] == ["atlas"]


def test_the_queue_of_the_environment_is_the_default(
    tmp_path: Path, queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_QUEUE", str(queue))
    jobs.add(tree(tmp_path), tmp_path / "to", name="one")
    assert [campaign.name for campaign in jobs.ls()] == [campaign.name for campaign in jobs.ls(queue=queue)] == ["one"]


@pytest.mark.parametrize(
    ("deadline", "told"),
    [
        ("2036-12-24T18:00:00Z", "2036-12-24T18:00:00Z"),
        (datetime.datetime(2036, 12, 24, 18, tzinfo=datetime.timezone.utc), "2036-12-24T18:00:00Z"),
        (
            datetime.datetime(2036, 12, 24, 18, tzinfo=datetime.timezone(datetime.timedelta(hours=-8))),
            "2036-12-25T02:00:00Z",
        ),
    ],
)
def test_a_deadline_is_a_point_of_time(deadline: Any, told: str, tmp_path: Path, queue: Path) -> None:
    assert jobs.add(tree(tmp_path), tmp_path / "to", deadline=deadline, queue=queue).rules.deadline == told


@pytest.mark.parametrize("deadline", [datetime.timedelta(hours=36), 36 * 3600, "36h"])
def test_a_deadline_may_be_a_time_from_now(deadline: Any, tmp_path: Path, queue: Path) -> None:
    told = jobs.add(tree(tmp_path), tmp_path / "to", deadline=deadline, queue=queue).rules.deadline
    assert told is not None
    at = datetime.datetime.strptime(told, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)
    assert abs(at.timestamp() - time.time() - 36 * 3600) < 300


def test_a_deadline_without_a_time_zone_is_refused(tmp_path: Path, queue: Path) -> None:
    with pytest.raises(ValueError, match="time zone"):
        jobs.add("a", "b", deadline=datetime.datetime(2036, 12, 24), queue=queue)
    assert not queue.exists()


def test_keywords_become_the_rules_of_the_campaign(tmp_path: Path, queue: Path) -> None:
    rules = jobs.add(
        tree(tmp_path),
        tmp_path / "to",
        calendar="in Europe/Zurich: nights 8 Gbit/s, days 1 Gbit/s",
        retry_rules={"changed": 5, "not-found": 2},
        hook=["mail", "chat:shard"],
        shard_files=10,
        shard_bytes="64MiB",
        rate=10**9,
        retry_for=datetime.timedelta(seconds=30),
        include=["a", "b"],
        exclude="*",
        peer_key=None,
        queue=queue,
    ).rules
    assert rules.calendar.startswith("in Europe/Zurich:")
    assert rules.hooks == "mail:campaign,fault chat:shard"
    assert sorted(rules.retry_rules.replace(" ", "").split(",")) == ["changed=5", "not-found=2"]
    with pytest.raises(TypeError, match="files_from"):
        jobs.add("a", "b", files_from=["x"], queue=queue)  # type: ignore[call-arg]


def test_filters_keep_the_order_of_the_keywords(tmp_path: Path, queue: Path) -> None:
    source = tree(tmp_path)
    for filters, files in (({"include": "a", "exclude": "*"}, 1), ({"exclude": "*", "include": "a"}, 0)):
        campaign = jobs.add(source, tmp_path / "to", queue=queue, **filters)
        assert jobs.plan(campaign, queue=queue).files == files


@pytest.mark.parametrize("name", ["-v", "--json", "17", "a b;$(x)'", "größe"])
def test_a_campaign_is_named_by_its_name_its_number_or_its_event(name: str, tmp_path: Path, queue: Path) -> None:
    campaign = jobs.add(tree(tmp_path), tmp_path / "to", name=name, queue=queue)
    for named in (name, campaign.campaign, campaign):
        assert jobs.left(named, queue=queue).name == name


def test_a_family_is_added_for_all_destinations_and_moved_by_one_name(tmp_path: Path, queue: Path) -> None:
    source, dests = tree(tmp_path), [tmp_path / "one", tmp_path / "two"]
    family = jobs.add_all(source, dests, name="atlas", priority=7, queue=queue)
    assert [campaign.name for campaign in family] == ["atlas/1", "atlas/2"]
    assert [campaign.to for campaign in family] == [str(dest) for dest in dests]
    assert [jobs.plan(campaign, queue=queue).files for campaign in family] == [2, 2]
    with jobs.run("atlas", drain=True, queue=queue) as mover:
        list(mover)
    for campaign, dest in zip(family, dests):
        assert jobs.wait(campaign, queue=queue).done.files == 2
        assert (dest / "run7" / "sub" / "b").read_bytes() == b"b" * 5000
    assert [left.name for left in jobs.watch("atlas", queue=queue)] == ["atlas/1", "atlas/2"]
    assert jobs.report("atlas", queue=queue).complete and jobs.retry("atlas", queue=queue) == 0
    with pytest.raises(ValueError, match="2 campaigns, atlas/1 to atlas/2"):
        jobs.left("atlas", queue=queue)
    with pytest.raises(longhaul.UsageError, match="family of campaigns named 'atlas' already"):
        jobs.add(source, tmp_path / "three", name="atlas", queue=queue)
    assert [campaign.name for campaign in jobs.add_all(source, tmp_path / "four", name="b", queue=queue)] == ["b"]
    with pytest.raises(ValueError, match="empty"):
        jobs.add_all(source, [], queue=queue)
    there, before = "lh://node.example/data/other", len(jobs.ls(queue=queue))
    with pytest.raises(longhaul.UsageError, match="one campaign is asked for"):
        jobs.add([source, there], tmp_path / "four", queue=queue)
    with pytest.raises(longhaul.UsageError, match="one campaign is asked for"):
        jobs.add(source, tmp_path / "four", queue=queue, extra_args=["--also", tmp_path / "five"])
    assert len(jobs.ls(queue=queue)) == before, "nothing was added"
    assert len(jobs.add_all([source, there], tmp_path / "four", queue=queue)) == 2


def test_failures_are_exceptions_with_all_that_the_fault_says(tmp_path: Path, queue: Path) -> None:
    with pytest.raises(longhaul.NotFoundError) as caught:
        jobs.left("none", queue=queue)
    assert caught.value.code == "not-found" and caught.value.blame == "local" and not caught.value.retry
    assert "there is no queue" in caught.value.message and "job add" in caught.value.hint
    jobs.add(tree(tmp_path), tmp_path / "to", name="atlas", queue=queue)
    for ask in (jobs.left, jobs.show, jobs.plan, jobs.wait, jobs.hold, jobs.retry, jobs.report):
        with pytest.raises(longhaul.NotFoundError, match="'none'") as caught:
            ask("none", queue=queue)  # type: ignore[operator]
        assert isinstance(caught.value.summary, longhaul.JobSummary) and caught.value.summary.exit == 3
    with pytest.raises(longhaul.NotFoundError):
        list(jobs.watch("none", queue=queue))
    with pytest.raises(longhaul.NotFoundError), jobs.run("none", queue=queue) as mover:
        list(mover)
    with pytest.raises(longhaul.UsageError, match="1000"):
        jobs.add(tmp_path / "run7", tmp_path / "to", weight=1001, queue=queue)


def test_a_file_that_failed_is_reported_and_tried_again(tmp_path: Path, queue: Path) -> None:
    source = tree(tmp_path)
    campaign = _planned(source, tmp_path / "to", queue)
    (source / "a").rename(tmp_path / "away")
    with pytest.raises(longhaul.PartialError) as caught:
        _drain(queue)
    assert caught.value.exit == 23 and caught.value.summary is not None
    with pytest.raises(longhaul.PartialError):
        jobs.wait(campaign, queue=queue)
    left = jobs.left(campaign, queue=queue)
    assert (left.failed, left.done) == (longhaul.Amount(1, 100), longhaul.Amount(1, 5000))
    assert [(fault.code, fault.files_waiting, fault.files_failed) for fault in left.faults] == [("not-found", 0, 1)]

    report = jobs.report(campaign, queue=queue)
    (fault,) = report.faults
    assert not report.complete and report.omitted == ()
    assert (fault.path, fault.path_bytes, fault.bytes, fault.given_up, fault.tries) == ("a", b"a", 100, True, 1)
    assert fault.code == "not-found" and fault.message and fault.last.endswith("Z")

    (tmp_path / "away").rename(source / "a")
    assert jobs.retry(campaign, "changed", queue=queue) == 0
    assert jobs.retry(campaign, "not-found", queue=queue) == 1
    _drain(queue)
    assert jobs.wait(campaign, queue=queue).done.files == 2
    assert jobs.report(campaign, queue=queue).complete


def test_what_was_delivered_is_read_back(tmp_path: Path, queue: Path) -> None:
    campaign = _planned(tree(tmp_path), tmp_path / "to/", queue)
    _drain(queue)
    verified = jobs.verify(campaign, budget="100MB/s", cycle="30d", queue=queue)
    assert verified.complete and verified.bad == () and verified.figures.never.files == 0
    assert [(shard.state, shard.files, shard.files_first) for shard in verified.shards] == [("read", 2, 0)]
    assert verified.figures.pace.suffices and verified.figures.pace.budget_bytes_per_s == 100_000_000

    (lost,) = (tmp_path / "to").rglob("a")
    lost.unlink()
    assert jobs.verify(campaign, queue=queue).shards == (), "nothing is due"
    with contextlib.closing(sqlite3.connect(queue)) as rows:
        rows.execute("UPDATE verification SET last = 1")
        rows.commit()
    verified = asyncio.run(longhaul.aio.jobs.verify(campaign, queue=queue))
    assert not verified.complete and verified.faults == ()
    assert [(bad.path, bad.kind, bad.known) for bad in verified.bad] == [("a", "lost", False)]
    assert [(bad.kind, bad.files) for bad in verified.figures.bad] == [("lost", 1)]

    verified = jobs.verify(campaign, mend=True, mend_kinds=["lost"], queue=queue)
    (mended,) = verified.mended
    assert verified.complete and (mended.path, mended.kind, mended.kept) == ("a", "lost", None)
    assert mended.from_.endswith("run7") and verified.figures.mended.files == 1


def test_rules_of_a_link_and_of_a_campaign_are_changed(tmp_path: Path, queue: Path) -> None:
    campaign = _planned(tree(tmp_path), tmp_path / "to", queue, calendar="in UTC: else 1 Gbit/s")
    (link,) = jobs.links(queue=queue)
    assert (link.from_, link.to, link.state, link.movers) == ("this host", "this host", "open", 8)
    assert (link.limit_bytes_per_s, link.calendar, link.waits) == (None, "", None)
    shut = jobs.link(link, rate=10**6, movers=2, calendar="in UTC: else closed", queue=queue)
    assert (shut.limit_bytes_per_s, shut.now_bytes_per_s, shut.movers, shut.waits) == (10**6, 0, 2, "link-hours")
    assert jobs.left(campaign, queue=queue).links[0].waits == "link-hours"
    assert jobs.link(link.link, calendar="none", rate="none", close=True, queue=queue).state == "closed"
    assert jobs.links(queue=queue) == [jobs.link((".", "."), queue=queue)]
    freed = asyncio.run(longhaul.aio.jobs.link((".", "this host"), open=True, queue=queue))
    assert (freed.state, freed.limit_bytes_per_s, freed.now_bytes_per_s) == ("open", None, None)
    with pytest.raises(longhaul.NotFoundError, match="no link 99"):
        jobs.link(99, queue=queue)
    with pytest.raises(longhaul.UsageError, match="closed, open or a rate"):
        jobs.link(link, calendar="in UTC: days fast", queue=queue)

    rules = jobs.set(campaign, priority=9, deadline="36h", retry_rules={"changed": 7}, queue=queue).rules
    assert (rules.priority, rules.weight, rules.retry_rules) == (9, 100, "changed=7")
    assert rules.deadline is not None and rules.calendar == "in UTC: else 1 Gbit/s"
    kept = asyncio.run(longhaul.aio.jobs.set(campaign, calendar="none", deadline="none", queue=queue)).rules
    assert (kept.priority, kept.deadline, kept.calendar, kept.retry_rules) == (9, None, "", "changed=7")
    jobs.cancel(campaign, queue=queue)
    with pytest.raises(longhaul.UsageError, match="cancelled"):
        jobs.set(campaign, priority=1, queue=queue)
    assert [one.link for one in asyncio.run(longhaul.aio.jobs.links(queue=queue))] == [link.link]


def test_a_campaign_that_takes_longer_than_one_waits_is_a_temporary_error(tmp_path: Path, queue: Path) -> None:
    campaign = _planned(tree(tmp_path), tmp_path / "to", queue)
    with pytest.raises(longhaul.TemporaryError) as caught:
        jobs.wait(campaign, max_time=0, queue=queue)
    assert caught.value.retry and caught.value.resumable and caught.value.exit == 5


def test_one_can_watch_and_wait_while_a_mover_runs(tmp_path: Path, queue: Path) -> None:
    campaign = _planned(tree(tmp_path), tmp_path / "to", queue)
    # A loop that is left ends the program that looks: the fixture sees what is left of it.
    for left in jobs.watch(campaign, every=1, queue=queue):
        assert left.left.files == 2
        break
    looks = jobs.watch(campaign, every=1, queue=queue)
    assert next(looks).state == "running"
    with jobs.run(queue=queue) as mover:
        assert jobs.wait(campaign, queue=queue).done.files == 2
        assert [left.state for left in looks][-1] == "done"
        assert mover.cancel()
    assert isinstance(mover.exception(), longhaul.InterruptedRunError)


def test_a_campaign_is_held_released_and_cancelled(tmp_path: Path, queue: Path) -> None:
    campaign = _planned(tree(tmp_path), tmp_path / "to", queue)
    assert jobs.hold(campaign, queue=queue).state == "held"
    with pytest.raises(longhaul.PartialError):
        jobs.wait(campaign, queue=queue)
    assert jobs.release(campaign, queue=queue).state == "running"
    assert jobs.cancel(campaign, queue=queue).state == "cancelled"
    assert jobs.left(campaign, queue=queue).cancelled == longhaul.Amount(2, 5100)


def test_a_mover_that_is_cancelled_hands_its_shard_back(place: Daemon, tmp_path: Path, queue: Path) -> None:
    campaign = _planned(large(tmp_path), place.at(), queue, rate=SLOW)
    mover = jobs.run(drain=True, queue=queue)
    assert any(isinstance(event, longhaul.JobShard) and event.state == "claimed" for event in mover)
    assert mover.cancel() and mover.cancelled()
    with pytest.raises(longhaul.InterruptedRunError) as caught:
        mover.result(120)
    assert caught.value.resumable and isinstance(caught.value.summary, longhaul.JobSummary)
    (end,) = [event for event in mover if isinstance(event, longhaul.JobShard)]
    assert (end.state, end.fence) == ("planned", 1)
    # It is free at once, and not when a lease has lapsed.
    mover = jobs.run(drain=True, queue=queue)
    claimed = next(event for event in mover if isinstance(event, longhaul.JobShard))
    assert (claimed.state, claimed.fence) == ("claimed", 2)
    assert mover.cancel()
    with pytest.raises(longhaul.InterruptedRunError):
        mover.result(120)
    # One whose time is over before it began leaves it where it is.
    with pytest.raises(longhaul.TemporaryError):
        jobs.run(drain=True, max_time=0, queue=queue).result(120)
    jobs.cancel(campaign, queue=queue)


def test_without_events_only_the_end_of_a_mover_is_kept(tmp_path: Path, queue: Path) -> None:
    _planned(tree(tmp_path), tmp_path / "to", queue)
    mover = jobs.run(drain=True, events=False, queue=queue)
    assert mover.result(120).status == "complete"
    with pytest.raises(ValueError, match="this mover keeps no events"):
        next(mover)


def test_lists_are_written_for_movers_without_a_queue(tmp_path: Path) -> None:
    source = tree(tmp_path)
    parts = jobs.parts(source, tmp_path / "parts", 2, exclude="*.tmp")
    assert [os.path.basename(part.path) for part in parts] == ["part-1", "part-2"]
    assert sum(part.files for part in parts) == 2 and sum(part.bytes for part in parts) == 5100
    for part in parts:
        longhaul.copy(source, tmp_path / "to", files_from=part.path_bytes, extra_args=["--from0"]).result()
    assert (tmp_path / "to" / "sub" / "b").read_bytes() == b"b" * 5000
    with pytest.raises(longhaul.UsageError, match="not empty"):
        jobs.parts(source, tmp_path / "parts", 2)


def test_it_is_the_same_for_asyncio(place: Daemon, tmp_path: Path, queue: Path) -> None:
    from longhaul.aio import jobs

    async def main() -> None:
        source = tree(tmp_path)
        campaign = await jobs.add(source, place.at(), name="atlas", queue=queue)
        assert (await jobs.plan(campaign, queue=queue)).files == 2
        assert (await jobs.hold(campaign, queue=queue)).state == "held"
        assert (await jobs.release(campaign, queue=queue)).state == "running"
        looks = jobs.watch(campaign, every=1, queue=queue)
        async for left in looks:
            assert left.left.files == 2
            break
        await looks.aclose()
        async with jobs.run(campaign, drain=True, queue=queue) as mover:
            states = [event.state async for event in mover if isinstance(event, longhaul.JobShard)]
        assert states == ["claimed", "done"] and (await mover).exit == 0 and mover.mover.done()
        done = await jobs.wait(campaign, queue=queue)
        left, shown = await jobs.left(campaign, queue=queue), await jobs.show(campaign, queue=queue)
        assert _amounts(left) == _amounts(done) == _amounts(shown.left)
        assert [left async for left in jobs.watch(campaign, queue=queue)] == [done]
        assert (await jobs.report(campaign, queue=queue)).complete
        assert await jobs.retry(campaign, queue=queue) == 0
        assert [one.name for one in await jobs.ls(queue=queue)] == ["atlas"]
        assert len(await jobs.parts(source, tmp_path / "parts", 2)) == 2
        assert (await jobs.cancel(await jobs.add(source, place.at(), queue=queue), queue=queue)).state == "cancelled"
        with pytest.raises(longhaul.NotFoundError):
            await jobs.left("none", queue=queue)
        # A plain mover can be awaited too.
        assert (await longhaul.jobs.run(drain=True, queue=queue)).exit == 0

    asyncio.run(main())


@pytest.mark.parametrize("what", ["wait", "mover"])
def test_a_cancelled_task_ends_what_it_waits_for(what: str, place: Daemon, tmp_path: Path, queue: Path) -> None:
    from longhaul.aio import jobs

    campaign = _planned(large(tmp_path), place.at(), queue, rate=SLOW)

    async def main() -> None:
        mover = jobs.run(drain=True, queue=queue)
        async for event in mover:
            if isinstance(event, longhaul.JobShard):
                break

        async def awaiting() -> None:
            await (mover if what == "mover" else jobs.wait(campaign, queue=queue))

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(awaiting(), 0.5)
        assert mover.done() is (what == "mover")
        mover.cancel()
        with pytest.raises(longhaul.InterruptedRunError):
            await mover

    asyncio.run(main())


# Programs that are not longhaul, or not this one.


def test_names_that_cannot_be_planned_are_a_partial_error(program: Any) -> None:
    program(
        """
print('{"v":1,"type":"fault","code":"denied","blame":"local","object":"/x","message":"no"}')
print('{"v":1,"type":"job_planned","name":"atlas","shards":1,"files":1,"bytes":1,"omitted":1}')
print('{"v":1,"type":"summary","status":"partial","exit":23}')
sys.exit(23)
"""
    )
    with pytest.raises(longhaul.PartialError) as caught:
        jobs.plan("atlas")
    assert [(fault.code, fault.object) for fault in caught.value.faults] == [("denied", "/x")]


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (f"print('{SUMMARY}')", longhaul.OutputError),
        ("pass", longhaul.OutputError),
        ("print('Hello')", longhaul.OutputError),
        ("sys.exit(23)", longhaul.OutputError),
    ],
)
def test_a_program_that_does_not_answer_is_an_error(lines: str, error: Any, program: Any) -> None:
    program(lines)
    with pytest.raises(error):
        jobs.left("atlas")
    if lines != f"print('{SUMMARY}')":
        with pytest.raises(error):
            jobs.report("atlas")


def test_objects_of_another_form_have_their_defaults_and_stay_raw(program: Any) -> None:
    left = {
        "v": 2,
        "type": "job_left",
        "total": {"files": 3, "bytes": "many", "added": 1},
        "done": 7,
        "links": [{"link": 1, "left": {"files": 2}}],
        "faults": [1],
    }
    program(f"print('{json.dumps(left)}')\nprint('{SUMMARY}')")
    told = jobs.left("atlas")
    assert (told.total, told.done, told.faults) == (longhaul.Amount(3, 0), longhaul.Amount(), ())
    assert told.links == (longhaul.JobLink(link=1, left=longhaul.Amount(2, 0)),)
    assert told.raw == left


def test_a_mover_has_a_minute_to_hand_its_shards_back(program: Any) -> None:
    program(
        """
signal.signal(signal.SIGINT, signal.SIG_IGN)
print('{"v":1,"type":"job_shard","state":"claimed"}', flush=True)
time.sleep(300)
"""
    )
    mover = jobs.run()
    assert next(mover).type == "job_shard"
    begun = time.monotonic()
    mover.cancel()
    assert mover._kill_at is not None and 50 < mover._kill_at - begun < 61
    mover.cancel(grace=0)
    with pytest.raises(longhaul.OutputError):
        mover.result(120)
