//! Finds out where a directory lies on this host, for whoever must tell two directories apart.
//!
//! In: a set or a tree, and a path beneath it. Out: [`Whereabouts`]. Follows no link: it goes up
//! from the open directory, and so sees the directories that are really above it, whatever path led
//! to it. Knows no peer.

use std::os::fd::AsFd;

use longhaul_core::{DirMark, RelPath, Whereabouts};
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use crate::error::{DiskError, ErrorKind};
use crate::set::TargetSet;
use crate::shelf::boot_id;
use crate::stat::place_of;
use crate::tree::Tree;

impl Tree {
    /// Where the directory at a path beneath it lies.
    ///
    /// # Errors
    /// The system's error, and that of a path that leads to no directory.
    pub fn whereabouts(&self, path: &RelPath) -> Result<Whereabouts, DiskError> {
        let mut found = unfound();
        self.note_whereabouts(path, &mut found)?;
        Ok(found)
    }

    fn note_whereabouts(&self, path: &RelPath, found: &mut Whereabouts) -> Result<(), DiskError> {
        let dir = self.dir(path)?;
        let boot = boot_id();
        found.at.push(mark(&boot, dir.place()));
        let (mut here, mut place) = (up(dir.as_fd()), dir.place());
        for _ in 0..LEVELS_MAX {
            let stat = here.as_ref().map_err(|error| *error).and_then(fstat);
            // Not everybody may look above.
            let (Ok(dir), Ok(stat)) = (&here, stat) else { break };
            if place_of(&stat) == place {
                return Ok(());
            }
            place = place_of(&stat);
            let mark = mark(&boot, place);
            if !found.above.contains(&mark) {
                found.above.push(mark);
            }
            here = up(dir.as_fd());
        }
        found.whole = false;
        Ok(())
    }
}

impl TargetSet {
    /// Where the directories at a path lie, on each target that has one.
    ///
    /// # Errors
    /// As [`Tree::whereabouts`]; [`ErrorKind::NotFound`] if no target has one.
    pub fn whereabouts(&self, path: &RelPath) -> Result<Whereabouts, DiskError> {
        let (mut found, mut missing) = (unfound(), None);
        for target in self.targets() {
            match target.tree.note_whereabouts(path, &mut found) {
                Err(error) if error.kind() == ErrorKind::NotFound => missing = Some(error),
                noted => noted?,
            }
        }
        found.whole &= self.missing().is_empty();
        missing.filter(|_| found.at.is_empty()).map_or(Ok(found), Err)
    }
}

/// The whereabouts of nothing on this host, to be added to.
fn unfound() -> Whereabouts {
    let boot = boot_id();
    let host = if boot == [0; 16] { DirMark::default() } else { digest(&boot, b"host") };
    Whereabouts { host, whole: true, ..Whereabouts::default() }
}

/// Opens the directory above one.
fn up(dir: impl AsFd) -> Result<std::os::fd::OwnedFd, Errno> {
    openat(dir, c"..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn mark(boot: &[u8; 16], (dev, ino): (u64, u64)) -> DirMark {
    digest(boot, &[dev.to_le_bytes(), ino.to_le_bytes()].concat())
}

/// A digest from which nobody reads the numbers: a client learns whether two directories are one,
/// and no more.
fn digest(boot: &[u8; 16], of: &[u8]) -> DirMark {
    let mut hasher = blake3::Hasher::new_derive_key("longhaul whereabouts of a directory");
    hasher.update(boot).update(of);
    let mut mark = DirMark::default();
    mark.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    mark
}

/// The most directories that are looked for above one: a path of longhaul's has fewer.
const LEVELS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use longhaul_core::Siting;

    use super::*;
    use crate::testing::path;

    #[test]
    fn directories_are_told_apart_whatever_leads_to_them() {
        let top = tempfile::tempdir().expect("scratch");
        for dir in ["a/b/c", "d"] {
            fs::create_dir_all(top.path().join(dir)).expect("a directory");
        }
        symlink(top.path().join("a/b"), top.path().join("d/link")).expect("a link");
        let tree = Tree::open(top.path()).expect("a tree");
        let of = |name: &str| tree.whereabouts(&path(name)).expect("found");
        let behind = Tree::open(&top.path().join("d/link")).expect("a tree");
        let behind = behind.whereabouts(&RelPath::root()).expect("found");
        for (one, two, siting) in [
            (&of("a"), &behind, Siting::Nested),
            (&of("a/b"), &behind, Siting::Nested),
            (&of("a/b/c"), &behind, Siting::Nested),
            (&of("d"), &behind, Siting::Apart),
        ] {
            assert_eq!((one.siting(two), two.siting(one)), (siting, siting));
        }
        let whole = tree.whereabouts(&RelPath::root()).expect("found");
        assert_eq!((whole.at.len(), whole.siting(&behind)), (1, Siting::Nested));
        assert!(whole.whole && behind.above.len() > 2, "{whole:?}");
        assert_eq!(tree.whereabouts(&path("none")).expect_err("none").kind(), ErrorKind::NotFound);
    }
}
