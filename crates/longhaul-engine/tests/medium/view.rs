//! Holds one state of a file system, names and contents, and the changes that lead from one to the
//! next.
//!
//! In: changes. Out: the content of a path, and the whole state as a directory. It knows neither
//! syncs nor errors.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use longhaul_core::Mtime;

/// A file, directory or link, whatever its names. A number is never used again, unlike those of
/// inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub(crate) u64);

/// The top directory.
pub(crate) const ROOT: NodeId = NodeId(0);

/// The type of a node, with the target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Dir,
    File,
    Link(Vec<u8>),
}

/// The types of all nodes, whether a state has them or not.
pub(crate) type Kinds = HashMap<NodeId, Kind>;

/// The content of a node in one state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) names: BTreeMap<Vec<u8>, NodeId>,
    pub(crate) bytes: Vec<u8>,
    /// The time that was set last. `None` once it was written to since.
    pub(crate) mtime: Option<Mtime>,
}

/// One change.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Name {
        dir: NodeId,
        name: Vec<u8>,
        node: NodeId,
    },
    Unname {
        dir: NodeId,
        name: Vec<u8>,
    },
    Rename {
        dir: NodeId,
        from: Vec<u8>,
        to: Vec<u8>,
        node: NodeId,
    },
    Write {
        node: NodeId,
        offset: u64,
        bytes: Vec<u8>,
    },
    Hole {
        node: NodeId,
        offset: u64,
        len: u64,
    },
    Len {
        node: NodeId,
        len: u64,
    },
    /// A write that never reached the medium made the file at least this long.
    Extend {
        node: NodeId,
        len: u64,
    },
    Time {
        node: NodeId,
        mtime: Mtime,
    },
}

/// Names and contents.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) nodes: HashMap<NodeId, Node>,
}

/// Something that a state shows under a path.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) path: Vec<u8>,
    pub(crate) node: NodeId,
}

impl Change {
    /// The directory in which it changes a name.
    pub(crate) fn dir(&self) -> Option<NodeId> {
        match self {
            Change::Name { dir, .. } | Change::Unname { dir, .. } | Change::Rename { dir, .. } => Some(*dir),
            _ => None,
        }
    }

    /// The node whose content or length it changes.
    pub(crate) fn data_of(&self) -> Option<NodeId> {
        match self {
            Change::Write { node, .. }
            | Change::Hole { node, .. }
            | Change::Len { node, .. }
            | Change::Extend { node, .. } => Some(*node),
            _ => None,
        }
    }

    /// The node whose time it sets.
    pub(crate) fn time_of(&self) -> Option<NodeId> {
        if let Change::Time { node, .. } = self { Some(*node) } else { None }
    }

    /// The node that it gives a name.
    pub(crate) fn names(&self) -> Option<NodeId> {
        match self {
            Change::Name { node, .. } | Change::Rename { node, .. } => Some(*node),
            _ => None,
        }
    }

    /// A write in the parts that a medium writes at once: each part is there or not.
    pub(crate) fn sectors(self) -> Vec<Change> {
        let Change::Write { node, offset, bytes } = self else { return vec![self] };
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let end = bytes.len().min(at + SECTOR - (offset as usize + at) % SECTOR);
            parts.push(Change::Write { node, offset: offset + at as u64, bytes: bytes[at..end].to_vec() });
            at = end;
        }
        parts
    }
}

impl View {
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Name { dir, name, node } => drop(self.node(*dir).names.insert(name.clone(), *node)),
            Change::Unname { dir, name } => drop(self.node(*dir).names.remove(name)),
            Change::Rename { dir, from, to, node } => {
                let names = &mut self.node(*dir).names;
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
            Change::Write { node, offset, bytes } => {
                let (file, start) = (self.node(*node), *offset as usize);
                if file.bytes.len() < start + bytes.len() {
                    file.bytes.resize(start + bytes.len(), 0);
                }
                file.bytes[start..start + bytes.len()].copy_from_slice(bytes);
                file.mtime = None;
            }
            Change::Hole { node, offset, len } => {
                let file = &mut self.node(*node).bytes;
                let (start, end) = (file.len().min(*offset as usize), file.len().min((offset + len) as usize));
                file[start..end].fill(0);
            }
            Change::Len { node, len } => {
                let file = self.node(*node);
                file.bytes.resize(*len as usize, 0);
                file.mtime = None;
            }
            Change::Extend { node, len } => {
                let file = &mut self.node(*node).bytes;
                file.resize(file.len().max(*len as usize), 0);
            }
            Change::Time { node, mtime } => self.node(*node).mtime = Some(*mtime),
        }
    }

    fn node(&mut self, node: NodeId) -> &mut Node {
        self.nodes.entry(node).or_default()
    }

    /// The node under a path.
    pub(crate) fn find(&self, path: &[u8]) -> Option<NodeId> {
        path.split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
            .try_fold(ROOT, |dir, name| self.nodes.get(&dir)?.names.get(name).copied())
    }

    /// The bytes of a file. Empty for one that was only named.
    pub(crate) fn bytes(&self, node: NodeId) -> &[u8] {
        self.nodes.get(&node).map_or(&[], |node| &node.bytes)
    }

    /// Everything that can be found from the top, directories before their content.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        let (mut found, mut next) = (Vec::new(), vec![Shown { path: Vec::new(), node: ROOT }]);
        while let Some(dir) = next.pop() {
            let Some(node) = self.nodes.get(&dir.node) else { continue };
            for (name, child) in &node.names {
                let path = if dir.path.is_empty() { name.clone() } else { [&dir.path, &b"/"[..], name].concat() };
                let shown = Shown { path, node: *child };
                found.push(shown.clone());
                next.push(shown);
            }
        }
        found
    }

    /// Writes it out beneath `into`, which is empty.
    pub(crate) fn write_out(&self, kinds: &Kinds, modes: &HashMap<NodeId, u32>, into: &Path) {
        let shown = self.shown();
        let mut first: HashMap<NodeId, std::path::PathBuf> = HashMap::new();
        for Shown { path, node } in &shown {
            let at = into.join(text(path));
            match &kinds[node] {
                Kind::Dir => fs::create_dir(&at).expect("a directory is made"),
                Kind::Link(target) => std::os::unix::fs::symlink(text(target), &at).expect("a link is made"),
                Kind::File => match first.get(node) {
                    Some(known) => fs::hard_link(known, &at).expect("a second name is given"),
                    None => {
                        write_file(&at, self.nodes.get(node).unwrap_or(&Node::default()));
                        first.insert(*node, at.clone());
                    }
                },
            }
        }
        for Shown { path, node } in shown.iter().rev().filter(|shown| !matches!(kinds[&shown.node], Kind::Link(_))) {
            let made = if kinds[node] == Kind::Dir { 0o700 } else { 0o600 };
            let mode = fs::Permissions::from_mode(modes.get(node).copied().unwrap_or(made));
            fs::set_permissions(into.join(text(path)), mode).expect("a mode is set");
        }
    }
}

/// Writes a file, with holes in place of zeros.
pub(crate) fn write_file(at: &Path, node: &Node) {
    let file = fs::File::options().write(true).create(true).truncate(true).open(at).expect("a file is made");
    file.set_len(node.bytes.len() as u64).expect("its length is set");
    for (index, block) in node.bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|b| *b != 0)) {
        file.write_all_at(block, (index * BLOCK) as u64).expect("it is written");
    }
    if let Some(mtime) = node.mtime {
        file.set_modified(system_time(mtime)).expect("its time is set");
    }
}

pub(crate) fn system_time(mtime: Mtime) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(mtime.secs as u64, mtime.nanos)
}

/// A path of these worlds, which is plain text.
pub(crate) fn text(path: &[u8]) -> &str {
    std::str::from_utf8(path).expect("names in these worlds are text")
}

/// The directory of a path. Empty at the top.
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(&[], |at| &path[..at])
}

/// Bytes that a medium writes at once.
pub(crate) const SECTOR: usize = 512;
/// Zeros of this length become a hole.
const BLOCK: usize = 4096;
