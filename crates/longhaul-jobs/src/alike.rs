//! The judgement whether a shard's files all fail alike, so that going on would be in vain.
//!
//! In: the outcome of each file of a shard, as a mover settles them. Out: the reason for which the
//! shard is held. Must not know which files they are.

use longhaul_core::FaultCode;

use crate::codes::CODES;
use crate::rows::{Hold, Shard};

/// A shard is judged each time that so many more files are settled.
const JUDGED_EVERY: u64 = 100;
/// Files below which a whole shard is not judged: two of three missing files are no pattern.
const JUDGED_FILES_MIN: u64 = 10;
/// The part of them that fails alike in a shard that is held.
const ALIKE_PERCENT: u64 = 80;

/// The count of a shard's outcomes.
#[derive(Clone, Debug, Default)]
pub struct AlikeWatch {
    /// A user has seen that they fail alike, and released the shard.
    judged: bool,
    settled: u64,
    by_code: [u64; CODES.len()],
}

impl AlikeWatch {
    /// The watch over a shard that was claimed. It says nothing of one that a user released after
    /// it had been held as its files fail alike: the others are moved then.
    pub fn of(shard: &Shard) -> AlikeWatch {
        AlikeWatch { judged: shard.news.judged, ..AlikeWatch::default() }
    }

    /// A file stands, or failed with a code. Gives the reason to stop, after each hundred files, if
    /// four of five of all so far failed alike.
    pub fn settle(&mut self, failed: Option<FaultCode>) -> Option<Hold> {
        self.settled += 1;
        if let Some(code) = failed {
            self.by_code[code as usize] += 1;
        }
        if self.settled.is_multiple_of(JUDGED_EVERY) { self.judge() } else { None }
    }

    /// The shard is through. Gives the reason to hold it instead, if it had ten files at least, and
    /// four of five failed alike.
    pub fn finish(&self) -> Option<Hold> {
        if self.settled >= JUDGED_FILES_MIN { self.judge() } else { None }
    }

    fn judge(&self) -> Option<Hold> {
        let (code, alike) = CODES.into_iter().zip(self.by_code).max_by_key(|(_, count)| *count)?;
        let many = !self.judged && alike * 100 >= self.settled * ALIKE_PERCENT;
        many.then_some(Hold::Alike { code, alike, of: self.settled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(files: u64, missing: u64, denied: u64) -> Option<Hold> {
        outcome_of(AlikeWatch::default(), files, missing, denied)
    }

    fn outcome_of(mut watch: AlikeWatch, files: u64, missing: u64, denied: u64) -> Option<Hold> {
        for file in 0..files {
            let code = (file < missing + denied).then_some(if file < missing {
                FaultCode::NotFound
            } else {
                FaultCode::Denied
            });
            if let Some(hold) = watch.settle(code) {
                return Some(hold);
            }
        }
        watch.finish()
    }

    #[test]
    fn a_shard_is_held_when_four_of_five_files_fail_alike_and_not_below() {
        let alike = |alike, of| Some(Hold::Alike { code: FaultCode::NotFound, alike, of });
        for (files, missing, denied, want) in [
            (100, 80, 0, alike(80, 100)),
            (100, 79, 21, None),
            (10_000, 100, 0, alike(100, 100)),
            (10, 8, 0, alike(8, 10)),
            (10, 7, 3, None),
            (9, 9, 0, None),
            (99, 80, 19, alike(80, 99)),
            (99, 79, 0, None),
            (0, 0, 0, None),
        ] {
            assert_eq!(outcome(files, missing, denied), want, "{files} files, {missing} missing, {denied} denied");
        }
    }

    #[test]
    fn files_that_fail_alike_behind_the_first_hundred_are_seen_as_well() {
        let mut watch = AlikeWatch::default();
        let held = (0..1000).find_map(|file| watch.settle((file >= 30).then_some(FaultCode::Denied)));
        assert_eq!(held, Some(Hold::Alike { code: FaultCode::Denied, alike: 170, of: 200 }));
        let mut watch = AlikeWatch::default();
        let held = (0..150).find_map(|file| watch.settle((file >= 25).then_some(FaultCode::Denied)));
        assert_eq!((held, watch.finish()), (None, Some(Hold::Alike { code: FaultCode::Denied, alike: 125, of: 150 })));
    }

    #[test]
    fn a_shard_that_was_judged_is_not_held_again() {
        let judged = AlikeWatch { judged: true, ..AlikeWatch::default() };
        assert_eq!(outcome_of(judged, 1000, 1000, 0), None);
    }
}
