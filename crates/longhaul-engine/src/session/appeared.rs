//! The end of a run that hears, as it dials again, that its dataset has appeared.
//!
//! In: the course of the sending side, as its lost session left it. Out: the outcomes of the
//! entries of which it did not hear. It knows no connection.

use longhaul_core::{Blame, EntryKind, Fault, Sums};
use longhaul_proto::wire::message::Outcome;

use super::course::SendCourse;
use super::settled::tell_settled;
use crate::api::{Observer, OwnFacts};

impl SendCourse {
    /// Settles the entries whose outcome was lost with the connection: the receiver has had the
    /// dataset appear, as its `fault` says, so that all of them are there. If `digests` were asked
    /// for, those of such files are missing, and the run ends with the fault.
    pub(crate) fn has_appeared(&mut self, fault: Fault, digests: bool, observer: &dyn Observer) {
        let mut unheard = 0_u64;
        for known in std::mem::take(&mut self.again) {
            if matches!(known.held.entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. }) {
                unheard += u64::from(matches!(known.held.entry.kind, EntryKind::File { .. }));
                let told = (Outcome::Committed(None), Sums::default());
                tell_settled((&known.held, false), OwnFacts::default(), told, &mut self.totals, observer);
            }
        }
        let why = format_args!(
            "dataset '{}' has appeared, and the checksums of {unheard} files were lost with the connection: the manifest in it has them",
            fault.object
        );
        let fault = Fault::new(fault.code, Blame::Path, why).about(&fault.object);
        self.totals.fault = (digests && unheard > 0).then_some(fault);
    }
}
