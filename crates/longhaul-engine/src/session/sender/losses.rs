//! Tells the receiver which metadata could not be read here, once the scan is over; and hears what
//! the receiver could not keep.
//!
//! In: the losses of the source's tree, and messages of the receiver. Out: a message, and the
//! totals of the run. It decides nothing.

use longhaul_core::{Fault, Loss};
use longhaul_proto::Message;

use super::SenderLoop;
use crate::session::totals::heard_losses;

impl SenderLoop<'_> {
    /// Tells the receiver what the scan could not read.
    pub(super) fn tell_losses(&mut self) {
        if !self.preserve.may_lose() {
            return;
        }
        let losses = self.workers.losses();
        if !losses.is_empty() {
            self.link.say(Message::Losses(losses.rows().collect()));
            self.course.totals.losses.set_source(losses);
        }
    }

    /// Hears what the receiver could not keep.
    pub(super) fn hear_losses(&mut self, rows: Vec<Loss>) {
        match heard_losses(rows) {
            Some(losses) => self.course.totals.losses.set_destination(losses),
            None => self.machine.abort(Fault::protocol("more losses than there can be")),
        }
    }
}
