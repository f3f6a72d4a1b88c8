//! Tests of streams at both machines, event by event.

use std::sync::Arc;

use longhaul_core::digest::{TreePart, digest_of};
use longhaul_core::{
    Attempt, ChunkIndex, ChunkMap, ChunkSize, Digest, DigestKind, EntryKind, FaultCode, FileId, Inode, LaneId, Unit,
};

use super::hostile_receiver::asked_for;
use super::items::{CHUNK, Item, file, item};
use super::victim::{NOW, Victim, fault};
use crate::journal::HeldChunks;
use crate::receiver::{Created, JournalEntry, Partial, ReceiverAction, Seen, Source, Surveyed, WantOrder};
use crate::sender::{Sender, SenderAction, Sent, StreamInput};
use crate::time::Timestamp;
use crate::wire::message::{
    DurableChunks, FileEnd, Finding, Message, Resume, StreamEnd, Verdict, WantChunks, WantLast,
};

const FILE: FileId = FileId(0);

fn stream() -> Item {
    item("s", EntryKind::Stream { inode: Inode::default(), kept_bytes: 4096 * CHUNK as u64 })
}

fn size() -> ChunkSize {
    ChunkSize::from_bytes(CHUNK as u64).expect("a size")
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 / 3) as u8).collect()
}

/// The digest of a chunk of a stream with this content.
fn digest(bytes: &[u8], index: u64) -> Digest {
    let map = ChunkMap::new(bytes.len() as u64, size());
    let start = map.start_of(ChunkIndex(index));
    let len = map.len_of(ChunkIndex(index)).expect("a chunk") as usize;
    digest_of(&bytes[start.0 as usize..][..len], DigestKind::Cv, start)
}

fn root(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

fn chunk(index: u64) -> Unit {
    Unit::Chunk { file: FILE, index: ChunkIndex(index) }
}

fn want(start: u64, count: u64) -> Message {
    Message::WantChunks(WantChunks { file: FILE, start: ChunkIndex(start), count })
}

fn durable(start: u64, count: u64) -> Message {
    Message::DurableChunks(DurableChunks { file: FILE, start: ChunkIndex(start), count })
}

/// The input of a stream that is this far, and has not ended.
fn came(bytes: usize) -> StreamInput {
    StreamInput { bytes: bytes as u64, len: None }
}

fn ended(bytes: usize) -> StreamInput {
    StreamInput { bytes: bytes as u64, len: Some(bytes as u64) }
}

/// The actions of a sender in short.
fn acts(sender: &mut Sender) -> Vec<String> {
    sender.audit();
    let short = |action| match action {
        SenderAction::ReadChunk { index, attempt, .. } => format!("read {} for {}", index.0, attempt.0),
        SenderAction::Release { start, count, .. } => format!("release {}+{count}", start.0),
        SenderAction::CheckSource { .. } => "check".to_owned(),
        SenderAction::Send(Message::StreamEnd(end)) => format!("end {}", end.len),
        SenderAction::Send(Message::FileEnd(_)) => "root".to_owned(),
        SenderAction::Abort(fault) => fault.code.name().to_owned(),
        _ => String::new(),
    };
    std::iter::from_fn(|| sender.poll_action()).map(short).filter(|short| !short.is_empty()).collect()
}

/// A sender whose stream is wanted, of which nothing was read.
fn wanted() -> Sender {
    let mut sender = asked_for(vec![stream()]);
    assert!(acts(&mut sender).is_empty());
    sender
}

fn sent(sender: &mut Sender, bytes: &[u8], index: u64, attempt: u32) {
    let (attempt, digest) = (Attempt(attempt), digest(bytes, index));
    let (unit, lane) = (chunk(index), LaneId(0));
    sender.handle_sent(Sent { unit, attempt, digest, len: 1, unit_len: 1, lane, seq: index, declared: true });
}

fn judge(sender: &mut Sender, index: u64, finding: Finding) {
    let verdict = Verdict { unit: chunk(index), attempt: Attempt(1), finding };
    sender.handle_message(Message::Verdicts(vec![verdict]));
}

#[test]
fn chunks_that_are_wanted_are_read_when_the_input_has_brought_them() {
    let mut sender = wanted();
    sender.handle_message(want(0, 100));
    assert!(acts(&mut sender).is_empty(), "nothing came");
    sender.handle_stream_input(FILE, came(2 * CHUNK + 5));
    assert_eq!(acts(&mut sender), ["read 0 for 1", "read 1 for 1"]);
    sender.handle_stream_input(FILE, came(2 * CHUNK + 5));
    assert!(acts(&mut sender).is_empty(), "it may be said as often as one likes");
    sender.handle_stream_input(FILE, came(3 * CHUNK));
    assert_eq!(acts(&mut sender), ["read 2 for 1"]);
    sender.handle_message(want(100, 1));
    assert!(acts(&mut sender).is_empty());
}

#[test]
fn the_end_drops_what_will_not_come_and_the_last_chunk_is_wanted_by_itself() {
    let bytes = content(2 * CHUNK + 5);
    let mut sender = wanted();
    sender.handle_message(want(0, 100));
    sender.handle_stream_input(FILE, ended(bytes.len()));
    assert_eq!(acts(&mut sender), ["read 0 for 1", "read 1 for 1", "end 2053"]);
    // A want that crossed the end.
    sender.handle_message(want(100, 7));
    assert!(acts(&mut sender).is_empty());
    (0..2).for_each(|index| sent(&mut sender, &bytes, index, 1));
    assert!(acts(&mut sender).is_empty(), "the root is not known");
    sender.handle_message(Message::WantLast(WantLast { file: FILE }));
    assert_eq!(acts(&mut sender), ["read 2 for 1"]);
    sent(&mut sender, &bytes, 2, 1);
    assert_eq!(acts(&mut sender), ["check"]);
    sender.handle_check_source(FILE, Ok(()));
    assert_eq!(acts(&mut sender), ["root"]);
}

#[test]
fn a_stream_of_whole_chunks_has_no_last_one_and_its_root_is_that_of_all_of_it() {
    for chunks in [2, 3, 4, 8, 9] {
        let bytes = content(chunks * CHUNK);
        let mut sender = wanted();
        sender.handle_message(want(0, 100));
        sender.handle_stream_input(FILE, came(bytes.len()));
        acts(&mut sender);
        (0..chunks as u64).for_each(|index| sent(&mut sender, &bytes, index, 1));
        assert!(acts(&mut sender).is_empty());
        sender.handle_stream_input(FILE, ended(bytes.len()));
        let actions: Vec<_> = std::iter::from_fn(|| sender.poll_action()).collect();
        let found = actions.iter().find_map(|action| match action {
            SenderAction::CheckSource { root, .. } => Some(*root),
            _ => None,
        });
        assert_eq!(found, Some(root(&bytes)), "{chunks} chunks");
    }
}

#[test]
fn a_chunk_that_is_damaged_is_read_again_and_what_is_durable_is_let_go() {
    let bytes = content(3 * CHUNK);
    let mut sender = wanted();
    sender.handle_message(want(0, 3));
    sender.handle_stream_input(FILE, came(bytes.len()));
    acts(&mut sender);
    sent(&mut sender, &bytes, 0, 1);
    judge(&mut sender, 0, Finding::Again);
    assert_eq!(acts(&mut sender), ["read 0 for 2"]);
    sent(&mut sender, &bytes, 1, 1);
    judge(&mut sender, 1, Finding::Good(digest(&bytes, 1)));
    sender.handle_message(durable(1, 1));
    assert_eq!(acts(&mut sender), ["release 1+1"]);
}

#[test]
fn a_receiver_that_holds_part_of_a_stream_gets_the_rest() {
    let bytes = content(4 * CHUNK);
    let mut sender = wanted();
    sender.handle_stream_input(FILE, ended(bytes.len()));
    assert!(acts(&mut sender).is_empty(), "the receiver may still say what it holds");
    let part = |start| TreePart { start: ChunkIndex(start), chunks: 1, digest: digest(&bytes, start) };
    let resume = Resume { file: FILE, chunk: size(), parts: vec![part(0), part(1)], more: false };
    sender.handle_message(Message::Resume(resume));
    assert_eq!(acts(&mut sender), ["release 0+1", "release 1+1", "end 4096"]);
    sender.handle_message(want(2, 100));
    assert_eq!(acts(&mut sender), ["read 2 for 1", "read 3 for 1"]);
    (2..4).for_each(|index| sent(&mut sender, &bytes, index, 1));
    assert_eq!(acts(&mut sender), ["check"]);
}

#[test]
fn a_receiver_that_says_of_a_stream_what_cannot_be_ends_the_session() {
    let held = |start, chunks, chunk| {
        let parts = vec![TreePart { start: ChunkIndex(start), chunks, digest: Digest::Cv([1; 32]) }];
        Message::Resume(Resume { file: FILE, chunk, parts, more: false })
    };
    let last = || Message::WantLast(WantLast { file: FILE });
    for (what, input, messages) in [
        ("the last chunk before the end", came(0), vec![last()]),
        ("the last chunk of whole ones", ended(4 * CHUNK), vec![want(0, 1), last()]),
        ("the last chunk twice", ended(4 * CHUNK + 1), vec![want(0, 1), last(), last()]),
        ("chunks that are durable and were not wanted", came(0), vec![want(0, 1), durable(0, 2)]),
        ("no chunks that are durable", came(0), vec![want(0, 1), durable(0, 0)]),
        ("all numbers of durable chunks", came(0), vec![want(0, 1), durable(1, u64::MAX)]),
        ("another chunk size", came(0), vec![held(0, 1, ChunkSize::DEFAULT)]),
        ("a part that may be all", came(0), vec![held(0, 2, size())]),
        ("a part behind the end", ended(4 * CHUNK), vec![held(64, 1, size())]),
    ] {
        let mut sender = wanted();
        sender.handle_stream_input(FILE, input);
        messages.into_iter().for_each(|message| sender.handle_message(message));
        assert_eq!(acts(&mut sender).last().map(String::as_str), Some("protocol"), "{what}");
    }
    let mut of_files = asked_for(vec![file("f", 9 * CHUNK)]);
    of_files.handle_message(want(0, 2));
    of_files.handle_message(durable(0, 1));
    assert_eq!(acts(&mut of_files).last().map(String::as_str), Some("protocol"), "durable chunks of a file");
}

/// A receiver that wants a stream.
fn wanting() -> Victim {
    let mut victim = Victim::new();
    victim.page(vec![stream().entry]);
    assert_eq!(wants(&victim.obey()), "0+1024");
    victim
}

/// The wants among these actions, in short.
fn wants(actions: &[ReceiverAction]) -> String {
    let wants = actions.iter().filter_map(|action| match action {
        ReceiverAction::Send(Message::WantChunks(want)) => Some(format!("{}+{}", want.start.0, want.count)),
        ReceiverAction::Send(Message::WantLast(_)) => Some("last".to_owned()),
        _ => None,
    });
    wants.collect::<Vec<_>>().join(" ")
}

/// A chunk arrives, and is written.
fn land(victim: &mut Victim, bytes: &[u8], index: u64) {
    let digest = digest(bytes, index);
    let len = ChunkMap::new(bytes.len() as u64, size()).len_of(ChunkIndex(index)).expect("a chunk");
    let mut landed = victim.landed(chunk(index), 1, digest, Some(digest));
    (landed.piece.len, landed.piece.unit_len) = (len, len);
    victim.land(landed);
    victim.obey();
    victim.receiver.handle_write(NOW, FILE, ChunkIndex(index), Ok(()));
}

fn end(len: usize) -> Message {
    Message::StreamEnd(StreamEnd { file: FILE, len: len as u64 })
}

#[test]
fn a_stream_is_sealed_as_a_file_of_the_length_that_its_end_says() {
    for len in [CHUNK + 1, 2 * CHUNK, 4 * CHUNK, 4 * CHUNK + 17] {
        let bytes = content(len);
        let mut victim = wanting();
        let whole = (len / CHUNK) as u64;
        (0..whole).for_each(|index| land(&mut victim, &bytes, index));
        victim.obey();
        victim.say(end(len));
        let is_rest = len % CHUNK > 0;
        assert_eq!(wants(&victim.obey()), if is_rest { "last" } else { "" }, "{len}");
        if is_rest {
            land(&mut victim, &bytes, whole);
        }
        victim.say(Message::FileEnd(FileEnd { file: FILE, root: root(&bytes) }));
        let sealed = victim.obey().into_iter().find_map(|action| match action {
            ReceiverAction::Seal(held) => Some(held.entry.kind.clone()),
            _ => None,
        });
        let kind = EntryKind::File { len: len as u64, sparse: false, inode: Inode::default() };
        assert_eq!(sealed, Some(kind), "{len}");
    }
}

/// Syncs a file when it is due. Gives the records that follow.
fn sync(victim: &mut Victim, at: u64) -> Option<Vec<JournalEntry>> {
    let at = Timestamp(at);
    victim.receiver.handle_timeout(at);
    let actions = victim.obey();
    assert!(actions.iter().any(|action| matches!(action, ReceiverAction::SyncData(_))), "{actions:?}");
    victim.receiver.handle_sync_data(at, FILE, Ok(Vec::new()));
    victim.obey().into_iter().find_map(|action| match action {
        ReceiverAction::Journal(records) => Some(records),
        _ => None,
    })
}

#[test]
fn chunks_of_a_stream_are_told_durable_and_its_last_one_is_not_journalled() {
    let bytes = content(2 * CHUNK + 9);
    let mut victim = wanting();
    (0..2).for_each(|index| land(&mut victim, &bytes, index));
    let records = sync(&mut victim, 10_000_000_000).expect("a record");
    assert!(matches!(&records[..], [JournalEntry::Chunks { chunks, .. }] if chunks.len() == 2), "{records:?}");
    victim.receiver.handle_journal(NOW, Ok(()));
    let told = victim.obey().into_iter().filter_map(|action| match action {
        ReceiverAction::Send(Message::DurableChunks(durable)) => Some((durable.start.0, durable.count)),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [(0, 2)]);
    victim.say(end(bytes.len()));
    victim.obey();
    land(&mut victim, &bytes, 2);
    assert_eq!(sync(&mut victim, 20_000_000_000), None);
}

/// The fault by which a session ends, once what was written is durable.
fn ends(victim: &mut Victim) -> Option<FaultCode> {
    for _ in 0..4 {
        for action in victim.obey() {
            match action {
                ReceiverAction::SyncData(file) => victim.receiver.handle_sync_data(NOW, file, Ok(Vec::new())),
                ReceiverAction::Journal(_) => victim.receiver.handle_journal(NOW, Ok(())),
                ReceiverAction::Abort(fault) => return Some(fault.code),
                _ => {}
            }
        }
    }
    None
}

#[test]
fn a_sender_that_says_of_a_stream_what_cannot_be_ends_the_session() {
    let bytes = content(4 * CHUNK);
    for (what, messages) in [
        ("an end within the first chunk", vec![end(CHUNK)]),
        ("an end before a chunk that came", vec![end(3 * CHUNK)]),
        ("two ends", vec![end(4 * CHUNK), end(4 * CHUNK)]),
        ("an end that is none", vec![Message::StreamEnd(StreamEnd { file: FILE, len: 1 << 63 })]),
        ("the end of another entry", vec![Message::StreamEnd(StreamEnd { file: FileId(1), len: 9999 })]),
        ("words that only a receiver says", vec![durable(0, 1)]),
    ] {
        let mut victim = wanting();
        land(&mut victim, &bytes, 3);
        messages.into_iter().for_each(|message| victim.say(message));
        assert_eq!(ends(&mut victim), Some(FaultCode::Protocol), "{what}");
    }
    let mut in_sequence = Victim::asking(WantOrder::Sequence { chunks_max: 4 });
    in_sequence.page(vec![stream().entry]);
    in_sequence.assert_refused(FaultCode::Protocol, "a stream where a stream goes out");
}

#[test]
fn a_stream_that_its_sender_gives_up_leaves_nothing() {
    let bytes = content(4 * CHUNK);
    for code in [FaultCode::Mismatch, FaultCode::Io, FaultCode::Changed, FaultCode::Unclassified] {
        let mut victim = wanting();
        land(&mut victim, &bytes, 0);
        victim.obey();
        victim.say(fault(0, code));
        let actions = victim.obey();
        assert!(actions.iter().any(|action| matches!(action, ReceiverAction::Discard(_))), "{code:?}: {actions:?}");
    }
}

#[test]
fn a_partial_of_a_stream_is_gone_on_with_only_by_the_run_that_left_it() {
    let bytes = content(4 * CHUNK);
    for (source, begins) in [(Source::Same, "2+1024"), (Source::Changed, "0+1024")] {
        let mut held = HeldChunks::new();
        held.insert_run(ChunkIndex(0), &[0, 1].map(|at| *digest(&bytes, at).bytes()));
        let partial = Arc::new(Partial::new(ChunkMap::unended(size()), source, held));
        let mut victim = Victim::new();
        victim.page(vec![stream().entry]);
        let mut all = Vec::new();
        while let Some(action) = victim.poll() {
            match &action {
                ReceiverAction::Survey(held) => {
                    let found = Surveyed { partial: Some(partial.clone()), ..Seen::Absent.into() };
                    victim.receiver.handle_survey(NOW, held[0].id, vec![Ok(found)]);
                }
                ReceiverAction::Create(held, found, _) => {
                    let created = found.clone().map_or(Created::Fresh, Created::Continued);
                    victim.receiver.handle_create(NOW, held.id, Ok(created));
                }
                _ => {}
            }
            all.push(action);
        }
        assert_eq!(wants(&all), begins, "{source:?}");
        let parts = all.iter().find_map(|action| match action {
            ReceiverAction::Send(Message::Resume(resume)) => Some(resume.parts.len()),
            _ => None,
        });
        assert_eq!(parts, (source == Source::Same).then_some(2), "no parent is made that may be the root");
    }
}
