//! The name of a removal plan, and names of a tree that no plan takes.
//!
//! In: the digest of a plan and the time of its making, or a path. Out: the label of its grace
//! directory, and whether longhaul keeps something under a path. Must not know what a plan has, and
//! looks at no tree.

use serde::{Deserialize, Serialize};

use crate::path::RelPath;
use crate::units::civil_day;

/// The name of a removal plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanName {
    /// The BLAKE3 of its text.
    pub digest: [u8; 32],
    /// When it was made, in seconds since 1970.
    pub made: u64,
}

impl PlanName {
    /// The label of the grace directory for the names of this plan: the day on which it was made,
    /// and the beginning of its digest. It has digits, letters and dashes alone.
    pub fn label(&self) -> String {
        let (year, month, day) = civil_day(i64::try_from(self.made / DAY_SECONDS).unwrap_or(0));
        let digits: String = self.digest[..LABEL_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{year:04}-{month:02}-{day:02}-{digits}")
    }
}

/// Whether longhaul keeps something under this path: an earlier dataset as `NAME.<id>~`, or a name
/// in it. Names of its own that begin with `.longhaul` are no paths at all.
pub fn is_kept(path: &RelPath) -> bool {
    path.components().any(|name| {
        let Some(rest) = name.strip_suffix(b"~") else { return false };
        let Some(dot) = rest.len().checked_sub(KEPT_ID_DIGITS + 1) else { return false };
        let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        dot > 0 && rest[dot] == b'.' && rest[dot + 1..].iter().all(is_digit)
    })
}

/// Bytes of the digest in a label.
const LABEL_BYTES: usize = 8;
const DAY_SECONDS: u64 = 86_400;
/// Digits of the id in the name of an earlier dataset that is kept.
const KEPT_ID_DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_that_were_replaced_are_kept_and_what_only_looks_alike_is_not() {
        let kept = |path: &str| is_kept(&RelPath::new(path).expect("a path"));
        assert!(kept("run7.0123456789abcdef~") && kept("a/run7.0123456789abcdef~/x"));
        for other in
            ["run7~", "run7.0123456789abcde~", "run7.0123456789abcdeF~", "run7.0123456789abcdef", ".0123456789abcdef~"]
        {
            assert!(!kept(other), "{other}");
        }
    }

    #[test]
    fn a_label_is_one_plain_name_whatever_a_plan_says_of_itself() {
        let name = |made| PlanName { digest: [0xab; 32], made };
        assert_eq!(name(1_795_862_400).label(), "2026-11-28-abababababababab");
        for made in [0, u64::MAX / 2, u64::MAX] {
            let label = name(made).label();
            assert!(
                label.len() < 64 && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
                "{label}"
            );
        }
    }
}
