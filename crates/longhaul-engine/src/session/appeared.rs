//! The end of a run that hears, as it dials again, that its dataset has appeared.
//!
//! In: the course of the sending side, as its lost session left it. Out: the outcomes of the
//! entries of which it did not hear. It knows no connection.

use longhaul_core::{EntryKind, Sums};
use longhaul_proto::wire::message::Outcome;

use super::course::SendCourse;
use super::settled::tell_settled;
use crate::api::{Observer, OwnFacts};

impl SendCourse {
    /// Settles the entries whose outcome was lost with the connection: the receiver has had the
    /// dataset appear, so that all of them are there. Gives the number of files of which nobody has
    /// told the digest.
    pub(crate) fn has_appeared(&mut self, observer: &dyn Observer) -> u64 {
        let mut unheard = 0;
        for known in std::mem::take(&mut self.again) {
            if matches!(known.held.entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. }) {
                unheard += u64::from(matches!(known.held.entry.kind, EntryKind::File { .. }));
                let told = (Outcome::Committed(None), Sums::default());
                tell_settled((&known.held, false), OwnFacts::default(), told, &mut self.totals, observer);
            }
        }
        self.totals.fault = None;
        unheard
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use longhaul_core::{Entry, FileId, Inode, Meta, RelPath};
    use longhaul_proto::receiver::EntryRef;

    use super::*;
    use crate::api::{Event, FileStatus};
    use crate::session::course::{EntrySource, UnsettledEntry};

    #[derive(Default)]
    struct Heard(Mutex<Vec<FileStatus>>);

    impl Observer for Heard {
        fn event(&self, event: Event) {
            if let Event::File(file) = event {
                self.0.lock().expect("no panic").push(file.status);
            }
        }
    }

    fn unsettled(path: &str, kind: EntryKind) -> UnsettledEntry {
        let path = RelPath::new(path).expect("a path");
        let entry = Entry { path: path.clone(), kind, meta: Meta::default() };
        let held = Arc::new(EntryRef { id: FileId(0), entry, placed: path });
        UnsettledEntry { held, source: EntrySource::Special, begun: true, is_reported: false }
    }

    #[test]
    fn what_was_not_heard_of_a_dataset_that_has_appeared_is_told_and_counted_once() {
        let mut course = SendCourse::default();
        course.totals.stages_all = true;
        let file = EntryKind::File { len: 7, sparse: false, inode: Inode::default() };
        let link = EntryKind::Symlink { target: b"x".to_vec() };
        let lost = [unsettled("f", file), unsettled("link", link), unsettled("d", EntryKind::Dir)];
        course.keep(lost.into_iter(), std::iter::empty());
        let heard = Heard::default();
        assert_eq!((course.has_appeared(&heard), course.has_appeared(&heard)), (1, 0));
        assert_eq!(*heard.0.lock().expect("no panic"), [FileStatus::Staged, FileStatus::Staged]);
        let report = course.totals.into_report(1.0);
        assert_eq!((report.files_committed, report.bytes_committed, report.fault), (2, 7, None));
    }
}
