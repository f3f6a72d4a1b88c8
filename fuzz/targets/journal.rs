//! A journal as it may lie on a disk. Records that are believed fit their files, are a sound
//! journal by themselves, and can be continued; the memory is in proportion to the bytes. The first
//! byte chooses how large the pieces are, and whether the checks are made right first, so that the
//! code behind them is reached as well.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_core::ChunkIndex;
use longhaul_fuzz::within;
use longhaul_proto::journal::{End, JournalId, PRELUDE_BYTES, Record, Replay, Replayed, Writer, replay};

fuzz_target!(|input: &[u8]| {
    let Some((how, bytes)) = input.split_first() else { return };
    let bytes = if how & 1 == 0 { bytes.to_vec() } else { checked(bytes) };
    // A chunk that is far from all others costs a page of its own.
    within((1 << 16) + 64 * bytes.len(), || {
        let mut pieces = Replay::new();
        bytes.chunks(1 + usize::from(how >> 1)).for_each(|piece| pieces.push(piece));
        let Ok(replayed) = pieces.finish() else { return };
        sound(&replayed, &bytes);
        goes_on(replayed, &bytes);
    });
});

fn sound(replayed: &Replayed, bytes: &[u8]) {
    assert!(replayed.valid_len as usize <= bytes.len());
    assert!(replayed.end != End::Clean || replayed.valid_len as usize == bytes.len());
    let speaks_of_files = !replayed.files.is_empty() || !replayed.done.is_empty() || !replayed.dirs.is_empty();
    assert!(replayed.doubts.is_empty() || !speaks_of_files);
    for (number, partial) in &replayed.files {
        let (map, held) = (partial.file.map, &partial.held);
        assert_eq!((*number, held.iter().count() as u64), (partial.file.number, held.len()));
        assert!(held.iter().all(|(at, _)| at.0 < map.chunks() && held.contains(at)));
        assert!(held.bytes(map) <= map.len());
        let runs: u64 = held.runs().map(|run| run.count).sum();
        let missing: u64 = held.missing(map).map(|range| range.end - range.start).sum();
        assert_eq!((runs, missing), (held.len(), map.chunks() - held.len()));
        assert!(*number < replayed.next_number || *number == u32::MAX);
    }
}

fn goes_on(replayed: Replayed, bytes: &[u8]) {
    let mut longer = bytes[..replayed.valid_len as usize].to_vec();
    let mut writer = replayed.writer;
    for (number, partial) in &replayed.files {
        let digest = partial.held.get(ChunkIndex(0)).copied().unwrap_or([1; 32]);
        let run = longhaul_proto::journal::Run { start: ChunkIndex(0), digests: vec![digest] };
        writer.record(&Record::Chunks { number: *number, runs: vec![run] }, &mut longer);
        writer.record(&Record::Done { number: *number }, &mut longer);
    }
    let again = replay(&longer).expect("it goes on");
    assert_eq!((again.end, again.valid_len as usize), (End::Clean, longer.len()));
    assert_eq!(again.done.len(), replayed.done.len() + replayed.files.len());
    assert!(again.files.is_empty() && again.opened == replayed.opened);
}

/// The records in `bytes` (length, kind, body and eight bytes each), with the checks that they must
/// have.
fn checked(bytes: &[u8]) -> Vec<u8> {
    let id = JournalId([3; 16]);
    let key = blake3::derive_key("longhaul 1 journal record check", &id.0);
    let (mut out, mut last, mut rest) = (Vec::new(), [0; 8], bytes);
    let _ = Writer::begin(id, &mut out);
    assert_eq!(out.len(), PRELUDE_BYTES);
    while let Some((length, _)) = rest.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(*length) as usize;
        let Some(framed) = rest.get(..len.saturating_add(5)) else { break };
        let covered = [&last[..], &(out.len() as u64).to_le_bytes(), framed].concat();
        last.copy_from_slice(&blake3::keyed_hash(&key, &covered).as_bytes()[..8]);
        out.extend_from_slice(framed);
        out.extend_from_slice(&last);
        rest = rest.get(len + 13..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}
