//! The words that all others here are made of: ids, times, amounts, fences and claims.
//!
//! In: numbers of a store, random bytes of a caller. Out: types that cannot be taken for each
//! other. Must not know a rule of the queue.

use std::time::Duration;

/// A campaign's number in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CampaignId(pub u64);

/// 16 random bytes by which destinations know a campaign: numbers of two stores may be the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CampaignKey(pub [u8; 16]);

/// 16 random bytes by which the signatures of a queue's campaigns know it. A campaign that was
/// copied to another queue has the wrong ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub [u8; 16]);

/// A shard's number in its store. Numbers of the shards of a campaign grow in the order of its
/// manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u64);

/// A link's number in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// A site's number in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u64);

/// 16 random bytes that a mover's process drew when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoverId(pub [u8; 16]);

/// Microseconds since 1970, UTC, by the clock of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

/// A number that grows with each claim of a shard. 0 is before the first claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// 16 random bytes that a mover draws for each claim. A store that was restored from a backup may
/// give a fence twice; the ids tell the two apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub [u8; 16]);

/// 16 random bytes that a daemon draws each time that a claim is shown to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; 16]);

/// A mover's right to a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// Grows with each claim of the shard.
    pub fence: Fence,
    /// Tells two claims with one fence apart.
    pub id: ClaimId,
}

/// Files, and the bytes in them by their manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The question whether a time has passed, asked of a clock that may have been set back: a time
/// that is farther ahead than any rule sets one was set by a clock that ran ahead, and has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The time by the store's clock.
    pub now: Micros,
    /// The latest time that a rule may have set, with as much again for steps of the clock.
    pub latest: Micros,
}

/// The largest number that every backend can keep.
pub(crate) const ROW_NUMBER_MAX: u64 = i64::MAX as u64;
/// The last fence.
const FENCE_MAX: u64 = ROW_NUMBER_MAX;

impl Micros {
    /// The time so much later.
    #[must_use]
    pub const fn plus(self, span: Duration) -> Micros {
        let micros = span.as_micros();
        Micros(if micros > u64::MAX as u128 { u64::MAX } else { self.0.saturating_add(micros as u64) })
    }

    /// The time since an earlier one. Zero if that one is later.
    pub const fn since(self, earlier: Micros) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Fence {
    /// Whether a destination believes it. Claims one after the other never come so far; a higher
    /// one was made up, and if it were kept, no store could give out a higher one.
    pub const fn may_be_shown(self) -> bool {
        self.0 <= FENCE_MAX / 2
    }

    /// The next fence. `None` if there is none that a store can keep.
    pub const fn next(self) -> Option<Fence> {
        if self.0 < FENCE_MAX { Some(Fence(self.0 + 1)) } else { None }
    }
}

impl Amount {
    /// The sum. `None` if it does not fit.
    pub const fn plus(self, other: Amount) -> Option<Amount> {
        match (self.files.checked_add(other.files), self.bytes.checked_add(other.bytes)) {
            (Some(files), Some(bytes)) => Some(Amount { files, bytes }),
            _ => None,
        }
    }

    /// The difference. `None` if there is more to take away than there is.
    pub const fn minus(self, other: Amount) -> Option<Amount> {
        match (self.files.checked_sub(other.files), self.bytes.checked_sub(other.bytes)) {
            (Some(files), Some(bytes)) => Some(Amount { files, bytes }),
            _ => None,
        }
    }

    /// The larger of both, files and bytes each.
    #[must_use]
    pub fn max_of_each(self, other: Amount) -> Amount {
        Amount { files: self.files.max(other.files), bytes: self.bytes.max(other.bytes) }
    }
}

impl Due {
    /// The question at a time, of times that are set at most `span` ahead.
    pub const fn at(now: Micros, span: Duration) -> Due {
        Due { now, latest: now.plus(span).plus(span) }
    }

    /// Whether a time has passed.
    pub const fn has_passed(self, time: Micros) -> bool {
        time.0 <= self.now.0 || time.0 > self.latest.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_set_by_a_clock_that_ran_ahead_has_passed() {
        let due = Due::at(Micros(1_000_000_000), Duration::from_secs(60));
        let cases = [
            (999_999_999, true),
            (1_000_000_000, true),
            (1_000_000_001, false),
            (1_120_000_000, false),
            (1_120_000_001, true),
        ];
        for (time, passed) in cases {
            assert_eq!(due.has_passed(Micros(time)), passed, "{time}");
        }
    }

    #[test]
    fn the_last_fence_has_no_next_one() {
        assert_eq!(Fence(FENCE_MAX - 1).next(), Some(Fence(FENCE_MAX)));
        assert_eq!(Fence(FENCE_MAX).next(), None);
    }
}
