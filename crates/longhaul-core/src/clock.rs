//! The precision with which file systems keep times, and whether two times may be the same time as
//! kept by two of them.
//!
//! Pure: the caller knows the file system and gives its [`Clock`]. A copy gets its source's time,
//! cut to the precision of its file system; the source may be such a copy itself.

use crate::manifest::Mtime;

/// The part of a time that a file system keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The whole time, to the nanosecond.
    Exact,
    /// The whole time, or whole seconds: ext4, by the size of its inodes, which its type does not
    /// tell.
    ExactOrSeconds,
    /// Hundredths of a second: exFAT.
    Centiseconds,
    /// Even seconds: FAT.
    EvenSeconds,
    /// Unknown, as it is another host's: any precision that file systems have.
    #[default]
    Unknown,
}

impl Clock {
    /// Whether a file that was given the time `given` may show `shown` there.
    pub fn shows(self, given: Mtime, shown: Mtime) -> bool {
        given == shown || self.units().iter().any(|unit| given.cut_to(*unit) == shown)
    }

    /// Whether a file that shows `stands` there may have the time of a source, at the coarser clock
    /// of both. The clock of the source is unknown, but it keeps at least the precision that its
    /// system's `ctime` stamp shows.
    pub fn is_same(self, source: Mtime, ctime: Mtime, stands: Mtime) -> bool {
        let is_kept = |unit: &&i128| ctime.cut_to(**unit) == ctime;
        self.shows(source, stands) || UNITS.iter().filter(is_kept).any(|unit| stands.cut_to(*unit) == source)
    }

    /// The units that times may be cut to, in nanoseconds.
    fn units(self) -> &'static [i128] {
        match self {
            Clock::Exact => &[],
            Clock::ExactOrSeconds => &[SECOND],
            Clock::Centiseconds => &[SECOND / 100],
            Clock::EvenSeconds => &[2 * SECOND],
            Clock::Unknown => &UNITS,
        }
    }
}

impl Mtime {
    /// The last multiple of `unit` nanoseconds that is not later.
    fn cut_to(self, unit: i128) -> Mtime {
        let nanos = i128::from(self.secs) * SECOND + i128::from(self.nanos);
        let cut = nanos - nanos.rem_euclid(unit);
        // Both fit: the cut time lies within the second, or within the one before it.
        Mtime { secs: cut.div_euclid(SECOND) as i64, nanos: cut.rem_euclid(SECOND) as u32 }
    }
}

const SECOND: i128 = 1_000_000_000;
/// The units of file systems other than one nanosecond: NTFS and CIFS; network file systems of
/// microseconds; exFAT; ext3, NFS 2, sshfs; FAT.
const UNITS: [i128; 5] = [100, 1_000, SECOND / 100, SECOND, 2 * SECOND];

#[cfg(test)]
mod tests {
    use super::*;

    fn t(secs: i64, nanos: u32) -> Mtime {
        Mtime { secs, nanos }
    }

    /// A stamp that no coarse clock gives.
    const FINE: Mtime = Mtime { secs: 77, nanos: 123_456_789 };

    #[test]
    fn times_are_cut_downwards_also_before_1970() {
        for (time, unit, cut) in [
            (t(5, 987_654_321), 100, t(5, 987_654_300)),
            (t(5, 987_654_321), SECOND / 100, t(5, 980_000_000)),
            (t(5, 987_654_321), 2 * SECOND, t(4, 0)),
            (t(-1, 5), SECOND, t(-1, 0)),
            (t(-1, 5), 2 * SECOND, t(-2, 0)),
            (t(i64::MIN, 0), 2 * SECOND, t(i64::MIN, 0)),
            (t(i64::MAX, 999_999_999), 2 * SECOND, t(i64::MAX - 1, 0)),
        ] {
            assert_eq!(time.cut_to(unit), cut, "{time:?} {unit}");
        }
    }

    #[test]
    fn what_stands_has_the_sources_time_as_its_clock_keeps_it_and_no_other() {
        let source = t(5, 123_456_789);
        for (clock, stands, same) in [
            (Clock::Exact, source, true),
            (Clock::Exact, t(5, 123_456_700), false),
            (Clock::Exact, t(5, 0), false),
            (Clock::ExactOrSeconds, source, true),
            (Clock::ExactOrSeconds, t(5, 0), true),
            (Clock::ExactOrSeconds, t(5, 120_000_000), false),
            (Clock::ExactOrSeconds, t(4, 0), false),
            (Clock::Centiseconds, t(5, 120_000_000), true),
            (Clock::Centiseconds, t(5, 130_000_000), false),
            (Clock::Centiseconds, t(5, 0), false),
            (Clock::EvenSeconds, t(4, 0), true),
            (Clock::EvenSeconds, t(5, 0), false),
            (Clock::EvenSeconds, t(6, 0), false),
            (Clock::Unknown, t(5, 123_456_700), true),
            (Clock::Unknown, t(5, 123_456_000), true),
            (Clock::Unknown, t(5, 120_000_000), true),
            (Clock::Unknown, t(5, 0), true),
            (Clock::Unknown, t(4, 0), true),
            (Clock::Unknown, t(5, 123_456_788), false),
            (Clock::Unknown, t(5, 123_000_000), false),
            (Clock::Unknown, t(6, 0), false),
        ] {
            assert_eq!(clock.is_same(source, FINE, stands), same, "{clock:?} {stands:?}");
        }
    }

    #[test]
    fn a_source_may_be_a_coarse_copy_where_its_own_stamps_are_coarse() {
        let stands = t(5, 123_456_789);
        for (source, ctime, same) in [
            (t(5, 0), FINE, false),
            (t(5, 0), t(77, 0), true),
            (t(5, 0), t(78, 0), true),
            (t(4, 0), t(78, 0), true),
            (t(4, 0), t(77, 0), false),
            (t(5, 120_000_000), t(77, 120_000_000), true),
            (t(5, 120_000_000), t(77, 123_000_000), false),
            (t(5, 123_456_700), t(77, 100), true),
            (t(5, 0), Mtime::default(), true),
            (t(6, 0), Mtime::default(), false),
        ] {
            for clock in [Clock::Exact, Clock::ExactOrSeconds] {
                assert_eq!(clock.is_same(source, ctime, stands), same, "{source:?} {ctime:?}");
            }
        }
    }
}
