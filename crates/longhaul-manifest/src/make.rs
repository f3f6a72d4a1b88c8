//! The making of a manifest of a tree of this host: a parallel scan that gives its finds in the
//! order of their paths.
//!
//! In: a directory, the checksums and the filter that are asked for. Out: a [`Sealed`] manifest,
//! and faults to a [`Watcher`]. As finds come in order, each segment is whole as soon as it is
//! full, and a scan that was killed goes on behind the last item that it had written down.
//! `make/tree.rs` looks at directories and files, `make/walk.rs` has the order.

mod tree;
mod walk;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use longhaul_core::limits::SET_DIR_NAME;
use longhaul_core::{Fault, Filter, RelPath};

use crate::draft::Draft;
use crate::error::ManifestError;
use crate::head::{Lists, SEGMENT_ITEMS_MAX};
use crate::item::Item;
use crate::progress::{self, Progress, Terms};
use crate::sealed::Sealed;
use longhaul_core::checksum::Algorithms;
use longhaul_core::kept_sums::KeptSums;
use tree::{Listed, Reader, whole_path};
use walk::{Next, Patience, Walk};

/// A manifest that is asked for.
#[derive(Clone, Debug)]
pub struct Make {
    /// The directory whose content is listed. A link to one is followed.
    pub tree: PathBuf,
    /// The directory of the manifest. If it lies in the tree, it is left out.
    pub out: PathBuf,
    /// The checksums that each file is to have.
    pub sums: Algorithms,
    /// The use of checksums that are kept with files.
    pub kept: KeptUse,
    /// Where those are kept whose file systems keep none, in the order in which they are asked.
    pub elsewhere: Vec<Arc<dyn KeptElsewhere>>,
    /// The filter of names; an excluded directory is not entered.
    pub filter: Filter,
    /// Threads that list and read.
    pub threads: usize,
    /// Items of a segment.
    pub segment_items: u64,
}

impl Make {
    /// A manifest of all of `tree` in `out`, without checksums.
    pub fn new(tree: impl Into<PathBuf>, out: impl Into<PathBuf>) -> Make {
        let (sums, filter) = (Algorithms::default(), Filter::default());
        let threads = thread::available_parallelism().map_or(1, usize::from) * THREADS_PER_CPU;
        let threads = threads.clamp(2, THREADS_MAX);
        let (tree, out, segment_items) = (tree.into(), out.into(), SEGMENT_ITEMS_MAX);
        let (kept, elsewhere) = (KeptUse::Ignored, Vec::new());
        Make { tree, out, sums, kept, elsewhere, filter, threads, segment_items }
    }

    /// The checksums, and their use, in the words of the scan's terms.
    fn checksums(&self) -> String {
        match self.kept {
            KeptUse::Ignored => self.sums.to_string(),
            KeptUse::Believed => format!("{} kept", self.sums),
        }
    }
}

/// A place beside the tree in which a transfer kept checksums of files.
pub trait KeptElsewhere: std::fmt::Debug + Send + Sync {
    /// The checksums of an open file, with the length and the time that it had then. `None` if
    /// there are none of it.
    fn kept(&self, file: BorrowedFd<'_>) -> Option<KeptSums>;
}

/// The use of the checksums that a transfer kept with a file, in an extended attribute or
/// elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptUse {
    /// All that are wanted are computed.
    #[default]
    Ignored,
    /// They are believed where the file has the length and the time of then, and only what is
    /// wanted beside them is computed. Whoever may write to the file may have written them.
    Believed,
}

/// The watcher of a manifest being made.
pub trait Watcher: Sync {
    /// A name could not be read, and is in no segment.
    fn fault(&self, fault: &Fault);
    /// A name of a kind that is not listed: a fifo, a socket, a device, or a reserved name.
    fn skipped(&self, path: &RelPath, what: &'static str);
    /// An item was added.
    fn added(&self, item: &Item);
    /// Whether the scan is to end early. The same one goes on later.
    fn is_stopped(&self) -> bool;
}

/// A manifest that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The manifest.
    pub sealed: Sealed,
    /// Items that an earlier run had read already.
    pub items_resumed: u64,
}

/// The find of a scan on one name.
enum Find {
    Item(Item),
    Fault(Fault),
    Skipped(RelPath, &'static str),
}

/// Work for a thread of the scan.
enum Job {
    /// Lists a directory: the one at this place of an open one.
    List { above: Arc<Listed>, at: usize, reply: Sender<Result<Listed, Fault>> },
    /// Reads names of a directory.
    Read { listed: Arc<Listed>, from: usize, to: usize, reply: Sender<Vec<Find>> },
}

/// Finds that come in order, and the number of names that they are of.
struct Slot {
    finds: Receiver<Vec<Find>>,
    names: usize,
}

/// Makes a manifest, or goes on with one that an earlier run has begun.
///
/// # Errors
/// The error that ended it; [`ManifestError::Stopped`] if the watcher did. Names that cannot be
/// read end nothing.
pub fn make(make: &Make, watcher: &dyn Watcher) -> Result<Made, ManifestError> {
    let reader = Reader::open(make)?;
    if reader.has(SET_DIR_NAME) {
        return Err(ManifestError::OneTarget { path: make.tree.clone() });
    }
    if reader.is_top(&make.out) {
        return Err(ManifestError::OutIsTree { path: make.tree.clone() });
    }
    let terms = Terms {
        tree: whole_path(&make.tree)?,
        inode: reader.inode()?,
        checksums: make.checksums(),
        filter: format!("{:?}", make.filter.rules()),
    };
    let mut draft = Draft::hold(&make.out)?.with_segments_of(make.segment_items);
    if draft.is_sealed() {
        return sealed_already(&draft, &terms);
    }
    let reader = reader.leaving_out(draft.held());
    let mut progress = Progress::open(&mut draft, terms)?;
    let is_over = AtomicBool::new(false);
    let top = reader.top().map_err(ManifestError::file("list", &make.tree))?;
    thread::scope(|scope| {
        let (jobs, waiting) = unbounded();
        let spawn = |_| {
            let (waiting, reader, is_over) = (Receiver::clone(&waiting), &reader, &is_over);
            scope.spawn(move || work(&waiting, reader, &|| is_over.load(Ordering::Relaxed) || watcher.is_stopped()))
        };
        let threads: Vec<_> = (0..make.threads.max(1)).map(spawn).collect();
        // Jobs that no thread takes any more are dropped, and whoever waits for them is told.
        drop(waiting);
        let names_at_once = if make.sums.is_empty() { NAMES_OF_STAT } else { NAMES_OF_READ };
        let walk = Walk::new(jobs, top, draft.last().to_vec(), names_at_once);
        let ended = gather(walk, &mut draft, &mut progress, make.sums, watcher);
        is_over.store(true, Ordering::Relaxed);
        let has_panicked = threads.into_iter().map(|thread| thread.join().is_err()).fold(false, |all, one| all | one);
        if has_panicked { Err(ManifestError::Thread) } else { ended }
    })?;
    let (omitted, items_resumed) = (progress.omitted(), progress.resumed());
    let sealed = draft.finish(Lists::ALL, omitted)?;
    progress::remove(&draft)?;
    Ok(Made { sealed, items_resumed })
}

/// The manifest of a run that was killed when only its record was left to be removed.
fn sealed_already(draft: &Draft, terms: &Terms) -> Result<Made, ManifestError> {
    if !progress::remove_leftover(draft, terms)? {
        return Err(ManifestError::Stands { path: draft.dir().to_owned() });
    }
    let sealed = Sealed::open(draft.dir())?;
    Ok(Made { items_resumed: sealed.head().items(), sealed })
}

/// Takes finds in order, and gives the draft their items.
fn gather(
    mut walk: Walk,
    draft: &mut Draft,
    progress: &mut Progress,
    sums: Algorithms,
    watcher: &dyn Watcher,
) -> Result<(), ManifestError> {
    let (mut slots, mut names) = (VecDeque::new(), 0);
    let mut is_open = true;
    loop {
        while is_open && names < NAMES_AHEAD_MAX {
            match walk.next(patience(&slots)) {
                Next::Slot(slot) => {
                    names += slot.names;
                    slots.push_back(slot);
                }
                Next::NotYet => break,
                Next::Lost => return Err(ManifestError::Thread),
                Next::End => is_open = false,
            }
        }
        if watcher.is_stopped() {
            progress.flush()?;
            return Err(ManifestError::Stopped);
        }
        let Some(slot) = slots.pop_front() else { if is_open { continue } else { return Ok(()) } };
        names -= slot.names;
        // A thread that is gone has panicked, and its names would be missing.
        for find in slot.finds.recv().map_err(|_| ManifestError::Thread)? {
            take(find, draft, progress, sums, watcher)?;
        }
    }
}

/// A directory that is being listed is waited for if there is nothing else to do.
fn patience(slots: &VecDeque<Slot>) -> Patience {
    if slots.is_empty() { Patience::Waits } else { Patience::None }
}

fn take(
    find: Find,
    draft: &mut Draft,
    progress: &mut Progress,
    sums: Algorithms,
    watcher: &dyn Watcher,
) -> Result<(), ManifestError> {
    match find {
        Find::Item(item) => {
            watcher.added(&item);
            if let Some(finished) = draft.add(&item)? {
                return progress.finished(draft, finished);
            }
            // Without checksums a segment is read again as soon as it is read back.
            if sums.is_empty() { Ok(()) } else { progress.read(&item) }
        }
        Find::Fault(fault) => {
            progress.omit();
            watcher.fault(&fault);
            Ok(())
        }
        Find::Skipped(path, what) => {
            watcher.skipped(&path, what);
            Ok(())
        }
    }
}

/// A thread of the scan.
fn work(waiting: &Receiver<Job>, reader: &Reader, is_stopped: &dyn Fn() -> bool) {
    let mut buffer = vec![0; READ_BYTES];
    for job in waiting {
        // Whoever asked may be gone: the scan has ended then.
        match job {
            Job::List { above, at, reply } => drop(reply.send(reader.list(&above, at))),
            Job::Read { listed, from, to, reply } => {
                let mut finds = Vec::with_capacity(to - from);
                for at in from..to {
                    if is_stopped() {
                        break;
                    }
                    finds.extend(reader.read(&listed, at, &mut buffer, is_stopped));
                }
                drop(reply.send(finds));
            }
        }
    }
}

/// The whole path of a name in a tree, for people.
fn beneath(tree: &Path, path: &RelPath) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    tree.join(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

/// Threads for each CPU: a file server answers late, and a disk has a queue.
const THREADS_PER_CPU: usize = 4;
/// Threads of a scan at most.
const THREADS_MAX: usize = 64;
/// Names that one job looks at, and that one job reads.
const NAMES_OF_STAT: usize = 256;
const NAMES_OF_READ: usize = 16;
/// Names that are read ahead of the first one whose turn has not come: while one large file is
/// read, so many others may be.
const NAMES_AHEAD_MAX: usize = 32 << 10;
/// Bytes of a read of a file.
const READ_BYTES: usize = 1 << 20;
