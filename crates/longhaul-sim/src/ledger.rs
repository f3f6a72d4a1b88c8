//! The promises of the sessions of a world so far.
//!
//! Takes what sessions say, and what others do at the destination; gives it back to the checks.
//! Looks at no medium itself.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::digest::Digest;
use longhaul_core::{ChunkIndex, ChunkMap, FileId, SourceStamp};

use crate::fs::{Ino, Node, View};
use crate::plan::Plan;
use crate::scene::Standing;

/// Chunks of a file that were called durable.
#[derive(Clone, Debug)]
pub(crate) struct Acked {
    /// The version of its source.
    pub(crate) stamp: SourceStamp,
    /// Its chunks.
    pub(crate) map: ChunkMap,
    /// The chunks that were called durable, with their digests.
    pub(crate) chunks: BTreeMap<ChunkIndex, Digest>,
}

/// The promises so far.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// The nodes that stood at the destination at first, or that others put there.
    standing: BTreeMap<String, Vec<Standing>>,
    /// The standing file that an entry was compared with, and its content at the first look. Kept
    /// where somebody writes to standing files.
    pub(crate) first_looks: BTreeMap<FileId, (Ino, Vec<u8>)>,
    /// Bytes of content that were written, where room is limited.
    pub(crate) written: u64,
    /// The chunks that were called durable, by final name.
    pub(crate) acked: BTreeMap<String, Acked>,
    /// Names that were said to be committed.
    pub(crate) committed: BTreeSet<String>,
    /// The last session of the command that could not read a journal which stands.
    pub(crate) blind: Option<u32>,
    /// The first promise that was broken.
    pub(crate) violation: Option<String>,
}

impl Ledger {
    /// No promises, over the nodes that stand.
    pub(crate) fn new(plan: &Plan) -> Ledger {
        let files = plan.standing_files.iter().map(|(path, bytes)| (path.clone(), Standing::Older(bytes.clone())));
        let standing = files.chain(plan.scene.standing.iter().cloned());
        Ledger {
            standing: standing.map(|(path, standing)| (path, vec![standing])).collect(),
            first_looks: BTreeMap::new(),
            written: 0,
            acked: BTreeMap::new(),
            committed: BTreeSet::new(),
            blind: None,
            violation: None,
        }
    }

    /// Notes a node that others put there, or that they wrote to: what was committed under that
    /// name is theirs from now on.
    pub(crate) fn stands(&mut self, path: &str, standing: Standing) {
        self.committed.remove(path);
        self.standing.entry(path.to_owned()).or_default().push(standing);
    }

    /// Whether a file with that content stood under the path before, or others put it there.
    pub(crate) fn stood_as(&self, path: &str, content: &[u8]) -> bool {
        let is_it = |standing: &Standing| match standing {
            Standing::Current(bytes) | Standing::Older(bytes) => bytes == content,
            _ => false,
        };
        self.standing.get(path).is_some_and(|all| all.iter().any(is_it))
    }

    /// Whether that node stood under the path before, or others put it there.
    pub(crate) fn stood(&self, view: &View, path: &str, node: &Node) -> bool {
        let is_it = |standing: &Standing| match (standing, node) {
            (Standing::Dir, Node::Dir) | (Standing::Special, Node::Special) => true,
            (Standing::Link(target), Node::Link(stands)) => target == stands,
            (Standing::Current(bytes) | Standing::Older(bytes), Node::File(ino)) => *bytes == view.content(*ino).bytes,
            _ => false,
        };
        self.standing.get(path).is_some_and(|all| all.iter().any(is_it))
    }

    /// Drops the journalled chunks of a file from the promises, which are rightly given up.
    pub(crate) fn forget(&mut self, path: &str) {
        self.acked.remove(path);
    }

    /// Drops the journalled chunks of a file that begins anew. Gives the number of those that would
    /// still be good.
    pub(crate) fn forget_lost(&mut self, path: &str, stamp: SourceStamp) -> usize {
        self.acked.remove(path).filter(|acked| acked.stamp == stamp).map_or(0, |acked| acked.chunks.len())
    }
}
