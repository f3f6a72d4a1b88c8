//! Sums the metadata that could not be carried over, by the side at which it was lost.
//!
//! In: the losses of this side's tree, and those that the other side says, each since its session
//! began. Out: the losses of the run. A source is scanned once by one tree, so that its latest
//! losses hold; a destination is opened for each session, so that theirs are added. It knows no
//! connection and no disk.

use longhaul_core::{Loss, Losses};

use crate::api::{LossAt, MetadataLoss};

/// The losses of a transfer.
#[derive(Clone, Debug, Default)]
pub(crate) struct TransferLosses {
    source: Losses,
    /// The losses at the destinations of earlier sessions.
    before: Losses,
    /// The losses at the destination of this session.
    destination: Losses,
}

impl TransferLosses {
    /// Begins another session.
    pub(crate) fn begin_session(&mut self) {
        let session = std::mem::take(&mut self.destination);
        self.before.add_all(&session);
    }

    /// Takes the losses of the source.
    pub(crate) fn set_source(&mut self, losses: Losses) {
        self.source = losses;
    }

    /// Takes the losses of the destination in this session.
    pub(crate) fn set_destination(&mut self, losses: Losses) {
        self.destination = losses;
    }

    /// The losses of the destination in this session.
    pub(crate) fn destination(&self) -> &Losses {
        &self.destination
    }

    /// All losses of a run that is over.
    pub(crate) fn into_rows(mut self) -> Vec<MetadataLoss> {
        self.begin_session();
        let row = |at| {
            move |loss: Loss| {
                let Loss { kind, reason, entries, first } = loss;
                MetadataLoss { at, kind, reason, entries, first }
            }
        };
        let source = self.source.rows().map(row(LossAt::Source));
        source.chain(self.before.rows().map(row(LossAt::Destination))).collect()
    }
}

/// Losses that a peer says. `None` if they are more than there can be kinds and reasons.
pub(crate) fn heard(rows: Vec<Loss>) -> Option<Losses> {
    (rows.len() <= LOSSES_HEARD_MAX).then(|| rows.into_iter().collect())
}

/// The rows of one message about losses: more than there are kinds and reasons.
const LOSSES_HEARD_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use longhaul_core::{LossKind, LossReason, RelPath};

    use super::*;

    fn losses(entries: u64) -> Losses {
        let first = RelPath::new("a").expect("a path");
        [Loss { kind: LossKind::Xattrs, reason: LossReason::Denied, entries, first }].into_iter().collect()
    }

    #[test]
    fn losses_of_the_source_are_its_latest_and_those_of_destinations_are_added() {
        let mut all = TransferLosses::default();
        for session in [1, 2] {
            all.begin_session();
            all.set_source(losses(10 * session));
            all.set_destination(losses(1));
            all.set_destination(losses(session));
        }
        let told: Vec<_> = all.into_rows().into_iter().map(|loss| (loss.at, loss.entries)).collect();
        assert_eq!(told, [(LossAt::Source, 20), (LossAt::Destination, 3)]);
    }

    #[test]
    fn a_peer_that_names_ever_more_losses_is_not_heard() {
        let row = losses(1).rows().next().expect("one");
        assert!(heard(vec![row.clone(); LOSSES_HEARD_MAX]).is_some());
        assert_eq!(heard(vec![row; LOSSES_HEARD_MAX + 1]), None);
    }
}
