//! Lists of CPUs, as people and the kernel write them: `0-3,8`.
//!
//! In: text. Out: numbers of CPUs, in order. It must not know which of them this host has.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Numbers of CPUs, or of memory nodes, which the kernel lists in the same form. May be empty: a
/// node may have memory and no CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CpuList(BTreeSet<u32>);

/// A text that is no list of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a list of CPUs such as 0-3,8, each below {CPUS_MAX}")]
pub struct CpuListError;

impl CpuList {
    /// The numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Whether it has no number.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers that stand in both.
    #[must_use]
    pub fn and(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.intersection(&other.0).copied().collect())
    }

    /// The numbers that do not stand in `other`.
    #[must_use]
    pub fn without(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.difference(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> CpuList {
        CpuList(numbers.into_iter().collect())
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    /// Numbers and ranges with commas between them. An empty text is an empty list.
    fn from_str(text: &str) -> Result<CpuList, CpuListError> {
        let mut numbers = BTreeSet::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (cpu(first)?, cpu(last)?);
            if first > last {
                return Err(CpuListError);
            }
            numbers.extend(first..=last);
        }
        Ok(CpuList(numbers))
    }
}

/// Reads one number: digits and nothing else.
fn cpu(text: &str) -> Result<u32, CpuListError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|cpu| digits && *cpu < CPUS_MAX).ok_or(CpuListError)
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last {
                _ if last == first => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// The numbers that the kernel's masks hold in the form that is used here (`CPU_SETSIZE`).
const CPUS_MAX: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_in_their_shortest_form() {
        for (text, shortest) in [
            ("0", "0"),
            ("0-3,8", "0-3,8"),
            ("8,0,1,3,2", "0-3,8"),
            ("5-5", "5"),
            ("1-2,2-4", "1-4"),
            ("1023", "1023"),
            ("", ""),
        ] {
            assert_eq!(text.parse::<CpuList>().map(|list| list.to_string()), Ok(shortest.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_list_is_refused() {
        for text in [",", "1,", "3-1", "-1", "1-", "a", "0 1", "+1", "1024", "0-1024", "1-2-3", "99999999999"] {
            assert_eq!(text.parse::<CpuList>(), Err(CpuListError), "{text}");
        }
    }

    #[test]
    fn lists_are_compared_number_by_number() {
        let list = |text: &str| text.parse::<CpuList>().expect("a list");
        assert_eq!(list("0-3").and(&list("2-9")), list("2-3"));
        assert_eq!(list("0-3,8").without(&list("0-3")), list("8"));
        assert!(list("0").and(&list("1")).is_empty());
    }
}
