//! Tests of partials of which less is there than is journalled, and of names in doubt.

use std::sync::Arc;

use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, Clock, Digest, FileId, IfExists};

use super::items::{CHUNK, file};
use super::victim::{NOW, Victim};
use crate::journal::HeldChunks;
use crate::receiver::{Created, Partial, Policy, ReceiverAction, Seen, Source, Surveyed};
use crate::wire::message::{Message, Outcome};

fn partial(held: impl IntoIterator<Item = u64>) -> Arc<Partial> {
    let mut chunks = HeldChunks::new();
    for index in held {
        chunks.insert(ChunkIndex(index), [index as u8; 32]);
    }
    let size = ChunkSize::from_bytes(CHUNK as u64).expect("a size");
    Arc::new(Partial::new(ChunkMap::new(4 * CHUNK as u64, size), Source::Same, chunks))
}

fn actions(victim: &mut Victim) -> Vec<ReceiverAction> {
    std::iter::from_fn(|| victim.poll()).collect()
}

/// A receiver that surveyed the name of a file of four chunks, with this finding.
fn surveyed(policy: Policy, found: Surveyed) -> (Victim, Vec<ReceiverAction>) {
    surveyed_by(Victim::with(policy), found)
}

fn surveyed_by(mut victim: Victim, found: Surveyed) -> (Victim, Vec<ReceiverAction>) {
    victim.page(vec![file("large", 4 * CHUNK).entry]);
    let asked = actions(&mut victim);
    assert!(asked.iter().any(|action| matches!(action, ReceiverAction::Survey(_))));
    victim.receiver.handle_survey(NOW, FileId(0), vec![Ok(found)]);
    let actions = actions(&mut victim);
    (victim, actions)
}

#[test]
fn only_what_was_proven_of_a_partial_is_told_and_counted() {
    let policy = Policy { if_exists: IfExists::SkipSame, may_modify: true };
    let found = Surveyed { partial: Some(partial([0, 1, 2])), ..Seen::Absent.into() };
    let (mut victim, asked) = surveyed(policy, found);
    assert!(asked.iter().any(|action| matches!(action, ReceiverAction::Create(_, Some(_), _))), "{asked:?}");
    victim.receiver.handle_create(NOW, FileId(0), Ok(Created::Continued(partial([0, 2]))));
    let told = actions(&mut victim);
    let wanted: Vec<(u64, u64)> = told
        .iter()
        .filter_map(|action| match action {
            ReceiverAction::Send(Message::WantChunks(want)) => Some((want.start.0, want.count)),
            _ => None,
        })
        .collect();
    assert_eq!(wanted, [(1, 1), (3, 1)], "{told:?}");
    assert_eq!(victim.receiver.tally().resumed, 2 * CHUNK as u64);
}

/// The chunks that are to be read back.
fn read_back(actions: &[ReceiverAction]) -> Vec<u64> {
    let chunks = actions.iter().filter_map(|action| match action {
        ReceiverAction::ReadBack { chunks, .. } => Some(chunks.iter().map(|index| index.0)),
        _ => None,
    });
    chunks.flatten().collect()
}

#[test]
fn for_further_checksums_what_an_earlier_session_left_is_read_and_must_be_what_it_was() {
    let found = || Surveyed { partial: Some(partial(0..4)), ..Seen::Absent.into() };
    let begun = |victim: Victim| {
        let (mut victim, _) = surveyed_by(victim, found());
        victim.receiver.handle_create(NOW, FileId(0), Ok(Created::Continued(partial(0..4))));
        let told = actions(&mut victim);
        (victim, read_back(&told))
    };
    assert_eq!(begun(Victim::new()).1, [0; 0], "without them it is believed");
    let (mut victim, asked) = begun(Victim::summing());
    assert_eq!(asked, [0, 1, 2, 3]);
    let digest = |index: u64| Digest::Cv([index as u8; 32]);
    let as_it_was = asked.iter().map(|index| (ChunkIndex(*index), Ok(digest(*index)))).collect();
    victim.receiver.handle_read_back(NOW, FileId(0), as_it_was);
    assert!(actions(&mut victim).iter().all(|action| !matches!(action, ReceiverAction::Discard(_))));

    let (mut victim, asked) = begun(Victim::summing());
    let damaged = |index: u64| if index == 2 { Digest::Cv([99; 32]) } else { digest(index) };
    let results = asked.iter().map(|index| (ChunkIndex(*index), Ok(damaged(*index)))).collect();
    victim.receiver.handle_read_back(NOW, FileId(0), results);
    let told = actions(&mut victim);
    assert!(told.iter().any(|action| matches!(action, ReceiverAction::Discard(_))), "{told:?}");
    assert!(told.iter().any(|action| matches!(action, ReceiverAction::Settled(_, Outcome::Failed(_)))), "{told:?}");
}

#[test]
fn a_name_in_doubt_is_sent_though_it_looks_the_same_and_an_earlier_session_committed_it() {
    let meta = file("large", 4 * CHUNK).entry.meta;
    let seen = Seen::File { len: 4 * CHUNK as u64, mtime: meta.mtime, clock: Clock::Exact };
    for if_exists in [IfExists::SkipSame, IfExists::Verify, IfExists::Replace] {
        for doubtful in [false, true] {
            let found = Surveyed { doubtful, committed: true, ..Surveyed::from(seen.clone()) };
            let (_, actions) = surveyed(Policy { if_exists, may_modify: true }, found);
            let skipped = actions.iter().any(|a| matches!(a, ReceiverAction::Settled(_, Outcome::Skipped)));
            let created = actions.iter().any(|a| matches!(a, ReceiverAction::Create(..)));
            assert_eq!((skipped, created), (!doubtful, doubtful), "{if_exists:?}: {actions:?}");
        }
    }
}
