//! Files of a real directory, read by several readers at a time.

use std::fs;
use std::path::Path;
use std::thread;

use longhaul_core::filter::Filter;
use longhaul_core::{Entry, EntryKind, Preserve};

use super::*;
use crate::direct::DirectMode;
use crate::source::{FsSource, ScanRequest, Scanned, SourceRef, SourceSpec};
use crate::stat::Identity;

const BLOCK: usize = 64 << 10;

fn reading(readers: usize, blocks: usize) -> SharedReading {
    let (depth, engine, affinity) = (Depth::Fixed(4), EngineKind::Threads, Affinity::default());
    SharedReading::start(ReadingMeans { block_bytes: BLOCK, blocks, depth, engine, affinity }, readers).unwrap()
}

fn noise(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31 + seed * 7) ^ (at >> 8)) as u8).collect()
}

/// The regular files that a scan of the tree finds.
fn found(tree: &dyn SourceTree) -> Vec<(Entry, SourceRef, Identity)> {
    let filter = Filter::default();
    let what = ScanRequest::of_all(&filter, Preserve::default());
    let mut files = Vec::new();
    tree.scan(&what, &mut |scanned| {
        if let Scanned::Entry { entry, source, identity } = scanned
            && matches!(entry.kind, EntryKind::File { .. })
        {
            files.push((entry, source, identity));
        }
        std::ops::ControlFlow::Continue(())
    });
    files
}

fn tree(dir: &Path) -> Arc<dyn SourceTree> {
    let spec = SourceSpec { path: dir.to_owned(), contents: true };
    Arc::new(FsSource::open(vec![spec], DirectMode::Buffered))
}

/// Reads every file of the tree in pieces of `chunk` bytes, small ones whole, and compares it.
fn read_all(tree: &dyn SourceTree, dir: &Path, chunk: usize) {
    for (entry, at, identity) in found(tree) {
        let want = fs::read(dir.join(entry.path.escaped().to_string())).unwrap();
        let mut got = vec![0; want.len()];
        if want.len() <= 4096 {
            tree.open_small(&at, &identity).unwrap().read(&mut got).unwrap();
        } else {
            let file = tree.open(&at, &identity).unwrap();
            let given = file.given().unwrap();
            for (number, piece) in got.chunks_mut(chunk).enumerate() {
                assert_eq!(given.fill(piece, (number * chunk) as u64).unwrap(), piece.len());
            }
            assert!(file.unchanged().unwrap());
        }
        assert!(got == want, "{}", entry.path.escaped());
    }
}

#[test]
fn large_and_small_files_are_read_once_for_readers_of_any_chunk_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = 0;
    for number in 0..200 {
        let len = [0, 1, 100, 4096, 5000, BLOCK / 4, BLOCK, 5 * BLOCK + 17][number % 8];
        fs::write(dir.path().join(format!("f{number}")), noise(number, len)).unwrap();
        bytes += len as u64;
    }
    let reading = reading(3, SharedReading::blocks_min(3) + 8);
    thread::scope(|scope| {
        for (number, chunk) in [BLOCK, BLOCK / 4, 4 * BLOCK].into_iter().enumerate() {
            let (reader, dir) = (reading.reader(number), dir.path());
            scope.spawn(move || read_all(&*reader.over(tree(dir)), dir, chunk));
        }
    });
    let figures = reading.figures();
    assert_eq!(figures.bytes_taken, 3 * bytes);
    // A thread that was not run for a moment may read a block again, and no more.
    assert!(figures.bytes_read >= bytes && figures.bytes_read <= bytes + bytes / 10, "{figures:?} of {bytes}");
}

#[test]
fn a_reader_that_is_gone_holds_nobody() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), noise(1, 64 * BLOCK)).unwrap();
    let reading = reading(2, SharedReading::blocks_min(2));
    drop(reading.reader(1));
    let began = Instant::now();
    read_all(&*reading.reader(0).over(tree(dir.path())), dir.path(), BLOCK);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn a_file_that_changed_fails_for_each_reader_as_without_sharing() {
    let dir = tempfile::tempdir().unwrap();
    let (large, small) = (dir.path().join("large"), dir.path().join("small"));
    fs::write(&large, noise(1, 3 * BLOCK)).unwrap();
    fs::write(&small, noise(2, 100)).unwrap();
    let reading = reading(2, SharedReading::blocks_min(2));
    let trees = [reading.reader(0).over(tree(dir.path())), reading.reader(1).over(tree(dir.path()))];
    let files = found(&*trees[0]);
    let opened: Vec<_> = trees
        .iter()
        .flat_map(|tree| {
            files.iter().filter(|(_, _, identity)| identity.len > 100).map(|(_, at, is)| tree.open(at, is).unwrap())
        })
        .collect();
    fs::write(&large, noise(3, BLOCK)).unwrap();
    fs::write(&small, noise(4, 99)).unwrap();
    for file in &opened {
        let mut got = vec![0; BLOCK];
        assert_eq!(file.given().unwrap().fill(&mut got, 2 * BLOCK as u64).unwrap(), 0, "it ends earlier");
        assert!(!file.unchanged().unwrap());
    }
    for tree in &trees {
        for (_, at, identity) in files.iter().filter(|(_, _, identity)| identity.len == 100) {
            let read = tree.open_small(at, identity).and_then(|file| file.read(&mut [0; 100]));
            assert!(matches!(read, Err(DiskError::Changed { .. })), "{read:?}");
        }
    }
}

#[test]
fn a_file_that_one_reader_takes_whole_and_another_in_pieces_is_the_same_for_both() {
    let dir = tempfile::tempdir().unwrap();
    for (name, len) in [("quarter", BLOCK / 4), ("odd", BLOCK / 5 + 3)] {
        fs::write(dir.path().join(name), noise(len, len)).unwrap();
    }
    let (whole, pieces) = (BLOCK, BLOCK / 16);
    for chunks in [[pieces, whole], [whole, pieces]] {
        let reading = reading(2, SharedReading::blocks_min(2));
        for (number, chunk) in chunks.into_iter().enumerate() {
            // The second one takes what the first one has read, and which is owed to it.
            read_all(&*reading.reader(number).over(tree(dir.path())), dir.path(), chunk);
        }
    }
}

#[test]
fn what_an_ended_session_asked_for_waits_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), noise(1, 64 * BLOCK)).unwrap();
    let reading = reading(2, SharedReading::blocks_min(2));
    // The second one is owed all, and takes nothing.
    let (tree_here, _other) = (reading.reader(0).over(tree(dir.path())), reading.reader(1));
    let files = found(&*tree_here);
    let file = tree_here.open(&files[0].1, &files[0].2).unwrap();
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..64 {
                let mut got = vec![0; BLOCK];
                assert_eq!(file.given().unwrap().fill(&mut got, (number * BLOCK) as u64).unwrap(), BLOCK);
            }
        });
        while reading.figures().bytes_read < 2 * BLOCK as u64 {
            thread::yield_now();
        }
        tree_here.session_ended();
    });
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    // The block that had been read, and was not taken yet, is read again.
    let blocks = reading.figures().bytes_read / BLOCK as u64;
    assert!((64..=65).contains(&blocks), "{blocks}");
}

#[test]
fn a_block_whose_reader_panics_is_read_by_the_next_one() {
    let reading = reading(2, SharedReading::blocks_min(2));
    let seats = [reading.reader(0).seat, reading.reader(1).seat];
    let never = longhaul_core::Mtime { secs: 0, nanos: 0 };
    let file = Identity { dev: 1, ino: 1, len: 3, mtime: never, ctime: never };
    let key = AskedKey { block: BlockKey { file, number: 0 }, session: 0 };
    let broken = thread::scope(|scope| {
        let read = || seats[0].fill_small(key, &mut [0; 3], |_| panic!("a bug"));
        scope.spawn(read).join()
    });
    assert!(broken.is_err());
    let mut got = [0; 3];
    let read = |into: &mut [u8]| {
        into.copy_from_slice(b"abc");
        Ok(())
    };
    seats[1].fill_small(key, &mut got, read).unwrap();
    assert_eq!(&got, b"abc");
}
