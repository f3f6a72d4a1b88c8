//! Gives the deliveries of lanes to `proto`'s choice of the transport, and has its decisions
//! carried out.
//!
//! In: samples of a second. Out: a [`TuningStep`] for each decision. While lanes over UDP are alone
//! it keeps the search among those over TCP, to which it may go back. It knows no sockets and no
//! messages.

use std::time::Duration;

use longhaul_core::LaneId;
use longhaul_proto::tuning::transport::{Carried, Choice, Rival, TransportDecision};
use longhaul_proto::tuning::{LaneSample, Tuner, TuningConfig};
use longhaul_proto::wire::message::Transport;

use super::{Demand, LaneTask, RunningLane, Tuning, TuningStep};
use crate::api::LanesChange;

/// The search for the number of lanes over TCP, as a trial of UDP found it.
#[derive(Debug)]
pub(super) struct ParkedSearch {
    tuner: Option<Tuner>,
    lanes: u32,
}

impl Tuning {
    /// The changes that the choice of the transport asks for, empty during a trial. `None` if it
    /// asks for none.
    pub(super) fn choose(
        &mut self,
        elapsed: Duration,
        samples: &[LaneSample],
        lanes: &[RunningLane],
        demand: Demand,
    ) -> Option<Vec<TuningStep>> {
        let choice = self.choice.as_mut()?;
        let rival = transport_of(choice.rival()?);
        let over = |transport| -> Vec<LaneId> {
            let runs = |look: &&RunningLane| look.handle.facts().transport == transport;
            lanes.iter().filter(runs).map(|look| look.lane).collect()
        };
        let (over_tcp, over_rival) = (over(Transport::Tcp), over(rival));
        let delivered = |by: &[LaneId]| samples.iter().filter(|s| by.contains(&s.lane)).map(|s| s.acked).sum();
        let carried = Carried {
            elapsed,
            tcp: delivered(&over_tcp),
            rival: delivered(&over_rival),
            rival_lanes: over_rival.len() as u32,
            rtt: samples.iter().map(|sample| sample.rtt).max().unwrap_or_default(),
            hindered: demand.is_hindered,
            by_network: demand.is_by_network,
            by_processors: demand.is_by_processors,
            spent: demand.spent,
            remaining: demand.remaining,
        };
        let decision = choice.second(&carried);
        let is_trying = choice.is_trying();
        match decision {
            Some(decision) => Some(vec![self.carry_out(decision, &over_tcp, over_rival)]),
            None if is_trying => Some(Vec::new()),
            None => None,
        }
    }

    /// Changes the search as a decision on the transport asks for.
    fn carry_out(&mut self, decision: TransportDecision, over_tcp: &[LaneId], over_rival: Vec<LaneId>) -> TuningStep {
        let (task, change, reason) = match decision {
            TransportDecision::Try(rival, why) => {
                let count = rival.lanes();
                let change = match rival {
                    Rival::Udp => LanesChange::AddedOverUdp(count),
                    Rival::Quic => LanesChange::AddedOverQuic(count),
                };
                (LaneTask::AddOver(transport_of(rival), count), change, why)
            }
            TransportDecision::Keep(rival, alone, why) => {
                let ends = if alone { over_tcp.to_vec() } else { Vec::new() };
                let stay = over_rival.len() + over_tcp.len() - ends.len();
                // More lanes over the other carry no more, so the rest of the search only looks
                // after the end.
                let (start, usual, max) = (stay as u32, stay as u32, stay as u32);
                let config = TuningConfig { start, usual, max, unit: self.unit, algorithms: Vec::new(), chosen: None };
                let tuner = self.tuner.replace(Tuner::new(config));
                self.parked = (rival == Rival::Udp).then_some(ParkedSearch { tuner, lanes: over_tcp.len() as u32 });
                let change = match (rival, alone) {
                    (Rival::Udp, _) => LanesChange::Udp,
                    (Rival::Quic, true) => LanesChange::Quic,
                    (Rival::Quic, false) => LanesChange::TcpAndQuic,
                };
                (LaneTask::Settle(transport_of(rival), ends), change, why)
            }
            TransportDecision::Drop(_, why) => {
                // The lanes that stay have had to share with those that end.
                self.tuner.iter_mut().for_each(Tuner::disturbed);
                (LaneTask::Settle(Transport::Tcp, over_rival), LanesChange::Tcp, why)
            }
            TransportDecision::Abandon(_, why) => {
                self.tuner.iter_mut().for_each(Tuner::disturbed);
                (LaneTask::Abandon(over_rival), LanesChange::Tcp, why)
            }
            TransportDecision::Return(_, why) => {
                (LaneTask::Return(self.leave_udp(), over_rival), LanesChange::Tcp, why)
            }
        };
        TuningStep { task, change, reason }
    }

    #[cfg(test)]
    pub(crate) fn parked(lanes: u32) -> Tuning {
        Tuning {
            tuner: None,
            choice: None,
            parked: Some(ParkedSearch { tuner: None, lanes }),
            unit: 4 << 20,
            algorithms: Vec::new(),
            since: std::time::Instant::now(),
            spent: Duration::ZERO,
            last_looks: std::collections::HashMap::new(),
        }
    }

    /// Whether lanes over another transport are on trial.
    pub(crate) fn tries_transport(&self) -> bool {
        self.choice.as_ref().is_some_and(Choice::is_trying)
    }

    /// Whether lanes over UDP carry alone, and the search among those over TCP waits.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.is_some()
    }

    /// Goes back to the search among lanes over TCP. Gives how many there were, 0 if they were
    /// never left.
    pub(crate) fn leave_udp(&mut self) -> u32 {
        self.choice = None;
        let parked = self.parked.take();
        let lanes = parked.as_ref().map_or(0, |parked| parked.lanes);
        if let Some(parked) = parked {
            self.tuner = parked.tuner;
        }
        self.tuner.iter_mut().for_each(Tuner::disturbed);
        lanes
    }
}

/// The transport of a rival of TCP.
fn transport_of(rival: Rival) -> Transport {
    match rival {
        Rival::Udp => Transport::Udp,
        Rival::Quic => Transport::Quic,
    }
}
