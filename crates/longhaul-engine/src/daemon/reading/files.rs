//! Looks at files of a root, reads them past the page cache, and lists directories.
//!
//! In: names beneath the path of a conversation. Out: findings by their place in the order, as they
//! come, and pages of names. Follows no link. Knows neither the connection nor what a file should
//! be.

use std::collections::{HashMap, HashSet};
use std::iter::Peekable;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use longhaul_core::limits::READING_NAMES_MAX;
use longhaul_core::{Blame, ByteCount, Fault, FaultCode, PathList, RelPath};
use longhaul_disk::{DirectMode, FsSource, Lister, SourceTree, Standing, TargetSet};
use longhaul_proto::wire::message::{FoundName, FoundThing, Listing, ReadOrder};
use tokio::sync::mpsc::UnboundedSender;

use super::pace::{ReadingPace, begun_at_once, owed};
use crate::api::{Event, FileEvent, FileStatus, Observer, Settings, Stop, StopTrigger};
use crate::client::digests::digest_tree;
use crate::daemon::audit::SessionAudit;
use crate::daemon::audit::source::RecordedSource;
use crate::name_page::{NAMES_BYTES, name_page};
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
    /// The rate at which files are read at most.
    pub(super) pace: ReadingPace,
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
        let asked = order.rate;
        let (stray, strayed) = Stop::new();
        let unread = Arc::new(Unread::new(self.clone(), order.names, (sink, stray)));
        let (tree, files, going) = (self.clone(), unread.clone(), stop.clone());
        // A directory in the list would mean everything in it.
        let names = blocking(move || {
            let looked = files.names().into_iter().map(|name| {
                need_going(&going)?;
                match tree.look(&name) {
                    FoundThing::File { bytes, .. } => Ok(Some((name, bytes))),
                    found => {
                        files.found(&name, found);
                        Ok(None)
                    }
                }
            });
            looked.filter_map(Result::transpose).collect::<Result<Vec<_>, Fault>>()
        });
        let mut names = names.await?.into_iter().peekable();
        while names.peek().is_some() {
            self.read_some((&mut names, asked), &unread, (stop.clone(), &strayed)).await?;
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

    /// Reads the next of these files at the rate of now: those that are read in some seconds, one
    /// at least. Takes as long as they take at that rate.
    async fn read_some(
        self: &Arc<ReadingTree>,
        (names, asked): (&mut Peekable<impl Iterator<Item = (RelPath, u64)>>, u64),
        unread: &Arc<Unread>,
        (mut stop, strayed): (Stop, &Stop),
    ) -> Result<(), Fault> {
        let (rate, begun) = (self.pace.now(asked), Instant::now());
        let (most, mut bytes, mut some) = (rate.map_or(u64::MAX, begun_at_once), 0_u64, Vec::new());
        while let Some((name, len)) = names.next_if(|(_, len)| bytes == 0 || bytes.saturating_add(*len) <= most) {
            bytes = bytes.saturating_add(len);
            some.push(name);
        }
        let before = unread.bytes.load(Ordering::Relaxed);
        let either = stop.clone().or(strayed.clone());
        let read = digest_tree(self.source(), self.settings(&some, rate), unread.clone(), either).await;
        if strayed.pulled().is_some() {
            let why = "a file became a directory as it was to be read";
            return Err(Fault::new(FaultCode::Changed, Blame::Local, why).about(self.base.escaped()));
        }
        read?;
        if let Some(rate) = rate {
            let bytes = unread.bytes.load(Ordering::Relaxed).saturating_sub(before);
            tokio::select! {
                _ = stop.stopped() => {}
                () = tokio::time::sleep(owed(bytes, rate, begun)) => {}
            }
        }
        Ok(())
    }

    fn source(&self) -> Arc<dyn SourceTree> {
        let source = FsSource::beneath(vec![(self.set.clone(), self.base.clone(), true)], self.direct);
        RecordedSource::over(Arc::new(source.called([&*self.named])), self.audit.clone())
    }

    fn settings(&self, names: &[RelPath], rate: Option<u64>) -> Settings {
        Settings {
            files_from: Some(Arc::new(PathList::new(names))),
            rate,
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
    fn away(&self) -> Option<Fault> {
        self.set.away().map(|error| Fault { code: FaultCode::TargetFailed, ..error.fault() })
    }

    /// The fault of a file that was not read. A body of a striped one may be on a missing target.
    fn unread(&self, fault: Fault) -> Fault {
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
    let ended = |code| Err(Fault::new(code, Blame::Local, "the daemon ends this conversation"));
    stop.pulled().map_or(Ok(()), ended)
}

fn came_meanwhile(name: &RelPath) -> Fault {
    let why = format_args!("'{}' came to stand there while others were read", name.escaped());
    Fault::new(FaultCode::Changed, Blame::Local, why).about(name.escaped())
}

/// The names of an order that were not told yet. Hears of the files that the engine reads.
struct Unread {
    tree: Arc<ReadingTree>,
    /// All names of the order.
    asked: HashSet<RelPath>,
    places: Mutex<HashMap<RelPath, u32>>,
    /// Bytes of files that were read.
    bytes: AtomicU64,
    sink: UnboundedSender<FoundName>,
    /// Ends a reading of files that nobody asked about.
    stray: StopTrigger,
}

impl Unread {
    fn new(
        tree: Arc<ReadingTree>,
        names: Vec<RelPath>,
        (sink, stray): (UnboundedSender<FoundName>, StopTrigger),
    ) -> Unread {
        let asked = names.iter().cloned().collect();
        let places = Mutex::new(names.into_iter().zip(0..).collect());
        Unread { tree, asked, places, bytes: AtomicU64::new(0), sink, stray }
    }

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
            (FileStatus::Failed(fault), _) => self.found(&path, FoundThing::Failed(self.tree.unread(fault))),
            // A directory has come in place of a file, and the list means everything in it.
            (_, Some(_)) if !self.asked.contains(&path) => self.stray.stop(FaultCode::Changed),
            (_, Some(b3)) => {
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                self.found(&path, FoundThing::Read { bytes, b3 });
            }
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
    /// `None`: it is no directory, or over.
    lister: Option<Lister>,
    unwanted: Arc<AtomicBool>,
    /// Bytes of names that are held between pages.
    held: usize,
}

impl NamesListed {
    /// Nothing is listed yet.
    ///
    /// # Errors
    /// The fault of a directory that cannot be listed.
    pub(super) async fn open(tree: Arc<ReadingTree>, dir: RelPath) -> Result<NamesListed, Fault> {
        // Nothing else is read meanwhile. Each reading of a large directory costs as much as the
        // first, and with more memory there are fewer.
        let half = usize::try_from(tree.memory.get() / 2).unwrap_or(usize::MAX);
        let held = half.clamp(LISTED_BYTES, NAMES_BYTES);
        let lister = blocking(move || {
            let path = tree.base.concat(&dir);
            let path = path.map_err(|error| Fault::new(FaultCode::Unsupported, Blame::Peer, error))?;
            match (tree.set.stat(&path)?, tree.away()) {
                (Some(Standing::Dir { .. }), _) => Ok(Some(Lister::new(&tree.set, &path)?)),
                (None, Some(fault)) => Err(fault),
                _ => Ok(None),
            }
        });
        let lister = lister.await?;
        let unwanted = lister.as_ref().map_or_else(Arc::default, Lister::unwanted);
        Ok(NamesListed { lister, unwanted, held })
    }

    /// The flag that ends a page which is being read.
    pub(super) fn unwanted(&self) -> Arc<AtomicBool> {
        self.unwanted.clone()
    }

    /// The next page. One that is no directory has no names.
    ///
    /// # Errors
    /// The fault of a directory that cannot be listed.
    pub(super) async fn next(&mut self) -> Result<Listing, Fault> {
        let Some(mut lister) = self.lister.take() else { return Ok(Listing { names: Vec::new(), last: true }) };
        let held = self.held;
        let read = blocking(move || {
            let names = name_page(&mut lister, held)?;
            Ok((Listing { names, last: lister.is_over() }, lister))
        });
        let (page, lister) = read.await?;
        self.lister = Some(lister);
        Ok(page)
    }
}

/// Bytes of names of a directory that are held between pages, as a listing has them at first.
const LISTED_BYTES: usize = 1 << 20;
