//! The machine's actions on their way out, with the verdicts and settlements that are said
//! together.
//!
//! In: single actions and findings of the machine. Out: actions in their order; verdicts and
//! settlements of one round of events leave in few messages, behind everything else. A verdict is
//! never said after the settlement that follows from it. Knows nothing of entries.

use std::collections::VecDeque;

use longhaul_core::PlainText;

use super::order::ReceiverAction;
use crate::wire::message::{Message, Outcome, Settlement, Verdict};

/// Actions that are not taken yet, and findings that are not said yet.
#[derive(Debug, Default)]
pub(super) struct ActionQueue {
    actions: VecDeque<ReceiverAction>,
    verdicts: Vec<Verdict>,
    settled: Vec<Settlement>,
    settled_bytes: usize,
}

impl ActionQueue {
    /// Adds an action.
    pub(super) fn push(&mut self, action: ReceiverAction) {
        self.actions.push_back(action);
    }

    /// Adds an action, if there is one.
    pub(super) fn extend(&mut self, action: Option<ReceiverAction>) {
        self.actions.extend(action);
    }

    /// Adds a message.
    pub(super) fn say(&mut self, message: Message) {
        self.push(ReceiverAction::Send(message));
    }

    /// Adds a verdict to those that are said together.
    pub(super) fn verdict(&mut self, verdict: Verdict) {
        self.verdicts.push(verdict);
        if self.verdicts.len() >= LIST_MAX {
            self.flush();
        }
    }

    /// Adds a settlement to those that are said together.
    pub(super) fn settled(&mut self, mut settlement: Settlement) {
        self.settled_bytes += SETTLEMENT_BYTES;
        if let Outcome::Failed(fault) = &mut settlement.outcome {
            for text in [&mut fault.object, &mut fault.message] {
                *text = std::mem::take(text).cut();
                self.settled_bytes += text.len();
            }
            self.settled_bytes += fault.hint.as_ref().map_or(0, |hint| PlainText::of(hint).cut().len());
        }
        self.settled.push(settlement);
        if self.settled.len() >= LIST_MAX || self.settled_bytes >= SETTLED_BYTES_MAX {
            self.flush();
        }
    }

    /// Says all verdicts and settlements, verdicts first.
    pub(super) fn flush(&mut self) {
        self.settled_bytes = 0;
        if !self.verdicts.is_empty() {
            let verdicts = std::mem::take(&mut self.verdicts);
            self.say(Message::Verdicts(verdicts));
        }
        if !self.settled.is_empty() {
            let settled = std::mem::take(&mut self.settled);
            self.say(Message::Settled(settled));
        }
    }

    /// The next action. Verdicts and settlements come last.
    pub(super) fn poll(&mut self) -> Option<ReceiverAction> {
        if self.actions.is_empty() {
            self.flush();
        }
        self.actions.pop_front()
    }
}

/// Verdicts or settlements in one message; at some 60 bytes each they stay far below its bound.
const LIST_MAX: usize = 1024;
/// A settlement without texts: id, outcome, root or code and blame, and the lengths of three texts.
const SETTLEMENT_BYTES: usize = 64;
/// Settlements leave when their texts and numbers have this many bytes; the last of them adds three
/// bounded texts at most.
const SETTLED_BYTES_MAX: usize = 64 << 10;
