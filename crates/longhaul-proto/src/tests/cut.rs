//! Tests of files that are cut into smaller chunks, so that all lanes share them.

use longhaul_core::limits::{CUT_CHUNKS_MAX, EVEN_CHUNKS};
use longhaul_core::{ChunkIndex, ChunkSize, Clock, FileId, IfExists};

use super::items::{CHUNK, file};
use super::victim::{NOW, Victim};
use crate::receiver::{Cut, Policy, ReceiverAction, Seen, WantOrder};
use crate::sender::{Sender, SenderAction, SenderConfig};
use crate::wire::message::{Answer, Message, Resume, WantChunks};

/// The sizes of chunks in which these files are begun, and the messages about them.
fn begun(mut victim: Victim, lens: &[usize]) -> (Vec<u64>, Vec<Message>) {
    victim.page(lens.iter().enumerate().map(|(at, len)| file(&format!("f{at}"), *len).entry).collect());
    let actions = victim.obey();
    let sizes = actions.iter().filter_map(|action| match action {
        ReceiverAction::Create(_, _, chunk) => Some(chunk.bytes()),
        _ => None,
    });
    let told = actions.iter().filter_map(|action| match action {
        ReceiverAction::Send(message @ (Message::Resume(_) | Message::WantChunks(_))) => Some(message.clone()),
        _ => None,
    });
    (sizes.collect(), told.collect())
}

fn size(bytes: usize) -> ChunkSize {
    ChunkSize::from_bytes(bytes as u64).expect("a size")
}

/// One that cuts files that are short for `lanes` lanes, and no others.
fn cutting(lanes: u32) -> Victim {
    cutting_as(lanes, 64 * CHUNK, IfExists::SkipSame, WantOrder::Any)
}

/// One whose lanes are to end together, with chunks of `even_min` at least.
fn cutting_as(lanes: u32, even_min: usize, if_exists: IfExists, order: WantOrder) -> Victim {
    let cut = Cut { lanes, chunk_min: size(CHUNK), even_min: size(even_min) };
    Victim::cutting(size(64 * CHUNK), cut, Policy { if_exists, may_modify: true }, order)
}

#[test]
fn a_file_that_gives_no_lane_a_chunk_is_cut_into_two_for_each_and_the_sender_hears_so_first() {
    let (sizes, told) = begun(cutting(4), &[32 * CHUNK]);
    assert_eq!(sizes, [4 * CHUNK as u64]);
    let [Message::Resume(resume), Message::WantChunks(want)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((resume.chunk.bytes(), resume.parts.len(), resume.more), (4 * CHUNK as u64, 0, false));
    assert_eq!((want.start.0, want.count), (0, 8));
}

#[test]
fn a_file_with_a_chunk_for_each_lane_is_not_cut_and_files_beside_each_other_share_the_lanes() {
    let whole = 64 * CHUNK as u64;
    for (lanes, lens, sizes) in [
        (4, vec![4 * 64 * CHUNK], vec![whole]),
        (4, vec![4 * 64 * CHUNK - 1], vec![32 * CHUNK as u64]),
        (1, vec![32 * CHUNK], vec![whole]),
        (4, vec![32 * CHUNK; 2], vec![8 * CHUNK as u64; 2]),
        (4, vec![32 * CHUNK; 4], vec![whole; 4]),
        (64, vec![3 * CHUNK], vec![CHUNK as u64]),
    ] {
        let (begun, told) = begun(cutting(lanes), &lens);
        assert_eq!(begun, sizes, "{lanes} lanes, {lens:?}: {told:?}");
        let resumes = told.iter().filter(|message| matches!(message, Message::Resume(_))).count();
        assert_eq!(resumes, sizes.iter().filter(|size| **size != whole).count(), "{told:?}");
    }
}

#[test]
fn a_chunk_is_a_small_part_of_what_is_to_come_so_that_lanes_end_together() {
    const MOST: usize = EVEN_CHUNKS as usize * CHUNK;
    for (lanes, lens, sizes) in [
        // Between the least chunk and the session's.
        (2, vec![MOST], vec![4]),
        (2, vec![4 * MOST], vec![4]),
        (2, vec![4 * MOST + 1], vec![8]),
        (2, vec![64 * MOST + 1], vec![64]),
        // A file that is short for its lanes has two chunks for each, where these are smaller.
        (64, vec![256 * CHUNK], vec![2]),
        (4, vec![64 * CHUNK], vec![4]),
        // Of several files each is a part of what is to come.
        (2, vec![4 * MOST, 4 * MOST], vec![8, 8]),
        (2, vec![CHUNK, 12 * MOST, CHUNK], vec![16, 16, 16]),
        // One lane waits for no other.
        (1, vec![MOST], vec![64]),
    ] {
        let (begun, told) = begun(cutting_as(lanes, 4 * CHUNK, IfExists::SkipSame, WantOrder::Any), &lens);
        let begun: Vec<u64> = begun.iter().map(|bytes| bytes / CHUNK as u64).collect();
        assert_eq!(begun, sizes, "{lanes} lanes, {lens:?}");
        let chunks = |resume: &Resume| (lens[resume.file.0 as usize] as u64).div_ceil(resume.chunk.bytes());
        let fine = |message: &Message| !matches!(message, Message::Resume(r) if chunks(r) > CUT_CHUNKS_MAX);
        assert!(told.iter().all(fine), "no sender takes more: {told:?}");
    }
}

#[test]
fn what_stands_or_goes_out_in_sequence_is_not_cut() {
    let mut victim = cutting_as(4, CHUNK, IfExists::Verify, WantOrder::Any);
    victim.page(vec![file("f", 32 * CHUNK).entry]);
    let seen = Seen::File { len: 32 * CHUNK as u64, mtime: file("f", 1).entry.meta.mtime, clock: Clock::Exact };
    std::iter::from_fn(|| victim.poll()).for_each(drop);
    victim.receiver.handle_survey(NOW, FileId(0), vec![Ok(seen.into())]);
    let actions: Vec<_> = std::iter::from_fn(|| victim.poll()).collect();
    assert!(!actions.iter().any(|a| matches!(a, ReceiverAction::Send(Message::Resume(_)))), "{actions:?}");

    let (sizes, _) =
        begun(cutting_as(4, CHUNK, IfExists::SkipSame, WantOrder::Sequence { chunks_max: 4 }), &[32 * CHUNK]);
    assert_eq!(sizes, [64 * CHUNK as u64]);
}

#[test]
fn a_sender_takes_as_many_small_chunks_as_lanes_can_need_and_no_more_or_smaller_ones() {
    let size = |log2| ChunkSize::from_log2(log2).expect("a size");
    for (len, log2, fine) in [
        (1 << 20, 16, true),
        (1 << 20, 15, false),
        (256 << 16, 16, true),
        ((256 << 16) + 1, 16, false),
        ((256 << 16) + 1, 17, true),
    ] {
        let (chunk, chunk_max) = (size(22), size(22));
        let mut sender = Sender::new(SenderConfig { chunk, chunk_min: size(20), chunk_max, bundled_max: 100 });
        sender.handle_scanned(file("short", len).entry);
        sender.handle_scan_end();
        let chunks = (len as u64).div_ceil(1 << log2);
        for message in [
            Message::Answer(Answer { first: FileId(0), wanted: vec![1] }),
            Message::Resume(Resume { file: FileId(0), chunk: size(log2), parts: Vec::new(), more: false }),
            Message::WantChunks(WantChunks { file: FileId(0), start: ChunkIndex(0), count: chunks }),
        ] {
            sender.handle_message(message);
        }
        let actions: Vec<_> = std::iter::from_fn(|| sender.poll_action()).collect();
        let reads = actions.iter().filter(|a| matches!(a, SenderAction::ReadChunk { .. })).count() as u64;
        assert_eq!((sender.is_over(), reads), (!fine, if fine { chunks } else { 0 }), "{len} by 2^{log2}: {actions:?}");
    }
}
