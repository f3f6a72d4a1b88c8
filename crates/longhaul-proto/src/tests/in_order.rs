//! Tests of files that are read in order before their seal, at the receiver, event by event.

use longhaul_core::{Blame, ChunkIndex, Digest, Fault, FaultCode, FileId};

use super::items::CHUNK;
use super::lost::{cv, land, root, short, synced, syncing, wrote};
use super::victim::{NOW, Victim};
use crate::wire::message::{FileEnd, Message};

const FILE: FileId = FileId(0);
const IN_ORDER: &str = "in order 0 1 2 3";

fn end(victim: &mut Victim) -> Vec<String> {
    victim.say(Message::FileEnd(FileEnd { file: FILE, root: root() }));
    short(&victim.obey())
}

/// The disk gives these back.
fn read(victim: &mut Victim, digest: impl Fn(u64) -> Result<Digest, Fault>) -> Vec<String> {
    let results = (0..4).map(|index| (ChunkIndex(index), digest(index))).collect();
    victim.receiver.handle_read_in_order(NOW, FILE, results);
    short(&victim.obey())
}

/// A victim whose file is whole, its sync being under way.
fn whole() -> Victim {
    syncing(Victim::summing_in_order(), 0..4)
}

#[test]
fn a_file_is_read_once_when_it_is_whole_and_synced_meanwhile_and_then_sealed() {
    let mut victim = whole();
    assert_eq!(end(&mut victim), [""; 0], "the disk is at it");
    assert_eq!(synced(&mut victim, &[]), [IN_ORDER, "journal 0 1 2 3"]);
    assert_eq!(read(&mut victim, |index| Ok(cv(index))), ["seal"]);
    assert_eq!(victim.receiver.tally().read_back, 4 * CHUNK as u64);
    assert_eq!(victim.receiver.tally().misread, 0);
}

#[test]
fn other_bytes_than_were_written_fail_the_file_and_its_part_goes() {
    let mut victim = whole();
    end(&mut victim);
    synced(&mut victim, &[]);
    let other = |index| Ok(if index == 2 { cv(7) } else { cv(index) });
    assert_eq!(read(&mut victim, other), [IN_ORDER], "it is read once more");
    let told = read(&mut victim, other);
    assert!(told.contains(&"discard".to_owned()) && told.contains(&"mismatch".to_owned()), "{told:?}");
    assert_eq!(victim.receiver.tally().misread, 8 * CHUNK as u64);
}

#[test]
fn other_bytes_that_are_right_the_second_time_fail_nothing() {
    let mut victim = whole();
    end(&mut victim);
    synced(&mut victim, &[]);
    assert_eq!(read(&mut victim, |index| Ok(cv(index + 1))), [IN_ORDER]);
    assert_eq!(read(&mut victim, |index| Ok(cv(index))), ["seal"]);
    assert_eq!(victim.receiver.tally().misread, 4 * CHUNK as u64, "people hear of it");
}

#[test]
fn a_file_that_cannot_be_read_fails_and_its_part_stays() {
    let mut victim = whole();
    end(&mut victim);
    synced(&mut victim, &[]);
    victim.receiver.handle_journal(NOW, Ok(()));
    let fault = || Fault::new(FaultCode::Io, Blame::Local, "a bad block");
    let told = read(&mut victim, |index| if index == 1 { Err(fault()) } else { Ok(cv(index)) });
    assert!(told.contains(&"release".to_owned()) && told.contains(&"io".to_owned()), "{told:?}");
}

#[test]
fn what_was_read_before_a_chunk_was_lost_counts_for_nothing() {
    let mut victim = syncing(Victim::summing_in_order(), 0..3);
    assert_eq!(synced(&mut victim, &[]), ["journal 0 1 2"]);
    victim.receiver.handle_journal(NOW, Ok(()));
    land(&mut victim, 3, 1, cv(3));
    assert_eq!(wrote(&mut victim, 3), [""; 0]);
    assert_eq!(end(&mut victim), [IN_ORDER], "a write that no sync covers is read all the same");
    super::lost::sync(&mut victim);
    assert_eq!(synced(&mut victim, &[3]), ["again 3 for 2"]);
    assert_eq!(read(&mut victim, |index| Ok(cv(index))), [""; 0], "it is not whole");
    land(&mut victim, 3, 2, cv(3));
    assert_eq!(wrote(&mut victim, 3), [IN_ORDER]);
    assert_eq!(read(&mut victim, |index| Ok(cv(index))), ["seal"]);
}

#[test]
fn a_drain_waits_for_the_order_under_way_and_gives_no_other() {
    let mut victim = whole();
    end(&mut victim);
    synced(&mut victim, &[]);
    victim.receiver.handle_journal(NOW, Ok(()));
    victim.receiver.abort(Fault::new(FaultCode::Interrupted, Blame::Local, "stop"));
    assert_eq!(short(&victim.obey()), [""; 0]);
    assert!(!victim.receiver.is_over(), "the disk has an order");
    assert_eq!(read(&mut victim, |index| Ok(cv(index))), [""; 0]);
    assert!(victim.receiver.is_over());
}
