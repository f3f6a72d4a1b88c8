//! The part of a sender's loop that says small files before anybody asked for them.
//!
//! In: the machine's order, and the bundle when it is read. Out: the message, and the report to the
//! machine, behind which the first page leaves.

use longhaul_proto::Message;
use longhaul_proto::sender::{Sender, SenderConfig, Small};
use longhaul_proto::wire::message::Unasked;

use super::SenderLoop;
use crate::session::unasked::{FirstFlight, PackedUnasked};

/// A machine whose first page shall fit `flight`.
pub(super) fn machine(config: SenderConfig, flight: FirstFlight) -> Sender {
    let mut machine = Sender::new(config);
    flight.prepare(&mut machine);
    machine
}

impl SenderLoop<'_> {
    /// Has small files read that go before the first page.
    pub(super) fn pack_unasked(&mut self, files: Vec<Small>) {
        let origin = |small: Small| self.offered.origin(small.file).map(|origin| (small, origin));
        self.workers.pack_unasked(files.into_iter().filter_map(origin).collect());
    }

    /// Says them, and lets the page follow.
    pub(super) fn say_unasked(&mut self, PackedUnasked { bundle, roots }: PackedUnasked) {
        if !roots.is_empty() {
            self.link.say(Message::Unasked(Unasked { bundle }));
        }
        self.machine.handle_pack_unasked(roots);
    }
}
