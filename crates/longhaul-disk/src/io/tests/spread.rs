//! Tests of a file with several bodies: chunks go where their places say, through both engines, and
//! come back from there.

use longhaul_core::{RelPath, TargetId};

use super::*;
use crate::{Body, TargetFile, Zeros};

/// Chunks of the file, the last of which is shorter.
const CHUNKS: u64 = 7;
const LEN: u64 = (CHUNKS - 1) * CHUNK as u64 + 7;
/// The lengths of the two bodies: the chunks of even and of odd numbers.
const BODIES: [u64; 2] = [3 * CHUNK as u64 + 7, 3 * CHUNK as u64];

/// Two directories, on two devices where that is allowed here, and a destination in each.
struct Pair {
    dirs: [std::path::PathBuf; 2],
    targets: [FsTarget; 2],
    _held: (tempfile::TempDir, Option<Mounted>),
}

impl Pair {
    fn new() -> Pair {
        let dir = tempfile::tempdir().expect("tempdir");
        let other = Mounted::new(&["-t", "tmpfs", "-o", "size=32m", "tmpfs"]);
        let second = other.as_ref().map_or_else(|| dir.path().join("second"), |mounted| mounted.path.clone());
        let dirs = [dir.path().join("first"), second];
        let targets = dirs.each_ref().map(|dir| FsTarget::open(dir, DirectMode::Auto).expect("target"));
        Pair { dirs, targets, _held: (dir, other) }
    }

    fn file(&self, at: &RelPath) -> Arc<TargetFile> {
        let body = |n: usize| self.targets[n].create_body(at, BODIES[n], Zeros::Written, &temp()).expect("a body");
        Arc::new(TargetFile::new(at, LEN, vec![body(0), body(1)]))
    }

    fn devices(&self) -> usize {
        let [first, second] = self.dirs.each_ref().map(|dir| std::fs::metadata(dir).expect("stat").dev());
        if first == second { 1 } else { 2 }
    }
}

/// Chunks in turn on both targets, one behind the other on each.
fn place(chunk: u64) -> Place {
    Place { target: TargetId((chunk % 2) as u32), offset: chunk / 2 * CHUNK as u64 }
}

fn chunk_of(bytes: &[u8], chunk: u64) -> &[u8] {
    let start = chunk as usize * CHUNK;
    &bytes[start..bytes.len().min(start + CHUNK)]
}

fn write_at(io: &ChunkIo, slab: &Arc<Slab>, file: &Arc<TargetFile>, at: Place, bytes: &[u8]) -> Result<(), DiskError> {
    let (tx, rx) = mpsc::channel();
    let mut slot = slab.claim().expect("slot");
    slot[..bytes.len()].copy_from_slice(bytes);
    let done = move |slot, result| tx.send((slot, result)).expect("the test waits");
    io.write(Arc::clone(file), at, bytes.len(), slot, Box::new(done));
    rx.recv().expect("completion").1
}

#[test]
fn a_file_over_two_directories_is_written_synced_read_back_and_published_by_place() {
    for kind in engines() {
        let (pair, (io, slab), at) = (Pair::new(), start(kind, 4), path("f"));
        let (file, bytes) = (pair.file(&at), content(LEN));
        for chunk in (0..CHUNKS).rev() {
            write_at(&io, &slab, &file, place(chunk), chunk_of(&bytes, chunk)).expect("write");
        }
        assert_eq!(io.report().devices, pair.devices(), "{kind:?}: each body has the queue of its device");
        let target = &pair.targets[0];
        target.sync_data(&file).expect("sync");
        assert_eq!(target.sync_counts().fdatasync, 2, "the sync covers both bodies");
        let mut slot = slab.claim().expect("slot");
        for chunk in 0..CHUNKS {
            let wanted = chunk_of(&bytes, chunk);
            let back = target.read_back(&file, place(chunk), wanted.len(), &mut slot).expect("read back");
            assert!(back.len == wanted.len() && slot[..back.len] == *wanted, "{kind:?} chunk {chunk}");
        }
        let staged = target.seal(file, &META, Preserve::default()).expect("seal");
        target.barrier(&[&staged]).expect("barrier");
        target.publish(&staged, Replace::Never).expect("publish");
        target.sync_dirs(&[staged]).expect("names");
        for (n, dir) in pair.dirs.iter().enumerate() {
            let own = (0..CHUNKS).filter(|chunk| place(*chunk).target == TargetId(n as u32));
            let wanted: Vec<u8> = own.flat_map(|chunk| chunk_of(&bytes, chunk).to_vec()).collect();
            assert!(std::fs::read(dir.join("f")).expect("content") == wanted, "{kind:?} body {n}");
        }
    }
}

#[test]
fn a_place_that_a_file_does_not_have_is_refused() {
    let (pair, (io, slab), at) = (Pair::new(), start(EngineKind::Threads, 1), path("f"));
    let file = pair.file(&at);
    for place in [
        Place { target: TargetId(2), offset: 0 },
        Place { target: TargetId(1), offset: BODIES[1] - 1 },
        Place { target: TargetId(0), offset: u64::MAX },
    ] {
        let refused = write_at(&io, &slab, &file, place, b"xy").expect_err("no such place");
        assert!(matches!(refused, DiskError::Bounds { .. }), "{place:?}");
    }
    assert!(pair.targets[0].make_hole(&file, Place { target: TargetId(2), offset: 0 }, 1).is_err());
    assert_eq!(io.report().devices, 0, "no queue was asked");
}

#[test]
fn the_name_by_which_a_file_is_known_stands_only_where_all_its_bodies_do() {
    let pair = Pair::new();
    let file = pair.file(&path("f"));
    std::fs::create_dir(pair.dirs[1].join("f")).expect("in the way of the second body");
    let staged = pair.targets[0].seal(file, &META, Preserve::default()).expect("seal");
    pair.targets[0].publish(&staged, Replace::Allowed).expect_err("the second body has no name");
    assert!(!pair.dirs[0].join("f").exists());
    staged.discard();
    for dir in &pair.dirs {
        let left =
            std::fs::read_dir(dir).expect("listed").filter(|entry| entry.as_ref().is_ok_and(|e| e.path().is_file()));
        assert_eq!(left.count(), 0, "no temporary is left of any body");
    }
}

#[test]
fn a_file_without_bodies_takes_all_bytes_anywhere() {
    let (io, slab) = start(EngineKind::Threads, 1);
    let file = Arc::new(TargetFile::new(&path("f"), LEN, Vec::<Body>::new()));
    write_at(&io, &slab, &file, Place { target: TargetId(3), offset: 5 }, b"x").expect("taken");
}
