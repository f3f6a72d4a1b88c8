//! The sender's machine against whatever a receiver may say: it ends the session or goes on, and holds bounded state.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_core::{ChunkSize, Digest, Entry, EntryKind, Inode, LaneId, Meta, RelPath, Unit};
use longhaul_fuzz::messages;
use longhaul_proto::Sender;
use longhaul_proto::sender::{Action, Config, Sent};

fuzz_target!(|bytes: &[u8]| {
    let chunk = ChunkSize::from_log2(10).expect("in range");
    let mut sender = Sender::new(Config { chunk, chunk_min: chunk, chunk_max: chunk, bundled_max: 256 });
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
                Action::ReadChunk { file, index, attempt, map, .. } => {
                    assert!(index.0 < map.chunks());
                    (Unit::Chunk { file, index }, attempt, Digest::Cv([0; 32]))
                }
                Action::Pack { bundle, attempt, .. } => (Unit::Bundle(bundle), attempt, Digest::Root([0; 32])),
                Action::CloseLane(lane) => {
                    sender.handle_lane_ended(lane, None);
                    continue;
                }
                Action::CheckSource(file) => {
                    sender.handle_checked(file, Ok(()));
                    continue;
                }
                _ => continue,
            };
            let sent = Sent { unit, attempt, digest, len: 1, lane: LaneId(0), seq, declared: seq % 2 == 0 };
            seq += 1;
            sender.handle_sent(sent);
        }
    }
});
