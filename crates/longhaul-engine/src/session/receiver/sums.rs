//! Tells the sender the further checksums of files, right before their outcome.
//!
//! In: outcomes of the machine, and the checksums of the destination side. Out: messages, and what
//! observers hear. It computes nothing.

use longhaul_core::{FileId, Sums};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Outcome, SettledSums};

use super::ReceiverLoop;

impl ReceiverLoop<'_> {
    /// The checksums of a file that has its outcome. Empty if it has none. The sender hears them
    /// before the outcome leaves.
    pub(super) fn settled_sums(&mut self, file: FileId, outcome: &Outcome) -> Sums {
        let sums = self.workers.settled_sums(file).filter(|_| matches!(outcome, Outcome::Committed(_)));
        let sums = sums.unwrap_or_default();
        if !sums.known().is_empty() {
            self.figures.sums.push(SettledSums { file, sums: sums.bytes().to_vec() });
        }
        sums
    }

    /// Tells the sender the checksums of the files whose outcomes leave now.
    pub(super) fn tell_sums(&mut self) {
        let sums = std::mem::take(&mut self.figures.sums);
        if !sums.is_empty() {
            self.link.say(Message::SettledSums(sums));
        }
    }
}
