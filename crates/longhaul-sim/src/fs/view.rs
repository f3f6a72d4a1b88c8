//! One state of a file system: names and contents, and the changes that lead from one to the next.
//!
//! Pure data; the owner knows which changes are volatile and which are durable.

use std::collections::BTreeMap;

use longhaul_core::Mtime;

/// The number of a file, whatever its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ino(pub(super) u64);

/// The file, directory or link that a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Dir,
    File(Ino),
    Link(Vec<u8>),
    /// A fifo, socket or device.
    Special,
}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    pub(crate) time: Mtime,
}

/// Names and contents. The root has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) names: BTreeMap<String, Node>,
    files: BTreeMap<Ino, Content>,
}

/// One change.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Set { path: String, node: Node },
    Remove { path: String },
    Rename { from: String, to: String, node: Node },
    Write { ino: Ino, offset: usize, bytes: Vec<u8> },
    Len { ino: Ino, len: usize },
    Time { ino: Ino, time: Mtime },
}

impl Change {
    /// The file whose content it changes.
    pub(super) fn ino(&self) -> Option<Ino> {
        match self {
            Change::Write { ino, .. } | Change::Len { ino, .. } | Change::Time { ino, .. } => Some(*ino),
            _ => None,
        }
    }

    /// The directory in which it changes a name.
    pub(super) fn dir(&self) -> Option<&str> {
        match self {
            Change::Set { path, .. } | Change::Remove { path } | Change::Rename { to: path, .. } => Some(parent(path)),
            _ => None,
        }
    }

    /// A write as the parts that a medium takes at once, each of which is there or not.
    pub(super) fn sectors(&self) -> Vec<Change> {
        let Change::Write { ino, offset, bytes } = self else { return vec![self.clone()] };
        let mut parts = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + SECTOR - (offset + at) % SECTOR);
            parts.push(Change::Write { ino: *ino, offset: offset + at, bytes: bytes[at..end].to_vec() });
            at = end;
        }
        parts
    }
}

impl View {
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Set { path, node } => drop(self.names.insert(path.clone(), node.clone())),
            Change::Remove { path } => drop(self.names.remove(path)),
            Change::Rename { from, to, node } => {
                self.names.remove(from);
                self.names.insert(to.clone(), node.clone());
            }
            Change::Write { ino, offset, bytes } => {
                let file = &mut self.files.entry(*ino).or_default().bytes;
                if file.len() < offset + bytes.len() {
                    file.resize(offset + bytes.len(), 0);
                }
                file[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Change::Len { ino, len } => self.files.entry(*ino).or_default().bytes.resize(*len, 0),
            Change::Time { ino, time } => self.files.entry(*ino).or_default().time = *time,
        }
    }

    /// The content of a file; a new one is empty.
    pub(crate) fn content(&self, ino: Ino) -> &Content {
        static EMPTY: Content = Content { bytes: Vec::new(), time: Mtime { secs: 0, nanos: 0 } };
        self.files.get(&ino).unwrap_or(&EMPTY)
    }

    /// The file of that name.
    pub(crate) fn file(&self, path: &str) -> Option<Ino> {
        match self.names.get(path) {
            Some(Node::File(ino)) => Some(*ino),
            _ => None,
        }
    }

    /// Takes away names that are in no directory.
    pub(super) fn prune(&mut self) {
        let lost: Vec<_> = self.names.keys().filter(|path| !ancestors_stand(&self.names, path)).cloned().collect();
        lost.iter().for_each(|path| drop(self.names.remove(path)));
    }
}

/// The directory of a name.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// Whether every directory above the name is one.
pub(super) fn ancestors_stand(names: &BTreeMap<String, Node>, path: &str) -> bool {
    let mut dir = parent(path);
    while !dir.is_empty() {
        if names.get(dir) != Some(&Node::Dir) {
            return false;
        }
        dir = parent(dir);
    }
    true
}

/// Bytes that a medium writes at once.
const SECTOR: usize = 512;
