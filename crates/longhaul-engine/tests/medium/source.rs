//! Source trees: small, of every kind of file that is sent in its own way, in as many versions as a
//! world needs.
//!
//! In: a seed. Out: a directory to read from, and all versions that were ever offered in it. It
//! knows no destinations.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use longhaul_core::Mtime;

use super::rng::Rng;
use super::view::{system_time, text};

/// A source tree on the disk, and its past.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) dir: PathBuf,
    pub(crate) files: BTreeMap<Vec<u8>, Vec<Version>>,
    pub(crate) links: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) dirs: Vec<Vec<u8>>,
}

/// A file as it was offered. The last version of a file is the one that stands now.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mtime: Mtime,
}

impl Source {
    /// An empty tree.
    pub(crate) fn empty(dir: &Path) -> Source {
        std::fs::create_dir_all(dir).expect("the source is made");
        Source { dir: dir.to_owned(), files: BTreeMap::new(), links: BTreeMap::new(), dirs: Vec::new() }
    }

    /// A tree of files in chunks of this size.
    pub(crate) fn random(dir: &Path, rng: &mut Rng, chunk: usize) -> Source {
        let mut source = Source::empty(dir);
        for dir in ["d", "d/e", "f"].into_iter().take(rng.below(4) as usize) {
            source.add_dir(dir);
        }
        let mut homes = vec![String::new()];
        homes.extend(source.dirs.iter().map(|dir| format!("{}/", text(dir))));
        let small = rng.pick(&[2, 5, 12, 12, 90]);
        for n in 0..small {
            let len = rng.pick(&[0, 1, 100, chunk / 4 - 1, chunk / 4]);
            let bytes = rng.bytes(len);
            source.put(&format!("{}s{n}", rng.pick(&homes)), bytes, rng);
        }
        for n in 0..1 + rng.below(4) {
            let len =
                rng.pick(&[chunk / 4 + 1, chunk, chunk + 1, 2 * chunk, 5 * chunk + 77, 12 * chunk, 20 * chunk - 1]);
            let mut bytes = rng.bytes(len);
            if rng.permille(250) {
                let hole = rng.below(len as u64) as usize;
                bytes[hole / 2..hole].fill(0);
            }
            source.put(&format!("{}l{n}", rng.pick(&homes)), bytes, rng);
        }
        if rng.permille(500) {
            source.add_link("link", b"s0");
        }
        source
    }

    pub(crate) fn add_dir(&mut self, path: &str) {
        std::fs::create_dir_all(self.dir.join(path)).expect("a directory is made");
        self.dirs.push(path.as_bytes().to_vec());
    }

    pub(crate) fn add_link(&mut self, path: &str, target: &[u8]) {
        std::os::unix::fs::symlink(text(target), self.dir.join(path)).expect("a link is made");
        self.links.insert(path.as_bytes().to_vec(), target.to_vec());
    }

    /// Writes a version of a file, with a time of its own.
    pub(crate) fn put(&mut self, path: &str, bytes: Vec<u8>, rng: &mut Rng) {
        let mtime =
            Mtime { secs: 1_600_000_000 + rng.below(100_000_000) as i64, nanos: 1 + rng.below(999_999_999) as u32 };
        self.put_at(path, Version { bytes, mtime });
    }

    /// Writes a version of a file with a given time.
    pub(crate) fn put_at(&mut self, path: &str, version: Version) {
        let at = self.dir.join(path);
        // A new inode for each version, so that an open one is never written to.
        let _ = std::fs::remove_file(&at);
        let file = std::fs::File::create(&at).expect("a file is made");
        file.set_len(version.bytes.len() as u64).expect("its length is set");
        for (index, block) in version.bytes.chunks(BLOCK).enumerate().filter(|(_, b)| b.iter().any(|b| *b != 0)) {
            file.write_all_at(block, (index * BLOCK) as u64).expect("written");
        }
        file.set_modified(system_time(version.mtime)).expect("its time is set");
        self.files.entry(path.as_bytes().to_vec()).or_default().push(version);
    }

    /// Makes another version of one of the files, sometimes one of the same length and time.
    pub(crate) fn change(&mut self, rng: &mut Rng) {
        let paths: Vec<Vec<u8>> = self.files.keys().cloned().collect();
        let path = rng.pick(&paths);
        let last = self.current(&path).clone();
        let at = text(&path).to_owned();
        let len = last.bytes.len();
        match rng.below(3) {
            0 => {
                let bytes = rng.bytes(len);
                self.put_at(&at, Version { bytes, ..last });
            }
            1 if len > 0 => {
                let mut bytes = last.bytes;
                let changed = rng.below(len as u64) as usize;
                bytes[changed..].iter_mut().take(100).for_each(|byte| *byte ^= 0x55);
                self.put(&at, bytes, rng);
            }
            _ => {
                let bytes = rng.bytes(len / 2);
                self.put(&at, bytes, rng);
            }
        }
    }

    /// Makes another version of the longest file, of the same length.
    pub(crate) fn revise(&mut self, rng: &mut Rng) {
        let longest = self.files.iter().max_by_key(|(_, versions)| versions.last().map(|v| v.bytes.len()));
        let Some((path, len)) = longest.map(|(path, versions)| (path.clone(), versions[0].bytes.len())) else { return };
        let bytes = rng.bytes(len);
        self.put(text(&path), bytes, rng);
    }

    /// The version that stands now.
    pub(crate) fn current(&self, path: &[u8]) -> &Version {
        self.files[path].last().expect("every file has a version")
    }

    /// Bytes of the version that stands now. 0 for a link.
    pub(crate) fn len_of(&self, path: &[u8]) -> u64 {
        self.files.get(path).and_then(|versions| versions.last()).map_or(0, |version| version.bytes.len() as u64)
    }

    /// Whether these bytes may be taken for the version that stands now: by size and time.
    pub(crate) fn may_be(&self, path: &[u8], bytes: &[u8]) -> bool {
        let now = self.current(path);
        let like = |version: &&Version| version.mtime == now.mtime && version.bytes.len() == now.bytes.len();
        self.files[path].iter().filter(like).any(|version| version.bytes == bytes)
    }
}

const BLOCK: usize = 4096;
