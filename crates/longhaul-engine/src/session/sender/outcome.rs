//! Reports entries that have their outcome: what the receiver said, or what this side knows better.
//!
//! In: outcomes of the machine. Out: to observers and the totals of the run. It decides nothing.

use longhaul_core::{EntryKind, Fault, FileId, Sums};
use longhaul_proto::wire::message::Outcome;

use super::SenderLoop;
use crate::api::{FileStatus, OwnFacts};
use crate::session::course::EntrySource;
use crate::session::sent_stream::SentStream;
use crate::session::settled::tell_settled;

impl SenderLoop<'_> {
    /// Hears which entries, whose outcomes follow, had something under their names.
    pub(super) fn hear_replaced(&mut self, files: &[FileId]) {
        for file in files {
            if !self.offered.note_replaced(*file) {
                let what = "names are said to be replaced that are not known, or nobody asked";
                return self.machine.abort(Fault::protocol(what));
            }
        }
    }

    /// Takes an entry that has its outcome.
    pub(super) fn settled(&mut self, file: FileId, outcome: Outcome) {
        self.workers.forget(file);
        let sums = self.settled_sums(file);
        let Some(known) = self.offered.settle(file, &outcome) else { return };
        let (mut held, begun) = (known.held.clone(), known.begun);
        if let Some(stream) = &self.course.stream {
            held = stream.as_file(held);
            stream.close();
        }
        let bytes = if let EntryKind::File { len, .. } = held.entry.kind { len } else { 0 };
        let source = match &known.source {
            EntrySource::Readable(origin) => Some(self.workers.shown(origin)),
            _ => None,
        };
        let stood = self.offered.replaced.as_mut().map(|replaced| replaced.remove(&file));
        let own = OwnFacts { source, stood, ..OwnFacts::default() };
        let outcome = match (outcome, known.source) {
            (Outcome::Failed(_), EntrySource::Failed(fault)) => Outcome::Failed(fault),
            (Outcome::Failed(fault), _) if self.course.stream.is_some() => {
                let own = self.course.stream.as_ref().and_then(SentStream::failure);
                Outcome::Failed(own.unwrap_or_else(|| fault.seen_from_afar()))
            }
            (Outcome::Failed(fault), _) => Outcome::Failed(fault.seen_from_afar()),
            // An earlier session committed it, and was lost before its sender heard that.
            (Outcome::Skipped, _) if begun => {
                self.course.totals.was_committed_before(bytes);
                Outcome::Committed(None)
            }
            (Outcome::Stands(root), _) if begun => {
                self.course.totals.was_committed_before(bytes);
                Outcome::Committed(Some(root))
            }
            (other, _) => other,
        };
        if self.course.has_told(&held.entry, &outcome) {
            self.course.totals.settled(&held.entry.kind, &FileStatus::Skipped);
            return;
        }
        let told = match outcome {
            Outcome::Committed(_) => (outcome, sums),
            // No bytes of these were written, whatever the other side says.
            outcome => (outcome, Sums::default()),
        };
        tell_settled((&held, self.offered.are_renamed()), own, told, &mut self.course.totals, self.link.observer());
    }
}
