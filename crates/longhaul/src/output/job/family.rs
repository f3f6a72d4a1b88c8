//! Tells of campaigns that one name stands for: each by itself, and their sum for people.
//!
//! In: campaigns and their figures. Out: lines, or the events of each campaign. Scripts add up by
//! themselves, so that there is no event of a sum. Must not know how a family is told.

use std::io::Write;

use longhaul_jobs::{Amount, Campaign, Left};

use super::{JobTelling, amount, units};
use crate::exit::Exit;

impl<W: Write> JobTelling<W> {
    /// Takes the exit so far, so that the one of the next campaign stands by itself.
    pub fn set_exit_aside(&mut self) -> Exit {
        std::mem::replace(&mut self.exit, Exit::Complete)
    }

    /// The exit is the worse of this campaign's and the one so far.
    pub fn join_exit(&mut self, before: Exit) {
        self.exit = before.worse(self.exit);
    }

    /// Tells people that lines about this member of a family follow.
    pub fn member(&mut self, name: &str) {
        if !self.json {
            self.pair("campaign", name);
        }
    }

    /// Tells what is left of each of these campaigns, and of several the sum.
    pub fn left_of_all(&mut self, all: &[(Campaign, Left)]) {
        for (campaign, left) in all {
            if all.len() > 1 {
                self.member(&campaign.name);
            }
            self.left(campaign, left);
        }
        if all.len() < 2 || self.json {
            return;
        }
        let sum = |of: fn(&Left) -> Amount| all.iter().fold(Amount::default(), |sum, (_, left)| added(sum, of(left)));
        let (total, done, failed) = (sum(|left| left.total), sum(|left| left.done), sum(|left| left.failed));
        let (cancelled, left) = (sum(|left| left.cancelled), sum(|left| left.left));
        let cancelled = if cancelled.files > 0 { format!("; cancelled {}", amount(cancelled)) } else { String::new() };
        let (done, failed, left) = (amount(done), amount(failed), amount(left));
        let campaigns = units::count(all.len() as u64, "campaign");
        let parts = format!("done {done}; given up {failed}{cancelled}; left {left}");
        self.pair("all", &format!("{campaigns}, {}: {parts}", amount(total)));
    }
}

/// The sum of two amounts, or the largest number that there is.
fn added(one: Amount, other: Amount) -> Amount {
    Amount { files: one.files.saturating_add(other.files), bytes: one.bytes.saturating_add(other.bytes) }
}
