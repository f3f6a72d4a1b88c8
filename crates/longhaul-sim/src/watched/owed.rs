//! The reports that a machine is owed: each order that is answered by one, until it comes.
//!
//! Takes orders and the reports; panics at a report that no order asked for, and at an end before
//! the last report. Knows nothing of when an order may be given.

use std::collections::BTreeMap;

use longhaul_proto::receiver::ReceiverAction;

/// A kind of report, named for the method of the machine that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReportKind {
    Survey,
    MeasureRoom,
    Create,
    Write,
    /// One for each entry.
    Stage,
    Name,
    SyncData,
    ReadBack,
    ReadInOrder,
    ReadStaged,
    ReadStanding,
    ReadStandingChunks,
    /// One for each entry.
    DigestSkipped,
    Retouch,
    Journal,
    Barrier,
    Publish,
    SyncDirs,
    FinishDirs,
    Tidy,
}

/// The reports that did not come yet, by their kind.
#[derive(Debug, Default)]
pub(super) struct Owed(BTreeMap<ReportKind, usize>);

impl Owed {
    /// Notes an order. Panics if it ends the session while reports are owed.
    pub(super) fn ordered(&mut self, action: &ReceiverAction) {
        if let ReceiverAction::Finished(_) = action {
            assert!(self.0.is_empty(), "finished while reports are owed: {:?}", self.0);
        }
        if let Some((kind, reports)) = answer_to(action).filter(|(_, reports)| *reports > 0) {
            *self.0.entry(kind).or_default() += reports;
        }
    }

    /// Notes reports. Panics if no order asked for them.
    pub(super) fn came(&mut self, kind: ReportKind, reports: usize) {
        let owed = self.0.remove(&kind).unwrap_or_default();
        let left = owed.checked_sub(reports).unwrap_or_else(|| panic!("{reports} of {kind:?}, and {owed} are owed"));
        if left > 0 {
            self.0.insert(kind, left);
        }
    }
}

/// The reports that answer an order. `None` if it is carried out without one.
fn answer_to(action: &ReceiverAction) -> Option<(ReportKind, usize)> {
    Some(match action {
        ReceiverAction::Survey(_) => (ReportKind::Survey, 1),
        ReceiverAction::MeasureRoom { .. } => (ReportKind::MeasureRoom, 1),
        ReceiverAction::Create(..) => (ReportKind::Create, 1),
        ReceiverAction::Write { .. } | ReceiverAction::Copy { .. } => (ReportKind::Write, 1),
        ReceiverAction::MakeLink(_) | ReceiverAction::Seal(_) => (ReportKind::Stage, 1),
        ReceiverAction::MakeName { .. } => (ReportKind::Name, 1),
        ReceiverAction::WriteBundle { files, .. } => (ReportKind::Stage, files.len()),
        ReceiverAction::SyncData(_) => (ReportKind::SyncData, 1),
        ReceiverAction::ReadBack { .. } => (ReportKind::ReadBack, 1),
        ReceiverAction::ReadInOrder { .. } => (ReportKind::ReadInOrder, 1),
        ReceiverAction::ReadStaged { .. } => (ReportKind::ReadStaged, 1),
        ReceiverAction::ReadStanding(_) => (ReportKind::ReadStanding, 1),
        ReceiverAction::ReadStandingChunks { .. } => (ReportKind::ReadStandingChunks, 1),
        ReceiverAction::DigestSkipped(files) => (ReportKind::DigestSkipped, files.len()),
        ReceiverAction::Retouch { .. } => (ReportKind::Retouch, 1),
        ReceiverAction::Journal(_) => (ReportKind::Journal, 1),
        ReceiverAction::Barrier(_) | ReceiverAction::BarrierAgain(_) => (ReportKind::Barrier, 1),
        ReceiverAction::Publish(_) => (ReportKind::Publish, 1),
        ReceiverAction::SyncDirs(_) | ReceiverAction::SyncDirsAgain(_) => (ReportKind::SyncDirs, 1),
        ReceiverAction::FinishDirs(_) => (ReportKind::FinishDirs, 1),
        ReceiverAction::Tidy => (ReportKind::Tidy, 1),
        ReceiverAction::Send(_)
        | ReceiverAction::DropPayload(_)
        | ReceiverAction::Discard(_)
        | ReceiverAction::Release(_)
        | ReceiverAction::CloseLane(_)
        | ReceiverAction::Settled(..)
        | ReceiverAction::Finished(_)
        | ReceiverAction::Abort(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use longhaul_proto::wire::message::Ending;

    use super::*;

    #[test]
    #[should_panic(expected = "finished while reports are owed: {Tidy: 1}")]
    fn an_end_before_the_last_report_is_found() {
        let mut owed = Owed::default();
        owed.ordered(&ReceiverAction::Survey(Vec::new()));
        owed.came(ReportKind::Survey, 1);
        owed.ordered(&ReceiverAction::Tidy);
        owed.ordered(&ReceiverAction::Finished(Ending::default()));
    }

    #[test]
    #[should_panic(expected = "1 of Journal, and 0 are owed")]
    fn a_report_without_an_order_is_found() {
        Owed::default().came(ReportKind::Journal, 1);
    }
}
