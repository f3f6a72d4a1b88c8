//! Which descriptors still have to hear of an error of writing back: Linux's `errseq_t`.
//!
//! An error of a file's pages counts for the file and for its file system. A descriptor hears of it
//! once: if it was opened before, or if nobody has heard of it yet. Knows nothing of what was lost.

use std::collections::HashMap;

use longhaul_disk::Descriptor;

use super::view::NodeId;

/// The errors of one file system.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    whole: Sequence,
    files: HashMap<NodeId, Sequence>,
    /// What each descriptor had heard of when it was opened or asked last.
    heard: HashMap<(i32, NodeId, Scope), u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    File,
    FileSystem,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sequence {
    count: u64,
    /// Somebody has heard of the last.
    seen: bool,
}

impl Sequence {
    fn raise(&mut self) {
        *self = Sequence { count: self.count + 1, seen: false };
    }

    /// What a descriptor that is opened now counts as heard of.
    fn sample(&self) -> u64 {
        if self.seen { self.count } else { 0 }
    }
}

impl Errors {
    /// Pages of a file were lost.
    pub(crate) fn raise(&mut self, node: NodeId) {
        self.whole.raise();
        self.files.entry(node).or_default().raise();
    }

    /// A descriptor is opened, or its number is used again.
    pub(crate) fn open(&mut self, of: Descriptor, node: NodeId) {
        for scope in [Scope::File, Scope::FileSystem] {
            let sample = self.sequence(node, scope).sample();
            self.heard.insert((of.number, node, scope), sample);
        }
    }

    /// Whether a descriptor that syncs hears of an error now.
    pub(crate) fn hear(&mut self, of: Descriptor, node: NodeId, scope: Scope) -> bool {
        let sample = self.sequence(node, scope).sample();
        let heard = *self.heard.entry((of.number, node, scope)).or_insert(sample);
        let sequence = self.sequence(node, scope);
        let count = sequence.count;
        if heard == count {
            return false;
        }
        sequence.seen = true;
        self.heard.insert((of.number, node, scope), count);
        true
    }

    /// Whoever had descriptors open is gone.
    pub(crate) fn forget_descriptors(&mut self) {
        self.heard.clear();
    }

    fn sequence(&mut self, node: NodeId, scope: Scope) -> &mut Sequence {
        match scope {
            Scope::File => self.files.entry(node).or_default(),
            Scope::FileSystem => &mut self.whole,
        }
    }
}
