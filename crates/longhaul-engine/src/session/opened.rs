//! A destination that is opened for one session.
//!
//! In: a tree with its journals, from `place`. Out: to the plan of a session, from which its loop
//! works. It opens nothing itself and knows no paths of the user.

use std::sync::Arc;

use longhaul_core::ChunkSize;
use longhaul_disk::{StreamOutput, StreamTarget, TargetTree};
use longhaul_proto::receiver::Landing;

use super::dataset::StagedDataset;
use crate::api::ExpectedFiles;
use crate::journals::SessionJournal;
use crate::journals::claims::HeldClaim;
use crate::journals::presence::Presence;

/// A destination that is ready to be written to.
#[derive(Clone)]
pub(crate) struct Destination {
    /// The tree into which names go.
    pub(crate) tree: Arc<dyn TargetTree>,
    /// The mapping of names.
    pub(crate) landing: Landing,
    /// The place of the destination, for people.
    pub(crate) base: String,
    /// The same place on this host, for people: a path, or one beneath a served root.
    pub(crate) place: String,
    /// The session's journal, and the partials of earlier sessions. `None` where nothing is made.
    pub(crate) ledger: Option<Arc<SessionJournal>>,
    /// Shows others whether the session lives.
    pub(crate) presence: Arc<Presence>,
    /// Whether files that stand as a source has them may get further names. `false` unless the user
    /// may read and replace them.
    pub(crate) names_standing: bool,
    /// The stream as which everything goes out. `None` for a tree.
    pub(crate) stream: Option<Arc<StreamOutput>>,
    /// The claim by which the session publishes. `None`: it needs none.
    pub(crate) claim: Option<Arc<HeldClaim>>,
    /// The files that are expected. `None`: any may come.
    pub(crate) expected: Option<Arc<ExpectedFiles>>,
    /// The dataset as which everything appears together. `None`: each file appears when it is done.
    pub(crate) dataset: Option<Arc<StagedDataset>>,
    /// Whether everything appears together, or would if this were no dry run.
    pub(crate) is_whole: bool,
}

impl Destination {
    /// A tree of which nothing outlives the session.
    pub(crate) fn fleeting(tree: Arc<dyn TargetTree>, landing: Landing, base: String) -> Destination {
        let (place, presence) = (base.clone(), Arc::default());
        Destination {
            tree,
            landing,
            place,
            base,
            ledger: None,
            presence,
            names_standing: false,
            stream: None,
            claim: None,
            expected: None,
            dataset: None,
            is_whole: false,
        }
    }

    /// A stream, for one session of the run that owns it.
    pub(crate) fn stream(output: &Arc<StreamOutput>, base: String) -> Destination {
        let tree = Arc::new(StreamTarget::new(output.clone()));
        let fleeting = Destination::fleeting(tree, Landing::beneath(), base);
        Destination { stream: Some(output.clone()), ..fleeting }
    }

    /// The largest chunk that buffers must hold: partials keep their chunk size.
    pub(crate) fn chunk_max(&self, chunk: ChunkSize) -> ChunkSize {
        let largest = self.ledger.as_ref().and_then(|ledger| ledger.largest_chunk());
        largest.filter(|largest| largest.bytes() > chunk.bytes()).unwrap_or(chunk)
    }
}
