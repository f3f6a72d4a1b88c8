//! The sender's machine against any messages of a receiver: it ends the session or goes on, and
//! holds bounded state. Each input is played twice: to a sender that carries out orders at once,
//! and to one whose lanes take nothing, by a receiver that reads nothing.
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use longhaul_core::limits::{CHUNKS_WANTED_MAX, ENTRIES_UNSETTLED_MAX};
use longhaul_core::{BundleId, ChunkSize, Digest, Entry, EntryKind, FileId, Inode, LaneId, Meta, RelPath, Unit};
use longhaul_fuzz::{Unread, messages, within};
use longhaul_proto::sender::{SenderAction, SenderConfig, Sent};
use longhaul_proto::{Message, Sender};

fuzz_target!(|bytes: &[u8]| {
    obeyed(bytes);
    // Entries, orders for a window of chunks, and the memory of the messages themselves.
    within((4 << 20) + 256 * bytes.len(), || stuck(bytes));
});

/// Plays a sender that begins no order and a peer that reads no message: the waiting bytes are
/// bounded by the window, and by the bytes that the peer paid.
fn stuck(bytes: &[u8]) {
    let chunk = ChunkSize::from_log2(10).expect("in range");
    let mut sender = Sender::new(SenderConfig { chunk, chunk_min: chunk, chunk_max: chunk, bundled_max: 256 });
    let (mut scanned, mut unread) = (0u64, Unread::default());
    // As the engine keeps them: those of a file go with it.
    let (mut chunks, mut bundles): (HashMap<FileId, usize>, HashMap<BundleId, usize>) = Default::default();
    for message in messages(bytes) {
        unread.hear(&message);
        sender.handle_message(message);
        for _ in 0..64 {
            if !sender.has_room() {
                break;
            }
            let path = RelPath::new(format!("f{scanned}")).expect("a path");
            let len = if scanned % 4 == 3 { 100 } else { 1 << 40 };
            let kind = EntryKind::File { len, sparse: false, inode: Inode::default() };
            sender.handle_scanned(Entry { path, kind, meta: Meta::default() });
            scanned += 1;
        }
        sender.handle_scan_idle();
        while let Some(action) = sender.poll_action() {
            match action {
                SenderAction::Send(message) => {
                    unread.say(&message);
                    if let Message::FileFault(fault) = message {
                        chunks.remove(&fault.file);
                    }
                }
                SenderAction::ReadChunk { file, .. } => *chunks.entry(file).or_default() += 1,
                SenderAction::Pack { bundle, files, .. } => *bundles.entry(bundle).or_default() += files.len(),
                SenderAction::Settled(file, _) => drop(chunks.remove(&file)),
                _ => {}
            }
        }
        sender.handle_backlog(unread.is_backlogged());
        assert!(chunks.values().sum::<usize>() <= 2 * CHUNKS_WANTED_MAX, "orders of chunks");
        assert!(bundles.values().sum::<usize>() <= 3 * ENTRIES_UNSETTLED_MAX, "orders of bundles");
        assert!(
            unread.bytes() <= (64 << 10) + 64 * unread.paid(),
            "{} bytes wait for {}",
            unread.bytes(),
            unread.paid()
        );
    }
}

fn obeyed(bytes: &[u8]) {
    let chunk = ChunkSize::from_log2(10).expect("in range");
    let mut sender = Sender::new(SenderConfig { chunk, chunk_min: chunk, chunk_max: chunk, bundled_max: 256 });
    sender.handle_lane_joined(LaneId(0));
    let mut scanned = 0u64;
    let mut seq = 0;
    for message in messages(bytes) {
        sender.handle_message(message);
        while sender.has_room() && scanned < 40 {
            let path = RelPath::new(format!("f{scanned}")).expect("a path");
            let kind = EntryKind::File { len: scanned * 100, sparse: false, inode: Inode::default() };
            sender.handle_scanned(Entry { path, kind, meta: Meta::default() });
            scanned += 1;
        }
        if scanned == 40 {
            sender.handle_scan_end();
            scanned += 1;
        }
        while let Some(action) = sender.poll_action() {
            let (unit, attempt, digest) = match action {
                // As in the fuzzed verdicts, digests are of one byte: some are right.
                SenderAction::ReadChunk { file, index, attempt, map, .. } => {
                    assert!(index.0 < map.chunks());
                    (Unit::Chunk { file, index }, attempt, Digest::Cv([0; 32]))
                }
                SenderAction::Pack { bundle, attempt, .. } => (Unit::Bundle(bundle), attempt, Digest::Root([0; 32])),
                SenderAction::CloseLane(lane) => {
                    sender.handle_lane_ended(lane, None);
                    continue;
                }
                SenderAction::CheckSource { file, .. } => {
                    sender.handle_check_source(file, Ok(()));
                    continue;
                }
                _ => continue,
            };
            let sent = Sent { unit, attempt, digest, len: 1, unit_len: 1, lane: LaneId(0), seq, declared: seq % 2 == 0 };
            seq += 1;
            sender.handle_sent(sent);
        }
    }
}
