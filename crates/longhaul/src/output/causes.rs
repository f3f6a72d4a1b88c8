//! One line for each cause: if a thousand files fail for want of one directory, the first one's
//! line tells why, and the others are counted.
//!
//! In: the faults of files, with whole paths. Out: whether a fault is to be told, and at the end
//! the counts of untold ones. Prints nothing itself.

use std::collections::HashMap;

use longhaul_core::{Fault, FaultCode, PlainText};

/// The causes told so far, and the number of files that failed by each without a line of their own.
#[derive(Debug, Default)]
pub(super) struct Causes {
    counts: HashMap<Cause, usize>,
    /// The first fault of each cause, about the object that all of them share, and the number of
    /// further ones.
    counted: Vec<(Fault, usize)>,
}

/// The key by which two failures have one cause.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Cause {
    code: FaultCode,
    /// The object: the directory that has failed for all files in it, or that may not be written
    /// to.
    object: PlainText,
    message: String,
}

impl Causes {
    /// Whether the fault of one file is new. `at_dest`: it was met at the destination.
    pub(super) fn is_news(&mut self, fault: &Fault, at_dest: bool) -> bool {
        let cause = Cause::of(fault, at_dest);
        if let Some(&at) = self.counts.get(&cause) {
            self.counted[at].1 += 1;
            return false;
        }
        if self.counted.len() < CAUSES_MAX {
            self.counted.push((fault.clone().about(&cause.object), 0));
            self.counts.insert(cause, self.counted.len() - 1);
        }
        true
    }

    /// A line for each cause with files that were not told.
    pub(super) fn rest(&mut self) -> Vec<Fault> {
        self.counts.clear();
        let counted = std::mem::take(&mut self.counted).into_iter().filter(|(_, more)| *more > 0);
        counted.map(|(fault, more)| rest_of(&fault, more)).collect()
    }
}

impl Cause {
    fn of(fault: &Fault, at_dest: bool) -> Cause {
        let (object, message) = (&fault.object, &fault.message);
        let of_dir = at_dest && matches!(fault.code, FaultCode::Denied | FaultCode::ReadOnly);
        match object.rsplit_once('/').filter(|_| of_dir && fault.names_object()) {
            Some((dir, _)) => {
                let message = message.replace(object.as_str(), "");
                Cause { code: fault.code, object: dir.into(), message }
            }
            None => Cause { code: fault.code, object: object.clone(), message: message.to_string() },
        }
    }
}

fn rest_of(fault: &Fault, more: usize) -> Fault {
    let files = if more == 1 { "1 file".to_owned() } else { format!("{more} files") };
    Fault::new(fault.code, fault.blame, format_args!("and {files} more failed for this reason")).about(&fault.object)
}

/// Causes that are kept apart; a further one is told for each file.
const CAUSES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use longhaul_core::Blame;

    use super::*;

    fn fault(code: FaultCode, object: &str, message: &str) -> Fault {
        Fault::new(code, Blame::Local, message).about(object)
    }

    #[test]
    fn what_fails_for_one_directory_is_said_once_and_counted() {
        let mut causes = Causes::default();
        let dir = || fault(FaultCode::Exists, "dst/d", "'dst/d' exists: it is no directory");
        assert!(causes.is_news(&dir(), true));
        assert!((0..12).all(|_| !causes.is_news(&dir(), true)));
        let rest = causes.rest();
        assert_eq!(rest.len(), 1);
        assert_eq!((&*rest[0].object, &*rest[0].message), ("dst/d", "and 12 files more failed for this reason"));
        assert!(causes.rest().is_empty());
    }

    #[test]
    fn files_of_a_directory_that_may_not_be_written_to_have_one_cause_and_unreadable_ones_have_one_each() {
        let mut causes = Causes::default();
        let denied = |name: &str| fault(FaultCode::Denied, name, &format!("cannot create '{name}': Permission denied"));
        let news: Vec<bool> = ["d/a", "d/b", "e/a"].map(|name| causes.is_news(&denied(name), true)).into();
        assert_eq!(news, [true, false, true]);
        assert_eq!(causes.rest()[0].object, "d");
        let news: Vec<bool> = ["s/a", "s/b"].map(|name| causes.is_news(&denied(name), false)).into();
        assert_eq!(news, [true, true]);
    }
}
