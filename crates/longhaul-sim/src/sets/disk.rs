//! The disk of a virtual target: files and names as programs see them, and as the medium has them.
//!
//! In: writes, syncs, changes of names, and the power cuts that take what no sync made durable,
//! each block for itself. Out: what either holds. It counts moments: a sync covers what was
//! written before it began. Knows no faults and no time.

use std::collections::BTreeMap;

use super::texts::{Block, FileNo, PathNo};
use crate::rng::Rng;

/// A name on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SetName {
    /// A body of a striped file, in the directory of bodies.
    Body(FileNo),
    /// A stripe file under its temporary name, in the tree.
    Temp(FileNo),
    /// A final name in the tree.
    Final(PathNo),
}

/// A directory of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetDir {
    Bodies,
    Tree,
}

/// Which state of a disk is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskView {
    /// As programs see it.
    Cached,
    /// As a power cut may leave it.
    Medium,
}

/// The identity of a file: its inode number, which may be given again, and the moment of its birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId {
    pub(crate) ino: usize,
    pub(crate) born: u64,
}

/// The files and names of a target.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetDisk {
    nodes: Vec<DiskNode>,
    bodies: NameTable,
    tree: NameTable,
}

#[derive(Clone, Debug)]
struct DiskNode {
    born: u64,
    blocks: Vec<Volatile<Block>>,
    len: Volatile<usize>,
}

/// A value in the cache and on the medium.
#[derive(Clone, Copy, Debug, Default)]
struct Volatile<T> {
    cached: T,
    medium: T,
    /// The moment of its last change that no sync covered. 0: there is none.
    since: u64,
}

#[derive(Clone, Debug, Default)]
struct NameTable {
    cached: BTreeMap<SetName, usize>,
    medium: BTreeMap<SetName, usize>,
    changes: Vec<(u64, NameChange)>,
}

#[derive(Clone, Copy, Debug)]
enum NameChange {
    Made(SetName, usize),
    Renamed(SetName, SetName),
    Removed(SetName),
}

/// Which part of a cache a power cut leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLeft {
    /// The frequency in a thousand with which a change comes through.
    pub(crate) permille: u32,
    /// Whether changes of names come through up to a moment and not after it.
    pub(crate) names_in_order: bool,
}

impl SetName {
    pub(crate) fn dir(self) -> SetDir {
        match self {
            SetName::Body(_) => SetDir::Bodies,
            SetName::Temp(_) | SetName::Final(_) => SetDir::Tree,
        }
    }
}

impl SetDisk {
    fn dir(&self, dir: SetDir) -> &NameTable {
        match dir {
            SetDir::Bodies => &self.bodies,
            SetDir::Tree => &self.tree,
        }
    }

    fn dir_mut(&mut self, dir: SetDir) -> &mut NameTable {
        match dir {
            SetDir::Bodies => &mut self.bodies,
            SetDir::Tree => &mut self.tree,
        }
    }

    /// The file under a name.
    pub(crate) fn find(&self, view: DiskView, name: SetName) -> Option<NodeId> {
        let ino = *self.dir(name.dir()).names(view).get(&name)?;
        Some(NodeId { ino, born: self.nodes.get(ino)?.born })
    }

    /// The names in a directory.
    pub(crate) fn names(&self, view: DiskView, dir: SetDir) -> impl Iterator<Item = SetName> {
        self.dir(dir).names(view).keys().copied()
    }

    /// The length of a file, in blocks.
    pub(crate) fn len(&self, view: DiskView, ino: usize) -> usize {
        self.nodes.get(ino).map_or(0, |node| node.len.seen(view))
    }

    /// Two blocks of a file. What lies behind its end is zeros.
    pub(crate) fn blocks(&self, view: DiskView, ino: usize, at: usize) -> [Block; 2] {
        let len = self.len(view, ino);
        let block = |at: usize| match self.nodes.get(ino).and_then(|node| node.blocks.get(at)) {
            Some(block) if at < len => block.seen(view),
            _ => Block::ZEROS,
        };
        [block(at), block(at + 1)]
    }

    /// The number of blocks of a file that are not zeros.
    pub(crate) fn blocks_used(&self, view: DiskView, ino: usize) -> usize {
        let blocks = self.nodes.get(ino).map_or(&[][..], |node| &node.blocks);
        blocks.iter().filter(|block| block.seen(view) != Block::ZEROS).count()
    }

    pub(crate) fn create(&mut self, moment: u64, name: SetName) -> NodeId {
        let ino = self.nodes.len();
        self.nodes.push(DiskNode { born: moment, blocks: Vec::new(), len: Volatile::default() });
        self.dir_mut(name.dir()).change(moment, NameChange::Made(name, ino));
        NodeId { ino, born: moment }
    }

    /// Writes blocks, and makes the file longer if it ends before them.
    pub(crate) fn write(&mut self, moment: u64, ino: usize, at: usize, blocks: &[Block]) {
        let Some(node) = self.nodes.get_mut(ino) else { return };
        let end = at + blocks.len();
        if node.blocks.len() < end {
            node.blocks.resize(end, Volatile::default());
        }
        for (known, block) in node.blocks[at..end].iter_mut().zip(blocks) {
            known.set(moment, *block);
        }
        if node.len.cached < end {
            node.len.set(moment, end);
        }
    }

    /// Sets the length of a file, in blocks. What is cut off is zeros if it grows again.
    pub(crate) fn set_len(&mut self, moment: u64, ino: usize, len: usize) {
        let Some(node) = self.nodes.get_mut(ino) else { return };
        let cut = node.blocks.iter_mut().skip(len).filter(|block| block.cached != Block::ZEROS);
        cut.for_each(|block| block.set(moment, Block::ZEROS));
        if node.len.cached != len {
            node.len.set(moment, len);
        }
    }

    pub(crate) fn rename(&mut self, moment: u64, from: SetName, to: SetName) {
        self.dir_mut(to.dir()).change(moment, NameChange::Renamed(from, to));
    }

    pub(crate) fn remove(&mut self, moment: u64, name: SetName) {
        self.dir_mut(name.dir()).change(moment, NameChange::Removed(name));
    }

    /// Ends a sync of a file that began at a moment.
    pub(crate) fn sync(&mut self, began: u64, ino: usize) {
        let Some(node) = self.nodes.get_mut(ino) else { return };
        node.blocks.iter_mut().for_each(|block| block.sync(began));
        node.len.sync(began);
        // It may have grown once more meanwhile. What lies behind its end is not part of it.
        let own = &node.blocks[..node.len.cached.min(node.blocks.len())];
        let covered = own.iter().rposition(|block| block.since == 0 && block.medium != Block::ZEROS);
        node.len.medium = node.len.medium.max(covered.map_or(0, |last| last + 1));
    }

    /// Ends a sync of a file with an error: of what was not durable, any part is lost. The cache
    /// shows it all the same, and no later sync writes it.
    pub(crate) fn fail_sync(&mut self, rng: &mut Rng, ino: usize) {
        let Some(node) = self.nodes.get_mut(ino) else { return };
        for block in node.blocks.iter_mut().filter(|block| block.since > 0) {
            if rng.permille(500) {
                block.medium = block.cached;
            }
            block.since = 0;
        }
    }

    /// Ends a sync of a directory that began at a moment.
    pub(crate) fn sync_dir(&mut self, began: u64, dir: SetDir) {
        let table = self.dir_mut(dir);
        let covered = table.changes.iter().take_while(|(moment, _)| *moment < began).count();
        for (_, change) in table.changes.drain(..covered).collect::<Vec<_>>() {
            change.apply(&mut table.medium);
        }
    }

    /// Cuts the power: what the medium does not have comes through or not.
    pub(crate) fn lose_cache(&mut self, rng: &mut Rng, left: CacheLeft) {
        for node in &mut self.nodes {
            node.blocks.iter_mut().for_each(|block| block.lose(rng, left));
            node.len.lose(rng, left);
        }
        for table in [&mut self.bodies, &mut self.tree] {
            let changes = std::mem::take(&mut table.changes);
            let last = rng.index(changes.len() + 1);
            for (at, (_, change)) in changes.into_iter().enumerate() {
                if if left.names_in_order { at < last } else { rng.permille(left.permille) } {
                    change.apply(&mut table.medium);
                }
            }
            table.cached = table.medium.clone();
        }
    }

    /// The disk as its medium is now.
    pub(crate) fn image(&self) -> SetDisk {
        let mut image = self.clone();
        image.lose_cache(&mut Rng::new(0), CacheLeft { permille: 0, names_in_order: false });
        image
    }
}

impl<T: Copy> Volatile<T> {
    fn seen(&self, view: DiskView) -> T {
        match view {
            DiskView::Cached => self.cached,
            DiskView::Medium => self.medium,
        }
    }

    fn set(&mut self, moment: u64, value: T) {
        (self.cached, self.since) = (value, moment);
    }

    fn sync(&mut self, began: u64) {
        if self.since > 0 && self.since < began {
            (self.medium, self.since) = (self.cached, 0);
        }
    }

    fn lose(&mut self, rng: &mut Rng, left: CacheLeft) {
        if self.since > 0 && rng.permille(left.permille) {
            self.medium = self.cached;
        }
        (self.cached, self.since) = (self.medium, 0);
    }
}

impl NameTable {
    fn names(&self, view: DiskView) -> &BTreeMap<SetName, usize> {
        match view {
            DiskView::Cached => &self.cached,
            DiskView::Medium => &self.medium,
        }
    }

    fn change(&mut self, moment: u64, change: NameChange) {
        change.apply(&mut self.cached);
        self.changes.push((moment, change));
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<SetName, usize>) {
        match self {
            NameChange::Made(name, ino) => _ = names.insert(name, ino),
            NameChange::Renamed(from, to) => {
                if let Some(ino) = names.remove(&from) {
                    names.insert(to, ino);
                }
            }
            NameChange::Removed(name) => _ = names.remove(&name),
        }
    }
}
