//! Looks at files of a root, and reads them past the page cache.
//!
//! In: names beneath the path of a conversation. Out: findings by their place in the order, as they
//! come. Follows no link. Knows neither the connection nor what a file should be.

use std::collections::HashSet;
use std::sync::Arc;

use longhaul_core::limits::READING_NAMES_MAX;
use longhaul_core::{Blame, ByteCount, Fault, FaultCode, PathList, RelPath};
use longhaul_disk::{DirectMode, FsSource, SourceTree, Standing, TargetSet};
use longhaul_proto::wire::message::{FoundName, FoundThing, ReadOrder};

use super::findings::Findings;
use super::pace::ReadingPace;
use super::unread::Unread;
use crate::api::{Settings, Stop};
use crate::client::digests::{ReadLimits, digest_tree};
use crate::client::run_rate::RunRate;
use crate::daemon::audit::SessionAudit;
use crate::daemon::audit::source::RecordedSource;
use crate::lanes::worker::hole_costs::HoleCosts;
use crate::session::stopped::stopped;
use crate::workers::blocking;

/// The files of a root as a conversation reaches them.
pub(super) struct ReadingTree {
    /// The targets of the root.
    pub(super) set: Arc<TargetSet>,
    /// The path beneath the root beneath which names are asked for.
    pub(super) base: RelPath,
    /// The name of the root.
    pub(super) named: String,
    /// Whether files are read past the page cache.
    pub(super) direct: DirectMode,
    /// Bytes of buffers.
    pub(super) memory: ByteCount,
    /// The lanes that hash at a time.
    pub(super) lanes: u32,
    /// The rate at which files are read at most.
    pub(super) pace: ReadingPace,
    /// How holes count: as bytes, and one lane of all readings of the client hashes them at a time.
    pub(super) holes: HoleCosts,
    /// Each file that is opened is recorded.
    pub(super) audit: Arc<SessionAudit>,
}

impl ReadingTree {
    /// The same, if its path is a directory.
    ///
    /// # Errors
    /// The fault of a path that is none.
    pub(super) async fn opened(self) -> Result<ReadingTree, Fault> {
        blocking(move || {
            let refused = |code, why: &str| Err(Fault::new(code, Blame::Local, why).about(self.base.escaped()));
            match self.set.stat(&self.base)? {
                Some(Standing::Dir { .. }) => Ok(self),
                Some(_) => refused(FaultCode::InTheWay, "it is a link, or no directory"),
                None => match self.away() {
                    Some(fault) => Err(fault),
                    None => refused(FaultCode::NotFound, "there is no such directory"),
                },
            }
        })
        .await
    }

    /// Says what has these names.
    ///
    /// # Errors
    /// The fault of a look that was stopped.
    pub(super) async fn look_at_all(
        self: &Arc<ReadingTree>,
        names: Vec<RelPath>,
        findings: Findings,
        stop: Stop,
    ) -> Result<(), Fault> {
        let tree = self.clone();
        blocking(move || {
            for (at, name) in (0..).zip(&names) {
                need_going(&stop)?;
                findings.tell(FoundName { at, found: tree.look(name) });
            }
            Ok(())
        })
        .await
    }

    /// Reads files, at a rate that may change meanwhile. Names that no file has are found so. Takes
    /// as long as the bytes take at that rate.
    ///
    /// # Errors
    /// The fault of a reading that concerns no single file.
    pub(super) async fn read(
        self: &Arc<ReadingTree>,
        order: ReadOrder,
        findings: Findings,
        mut stop: Stop,
    ) -> Result<(), Fault> {
        let (stray, strayed) = Stop::new();
        let unread = Arc::new(Unread::new(self.clone(), order.names, (findings, stray)));
        let names = self.files_among(&unread, &stop).await?;
        if !names.is_empty() {
            let mut pace = self.pace.begin(order.rate).await;
            let rate = RunRate::new(pace.rate());
            let limits = ReadLimits { rate: rate.clone(), holes: self.holes.clone() };
            let either = stop.clone().or(strayed.clone());
            let work = digest_tree(self.source(), (self.settings(&names), limits), unread.clone(), either);
            let read = pace.while_at(work, |now| rate.set(now)).await;
            if strayed.pulled().is_some() {
                let why = "a file became a directory as it was to be read";
                return Err(Fault::new(FaultCode::Changed, Blame::Local, why).about(self.base.escaped()));
            }
            read?;
            tokio::select! {
                _ = stop.stopped() => {}
                () = pace.pay(unread.bytes()) => {}
            }
        }
        self.tell_rest(unread, stop).await
    }

    /// The files among the names of an order. Others are told: a directory in the list would mean
    /// everything in it.
    async fn files_among(self: &Arc<ReadingTree>, unread: &Arc<Unread>, stop: &Stop) -> Result<Vec<RelPath>, Fault> {
        let (tree, unread, going) = (self.clone(), unread.clone(), stop.clone());
        blocking(move || {
            let mut files = Vec::new();
            for name in unread.names() {
                need_going(&going)?;
                match tree.look(&name) {
                    FoundThing::File { .. } => files.push(name),
                    found => unread.tell(&name, found),
                }
            }
            Ok(files)
        })
        .await
    }

    /// Tells what waits to be told, and what has the names now of which nothing was heard.
    async fn tell_rest(self: &Arc<ReadingTree>, unread: Arc<Unread>, stop: Stop) -> Result<(), Fault> {
        let tree = self.clone();
        blocking(move || {
            unread.tell_noted();
            for name in unread.names() {
                need_going(&stop)?;
                let found = match tree.look(&name) {
                    FoundThing::File { .. } => FoundThing::Failed(came_meanwhile(&name)),
                    other => other,
                };
                unread.tell(&name, found);
            }
            Ok(())
        })
        .await
    }

    fn source(&self) -> Arc<dyn SourceTree> {
        let source = FsSource::beneath(vec![(self.set.clone(), self.base.clone(), true)], self.direct);
        RecordedSource::over(Arc::new(source.called([&*self.named])), self.audit.clone())
    }

    fn settings(&self, names: &[RelPath]) -> Settings {
        Settings {
            files_from: Some(Arc::new(PathList::new(names))),
            lanes: Some(self.lanes),
            memory: self.memory,
            io: self.direct,
            ..Settings::default()
        }
    }

    fn look(&self, name: &RelPath) -> FoundThing {
        let looked = || -> Result<FoundThing, Fault> {
            let path =
                self.base.concat(name).map_err(|error| Fault::new(FaultCode::Unsupported, Blame::Peer, error))?;
            Ok(match self.set.stat(&path)? {
                // It may stand on a target that is not there.
                None => self.away().map_or(FoundThing::Absent, FoundThing::Failed),
                Some(Standing::File { len, meta, .. }) => FoundThing::File { bytes: len, mtime: meta.mtime },
                Some(Standing::Symlink { target, .. }) => FoundThing::Link { target },
                Some(Standing::Dir { .. }) => FoundThing::Dir,
                Some(Standing::Special { .. }) => FoundThing::Special,
            })
        };
        looked().unwrap_or_else(FoundThing::Failed)
    }

    /// The fault of a name that may stand on a missing target, by whose code the other side knows
    /// that nothing is known of the name. `None`: no target is missing.
    pub(super) fn away(&self) -> Option<Fault> {
        self.set.away().map(|error| Fault { code: FaultCode::TargetFailed, ..error.fault() })
    }

    /// The fault of a file that was not read. A body of a striped one may be on a missing target.
    pub(super) fn unread(&self, fault: Fault) -> Fault {
        match fault.code {
            FaultCode::Unsupported => self.away().unwrap_or(fault),
            _ => fault,
        }
    }
}

/// Refuses an order that no client gives which keeps to the rules.
pub(super) fn need_sound(names: &[RelPath]) -> Result<(), Fault> {
    if names.is_empty() || names.len() > READING_NAMES_MAX || names.iter().any(RelPath::is_root) {
        return Err(Fault::protocol("an order about no name, about more than there may be, or about the top itself"));
    }
    if names.iter().collect::<HashSet<_>>().len() < names.len() {
        return Err(Fault::protocol("an order that has one name several times"));
    }
    Ok(())
}

fn need_going(stop: &Stop) -> Result<(), Fault> {
    stop.pulled().map_or(Ok(()), |code| Err(stopped(code)))
}

fn came_meanwhile(name: &RelPath) -> Fault {
    let why = format_args!("'{}' came to stand there while others were read", name.escaped());
    Fault::new(FaultCode::Changed, Blame::Local, why).about(name.escaped())
}
