//! Looks at files of a root, reads them past the page cache, and lists directories.
//!
//! In: names beneath the path of a conversation. Out: findings by their place in the order, as they
//! come, and pages of names. Follows no link. Knows neither the connection nor what a file should
//! be.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::limits::READING_NAMES_MAX;
use longhaul_core::{Blame, ByteCount, Fault, FaultCode, PathList, RelPath};
use longhaul_disk::{DirectMode, FsSource, Lister, SourceTree, Standing, TargetSet};
use longhaul_proto::wire::message::{FoundName, FoundThing, Listing, ReadOrder};
use tokio::sync::mpsc::UnboundedSender;

use crate::api::{Event, FileEvent, FileStatus, Observer, RATE_MIN, Settings, Stop};
use crate::client::digests::digest_tree;
use crate::daemon::audit::SessionAudit;
use crate::daemon::audit::source::RecordedSource;
use crate::name_page::name_page;
use crate::workers::blocking;

/// The files of a root as a conversation reaches them.
pub(super) struct ReadingTree {
    pub(super) set: Arc<TargetSet>,
    /// The path beneath the root beneath which names are asked for.
    pub(super) base: RelPath,
    /// The name of the root.
    pub(super) named: String,
    pub(super) direct: DirectMode,
    /// Bytes of buffers.
    pub(super) memory: ByteCount,
    /// The rate at which files are read at most, bytes/s. `None`: as fast as it goes.
    pub(super) rate: Option<u64>,
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
                None => refused(FaultCode::NotFound, "there is no such directory"),
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
        sink: &UnboundedSender<FoundName>,
        stop: Stop,
    ) -> Result<(), Fault> {
        let (tree, sink) = (self.clone(), sink.clone());
        blocking(move || {
            for (at, name) in (0..).zip(&names) {
                need_going(&stop)?;
                // Nobody hears it once the conversation is over.
                let _ = sink.send(FoundName { at, found: tree.look(name) });
            }
            Ok(())
        })
        .await
    }

    /// Reads files. Names that no file has are found so.
    ///
    /// # Errors
    /// The fault of a reading that concerns no single file.
    pub(super) async fn read(
        self: &Arc<ReadingTree>,
        order: ReadOrder,
        sink: UnboundedSender<FoundName>,
        stop: Stop,
    ) -> Result<(), Fault> {
        let unread = Arc::new(Unread { places: Mutex::new(places(order.names)), sink });
        let (tree, files, going) = (self.clone(), unread.clone(), stop.clone());
        // A directory in the list would mean everything in it.
        let names = blocking(move || {
            let looked = files.names().into_iter().map(|name| {
                need_going(&going)?;
                let found = tree.look(&name);
                let is_file = matches!(found, FoundThing::File { .. });
                if !is_file {
                    files.found(&name, found);
                }
                Ok(is_file.then_some(name))
            });
            looked.filter_map(Result::transpose).collect::<Result<Vec<_>, Fault>>()
        });
        let names = names.await?;
        if !names.is_empty() {
            digest_tree(self.source(), self.settings(&names, order.rate), unread.clone(), stop.clone()).await?;
        }
        let tree = self.clone();
        blocking(move || {
            for name in unread.names() {
                need_going(&stop)?;
                let found = match tree.look(&name) {
                    FoundThing::File { .. } => FoundThing::Failed(came_meanwhile(&name)),
                    other => other,
                };
                unread.found(&name, found);
            }
            Ok(())
        })
        .await
    }

    fn source(&self) -> Arc<dyn SourceTree> {
        let source = FsSource::beneath(vec![(self.set.clone(), self.base.clone(), true)], self.direct);
        RecordedSource::over(Arc::new(source.called([&*self.named])), self.audit.clone())
    }

    fn settings(&self, names: &[RelPath], asked: u64) -> Settings {
        let asked = (asked > 0).then_some(asked);
        Settings {
            files_from: Some(Arc::new(PathList::new(names))),
            rate: [asked, self.rate].into_iter().flatten().min().map(|rate| rate.max(RATE_MIN)),
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
                None => FoundThing::Absent,
                Some(Standing::File { len, meta, .. }) => FoundThing::File { bytes: len, mtime: meta.mtime },
                Some(Standing::Symlink { target, .. }) => FoundThing::Link { target },
                Some(Standing::Dir { .. }) => FoundThing::Dir,
                Some(Standing::Special { .. }) => FoundThing::Special,
            })
        };
        looked().unwrap_or_else(FoundThing::Failed)
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
    let ended = |code| Err(Fault::new(code, Blame::Local, "the daemon ends this conversation"));
    stop.pulled().map_or(Ok(()), ended)
}

fn came_meanwhile(name: &RelPath) -> Fault {
    let why = format_args!("'{}' came to stand there while others were read", name.escaped());
    Fault::new(FaultCode::Changed, Blame::Local, why).about(name.escaped())
}

fn places(names: Vec<RelPath>) -> HashMap<RelPath, u32> {
    names.into_iter().zip(0..).collect()
}

/// The names of an order that were not told yet. Hears of the files that the engine reads.
struct Unread {
    places: Mutex<HashMap<RelPath, u32>>,
    sink: UnboundedSender<FoundName>,
}

impl Unread {
    /// The names, in their order.
    fn names(&self) -> Vec<RelPath> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<_> = places.iter().map(|(name, at)| (*at, name.clone())).collect();
        names.sort_unstable_by_key(|(at, _)| *at);
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Tells a name, unless it was told.
    fn found(&self, name: &RelPath, found: FoundThing) {
        let at = self.places.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        if let Some(at) = at {
            // Nobody hears it once the conversation is over.
            let _ = self.sink.send(FoundName { at, found });
        }
    }
}

impl Observer for Unread {
    fn event(&self, event: Event) {
        let Event::File(FileEvent { path, status, bytes, b3, .. }) = event else { return };
        match (status, b3) {
            // What stands there now is looked for at the end.
            (FileStatus::Failed(fault), _) if is_absence(fault.code) => {}
            (FileStatus::Failed(fault), _) => self.found(&path, FoundThing::Failed(fault)),
            (_, Some(b3)) => self.found(&path, FoundThing::Read { bytes, b3 }),
            (_, None) => {}
        }
    }
}

/// Whether a name failed because nothing stands there, or no file does.
fn is_absence(code: FaultCode) -> bool {
    matches!(code, FaultCode::NotFound | FaultCode::Vanished | FaultCode::InTheWay)
}

/// The names of a directory, a page at a time.
pub(super) struct NamesListed {
    tree: Arc<ReadingTree>,
    dir: RelPath,
    /// `None` before the first page.
    lister: Option<Lister>,
}

impl NamesListed {
    /// Nothing is listed yet.
    pub(super) fn new(tree: Arc<ReadingTree>, dir: RelPath) -> NamesListed {
        NamesListed { tree, dir, lister: None }
    }

    /// The next page. One that is no directory has no names.
    ///
    /// # Errors
    /// The fault of a directory that cannot be listed.
    pub(super) async fn next(&mut self) -> Result<Listing, Fault> {
        let (tree, dir, lister) = (self.tree.clone(), self.dir.clone(), self.lister.take());
        let read = blocking(move || {
            let mut lister = match lister {
                Some(lister) => lister,
                None => {
                    let path = tree.base.concat(&dir);
                    let path = path.map_err(|error| Fault::new(FaultCode::Unsupported, Blame::Peer, error))?;
                    if !matches!(tree.set.stat(&path)?, Some(Standing::Dir { .. })) {
                        return Ok((Listing { names: Vec::new(), last: true }, None));
                    }
                    Lister::new(&tree.set, &path)?
                }
            };
            let names = name_page(&mut lister, LISTED_BYTES)?;
            Ok((Listing { names, last: lister.is_over() }, Some(lister)))
        });
        let (page, lister) = read.await?;
        self.lister = lister;
        Ok(page)
    }
}

/// Bytes of names of a directory that are held between pages, as a listing has them at first.
const LISTED_BYTES: usize = 1 << 20;
