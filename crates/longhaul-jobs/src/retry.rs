//! Whether something is tried again after a fault, what waits until then, and how long.
//!
//! In: codes of faults, counts of tries, and random numbers. Out: who is concerned, and spans. Must
//! not know shards, links or times.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use longhaul_core::{FaultCode, PlainText};

use crate::codes::code_of_name;

/// The part of a campaign that a fault of a whole session concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The link: all of it waits, and is tried by one mover first.
    BackOff,
    /// The link, until somebody opens it: no later try can succeed by itself.
    Close,
    /// This shard, until somebody releases it.
    Hold,
    /// Nothing: the mover was stopped, and another one goes on at once.
    HandBack,
}

/// How often a file is tried, by the kind of its fault: an override of the defaults, as in
/// `changed=5, mismatch=1`. A file is tried again with its shard, whose other files are compared
/// and not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryRules {
    tries: Vec<(FaultCode, u32)>,
}

/// The reason why retry rules were not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetryError {
    /// A rule has another form.
    #[error("'{0}' is not a rule: write the name of a fault and how often a file is tried, as in 'changed=5'")]
    Form(PlainText),
    /// There is no fault of that name.
    #[error("there is no fault '{0}'")]
    UnknownCode(PlainText),
    /// The number is none, or out of bounds.
    #[error("'{0}' does not end with a number from 1 to {TRIES_OF_FILE_MAX}")]
    Tries(PlainText),
}

/// Tries of a file whose fault may pass: the system was busy, or the file changed while it was
/// read.
const TRIES_OF_PASSING: u32 = 3;
/// Tries of a file that a user may ask for.
const TRIES_OF_FILE_MAX: u32 = 100;

/// The first pause of a link that failed.
pub const LINK_PAUSE_MIN: Duration = Duration::from_secs(10);
/// The longest pause of a link or of a shard: whatever was mended is in use again after so long.
pub const PAUSE_MAX: Duration = Duration::from_secs(600);
/// The first pause of a shard with files that are tried again.
const SHARD_PAUSE_MIN: Duration = Duration::from_secs(30);

/// The part of a campaign that is concerned by a fault which ended a whole session.
pub const fn treatment(code: FaultCode) -> Treatment {
    match code {
        FaultCode::Unreachable
        | FaultCode::Lost
        | FaultCode::TimedOut
        | FaultCode::Busy
        | FaultCode::NoSpace
        | FaultCode::ReadOnly
        | FaultCode::Io
        | FaultCode::Exhausted
        | FaultCode::TargetFailed => Treatment::BackOff,
        FaultCode::Denied => Treatment::Close,
        // Nothing is wrong with link or shard.
        FaultCode::Interrupted | FaultCode::Terminated => Treatment::HandBack,
        FaultCode::Unclassified
        | FaultCode::Usage
        | FaultCode::NotFound
        | FaultCode::Mismatch
        | FaultCode::Exists
        | FaultCode::Changed
        | FaultCode::Vanished
        | FaultCode::InTheWay
        | FaultCode::Unsupported
        | FaultCode::Protocol
        | FaultCode::Internal
        // Who has the shard by this queue was overtaken by somebody of another one: two queues have
        // the campaign, and would take the shard from each other for ever.
        | FaultCode::Superseded
        | FaultCode::Incomplete
        | FaultCode::Published => Treatment::Hold,
    }
}

/// The pause of a link after so many failures in a row: doubled each time, from 10 s to 10 min, and
/// shortened by up to a half by chance, so that links that failed together do not come back
/// together.
pub fn link_pause(failures: u32, chance: u64) -> Duration {
    pause(LINK_PAUSE_MIN, failures, chance)
}

/// The pause of a shard before the try behind so many.
pub(crate) fn shard_pause(attempts: u32, chance: u64) -> Duration {
    pause(SHARD_PAUSE_MIN, attempts, chance)
}

fn pause(first: Duration, times: u32, chance: u64) -> Duration {
    let doubled = first.saturating_mul(1 << times.saturating_sub(1).min(16)).min(PAUSE_MAX);
    let shortened = doubled - doubled / 2 * (chance % 1000) as u32 / 1000;
    shortened.max(first)
}

impl RetryRules {
    /// The number of tries of a file with such a fault, 1 or more.
    pub fn tries(&self, code: FaultCode) -> u32 {
        let passing = matches!(
            code,
            FaultCode::Unreachable
                | FaultCode::Lost
                | FaultCode::TimedOut
                | FaultCode::Busy
                | FaultCode::Exhausted
                | FaultCode::TargetFailed
                | FaultCode::Io
                | FaultCode::Changed
        );
        let own = self.tries.iter().find(|(of, _)| *of == code).map(|(_, tries)| *tries);
        own.unwrap_or(if passing { TRIES_OF_PASSING } else { 1 })
    }
}

impl fmt::Display for RetryRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (code, tries)) in self.tries.iter().enumerate() {
            write!(f, "{}{}={tries}", if at > 0 { ", " } else { "" }, code.name())?;
        }
        Ok(())
    }
}

impl FromStr for RetryRules {
    type Err = RetryError;

    fn from_str(text: &str) -> Result<RetryRules, RetryError> {
        let mut rules = RetryRules::default();
        for rule in text.split(',').map(str::trim).filter(|rule| !rule.is_empty()) {
            let shown = || PlainText::from(rule);
            let (name, number) = rule.split_once('=').ok_or_else(|| RetryError::Form(shown()))?;
            let code =
                code_of_name(name.trim()).ok_or_else(|| RetryError::UnknownCode(PlainText::from(name.trim())))?;
            let tries = number.trim().parse().ok().filter(|tries| (1..=TRIES_OF_FILE_MAX).contains(tries));
            rules.tries.retain(|(of, _)| *of != code);
            rules.tries.push((code, tries.ok_or_else(|| RetryError::Tries(shown()))?));
        }
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_within_its_bounds_and_chance_takes_at_most_half() {
        for (failures, longest, shortest) in
            [(0, 10, 10), (1, 10, 10), (2, 20, 10), (3, 40, 20), (6, 320, 160), (7, 600, 300), (u32::MAX, 600, 300)]
        {
            assert_eq!(link_pause(failures, 0).as_secs(), longest, "{failures}");
            assert_eq!(link_pause(failures, 999).as_secs(), shortest, "{failures}");
        }
    }

    #[test]
    fn each_fault_of_a_session_has_its_treatment_and_each_of_a_file_its_tries() {
        let table = [
            (Treatment::BackOff, 3, "unreachable lost timed-out busy io exhausted target-failed"),
            (Treatment::BackOff, 1, "no-space read-only"),
            (Treatment::Close, 1, "denied"),
            (Treatment::HandBack, 1, "interrupted terminated"),
            (Treatment::Hold, 3, "changed"),
            (
                Treatment::Hold,
                1,
                "unclassified usage not-found mismatch exists vanished in-the-way unsupported protocol internal superseded incomplete published",
            ),
        ];
        let mut seen = 0;
        for (want, tries, names) in table {
            for name in names.split(' ') {
                let code = code_of_name(name).unwrap_or_else(|| panic!("there is no fault {name}"));
                assert_eq!((treatment(code), RetryRules::default().tries(code)), (want, tries), "{name}");
                seen += 1;
            }
        }
        assert_eq!(seen, crate::codes::CODES.len());
    }

    #[test]
    fn a_missing_file_is_tried_once_and_a_changed_one_again_unless_the_rules_say_otherwise() {
        let default = RetryRules::default();
        assert_eq!((default.tries(FaultCode::NotFound), default.tries(FaultCode::Changed)), (1, 3));
        let own: RetryRules = "changed=1, not-found = 5, changed=7".parse().unwrap();
        assert_eq!((own.tries(FaultCode::NotFound), own.tries(FaultCode::Changed)), (5, 7));
        assert_eq!(own.to_string().parse::<RetryRules>(), Ok(own));
    }

    #[test]
    fn rules_that_are_none_are_refused() {
        for (text, want) in [
            ("changed", "'changed' is not a rule"),
            ("gone=1", "no fault 'gone'"),
            ("changed=0", "'changed=0' does not end with a number"),
            ("changed=101", "from 1 to 100"),
        ] {
            let said = text.parse::<RetryRules>().unwrap_err().to_string();
            assert!(said.contains(want), "{text}: {said}");
        }
    }
}
