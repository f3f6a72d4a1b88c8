//! Carries out an order to fetch: this daemon pulls from another one into the destination that was
//! opened for the order's client.
//!
//! In: the admission of a push in place of which the order stands. Out: the totals of all sessions,
//! and the fault that ended them. The client's own code does the work.

use std::sync::Arc;

use longhaul_core::{Author, Fault, FaultCode, Role};
use longhaul_proto::receiver::SkippedDigests;
use longhaul_proto::wire::message::{Far, FarSource, Placing};

use super::order::Carrying;
use super::session::OrderSession;
use crate::api::{Observer, Reach, RemotePath, Stop};
use crate::client::connect::{Agreed, Dialling};
use crate::client::missing;
use crate::client::wish::Wish;
use crate::daemon::admission::{Admission, udp_lanes};
use crate::daemon::side::{self, Side};
use crate::session::course::ReceiveCourse;
use crate::session::handshake;
use crate::session::opened::Destination;
use crate::session::plan::ReceivePlan;
use crate::session::totals::Totals;

/// How one session of an order ended.
enum Attempt {
    /// The order is carried out.
    Complete,
    /// The one source is a directory, which keeps its name beneath the destination.
    IsDirectory,
}

/// Whether this daemon says that an earlier session has had the dataset appear. The word of the
/// other one, which only sends, is none.
fn has_published(fault: &Fault) -> bool {
    fault.code == FaultCode::Published && fault.author == Author::Local
}

impl Carrying<'_> {
    /// Fetches, in as many sessions as it takes.
    pub(super) async fn fetch(&mut self, first: Admission, stop: Stop) -> (Totals, Option<Fault>) {
        let mut course = ReceiveCourse::remembering();
        let fault = self.fetch_all(first, stop, &mut course).await.err();
        (course.totals, fault)
    }

    async fn fetch_all(&mut self, first: Admission, mut stop: Stop, course: &mut ReceiveCourse) -> Result<(), Fault> {
        let mut dialling = self.dialling()?;
        let observer: Arc<dyn Observer> = self.told.clone();
        let mut admitted = Ok(first);
        loop {
            let is_of_other = admitted.is_ok();
            let attempt = match admitted {
                Ok(admission) => self.attempt(admission, &stop, (course, &mut dialling)).await,
                Err(fault) => Err(fault),
            };
            match attempt {
                Ok(Attempt::Complete) => return Ok(()),
                Ok(Attempt::IsDirectory) => {
                    if let Far::Destination { placing, .. } = &mut self.asked.0.far {
                        *placing = Placing::Beneath;
                    }
                }
                // It stands, as this daemon itself says.
                Err(fault) if has_published(&fault) && dialling.sessions > 0 => return Ok(()),
                Err(fault) => {
                    if is_of_other && let Some(totals) = self.missing(&fault, dialling.sessions) {
                        course.totals = totals;
                        return Ok(());
                    }
                    let fault = self.within_grant(fault, dialling.sessions)?;
                    dialling.patience.wait(fault, course.progressed, &observer, &mut stop).await?;
                }
            }
            admitted = self.admit_again().await;
        }
    }

    /// The totals of an order whose sources are all missing. `None` if `fault` is another one.
    fn missing(&self, fault: &Fault, sessions: u64) -> Option<Totals> {
        let (host, port) = self.judged.host.clone();
        let remote = self.remote(Reach::Address { host, port });
        if sessions == 0 { missing::there(fault, &remote, &self.paths(), &*self.told) } else { None }
    }

    fn paths(&self) -> Vec<RemotePath> {
        let path = |source: &FarSource| RemotePath {
            root: source.root.clone(),
            path: source.path.clone(),
            slash: source.contents,
        };
        self.judged.grant.sources.iter().map(path).collect()
    }

    /// One session with the other daemon.
    async fn attempt(
        &self,
        admission: Admission,
        stop: &Stop,
        (course, dialling): (&mut ReceiveCourse, &mut Dialling),
    ) -> Result<Attempt, Fault> {
        let session = self.session(&admission, &course.totals, stop)?;
        let names = self.judged.list.as_ref().map(|list| list.names.clone());
        let wish = Wish::pull(&self.paths(), self.judged.order.rules.clone(), names);
        let agreed = self.agree((&session.run, &admission), (Role::Receiver, wish), dialling).await?;
        let is_renamed = matches!(&admission.side, Side::Receive(to, _) if to.landing.renamed().is_some());
        if is_renamed && handshake::source_is_directory(agreed.welcome.caps) {
            return Ok(Attempt::IsDirectory);
        }
        dialling.sessions += 1;
        let work = self.receive(&session, agreed, admission, course);
        let ended = self.told.paced(session.run.stop.clone(), work).await;
        course.totals.fault = ended.as_ref().err().cloned();
        self.over(&session, &course.totals);
        course.totals.fault = None;
        ended.map(|()| Attempt::Complete)
    }

    /// Receives in a session that was agreed on.
    async fn receive(
        &self,
        session: &OrderSession,
        agreed: Agreed,
        admission: Admission,
        course: &mut ReceiveCourse,
    ) -> Result<(), Fault> {
        let (_entered, seat) = self.enter(session, &admission, &agreed)?;
        let transfer = &self.asked.0;
        let Admission { side: Side::Receive(destination, policy), machinery, holdings, memory, .. } = admission else {
            return Err(side::contradiction());
        };
        let digests = if transfer.digests { SkippedDigests::Kept } else { SkippedDigests::Unwanted };
        let receiving = ReceivePlan { digests, ..ReceivePlan::of_transfer(transfer, policy, self.daemon.config.sync) };
        let plan = session.run.plan_receiving(&agreed, Role::Receiver, receiving);
        let expected = self.judged.list.as_ref().map(|list| list.expected.clone());
        let destination = Destination { expected, ..destination };
        let appeared = destination.dataset.as_ref().map(|dataset| dataset.appeared());
        let set_up = self.set_up(&holdings, memory, udp_lanes(&agreed.transfer));
        let paths = self.paths();
        let to = (destination, &paths[..]);
        let ended = session.run.receive_within(agreed, to, (machinery, &plan), set_up, course).await;
        let appearance = appeared.as_ref().and_then(|appeared| appeared.get());
        appearance.iter().for_each(|appearance| {
            holdings.place.has_published();
            holdings.audit.appeared(appearance);
        });
        drop(seat);
        // All of it stands, whatever came behind the end.
        if appearance.is_some() { Ok(()) } else { ended }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::Blame;

    use super::*;

    #[test]
    fn only_this_daemon_says_that_the_dataset_stands_here() {
        let fault = |code| Fault::new(code, Blame::Local, "x");
        let published = fault(FaultCode::Published);
        assert!(has_published(&published));
        assert!(!has_published(&published.seen_from_afar()) && !has_published(&fault(FaultCode::Lost)));
    }
}
