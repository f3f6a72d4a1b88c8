//! The time and memory of large journals, each in a process of its own (memory that one freed would
//! hide the use of the next): `cargo test --release -p longhaul-proto --test journal -- --ignored
//! --nocapture NAME`.

#![allow(clippy::disallowed_methods, reason = "it measures itself")]

use std::time::Instant;

use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, RelPath};
use longhaul_proto::journal::{Record, Replay, Replayed, Run, Writer};

use super::model::{ID, file, opened};

const CHUNKS: u64 = (10 << 40) / ChunkSize::DEFAULT.bytes();

/// Writes the journal of `files` files of 10 TiB together, synced in groups of up to `group`
/// chunks, piece by piece.
fn write(files: u32, group: u64, mut sink: impl FnMut(&[u8])) {
    let mut piece = Vec::with_capacity(2 << 20);
    let mut writer = Writer::begin(ID, &mut piece);
    writer.record(&opened(0), &mut piece);
    let each = CHUNKS / u64::from(files);
    for number in 0..files {
        let Record::File(mut one) = file(number, 1) else { unreachable!() };
        one.path = RelPath::new(format!("run/{number}")).expect("a path");
        one.map = ChunkMap::new(each * ChunkSize::DEFAULT.bytes(), ChunkSize::DEFAULT);
        writer.record(&Record::File(one), &mut piece);
    }
    for start in (0..each).step_by(group as usize) {
        for number in 0..files {
            let digest = |n: u64| *blake3::hash(&n.to_le_bytes()).as_bytes();
            let digests = (start..each.min(start + group)).map(|n| digest(n << 16 | u64::from(number)));
            let run = Run { start: ChunkIndex(start), digests: digests.collect() };
            writer.record(&Record::Chunks { number, runs: vec![run] }, &mut piece);
            if piece.len() > 1 << 20 {
                sink(&piece);
                piece.clear();
            }
        }
    }
    sink(&piece);
}

fn resident(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a proc file system");
    let line = status.lines().find_map(|text| text.strip_prefix(line)).expect("a line");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
}

fn held(replayed: &Replayed) -> u64 {
    replayed.files.values().map(|partial| partial.held.len()).sum()
}

/// Replays twice: from a stream for the memory, from memory for the time.
fn measure(files: u32, group: u64) {
    let before = resident("VmRSS");
    let mut streamed = Replay::new();
    write(files, group, |piece| streamed.push(piece));
    let streamed = streamed.finish().expect("sound");
    let peak = resident("VmHWM") - before;
    let chunks = held(&streamed);
    drop(streamed);
    let mut bytes = Vec::with_capacity(512 << 20);
    write(files, group, |piece| bytes.extend_from_slice(piece));
    let begun = Instant::now();
    let mut replay = Replay::new();
    bytes.chunks(1 << 20).for_each(|piece| replay.push(piece));
    let replayed = replay.finish().expect("sound");
    let took = begun.elapsed();
    assert_eq!((held(&replayed), replayed.valid_len), (chunks, bytes.len() as u64));
    println!(
        "{files} files, groups of {group}: {chunks} chunks, journal {} MB, replay {} ms, memory {} MiB",
        bytes.len() / 1_000_000,
        took.as_millis(),
        peak >> 10,
    );
    assert!(took.as_secs_f64() < 2.0 && peak >> 10 < 200);
}

#[test]
#[ignore = "measures: run it alone, in release"]
fn ten_tebibytes_of_one_file_replay_in_seconds() {
    measure(1, 256);
}

#[test]
#[ignore = "measures: run it alone, in release"]
fn ten_tebibytes_of_a_hundred_files_replay_in_seconds() {
    measure(100, 256);
}

#[test]
#[ignore = "measures: run it alone, in release"]
fn ten_tebibytes_with_a_record_for_each_chunk_replay_in_seconds() {
    measure(1000, 1);
}
