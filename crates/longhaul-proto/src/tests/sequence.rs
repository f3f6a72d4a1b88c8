//! Tests of a receiver that asks for chunks in sequence, event by event.

use longhaul_core::{ChunkIndex, FaultCode, FileId, Unit};

use super::items::{CHUNK, file};
use super::victim::{CV, NOW, Victim, fault};
use crate::receiver::{Created, ReceiverAction, WantOrder};
use crate::wire::message::{Message, Outcome};

/// A receiver of two files of four chunks, and of a small one, whose destination keeps
/// `chunks_max` chunks.
fn victim(chunks_max: usize) -> Victim {
    let mut victim = Victim::asking(WantOrder::Sequence { chunks_max });
    victim.page(vec![file("a", 4 * CHUNK).entry, file("b", 4 * CHUNK).entry]);
    victim
}

/// The chunks that these actions ask for.
fn wants(actions: &[ReceiverAction]) -> Vec<(u64, u64)> {
    let wants = actions.iter().filter_map(|action| match action {
        ReceiverAction::Send(Message::WantChunks(want)) => Some(want),
        _ => None,
    });
    wants.flat_map(|want| (0..want.count).map(|n| (want.file.0, want.start.0 + n))).collect()
}

fn land(victim: &mut Victim, file: u64, index: u64) -> Vec<ReceiverAction> {
    let unit = Unit::Chunk { file: FileId(file), index: ChunkIndex(index) };
    let landed = victim.landed(unit, 1, CV, Some(CV));
    victim.land(landed);
    victim.obey()
}

fn ends_with(actions: &[ReceiverAction], code: FaultCode) -> bool {
    actions.iter().any(|action| matches!(action, ReceiverAction::Abort(fault) if fault.code == code))
}

#[test]
fn no_more_chunks_are_wanted_than_are_kept_and_each_in_its_turn() {
    let mut victim = victim(3);
    assert_eq!(wants(&victim.obey()), [(0, 0), (0, 1), (0, 2)]);
    assert!(wants(&land(&mut victim, 0, 2)).is_empty(), "what came early is still kept");
    assert!(wants(&land(&mut victim, 0, 0)).is_empty());
    assert_eq!(victim.receiver.chunks_wanted(), 3);
    let order = [(0, 0, (0, 3)), (0, 2, (1, 0)), (0, 1, (1, 1))];
    land(&mut victim, 0, 1);
    for (file, index, next) in order {
        victim.receiver.handle_write(NOW, FileId(file), ChunkIndex(index), Ok(()));
        assert_eq!(wants(&victim.obey()), [next], "a chunk that is out makes room for one");
    }
}

#[test]
fn no_file_is_begun_before_the_one_ahead_of_it_can_be_asked_for() {
    let mut victim = victim(8);
    let mut created = Vec::new();
    let mut wanted = Vec::new();
    while let Some(action) = victim.poll() {
        match &action {
            ReceiverAction::Survey(held) => {
                let seen = held.iter().map(|_| Ok(crate::receiver::Seen::Absent.into())).collect();
                victim.receiver.handle_survey(NOW, held[0].id, seen);
            }
            ReceiverAction::Create(held, ..) => created.push(held.id),
            _ => wanted.extend(wants(std::slice::from_ref(&action))),
        }
    }
    assert_eq!((created.as_slice(), wanted.len()), (&[FileId(0)][..], 0));
    victim.receiver.handle_create(NOW, FileId(0), Ok(Created::Fresh));
    let actions = victim.obey();
    let all: Vec<_> = (0..2).flat_map(|file| (0..4).map(move |index| (file, index))).collect();
    assert_eq!(wants(&actions), all);
}

#[test]
fn a_file_that_fails_in_part_ends_the_session_with_its_own_code() {
    for code in [FaultCode::Changed, FaultCode::Denied, FaultCode::Mismatch] {
        let mut victim = victim(8);
        victim.obey();
        land(&mut victim, 0, 1);
        victim.say(fault(0, code));
        let actions = victim.obey();
        assert!(!ends_with(&actions, code), "the chunk that is kept comes back first");
        let given_back = longhaul_core::Fault::new(FaultCode::Io, longhaul_core::Blame::Local, "given back");
        victim.receiver.handle_write(NOW, FileId(0), ChunkIndex(1), Err(given_back));
        assert!(ends_with(&victim.obey(), code), "{code:?}");
    }
}

#[test]
fn a_file_of_which_nothing_came_fails_alone() {
    let mut victim = victim(8);
    victim.obey();
    victim.say(fault(0, FaultCode::Denied));
    let actions = victim.obey();
    let failed =
        |action: &ReceiverAction| matches!(action, ReceiverAction::Settled(held, Outcome::Failed(_)) if held.id.0 == 0);
    assert!(actions.iter().any(failed) && !ends_with(&actions, FaultCode::Denied), "{actions:?}");
    assert!(land(&mut victim, 1, 0).iter().any(|action| matches!(action, ReceiverAction::Write { .. })));
}
