//! [`StagedDataset`]: the list of what a session has received of a dataset, and its commit.
//!
//! In: a staged directory, and the outcome of each entry. Out: the dataset under its name with its
//! sealed manifest in it, or the fault for which it does not appear. It knows no messages; the
//! renames are `disk`'s.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use longhaul_core::checksum::Algorithm;
use longhaul_core::digest::Hash32;
use longhaul_core::{Blame, EntryKind, Fault, FaultCode, IfExists, Mtime, Preserve, RelPath, Sums};
use longhaul_disk::{DatasetStage, DatasetTop, Identity, ListedName, ReadRoots, Removed, StagedKind};
use longhaul_manifest::{Draft, Item, ItemKind, Lists, ManifestError, Sealed, Sorter};
use longhaul_proto::receiver::EntryRef;
use longhaul_proto::wire::message::Outcome;

use super::unsent;
use crate::journals::claims::HeldClaim;

/// A dataset that one session receives.
pub(crate) struct StagedDataset {
    /// Its list. Dropped before the stage, in which it has its temporary files.
    list: Mutex<DatasetList>,
    stage: DatasetStage,
    appeared: Appeared,
    /// The sessions that bring it.
    brought: BroughtBy,
    /// The roots that earlier sessions of its commit have read. `None`: it is no commit.
    roots: Option<ReadRoots>,
    /// Whether the session ends without it.
    given_up: AtomicBool,
    /// Hears of files that are removed where it is staged.
    on_removed: OnceLock<OnRemoved>,
}

/// The sessions that bring a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BroughtBy {
    /// This one brings all of it.
    This,
    /// Sessions of a campaign's shards, of which this is one: nothing appears at its end.
    Shards,
    /// They have: this one lists what they brought.
    ShardsBefore,
}

/// The dataset of a run, once a session of it had it appear. Clones share it.
pub(crate) type Appeared = Arc<OnceLock<Appearance>>;

/// A dataset that has appeared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appearance {
    /// The digest of its sealed manifest.
    pub(crate) digest: Hash32,
    /// Whether it took the place of another one.
    pub(crate) replaced: bool,
}

/// Hears of files and links that are removed, and of the files' bytes.
type OnRemoved = Box<dyn Fn(Removed) + Send + Sync>;

/// The files of a dataset, as far as they have their outcomes.
struct DatasetList {
    /// `None` once it was sealed.
    sorter: Option<Sorter>,
    missing: MissingFiles,
}

/// The entries that are not in a dataset.
#[derive(Debug, Default)]
struct MissingFiles {
    all: u64,
    /// The number of them that changed or vanished at the source.
    changed: u64,
    /// The number of them whose bytes are not what they should be.
    mismatched: u64,
    /// The path of the first, and why it is missing.
    first: Option<(String, String)>,
}

/// The rule for names that stand in what is staged of a dataset. They are those of an earlier
/// session, and no reader has seen them: what the user wants of names that stand is about the
/// dataset as a whole.
pub(crate) fn rule_within(if_exists: IfExists) -> IfExists {
    match if_exists {
        IfExists::Verify => IfExists::Verify,
        IfExists::SkipSame | IfExists::Replace | IfExists::Fail => IfExists::SkipSame,
    }
}

impl StagedDataset {
    /// Begins the list of a dataset, which says so where it `appeared`.
    pub(crate) fn new(stage: DatasetStage, appeared: Appeared) -> StagedDataset {
        StagedDataset::brought(BroughtBy::This, stage, appeared)
    }

    /// The same dataset of a campaign, whose shards have brought all of it.
    pub(crate) fn of_campaign(stage: DatasetStage, appeared: Appeared) -> StagedDataset {
        StagedDataset::brought(BroughtBy::ShardsBefore, stage, appeared)
    }

    /// A shard of it. It has no list, and does not appear.
    pub(crate) fn of_shard(stage: DatasetStage, appeared: Appeared) -> StagedDataset {
        StagedDataset::brought(BroughtBy::Shards, stage, appeared)
    }

    fn brought(brought: BroughtBy, stage: DatasetStage, appeared: Appeared) -> StagedDataset {
        let sorter = (brought != BroughtBy::Shards).then(|| Sorter::new(&stage.scratch_path(), SORT_BYTES));
        let list = Mutex::new(DatasetList { sorter, missing: MissingFiles::default() });
        let (given_up, on_removed) = (AtomicBool::default(), OnceLock::default());
        let roots = (brought == BroughtBy::ShardsBefore).then(|| stage.read_roots());
        StagedDataset { list, roots, stage, appeared, brought, given_up, on_removed }
    }

    /// Whether it has a list of all files, of which it must know the roots.
    pub(crate) fn is_listed(&self) -> bool {
        self.brought != BroughtBy::Shards
    }

    /// Whether it is that of a campaign.
    pub(crate) fn is_of_campaign(&self) -> bool {
        self.brought != BroughtBy::This
    }

    /// Whether what an earlier session staged gives way to what this one brings. What lies there
    /// from other shards of the same campaign does not: it was delivered.
    pub(crate) fn may_make_way(&self) -> bool {
        self.brought == BroughtBy::This
    }

    /// The root of a staged file that an earlier session of its commit has read, if the file is the
    /// same still.
    pub(crate) fn known_root(&self, path: &RelPath, is: &Identity) -> Option<Hash32> {
        self.roots.as_ref()?.find(path, is)
    }

    /// Notes the root of a staged file that was read, for later sessions of its commit.
    pub(crate) fn note_root(&self, path: &RelPath, is: &Identity, root: &Hash32) {
        self.roots.iter().for_each(|roots| roots.keep(path, is, root));
    }

    /// Where it says that it has appeared.
    pub(crate) fn appeared(&self) -> Appeared {
        self.appeared.clone()
    }

    /// Tells `hears` of each file that is removed where it is staged.
    pub(crate) fn on_removed(&self, hears: impl Fn(Removed) + Send + Sync + 'static) {
        let _ = self.on_removed.set(Box::new(hears));
    }

    /// Has it not appear any more, unless its last steps are made already.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Notes that its session still stages files.
    pub(crate) fn goes_on_staging(&self) {
        self.stage.goes_on();
    }

    /// Whether the session goes on.
    fn goes_on(&self) -> Result<(), Fault> {
        if !self.given_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        let why = format_args!("dataset '{}' does not appear, as its session ended", self.stage.shown());
        Err(Fault::new(FaultCode::Lost, Blame::Local, why).about(self.stage.shown()))
    }

    /// Notes the outcome of an entry, with the further checksums of a file. If the list cannot be
    /// kept, the entry is missing.
    pub(crate) fn settled(&self, held: &EntryRef, outcome: &Outcome, sums: &Sums, preserve: Preserve) {
        self.goes_on_staging();
        // Whoever lists what others brought carries no metadata over, and knows the times.
        let times = preserve.times || self.brought == BroughtBy::ShardsBefore;
        let preserve = Preserve { times, ..preserve };
        let mut list = self.list();
        let root = match outcome {
            Outcome::Committed(root) | Outcome::Linked(root) => *root,
            Outcome::Equal(root) | Outcome::Stands(root) => Some(*root),
            Outcome::Skipped | Outcome::Planned => None,
            Outcome::Failed(fault) => return list.missing.add(held, fault.code, &fault.message),
            Outcome::Unsent => {
                let EntryKind::Unsent { why, .. } = &held.entry.kind else { return };
                // Names of ours are no part of anybody's dataset.
                if !unsent::is_reserved(why) {
                    list.missing.add(held, FaultCode::Unsupported, why);
                }
                return;
            }
        };
        let Some(item) = item_of(held, root, sums, preserve) else { return };
        let added = list.sorter.as_mut().map_or(Ok(()), |sorter| sorter.add(item));
        if let Err(error) = added {
            let fault = error.fault();
            list.missing.add(held, fault.code, &fault.message);
        }
    }

    /// Has the dataset appear, if it is whole: its manifest is sealed, what is not in that goes,
    /// everything is made durable, and it gets its name. Where the session needs a claim, it must
    /// still be the one that is kept.
    ///
    /// # Errors
    /// The [`Fault`] for which it does not appear; of a sync behind the rename, for which it may
    /// not stay.
    pub(crate) fn commit(&self, claim: Option<&HeldClaim>) -> Result<(), Fault> {
        let mut list = self.list();
        if let Some(fault) = list.missing.fault(&self.stage.shown()) {
            return Err(fault);
        }
        let Some(sorter) = list.sorter.take() else { return Ok(()) };
        let top = self.stage.open_top()?;
        // Whoever tries it again finds the times that the source has.
        let sealed = self.prepared(sorter, &top).inspect_err(|_| self.stage.keep_times(&top))?;
        let _right = claim.map(HeldClaim::publishing).transpose()?;
        self.goes_on()?;
        let published = self.stage.publish(&top)?;
        // Whatever failed behind it: others see it, and a run that dials again must not put it
        // there once more.
        let _ = self.appeared.set(Appearance { digest: sealed.digest(), replaced: published.replaced });
        let (path, digest) = (self.stage.shown(), longhaul_core::checksum::hex(&sealed.digest()));
        let old = published.old.map(|old| longhaul_core::Escaped(&old).to_string());
        tracing::info!(target: "longhaul::dataset", %path, %digest, old, "a dataset has appeared");
        published.fault.map_or(Ok(()), |fault| Err(fault.into()))
    }

    /// Seals its list, removes what is not in that, and makes everything durable.
    fn prepared(&self, sorter: Sorter, top: &DatasetTop) -> Result<Sealed, Fault> {
        let sealed = self.sealed(sorter, top)?;
        self.stage.note_campaign(top)?;
        self.fit(top, &sealed)?;
        self.stage.make_durable(top)?;
        Ok(sealed)
    }

    /// Seals its list in its own directory.
    fn sealed(&self, sorter: Sorter, top: &DatasetTop) -> Result<Sealed, Fault> {
        let fault = |error: ManifestError| error.fault();
        let mut draft = Draft::begin(&top.manifest_path()).map_err(fault)?;
        for item in sorter.finish().map_err(fault)? {
            self.goes_on()?;
            draft.add(&item.map_err(fault)?).map_err(fault)?;
        }
        draft.seal(Lists::ALL, 0).map_err(fault)
    }

    /// Removes what is staged and not listed: an earlier session had other sources.
    fn fit(&self, top: &DatasetTop, sealed: &Sealed) -> Result<(), Fault> {
        let listed = sealed.items().map(|item| {
            self.goes_on()?;
            item.map(listed_name).map_err(|error: ManifestError| error.fault())
        });
        let names = self.stage.prune(top, listed, &mut |removed| self.removed(removed))?;
        let Some(first) = names.first else { return Ok(()) };
        let more = if names.missing == 1 { String::new() } else { format!(" and {} more", names.missing - 1) };
        let why = format_args!(
            "dataset '{}' does not appear: '{}'{more} came, and does not stand as it came where it is staged",
            self.stage.shown(),
            first.escaped()
        );
        Err(Fault::new(FaultCode::Incomplete, Blame::Local, why).about(self.stage.shown()))
    }

    /// Removes what an earlier session staged where an entry goes and that is something else: a
    /// file where there is a directory now, or the other way round.
    ///
    /// # Errors
    /// The [`Fault`] for which it stays.
    pub(crate) fn make_way(&self, path: &RelPath) -> Result<(), Fault> {
        Ok(self.stage.make_way(path, &mut |removed| self.removed(removed))?)
    }

    fn removed(&self, removed: Removed) {
        if removed.files > 0 {
            self.on_removed.get().into_iter().for_each(|hears| hears(removed));
        }
    }

    fn list(&self) -> MutexGuard<'_, DatasetList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for StagedDataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StagedDataset({})", self.stage.shown())
    }
}

impl MissingFiles {
    fn add(&mut self, held: &EntryRef, code: FaultCode, why: &str) {
        self.all += 1;
        match code {
            FaultCode::Changed | FaultCode::Vanished => self.changed += 1,
            FaultCode::Mismatch => self.mismatched += 1,
            _ => {}
        }
        self.first.get_or_insert_with(|| (held.entry.path.escaped().to_string(), why.to_owned()));
    }

    /// The fault for which a dataset does not appear. `None` if nothing is missing.
    fn fault(&self, shown: &longhaul_disk::PathText) -> Option<Fault> {
        let (path, why) = self.first.as_ref()?;
        let code = match self {
            _ if self.mismatched > 0 => FaultCode::Mismatch,
            _ if self.changed == self.all => FaultCode::Changed,
            _ => FaultCode::Incomplete,
        };
        let count = if self.all == 1 { String::new() } else { format!(" and {} more", self.all - 1) };
        let message = format_args!("dataset '{shown}' does not appear without '{path}'{count}: {why}");
        Some(Fault::new(code, Blame::Local, message).about(shown))
    }
}

/// The item of an entry that stands. `None` for one that is no name of its own.
fn item_of(held: &EntryRef, root: Option<Hash32>, sums: &Sums, preserve: Preserve) -> Option<Item> {
    let path = held.placed.clone();
    if path.is_root() {
        return None;
    }
    let time = held.entry.meta.mtime;
    let mtime = preserve.times.then(|| Mtime::said(time.secs, time.nanos));
    match &held.entry.kind {
        EntryKind::Dir => Some(Item::dir(path)),
        EntryKind::Symlink { target } => {
            Some(Item { path, kind: ItemKind::Link { target: target.clone() }, mtime, sums: Sums::default() })
        }
        EntryKind::File { len, .. } => {
            let root = root.and_then(|root| Sums::one(Algorithm::Blake3, &root)).unwrap_or_default();
            let sums = root.united(sums).unwrap_or(root);
            Some(Item { mtime, ..Item::file(path, Some(*len), sums) })
        }
        EntryKind::Stream { .. } | EntryKind::DirEnd | EntryKind::Unsent { .. } => None,
    }
}

/// An item as it must stand where it is staged.
fn listed_name(item: Item) -> ListedName {
    let kind = match &item.kind {
        ItemKind::Dir => StagedKind::Dir,
        ItemKind::Link { .. } => StagedKind::Link,
        ItemKind::File { .. } => StagedKind::File(item.bytes()),
    };
    ListedName { path: item.path, kind }
}

/// The memory in which a list is sorted: some ten thousand names.
const SORT_BYTES: usize = 4 << 20;
/// The memory of a list at most: that, and the blocks of the files that are merged.
pub(crate) const LIST_BYTES: u64 = 24 << 20;

#[cfg(test)]
mod tests;
