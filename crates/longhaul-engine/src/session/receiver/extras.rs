//! Maps the accounts in the extras that come; tells the sender which metadata could not be kept
//! here, before the outcome of the entries that lost it; and hears what the sender could not read.
//!
//! In: the losses of the destination's tree, and messages of the sender. Out: messages, and the
//! totals of the run. It decides nothing: what is lost fails no entry.

use std::sync::Arc;

use longhaul_core::{AccountMap, Fault, Loss, Losses, Preserve};
use longhaul_disk::TargetTree;
use longhaul_proto::Message;
use longhaul_proto::wire::message::PageExtras;

use super::ReceiverLoop;
use crate::session::totals::heard_losses;

/// The extras of a session, as they come and as they are lost.
pub(super) struct ExtrasWatch {
    /// The tree. `None`: nothing can be lost, as no extras are carried.
    tree: Option<Arc<dyn TargetTree>>,
    /// How this side maps accounts.
    accounts: AccountMap,
}

impl ExtrasWatch {
    /// A watch of a tree that keeps what `preserve` names.
    pub(super) fn new(tree: &Arc<dyn TargetTree>, preserve: Preserve, accounts: AccountMap) -> ExtrasWatch {
        ExtrasWatch { tree: preserve.may_lose().then(|| Arc::clone(tree)), accounts }
    }

    /// Extras with the accounts that they shall have here.
    pub(super) fn mapped(&self, mut extras: PageExtras) -> PageExtras {
        extras.entries.iter_mut().for_each(|(_, extras)| self.accounts.map(extras));
        extras
    }

    fn losses(&self) -> Option<Losses> {
        self.tree.as_ref().map(|tree| tree.losses())
    }
}

impl ReceiverLoop<'_> {
    /// Tells the sender what was lost so far, if it does not know. Outcomes that leave after this
    /// do not overtake it.
    pub(super) fn tell_losses(&mut self) {
        let Some(losses) = self.figures.extras.losses() else { return };
        let known = &mut self.course.totals.losses;
        if losses != *known.destination() {
            self.link.say(Message::Losses(losses.rows().collect()));
            known.set_destination(losses);
        }
    }

    /// Hears what the sender could not read.
    pub(super) fn hear_losses(&mut self, rows: Vec<Loss>) {
        match heard_losses(rows) {
            Some(losses) => self.course.totals.losses.set_source(losses),
            None => self.machine.abort(Fault::protocol("more losses than there can be")),
        }
    }
}
