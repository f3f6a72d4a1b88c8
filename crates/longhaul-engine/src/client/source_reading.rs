//! How a run reads sources on its own host.
//!
//! In: the files that are expected, the reader that the run is beside others, and the limits of a
//! run that reads for somebody else. Out: the tree as the run reads it. It opens nothing.

use std::sync::Arc;

use longhaul_disk::{SourceReader, SourceTree};
use tokio::sync::mpsc::UnboundedSender;

use super::run_rate::RunRate;
use crate::api::ExpectedFiles;
use crate::lanes::worker::hole_costs::HoleCosts;
use crate::session::SessionEvent;
use crate::session::expected_source::ExpectedSource;

/// How a run reads sources on this host.
#[derive(Clone, Default)]
pub(crate) struct SourceReading {
    /// The files that are expected of them. `None`: any may go.
    pub(crate) expected: Option<Arc<ExpectedFiles>>,
    /// The reader that it is beside others. `None`: it reads alone, with nothing in between.
    pub(crate) reader: Option<SourceReader>,
    /// The rate that its session keeps, where that may change meanwhile. `None`: it is that of the
    /// settings.
    pub(crate) rate: Option<RunRate>,
    /// How holes count.
    pub(crate) holes: HoleCosts,
}

impl SourceReading {
    /// The tree as this run reads it.
    pub(super) fn over(&self, tree: Arc<dyn SourceTree>) -> Arc<dyn SourceTree> {
        let tree = ExpectedSource::over(tree, self.expected.clone());
        match &self.reader {
            Some(reader) => reader.over(tree),
            None => tree,
        }
    }

    /// Has both halves of a session keep the rate as it changes.
    pub(super) fn is_paced_in(&self, halves: [UnboundedSender<SessionEvent>; 2]) {
        let Some(rate) = &self.rate else { return };
        halves.into_iter().for_each(|half| rate.is_kept_by(half));
    }
}
