//! Holds the state between programs and a medium: names and files as programs see them, and changes
//! that no sync has made durable yet.
//!
//! In: calls as they begin and end. Out: the file of each call, and the change that it makes. It
//! keeps the steps of a run for tests of their order. Nodes are numbered anew, as a file system
//! uses the numbers of its inodes again. It knows no promises.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longhaul_core::Mtime;
use longhaul_disk::{Call, Descriptor, InodeId};
use longhaul_proto::journal::PRELUDE_BYTES;

use super::errors::Errors;
use super::faults::{Alteration, Faults, Mutant, Nature};
use super::rng::Rng;
use super::view::{Change, Kind, Kinds, NodeId, ROOT, View, text};

/// The state between programs and the medium.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) nature: Nature,
    pub(crate) faults: Faults,
    pub(crate) rng: Rng,
    pub(crate) kinds: Kinds,
    pub(crate) medium: View,
    /// Changes that no sync has made durable, in the order in which programs saw them.
    pub(crate) log: Vec<(u64, Change)>,
    pub(crate) errors: Errors,
    /// The offset of a sector that cannot be written, by file.
    pub(crate) bad: HashMap<NodeId, u64>,
    /// Files of which the cache shows bytes that the medium does not have and never will.
    pub(crate) lost: Vec<NodeId>,
    /// The content of the medium since the power went. `None` before.
    pub(crate) image: Option<View>,
    /// The numbers of calls, writes and journal syncs of this run.
    pub(crate) calls: u64,
    pub(crate) writes: u64,
    pub(crate) journal_syncs: u64,
    /// Changes of earlier runs have lower numbers.
    pub(crate) run_began: u64,
    /// The steps of this run, in order.
    pub(crate) steps: Vec<Step>,
    /// The file that another program put there during this run: its path and bytes.
    pub(crate) intruded: Option<(Vec<u8>, Vec<u8>)>,
    /// A journal with a record of a new version, until it is synced.
    pub(crate) revised: Option<NodeId>,
    /// Names as programs see them, and the place of each node.
    names: HashMap<NodeId, BTreeMap<Vec<u8>, NodeId>>,
    places: HashMap<NodeId, (NodeId, Vec<u8>)>,
    lens: HashMap<NodeId, u64>,
    inodes: HashMap<InodeId, NodeId>,
    pub(crate) under_way: BTreeMap<u64, Doing>,
    next: u64,
}

/// A call that is under way.
#[derive(Clone, Debug)]
pub(crate) enum Doing {
    Make { dir: NodeId, name: Vec<u8>, kind: Kind },
    Change(Change),
    Nothing,
}

/// A call that was made, or another event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) what: What,
    /// The path of its file or directory.
    pub(crate) path: Vec<u8>,
}

/// The type of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Created,
    Wrote,
    /// Chunks were appended to a journal.
    Journalled,
    SyncedData,
    Synced,
    SyncedFileSystem,
    Renamed,
    Named,
    Removed,
    /// The program reported the file as committed.
    Committed,
}
impl State {
    /// The state in which everything in `scratch` is durable.
    pub(crate) fn of(scratch: &Path, nature: Nature, rng: Rng) -> State {
        let mut state = State {
            nature,
            faults: Faults::default(),
            rng,
            kinds: Kinds::from([(ROOT, Kind::Dir)]),
            medium: View::default(),
            log: Vec::new(),
            errors: Errors::default(),
            bad: HashMap::new(),
            lost: Vec::new(),
            image: None,
            calls: 0,
            writes: 0,
            journal_syncs: 0,
            run_began: 0,
            steps: Vec::new(),
            intruded: None,
            revised: None,
            names: HashMap::new(),
            places: HashMap::new(),
            lens: HashMap::new(),
            inodes: HashMap::new(),
            under_way: BTreeMap::new(),
            next: 1,
        };
        let stat = std::fs::symlink_metadata(scratch).expect("the scratch directory is there");
        state.inodes.insert(InodeId { dev: stat.dev(), ino: stat.ino() }, ROOT);
        state.scan(scratch, ROOT);
        state
    }

    /// Reads a directory that stands.
    fn scan(&mut self, at: &Path, dir: NodeId) {
        for entry in std::fs::read_dir(at).expect("the scratch is listed") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").as_encoded_bytes().to_vec();
            let stat = std::fs::symlink_metadata(&path).expect("examined");
            let id = InodeId { dev: stat.dev(), ino: stat.ino() };
            let known = self.inodes.get(&id).copied();
            let node = known.unwrap_or_else(|| NodeId(self.number()));
            self.inodes.insert(id, node);
            let change = Change::Name { dir, name, node };
            self.see(&change);
            self.medium.apply(&change);
            let mtime = Mtime { secs: stat.mtime(), nanos: stat.mtime_nsec() as u32 };
            let kind = if stat.is_dir() {
                self.scan(&path, node);
                Kind::Dir
            } else if stat.is_symlink() {
                Kind::Link(std::fs::read_link(&path).expect("a link").as_os_str().as_encoded_bytes().to_vec())
            } else {
                let bytes = std::fs::read(&path).expect("read");
                self.lens.insert(node, bytes.len() as u64);
                self.medium.apply(&Change::Write { node, offset: 0, bytes });
                Kind::File
            };
            self.medium.apply(&Change::Time { node, mtime });
            self.kinds.insert(node, kind);
        }
    }

    /// Adds a file that another program made and synced.
    pub(crate) fn adopt(&mut self, scratch: &Path, path: &[u8], bytes: &[u8]) {
        let stat = std::fs::symlink_metadata(scratch.join(text(path))).expect("examined");
        let (node, at) = (NodeId(self.number()), path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1));
        let dir = self.seen(&path[..at]).expect("its directory was found");
        self.inodes.insert(InodeId { dev: stat.dev(), ino: stat.ino() }, node);
        self.kinds.insert(node, Kind::File);
        let change = Change::Name { dir, name: path[at..].to_vec(), node };
        self.see(&change);
        self.medium.apply(&change);
        self.medium.apply(&Change::Write { node, offset: 0, bytes: bytes.to_vec() });
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The node that programs see under a path.
    pub(crate) fn seen(&self, path: &[u8]) -> Option<NodeId> {
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.try_fold(ROOT, |dir, name| self.names.get(&dir)?.get(name).copied())
    }

    /// The path under which programs see a node, or saw it last.
    pub(crate) fn path(&self, node: NodeId) -> Vec<u8> {
        match self.places.get(&node) {
            None => Vec::new(),
            Some((dir, name)) => self.path_in(*dir, name),
        }
    }

    /// The path of a name in a directory.
    pub(crate) fn path_in(&self, dir: NodeId, name: &[u8]) -> Vec<u8> {
        if dir == ROOT { name.to_vec() } else { [&self.path(dir), &b"/"[..], name].concat() }
    }

    pub(crate) fn node(&self, inode: InodeId) -> NodeId {
        self.known(inode).expect("every file of a target was made or found before it is changed")
    }

    pub(crate) fn known(&self, inode: InodeId) -> Option<NodeId> {
        self.inodes.get(&inode).copied()
    }

    pub(crate) fn is_journal(&self, node: NodeId) -> bool {
        self.path(node).ends_with(b".journal")
    }

    /// Applies a change for programs to see.
    fn see(&mut self, change: &Change) {
        match change {
            Change::Name { dir, name, node } => {
                self.names.entry(*dir).or_default().insert(name.clone(), *node);
                self.places.insert(*node, (*dir, name.clone()));
            }
            Change::Unname { dir, name } => drop(self.names.entry(*dir).or_default().remove(name)),
            Change::Rename { dir, from, to, node } => {
                let names = self.names.entry(*dir).or_default();
                names.remove(from);
                names.insert(to.clone(), *node);
                self.places.insert(*node, (*dir, to.clone()));
            }
            Change::Write { node, offset, bytes } => {
                let len = self.lens.entry(*node).or_default();
                *len = (*len).max(offset + bytes.len() as u64);
            }
            Change::Len { node, len } => drop(self.lens.insert(*node, *len)),
            Change::Hole { .. } | Change::Extend { .. } | Change::Time { .. } => {}
        }
    }

    fn named(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.names.get(&dir)?.get(name).copied()
    }

    /// Begins a call that is carried out.
    pub(crate) fn make(&mut self, doing: Doing) -> u64 {
        let token = self.number();
        self.under_way.insert(token, doing);
        token
    }

    /// Changes under way: it is not known whether a medium has them when the power goes.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &Change> {
        self.under_way.values().filter_map(|doing| if let Doing::Change(change) = doing { Some(change) } else { None })
    }

    /// Counts a call. Returns whether the power goes at it.
    pub(crate) fn counts(&mut self, call: &Call<'_>) -> bool {
        let is_journal = |state: &State, of: InodeId| state.known(of).is_some_and(|node| state.is_journal(node));
        match call {
            Call::Write { file, .. } if !is_journal(self, *file) => {
                self.writes += 1;
                let due = self.faults.alteration.take_if(|alteration| alteration.at_write == self.writes);
                due.iter().for_each(Alteration::make);
            }
            Call::SyncData { of } if is_journal(self, of.inode) => self.journal_syncs += 1,
            _ => {}
        }
        let at_sync = self.faults.cut_at_journal_sync.is_some_and(|at| at == self.journal_syncs);
        at_sync || self.faults.cut_at == Some(self.calls)
    }

    /// The change that a call makes.
    pub(crate) fn doing(&self, call: &Call<'_>) -> Doing {
        let change = match *call {
            Call::MakeDir { dir, name } => {
                return Doing::Make { dir: self.node(dir), name: name.to_vec(), kind: Kind::Dir };
            }
            Call::Create { dir, name } => {
                return Doing::Make { dir: self.node(dir), name: name.to_vec(), kind: Kind::File };
            }
            Call::Symlink { dir, name, target } => {
                return Doing::Make { dir: self.node(dir), name: name.to_vec(), kind: Kind::Link(target.to_vec()) };
            }
            Call::Link { dir, from, to } => {
                let dir = self.node(dir);
                let Some(node) = self.named(dir, from) else { return Doing::Nothing };
                Change::Name { dir, name: to.to_vec(), node }
            }
            Call::Rename { dir, from, to, .. } => {
                let dir = self.node(dir);
                let Some(node) = self.named(dir, from) else { return Doing::Nothing };
                Change::Rename { dir, from: from.to_vec(), to: to.to_vec(), node }
            }
            Call::Remove { dir, name } | Call::RemoveDir { dir, name } => {
                Change::Unname { dir: self.node(dir), name: name.to_vec() }
            }
            Call::Write { file, offset, bytes } => {
                Change::Write { node: self.node(file), offset, bytes: bytes.to_vec() }
            }
            Call::SetLen { file, len } => Change::Len { node: self.node(file), len },
            Call::MakeHole { file, offset, len } => Change::Hole { node: self.node(file), offset, len },
            Call::SetTime { file, mtime } => Change::Time { node: self.node(file), mtime },
            _ => return Doing::Nothing,
        };
        Doing::Change(change)
    }

    /// Whether a planted bug leaves a write out.
    pub(crate) fn left_out(&mut self, call: &Call<'_>) -> bool {
        let Call::Write { file, offset, bytes } = *call else { return false };
        let node = self.node(file);
        if !self.is_journal(node) {
            return false;
        }
        if kinds(bytes).contains(&REVISED) {
            self.revised = Some(node);
        }
        let len = self.lens.get(&node).copied().unwrap_or_default();
        self.faults.mutant == Some(Mutant::NotReasserted) && offset < len
    }

    /// Ends a call that succeeded.
    pub(crate) fn done(&mut self, doing: Doing, made: Option<InodeId>) {
        let change = match doing {
            Doing::Nothing => return,
            Doing::Change(change) => change,
            Doing::Make { dir, name, kind } => {
                let Some(inode) = made else { return };
                let node = NodeId(self.number());
                self.inodes.insert(inode, node);
                let per_mille =
                    if name.ends_with(b".journal") { self.faults.bad_journals } else { self.faults.bad_files };
                if kind == Kind::File && self.rng.permille(per_mille) {
                    let sector = self.rng.below(12) * super::view::SECTOR as u64;
                    self.bad.insert(node, if self.rng.permille(500) { 0 } else { sector });
                }
                self.kinds.insert(node, kind);
                Change::Name { dir, name, node }
            }
        };
        self.see(&change);
        let (what, node) = match &change {
            Change::Name { node, .. } => (What::Created, *node),
            Change::Rename { node, .. } => (What::Renamed, *node),
            Change::Write { node, bytes, .. } if self.is_journal(*node) && kinds(bytes).contains(&CHUNKS) => {
                (What::Journalled, *node)
            }
            Change::Write { node, .. } => (What::Wrote, *node),
            Change::Unname { dir, name } => {
                let path = self.path_in(*dir, name);
                return self.note(What::Removed, path, change);
            }
            _ => (What::Named, ROOT),
        };
        let path = self.path(node);
        self.note(what, path, change);
    }

    /// Records a step, and the change that is volatile now.
    fn note(&mut self, what: What, path: Vec<u8>, change: Change) {
        if what != What::Named {
            self.steps.push(Step { what, path });
        }
        let number = self.number();
        self.log.push((number, change));
    }
}

/// A descriptor: its number and its file.
pub(crate) type Open = Descriptor;

/// The types of the records in an append to a journal.
fn kinds(mut bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    if bytes.starts_with(b"LHjrnl") {
        bytes = bytes.get(PRELUDE_BYTES..).unwrap_or_default();
    }
    while let [a, b, c, d, kind, ..] = *bytes {
        kinds.push(kind);
        let body = u32::from_le_bytes([a, b, c, d]) as usize;
        bytes = bytes.get(body + 13..).unwrap_or_default();
    }
    kinds
}

/// The type of the record that lists chunks.
const CHUNKS: u8 = 3;
/// The type of the record of another version.
const REVISED: u8 = 6;
