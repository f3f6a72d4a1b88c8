//! The link of a client's session: its control connection, its lanes, and the facts of its start
//! event.
//!
//! In: a control channel, and lanes that have joined or are being dialled. Out: a [`ControlLink`],
//! the facts of the start event, and what a session received.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_core::{Fault, Role};
use longhaul_disk::SyncMethod;
use longhaul_net::Protection;
use longhaul_proto::receiver::SkippedDigests;
use longhaul_proto::wire::message::{self, GrantedLanes, Welcome};
use tokio::sync::mpsc;

use super::connect::Agreed;
use super::{Run, contents};
use crate::api::{Direction, Event, LaneKind, Observer, RemotePath, Start, StartNote};
use crate::budget::{self, SessionBuffers};
use crate::journals::presence::Presence;
use crate::lanes::JoinedLane;
use crate::lanes::rules::LaneRules;
use crate::session;
use crate::session::channel::{ReadHalf, WriteHalf};
use crate::session::control::{ControlLink, ControlLinkParts};
use crate::session::course::{ReceiveCourse, SendCourse};
use crate::session::opened::Destination;
use crate::session::plan::{LaneNumbers, LanePlan, Plan, ReceivePlan};
use crate::session::sender::{self, Sending};
use crate::session::{handshake, receiver};

impl Run {
    /// The plan of a session with a daemon. `digests` says who learns the roots of skipped files,
    /// where the user wants them.
    pub(crate) fn plan(&self, agreed: &Agreed, role: Role, digests: SkippedDigests) -> Plan {
        self.plan_receiving(agreed, role, ReceivePlan::of_settings(&self.settings, digests))
    }

    /// The same with these rules of a receiver.
    pub(crate) fn plan_receiving(&self, agreed: &Agreed, role: Role, receiving: ReceivePlan) -> Plan {
        let first = agreed.granted;
        // Those beyond the usual number were of use to an earlier run, and may be of none now.
        let is_remembered = self.settings.lanes.is_none() && self.known.lanes().is_some();
        let least = if is_remembered { first.min(budget::usual_lanes(agreed.control.rtt)) } else { first };
        let usual = budget::lanes_after_start(first, agreed.lanes_max, agreed.control.rtt).min(least);
        let numbers = LaneNumbers { first, least, usual, most: agreed.lanes_max };
        let lanes = LanePlan::of_client(&self.settings, &agreed.transfer, &agreed.welcome, numbers, agreed.control.rtt);
        let lanes = LanePlan { known_congestion: self.known.congestion(), ..lanes };
        Plan::agreed(role, &agreed.transfer, &agreed.welcome, lanes, receiving).comparing(agreed.transfer.preserve.sums)
    }

    /// Receives these paths in a session that was agreed on.
    pub(super) async fn receive_once(
        &self,
        agreed: Agreed,
        destination: Destination,
        paths: &[RemotePath],
        course: &mut ReceiveCourse,
    ) -> Result<(), Fault> {
        let slots = budget::slots(self.settings.memory, agreed.welcome.chunk_max)?;
        let buffers = self.machinery(Role::Receiver, slots, agreed.lanes_max, agreed.welcome.chunk_max)?;
        let plan = self.plan(&agreed, Role::Receiver, SkippedDigests::Kept);
        self.receive_within(agreed, (destination, paths), (buffers, &plan), |_| (), course).await
    }

    /// The same through these buffers and by this plan, once `set_up` was done to the session's
    /// link.
    pub(crate) async fn receive_within(
        &self,
        agreed: Agreed,
        (destination, paths): (Destination, &[RemotePath]),
        (buffers, plan): (SessionBuffers, &Plan),
        set_up: impl FnOnce(&mut ControlLink),
        course: &mut ReceiveCourse,
    ) -> Result<(), Fault> {
        let tops: Option<BTreeSet<Vec<u8>>> =
            paths.iter().map(|p| if contents(p) { None } else { p.path.name().map(<[u8]>::to_vec) }).collect();
        let destination = match tops {
            Some(tops) => Destination { landing: destination.landing.only(tops), ..destination },
            None => destination,
        };
        let telling = agreed.telling.clone();
        let presence = destination.presence.clone();
        let mut link = self.link(agreed, plan, presence.clone());
        set_up(&mut link);
        let own = match paths {
            [source] if !contents(source) => source.path.name(),
            _ => None,
        };
        let receiving = plan.receiving(destination, buffers, self.asked(own));
        // A session is large, and lies within those who began it: it keeps off their stack.
        Box::pin(receiver::run(link, receiving, course)).await;
        self.udp.session_over(presence.heard_at());
        telling.over(course.totals.fault.as_ref());
        course.totals.fault.take().map_or(Ok(()), Err)
    }

    /// Sends in a session that was agreed on, by this plan, once `set_up` was done to its link.
    pub(crate) async fn send_within(
        &self,
        agreed: Agreed,
        (sending, plan): (Sending, &Plan),
        set_up: impl FnOnce(&mut ControlLink),
        course: &mut SendCourse,
    ) -> Result<(), Fault> {
        let telling = agreed.telling.clone();
        let presence = Arc::<Presence>::default();
        let mut link = self.link(agreed, plan, presence.clone());
        set_up(&mut link);
        Box::pin(sender::run(link, sending, course)).await;
        self.udp.session_over(presence.heard_at());
        telling.over(course.totals.fault.as_ref());
        course.totals.fault.take().map_or(Ok(()), Err)
    }

    /// The link of a session with a daemon.
    pub(crate) fn link(&self, agreed: Agreed, plan: &Plan, presence: Arc<Presence>) -> ControlLink {
        let rules = plan.lane_rules(agreed.replacement);
        let rules = LaneRules { path: self.known.udp_path(rules.path.share()), ..rules };
        let (reader, writer) = (agreed.control.reader, agreed.control.writer);
        let (observer, events, stop) = (agreed.telling, agreed.events, self.stop.clone());
        ControlLink::start(ControlLinkParts { reader, writer, observer, stop, presence, events, rules })
    }

    /// The link of one half of a copy, whose lanes stand.
    pub(crate) fn link_over(
        &self,
        control: (ReadHalf, WriteHalf),
        lanes: Vec<JoinedLane>,
        observer: Arc<dyn Observer>,
        presence: Arc<Presence>,
        rules: LaneRules,
    ) -> ControlLink {
        let events = mpsc::unbounded_channel();
        for lane in lanes {
            let _ = events.0.send(session::SessionEvent::Lane(lane));
        }
        let (reader, writer) = control;
        ControlLink::start(ControlLinkParts {
            reader,
            writer,
            observer,
            stop: self.stop.clone(),
            presence,
            events,
            rules,
        })
    }

    /// The event that a session with a daemon stands. Nothing is known of its lanes yet.
    pub(crate) fn stands(
        &self,
        again: bool,
        role: Role,
        (welcome, granted): (&Welcome, &GrantedLanes),
        local: Option<SyncMethod>,
    ) -> Event {
        if again {
            return Event::Redialled(hex(&welcome.session));
        }
        let (direction, sync) = match role {
            Role::Sender => (Direction::Push, handshake::sync_said(welcome.caps)),
            Role::Receiver => (Direction::Pull, local),
        };
        let wanted = match granted.transport {
            message::Transport::Ssh => granted.count,
            _ => self.settings.lanes.unwrap_or(granted.count),
        };
        let transport = match granted.transport {
            message::Transport::Tcp => LaneKind::Tcp,
            message::Transport::Quic => LaneKind::Quic,
            message::Transport::Ssh => LaneKind::Ssh,
            message::Transport::Udp => LaneKind::Udp,
        };
        let facts = start(direction, transport, welcome, (granted.count, wanted), self.protection());
        Event::Start(Start { sync, ..facts })
    }
}

/// The facts of a session when it is agreed on: so many lanes are granted, so many were wanted.
pub(crate) fn start(
    direction: Direction,
    transport: LaneKind,
    welcome: &Welcome,
    (lanes, wanted): (u32, u32),
    protection: Protection,
) -> Start {
    let mut notes = Vec::new();
    if lanes < wanted {
        notes.push(StartNote::FewerLanes { lanes, wanted });
    }
    if protection == Protection::Safe && transport != LaneKind::Pair {
        notes.push(StartNote::NotEncrypted);
    }
    if transport == LaneKind::Ssh {
        notes.push(StartNote::OverSsh);
    }
    if transport == LaneKind::Pair && protection == Protection::Safe {
        notes.push(StartNote::WithinProcess);
    }
    Start {
        session: hex(&welcome.session),
        direction,
        transport,
        protect: protection,
        lanes,
        chunk: welcome.chunk,
        congestion: "-".to_owned(),
        sync: None,
        notes,
    }
}

fn hex(session: &[u8; 16]) -> String {
    session.iter().map(|b| format!("{b:02x}")).collect()
}
