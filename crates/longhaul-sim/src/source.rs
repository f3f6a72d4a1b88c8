//! The source: a tree whose files become other versions while they are sent, and all of their
//! versions.
//!
//! Gives manifest entries and content to the sending side, and to the checks the versions that may
//! rightly stand at the destination.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::{Entry, EntryKind, Inode, Meta, Mtime, RelPath, SeveralNames, SourceStamp};

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
    /// The path of each item at the destination.
    places: Vec<String>,
    /// The numbers of the items that are further names of a file, by their paths at the
    /// destination.
    further_names: BTreeMap<String, Vec<usize>>,
    /// The versions of each file, by its path at the destination and its number among the items.
    files: BTreeMap<(String, usize), Vec<Version>>,
    /// The first name that a scan found of each file with several, and in which version.
    first_names: BTreeMap<usize, (usize, usize)>,
    ticks: i64,
}

impl SourceTree {
    pub(crate) fn new(plan: &Plan) -> SourceTree {
        let mut landing = plan.terms.landing.clone();
        let mut place = |item: &Item| {
            let path = rel_path(item.path());
            String::from_utf8_lossy(landing.place(&path).unwrap_or(path).as_bytes()).into_owned()
        };
        let places: Vec<String> = plan.items.iter().map(&mut place).collect();
        let mut further_names: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, place) in places.iter().enumerate() {
            if let Item::Name { .. } = plan.items[at] {
                further_names.entry(place.clone()).or_default().push(at);
            }
        }
        let mut tree = SourceTree {
            items: plan.items.clone(),
            places,
            further_names,
            files: BTreeMap::new(),
            first_names: BTreeMap::new(),
            ticks: 0,
        };
        for (at, item) in plan.items.iter().enumerate() {
            if let Item::File { bytes, .. } = item {
                let time = tree.tick();
                let stamp = SourceStamp {
                    len: bytes.len() as u64,
                    mtime: time,
                    ctime: time,
                    dev: 7 + at as u64 % 3,
                    ino: 100 + at as u64,
                };
                let version = Version { bytes: bytes.clone(), stamp, offered: false };
                tree.files.insert((tree.places[at].clone(), at), vec![version]);
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

    /// The entry that a scan finds at place `at`, with its path at the destination and, for a file,
    /// its version.
    pub(crate) fn scan(&mut self, at: usize) -> (Entry, String, usize) {
        let (kind, version) = match &self.items[at] {
            Item::Dir(_) => (EntryKind::Dir, 0),
            Item::DirEnd(_) => (EntryKind::DirEnd, 0),
            Item::Link { target, .. } => (EntryKind::Symlink { target: target.clone() }, 0),
            Item::Unsent { failure, .. } => (EntryKind::Unsent { failure: *failure, why: "odd".into() }, 0),
            Item::File { .. } | Item::Name { .. } => {
                let sparse = matches!(&self.items[self.file_of(at)], Item::File { sparse: true, .. });
                let (number, Version { stamp, .. }) = self.current(at);
                let inode = Inode { dev: stamp.dev, ino: stamp.ino, ctime: stamp.ctime };
                (EntryKind::File { len: stamp.len, sparse, inode }, number)
            }
        };
        let place = self.places[at].clone();
        let mut mtime = Mtime { secs: 1_600_000_000, nanos: 0 };
        let versions = self.files.get_mut(&self.key(at));
        if let Some(version) = versions.and_then(|versions| versions.get_mut(version)) {
            version.offered = true;
            mtime = version.stamp.mtime;
        }
        let names = self.names(at, version);
        let meta = Meta { names, ..Meta::new(0o644, mtime) };
        let entry = Entry { path: rel_path(self.items[at].path()), kind, meta };
        (entry, place, version)
    }

    /// The place of the file whose name is at place `at`.
    fn file_of(&self, at: usize) -> usize {
        if let Item::Name { of, .. } = &self.items[at] { *of } else { at }
    }

    /// The file whose name is at place `at`, as its versions are found.
    fn key(&self, at: usize) -> (String, usize) {
        let of = self.file_of(at);
        (self.places[of].clone(), of)
    }

    /// The names of a file of that version, as a scan knows them. Of another version than it found
    /// first, it takes the next name for the first.
    fn names(&mut self, at: usize, version: usize) -> Option<Arc<SeveralNames>> {
        let of = self.file_of(at);
        let count =
            1 + self.items.iter().filter(|item| matches!(item, Item::Name { of: file, .. } if *file == of)).count();
        let (first, known) = self.first_names.get(&of).copied().unwrap_or((at, version));
        let first = if of == at || known != version { at } else { first };
        self.first_names.insert(of, (first, version));
        let path = (first != at).then(|| rel_path(self.items[first].path()));
        (count > 1).then(|| Arc::new(SeveralNames { first: path, count: count as u32 }))
    }

    /// The path at the destination of the item at place `at`.
    pub(crate) fn place(&self, at: usize) -> &str {
        &self.places[at]
    }

    /// The latest version of the file at place `at`, and its number.
    pub(crate) fn current(&self, at: usize) -> (usize, &Version) {
        let versions = &self.files[&self.key(at)];
        (versions.len() - 1, &versions[versions.len() - 1])
    }

    /// A version of the file at place `at`.
    pub(crate) fn version(&self, at: usize, number: usize) -> &Version {
        &self.files[&self.key(at)][number]
    }

    /// All versions of the files with that path at the destination. Empty for any other name.
    pub(crate) fn versions(&self, path: &str) -> Vec<&Version> {
        let names = self.further_names.get(path).into_iter().flatten().map(|at| &self.files[&self.key(*at)]);
        let own = self.files.range((path.to_owned(), 0)..=(path.to_owned(), usize::MAX)).map(|(_, of)| of);
        own.chain(names).flatten().collect()
    }

    /// The target of the link with that name.
    pub(crate) fn link(&self, path: &str) -> Option<&[u8]> {
        self.items.iter().zip(&self.places).find_map(|(item, place)| match item {
            Item::Link { target, .. } if place == path => Some(target.as_slice()),
            _ => None,
        })
    }

    /// All names but directories.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = &str> {
        let is_leaf = |item: &Item| matches!(item, Item::File { .. } | Item::Link { .. } | Item::Name { .. });
        self.items.iter().zip(&self.places).filter(move |(item, _)| is_leaf(item)).map(|(_, place)| place.as_str())
    }

    /// Makes another version of a file: its content, its length, or only its times. Gives its
    /// number.
    pub(crate) fn change(&mut self, rng: &mut Rng) -> String {
        let files: Vec<(String, usize)> = self.files.keys().cloned().collect();
        let file = rng.pick(&files).clone();
        let time = self.tick();
        let mut version = Version { offered: false, ..self.current(file.1).1.clone() };
        version.stamp.ctime = time;
        let how = rng.below(8);
        match how {
            // Only fields that no user can set back tell the versions apart.
            0 => {}
            1 => version.stamp.mtime = time,
            // An older version is put back, under a new time.
            3..=5 if self.files[&file].len() > 1 => {
                version.bytes = rng.pick(&self.files[&file]).bytes.clone();
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
        let path = file.0.clone();
        self.files.entry(file).or_default().push(version);
        format!("{path} becomes another version ({how})")
    }
}

/// A path as entries have it. An empty one is the root's.
pub(crate) fn rel_path(path: &str) -> RelPath {
    if path.is_empty() { RelPath::root() } else { RelPath::new(path).expect("a path") }
}
