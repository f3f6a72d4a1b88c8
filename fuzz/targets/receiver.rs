//! The receiver's machine against any messages of a sender, with a disk that does everything at
//! once and lanes that bring any declared unit: it ends the session or goes on. Each input is
//! played twice: the second time by a sender that reads none of the messages to it.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use longhaul_core::limits::ENTRIES_UNSETTLED_MAX;
use longhaul_core::{
    ChunkIndex, ChunkMap, ChunkSize, Clock, Digest, DigestKind, EntryKind, IfExists, LaneId, Preserve, RelPath, Unit,
};
use longhaul_fuzz::{Unread, messages, within};
use longhaul_proto::journal::HeldChunks;
use longhaul_proto::receiver::{
    Created, Cut, EntryRef, Landed, LandedRow, Landing, Named, Partial, Policy, Receiver, ReceiverAction,
    ReceiverConfig, Seen, SkippedDigests, Source, Surveyed, SyncGroup, Ticket, WantOrder,
};
use longhaul_proto::wire::data::Piece;
use longhaul_proto::wire::message::Declared;
use longhaul_proto::{Message, Timestamp};

fuzz_target!(|bytes: &[u8]| {
    let mut nobody = Witness::default();
    play(bytes, &mut nobody, |_| false);
    within((4 << 20) + 512 * bytes.len(), || play(bytes, &mut Witness::default(), Unread::is_backlogged));
});

/// The outside view of a receiver.
#[derive(Default)]
struct Witness {
    /// The messages that it said.
    said: Unread,
    /// Directories that it was told of and that have not ended.
    dirs: Vec<RelPath>,
}

impl Witness {
    fn see(&mut self, action: &ReceiverAction) {
        match action {
            ReceiverAction::Send(message) => self.said.say(message),
            ReceiverAction::Survey(page) => page.iter().for_each(|held| match held.entry.kind {
                EntryKind::Dir => self.dirs.push(held.entry.path.clone()),
                EntryKind::DirEnd => assert_eq!(self.dirs.pop().as_ref(), Some(&held.entry.path), "another one ends"),
                _ => {}
            }),
            _ => {}
        }
    }

    fn check(&self) {
        let (bytes, paid) = (self.said.bytes(), self.said.paid());
        assert!(bytes <= (16 << 10) + 96 * paid, "{bytes} bytes wait for {paid}");
        let levels = self.dirs.last().map_or(0, |dir| 1 + dir.components().count());
        assert!(self.dirs.len() <= levels, "{} directories are open in {levels} levels", self.dirs.len());
    }
}

fn play(bytes: &[u8], witness: &mut Witness, is_backlogged: impl Fn(&Unread) -> bool) {
    let if_exists = if bytes.first().is_some_and(|byte| byte % 2 == 1) { IfExists::Verify } else { IfExists::SkipSame };
    let config = ReceiverConfig {
        chunk: ChunkSize::from_log2(10).expect("in range"),
        chunk_max: ChunkSize::from_log2(11).expect("in range"),
        bundled_max: 256,
        policy: Policy { if_exists, may_modify: true },
        landing: Landing::beneath(),
        preserve: Preserve { hardlinks: true, ..Preserve::default() },
        dry_run: false,
        read_back: false,
        digests: if bytes.first().is_some_and(|byte| byte % 4 > 1) {
            SkippedDigests::Told
        } else {
            SkippedDigests::Unwanted
        },
        group: SyncGroup { bytes: 4096, ..SyncGroup::default() },
        order: match bytes.get(1) {
            Some(byte) if byte % 4 == 3 => WantOrder::Sequence { chunks_max: usize::from(byte / 4) },
            _ => WantOrder::Any,
        },
        cut: bytes
            .get(2)
            .is_some_and(|byte| byte % 2 == 1)
            .then(|| {
                let least = ChunkSize::from_log2(10).expect("in range");
                Cut { lanes: 4, chunk_min: least, even_min: least }
            }),
    };
    let mut receiver = Receiver::new(config, String::new());
    (0..4).for_each(|lane| assert!(receiver.handle_lane_joined(LaneId(lane))));
    for (second, message) in (0..).zip(messages(bytes)) {
        let now = Timestamp(second * 1_000_000);
        witness.said.hear(&message);
        if let Message::Digests(list) = &message {
            list.iter().take(8).for_each(|declared| receiver.handle_landed(now, landed(declared)));
        }
        receiver.handle_message(now, message);
        receiver.handle_timeout(now);
        obey(&mut receiver, now, witness);
        receiver.handle_backlog(now, is_backlogged(&witness.said));
        obey(&mut receiver, now, witness);
        assert!(receiver.unsettled() <= ENTRIES_UNSETTLED_MAX);
        witness.check();
    }
}

/// The arrival that a lane would bring if the declaration is true.
fn landed(declared: &Declared) -> Landed {
    let rows = match declared.unit {
        Unit::Bundle(_) => (0..3)
            .map(|file| LandedRow {
                file: longhaul_core::FileId(file),
                len: 5,
                declared: [0; 32],
                computed: [0; 32],
                same: file == 2,
            })
            .collect(),
        Unit::Chunk { .. } => Vec::new(),
    };
    let piece = Piece {
        unit: declared.unit,
        attempt: declared.attempt,
        offset: 0,
        len: 1024,
        unit_len: 1024,
        chunk: ChunkSize::from_log2(10).expect("in range"),
        digest: DigestKind::Cv,
        hole: false,
        same: false,
        trailer: false,
    };
    let ticket = Ticket { lane: declared.lane, seq: declared.seq };
    Landed { ticket, piece, computed: declared.digest, declared: None, rows }
}

/// The survey of a file: of every other file some chunks are held, of the same version or of
/// another; of the others some stand.
fn surveyed(held: &EntryRef) -> Surveyed {
    let EntryKind::File { len, .. } = held.entry.kind else { return Seen::Absent.into() };
    let source = match held.id.0 % 4 {
        1 => Source::Same,
        3 => Source::Changed,
        2 => return Seen::File { len, mtime: held.entry.meta.mtime, clock: Clock::Exact }.into(),
        _ => return Seen::Absent.into(),
    };
    let size = ChunkSize::from_log2(10).expect("a size");
    let mut chunks = HeldChunks::new();
    chunks.insert(ChunkIndex(held.id.0 % 3), [0; 32]);
    let map = ChunkMap::new(len.max(4 << 10), size);
    Surveyed { partial: Some(Arc::new(Partial::new(map, source, chunks))), ..Seen::Absent.into() }
}

fn obey(receiver: &mut Receiver, now: Timestamp, witness: &mut Witness) {
    while let Some(action) = receiver.poll_action() {
        witness.see(&action);
        match action {
            ReceiverAction::Survey(held) => {
                let seen = held.iter().map(|held| Ok(surveyed(held))).collect();
                receiver.handle_survey(now, held[0].id, seen);
            }
            ReceiverAction::Create(held, partial, _) => {
                let created = partial.map_or(Created::Fresh, Created::Continued);
                receiver.handle_create(now, held.id, Ok(created));
            }
            ReceiverAction::ReadStanding(files) => {
                receiver.handle_read_standing(now, files.iter().map(|held| (held.id, Ok([0; 32]))).collect());
            }
            ReceiverAction::DigestSkipped(files) => {
                let results = files.iter().map(|held| (held.id, Ok(Some([0; 32])))).collect();
                receiver.handle_digest_skipped(now, results);
            }
            ReceiverAction::ReadStandingChunks { base, chunks } => {
                let digest = Digest::Cv([0; 32]);
                let found = chunks.into_iter().map(|index| (index, Ok(digest))).collect();
                receiver.handle_read_standing_chunks(now, base.entry.id, found);
            }
            ReceiverAction::Copy { base, index, .. } => receiver.handle_write(now, base.entry.id, index, Ok(())),
            ReceiverAction::Retouch { files, .. } => {
                receiver.handle_retouch(now, files.iter().map(|held| (held.id, Ok(()))).collect());
            }
            ReceiverAction::Journal(_) => receiver.handle_journal(now, Ok(())),
            ReceiverAction::Tidy => receiver.handle_tidy(Ok(())),
            ReceiverAction::MakeLink(held) | ReceiverAction::Seal(held) => {
                receiver.handle_stage(now, vec![(held.id, Ok(()))])
            }
            ReceiverAction::MakeName { entry, .. } => {
                let named = match entry.id.0 % 3 {
                    0 => Named::Staged(None),
                    1 => Named::Stood(Some([0; 32])),
                    _ => Named::Refused,
                };
                receiver.handle_name(now, entry.id, named);
            }
            ReceiverAction::Write { file, index, .. } => receiver.handle_write(now, file, index, Ok(())),
            ReceiverAction::WriteBundle { files, .. } => {
                receiver.handle_stage(now, files.iter().map(|held| (held.id, Ok(()))).collect());
            }
            ReceiverAction::SyncData(file) => receiver.handle_sync_data(now, file, Ok(Vec::new())),
            ReceiverAction::Barrier(_) => receiver.handle_barrier(now, Ok(Vec::new())),
            ReceiverAction::Publish(renames) => {
                receiver.handle_publish(now, renames.iter().map(|(id, _)| (*id, Ok(()))).collect());
            }
            ReceiverAction::SyncDirs(_) => receiver.handle_sync_dirs(now, Ok(())),
            ReceiverAction::CloseLane(lane) => receiver.handle_lane_ended(now, lane, 1),
            ReceiverAction::FinishDirs(dirs) => {
                receiver.handle_finish_dirs(now, dirs.iter().map(|held| (held.id, Ok(()))).collect());
            }
            _ => {}
        }
    }
}
