//! Renames between two directories of one file system.
//!
//! In: open directories and bare names. Out: the system's answer, through the interposer, if there
//! is one. Knows no paths.

use std::os::fd::AsFd;

use rustix::fs::{self, RenameFlags};
use rustix::io::Errno;

use super::{Call, Kernel, Replace, inode_of, unmade};

impl Kernel {
    /// Moves a name into another directory of its file system, where the new one must be free. An
    /// interposer sees a rename in the directory that gets the name.
    pub(crate) fn move_new(
        &self,
        (from_dir, from): (impl AsFd, &[u8]),
        (dir, to): (impl AsFd, &[u8]),
    ) -> Result<(), Errno> {
        let call = || Ok(Call::Rename { dir: inode_of(&dir)?, from, to, replace: Replace::Never });
        self.pass(call, || fs::renameat_with(&from_dir, from, &dir, to, RenameFlags::NOREPLACE), unmade)
    }

    /// Moves a name into another directory of its file system, over what has the new one.
    pub(crate) fn move_over(
        &self,
        (from_dir, from): (impl AsFd, &[u8]),
        (dir, to): (impl AsFd, &[u8]),
    ) -> Result<(), Errno> {
        let call = || Ok(Call::Rename { dir: inode_of(&dir)?, from, to, replace: Replace::Allowed });
        self.pass(call, || fs::renameat(&from_dir, from, &dir, to), unmade)
    }

    /// Exchanges two names, in one directory or in two of one file system, at once.
    pub(crate) fn exchange(
        &self,
        (from_dir, from): (impl AsFd, &[u8]),
        (dir, to): (impl AsFd, &[u8]),
    ) -> Result<(), Errno> {
        let call = || Ok(Call::Rename { dir: inode_of(&dir)?, from, to, replace: Replace::Allowed });
        self.pass(call, || fs::renameat_with(&from_dir, from, &dir, to, RenameFlags::EXCHANGE), unmade)
    }
}
