//! What carries a session of `transfer`: the link that its loop talks over, and the announcement that it stands.
//!
//! In: a control channel and joined lanes. Out: a [`Link`], and the start event to the observer.

use std::sync::Arc;

use longhaul_core::Role;
use longhaul_net::{Congestion, Protection};
use longhaul_proto::wire::message::{self, Welcome};
use tokio::sync::mpsc;

use super::Run;
use super::dial::Agreed;
use crate::api::{Event, Observer, Start, Transport};
use crate::budget;
use crate::control::{ReadHalf, WriteHalf};
use crate::lane::pacer::Rates;
use crate::presence::Presence;
use crate::session::regrow::Regrow;
use crate::session::{self, JoinedLane, LaneRules, Link, LinkParts, TuningRules};

impl Run {
    /// The link of a session with a daemon.
    pub(super) fn link(&self, agreed: Agreed, role: Role, presence: Arc<Presence>) -> Link {
        let protection = self.settings.protect.unwrap_or(Protection::Private);
        let wanted = self.settings.lanes.unwrap_or(agreed.lanes.len() as u32);
        let direction = match role {
            Role::Sender => "push",
            Role::Receiver => "pull",
        };
        let (transport, name) = match self.settings.transport {
            Transport::Quic => (message::Transport::Quic, "quic"),
            Transport::Auto | Transport::Tcp => (message::Transport::Tcp, "tcp"),
        };
        if agreed.again {
            self.observer.event(Event::Redialled(hex(&agreed.welcome.session)));
        } else {
            self.announce(direction, name, &agreed.welcome, &agreed.lanes, protection, wanted);
        }
        let rules = LaneRules {
            role,
            target: agreed.granted,
            lanes_max: agreed.lanes_max,
            transport,
            windows: budget::windows(self.settings.memory.get()),
            tuning: (role == Role::Sender).then(|| TuningRules {
                lanes: agreed.granted,
                lanes_max: agreed.lanes_max,
                unit: agreed.welcome.chunk.bytes(),
                choose_congestion: self.settings.congestion == Congestion::Auto,
                choose_transport: self.flow(0, protection).choose,
            }),
            rates: Rates { own: self.settings.rate, asked: Rates::from_wire(agreed.welcome.rate) },
            stall_after: self.settings.stall_after,
            regrow: Regrow::dialling(agreed.dial),
        };
        self.link_over(
            (agreed.control.reader, agreed.control.writer),
            agreed.lanes,
            self.observer.clone(),
            presence,
            rules,
        )
    }

    pub(super) fn link_over(
        &self,
        control: (ReadHalf, WriteHalf),
        lanes: Vec<JoinedLane>,
        observer: Arc<dyn Observer>,
        presence: Arc<Presence>,
        rules: LaneRules,
    ) -> Link {
        let events = mpsc::unbounded_channel();
        for lane in lanes {
            let _ = events.0.send(session::Event::Lane(lane));
        }
        let (reader, writer) = control;
        Link::start(LinkParts { reader, writer, observer, stop: self.stop.clone(), presence, events, rules })
    }

    pub(super) fn announce(
        &self,
        direction: &'static str,
        transport: &'static str,
        welcome: &Welcome,
        lanes: &[JoinedLane],
        protection: Protection,
        wanted: u32,
    ) {
        let mut notes = Vec::new();
        if (lanes.len() as u32) < wanted {
            notes.push(format!("{} lanes instead of {wanted}: more do not fit the memory of one side", lanes.len()));
        }
        if protection == Protection::Safe && transport != "pair" {
            notes.push(
                "NOT ENCRYPTED: --protect safe, whoever is on the way can read the data; every chunk is verified"
                    .to_owned(),
            );
        }
        if transport == "pair" {
            notes.push(
                "between two local directories lanes are safe by definition: nothing leaves this process".to_owned(),
            );
        }
        self.observer.event(Event::Start(Start {
            session: hex(&welcome.session),
            direction,
            transport,
            protect: protection,
            lanes: lanes.len() as u32,
            chunk: welcome.chunk,
            congestion: lanes.first().map_or_else(|| "-".to_owned(), |lane| lane.stream.congestion()),
            notes,
        }));
    }
}

fn hex(session: &[u8; 16]) -> String {
    session.iter().map(|b| format!("{b:02x}")).collect()
}
