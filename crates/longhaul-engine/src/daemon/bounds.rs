//! Bounds on what transfers leave behind: how a destination looks to a client that may not fill its
//! file system.
//!
//! In: the bounds of a client and of a root, and the tree of a session. Out: the same tree, which
//! has less room: what is reserved is not free, and no more than is left of `stored` and `files`.
//! So a session refuses, keeps and goes on with files as on a small disk. A session that writes
//! while others bring the free space down to the reserve is ended in order. It counts nothing
//! itself: that is the `quotas`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use longhaul_core::{ByteCount, ChunkMap, Fault, FaultCode, Meta, Preserve, RelPath, TempName};
use longhaul_disk::{
    DiskError, Journalled, NameMade, NameProof, Removed, Reopened, Replace, Room, Staged, Standing, TargetFile,
    TargetTree,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::quotas::{ClientInRoot, Quotas, Stored};
use super::side::Side;
use super::{ClientConfig, Daemon, RootConfig};
use crate::api::StopTrigger;
use crate::workers::blocking;

/// Bounds on what the transfers of a client leave in all roots, or those of all clients in a root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Bytes of files that may be stored. `None`: any number.
    pub stored: Option<ByteCount>,
    /// Files and links that may be stored. `None`: any number.
    pub files: Option<u64>,
    /// Free space of the file system that stays free. `None`: transfers may fill it.
    pub reserve: Option<FreeReserve>,
    /// Lanes of one session. `None`: as many as its memory carries.
    pub lanes: Option<u32>,
}

/// Free space that stays free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FreeReserve {
    /// A number of bytes.
    Bytes(ByteCount),
    /// Hundredths of the file system, 1 to 99.
    Percent(u8),
}

impl Bounds {
    /// The most that may be stored.
    pub(super) fn stored(&self) -> Stored {
        let bytes = self.stored.map_or(u64::MAX, ByteCount::get);
        Stored { bytes, files: self.files.unwrap_or(u64::MAX) }
    }

    /// Whether they bound what is received.
    pub fn bounds_storage(&self) -> bool {
        self.stored.is_some() || self.files.is_some() || self.reserve.is_some()
    }
}

impl FreeReserve {
    /// Its bytes on a file system of this size.
    fn of(self, total: u64) -> u64 {
        match self {
            FreeReserve::Bytes(bytes) => bytes.get(),
            FreeReserve::Percent(percent) => total / 100 * u64::from(percent),
        }
    }
}

/// The lanes that one session of a client on these roots may have.
pub(super) fn lanes_max(client: &ClientConfig, roots: &[&RootConfig]) -> u32 {
    let bounds = roots.iter().map(|root| root.bounds.lanes).chain([client.bounds.lanes]);
    bounds.flatten().min().unwrap_or(u32::MAX)
}

/// A tree within bounds.
struct BoundedTree {
    tree: Arc<dyn TargetTree>,
    quotas: Quotas,
    account: ClientInRoot,
    /// Names that this session is about to store, by their final paths.
    claims: Mutex<HashMap<RelPath, Claim>>,
    /// Whether the reserve was touched when that was last looked at.
    looked: Mutex<Option<(Instant, bool)>>,
    /// Whether anything was made.
    has_made: AtomicBool,
}

/// A claim for a name that is not published.
struct Claim {
    claimed: Stored,
    /// The open file. `None` of small ones. Where it is gone and was not published, the claim is
    /// gone as well.
    file: Option<Weak<TargetFile>>,
}

/// Looks after the reserve while a session runs. Dropping it ends that.
pub(super) struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Puts the destination of a session in a root within the bounds of that and of the client, if
/// there are any. `trigger` ends the session when the reserve is touched.
pub(super) fn within(
    daemon: &Daemon,
    client: &ClientConfig,
    root: Option<&RootConfig>,
    side: &mut Side,
    trigger: StopTrigger,
) -> Option<Watch> {
    let (Side::Receive(destination, _), Some(root)) = (side, root) else { return None };
    if destination.ledger.is_none() || !client.bounds.bounds_storage() && !root.bounds.bounds_storage() {
        return None;
    }
    let tree = Arc::new(BoundedTree {
        tree: destination.tree.clone(),
        quotas: daemon.live.quotas.clone(),
        account: (client.key, root.name.clone()),
        claims: Mutex::default(),
        looked: Mutex::default(),
        has_made: AtomicBool::new(false),
    });
    destination.tree = tree.clone();
    if let Some(dataset) = &destination.dataset {
        let (quotas, account) = (daemon.live.quotas.clone(), tree.account.clone());
        dataset.on_removed(move |Removed { bytes, files, .. }| {
            quotas.keep(&account, Stored::default(), Stored::default(), Stored { bytes, files });
        });
    }
    destination.place = format!("{} (within the limits of its daemon)", destination.place);
    Some(Watch(tokio::spawn(watch(tree, trigger))))
}

/// Ends the session when the reserve is touched after it has made something. A session that finds
/// it touched makes nothing, and may skip what stands.
async fn watch(tree: Arc<BoundedTree>, trigger: StopTrigger) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let looking = tree.clone();
        let touched = blocking(move || Ok::<_, Fault>(looking.has_made.load(Ordering::Relaxed) && looking.look()));
        if touched.await.unwrap_or(false) {
            return trigger.stop(FaultCode::NoSpace);
        }
    }
}

impl BoundedTree {
    /// The bytes that stay free on a file system of this size.
    fn reserve(&self, total: u64) -> u64 {
        let bounds = self.quotas.bounds(&self.account);
        bounds.into_iter().filter_map(|bounds| Some(bounds.reserve?.of(total))).max().unwrap_or(0)
    }

    /// Whether the reserve is touched now.
    fn look(&self) -> bool {
        let room = self.tree.room(&RelPath::root());
        let touched = room.is_some_and(|room| {
            let reserve = self.reserve(room.total);
            room.bytes < reserve - (reserve / 8).min(SLACK_BYTES)
        });
        *lock(&self.looked) = Some((Instant::now(), touched));
        touched
    }

    /// Refuses another file while the reserve is touched.
    fn check_reserve(&self, path: &RelPath) -> Result<(), DiskError> {
        let last = lock(&self.looked).filter(|(at, _)| at.elapsed() < LOOK_EVERY);
        let touched = last.map_or_else(|| self.look(), |(_, touched)| touched);
        match touched {
            false => Ok(()),
            true => Err(refused(path, "the space that is free is what the daemon keeps in reserve".to_owned())),
        }
    }

    /// Makes a name of this length, if there is room for it.
    fn make<T, E: From<DiskError>>(
        &self,
        path: &RelPath,
        more: Stored,
        make: impl FnOnce() -> Result<T, E>,
        file: impl FnOnce(&T) -> Option<Weak<TargetFile>>,
    ) -> Result<T, E> {
        self.check_reserve(path)?;
        self.forget_gone();
        self.quotas.claim(&self.account, more).map_err(|why| refused(path, why))?;
        let made = make().inspect_err(|_| self.quotas.release(&self.account, more))?;
        self.has_made.store(true, Ordering::Relaxed);
        let claim = Claim { claimed: more, file: file(&made) };
        if let Some(before) = lock(&self.claims).insert(path.clone(), claim) {
            self.quotas.release(&self.account, before.claimed);
        }
        Ok(made)
    }

    /// Gives back the claims of files that were given up.
    fn forget_gone(&self) {
        lock(&self.claims).retain(|_, claim| {
            let is_gone = claim.file.as_ref().is_some_and(|file| file.strong_count() == 0);
            if is_gone {
                self.quotas.release(&self.account, claim.claimed);
            }
            !is_gone
        });
    }

    /// Gives back the claim of a small file that could not get its name. (If it gets it later all
    /// the same, it is counted then.)
    fn forget_small(&self, path: &RelPath) {
        let mut claims = lock(&self.claims);
        if claims.get(path).is_some_and(|claim| claim.file.is_none())
            && let Some(claim) = claims.remove(path)
        {
            self.quotas.release(&self.account, claim.claimed);
        }
    }

    /// The count of a name that stands.
    fn standing(&self, path: &RelPath) -> Result<Stored, DiskError> {
        Ok(match self.tree.examine(path)? {
            Some(Standing::File { len, .. }) => Stored::file(len),
            Some(Standing::Symlink { .. }) => Stored::file(0),
            _ => Stored::default(),
        })
    }

    /// Publishes a name whose length was not known when it was begun only if that fits.
    fn claim_rest(&self, path: &RelPath, staged: &Staged) -> Result<Stored, DiskError> {
        let claimed = lock(&self.claims).get(path).map_or(Stored::default(), |claim| claim.claimed);
        let Some(len) = staged.length_of_large().filter(|len| *len > claimed.bytes) else { return Ok(claimed) };
        let rest = Stored { bytes: len - claimed.bytes, files: 0 };
        self.quotas.claim(&self.account, rest).map_err(|why| refused(path, why))?;
        let claimed = Stored { bytes: len, ..claimed };
        if let Some(claim) = lock(&self.claims).get_mut(path) {
            claim.claimed = claimed;
        }
        Ok(claimed)
    }
}

impl TargetTree for BoundedTree {
    fn beneath(&self) -> Option<&dyn TargetTree> {
        Some(&*self.tree)
    }

    fn create(
        &self,
        path: &RelPath,
        map: ChunkMap,
        sparse: bool,
        temp: &TempName,
    ) -> Result<Arc<TargetFile>, DiskError> {
        let make = || self.tree.create(path, map, sparse, temp);
        self.make(path, to_come(map), make, |file| Some(Arc::downgrade(file)))
    }

    fn reopen(
        &self,
        path: &RelPath,
        map: ChunkMap,
        sparse: bool,
        temp: &TempName,
        journalled: &Journalled,
    ) -> Result<Option<Reopened>, DiskError> {
        let make = || self.tree.reopen(path, map, sparse, temp, journalled);
        self.make(path, to_come(map), make, |reopened| {
            // A claim without a file would be nobody's.
            Some(reopened.as_ref().map_or_else(Weak::new, |reopened| Arc::downgrade(&reopened.file)))
        })
    }

    fn write_small(&self, path: &RelPath, bytes: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError> {
        let make = || self.tree.write_small(path, bytes, meta, preserve);
        self.make(path, Stored::file(bytes.len() as u64), make, |_| None)
    }

    fn make_link(&self, path: &RelPath, target: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError> {
        self.make(path, Stored::file(0), || self.tree.make_link(path, target, meta, preserve), |_| None)
    }

    /// Each name counts as a whole file: whoever replaces the others leaves it all the bytes.
    fn make_name(&self, path: &RelPath, first: &RelPath, proof: &NameProof<'_>) -> NameMade {
        let make = || {
            let more = self.standing(first)?;
            let make = || match self.tree.make_name(path, first, proof) {
                NameMade::Staged(staged) => Ok(staged),
                other => Err(other),
            };
            self.make(path, more, make, |_| None)
        };
        make().map_or_else(|other| other, NameMade::Staged)
    }

    fn publish(&self, staged: &Staged, replace: Replace) -> Result<(), DiskError> {
        let path = staged.path();
        let claimed = self.claim_rest(path, staged)?;
        let replaced = match replace {
            Replace::Allowed => self.standing(path)?,
            Replace::Never => Stored::default(),
        };
        self.tree.publish(staged, replace).inspect_err(|_| self.forget_small(path))?;
        lock(&self.claims).remove(path);
        // Where it cannot be told at this moment, what was claimed is the best that is known.
        let stands = self.standing(path).unwrap_or(claimed);
        self.quotas.keep(&self.account, claimed, stands, replaced);
        Ok(())
    }

    fn room(&self, path: &RelPath) -> Option<Room> {
        self.forget_gone();
        let left = self.quotas.left(&self.account);
        let bounds = |most: u64| (most < u64::MAX).then_some(most);
        let (bytes, files) = (bounds(left.bytes), bounds(left.files));
        let Some(room) = self.tree.room(path) else {
            // The file system takes all; the bounds do not.
            let bytes = bytes.or_else(|| files.and(Some(u64::MAX)))?;
            return Some(Room { device: 0, bytes, total: u64::MAX, inodes: files, is_firm: true });
        };
        let reserve = self.reserve(room.total);
        let free = room.bytes.saturating_sub(reserve);
        Some(Room {
            bytes: bytes.map_or(free, |bytes| free.min(bytes)),
            inodes: [room.inodes, files].into_iter().flatten().min(),
            is_firm: room.is_firm || reserve > 0 || bytes.is_some() || files.is_some(),
            ..room
        })
    }
}

impl Drop for BoundedTree {
    fn drop(&mut self) {
        for (_, claim) in lock(&self.claims).drain() {
            self.quotas.release(&self.account, claim.claimed);
        }
    }
}

/// The count of a file of these chunks. The length of a stream is known at its end.
fn to_come(map: ChunkMap) -> Stored {
    Stored::file(if map.is_unended() { 0 } else { map.len() })
}

fn refused(path: &RelPath, why: String) -> DiskError {
    DiskError::OutOfBounds { path: path.into(), why }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part of a reserve that counts as not touched, besides an eighth: file systems take blocks of
/// their own beside the bytes of a file, and nobody is to be ended for them.
const SLACK_BYTES: u64 = 64 << 20;
/// How old the knowledge of the reserve may be: what is written meanwhile may go beneath it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::Mtime;
    use longhaul_disk::{DirectMode, FsTarget};
    use longhaul_net::PublicKey;

    #[test]
    fn a_small_file_that_cannot_get_its_name_counts_no_longer() {
        let dir = tempfile::tempdir().expect("scratch");
        let account = (PublicKey::from_bytes([1; 32]), "r".to_owned());
        let tree = BoundedTree {
            tree: Arc::new(FsTarget::open(dir.path(), DirectMode::Auto).expect("target")),
            quotas: Quotas::default(),
            account: account.clone(),
            claims: Mutex::default(),
            looked: Mutex::default(),
            has_made: AtomicBool::default(),
        };
        let path = RelPath::new("f").expect("a path");
        let meta = Meta::new(0o644, Mtime { secs: 1, nanos: 0 });
        let staged = tree.write_small(&path, b"four", &meta, Preserve::default()).expect("staged");
        assert_eq!(tree.quotas.of_client(&account.0), Stored::file(4));
        let in_the_way = tree.tree.write_small(&path, b"x", &meta, Preserve::default()).expect("staged");
        tree.tree.publish(&in_the_way, Replace::Never).expect("published");
        assert!(tree.publish(&staged, Replace::Never).is_err());
        assert_eq!(tree.quotas.of_client(&account.0), Stored::default());
        assert!(lock(&tree.claims).is_empty());
    }
}
