//! A destination that is opened for one session.
//!
//! In: a tree with its journals, from `place`. Out: to the plan of a session, which its loop works from. Opens nothing itself.

use std::sync::Arc;

use longhaul_core::ChunkSize;
use longhaul_disk::TargetTree;
use longhaul_proto::receiver::Landing;

use crate::journals::SessionJournal;
use crate::journals::presence::Presence;

/// A destination that is ready to be written to.
#[derive(Clone)]
pub(crate) struct Destination {
    /// Where names go.
    pub(crate) tree: Arc<dyn TargetTree>,
    /// How.
    pub(crate) landing: Landing,
    /// Where it stands, for people.
    pub(crate) base: String,
    /// Where that is on this host, for people: a path, or one beneath a served root.
    pub(crate) place: String,
    /// What is written down of it, and what earlier sessions wrote; none where nothing is made.
    pub(crate) ledger: Option<Arc<SessionJournal>>,
    /// By which others see whether the session lives.
    pub(crate) presence: Arc<Presence>,
}

impl Destination {
    /// A tree of which nothing outlives the session.
    pub(crate) fn fleeting(tree: Arc<dyn TargetTree>, landing: Landing, base: String) -> Destination {
        Destination { tree, landing, place: base.clone(), base, ledger: None, presence: Arc::default() }
    }

    /// The largest chunk that buffers must hold: partials keep their chunk size.
    pub(crate) fn chunk_max(&self, chunk: ChunkSize) -> ChunkSize {
        let largest = self.ledger.as_ref().and_then(|ledger| ledger.largest_chunk());
        largest.filter(|largest| largest.bytes() > chunk.bytes()).unwrap_or(chunk)
    }
}
