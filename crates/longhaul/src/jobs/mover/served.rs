//! Whether a mover that ends by itself has served all that it was to serve.
//!
//! In: campaigns that it passed over, and links and campaigns that it gave up. Out: the fault of
//! the first of them of which anything is left. Must not know why it gave them up.

use std::time::Instant;

use longhaul_core::Fault;
use longhaul_jobs::CampaignState;
use longhaul_jobs::queue::AdmitAll;

use super::{Mover, links_of};
use crate::jobs::faults::fault_of_jobs;
use crate::jobs::queue::is_drained;

impl Mover {
    /// The fault of a campaign that should be moved, is passed over and runs on, or of a link or a
    /// campaign that is given up, if anything is left there to be moved.
    pub(super) async fn served_all(&self) -> Result<(), Fault> {
        let refused = self.admitting.refused(&self.orders.campaigns);
        let unmoved = self.queue.transact(move |rows| {
            let mut unmoved = None;
            for (id, fault) in &refused {
                let is_running = rows.campaign(*id)?.is_some_and(|campaign| campaign.state == CampaignState::Running);
                unmoved = unmoved.or(is_running.then(|| fault.clone()));
            }
            Ok(unmoved)
        });
        if let Some(fault) = unmoved.await.map_err(|error| fault_of_jobs(&error))? {
            return Err(fault);
        }
        let (only, aside) = (self.orders.campaigns.clone(), self.aside.now(Instant::now()));
        let (links, campaigns) = (aside.links.given_up, aside.campaigns.given_up);
        if links.is_empty() && campaigns.is_empty() {
            return Ok(());
        }
        let (names, served) = (self.orders.names.clone(), self.served());
        let left = self.queue.transact(move |rows| {
            let (mut left, mut left_of) = (Vec::new(), Vec::new());
            for &link in &links {
                left.extend((!is_drained(rows, &only, &[link], &AdmitAll)?).then_some(link));
            }
            let own = links_of(rows, (&only, &names), served)?;
            for &id in &campaigns {
                left_of.extend((!is_drained(rows, &[id], &own, &AdmitAll)?).then_some(id));
            }
            Ok((left, left_of))
        });
        let (links, campaigns) = left.await.map_err(|error| fault_of_jobs(&error))?;
        self.aside.fault((&links, &campaigns)).map_or(Ok(()), Err)
    }
}
