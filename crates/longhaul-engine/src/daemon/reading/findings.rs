//! Findings on their way to the client: a bounded number of bytes, however slowly they are taken.
//!
//! In: findings, from threads that may wait and from the loop of a session, which may not. Out: the
//! same in a channel. Must not know how they were made.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::Fault;
use longhaul_proto::wire::message::{FoundName, FoundThing};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The findings of an order. See the module.
pub(super) struct Findings {
    sink: Sender<FoundName>,
    late: Mutex<LateFindings>,
}

/// Findings for which the channel had no room: one for each name of the order at most.
#[derive(Default)]
struct LateFindings {
    queue: VecDeque<FoundName>,
    /// Bytes of the texts in them.
    text_bytes: usize,
}

impl Findings {
    /// None yet, and the channel that they come by.
    pub(super) fn channel() -> (Findings, Receiver<FoundName>) {
        Findings::of_room(FINDINGS_WAITING_MAX)
    }

    /// The same, where so many have room in the channel.
    fn of_room(count: usize) -> (Findings, Receiver<FoundName>) {
        let (sink, found) = channel(count);
        (Findings { sink, late: Mutex::default() }, found)
    }

    /// Tells a finding, and waits until there is room for it. For threads that may block.
    pub(super) fn tell(&self, finding: FoundName) {
        // Nobody hears it once the conversation is over.
        let _ = self.sink.blocking_send(finding);
    }

    /// Tells a finding as soon as there is room, and does not wait. If the texts of too many wait
    /// already, it has its code alone.
    pub(super) fn note(&self, finding: FoundName) {
        let mut late = self.late();
        let is_much = late.text_bytes + text_bytes(&finding) > LATE_TEXT_BYTES_MAX;
        late.push_back(if is_much { without_words(finding) } else { finding });
        while let Some(next) = late.pop_front() {
            if let Err(TrySendError::Full(next)) = self.sink.try_send(next) {
                late.push_front(next);
                return;
            }
        }
    }

    /// Waits until all that was noted is told. For threads that may block.
    pub(super) fn tell_noted(&self) {
        loop {
            let Some(next) = self.late().pop_front() else { return };
            self.tell(next);
        }
    }

    fn late(&self) -> MutexGuard<'_, LateFindings> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LateFindings {
    fn push_back(&mut self, finding: FoundName) {
        self.text_bytes += text_bytes(&finding);
        self.queue.push_back(finding);
    }

    fn push_front(&mut self, finding: FoundName) {
        self.text_bytes += text_bytes(&finding);
        self.queue.push_front(finding);
    }

    fn pop_front(&mut self) -> Option<FoundName> {
        let finding = self.queue.pop_front()?;
        self.text_bytes -= text_bytes(&finding);
        Some(finding)
    }
}

/// Bytes of the texts of a finding, without those of a hint, which are few.
fn text_bytes(finding: &FoundName) -> usize {
    match &finding.found {
        FoundThing::Failed(fault) => fault.object.as_str().len() + fault.message.as_str().len(),
        FoundThing::Link { target } => target.len(),
        _ => 0,
    }
}

/// The same finding with the code of its fault alone.
fn without_words(finding: FoundName) -> FoundName {
    let found = match finding.found {
        FoundThing::Failed(fault) => {
            let why = "it was not read, and the reasons of too many others wait to be told";
            FoundThing::Failed(Fault::new(fault.code, fault.blame, why))
        }
        found => found,
    };
    FoundName { found, ..finding }
}

/// Findings that wait in the channel, each of 4 KiB at most.
const FINDINGS_WAITING_MAX: usize = 256;
/// Bytes of texts that wait besides them.
const LATE_TEXT_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use longhaul_core::{Blame, FaultCode};

    use super::*;

    fn failed(at: u32, words: usize) -> FoundName {
        let fault = Fault::new(FaultCode::Denied, Blame::Local, "w".repeat(words));
        FoundName { at, found: FoundThing::Failed(fault) }
    }

    fn heard(found: &mut Receiver<FoundName>) -> Vec<u32> {
        std::iter::from_fn(|| found.try_recv().ok()).map(|name| name.at).collect()
    }

    #[test]
    fn findings_that_nobody_takes_keep_their_order_and_are_told_when_there_is_room() {
        let (findings, mut found) = Findings::of_room(2);
        (0..5).for_each(|at| findings.note(failed(at, 10)));
        assert_eq!(findings.late().queue.len(), 3);
        assert_eq!(heard(&mut found), [0, 1]);
        findings.note(failed(5, 10));
        assert_eq!(heard(&mut found), [2, 3]);
        let teller = std::thread::spawn(move || findings.tell_noted());
        assert_eq!(
            [found.blocking_recv(), found.blocking_recv()].map(|name| name.map(|name| name.at)),
            [Some(4), Some(5)]
        );
        teller.join().expect("no panic");
        assert_eq!(found.blocking_recv(), None);
    }

    #[test]
    fn the_texts_of_findings_that_nobody_takes_are_bounded_and_no_finding_is_lost() {
        let (findings, mut found) = Findings::of_room(1);
        let count = 3 * (LATE_TEXT_BYTES_MAX / 900) as u32;
        (0..count).for_each(|at| findings.note(failed(at, 900)));
        let late = findings.late().queue.len();
        let text_bytes = findings.late().text_bytes;
        assert_eq!(late, count as usize - 1);
        assert!(text_bytes <= LATE_TEXT_BYTES_MAX + 100 * late, "{text_bytes} bytes of texts");
        let last = findings.late().queue.pop_back().expect("it waits");
        assert!(matches!(last.found, FoundThing::Failed(fault) if fault.code == FaultCode::Denied));
        assert_eq!(heard(&mut found), [0]);
    }
}
