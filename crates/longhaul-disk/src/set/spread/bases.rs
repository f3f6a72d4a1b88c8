//! The directories down to a destination on targets where they are missing: made like those that
//! stand on another target.
//!
//! In: a set, and a path beneath it. Out: the directories, durable, with the permissions of their
//! like. Directories that stand on no target are made by the destination itself.

use longhaul_core::{Preserve, RelPath};
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::destination::DirHandle;
use crate::error::{DiskError, ErrorKind};
use crate::set::TargetSet;
use crate::stat::Standing;

/// Makes each directory down to `path` that stands on some target on the others as well.
pub(super) fn make_like_standing(set: &TargetSet, path: &RelPath) -> Result<(), DiskError> {
    let mut levels: Vec<RelPath> = std::iter::successors(Some(path.clone()), RelPath::parent).collect();
    levels.retain(|level| !level.is_root());
    for level in levels.iter().rev() {
        let Some(standing @ Standing::Dir { .. }) = set.stat(level)? else { return Ok(()) };
        let (Some(above), Some(name)) = (level.parent(), level.name()) else { return Ok(()) };
        for target in set.targets() {
            match target.tree.stat(level) {
                Ok(None) => {}
                Ok(Some(_)) => continue,
                Err(error) if error.kind() == ErrorKind::NotADirectory => continue,
                Err(error) => return Err(error),
            }
            let failed = |error| DiskError::call("make the directory", level, error);
            let parent = target.tree.dir(&above)?;
            match parent.kernel().mkdirat(&parent, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
            let keep_times = Preserve { times: false, ..Preserve::default() };
            let made = DirHandle::open(&parent, name).map_err(failed)?;
            made.set_meta(Some(standing.meta().mode & 0o777), &standing.meta(), keep_times).map_err(failed)?;
            parent.sync().map_err(|error| DiskError::call("sync the directory", &above, error))?;
        }
    }
    Ok(())
}
