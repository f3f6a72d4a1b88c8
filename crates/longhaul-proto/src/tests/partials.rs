//! Tests of partials of which less is there than is journalled, and of names in doubt.

use std::sync::Arc;

use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, Clock, FileId, IfExists};

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
    let mut victim = Victim::with(policy);
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
