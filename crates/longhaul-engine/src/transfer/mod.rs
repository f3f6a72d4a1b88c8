//! Runs a job from its initiator's side: push, pull, and copy within one process.
//!
//! In: a [`Job`] and [`Settings`]. Out: a [`Report`]. `dial` reaches a daemon and agrees with it, `embedded` plays both sides
//! here, `link` sets the session up; the session loop does the rest.

mod dial;
mod embedded;
mod link;

pub(crate) use dial::connect;

use std::sync::Arc;
use std::time::Instant;

use longhaul_core::{Blame, ChunkSize, Fault, FaultCode, RelPath, Role};
use longhaul_disk::{SourceTree, TargetTree};
use longhaul_proto::receiver::{Config, Landing, Policy, SyncGroup};
use longhaul_proto::wire::message::{Far, FarSource, Welcome};

use crate::api::{Event, From, Job, LocalDest, LocalSource, Observer, Remote, RemotePath, Report, Settings, Stop, To};
use crate::asked::Asked;
use crate::budget::{self, Machinery, Means};
use crate::place::{self, Destination, Opening};
use crate::report::Totals;
use crate::session;
use crate::session::receive::Receiving;
use crate::session::send::Sending;

/// Runs a job to its end. Always gives a report; what ended it early is in there.
pub async fn run(job: Job, settings: Settings, observer: Arc<dyn Observer>, stop: Stop) -> Report {
    let begun = Instant::now();
    let run = Run { settings, observer: observer.clone(), stop };
    let result = match (job.from, job.to) {
        (From::Local(sources), To::Remote(remote, path)) => run.push(sources, &remote, path).await,
        (From::Remote(remote, paths), To::Local(dest)) => run.pull(&remote, paths, &dest).await,
        (From::Local(sources), To::Local(dest)) => run.copy(&sources, &dest).await,
        (From::Remote(..), To::Remote(..)) => {
            Err(Fault::new(FaultCode::Usage, Blame::Local, "copying from one daemon to another is not built yet")
                .hint("pull, then push"))
        }
    };
    conclude(result, &*observer, begun)
}

/// Copies between two trees that a library user made, in this process: any [`SourceTree`] to any [`TargetTree`], with
/// [`EngineKind::Void`](longhaul_disk::EngineKind::Void) for trees without a disk. No peer can ask for it.
pub async fn run_between(
    source: Arc<dyn SourceTree>,
    target: Arc<dyn TargetTree>,
    settings: Settings,
    observer: Arc<dyn Observer>,
    stop: Stop,
) -> Report {
    let begun = Instant::now();
    let destination = Destination::fleeting(target, Landing::beneath(), String::new());
    let result = Run { settings, observer: observer.clone(), stop }.embedded(source, destination).await;
    conclude(result, &*observer, begun)
}

fn conclude(result: Result<Totals, Fault>, observer: &dyn Observer, begun: Instant) -> Report {
    let totals = result.unwrap_or_else(Totals::ended_by);
    if let Some(fault) = &totals.fault {
        observer.event(Event::Fault(fault.clone()));
    }
    totals.into_report(begun.elapsed().as_secs_f64())
}

struct Run {
    settings: Settings,
    observer: Arc<dyn Observer>,
    stop: Stop,
}

impl Run {
    async fn push(self, sources: Vec<LocalSource>, remote: &Remote, path: RemotePath) -> Result<Totals, Fault> {
        let contents = sources.iter().any(|s| s.contents);
        let far = Far::Destination {
            root: path.root.clone(),
            path: path.path.clone(),
            placing: place::placing(path.slash, sources.len(), contents),
            if_exists: self.settings.if_exists,
        };
        let slots = budget::slots(self.settings.memory, self.settings.chunk)?;
        let chunk_max = budget::largest_chunk(self.settings.memory, self.settings.chunk);
        let agreed = self.agree(remote, Role::Sender, far, slots, chunk_max).await?;
        let slots = budget::slots(self.settings.memory, agreed.welcome.chunk_max)?;
        let tree = place::local_source(&sources, self.settings.io);
        let lanes = agreed.lanes.len() as u32;
        let machinery = self.machinery(Role::Sender, slots, lanes, agreed.welcome.chunk_max)?;
        let sending = self.sending(tree, machinery, &agreed.welcome);
        let link = self.link(agreed, "push", slots, Arc::default());
        Ok(session::send::run(link, sending).await)
    }

    async fn pull(self, remote: &Remote, paths: Vec<RemotePath>, dest: &LocalDest) -> Result<Totals, Fault> {
        let opening = Opening {
            direct: self.settings.io,
            dry_run: self.settings.dry_run,
            placing: place::placing(dest.slash, paths.len(), paths.iter().any(contents)),
            may_modify: true,
        };
        let far = Far::Sources {
            sources: paths
                .iter()
                .map(|p| FarSource { root: p.root.clone(), path: p.path.clone(), contents: contents(p) })
                .collect(),
            rules: self.settings.filter.rules().to_vec(),
            names: self.settings.files_from.clone(),
        };
        let slots = budget::slots(self.settings.memory, self.settings.chunk)?;
        // What is left in a destination that stands says how large buffers must be; one that does not is made only when the
        // daemon has agreed.
        let standing =
            if place::stands(dest, opening.placing) { Some(place::local_destination(dest, opening)?) } else { None };
        let limit = budget::largest_chunk(self.settings.memory, self.settings.chunk);
        let chunk_max = standing.as_ref().map_or(self.settings.chunk, |d| d.chunk_max(self.settings.chunk).min(limit));
        let agreed = self.agree(remote, Role::Receiver, far, slots, chunk_max).await?;
        let slots = budget::slots(self.settings.memory, agreed.welcome.chunk_max)?;
        let destination = match standing {
            Some(destination) => destination,
            None => place::local_destination(dest, opening)?,
        };
        let tops: Option<Vec<Vec<u8>>> =
            paths.iter().map(|p| if contents(p) { None } else { p.path.name().map(<[u8]>::to_vec) }).collect();
        let landing = match tops {
            Some(tops) => destination.landing.only(tops),
            None => destination.landing,
        };
        let lanes = agreed.lanes.len() as u32;
        let Machinery { slab, io } = self.machinery(Role::Receiver, slots, lanes, agreed.welcome.chunk_max)?;
        let config = self.receiver_config(landing, &agreed.welcome);
        let link = self.link(agreed, "pull", slots, destination.presence);
        let own = match &paths[..] {
            [source] if !contents(source) => source.path.name(),
            _ => None,
        };
        let asked = self.asked(own);
        Ok(session::receive::run(
            link,
            Receiving {
                tree: destination.tree,
                slab,
                io,
                config,
                asked,
                base: destination.base,
                ledger: destination.ledger,
            },
        )
        .await)
    }

    fn machinery(&self, role: Role, slots: usize, lanes: u32, chunk: ChunkSize) -> Result<Machinery, Fault> {
        Machinery::start(role, Means { slots, lanes, depth: self.settings.depth, engine: self.settings.engine, chunk })
    }

    /// What may come from sources of which the only one, if only one is named, keeps its `own` name.
    fn asked(&self, own: Option<&[u8]>) -> Asked {
        let mut asked = Asked::passing(self.settings.filter.clone());
        if !self.settings.preserve.links {
            asked = asked.without_links();
        }
        match &self.settings.files_from {
            Some(names) => asked.named(&own.and_then(|name| RelPath::new(name).ok()).unwrap_or_default(), names),
            None => asked,
        }
    }

    fn sending(&self, tree: Arc<dyn SourceTree>, Machinery { slab, io }: Machinery, welcome: &Welcome) -> Sending {
        Sending {
            tree,
            slab,
            io,
            chunk: welcome.chunk,
            chunk_max: welcome.chunk_max,
            bundled_max: welcome.bundled_max,
            filter: self.settings.filter.clone(),
            names: self.settings.files_from.clone(),
            preserve: self.settings.preserve,
        }
    }

    fn receiver_config(&self, landing: Landing, welcome: &Welcome) -> Config {
        Config {
            chunk: welcome.chunk,
            chunk_max: welcome.chunk_max,
            bundled_max: welcome.bundled_max,
            policy: Policy { if_exists: self.settings.if_exists, may_modify: true },
            landing,
            preserve: self.settings.preserve,
            dry_run: self.settings.dry_run,
            group: SyncGroup::default(),
        }
    }
}

/// A whole root is pulled as what lies in it: it has no name of its own beneath itself.
fn contents(source: &RemotePath) -> bool {
    source.slash || source.path.is_root()
}
