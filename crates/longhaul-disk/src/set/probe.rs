//! The probe of a target that failed: is it the one that it was, and does it take a file?
//!
//! In: the target as it was opened. Out: whether it is well again. Who asks for it, and when, is
//! decided by the target's [load](crate::TargetLoad).

use std::sync::Arc;

use longhaul_core::TargetId;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::mark::SetMark;
use crate::error::{DiskError, PathText};
use crate::load::Probe;
use crate::set_id::SetId;
use crate::tree::Tree;

/// The probe of the target that `tree` is.
pub(super) fn of(tree: &Arc<Tree>, set: SetId, target: TargetId) -> Probe {
    let tree = Arc::clone(tree);
    Arc::new(move || probe(&tree, set, target))
}

fn probe(tree: &Tree, set: SetId, target: TargetId) -> Result<(), DiskError> {
    // The directory at its path has the device and the inode that it had.
    tree.check_place()?;
    let mark = SetMark::read(tree.root(), &PathText::from(tree.named()))?;
    let is_ours = mark.is_some_and(|mark| mark.set == set && mark.number == target.0);
    let failed = |error: Errno| DiskError::call("probe", tree.named(), error);
    if !is_ours {
        return Err(failed(Errno::STALE));
    }
    let (dir, kernel) = (tree.root(), tree.root().kernel());
    // One that a crash left.
    let _ = kernel.unlinkat(dir, PROBE);
    let file = kernel.create(dir, PROBE, OFlags::WRONLY, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let written = kernel.pwrite(&file, &[0xa5; PROBE_BYTES], 0).and_then(|_| kernel.fsync(&file));
    let removed = kernel.unlinkat(dir, PROBE);
    match written.and(removed) {
        // A full disk does not take it, and is well otherwise.
        Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// The file of a probe, in the set's own directory.
const PROBE: &[u8] = b".longhaul-set/probe";
/// Bytes that are written to it: one block.
const PROBE_BYTES: usize = 4096;
