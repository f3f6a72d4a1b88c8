//! Modes and times, as they are set on what was received.

use longhaul_core::{Meta, Preserve};
use rustix::fs::{Mode, Timespec, Timestamps, UTIME_OMIT};

/// Which permissions new things get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modes {
    umask: u32,
}

impl Modes {
    /// With the file mode mask of this process.
    #[allow(clippy::disallowed_methods, reason = "a file of the kernel's, beneath no root")]
    pub(crate) fn of_process() -> Modes {
        // The mask can otherwise be read only by setting it, for all threads.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        let umask = umask.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
        Modes { umask: umask.unwrap_or(UMASK_UNKNOWN) & 0o777 }
    }

    /// The mode of a file. Set-id and sticky bits are dropped: without its owner's they would mean something else.
    pub(crate) fn file(self, meta: &Meta, preserve: Preserve) -> u32 {
        if preserve.mode { meta.mode & 0o777 } else { 0o666 & !self.umask }
    }

    /// The mode of a directory, likewise.
    pub(crate) fn dir(self, meta: &Meta, preserve: Preserve) -> u32 {
        if preserve.mode { meta.mode & 0o777 } else { 0o777 & !self.umask }
    }

    /// What `open` makes of a mode.
    pub(crate) fn after_open(self, mode: u32) -> u32 {
        mode & !self.umask
    }
}

/// The mode in the system's type.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_bits_truncate(bits)
}

/// The modification time to set; the access time stays.
pub(crate) fn times(meta: &Meta) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: meta.mtime.secs, tv_nsec: i64::from(meta.mtime.nanos) as _ },
    }
}

/// The usual one.
const UMASK_UNKNOWN: u32 = 0o022;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_never_travel_and_the_mask_rules_what_is_not_preserved() {
        let modes = Modes { umask: 0o027 };
        let meta = Meta { mode: 0o6755, ..Meta::default() };
        let loose = Preserve { mode: false, ..Preserve::default() };
        assert_eq!(modes.file(&meta, Preserve::default()), 0o755);
        assert_eq!(modes.file(&meta, loose), 0o640);
        assert_eq!(modes.dir(&meta, loose), 0o750);
        assert_eq!(modes.after_open(0o666), 0o640);
    }
}
