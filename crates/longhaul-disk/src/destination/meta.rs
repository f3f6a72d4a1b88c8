//! The rules for metadata of received files and directories, and their modes.

use longhaul_core::{Meta, Preserve};
use rustix::fs::Mode;

use super::extras::ExtrasKeeper;
use super::policy::{ModePolicy, TreePolicy, process_umask};

/// The rules for the metadata of a tree.
#[derive(Debug)]
pub(crate) struct MetaRules {
    /// Modes.
    pub(crate) modes: Modes,
    /// Everything beyond modes and times.
    pub(crate) extras: ExtrasKeeper,
}

impl MetaRules {
    /// The rules of a tree's policy.
    pub(crate) fn under(policy: TreePolicy) -> MetaRules {
        MetaRules { modes: Modes::under(policy.modes), extras: ExtrasKeeper::under(policy) }
    }
}

/// The permissions that new files and directories get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modes {
    umask: u32,
    policy: ModePolicy,
}

impl Modes {
    /// The rules of a tree's policy with the file mode mask of this process.
    pub(crate) fn under(policy: ModePolicy) -> Modes {
        Modes { umask: process_umask(), policy }
    }

    /// The mode of a file. Set-id and sticky bits are dropped: with another owner they would mean
    /// something else.
    pub(crate) fn file(self, meta: &Meta, preserve: Preserve) -> u32 {
        self.policy.file(if preserve.mode { meta.mode & 0o777 } else { 0o666 & !self.umask })
    }

    /// The mode of a directory, with the same bits dropped.
    pub(crate) fn dir(self, meta: &Meta, preserve: Preserve) -> u32 {
        self.policy.dir(if preserve.mode { meta.mode & 0o777 } else { 0o777 & !self.umask })
    }

    /// The mode with which a file is created that shall have `wanted`, and the one to set when all
    /// else is set. `None`: it has it then. Its owner must be able to write to what gets checksums.
    pub(crate) fn created(self, wanted: u32, preserve: Preserve) -> (u32, Option<u32>) {
        let made = if preserve.sums.is_empty() { wanted } else { wanted | OWNER_WRITES };
        (made, (self.after_open(made) != wanted).then_some(wanted))
    }

    /// The mode that a file has after `open` with `mode`.
    pub(crate) fn after_open(self, mode: u32) -> u32 {
        mode & !self.umask
    }
}

/// The permission without which the system lets an owner keep no attribute with a file.
const OWNER_WRITES: u32 = 0o200;

/// The mode in the system's type.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_bits_truncate(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_never_travel_and_the_mask_rules_what_is_not_preserved() {
        let modes = Modes { umask: 0o027, policy: ModePolicy::Keep };
        let meta = Meta { mode: 0o6755, ..Meta::default() };
        let loose = Preserve { mode: false, ..Preserve::default() };
        assert_eq!(modes.file(&meta, Preserve::default()), 0o755);
        assert_eq!(modes.file(&meta, loose), 0o640);
        assert_eq!(modes.dir(&meta, loose), 0o750);
        assert_eq!(modes.after_open(0o666), 0o640);
        let masked = Modes { policy: ModePolicy::Masked { dirs: 0o711, files: 0o711 }, ..modes };
        assert_eq!((masked.file(&meta, Preserve::default()), masked.dir(&meta, loose)), (0o711, 0o710));
    }
}
