//! Reads sources of this host whole, for the digests of their files: through the path of a
//! transfer, with its disks, its hashing lanes and its checks for files that change meanwhile, to a
//! destination that keeps nothing.
//!
//! In: local sources and [`Settings`]. Out: a [`FileEvent`](crate::api::FileEvent) with a digest
//! for each file, and a [`Report`]. It writes nothing, and compares nothing.

use std::sync::Arc;
use std::time::Instant;

use longhaul_core::{Fault, Preserve};
use longhaul_disk::{EngineKind, SourceTree, VoidTarget};
use longhaul_proto::receiver::Landing;

use super::local_copy::{Engines, Nobody, merge_halves};
use super::run_rate::RunRate;
use super::source_reading::SourceReading;
use super::{Run, conclude, missing};
use crate::api::{LocalSource, Observer, Report, Settings, Stop, Verify};
use crate::budget;
use crate::lanes::worker::hole_costs::HoleCosts;
use crate::session::opened::Destination;
use crate::session::totals::Totals;

/// Reads sources of this host and tells the digest of each file, by a file event of the status
/// committed; files that cannot be read fail. Nothing is written. Directories are named only if
/// they fail, links never have a digest. The settings of what is written do not count.
pub async fn digest_sources(
    sources: Vec<LocalSource>,
    settings: Settings,
    observer: Arc<dyn Observer>,
    stop: Stop,
) -> Report {
    let begun = Instant::now();
    let possible = budget::possible(settings.memory);
    let result = match possible.and_then(|()| Run::within_process(that_read(settings), observer.clone(), stop)) {
        Ok(run) => run.digests(sources).await,
        Err(fault) => Err(fault),
    };
    conclude(result, &*observer, begun)
}

/// Reads the files of an open tree for somebody else and tells the digest of each, as
/// [`digest_sources`] does. The rate is the one of `limits`, as it changes.
///
/// # Errors
/// The fault of a reading that concerns no single file.
pub(crate) async fn digest_tree(
    tree: Arc<dyn SourceTree>,
    (settings, limits): (Settings, ReadLimits),
    observer: Arc<dyn Observer>,
    stop: Stop,
) -> Result<(), Fault> {
    let ReadLimits { rate, holes } = limits;
    let settings = Settings { rate: rate.now(), ..that_read(settings) };
    let run = Run::within_process(settings, observer, stop)?;
    let reading = SourceReading { rate: Some(rate), holes, ..SourceReading::default() };
    let run = Run { reading, ..run };
    // Both halves of a session are within it: too much for the stack of whoever reads on order.
    Box::pin(run.digests_of(tree)).await?.fault.map_or(Ok(()), Err)
}

/// The limits of a run that reads for somebody else.
pub(crate) struct ReadLimits {
    /// The rate at which it reads.
    pub(crate) rate: RunRate,
    /// How holes count.
    pub(crate) holes: HoleCosts,
}

/// The same settings without those that would keep files from being read, or their digests from
/// being told.
fn that_read(settings: Settings) -> Settings {
    Settings { dry_run: false, verify: Verify::Wire, metadata: Preserve::default().into(), ..settings }
}

impl Run {
    async fn digests(self, sources: Vec<LocalSource>) -> Result<Totals, Fault> {
        let (source, shape) = self.local_sources(sources).await?;
        if let Some(totals) = missing::here(&shape, &*self.observer) {
            return Ok(totals);
        }
        self.digests_of(source).await
    }

    async fn digests_of(self, source: Arc<dyn SourceTree>) -> Result<Totals, Fault> {
        let nothing = Destination::fleeting(Arc::new(VoidTarget), Landing::beneath(), String::new());
        let engines = Engines { sender: self.settings.engine, receiver: EngineKind::Void, noise: false };
        let (mut totals, mut received) = self.halves(source, nothing, engines, Arc::new(Nobody)).await?;
        merge_halves(&mut totals, &mut received);
        Ok(totals)
    }
}
