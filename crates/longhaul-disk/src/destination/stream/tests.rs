//! The output of a stream, whole: chunks in any order through a pipe.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};

use longhaul_core::{ChunkIndex, ChunkSize, Layout, Mtime, SessionTag};
use longhaul_sys::Slab;

use super::*;
use crate::io::{ChunkIo, EngineKind};

const CHUNK: usize = 64 << 10;
const BLOCK: usize = 24 << 10;

/// A stream into a pipe.
struct Rig {
    output: Arc<StreamOutput>,
    target: StreamTarget,
    slab: Arc<Slab>,
    io: ChunkIo,
    out: Option<File>,
}

fn path(name: &str) -> RelPath {
    RelPath::new(name.as_bytes()).expect("a path")
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + (at >> 9) + seed) as u8).collect()
}

impl Rig {
    fn new(shape: StreamShape, slots: usize) -> Rig {
        let (reader, writer) = io::pipe().expect("a pipe");
        let sink = StreamSink::of(OwnedFd::from(writer).into(), "a pipe");
        let output = StreamOutput::start(sink, shape).expect("a thread");
        output.sized(slots, CHUNK as u64);
        let slab = Slab::new(CHUNK, slots).expect("memory");
        let io = ChunkIo::start(EngineKind::Threads, 1, &slab).expect("an engine");
        let target = StreamTarget::new(output.clone());
        Rig { output, target, slab, io, out: Some(File::from(OwnedFd::from(reader))) }
    }

    fn create(&self, name: &str, len: usize) -> Arc<TargetFile> {
        let size = ChunkSize::from_bytes(CHUNK as u64).expect("a power of two");
        let meta = Meta::new(0o600, Mtime { secs: 77, nanos: 0 });
        let temp = TempName::new(SessionTag([0; 8]), [0; 8]);
        self.target
            .create_known(&path(name), ChunkMap::new(len as u64, size), Zeros::Written, &temp, &meta)
            .expect("a file")
    }

    /// Hands a chunk over. What becomes of it is told to the receiver.
    fn write(&self, file: &Arc<TargetFile>, index: u64, content: &[u8]) -> Receiver<Result<(), DiskError>> {
        let (tell, told) = channel();
        let mut slot = self.slab.claim().expect("the slab is open");
        let start = index as usize * CHUNK;
        let part = &content[start..content.len().min(start + CHUNK)];
        slot[..part.len()].copy_from_slice(part);
        let size = ChunkSize::from_bytes(CHUNK as u64).expect("a power of two");
        let place = Layout::WHOLE.place_of(ChunkMap::new(content.len() as u64, size), ChunkIndex(index));
        let done = move |slot: Option<Slot>, result| {
            drop(slot);
            let _ = tell.send(result);
        };
        self.io.write(file.clone(), place, part.len(), slot, Box::new(done));
        told
    }

    /// Reads everything, beside the writes.
    fn reading(&mut self) -> std::thread::JoinHandle<Vec<u8>> {
        let mut out = self.out.take().expect("it is read once");
        std::thread::spawn(move || {
            let mut all = Vec::new();
            out.read_to_end(&mut all).expect("a pipe");
            all
        })
    }

    /// Gives the last hands up that keep the pipe open.
    fn close(self) -> StreamFigures {
        self.output.figures()
    }
}

#[test]
fn chunks_of_one_file_leave_in_order_and_in_blocks_whatever_came_first() {
    let mut rig = Rig::new(StreamShape { block_bytes: BLOCK, ..StreamShape::default() }, 8);
    let reading = rig.reading();
    let content = bytes(1, 4 * CHUNK + 100);
    let file = rig.create("f", content.len());
    let told: Vec<_> = [3, 1, 4, 0, 2].map(|index| rig.write(&file, index, &content)).into_iter().collect();
    assert!(told.iter().all(|told| matches!(told.recv(), Ok(Ok(())))));
    let staged = rig.target.seal(file, &Meta::default(), Preserve::default()).expect("it is whole");
    rig.target.publish(&staged, Replace::Never).expect("it is out");
    drop(staged);
    let figures = rig.close();
    assert_eq!(figures.blocks, content.len().div_ceil(BLOCK) as u64);
    assert_eq!(figures.bytes, content.len() as u64);
    assert!(reading.join().expect("it reads") == content);
}

#[test]
fn an_early_chunk_keeps_its_buffer_until_its_turn() {
    let mut rig = Rig::new(StreamShape::default(), 2);
    let reading = rig.reading();
    let content = bytes(2, 2 * CHUNK);
    let file = rig.create("f", content.len());
    let early = rig.write(&file, 1, &content);
    assert!(early.try_recv().is_err(), "chunk 0 is not here");
    let first = rig.write(&file, 0, &content);
    assert!(matches!((first.recv(), early.recv()), (Ok(Ok(())), Ok(Ok(())))));
    drop(file);
    rig.target.finish().expect("it ends");
    rig.close();
    assert!(reading.join().expect("it reads") == content);
}

#[test]
fn an_archive_has_every_entry_between_whole_files() {
    let shape = StreamShape { form: StreamForm::Tar, last: LastBlock::Padded, ..StreamShape::default() };
    let mut rig = Rig::new(shape, 8);
    let reading = rig.reading();
    let (a, b) = (bytes(3, CHUNK + 9), bytes(4, 70));
    let (first, second) = (rig.create("d/a\nb", a.len()), rig.create("d/b", b.len()));
    let told = [rig.write(&second, 0, &b), rig.write(&first, 1, &a), rig.write(&first, 0, &a)];
    let meta = Meta::new(0o750, Mtime { secs: 5, nanos: 0 });
    let link = rig.target.make_link(&path("d/l"), b"b", &meta, Preserve::default()).expect("an archive has links");
    rig.target.publish(&link, Replace::Never).expect("it is out");
    let empty = rig.target.write_small(&path("d/e"), b"", &meta, Preserve::default()).expect("a file");
    rig.target.publish(&empty, Replace::Never).expect("it is out");
    assert!(told.iter().all(|told| matches!(told.recv(), Ok(Ok(())))));
    rig.target.finish_dir(&path("d"), &meta, Preserve::default()).expect("it is out");
    rig.target.finish().expect("it ends");
    drop((first, second));
    let figures = rig.close();
    let all = reading.join().expect("it reads");
    assert_eq!((figures.bytes, all.len() % (1 << 20)), (all.len() as u64, 0), "the last block is padded");
    let mut archive = ::tar::Archive::new(&all[..]);
    let mut found: Vec<(String, u64, Vec<u8>)> = Vec::new();
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("a good entry");
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mtime = entry.header().mtime().expect("a time");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("its bytes");
        found.push((name, mtime, content));
    }
    found.sort();
    let want = [("d/", 5, vec![]), ("d/a\nb", 77, a), ("d/b", 77, b), ("d/e", 5, vec![]), ("d/l", 5, vec![])];
    assert_eq!(found, want.map(|(name, mtime, content)| (name.to_owned(), mtime, content)));
}

#[test]
fn a_reader_that_goes_away_fails_every_chunk_and_the_end() {
    let mut rig = Rig::new(StreamShape { block_bytes: CHUNK, ..StreamShape::default() }, 8);
    drop(rig.out.take());
    let content = bytes(5, 3 * CHUNK);
    let file = rig.create("f", content.len());
    let told = [2, 1, 0].map(|index| rig.write(&file, index, &content));
    for told in told {
        let error = told.recv().expect("it is told").expect_err("nobody reads");
        let DiskError::Call { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.kind(), io::ErrorKind::BrokenPipe);
    }
    assert!(rig.target.finish().is_err(), "nothing false is claimed");
}

#[test]
fn a_session_that_ends_gives_back_what_waits_and_another_may_begin_if_nothing_left() {
    let mut rig = Rig::new(StreamShape::default(), 8);
    let reading = rig.reading();
    let content = bytes(6, 2 * CHUNK);
    let file = rig.create("f", content.len());
    let early = rig.write(&file, 1, &content);
    rig.output.give_up();
    assert!(matches!(early.recv(), Ok(Err(_))));
    drop(file);
    assert!(!rig.output.is_begun());
    rig.target = StreamTarget::new(rig.output.clone());
    let file = rig.create("f", content.len());
    let first = rig.write(&file, 0, &content);
    assert!(matches!(first.recv(), Ok(Ok(()))));
    assert!(rig.output.is_begun());
    rig.output.give_up();
    let late = rig.write(&file, 1, &content);
    assert!(matches!(late.recv(), Ok(Err(_))), "what went before cannot be gone on with");
    assert!(rig.target.finish().is_err());
    drop(file);
    rig.close();
    assert!(reading.join().expect("it reads").is_empty(), "a block that is not whole never leaves");
}

#[test]
fn buffers_fill_before_the_first_block_and_again_after_an_under_run() {
    let mut rig = Rig::new(StreamShape { prefill: Prefill::Percent(50), ..StreamShape::default() }, 4);
    let reading = rig.reading();
    let content = bytes(7, 5 * CHUNK);
    let file = rig.create("f", content.len());
    rig.output.expect_chunks(4);
    let first = rig.write(&file, 0, &content);
    assert!(first.try_recv().is_err() && !rig.output.is_begun(), "half of four buffers is two");
    let second = rig.write(&file, 1, &content);
    assert!(matches!((first.recv(), second.recv()), (Ok(Ok(())), Ok(Ok(())))));
    assert_eq!(rig.output.figures().under_runs, 0);
    let third = rig.write(&file, 2, &content);
    let fourth = rig.write(&file, 3, &content);
    assert!(matches!((third.recv(), fourth.recv()), (Ok(Ok(())), Ok(Ok(())))));
    rig.output.expect_chunks(1);
    let last = rig.write(&file, 4, &content);
    assert!(matches!(last.recv(), Ok(Ok(()))), "nothing more comes: it leaves though the buffers are not full");
    rig.target.finish().expect("it ends");
    drop(file);
    rig.close();
    assert!(reading.join().expect("it reads") == content);
}

#[test]
fn a_plain_stream_is_one_file_and_nothing_else() {
    let rig = Rig::new(StreamShape::default(), 2);
    let meta = Meta::default();
    assert!(rig.target.make_dir(&path("d")).is_err());
    assert!(rig.target.make_link(&path("l"), b"x", &meta, Preserve::default()).is_err());
    assert!(rig.target.write_small(&path("e"), b"", &meta, Preserve::default()).is_ok());
    assert!(rig.target.write_small(&path("f"), b"", &meta, Preserve::default()).is_err());
}

#[test]
fn a_prefill_is_never_more_than_the_buffers_hold() {
    for (prefill, chunks) in [
        (Prefill::Bytes(1), 1),
        (Prefill::Bytes(3 << 20), 3),
        (Prefill::Bytes(1 << 40), 8),
        (Prefill::Percent(1), 1),
        (Prefill::Percent(50), 4),
        (Prefill::Percent(100), 8),
    ] {
        let shape = StreamShape { prefill, ..StreamShape::default() };
        assert_eq!(shape.prefill.chunks(8, 1 << 20), chunks, "{prefill:?}");
    }
}
