//! The destination directory itself: it is opened, or made together with the missing directories
//! above it, and each is durable before anything is put into it.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::RelPath;
use rustix::fs::Mode;
use rustix::io::Errno;

use super::meta::mode;
use super::policy::ModePolicy;
use crate::error::{DiskError, ErrorKind, PathText};
use crate::kernel::Kernel;
use crate::tree::Tree;
use crate::walk::Dir;

/// Opens or makes the directory that the operator named.
pub(crate) fn named(path: &Path, kernel: &Kernel) -> Result<Arc<Dir>, DiskError> {
    match Dir::open_behind(path, kernel) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        outcome => return outcome.map(Arc::new),
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if above == path {
        return Err(DiskError::call("make the directory", path, Errno::NOENT));
    }
    let parent = named(above, kernel)?;
    made(kernel.mkdir_named(path, parent.as_ref(), MODE), &parent, path.into())?;
    Dir::open_behind(path, kernel).map(Arc::new)
}

/// Opens or makes a directory beneath a served tree. Missing directories get the permissions that
/// the tree's policy leaves.
pub(crate) fn beneath(tree: &Tree, path: &RelPath, modes: ModePolicy) -> Result<Arc<Dir>, DiskError> {
    match tree.dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        outcome => return outcome,
    }
    let (Some(above), Some(name)) = (path.parent(), path.name()) else { return tree.dir(path) };
    let parent = beneath(tree, &above, modes)?;
    made(parent.kernel().mkdirat(&parent, name, mode(modes.dir(MODE.bits()))), &parent, path.into())?;
    tree.dir(path)
}

fn made(outcome: Result<(), Errno>, parent: &Dir, path: PathText) -> Result<(), DiskError> {
    match outcome {
        Ok(()) => {}
        // Another process made it at the same time.
        Err(Errno::EXIST) => return Ok(()),
        Err(error) => return Err(DiskError::call("make the directory", path, error)),
    }
    parent.sync().map_err(|error| DiskError::call("sync the directory above", path, error))
}

/// The mode of a new directory, as `mkdir -p` has it: the bits that the process's mask leaves.
const MODE: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);
