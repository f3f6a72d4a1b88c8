//! Tests of chunks whose bytes the receiver's disk gives up, at both machines, event by event.

use std::time::Duration;

use longhaul_core::limits::ATTEMPTS_MAX;
use longhaul_core::{ChunkIndex, Digest, Fault, FaultCode, FileId};

use super::hostile_receiver::{asked_for, send_again, sent, verdict, want};
use super::items::{CHUNK, file};
use super::victim::{CV, NOW, Victim, chunk};
use crate::receiver::{JournalEntry, ReceiverAction, WantOrder};
use crate::sender::{Sender, SenderAction};
use crate::time::Timestamp;
use crate::wire::message::{FileEnd, Finding, Message, Outcome};

const FILE: FileId = FileId(0);

/// When everything is due that waits for time.
fn later() -> Timestamp {
    NOW.after(Duration::from_secs(5))
}

/// The digest of a chunk of these tests.
pub(super) fn cv(index: u64) -> Digest {
    Digest::Cv([index as u8 + 1; 32])
}

/// The actions of a receiver in short.
pub(super) fn short(actions: &[ReceiverAction]) -> Vec<String> {
    let short = |action: &ReceiverAction| match action {
        ReceiverAction::Send(Message::SendAgain(again)) => {
            let chunks = again.chunks.iter().map(|lost| format!(" {} for {}", lost.index.0, lost.attempt.0));
            format!("again{}", chunks.collect::<String>())
        }
        ReceiverAction::Send(Message::Verdicts(list)) => {
            let finding = |finding: &Finding| match finding {
                Finding::Good(_) => "good",
                Finding::Again => "damaged",
                Finding::GivenUp => "given up",
            };
            list.iter().map(|verdict| format!("{} {}", finding(&verdict.finding), verdict.attempt.0)).collect()
        }
        ReceiverAction::Write { index, .. } => format!("write {}", index.0),
        ReceiverAction::SyncData(_) => "sync".to_owned(),
        ReceiverAction::ReadBack { .. } => "read back".to_owned(),
        ReceiverAction::ReadInOrder { chunks, .. } => {
            format!("in order{}", chunks.iter().map(|index| format!(" {}", index.0)).collect::<String>())
        }
        ReceiverAction::Journal(records) => match &records[..] {
            [JournalEntry::Chunks { chunks, .. }] => {
                format!("journal{}", chunks.iter().map(|(index, _)| format!(" {}", index.0)).collect::<String>())
            }
            _ => "journal".to_owned(),
        },
        ReceiverAction::Seal(_) => "seal".to_owned(),
        ReceiverAction::Discard(_) => "discard".to_owned(),
        ReceiverAction::Release(_) => "release".to_owned(),
        ReceiverAction::DropPayload(_) => "drop".to_owned(),
        ReceiverAction::Settled(_, Outcome::Failed(fault)) => fault.code.name().to_owned(),
        _ => String::new(),
    };
    actions.iter().map(short).filter(|short| !short.is_empty()).collect()
}

/// A chunk arrives with this digest. Gives what follows.
pub(super) fn land(victim: &mut Victim, index: u64, attempt: u32, computed: Digest) -> Vec<String> {
    let landed = victim.landed(chunk(index), attempt, computed, Some(computed));
    victim.land(landed);
    short(&victim.obey())
}

pub(super) fn wrote(victim: &mut Victim, index: u64) -> Vec<String> {
    victim.receiver.handle_write(NOW, FILE, ChunkIndex(index), Ok(()));
    short(&victim.obey())
}

/// The group sync is due.
pub(super) fn sync(victim: &mut Victim) {
    victim.receiver.handle_timeout(later());
    assert_eq!(short(&victim.obey()), ["sync"]);
}

pub(super) fn synced(victim: &mut Victim, lost: &[u64]) -> Vec<String> {
    let lost = lost.iter().map(|index| ChunkIndex(*index)).collect();
    victim.receiver.handle_sync_data(later(), FILE, Ok(lost));
    short(&victim.obey())
}

/// A victim with a file of four chunks, of which these came and were written, and the sync of which
/// is under way.
pub(super) fn syncing(mut victim: Victim, chunks: std::ops::Range<u64>) -> Victim {
    victim.page(vec![file("large", 4 * CHUNK).entry]);
    victim.obey();
    for index in chunks {
        land(&mut victim, index, 1, cv(index));
        if wrote(&mut victim, index) == ["sync"] {
            return victim;
        }
    }
    sync(&mut victim);
    victim
}

/// The root of a file of four chunks with these digests.
pub(super) fn root() -> [u8; 32] {
    let map = longhaul_core::ChunkMap::new(
        4 * CHUNK as u64,
        longhaul_core::ChunkSize::from_bytes(CHUNK as u64).expect("a size"),
    );
    let mut merger = longhaul_core::digest::RootMerger::new(map);
    (0..4).for_each(|index| merger.insert(ChunkIndex(index), cv(index)).expect("it fits"));
    merger.root().expect("it is whole")
}

#[test]
fn a_lost_chunk_comes_again_and_its_file_is_not_sealed_before() {
    let mut victim = syncing(Victim::new(), 0..4);
    victim.say(Message::FileEnd(FileEnd { file: FILE, root: root() }));
    victim.obey();
    assert_eq!(synced(&mut victim, &[1, 2]), ["again 1 for 2 2 for 2", "journal 0 3"]);
    assert_eq!(land(&mut victim, 1, 1, cv(1)), ["drop"], "the sending that was lost is not wanted");
    assert_eq!(land(&mut victim, 2, 2, cv(2)), ["write 2", "good 2"]);
    assert_eq!(wrote(&mut victim, 2), [""; 0], "one is still to come");
    assert_eq!(land(&mut victim, 1, 2, cv(1)), ["write 1", "good 2"]);
    assert_eq!(wrote(&mut victim, 1), ["seal"]);
    assert_eq!(victim.receiver.bytes_resent(), 2 * CHUNK as u64);
}

#[test]
fn a_lost_chunk_that_comes_with_other_bytes_fails_its_file() {
    let mut victim = syncing(Victim::new(), 0..4);
    synced(&mut victim, &[1]);
    assert_eq!(land(&mut victim, 1, 2, cv(7)), ["drop"]);
    victim.receiver.handle_journal(NOW, Ok(()));
    assert_eq!(short(&victim.obey()), ["release", "changed"]);
}

#[test]
fn hangs_use_up_no_attempts_and_damage_is_counted_anew() {
    let mut victim = syncing(Victim::new(), 0..1);
    for attempt in 2..2 + 2 * ATTEMPTS_MAX {
        assert_eq!(synced(&mut victim, &[0]), [format!("again 0 for {attempt}")]);
        land(&mut victim, 0, attempt, cv(0));
        wrote(&mut victim, 0);
        sync(&mut victim);
    }
    let first = 2 + 2 * ATTEMPTS_MAX;
    synced(&mut victim, &[0]);
    for attempt in first..first + ATTEMPTS_MAX {
        let damaged = victim.landed(chunk(0), attempt, cv(0), Some(cv(1)));
        victim.land(damaged);
        let what = if attempt + 1 < first + ATTEMPTS_MAX { "damaged" } else { "given up" };
        let actions = short(&victim.obey());
        assert!(actions.contains(&format!("{what} {attempt}")), "{actions:?}");
    }
}

#[test]
fn a_chunk_that_is_lost_before_its_write_is_reported_comes_again() {
    let mut victim = syncing(Victim::new(), 0..1);
    land(&mut victim, 1, 1, cv(1));
    land(&mut victim, 2, 1, cv(2));
    wrote(&mut victim, 2);
    assert_eq!(synced(&mut victim, &[1, 2]), ["again 2 for 2", "journal 0"], "one buffer is in use");
    assert_eq!(wrote(&mut victim, 1), ["again 1 for 2"]);
    assert_eq!(land(&mut victim, 1, 2, cv(1)), ["write 1", "good 2"]);
}

#[test]
fn a_lost_chunk_waits_for_room_in_the_window() {
    let order = WantOrder::Spread { files_max: 1, chunks_max: 1 };
    let mut victim = syncing(Victim::asking(order), 0..1);
    assert_eq!(synced(&mut victim, &[0]), [""; 0], "the next chunk has the room");
    land(&mut victim, 1, 1, cv(1));
    assert_eq!(wrote(&mut victim, 1), ["again 0 for 2"]);
}

#[test]
fn what_a_failed_file_loses_is_not_asked_for_and_the_rest_is_kept() {
    let mut victim = syncing(Victim::new(), 0..2);
    victim.say(super::victim::fault(0, FaultCode::Io));
    assert_eq!(synced(&mut victim, &[0]), ["journal 1"]);
    victim.receiver.handle_journal(NOW, Ok(()));
    assert_eq!(short(&victim.obey()), ["release", "io"]);
}

#[test]
fn a_session_that_drains_keeps_what_is_not_lost() {
    let mut victim = syncing(Victim::new(), 0..2);
    victim.receiver.abort(Fault::protocol("over"));
    assert_eq!(synced(&mut victim, &[0]), ["journal 1"]);
    victim.receiver.handle_journal(NOW, Ok(()));
    assert!(victim.receiver.is_over() || !short(&victim.obey()).contains(&"again".to_owned()));
}

#[test]
fn what_is_durable_is_not_believed_to_be_lost() {
    let mut victim = syncing(Victim::new(), 0..1);
    synced(&mut victim, &[]);
    victim.receiver.handle_journal(NOW, Ok(()));
    land(&mut victim, 1, 1, cv(1));
    wrote(&mut victim, 1);
    sync(&mut victim);
    assert_eq!(synced(&mut victim, &[0]), ["discard", "internal"]);
}

#[test]
fn a_chunk_that_is_read_back_gets_its_verdict_when_it_is_lost_and_another_when_it_came_again() {
    let mut victim = syncing(Victim::reading_back(), 0..4);
    victim.say(Message::FileEnd(FileEnd { file: FILE, root: root() }));
    victim.obey();
    assert_eq!(synced(&mut victim, &[0]), ["read back", "good 1", "again 0 for 2"]);
    let read = |indices: &[u64]| indices.iter().map(|index| (ChunkIndex(*index), Ok(cv(*index)))).collect();
    victim.receiver.handle_read_back(NOW, FILE, read(&[1, 2, 3]));
    assert_eq!(short(&victim.obey()), ["journal 1 2 3", "good 1good 1good 1"]);
    assert_eq!(land(&mut victim, 0, 2, cv(0)), ["write 0"]);
    assert_eq!(wrote(&mut victim, 0), ["sync"], "it waits for nothing else");
    assert_eq!(synced(&mut victim, &[0]), ["good 2", "again 0 for 3"], "lost once more");
    land(&mut victim, 0, 3, cv(0));
    wrote(&mut victim, 0);
    assert_eq!(synced(&mut victim, &[]), ["read back"]);
    victim.receiver.handle_read_back(NOW, FILE, read(&[0]));
    assert_eq!(short(&victim.obey()), ["seal", "good 3"]);
}

/// The reads that a sender orders.
fn reads(sender: &mut Sender) -> Vec<(u64, u32)> {
    sender.audit();
    let read = |action| match action {
        SenderAction::ReadChunk { index, attempt, expect: None, .. } => Some((index.0, attempt.0)),
        SenderAction::Abort(fault) => panic!("{fault}"),
        _ => None,
    };
    std::iter::from_fn(|| sender.poll_action()).filter_map(read).collect()
}

/// A sender of which four chunks are wanted, with the orders taken.
fn wanted() -> Sender {
    let mut sender = asked_for(vec![file("large", 4 * CHUNK)]);
    sender.handle_message(want(0, 0, 4));
    assert_eq!(reads(&mut sender).len(), 4);
    sender
}

#[test]
fn a_chunk_that_the_receiver_lost_is_read_again_for_the_attempt_that_it_wants() {
    let mut sender = wanted();
    sender.handle_sent(sent(chunk(0), 1, CV));
    sender.handle_message(verdict(chunk(0), 1, Finding::Good(CV)));
    sender.handle_message(send_again(0, &[(0, 5)]));
    assert_eq!(reads(&mut sender), [(0, 5)]);
    for attempt in 5..4 + ATTEMPTS_MAX {
        sender.handle_sent(sent(chunk(0), attempt, CV));
        sender.handle_message(verdict(chunk(0), attempt, Finding::Again));
        assert_eq!(reads(&mut sender), [(0, attempt + 1)], "damage is counted from there");
    }
    sender.handle_sent(sent(chunk(0), 4 + ATTEMPTS_MAX, CV));
    sender.handle_message(verdict(chunk(0), 4 + ATTEMPTS_MAX, Finding::GivenUp));
    assert_eq!(reads(&mut sender), []);
    assert_eq!(sender.bytes_sent(), (1 + ATTEMPTS_MAX as u64, ATTEMPTS_MAX as u64), "all but the first are again");
}

#[test]
fn a_chunk_is_read_again_only_when_the_sending_before_is_reported() {
    let mut sender = wanted();
    sender.handle_message(verdict(chunk(0), 1, Finding::Good(CV)));
    sender.handle_message(send_again(0, &[(0, 2)]));
    assert_eq!(reads(&mut sender), []);
    assert_eq!(sender.outstanding().1, 4, "it counts once");
    sender.handle_sent(sent(chunk(0), 1, CV));
    assert_eq!(reads(&mut sender), [(0, 2)]);
    // A source that gives other bytes now has changed.
    sender.handle_sent(sent(chunk(0), 2, Digest::Cv([9; 32])));
    let fault = std::iter::from_fn(|| sender.poll_action()).find_map(|action| match action {
        SenderAction::Send(Message::FileFault(fault)) => Some(fault.code),
        _ => None,
    });
    assert_eq!(fault, Some(FaultCode::Changed));
}
