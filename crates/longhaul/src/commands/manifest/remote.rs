//! `manifest make` of a directory at a daemon: names, lengths and times, as the daemon lists them.
//!
//! In: a location. Out: a sealed manifest. A few directories are listed at a time, and the crate of
//! manifests keeps what was listed, so that a run that was stopped goes on. Files are not read. A
//! daemon may be a stranger: what it lists takes bounded memory.

mod proved;
mod width;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode, Filter, RelPath};
use longhaul_engine::{Listed, ListedKind, Reach, Remote, RemotePath, Stop, list};
use longhaul_manifest::{
    Collecting, Collection, CollectionStart, DirItems, Item, ItemKind, ManifestError, Sealed, Sums, is_unfinished,
};
use tokio::sync::Notify;

use self::proved::ProvedKey;
use self::width::{ListingWidth, WIDER_AFTER};
use super::{Output, SORT_BYTES, computed, fault, filter};
use crate::cli::ManifestMakeArgs;
use crate::commands::{Context, block_on};
use crate::error::Error;
use crate::exit::Exit;
use crate::keys;
use crate::location::DaemonPath;
use crate::output::Talker;
use crate::settings::{self, Layers, Talk};
use crate::signals::{self, Asking, Hangup};

/// Makes the manifest.
///
/// # Errors
/// A value that cannot be used, or a daemon that is not known.
pub(super) fn make(
    daemon: &DaemonPath,
    args: &ManifestMakeArgs,
    layers: &Layers,
    talk: Talk,
    context: Context,
    mut telling: Output,
) -> Result<Exit, Error> {
    if !computed(args.checksum.as_ref())?.is_empty() || args.kept_checksums {
        let why = "a daemon lists names, lengths and times, and no checksums";
        return Err(Error::Combination { why, hint: "run 'longhaul manifest make --checksum' on the daemon's host" });
    }
    let Some(path) = daemon.path.clone() else {
        let why = "a manifest is of one tree, and the location names a daemon alone";
        return Err(Error::Combination { why, hint: "name a root of it: lh://HOST/ROOT/" });
    };
    let (out, filter) = (PathBuf::from(&args.out), filter(&args.filters.rules)?);
    let asking = Asking::default();
    let keys = settings::keys(&args.keys, layers)?;
    let remote = keys::remote(daemon, &keys, &context.places(), Talker::new(talk), &asking)?;
    let (trigger, stop) = Stop::new();
    signals::watch(asking.clone(), Hangup::Stops, move |code| trigger.stop(code))
        .map_err(Error::file("watch the signals of", "this process"))?;
    let sealed = block_on(gather((&remote, path), filter, &out, &stop, &mut telling))?;
    asking.end();
    match sealed {
        Ok(sealed) => telling.made(&out, &sealed),
        Err(fault) if fault.hint.is_none() && is_unfinished(&out) => telling.failed(&fault.hint_in_words(GOES_ON)),
        Err(fault) => telling.failed(&fault),
    }
    Ok(telling.end())
}

/// Lists a tree at a daemon as a manifest in `out`, and tells what could not be read. Goes on with
/// what an earlier run has listed there.
///
/// # Errors
/// The fault that ended it.
pub(in crate::commands) async fn gather(
    (remote, top): (&Remote, RemotePath),
    filter: Filter,
    out: &Path,
    stop: &Stop,
    telling: &mut Output,
) -> Result<Sealed, Fault> {
    let tree = named(remote, &top);
    let asked = Collecting { out, tree, filter: &filter, waiting_bytes_max: WAITING_BYTES_MAX };
    let started = Collection::open(&asked, &mut |omitted| telling.omitted(omitted));
    let collection = match started.map_err(|error| fault(&error))? {
        CollectionStart::Goes(collection) => *collection,
        CollectionStart::Made(made) => {
            telling.resumed(made.items_resumed);
            return Ok(made.sealed);
        }
    };
    telling.resumed(collection.resumed());
    let (now, under_way) = (Instant::now(), 0);
    let width = ListingWidth::new(now);
    let has_refused = false;
    let state = GatheringState { collection, telling, under_way, width, has_refused, items: 0, bytes: 0, told: now };
    let (state, changed) = (RefCell::new(state), Notify::new());
    let (remote, proved) = ProvedKey::noted(remote);
    let gathering = Gathering { remote, proved, top, filter, stop, state, changed };
    gathering.all().await?;
    sealed(gathering.state.into_inner().collection, stop.clone()).await
}

/// Seals what was listed, unless a stop comes before.
async fn sealed(collection: Collection, mut stop: Stop) -> Result<Sealed, Fault> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_stopped);
    let mut sealing =
        tokio::task::spawn_blocking(move || collection.seal(SORT_BYTES, &|| asked.load(Ordering::Relaxed)));
    let (sealed, code) = tokio::select! {
        biased;
        code = stop.stopped() => {
            is_stopped.store(true, Ordering::Relaxed);
            (sealing.await, Some(code))
        }
        sealed = &mut sealing => (sealed, None),
    };
    let sealed = sealed.map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))?;
    sealed.map(|made| made.sealed).map_err(|error| match code {
        Some(code) if matches!(error, ManifestError::Stopped) => Fault { code, ..fault(&error) },
        _ => fault(&error),
    })
}

/// The name of a tree at a daemon, by which a later run knows that it is the same.
fn named(remote: &Remote, top: &RemotePath) -> Vec<u8> {
    let daemon = match &remote.reach {
        Reach::Address { host, port } => format!("lh://{host}:{port}"),
        other => format!("{other:?}"),
    };
    [daemon.as_bytes(), b"/", top.root.as_bytes(), b"/", top.path.as_bytes()].concat()
}

/// A tree being gathered.
struct Gathering<'g, 't> {
    remote: Remote,
    proved: Arc<ProvedKey>,
    top: RemotePath,
    filter: Filter,
    stop: &'g Stop,
    state: RefCell<GatheringState<'t>>,
    /// Told whenever a directory has ended, or waits again.
    changed: Notify,
}

/// Names that were gathered, and directories under way.
struct GatheringState<'t> {
    collection: Collection,
    telling: &'t mut Output,
    /// Directories that are being listed.
    under_way: usize,
    /// Directories that may be.
    width: ListingWidth,
    /// Whether a directory was left out as the daemon has it no more, or not for this key.
    has_refused: bool,
    items: u64,
    bytes: u64,
    /// The time at which it was told how far it is.
    told: Instant,
}

/// The failure of a listing.
enum ListingFailure {
    /// On this side, or by a breach of the protocol: it ends the run.
    Here(Fault),
    /// As the daemon said, or as the way to it failed.
    There(Fault),
}

/// The way in which the listing of a directory ended.
enum DirEnd {
    Listed,
    /// It cannot be listed, and the others can.
    LeftOut(Fault),
    /// The daemon is busy with others of this run, and it is asked for behind them.
    Waits,
}

impl Gathering<'_, '_> {
    /// Lists all directories that are not done.
    async fn all(&self) -> Result<(), Fault> {
        let is_resumed = self.state.borrow().collection.is_resumed();
        let waits = self.state.borrow().collection.has_waiting();
        // The first conversation is alone: the user may be asked about the daemon's key, and one
        // who may not list the top is told that of all, and not of each directory.
        if waits && is_resumed {
            self.need_same_tree().await?;
        } else if !is_resumed && let Some(listed) = self.begin() {
            self.directory(listed).await?;
        }
        // As many as the width is at most.
        tokio::try_join!(self.in_turn(), self.in_turn(), self.in_turn())?;
        // Whatever took the whole tree away meanwhile, or this key's right to it, was told of each
        // directory.
        if self.state.borrow().has_refused {
            self.look(may_pass, &mut |_| ControlFlow::Break(())).await?;
        }
        Ok(())
    }

    /// Needs a directory at the top that was there when the record was begun. A mount point without
    /// its file system has none, and all that waits would be left out.
    async fn need_same_tree(&self) -> Result<(), Fault> {
        let mut is_same = false;
        let mut sink = |page: Vec<Listed>| {
            let state = self.state.borrow();
            is_same |= page.iter().any(|name| name.kind == ListedKind::Dir && state.collection.had_at_top(&name.name));
            if is_same { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.look(is_busy, &mut sink).await?;
        self.need_same_daemon()?;
        if is_same { Ok(()) } else { Err(fault(&self.state.borrow().collection.other("tree"))) }
    }

    /// Needs the daemon to be the one by which the record was begun, or has it noted there.
    fn need_same_daemon(&self) -> Result<(), Fault> {
        let Some(key) = self.proved.get() else { return Ok(()) };
        self.state.borrow_mut().collection.need_lister(key.as_bytes()).map_err(|error| fault(&error))
    }

    /// Has `sink` look at the names at the top, some times more after a failure that `passes`.
    async fn look(
        &self,
        passes: fn(FaultCode) -> bool,
        sink: &mut dyn FnMut(Vec<Listed>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let mut pauses = PAUSES.iter();
        loop {
            let looked = list(self.remote.clone(), Some(self.top.clone()), self.stop.clone(), &mut *sink).await;
            let Err(fault) = looked else { return Ok(()) };
            if is_busy(fault.code) {
                self.state.borrow_mut().narrowed();
            }
            let Some(pause) = pauses.next().filter(|_| passes(fault.code)) else { return Err(fault) };
            self.pause(*pause).await;
        }
    }

    /// Lists directories, one after the other, until none waits and none is under way.
    async fn in_turn(&self) -> Result<(), Fault> {
        loop {
            match self.begin() {
                Some(listed) => self.directory(listed).await?,
                None if self.state.borrow().under_way == 0 => return Ok(()),
                // None waits, or no more are listed at a time just now.
                None => {
                    let _ = tokio::time::timeout(WIDER_AFTER, self.changed.notified()).await;
                }
            }
        }
    }

    /// Begins with a directory, if one waits and one more may be listed.
    fn begin(&self) -> Option<DirItems> {
        let mut state = self.state.borrow_mut();
        let under_way = state.under_way;
        if !state.width.has_room(under_way, Instant::now()) {
            return None;
        }
        let listed = state.collection.begin()?;
        state.under_way += 1;
        Some(listed)
    }

    /// Lists a directory, or tells why it cannot be listed.
    async fn directory(&self, mut listed: DirItems) -> Result<(), Fault> {
        let ended = self.tried(&mut listed).await?;
        self.need_same_daemon()?;
        self.state.borrow_mut().end(listed, ended)?;
        self.changed.notify_waiters();
        Ok(())
    }

    /// Lists a directory. A daemon that has listed the top is asked some times more, and one that
    /// is busy with others of this run is asked when these have ended.
    async fn tried(&self, listed: &mut DirItems) -> Result<DirEnd, Fault> {
        let dir = listed.dir().clone();
        let Ok(at) = self.top.path.concat(&dir) else {
            let why = "the path is longer than one may be";
            let fault = Fault::new(FaultCode::Unsupported, Blame::Peer, why).about(dir.escaped());
            return Ok(DirEnd::LeftOut(fault));
        };
        let passes: fn(FaultCode) -> bool = if dir.is_root() { is_busy } else { may_pass };
        let mut pauses = PAUSES.iter();
        loop {
            let fault = match self.listed(&at, listed).await {
                Ok(()) => return Ok(DirEnd::Listed),
                Err(ListingFailure::Here(fault)) => return Err(fault),
                Err(ListingFailure::There(fault)) => fault,
            };
            // One directory of many: it is told, and the rest is listed.
            if !dir.is_root() && is_of_one(fault.code) {
                return Ok(DirEnd::LeftOut(fault));
            }
            // It is no failure while another one of this run has a place there.
            if is_busy(fault.code) && self.state.borrow_mut().narrowed() {
                return Ok(DirEnd::Waits);
            }
            let Some(pause) = pauses.next().filter(|_| passes(fault.code)) else { return Err(fault) };
            // What was given already comes again, and may have changed.
            self.state.borrow_mut().collection.begin_again(listed);
            self.pause(*pause).await;
        }
    }

    /// Waits, or is stopped meanwhile: the next listing says so.
    async fn pause(&self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.stop.clone().stopped()).await;
    }

    /// Lists a directory once.
    async fn listed(&self, at: &RelPath, listed: &mut DirItems) -> Result<(), ListingFailure> {
        let (mut names, mut failed) = (NamesHeard::default(), None);
        let sink = |page: Vec<Listed>| {
            let taken = page.into_iter().try_for_each(|name| {
                names.hear(&name, listed.dir())?;
                self.take(listed, name)
            });
            match taken {
                Ok(()) => ControlFlow::Continue(()),
                Err(fault) => {
                    failed = Some(fault);
                    ControlFlow::Break(())
                }
            }
        };
        let heard = list(self.remote.clone(), Some(self.at(at.clone())), self.stop.clone(), sink).await;
        if let Some(fault) = failed {
            return Err(ListingFailure::Here(fault));
        }
        heard.map_err(ListingFailure::There)?;
        match names.lone_namesake(listed.dir()).and_then(|name| at.join(name).ok()) {
            Some(inner) => self.need_dir(inner, listed.dir()).await,
            None => Ok(()),
        }
    }

    /// Finds out whether a directory has something at a path in it: a path that is no directory is
    /// listed as the one name that it has itself.
    async fn need_dir(&self, inner: RelPath, dir: &RelPath) -> Result<(), ListingFailure> {
        let sink = |_| ControlFlow::Break(());
        match list(self.remote.clone(), Some(self.at(inner)), self.stop.clone(), sink).await {
            Err(fault) if matches!(fault.code, FaultCode::NotFound | FaultCode::InTheWay) => {
                let why = format!("'{}' was a directory when it was found, and is none any more", dir.escaped());
                let fault = Fault::new(FaultCode::InTheWay, Blame::Peer, why).about(dir.escaped());
                Err(ListingFailure::There(fault))
            }
            looked => looked.map_err(ListingFailure::There),
        }
    }

    fn at(&self, path: RelPath) -> RemotePath {
        RemotePath { root: self.top.root.clone(), path, slash: true }
    }

    /// Takes a name that was listed in a directory.
    fn take(&self, to: &mut DirItems, listed: Listed) -> Result<(), Fault> {
        let mut state = self.state.borrow_mut();
        let path = match to.dir().join(&listed.name) {
            Ok(path) => path,
            Err(why) => {
                let fault = Fault::new(FaultCode::Unsupported, Blame::Peer, why).about(to.dir().escaped());
                return state.omit(to, &fault);
            }
        };
        let is_dir = matches!(listed.kind, ListedKind::Dir);
        if !self.filter.verdict(&path, is_dir) {
            return Ok(());
        }
        let kind = match listed.kind {
            ListedKind::File => ItemKind::File { bytes: Some(listed.len) },
            ListedKind::Dir => ItemKind::Dir,
            ListedKind::Symlink { target } => ItemKind::Link { target },
            _ => {
                state.telling.skipped(path.as_bytes(), "fifo, socket or device");
                return Ok(());
            }
        };
        let mtime = if is_dir { None } else { Some(listed.meta.mtime) };
        let item = Item { path, kind, mtime, sums: Sums::default() };
        if let Some(why) = item.flaw() {
            let message = format!("'{}' cannot be listed: {why}", item.path.escaped());
            let fault = Fault::new(FaultCode::Unsupported, Blame::Peer, message).about(item.path.escaped());
            return state.omit(to, &fault);
        }
        state.add(to, &item)
    }
}

impl GatheringState<'_> {
    fn add(&mut self, to: &mut DirItems, item: &Item) -> Result<(), Fault> {
        self.items += 1;
        self.bytes = self.bytes.saturating_add(item.bytes());
        if self.told.elapsed() >= PROGRESS_EVERY {
            self.told = Instant::now();
            self.telling.progress(self.items, self.bytes);
        }
        self.collection.add(to, item).map_err(|error| match error {
            ManifestError::TooManyDirs { max_mib } => too_many(max_mib),
            error => fault(&error),
        })
    }

    /// Leaves out a name.
    fn omit(&mut self, from: &mut DirItems, omitted: &Fault) -> Result<(), Fault> {
        self.telling.omitted(omitted);
        self.collection.omit(from, omitted).map_err(|error| fault(&error))
    }

    /// Has fewer directories listed at a time, as the daemon is busy. Gives whether others are
    /// being listed.
    fn narrowed(&mut self) -> bool {
        let others = self.under_way.saturating_sub(1);
        self.width.narrow(others, Instant::now());
        others > 0
    }

    /// Ends with a directory.
    fn end(&mut self, listed: DirItems, end: DirEnd) -> Result<(), Fault> {
        self.under_way -= 1;
        match end {
            DirEnd::Listed => return self.collection.done(listed).map_err(|error| fault(&error)),
            DirEnd::LeftOut(omitted) => {
                self.has_refused |= is_of_one(omitted.code);
                self.telling.omitted(&omitted);
                self.collection.leave_out(listed);
            }
            DirEnd::Waits => self.collection.put_back(listed),
        }
        Ok(())
    }
}

/// The names of a listing so far.
#[derive(Default)]
struct NamesHeard {
    count: u64,
    last: Vec<u8>,
    is_dir: bool,
}

impl NamesHeard {
    /// Hears a name in a directory, which must follow the one before.
    fn hear(&mut self, listed: &Listed, dir: &RelPath) -> Result<(), Fault> {
        if self.count > 0 && listed.name <= self.last {
            let why = "a listing that is not in order, or has a name twice";
            return Err(Fault::protocol(why).about(dir.escaped()));
        }
        self.count += 1;
        self.last.clone_from(&listed.name);
        self.is_dir = matches!(listed.kind, ListedKind::Dir);
        Ok(())
    }

    /// The only name, if it is that of the directory itself and of something else.
    fn lone_namesake(&self, dir: &RelPath) -> Option<&[u8]> {
        let is_lone = self.count == 1 && !self.is_dir && dir.name() == Some(self.last.as_slice());
        is_lone.then_some(self.last.as_slice())
    }
}

fn too_many(max_mib: usize) -> Fault {
    let message = format!("the daemon lists too many directories: the names of those to come take over {max_mib} MiB");
    let hint = "run 'longhaul manifest make' on the daemon's host, or list a directory beneath that one";
    Fault::new(FaultCode::Unsupported, Blame::Peer, message).hint_in_words(hint)
}

/// Whether a failure is that of one directory alone.
fn is_of_one(code: FaultCode) -> bool {
    matches!(code, FaultCode::Denied | FaultCode::NotFound | FaultCode::InTheWay)
}

/// Whether a failure is that all listings are in use which the daemon has for this key.
fn is_busy(code: FaultCode) -> bool {
    code == FaultCode::Busy
}

/// Whether a failure may be over soon.
fn may_pass(code: FaultCode) -> bool {
    matches!(code, FaultCode::Busy | FaultCode::Lost | FaultCode::TimedOut | FaultCode::Unreachable)
}

/// The next step behind a run that ended early.
const GOES_ON: &str = "run the same command again; it goes on";
/// Memory of the directories that wait: a million or two.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// The pauses before a directory is asked for once more.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(10)];
/// The time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
