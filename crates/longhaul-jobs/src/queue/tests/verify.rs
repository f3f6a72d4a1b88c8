//! The rolling verification: its rules, one at a time. `world` plays them all together.
//!
//! In: small queues. Out: their rows. Must not know how a file is read.

mod world;

use super::*;
use crate::rows::{BadKind, Verification};

const CYCLE: Duration = Duration::from_secs(90 * 86_400);
const FILES: u64 = 10;

fn path(shard: ShardId, entry: u64) -> Vec<u8> {
    format!("{}/{entry}", shard.0).into_bytes()
}

fn found(path: Vec<u8>, kind: BadKind) -> FoundBad {
    FoundBad { path, bytes: 10, kind, message: PlainText::from("it is bad") }
}

impl Bench {
    /// A campaign with so many shards, all of which stand.
    fn delivered(shards: u64) -> (Bench, CampaignId) {
        let (mut bench, campaign) = Bench::one_campaign(shards);
        bench.move_all();
        (bench, campaign)
    }

    /// Moves whatever is planned. Every file arrives.
    fn move_all(&mut self) {
        loop {
            self.schedule();
            let Some(granted) = self.claim() else { return };
            self.finish(&granted, FILES, Outcome::Through(Vec::new()));
        }
    }

    fn take(&mut self, campaign: CampaignId, id: u8) -> VerifyTurn {
        let ask = VerifyAsk { campaign, cycle: CYCLE, begun: Micros(0), id: ClaimId([id; 16]) };
        self.store.transact(|rows| take_to_verify(rows, &ask)).unwrap()
    }

    fn must_take(&mut self, campaign: CampaignId, id: u8) -> VerifyShard {
        match self.take(campaign, id) {
            VerifyTurn::Shard(given) => *given,
            nothing @ VerifyTurn::NothingDue(_) => panic!("{nothing:?}"),
        }
    }

    fn note(&mut self, news: &VerifyNews) -> VerifyHeard {
        self.store.transact(|rows| note_verified(rows, news)).unwrap()
    }

    fn figures(&mut self, campaign: CampaignId) -> VerifyFigures {
        self.store.transact(|rows| verify_figures(rows, campaign, CYCLE)).unwrap()
    }

    fn row(&mut self, shard: ShardId) -> Option<Verification> {
        self.store.transact(|rows| rows.verification(shard)).unwrap()
    }
}

/// The news of a verifier that has read so many names and found none bad.
fn read(given: &VerifyShard, id: u8, entry: u64, next: VerifyNext) -> VerifyNews {
    let (shard, id) = (given.shard.id, ClaimId([id; 16]));
    VerifyNews { shard, id, entry, well: Vec::new(), bad: Vec::new(), next }
}

#[test]
fn the_shard_that_was_read_the_longest_time_ago_is_next_and_none_before_its_cycle_is_over() {
    let (mut bench, campaign) = Bench::delivered(3);
    let mut order = Vec::new();
    for id in 0..3 {
        let given = bench.must_take(campaign, id);
        order.push(given.shard.id);
        bench.pass(100);
        bench.note(&read(&given, id, FILES, VerifyNext::IsThrough));
    }
    assert!(order.is_sorted() && order.windows(2).all(|two| two[0] != two[1]), "{order:?}");
    let first_due = CYCLE - Duration::from_secs(200);
    assert_eq!(bench.take(campaign, 4), VerifyTurn::NothingDue(Some(first_due)));
    bench.pass(first_due.as_secs());
    assert_eq!(bench.must_take(campaign, 5).shard.id, order[0]);
    assert_eq!(bench.take(campaign, 6), VerifyTurn::NothingDue(Some(Duration::from_secs(100))));
}

#[test]
fn two_verifiers_never_have_one_shard_and_a_dead_one_loses_it_after_its_lease() {
    let (mut bench, campaign) = Bench::delivered(1);
    let first = bench.must_take(campaign, 1);
    assert_eq!(bench.take(campaign, 2), VerifyTurn::NothingDue(None), "it is being read");
    bench.note(&read(&first, 1, 4, VerifyNext::GoesOn));
    bench.pass(61);
    let second = bench.must_take(campaign, 2);
    assert_eq!((second.shard.id, second.entry), (first.shard.id, 4), "the next one goes on behind the last word");
    assert_eq!(bench.note(&read(&first, 1, FILES, VerifyNext::IsThrough)), VerifyHeard::Gone);
    assert_eq!(bench.row(first.shard.id).unwrap().last, Micros(0), "what the first one says is void");
    assert_eq!(bench.note(&read(&second, 2, FILES, VerifyNext::IsThrough)), VerifyHeard::Recorded(0));
}

#[test]
fn a_reading_that_was_broken_off_for_long_begins_anew() {
    for (days, entry) in [(8, 7), (10, 0)] {
        let (mut bench, campaign) = Bench::delivered(1);
        let given = bench.must_take(campaign, 1);
        bench.note(&read(&given, 1, 7, VerifyNext::GivesBack));
        bench.pass(days * 86_400);
        assert_eq!(bench.must_take(campaign, 2).entry, entry, "behind {days} days");
    }
}

#[test]
fn clocks_that_are_an_hour_off_neither_lose_a_reading_nor_block_a_shard() {
    let hour = 3600 * 1_000_000;
    let (mut bench, campaign) = Bench::delivered(2);
    for id in [1, 2] {
        let given = bench.must_take(campaign, id);
        bench.note(&read(&given, id, FILES, VerifyNext::IsThrough));
    }
    bench.store.now = Micros(bench.store.now.0 - hour);
    assert!(matches!(bench.take(campaign, 3), VerifyTurn::NothingDue(Some(_))), "an hour back");
    assert_eq!(bench.figures(campaign).sums.never, Amount::default());
    bench.store.now = Micros(bench.store.now.0 - 30 * hour);
    assert_eq!(bench.figures(campaign).sums.never.files, 2 * FILES, "noted by a clock that ran days ahead");
    let given = bench.must_take(campaign, 4);
    // The lease of a verifier whose clock ran ahead is over.
    bench.store.now = Micros(bench.store.now.0 - hour);
    assert_eq!(bench.must_take(campaign, 5).shard.id, given.shard.id);
}

#[test]
fn a_bad_file_is_new_once_and_gone_when_it_is_well_again() {
    let (mut bench, campaign) = Bench::delivered(1);
    let given = bench.must_take(campaign, 1);
    let bad = path(given.shard.id, 3);
    let says = |kind| {
        let news = read(&given, 1, 5, VerifyNext::GoesOn);
        VerifyNews { bad: vec![found(bad.clone(), kind)], ..news }
    };
    assert_eq!(bench.note(&says(BadKind::Damaged)), VerifyHeard::Recorded(1));
    assert_eq!(bench.note(&says(BadKind::Damaged)), VerifyHeard::Recorded(0), "it is known");
    assert_eq!(bench.note(&says(BadKind::Lost)), VerifyHeard::Recorded(1), "it is bad in another way");
    let sums = bench.figures(campaign).bad;
    assert_eq!(sums.iter().map(|sum| (sum.kind, sum.amount.files)).collect::<Vec<_>>(), [(BadKind::Lost, 1)]);
    let well = VerifyNews { well: vec![bad], ..read(&given, 1, 5, VerifyNext::GoesOn) };
    bench.note(&well);
    assert_eq!(bench.figures(campaign).bad, []);
}

#[test]
fn a_hook_is_told_of_what_is_newly_bad_and_of_nothing_that_is_known() {
    let mut bench = Bench::new(2, None);
    let new = NewCampaign { hooks: "mail:fault".parse().unwrap(), ..named("told") };
    let campaign = bench.campaign(new, 1);
    bench.move_all();
    let given = bench.must_take(campaign, 1);
    let bad = [BadKind::Changed, BadKind::Damaged, BadKind::Lost];
    let bad: Vec<_> = (0..).zip(bad).map(|(at, kind)| found(path(given.shard.id, at), kind)).collect();
    let news = VerifyNews { bad, ..read(&given, 1, 5, VerifyNext::GoesOn) };
    for _ in 0..3 {
        bench.note(&news);
    }
    let told: Vec<_> = bench.store.all_notices().map(|notice| notice.event.code).collect();
    assert_eq!(told, [Some(FaultCode::Mismatch)], "once, with the worst of them");
}

#[test]
fn a_shard_that_is_moved_again_is_read_anew_and_what_was_bad_stays_so_until_then() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    let failed = FileFault { path: b"elsewhere".to_vec(), ..fault("", FaultCode::NotFound) };
    assert_eq!(bench.finish(&granted, FILES - 1, Outcome::Through(vec![failed])), ShardState::Partial);
    let given = bench.must_take(campaign, 1);
    assert_eq!(given.given_up.len(), 1);
    let bad = path(given.shard.id, 1);
    let found = vec![found(bad.clone(), BadKind::Lost)];
    bench.note(&VerifyNews { bad: found, ..read(&given, 1, 5, VerifyNext::GoesOn) });
    bench.store.transact(|rows| retry(rows, campaign, Selection::All, ShardId(0))).unwrap();
    assert_eq!(bench.note(&read(&given, 1, FILES, VerifyNext::IsThrough)), VerifyHeard::Gone, "it is moved again");
    // The mover gives the bad file up: it is read all the same, as nobody has said that it is well.
    let granted = bench.must_claim();
    let failed = FileFault { path: bad.clone(), ..fault("", FaultCode::NotFound) };
    bench.finish(&granted, FILES - 1, Outcome::Through(vec![failed]));
    let row = bench.row(given.shard.id).unwrap();
    assert_eq!((row.last, row.entry), (Micros(0), 0));
    assert_eq!(bench.figures(campaign).bad.len(), 1);
    let given = bench.must_take(campaign, 2);
    assert!(given.given_up.is_empty() && given.bad.len() == 1, "{given:?}");
}

#[test]
fn a_shard_that_cannot_be_read_lets_the_others_go_first_for_a_while() {
    let (mut bench, campaign) = Bench::delivered(2);
    let failing = bench.must_take(campaign, 1);
    bench.note(&read(&failing, 1, 3, VerifyNext::Fails));
    let other = bench.must_take(campaign, 2);
    assert_ne!(other.shard.id, failing.shard.id);
    bench.note(&read(&other, 2, FILES, VerifyNext::IsThrough));
    assert_eq!(bench.take(campaign, 3), VerifyTurn::NothingDue(Some(CYCLE)));
    bench.pass(3601);
    let again = bench.must_take(campaign, 4);
    assert_eq!((again.shard.id, again.entry), (failing.shard.id, 3));
    // That was noted by a clock that ran ahead.
    bench.note(&read(&again, 4, 3, VerifyNext::Fails));
    bench.store.now = Micros(bench.store.now.0 - 3 * 3_600_000_000);
    let again = bench.must_take(campaign, 5);
    assert_eq!(again.shard.id, failing.shard.id);
    // The next run tries it at once.
    bench.note(&read(&again, 5, 3, VerifyNext::Fails));
    bench.pass(1);
    let ask = VerifyAsk { campaign, cycle: CYCLE, begun: bench.store.now, id: ClaimId([6; 16]) };
    let turn = bench.store.transact(|rows| take_to_verify(rows, &ask)).unwrap();
    assert!(matches!(turn, VerifyTurn::Shard(given) if given.shard.id == failing.shard.id));
}

#[test]
fn of_many_bad_files_some_have_rows_and_one_row_has_the_number_of_the_others() {
    let (mut bench, campaign) = Bench::delivered(1);
    let all: Vec<_> = (0..250).map(|at| found(path(ShardId(1), at), BadKind::Changed)).collect();
    let rows = |bench: &Bench| bench.store.all_bad_files().count();
    let files = |bench: &mut Bench| bench.figures(campaign).bad.iter().map(|sum| sum.amount.files).sum::<u64>();
    for cycle in 1..3 {
        let given = bench.must_take(campaign, cycle);
        for (batch, next) in [(&all[..125], VerifyNext::GoesOn), (&all[125..], VerifyNext::IsThrough)] {
            let heard = bench.note(&VerifyNews { bad: batch.to_vec(), ..read(&given, cycle, 5, next) });
            assert!(cycle == 1 || heard == VerifyHeard::Recorded(0), "they are known: {heard:?}");
        }
        assert_eq!((rows(&bench), files(&mut bench)), (BAD_FILES_MAX + 1, 250), "cycle {cycle}");
        bench.pass(CYCLE.as_secs());
    }
    let given = bench.must_take(campaign, 9);
    assert!(is_known_bad(&given.bad, &all[249]));
    assert!(!is_known_bad(&given.bad, &found(path(ShardId(1), 249), BadKind::Lost)), "it is bad in another way");
    let well = all.iter().map(|file| file.path.clone()).collect();
    bench.note(&VerifyNews { well, ..read(&given, 9, FILES, VerifyNext::IsThrough) });
    assert_eq!((rows(&bench), files(&mut bench)), (0, 0), "all are well again");
}

#[test]
fn a_campaign_that_is_cancelled_is_verified() {
    let (mut bench, campaign) = Bench::one_campaign(2);
    let granted = bench.must_claim();
    bench.finish(&granted, FILES, Outcome::Through(Vec::new()));
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    assert_eq!(bench.must_take(campaign, 1).shard.id, granted.shard.id);
}

#[test]
fn a_verifier_that_mends_is_given_shards_with_bad_files_of_its_kinds_that_are_free_and_not_due() {
    let (mut bench, campaign) = Bench::delivered(3);
    let kinds = [BadKind::Damaged, BadKind::Changed, BadKind::Damaged];
    let mut order = Vec::new();
    for (id, kind) in (0..).zip(kinds) {
        let given = bench.must_take(campaign, id);
        let bad = vec![found(path(given.shard.id, 1), kind)];
        bench.note(&VerifyNews { bad, ..read(&given, id, FILES, VerifyNext::IsThrough) });
        order.push(given.shard.id);
    }
    let mend = |bench: &mut Bench, id: u8, after| {
        let ask = VerifyAsk { campaign, cycle: CYCLE, begun: Micros(0), id: ClaimId([id; 16]) };
        bench.store.transact(|rows| take_to_mend(rows, &ask, (after, &[BadKind::Lost, BadKind::Damaged]))).unwrap()
    };
    let first = mend(&mut bench, 5, ShardId(0)).unwrap();
    assert_eq!((first.shard.id, first.bad.len()), (order[0], 1));
    let second = mend(&mut bench, 6, ShardId(0)).unwrap();
    assert_eq!(second.shard.id, order[2], "the first is another's, and nobody mends what was changed");
    assert_eq!(mend(&mut bench, 7, second.shard.id), None);
    let read_last = bench.row(first.shard.id).unwrap().last;
    let well = vec![path(first.shard.id, 1)];
    bench.note(&VerifyNews { well, ..read(&first, 5, first.entry, VerifyNext::GivesBack) });
    let row = bench.row(first.shard.id).unwrap();
    assert_eq!((row.last, row.entry), (read_last, 0), "nothing else of it was read");
    assert_eq!(mend(&mut bench, 8, ShardId(0)), None, "it is mended, and the other one is taken");
    assert_eq!(bench.take(campaign, 9), VerifyTurn::NothingDue(Some(CYCLE)));
}
