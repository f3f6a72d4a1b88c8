//! The policy of a tree for the modes, links and extras that a sender gives: it takes them as they
//! are, or within the bounds of its operator.
//!
//! In: the operator's settings for a root. Out: [`TreePolicy`], by which
//! [`FsTarget`](crate::FsTarget) sets permissions and makes links. Touches no disk but for the mask
//! of this process. Knows nothing of peers and their rights.

use serde::{Deserialize, Serialize};

/// Restrictions on all entries that are put into a tree. The default has none: it is for a user's
/// own destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreePolicy {
    /// Permissions of files and directories.
    pub modes: ModePolicy,
    /// Symbolic links.
    pub links: LinkPolicy,
    /// Metadata beyond modes and times.
    pub extras: ExtrasPolicy,
}

/// The extras that are taken from a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtrasPolicy {
    /// Extended attributes of users.
    pub xattrs: bool,
    /// Owners and groups, as far as this user may set them.
    pub owner: bool,
    /// Set-id bits of what has the owner of the source.
    pub set_id: bool,
    /// Access lists, within the bounds of modes.
    pub acls: bool,
}

impl Default for ExtrasPolicy {
    fn default() -> ExtrasPolicy {
        ExtrasPolicy { xattrs: true, owner: true, set_id: true, acls: true }
    }
}

impl ExtrasPolicy {
    /// The policy of a served root whose operator sets nothing: attributes are content, and nobody
    /// gets more rights by them.
    pub const SERVED: ExtrasPolicy = ExtrasPolicy { xattrs: true, ..ExtrasPolicy::NOTHING };
    /// None.
    pub const NOTHING: ExtrasPolicy = ExtrasPolicy { xattrs: false, owner: false, set_id: false, acls: false };
}

/// The permission bits that are taken from a sender. Set-id and sticky bits never are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModePolicy {
    /// All of them.
    #[default]
    Keep,
    /// The bits of a mask. A directory always keeps `u+rwx`, so that we are not shut out.
    Masked {
        /// The mask of directories.
        dirs: u32,
        /// The mask of files.
        files: u32,
    },
}

/// The symbolic links that are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkPolicy {
    /// All links.
    #[default]
    Keep,
    /// Links that do not lead outside of the tree.
    Inside,
    /// No links.
    Refuse,
}

impl TreePolicy {
    /// The policy of a served root whose operator sets nothing: permissions for others to write are
    /// dropped, and links stay inside.
    pub fn served() -> TreePolicy {
        let mask = SERVED_MASK & !process_umask();
        TreePolicy {
            modes: ModePolicy::Masked { dirs: mask, files: mask },
            links: LinkPolicy::Inside,
            extras: ExtrasPolicy::SERVED,
        }
    }
}

impl ModePolicy {
    /// Permission bits of a file.
    pub(crate) fn file(self, bits: u32) -> u32 {
        match self {
            ModePolicy::Keep => bits,
            ModePolicy::Masked { files, .. } => bits & files,
        }
    }

    /// Permission bits of a directory.
    pub(crate) fn dir(self, bits: u32) -> u32 {
        match self {
            ModePolicy::Keep => bits,
            ModePolicy::Masked { dirs, .. } => bits & dirs | OWNER_ALL,
        }
    }
}

/// The file mode mask of this process.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel's, beneath no root")]
pub(crate) fn process_umask() -> u32 {
    // The mask can otherwise be read only by setting it, for all threads.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let umask = umask.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
    umask.unwrap_or(UMASK_UNKNOWN) & 0o777
}

/// The mask that makes a directory 0755, a program 0755 and any other file 0644, even if its
/// sender's mode has more bits.
const SERVED_MASK: u32 = 0o755;
/// The bits that the owner needs to work in a directory.
const OWNER_ALL: u32 = 0o700;
/// The mask where the system does not tell it: the usual one.
const UMASK_UNKNOWN: u32 = 0o022;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_takes_bits_away_and_leaves_directories_to_their_owner() {
        let policy = ModePolicy::Masked { dirs: 0o750, files: 0o640 };
        for (bits, file, dir) in [(0o777, 0o640, 0o750), (0o000, 0o000, 0o700), (0o555, 0o440, 0o750)] {
            assert_eq!((policy.file(bits), policy.dir(bits)), (file, dir), "{bits:o}");
            assert_eq!((ModePolicy::Keep.file(bits), ModePolicy::Keep.dir(bits)), (bits, bits), "{bits:o}");
        }
    }

    #[test]
    fn a_served_root_is_writable_for_its_owner_alone_unless_it_says_more() {
        let TreePolicy { modes, links, extras } = TreePolicy::served();
        assert_eq!(extras, ExtrasPolicy::SERVED);
        assert_eq!((modes.file(0o777) & !0o755, modes.file(0o666) & !0o644, modes.dir(0o777) & !0o755), (0, 0, 0));
        assert_eq!((modes.dir(0), links), (0o700, LinkPolicy::Inside));
    }
}
