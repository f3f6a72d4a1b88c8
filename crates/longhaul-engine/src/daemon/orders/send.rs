//! Carries out an order to send: this daemon pushes what its client may read to where the client
//! lends it a place at another daemon.
//!
//! In: the admission of a pull in place of which the order stands. Out: the totals of all sessions,
//! and the fault that ended them. The client's own code does the work.

use std::sync::Arc;

use longhaul_core::{Fault, FaultCode, Role};
use longhaul_disk::SourceTree;
use longhaul_proto::receiver::SkippedDigests;
use longhaul_proto::wire::message::{Far, OrderPlace, Placing};

use super::order::Carrying;
use crate::api::{Observer, Stop};
use crate::client::connect::Dialling;
use crate::client::wish::Wish;
use crate::daemon::admission::{Admission, udp_lanes};
use crate::daemon::side::{self, Side};
use crate::session::course::{ScanWish, SendCourse};
use crate::session::expected_source::ExpectedSource;
use crate::session::totals::Totals;

/// The course of an order to send.
struct SendOrder<'o> {
    into: &'o OrderPlace,
    course: SendCourse,
    dialling: Dialling,
    /// The sources as the first session opened them: entries that are left are read through these.
    tree: Option<Arc<dyn SourceTree>>,
}

impl Carrying<'_> {
    /// Sends, in as many sessions as it takes.
    pub(super) async fn send(
        &mut self,
        into: &OrderPlace,
        first: Admission,
        mut stop: Stop,
    ) -> (Totals, Option<Fault>) {
        let dialling = match self.dialling() {
            Ok(dialling) => dialling,
            Err(fault) => return (Totals::default(), Some(fault)),
        };
        let mut order = SendOrder { into, course: SendCourse::default(), dialling, tree: None };
        order.course.totals.stages_all = into.dataset.is_some();
        let fault = self.send_all(first, &mut stop, &mut order).await.err();
        (order.course.totals, fault)
    }

    async fn send_all(&mut self, first: Admission, stop: &mut Stop, order: &mut SendOrder<'_>) -> Result<(), Fault> {
        let observer: Arc<dyn Observer> = self.told.clone();
        let into_dataset = order.into.dataset.is_some();
        let mut admitted = Ok(first);
        loop {
            let ended = match admitted {
                Ok(admission) => self.send_once(admission, stop, order).await,
                Err(fault) => Err(fault),
            };
            match ended {
                Ok(()) => return Ok(()),
                // The connection was lost right behind the end.
                Err(fault) if fault.code == FaultCode::Published && into_dataset && order.dialling.sessions > 0 => {
                    order.course.has_appeared(&*observer);
                    return Ok(());
                }
                Err(fault) => {
                    let fault = self.within_grant(fault, order.dialling.sessions)?;
                    order.dialling.patience.wait(fault, order.course.progressed, &observer, stop).await?;
                }
            }
            admitted = self.admit_again().await;
        }
    }

    /// One session with the other daemon.
    async fn send_once(&self, admission: Admission, stop: &Stop, order: &mut SendOrder<'_>) -> Result<(), Fault> {
        let SendOrder { into, course, dialling, tree } = order;
        let session = self.session(&admission, &course.totals, stop)?;
        // What the first session found there decides for all.
        let placing = match &course.renamed {
            None => into.placing,
            Some(None) => Placing::Beneath,
            Some(Some(_)) => Placing::Named,
        };
        let (root, path) = (into.root.clone(), into.path.clone());
        let far = Far::Destination { root, path, placing, if_exists: into.if_exists };
        let list = self.judged.list.as_ref();
        // A grant that is for a list is for those names alone, and the destination hears them.
        let wish = match list.filter(|_| self.judged.grant.list().is_some()) {
            None => far.into(),
            Some(list) => Wish::push_listed(far, list.names.clone()),
        };
        let agreed = self.agree((&session.run, &admission), (Role::Sender, wish), dialling).await?;
        if into.dataset.is_some() && dialling.sessions > 0 {
            course.offer_all_again();
        }
        dialling.sessions += 1;
        let (_entered, seat) = self.enter(&session, &admission, &agreed)?;
        let Admission { side: Side::Send(source, wanted, _), machinery, holdings, memory, .. } = admission else {
            return Err(side::contradiction());
        };
        let expected = list.map(|list| list.expected.clone());
        let source = tree.get_or_insert_with(|| ExpectedSource::over(source, expected)).clone();
        let names = list.map(|list| list.names.clone()).or(wanted.names);
        let wanted = ScanWish { names, ..wanted };
        let plan = session.run.plan(&agreed, Role::Sender, SkippedDigests::Unwanted);
        let set_up = self.set_up(&holdings, memory, udp_lanes(&agreed.transfer));
        let sending = plan.sending(source, machinery, wanted, false);
        let work = session.run.send_within(agreed, (sending, &plan), set_up, course);
        let ended = self.told.paced(session.run.stop.clone(), work).await;
        drop(seat);
        course.totals.fault = ended.as_ref().err().cloned();
        self.over(&session, &course.totals);
        course.totals.fault = None;
        ended
    }
}
