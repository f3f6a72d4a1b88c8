//! Tracks which descriptors still have to hear of an error of writing back: Linux's `errseq_t`.
//!
//! An error of a file's pages counts for the file and for its file system. A descriptor hears of it
//! once: if it was opened before, or if nobody has heard of it yet. It does not know which bytes
//! were lost.

use std::collections::HashMap;

use longhaul_disk::Descriptor;

use super::view::NodeId;

/// The errors of one file system.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    whole: Sequence,
    files: HashMap<NodeId, Sequence>,
    /// The errors that each descriptor had heard of when it was opened or asked last.
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
    /// Whether any descriptor has heard of the last error.
    seen: bool,
}

impl Sequence {
    fn raise(&mut self) {
        *self = Sequence { count: self.count + 1, seen: false };
    }

    /// The errors that count as heard of for a descriptor that is opened now.
    fn sample(&self) -> u64 {
        if self.seen { self.count } else { 0 }
    }
}

impl Errors {
    /// Records that pages of a file were lost.
    pub(crate) fn raise(&mut self, node: NodeId) {
        self.whole.raise();
        self.files.entry(node).or_default().raise();
    }

    /// Records that a descriptor is opened, or its number used again.
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

    /// Forgets all descriptors, because their process has ended.
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
