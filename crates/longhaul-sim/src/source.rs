//! The source: a tree whose files become other versions while they are sent, and all of their
//! versions.
//!
//! Gives manifest entries and content to the sending side, and to the checks the versions that may
//! rightly stand at the destination.

use std::collections::BTreeMap;

use longhaul_core::{Entry, EntryKind, Inode, Meta, Mtime, RelPath, SourceStamp};

use crate::plan::{CHUNK, Item, Plan};
use crate::rng::Rng;

/// One version of a file.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stamp: SourceStamp,
    /// Whether a manifest named it.
    pub(crate) offered: bool,
}

/// The tree.
#[derive(Clone, Debug)]
pub(crate) struct SourceTree {
    items: Vec<Item>,
    files: BTreeMap<String, Vec<Version>>,
    ticks: i64,
}

impl SourceTree {
    pub(crate) fn new(plan: &Plan) -> SourceTree {
        let mut tree = SourceTree { items: plan.items.clone(), files: BTreeMap::new(), ticks: 0 };
        for (at, item) in plan.items.iter().enumerate() {
            if let Item::File { path, bytes, .. } = item {
                let time = tree.tick();
                let stamp =
                    SourceStamp { len: bytes.len() as u64, mtime: time, ctime: time, dev: 7, ino: 100 + at as u64 };
                tree.files.insert(path.clone(), vec![Version { bytes: bytes.clone(), stamp, offered: false }]);
            }
        }
        tree
    }

    /// A time that no version had before.
    fn tick(&mut self) -> Mtime {
        self.ticks += 1;
        Mtime { secs: 1_700_000_000 + self.ticks, nanos: 5 }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The entry that a scan finds at place `at`, with its name and, for a file, its version.
    pub(crate) fn scan(&mut self, at: usize) -> (Entry, String, usize) {
        let (path, kind, version) = match &self.items[at] {
            Item::Dir(path) => (path.clone(), EntryKind::Dir, 0),
            Item::DirEnd(path) => (path.clone(), EntryKind::DirEnd, 0),
            Item::Link { path, target } => (path.clone(), EntryKind::Symlink { target: target.clone() }, 0),
            Item::File { path, sparse, .. } => {
                let stamp = self.current(path).1.stamp;
                let inode = Inode { dev: stamp.dev, ino: stamp.ino, ctime: stamp.ctime };
                (path.clone(), EntryKind::File { len: stamp.len, sparse: *sparse, inode }, self.current(path).0)
            }
        };
        let mut mtime = Mtime { secs: 1_600_000_000, nanos: 0 };
        if let Some(version) = self.files.get_mut(&path).and_then(|versions| versions.get_mut(version)) {
            version.offered = true;
            mtime = version.stamp.mtime;
        }
        let entry =
            Entry { path: RelPath::new(path.as_str()).expect("a path"), kind, meta: Meta { mode: 0o644, mtime } };
        (entry, path, version)
    }

    /// The latest version, and its number.
    pub(crate) fn current(&self, path: &str) -> (usize, &Version) {
        let versions = &self.files[path];
        (versions.len() - 1, &versions[versions.len() - 1])
    }

    pub(crate) fn version(&self, path: &str, number: usize) -> &Version {
        &self.files[path][number]
    }

    /// All versions of a file. Empty for any other name.
    pub(crate) fn versions(&self, path: &str) -> &[Version] {
        self.files.get(path).map_or(&[], Vec::as_slice)
    }

    /// The target of the link with that name.
    pub(crate) fn link(&self, path: &str) -> Option<&[u8]> {
        self.items.iter().find_map(|item| match item {
            Item::Link { path: of, target } if of == path => Some(target.as_slice()),
            _ => None,
        })
    }

    /// All names but directories.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = &str> {
        self.items.iter().filter_map(|item| match item {
            Item::File { path, .. } | Item::Link { path, .. } => Some(path.as_str()),
            _ => None,
        })
    }

    /// Makes another version of a file: its content, its length, or only its times. Gives its
    /// number.
    pub(crate) fn change(&mut self, rng: &mut Rng) -> String {
        let paths: Vec<String> = self.files.keys().cloned().collect();
        let path = rng.pick(&paths).clone();
        let time = self.tick();
        let mut version = Version { offered: false, ..self.current(&path).1.clone() };
        version.stamp.ctime = time;
        let how = rng.below(8);
        match how {
            // Only fields that no user can set back tell the versions apart.
            0 => {}
            1 => version.stamp.mtime = time,
            // An older version is put back, under a new time.
            3..=5 if self.files[&path].len() > 1 => {
                version.bytes = rng.pick(&self.files[&path]).bytes.clone();
                version.stamp.mtime = time;
            }
            2 => {
                let len = rng.index(4 * CHUNK);
                version.bytes = rng.bytes(len);
                version.stamp.mtime = time;
            }
            _ => {
                let some = rng.below(1001) as u32;
                for chunk in version.bytes.chunks_mut(CHUNK) {
                    if rng.permille(some) {
                        chunk.copy_from_slice(&rng.bytes(chunk.len()));
                    }
                }
                // In some cases the time is set back afterwards.
                if how < 7 {
                    version.stamp.mtime = time;
                }
            }
        }
        version.stamp.len = version.bytes.len() as u64;
        self.files.entry(path.clone()).or_default().push(version);
        format!("{path} becomes another version ({how})")
    }
}
