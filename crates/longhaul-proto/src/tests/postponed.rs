//! Tests of a receiver whose barriers postpone files, event by event.

use std::time::Duration;

use longhaul_core::{EntryKind, FileId};

use super::items::item;
use super::victim::{NOW, Victim};
use crate::receiver::ReceiverAction;
use crate::time::Timestamp;

fn after(ms: u64) -> Timestamp {
    NOW.after(Duration::from_millis(ms))
}

/// The steps of batches among these actions, in short.
fn steps(victim: &mut Victim) -> Vec<String> {
    let ids = |ids: &[FileId]| ids.iter().map(|id| format!(" {}", id.0)).collect::<String>();
    let short = |action: ReceiverAction| match action {
        ReceiverAction::Barrier(files) => Some(format!("barrier{}", ids(&files))),
        ReceiverAction::Publish(files) => {
            Some(format!("publish{}", ids(&files.iter().map(|(id, _)| *id).collect::<Vec<_>>())))
        }
        ReceiverAction::Settled(held, outcome) => Some(format!("{} is {outcome:?}", held.id.0)),
        _ => None,
    };
    victim.obey().into_iter().filter_map(short).collect()
}

/// A receiver with three links that are staged, in a batch whose barrier is under way.
fn in_barrier() -> Victim {
    let mut victim = Victim::new();
    let link = |name: &str| item(name, EntryKind::Symlink { target: b"target".to_vec() }).entry;
    victim.page(vec![link("a"), link("b"), link("c")]);
    victim.obey();
    victim.receiver.handle_stage(NOW, (0..3).map(|id| (FileId(id), Ok(()))).collect());
    assert_eq!(steps(&mut victim), [""; 0], "others may come");
    victim.receiver.handle_timeout(after(500));
    assert_eq!(steps(&mut victim), ["barrier 0 1 2"]);
    victim
}

fn postpone(victim: &mut Victim, ms: u64, files: &[u64]) -> Vec<String> {
    victim.receiver.handle_barrier(after(ms), Ok(files.iter().map(|id| FileId(*id)).collect()));
    steps(victim)
}

/// Publishes this file and ends its batch.
fn publish(victim: &mut Victim, ms: u64, file: u64) -> Vec<String> {
    victim.receiver.handle_publish(after(ms), vec![(FileId(file), Ok(()))]);
    victim.obey();
    victim.receiver.handle_sync_dirs(after(ms), Ok(()));
    steps(victim)
}

#[test]
fn a_postponed_file_leaves_its_batch_and_the_others_go_on() {
    let mut victim = in_barrier();
    assert_eq!(postpone(&mut victim, 1000, &[0, 2]), ["publish 1"]);
    assert_eq!(publish(&mut victim, 1000, 1), ["1 is Committed(None)"]);
    victim.receiver.handle_timeout(after(1499));
    assert_eq!(steps(&mut victim), [""; 0], "a target that hangs is not asked all the time");
    assert_eq!(victim.receiver.poll_timeout(), Some(after(1500)));
    victim.receiver.handle_timeout(after(1500));
    assert_eq!(steps(&mut victim), ["barrier 0 2"]);
    assert_eq!(postpone(&mut victim, 1600, &[0]), ["publish 2"]);
    assert_eq!(publish(&mut victim, 1600, 2), ["2 is Committed(None)"]);
}

#[test]
fn a_batch_of_postponed_files_alone_is_over_and_begins_again_after_a_while() {
    let mut victim = in_barrier();
    for round in 1..5 {
        assert_eq!(postpone(&mut victim, 1000 * round, &[0, 1, 2]), [""; 0]);
        assert!(!victim.receiver.has_batch());
        victim.receiver.handle_timeout(after(1000 * round + 499));
        assert_eq!(steps(&mut victim), [""; 0]);
        victim.receiver.handle_timeout(after(1000 * round + 500));
        assert_eq!(steps(&mut victim), ["barrier 0 1 2"]);
    }
    assert_eq!(postpone(&mut victim, 9000, &[]), ["publish 0 1 2"]);
}
