//! Verdicts and settlements on their way out: those of one round of events leave in few messages.
//!
//! Takes single findings from the machine, gives whole messages back to its queue. A verdict is
//! never said after the settlement that follows from it. Knows nothing of entries.

use std::collections::VecDeque;

use super::order::ReceiverAction;
use crate::wire::message::{Message, Outcome, Settlement, Verdict};

/// Verdicts and settlements that are not said yet.
#[derive(Debug, Default)]
pub(super) struct Says {
    verdicts: Vec<Verdict>,
    settled: Vec<Settlement>,
    settled_bytes: usize,
}

impl Says {
    pub(super) fn verdict(&mut self, verdict: Verdict, actions: &mut VecDeque<ReceiverAction>) {
        self.verdicts.push(verdict);
        if self.verdicts.len() >= LIST_MAX {
            self.flush(actions);
        }
    }

    pub(super) fn settled(&mut self, mut settlement: Settlement, actions: &mut VecDeque<ReceiverAction>) {
        self.settled_bytes += SETTLEMENT_BYTES;
        if let Outcome::Failed(fault) = &mut settlement.outcome {
            for text in [&mut fault.object, &mut fault.message, &mut fault.hint] {
                *text = std::mem::take(text).cut();
                self.settled_bytes += text.len();
            }
        }
        self.settled.push(settlement);
        if self.settled.len() >= LIST_MAX || self.settled_bytes >= SETTLED_BYTES_MAX {
            self.flush(actions);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.verdicts.is_empty() && self.settled.is_empty()
    }

    /// Says all of them, verdicts first.
    pub(super) fn flush(&mut self, actions: &mut VecDeque<ReceiverAction>) {
        self.settled_bytes = 0;
        if !self.verdicts.is_empty() {
            actions.push_back(ReceiverAction::Send(Message::Verdicts(std::mem::take(&mut self.verdicts))));
        }
        if !self.settled.is_empty() {
            actions.push_back(ReceiverAction::Send(Message::Settled(std::mem::take(&mut self.settled))));
        }
    }
}

/// Verdicts or settlements in one message; at some 60 bytes each they stay far below its bound.
const LIST_MAX: usize = 1024;
/// A settlement without texts: id, outcome, root or code and blame, and the lengths of three texts.
const SETTLEMENT_BYTES: usize = 64;
/// Settlements leave when their texts and numbers have this many bytes; the last of them adds three
/// bounded texts at most.
const SETTLED_BYTES_MAX: usize = 64 << 10;
