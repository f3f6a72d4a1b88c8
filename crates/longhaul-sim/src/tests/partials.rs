//! Sessions that continue the partials of earlier ones, or leave some.

use std::collections::BTreeSet;

use longhaul_core::{FaultCode, FileId};
use longhaul_proto::receiver::Source;

use super::{chunk, file, left, play, with_left};
use crate::plan::{CHUNK, Plan};
use crate::scene::Left;
use crate::session::Session;

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
