//! Owns the part of a transfer that outlives its sessions, so that the initiator can dial again and
//! go on.
//!
//! A sending side keeps its scan and every entry without outcome; a receiving side remembers the
//! outcomes that it reported. Both keep the counters. In: the state of a session that ends. Out:
//! the state of the next one. It sends nothing and knows no connection.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use longhaul_core::filter::Filter;
use longhaul_core::limits::ENTRIES_UNSETTLED_MAX;
use longhaul_core::{AccountMap, Entry, EntryKind, Fault, PathList, Preserve};
use longhaul_disk::{NamesMemory, ScanRequest, Scanned, SourceTree, StreamSource};
use longhaul_proto::receiver::EntryRef;
use longhaul_proto::wire::message::Outcome;
use tokio::sync::mpsc;

use super::sender::first_page::{FirstPage, SaidPage};
use super::sent_stream::SentStream;
use super::source::Origin;
use super::staged_told::StagedTold;
use super::totals::Totals;
use crate::faults::system_fault;

/// The course of a sending side.
#[derive(Default)]
pub(crate) struct SendCourse {
    /// The counters of all sessions.
    pub(crate) totals: Totals,
    /// The last time that the receiver took, judged or settled anything.
    pub(crate) progressed: Option<Instant>,
    /// How the receiver maps names, once it has said so. `Some(Some(name))`: the one source gets
    /// this name; `Some(None)`: names stay as they are.
    pub(crate) renamed: Option<Option<Vec<u8>>>,
    /// Entries that were offered and have no outcome, in order. They are offered again before the
    /// scan goes on.
    pub(super) again: VecDeque<UnsettledEntry>,
    /// The stream that is sent. `None` where files are.
    pub(super) stream: Option<SentStream>,
    /// The memory of files with several names in the scan.
    pub(super) names_memory: Arc<NamesMemory>,
    /// An entry that was taken off the scan and is offered before the next one.
    pub(super) next: Option<Scanned>,
    /// The page that was said before the session began, and the machine that said it.
    pub(super) said: Option<SaidPage>,
    /// The files of a dataset of which it was told that they are staged.
    staged_told: StagedTold,
    scan: Scan,
}

#[derive(Default)]
enum Scan {
    #[default]
    ToBegin,
    Running(mpsc::Receiver<Scanned>),
    Over,
}

/// An entry without outcome, or a directory whose end has none.
#[derive(Clone)]
pub(super) struct UnsettledEntry {
    /// As the manifest names it.
    pub(super) held: Arc<EntryRef>,
    /// Where this side reads it, or why it cannot.
    pub(super) source: EntrySource,
    /// Whether an earlier session wanted its content, so that it did not stand there before.
    pub(super) begun: bool,
    /// Whether its failure was reported. A directory that failed is offered again for its content.
    pub(super) is_reported: bool,
}

/// Where this side reads an entry, or why it cannot.
#[derive(Clone)]
pub(super) enum EntrySource {
    /// It is read here. Its orders share this, so that a name is kept once however many of its
    /// chunks wait.
    Readable(Arc<Origin>),
    /// It cannot be read. The fault says more than the receiver is told.
    Failed(Fault),
    /// It is never read.
    Special,
}

/// The wishes for a scan.
pub(crate) struct ScanWish {
    /// The rules that select the entries to send.
    pub(crate) filter: Filter,
    /// Only these names are sent, if any are given.
    pub(crate) names: Option<Arc<PathList>>,
    /// Which metadata is kept, and whether links are sent.
    pub(crate) preserve: Preserve,
    /// How this side maps accounts.
    pub(crate) accounts: AccountMap,
}

impl ScanWish {
    /// A find with the accounts that it shall have at the destination.
    fn mapped(&self, mut scanned: Scanned) -> Scanned {
        if let Scanned::Entry { entry, .. } = &mut scanned
            && let Some(extras) = &mut entry.meta.extras
        {
            self.accounts.map(Arc::make_mut(extras));
        }
        scanned
    }

    /// The request that a source takes.
    pub(crate) fn request(&self) -> ScanRequest<'_> {
        ScanRequest { files_from: self.names.clone(), ..ScanRequest::of_all(&self.filter, self.preserve) }
    }
}

impl SendCourse {
    /// The course of a stream.
    pub(crate) fn of_stream(source: Arc<StreamSource>) -> SendCourse {
        SendCourse { stream: Some(SentStream::new(source)), ..SendCourse::default() }
    }

    /// Takes over the scan that began with a first page.
    pub(crate) fn began(&mut self, first: FirstPage) {
        let FirstPage { scan, names, next, said, .. } = first;
        said.kinds.iter().for_each(|kind| self.totals.found(kind));
        (self.next, self.names_memory) = (next, names);
        self.scan = Scan::Running(scan);
        if said.is_last {
            self.scan_is_over();
        }
        self.said = Some(said);
    }

    /// No session was agreed on: the entries of its first page are offered again in the next.
    pub(crate) fn offer_first_page_again(&mut self) {
        if let Some(said) = self.said.take() {
            let (unsettled, dirs) = said.offered.into_parts();
            self.keep(unsettled.map(|(_, known)| known), dirs);
        }
    }

    /// Has the next session offer every entry again, those with outcomes too: each session of a
    /// dataset lists the whole of it.
    pub(crate) fn offer_all_again(&mut self) {
        self.again.clear();
        (self.next, self.said, self.scan) = (None, None, Scan::ToBegin);
        self.staged_told.turn();
        self.totals.settle_anew();
    }

    /// Whether an earlier session of a dataset has told of an entry that only stands now.
    pub(super) fn has_told(&mut self, entry: &Entry, outcome: &Outcome) -> bool {
        let is_leaf = matches!(entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. });
        self.totals.stages_all && is_leaf && self.staged_told.is_known(entry, outcome)
    }

    /// Begins the scan, unless an earlier session did.
    pub(super) fn begin(&mut self, tree: Arc<dyn SourceTree>, wanted: ScanWish) -> Result<(), Fault> {
        self.totals.begin_session();
        if matches!(self.scan, Scan::ToBegin) {
            self.scan = Scan::Running(start_scan(tree, wanted, self.names_memory.clone())?);
        }
        Ok(())
    }

    /// The running scan. `None` if it has not begun or is over.
    pub(super) fn scan(&mut self) -> Option<&mut mpsc::Receiver<Scanned>> {
        match &mut self.scan {
            Scan::Running(scan) => Some(scan),
            _ => None,
        }
    }

    /// Records that the scan has given all its entries.
    pub(super) fn scan_is_over(&mut self) {
        self.scan = Scan::Over;
        self.totals.scanned = true;
    }

    /// Keeps entries without outcome, in the order of the manifest. Directories that were settled
    /// stand here too until their end is: a host that crashed may have forgotten that it made them.
    pub(super) fn keep(
        &mut self,
        unsettled: impl Iterator<Item = UnsettledEntry>,
        dirs: impl Iterator<Item = UnsettledEntry>,
    ) {
        let mut known: Vec<UnsettledEntry> = unsettled.chain(dirs).collect();
        known.sort_by_key(|known| known.held.id);
        // Entries that this session did not come to offer follow those that it offered.
        known.extend(std::mem::take(&mut self.again));
        self.again = known.into();
    }
}

/// Scanned entries that wait for the loop: enough for a page, so that a page fills without a wait
/// for each entry.
const SCAN_AHEAD: usize = 2 * longhaul_core::limits::PAGE_ENTRIES_MAX;

/// Begins a scan on a thread of its own, which counts in `names` what it remembers.
///
/// # Errors
/// A [`Fault`] if there is no thread for it.
pub(super) fn start_scan(
    tree: Arc<dyn SourceTree>,
    wanted: ScanWish,
    names: Arc<NamesMemory>,
) -> Result<mpsc::Receiver<Scanned>, Fault> {
    let (tx, rx) = mpsc::channel(SCAN_AHEAD);
    let scan = move || {
        let request = ScanRequest { names, ..wanted.request() };
        tree.scan(&request, &mut |scanned| match tx.blocking_send(wanted.mapped(scanned)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        });
    };
    std::thread::Builder::new()
        .name("scan".to_owned())
        .spawn(scan)
        .map_err(|e| system_fault("the scanning thread", &e))?;
    Ok(rx)
}

/// The course of a receiving side.
#[derive(Default)]
pub(crate) struct ReceiveCourse {
    /// The counters of all sessions.
    pub(crate) totals: Totals,
    /// The last time that anything arrived or was settled.
    pub(crate) progressed: Option<Instant>,
    /// The entries that the run committed.
    pub(crate) committed: CommittedVersions,
    /// Whether the sender has said goodbye: it knows how everything ended.
    pub(crate) has_parted: bool,
    reported: Option<ReportedNames>,
}

/// Entries that sessions of one run committed, as hashes of the entries with their versions: 8
/// bytes for each. Its sender may not have heard so, and offers them again. The record lets them
/// pass as committed: such an entry does not count as a name that stood before, and is not sent
/// once more.
#[derive(Clone, Debug)]
pub(crate) struct CommittedVersions {
    /// Hashes of earlier sessions.
    before: Arc<HashSet<u64>>,
    /// Hashes of this session, the latest last.
    now: VecDeque<u64>,
    /// The number of the latest that are remembered.
    most: usize,
}

impl Default for CommittedVersions {
    /// Remembers as many as a sender can offer again without having heard of their outcome.
    fn default() -> Self {
        CommittedVersions { before: Arc::default(), now: VecDeque::new(), most: UNHEARD_MAX }
    }
}

impl CommittedVersions {
    /// A test whether an earlier session committed this version.
    pub(crate) fn before(&self) -> impl Fn(&Entry) -> bool + Send + 'static {
        let before = self.before.clone();
        move |entry| !before.is_empty() && before.contains(&version(entry))
    }

    /// Whether there is nothing to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.before.is_empty() && self.now.is_empty()
    }

    fn add(&mut self, entry: &Entry) {
        if self.now.len() >= self.most {
            self.now.pop_front();
        }
        self.now.push_back(version(entry));
    }

    /// Makes room for another session.
    fn turn(&mut self) {
        // Since the oldest of these was committed, the sender has heard of more outcomes than it
        // may have outstanding, so it has heard of the old ones too.
        if self.before.len() > self.most.saturating_mul(4) {
            self.before = Arc::default();
        }
        if !self.now.is_empty() {
            Arc::make_mut(&mut self.before).extend(self.now.drain(..));
        }
    }
}

/// A hash that tells one version of one entry from another. Its key is a secret of this process: a
/// sender that found two that agree could say of a name of its own that it was committed at the
/// place of another's, and get links to that.
fn version(entry: &Entry) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let mut hasher = KEY.build_hasher();
    entry.path.as_bytes().hash(&mut hasher);
    (entry.meta.mtime.secs, entry.meta.mtime.nanos).hash(&mut hasher);
    match &entry.kind {
        EntryKind::File { len, inode, .. } => {
            // A stream is committed with the length that it turned out to have, and offered anew
            // without one.
            let len = if inode.is_of_stream() { 0 } else { *len };
            (len, inode.dev, inode.ino, inode.ctime.secs, inode.ctime.nanos).hash(&mut hasher);
        }
        EntryKind::Stream { inode, .. } => {
            (0_u64, inode.dev, inode.ino, inode.ctime.secs, inode.ctime.nanos).hash(&mut hasher);
        }
        EntryKind::Symlink { target } => target.hash(&mut hasher),
        _ => {}
    }
    hasher.finish()
}

/// Entries whose outcome a sender may not have heard: it has no more without one.
const UNHEARD_MAX: usize = 2 * ENTRIES_UNSETTLED_MAX;

/// Names of one transfer that one list remembers in case it is dialled again. The names reported
/// take 512 MiB at 8 bytes each, and 1 GiB with room to grow; the names that this session committed
/// take as much. Names that earlier sessions committed are five times as many at most before they
/// are forgotten, in a set of some 9 bytes for each place: 5 GiB. Together that is 7 GiB, for which
/// a sender has to have 64 Mi entries committed in each of five sessions; ten million files take
/// 0.5 GiB. Names beyond this number may be reported twice.
const REMEMBERED_MAX: usize = 64 << 20;

/// The names that were reported, as hashes: 8 bytes for each. (Of ten million names two have one
/// hash in one of some hundred thousand transfers. That matters only if it is dialled again; then
/// one is missing in the report.)
#[derive(Default)]
struct ReportedNames {
    /// Hashes of earlier sessions, sorted.
    before: Vec<u64>,
    /// Hashes of this session.
    now: Vec<u64>,
    hasher: RandomState,
}

impl ReceiveCourse {
    /// A course of a run whose earlier sessions committed these entries.
    pub(crate) fn after(committed: CommittedVersions) -> ReceiveCourse {
        ReceiveCourse { committed, ..ReceiveCourse::default() }
    }

    /// A course that remembers the names it reported, as there may be another session.
    pub(crate) fn remembering() -> ReceiveCourse {
        // The sender names every entry again.
        let committed = CommittedVersions { most: REMEMBERED_MAX, ..CommittedVersions::default() };
        ReceiveCourse { reported: Some(ReportedNames::default()), committed, ..ReceiveCourse::default() }
    }

    /// Begins a session, whose sender names every entry anew.
    pub(crate) fn begin(&mut self) {
        self.totals.begin_session();
        self.totals.count_anew();
        self.has_parted = false;
        self.committed.turn();
        if let Some(told) = &mut self.reported {
            told.before.append(&mut told.now);
            told.before.sort_unstable();
        }
    }

    /// Forgets what earlier sessions committed: of a dataset they only staged it, and its list
    /// needs the root of what stands.
    pub(crate) fn forget_committed(&mut self) {
        self.committed = CommittedVersions::default();
    }

    /// Records the outcome of an entry.
    pub(crate) fn settled(&mut self, entry: &Entry, outcome: &Outcome) {
        self.progressed = Some(Instant::now());
        let leaf = matches!(entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. });
        if leaf && matches!(outcome, Outcome::Committed(_) | Outcome::Linked(_)) {
            self.committed.add(entry);
        }
    }

    /// Whether an earlier session reported the entry.
    pub(super) fn was_told(&self, entry: &Entry) -> bool {
        self.reported.as_ref().is_some_and(|told| told.before.binary_search(&told.hash(entry)).is_ok())
    }

    /// Whether to report the entry: no earlier session did.
    pub(super) fn is_news(&mut self, entry: &Entry) -> bool {
        let Some(told) = &mut self.reported else { return true };
        let hash = told.hash(entry);
        if told.before.binary_search(&hash).is_ok() {
            return false;
        }
        if told.before.len() + told.now.len() < REMEMBERED_MAX {
            told.now.push(hash);
        }
        true
    }
}

impl ReportedNames {
    fn hash(&self, entry: &Entry) -> u64 {
        // One path may belong to a directory, to its end, and to a name in it that could not
        // travel.
        let also = match &entry.kind {
            EntryKind::DirEnd => Some(""),
            EntryKind::Unsent { why, .. } => Some(why.as_str()),
            _ => None,
        };
        self.hasher.hash_one((entry.path.as_bytes(), also))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::{FileId, Meta, RelPath};

    fn entry(path: &str, kind: EntryKind) -> Entry {
        Entry { path: RelPath::new(path).expect("a path"), kind, meta: Meta::default() }
    }

    fn file(path: &str) -> Entry {
        entry(path, EntryKind::File { len: 1, sparse: false, inode: longhaul_core::Inode::default() })
    }

    #[test]
    fn what_was_told_in_an_earlier_session_is_no_news_in_the_next() {
        let mut course = ReceiveCourse::remembering();
        course.begin();
        assert!(course.is_news(&file("a")) && course.is_news(&file("b")));
        assert!(course.is_news(&file("a")), "two sources of one name are two entries");
        course.begin();
        assert!(!course.is_news(&file("b")) && course.is_news(&file("c")));
        course.begin();
        assert!(!course.is_news(&file("a")) && !course.is_news(&file("c")));
        assert!(course.is_news(&entry("d", EntryKind::Dir)) && course.is_news(&entry("d", EntryKind::DirEnd)));
        course.begin();
        let reserved = || entry("d", EntryKind::Unsent { failure: None, why: "reserved name .longhaul-x".into() });
        assert!(course.is_news(&reserved()) && !course.is_news(&entry("d", EntryKind::DirEnd)));
        course.begin();
        assert!(!course.is_news(&reserved()));
    }

    #[test]
    fn a_stream_that_was_committed_with_its_length_is_known_when_it_is_offered_without() {
        let inode = longhaul_core::Inode::of_stream(7, 8, Default::default());
        let mut course = ReceiveCourse::default();
        course.begin();
        let ended = entry("s", EntryKind::File { len: 9, sparse: false, inode });
        course.settled(&ended, &Outcome::Committed(None));
        course.begin();
        assert!(course.committed.before()(&entry("s", EntryKind::Stream { inode, kept_bytes: 1 })));
    }

    #[test]
    fn what_an_earlier_session_committed_is_known_in_the_version_that_it_had() {
        let mut course = ReceiveCourse::default();
        course.begin();
        course.settled(&file("a"), &Outcome::Committed(None));
        course.settled(&file("b"), &Outcome::Skipped);
        assert!(!course.committed.before()(&file("a")), "two sources of one name are two entries");
        course.begin();
        let known = course.committed.before();
        assert!(known(&file("a")) && !known(&file("b")));
        let mut changed = file("a");
        changed.meta.mtime.nanos += 1;
        assert!(!known(&changed));
    }

    #[test]
    fn of_a_sender_that_heard_the_rest_only_the_latest_are_remembered() {
        let mut course = ReceiveCourse::default();
        (0..UNHEARD_MAX + 5).for_each(|n| course.settled(&file(&n.to_string()), &Outcome::Committed(None)));
        course.begin();
        let known = course.committed.before();
        assert!(!known(&file("4")) && known(&file("5")) && known(&file(&(UNHEARD_MAX + 4).to_string())));
    }

    #[test]
    fn what_has_no_outcome_is_kept_in_order_before_what_was_not_offered_yet() {
        let known = |id, path: &str, kind| {
            let entry = entry(path, kind);
            let held = Arc::new(EntryRef { id: FileId(id), placed: entry.path.clone(), entry });
            UnsettledEntry { held, source: EntrySource::Special, begun: false, is_reported: false }
        };
        let mut course = SendCourse::default();
        course.again.push_back(known(0, "not-yet", EntryKind::Dir));
        let dirs = [known(3, "d", EntryKind::Dir)].into_iter();
        let unsettled = [known(9, "d/z", EntryKind::Dir), known(4, "d/a", EntryKind::Dir)];
        course.keep(unsettled.into_iter(), dirs);
        let order: Vec<_> = course.again.iter().map(|known| known.held.entry.path.escaped().to_string()).collect();
        assert_eq!(order, ["d", "d/a", "d/z", "not-yet"]);
    }
}
