//! Files are begun only while there is room for them on the target.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, ChunkIndex, ChunkMap, ChunkSize, EntryKind, Fault, FaultCode, FileId};

use super::items::{CHUNK, file, item};
use super::victim::{CV, NOW, Victim, chunk, fault};
use crate::journal::HeldChunks;
use crate::receiver::{Created, Partial, ReceiverAction, Room, Seen, Source, Surveyed};

#[test]
fn a_file_that_ended_has_the_room_measured_again_before_another_is_refused() {
    let mut victim = Victim::new();
    victim.page(vec![file("a", 4 * CHUNK).entry, file("b", 4 * CHUNK).entry]);
    let mut measured = Vec::new();
    let room = |measured: &mut Vec<u64>, victim: &mut Victim| {
        // The first has given its room back: it replaced a file of its length.
        measured.push(5 * CHUNK as u64);
        victim.receiver.handle_measure_room(NOW, Some(Room { device: 1, bytes: 5 * CHUNK as u64, inodes: None }));
    };
    let mut created = Vec::new();
    while let Some(action) = victim.receiver.poll_action() {
        match action {
            ReceiverAction::Survey(held) => {
                let seen = held.iter().map(|_| Ok(Seen::Absent.into())).collect();
                victim.receiver.handle_survey(NOW, held[0].id, seen);
            }
            ReceiverAction::MeasureRoom { .. } => room(&mut measured, &mut victim),
            ReceiverAction::Create(held, ..) => {
                created.push(held.id);
                victim.receiver.handle_create(NOW, held.id, Ok(Created::Fresh));
                if held.id == FileId(0) {
                    victim.say(fault(0, FaultCode::Vanished));
                }
            }
            _ => {}
        }
    }
    assert_eq!((created, measured.len()), (vec![FileId(0), FileId(1)], 2));
}

#[test]
fn one_measurement_serves_the_files_of_a_directory() {
    let mut victim = Victim::new();
    let files = |dir: &str, from: usize| {
        (from..from + 5).map(|n| file(&format!("{dir}/f{n}"), CHUNK).entry).collect::<Vec<_>>()
    };
    victim.page([files("d", 0), files("d", 5), files("e", 0)].concat());
    let mut measured = 0;
    let mut created = 0;
    while let Some(action) = victim.receiver.poll_action() {
        match action {
            ReceiverAction::Survey(held) => {
                let seen = held.iter().map(|_| Ok(Seen::Absent.into())).collect();
                victim.receiver.handle_survey(NOW, held[0].id, seen);
            }
            ReceiverAction::MeasureRoom { .. } => {
                measured += 1;
                let room = Room { device: 1, bytes: 1 << 40, inodes: Some(1 << 20) };
                victim.receiver.handle_measure_room(NOW, Some(room));
            }
            ReceiverAction::Create(..) => created += 1,
            _ => {}
        }
    }
    assert_eq!((measured, created), (2, 15));
}

#[test]
fn a_batch_on_a_disk_that_hangs_does_not_keep_a_full_one_from_ending_the_session() {
    let mut victim = Victim::new();
    let link = item("link", EntryKind::Symlink { target: b"to".to_vec() });
    victim.page(vec![file("large", 4 * CHUNK).entry, link.entry]);
    victim.obey();
    victim.receiver.handle_stage(NOW, vec![(FileId(1), Ok(()))]);
    // Its end is never said.
    let full = Fault::new(FaultCode::NoSpace, Blame::Local, "full");
    let landed = victim.landed(chunk(0), 1, CV, Some(CV));
    victim.land(landed);
    victim.receiver.handle_write(NOW, FileId(0), ChunkIndex(0), Err(full));
    assert!(victim.obey().iter().any(|action| matches!(action, ReceiverAction::Barrier(_))));
    let mut ended = Vec::new();
    let mut at = NOW;
    while !victim.receiver.is_over() {
        let next = victim.receiver.poll_timeout().expect("it ends by itself");
        assert!(next > at || at == NOW, "time passes");
        at = next;
        victim.receiver.handle_timeout(at);
        ended.extend(victim.obey());
    }
    assert!(at < NOW.after(Duration::from_secs(60)));
    let Some(ReceiverAction::Abort(fault)) = ended.last() else { panic!("{ended:?}") };
    assert_eq!(fault.code, FaultCode::NoSpace);
}

/// Answers measurements of a receiver that has but a file of four chunks, as `room` says for each
/// time, until it creates or refuses it. Gives whether it was created, and when that was decided.
fn measured_over_time(room: impl Fn(Duration) -> u64) -> (bool, Duration) {
    let mut victim = Victim::new();
    victim.page(vec![file("a", 4 * CHUNK).entry]);
    let mut at = NOW;
    loop {
        while let Some(action) = victim.receiver.poll_action() {
            match action {
                ReceiverAction::Survey(held) => {
                    victim.receiver.handle_survey(at, held[0].id, vec![Ok(Seen::Absent.into())]);
                }
                ReceiverAction::MeasureRoom { behind_discards, .. } => {
                    assert!(behind_discards, "nothing else is under way");
                    let bytes = room(at.since(NOW));
                    victim.receiver.handle_measure_room(at, Some(Room { device: 1, bytes, inodes: None }));
                }
                ReceiverAction::Create(..) => return (true, at.since(NOW)),
                ReceiverAction::Abort(fault) => {
                    assert_eq!(fault.code, FaultCode::NoSpace);
                    return (false, at.since(NOW));
                }
                _ => {}
            }
        }
        let next = victim.receiver.poll_timeout().expect("it is decided in time");
        assert!(next > at, "time passes");
        at = next;
        victim.receiver.handle_timeout(at);
    }
}

#[test]
fn room_that_is_given_back_late_is_waited_for_and_a_file_is_refused_once_no_more_comes() {
    const WHOLE: u64 = 4 * CHUNK as u64;
    let secs = Duration::from_secs;
    let (created, at) = measured_over_time(|at| if at < secs(1) { WHOLE - 1 } else { WHOLE });
    assert!(created && at < secs(2), "{at:?}");
    let (created, at) = measured_over_time(|_| WHOLE - 1);
    assert!(!created && at >= secs(2) && at < secs(3), "{at:?}");
    let (created, at) = measured_over_time(|at| WHOLE - 4 + at.as_secs());
    assert!(created && at >= secs(4) && at < secs(5), "{at:?}");
    let (created, at) = measured_over_time(|at| at.as_secs());
    assert!(!created && at >= secs(10) && at < secs(11), "{at:?}");
}

#[test]
fn what_a_partial_occupies_needs_no_room_nor_an_inode() {
    let decided = |chunks_free: u64| {
        let mut victim = Victim::new();
        let item = file("big", 20 * CHUNK);
        victim.page(vec![item.entry]);
        let size = ChunkSize::from_bytes(CHUNK as u64).expect("a size");
        let mut held = HeldChunks::new();
        let digests: Vec<_> = (0..12).map(|at| [at; 32]).collect();
        held.insert_run(ChunkIndex(0), &digests);
        let partial = Partial::new(ChunkMap::new(20 * CHUNK as u64, size), Source::Same, held);
        // Three more chunks were written and not journalled.
        let partial = Some(Arc::new(partial.occupying(15 * CHUNK as u64)));
        let room = Room { device: 1, bytes: chunks_free * CHUNK as u64, inodes: Some(0) };
        let mut at = NOW;
        loop {
            while let Some(action) = victim.receiver.poll_action() {
                match action {
                    ReceiverAction::Survey(of) => {
                        let partial = partial.clone();
                        let surveyed = Surveyed { partial, ..Seen::Absent.into() };
                        victim.receiver.handle_survey(at, of[0].id, vec![Ok(surveyed)]);
                    }
                    ReceiverAction::MeasureRoom { .. } => victim.receiver.handle_measure_room(at, Some(room)),
                    ReceiverAction::Create(..) => return Ok(victim.receiver),
                    ReceiverAction::Abort(fault) => return Err(fault),
                    _ => {}
                }
            }
            at = victim.receiver.poll_timeout().expect("it is decided in time");
            victim.receiver.handle_timeout(at);
        }
    };
    decided(5).expect("five chunks are missing").audit();
    let fault = decided(4).expect_err("one chunk too many");
    assert!(!fault.message.as_str().contains("inodes"), "{fault}");
}
