//! Sessions that continue the partials of earlier ones, or leave some.

use std::collections::BTreeSet;

use longhaul_core::{FaultCode, FileId};
use longhaul_proto::receiver::Source;
use longhaul_proto::wire::message::Outcome;

use super::{bytes, chunk, file, left, play, with_left};
use crate::env::Nth;
use crate::plan::{CHUNK, Plan};
use crate::scene::{Left, Standing};
use crate::session::Session;
use crate::trace::Trace;

#[test]
fn what_an_earlier_session_left_is_not_sent_again() {
    for (seed, safe) in (0..40).map(|seed| (seed, seed % 2 == 0)) {
        let item = file("big", 20 * CHUNK + 5);
        let held: BTreeSet<u64> = (0..21).filter(|at| (seed >> (at % 6)) & 1 == 1).collect();
        let left = left(&item, CHUNK, held.clone(), Source::Same);
        let session = play(with_left(Plan { safe, ..Plan::one_session(vec![item]) }, vec![left]), seed);
        assert_eq!(session.wanted(), 21 - held.len());
        assert_eq!(session.sendings().len(), 21 - held.len());
        assert!(held.iter().all(|at| !session.sendings().contains_key(&chunk(0, *at))));
        let (here, there) = (&session.sender().outcomes, &session.receiver().seen.outcomes);
        assert_eq!(here[&FileId(0)], there[&FileId(0)]);
        assert_eq!(session.receiver().tally().durable, 20 * CHUNK as u64 + 5);
    }
}

#[test]
fn a_partial_keeps_its_own_chunk_size_as_far_as_buffers_reach() {
    // The buffers of a world hold two of its chunks.
    for (size, wanted) in [(CHUNK, 19), (2 * CHUNK, 9), (4 * CHUNK, 21)] {
        let item = file("big", 20 * CHUNK + 5);
        let left = left(&item, size, [0, 3].into(), Source::Same);
        let session = play(with_left(Plan::one_session(vec![item]), vec![left]), 1);
        assert_eq!(session.wanted(), wanted, "{size}");
    }
}

#[test]
fn of_another_version_only_the_chunks_that_differ_are_sent() {
    for (seed, safe) in (0..40).map(|seed| (seed, seed % 2 == 0)) {
        let item = file("big", 20 * CHUNK + 5);
        let mut left = left(&item, CHUNK, (0..15).collect(), Source::Changed);
        for at in [2, 9, 10] {
            left.bytes[at * CHUNK..][..CHUNK].fill(1);
        }
        let session = play(with_left(Plan { safe, ..Plan::one_session(vec![item]) }, vec![left]), seed);
        assert_eq!((session.receiver().seen.compared, session.wanted()), (15, 6));
        let (resumed, tally) = (12 * CHUNK as u64, session.receiver().tally());
        assert_eq!((tally.resumed, tally.received), (resumed, 20 * CHUNK as u64 + 5 - resumed));
    }
}

#[test]
fn a_partial_that_is_whole_is_committed_without_a_byte_and_one_that_is_gone_is_sent_anew() {
    let item = file("big", 4 * CHUNK);
    let whole = left(&item, CHUNK, (0..4).collect(), Source::Same);
    let session = play(with_left(Plan::one_session(vec![item.clone()]), vec![whole.clone()]), 1);
    assert!(session.sendings().is_empty());
    assert_eq!(session.receiver().tally().resumed, 4 * CHUNK as u64);
    let session = play(with_left(Plan::one_session(vec![item]), vec![Left { gone: true, ..whole }]), 1);
    assert_eq!((session.sendings().len(), session.receiver().tally().resumed), (4, 0));
}

#[test]
fn a_session_that_is_given_up_first_makes_safe_what_is_written() {
    for seed in 0..40 {
        let mut session = Session::new(Plan::one_session(vec![file("big", 30 * CHUNK)]), seed);
        while session.began().is_none_or(|receiver| receiver.tally().received < 10 * CHUNK as u64) {
            session.step();
        }
        session.world.receivers[0].stop(&mut session.world.env, FaultCode::Interrupted, "enough");
        let received = session.receiver().tally().received;
        let session = session.run();
        let [_, fault] = session.faults();
        assert_eq!(fault.map(|fault| fault.code), Some(FaultCode::Interrupted));
        assert_eq!(session.receiver().tally().durable, received, "seed {seed}");
        assert_eq!(session.kept() * CHUNK, received as usize, "seed {seed}");
    }
}

/// The disk refuses to remove the temporary: its journal goes on to speak of it, so that another
/// session finds both.
#[test]
fn a_temporary_that_cannot_be_removed_is_not_forgotten() {
    for (faults, kept) in [(0, 0), (1000, 3)] {
        let item = file("big", 4 * CHUNK);
        let left = left(&item, CHUNK, (0..3).collect(), Source::Same);
        let mut plan = with_left(Plan::one_session(vec![item.clone()]), vec![left]);
        plan.scene.standing = vec![("big".to_owned(), Standing::Current(bytes(&item).to_vec()))];
        let mut session = Session::new(plan, 1);
        while session.began().is_none() || session.receiver().seen.outcomes.is_empty() {
            session.step();
        }
        session.world.env.plan.rates.disk_faults = faults;
        let session = session.run();
        assert_eq!((session.outcome("big"), session.kept()), (&Outcome::Skipped, kept));
    }
}

/// The first file in the journal asks for the takeover, which fails before anything is written; the
/// second one asks again.
#[test]
fn a_takeover_that_is_undone_fails_its_file_and_is_tried_again_for_the_next() {
    let mut undone = 0;
    for at in 1..30 {
        let items = ["a", "b"].map(|name| file(name, 4 * CHUNK));
        let left = items.iter().map(|item| left(item, CHUNK, (0..3).collect(), Source::Same)).collect();
        let mut plan = with_left(Plan::one_session(items.to_vec()), left);
        plan.scene.claims_late = true;
        let mut session = Session::new(plan, 1);
        session.world.env.nth = Some(Nth { at, persistent: false });
        session.world.env.trace = Trace::new(true);
        let session = session.run();
        let lines = session.world.env.trace.lines();
        let is_takeover = |pair: &[String]| pair[0].contains(" 0+") && pair[1].contains("is Undone");
        // The session's own journal begins in the same way, and is not done without.
        if lines.windows(2).any(is_takeover) && session.faults()[0].is_none() {
            undone += 1;
            assert_eq!((session.failure("a"), session.failed()), (Some(FaultCode::Io), 1), "{at}");
        }
    }
    assert_eq!(undone, 1);
}
