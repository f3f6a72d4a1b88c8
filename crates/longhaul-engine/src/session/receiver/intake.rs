//! Owns the means by which lanes bring units to a receiving session, and watches that units come.
//!
//! In: lanes that join, arrivals, messages that announce holes. Out: arrivals in the session's
//! queue, and the fault of a session to which nothing comes. Of the machine it asks only whether
//! units are owed.

use std::sync::Arc;

use longhaul_core::{Algorithms, Blame, ChunkSize, Fault, FaultCode, FileId, LaneId, hint};
use longhaul_disk::Affinity;
use longhaul_proto::Message;
use longhaul_proto::receiver::{EntryRef, Receiver};
use longhaul_proto::wire::data::Piece;
use longhaul_sys::Slab;

use crate::budget;
use crate::lanes::JoinedLane;
use crate::lanes::event::LaneEnd;
use crate::lanes::rules::LaneControls;
use crate::lanes::worker::holes::Holes;
use crate::lanes::worker::pulse::{ArrivalDeadline, OVERDUE};
use crate::lanes::worker::receive::Arrival;
use crate::lanes::{udp, worker};
use crate::session::bare::{Gate, Pass};
use crate::session::control::ControlLink;
use crate::session::{SessionEvent, unasked};

/// The intake of a receiving session. See the module.
pub(super) struct Intake {
    slab: Arc<Slab>,
    chunk: ChunkSize,
    /// Where lanes run.
    affinity: Affinity,
    /// The holes that lanes may bring.
    holes: Holes,
    /// Bounds arrivals without a buffer.
    gate: Gate,
    /// The passes of arrivals that are being dealt with.
    passes: Vec<Pass>,
    deadline: ArrivalDeadline,
    /// Further checksums that lanes compute of chunks.
    sums: Algorithms,
    /// Units that arrived so far, holes included.
    arrived: u64,
    /// The number of arrivals when stalled lanes were last found. `None` if that never happened.
    stalled_at: Option<u64>,
}

impl Intake {
    /// An intake into the buffers of `slab`, by lanes that run where `affinity` says and compute
    /// `sums`.
    pub(super) fn new(slab: Arc<Slab>, chunk: ChunkSize, affinity: Affinity, sums: Algorithms) -> Intake {
        Intake {
            slab,
            chunk,
            affinity,
            holes: Holes::default(),
            gate: Gate::default(),
            passes: Vec::new(),
            deadline: ArrivalDeadline::new(),
            sums,
            arrived: 0,
            stalled_at: None,
        }
    }

    /// Starts a lane's thread.
    pub(super) fn start_lane(&self, joined: JoinedLane, link: &mut ControlLink) -> Result<(), Fault> {
        let (slab, sink, times) = (self.slab.clone(), link.sink(), link.times().clone());
        let (holes, gate, affinity) = (self.holes.clone(), self.gate.clone(), self.affinity.clone());
        let sums = self.sums;
        let started = link.start_lane(joined, move |joined, LaneControls { pulse, pacer, slots, .. }| {
            worker::bind(&affinity, &joined);
            let id = joined.id();
            let deliver = |arrival: Arrival| {
                let pass = arrival.slot.is_none().then(|| gate.enter());
                let _ = sink.send(SessionEvent::Arrived(arrival, pass));
            };
            let means = worker::receive::ReceiveMeans {
                slab: &slab,
                pacer: &pacer,
                times: &times,
                pulse: &pulse,
                holes: &holes,
                sums,
            };
            let (landed, result) = match joined {
                JoinedLane::Stream(lane) => {
                    let (landed, result) = worker::receive::run(lane, means, deliver);
                    (landed.into(), result)
                }
                JoinedLane::Udp(lane) => udp::sink::run(*lane, means, slots, deliver),
            };
            LaneEnd { id, fault: result.err(), unfinished: Vec::new(), landed }
        });
        self.fit_buffers(link);
        started
    }

    /// Gives the other half of the memory to the windows of lanes, if there are any.
    pub(super) fn fit_buffers(&self, link: &ControlLink) {
        let slots = self.slab.slots();
        self.slab.set_limit(if link.any_windows() { budget::beside_windows(slots) } else { slots });
    }

    /// Takes small files that nobody asked for into a buffer. `None` if none is free.
    pub(super) fn land_unasked(&self, bundle: &[u8]) -> Result<Option<Arrival>, Fault> {
        unasked::land(&self.slab, self.chunk, bundle)
    }

    /// Takes in that a unit arrived. Its pass is kept until [`Intake::settle`].
    pub(super) fn arrived(&mut self, piece: &Piece, pass: Option<Pass>) {
        self.arrived += 1;
        self.holes.arrived(piece);
        self.passes.extend(pass);
    }

    /// Notes an entry that is surveyed: it may have holes.
    pub(super) fn announce(&self, held: &EntryRef) {
        self.holes.announce(held.id, &held.entry, self.chunk);
    }

    /// Notes a message to the sender: it may ask for holes.
    pub(super) fn say(&self, message: &Message) {
        self.holes.say(message);
    }

    /// Forgets an entry that has its outcome.
    pub(super) fn forget(&self, file: FileId) {
        self.holes.forget(file);
    }

    /// Lets other arrivals in for those that were dealt with.
    pub(super) fn settle(&mut self) {
        self.passes.clear();
    }

    /// The fault of a session in which lanes stand still, one after the other: no unit came since
    /// `stalled` lanes were last found, so lanes are not the cause.
    pub(super) fn find_hopeless(&mut self, stalled: &[LaneId]) -> Option<Fault> {
        let is_hopeless = !stalled.is_empty() && self.stalled_at.replace(self.arrived) == Some(self.arrived);
        is_hopeless.then(|| lost("one lane after the other stood still in the middle"))
    }

    /// The fault of a session to which units that are owed do not come.
    pub(super) fn find_overdue(&mut self, link: &ControlLink, machine: &Receiver) -> Option<Fault> {
        let (pieces, held_up) = link.pieces();
        let is_overdue = self.deadline.is_overdue(machine.is_owed_arrivals(), pieces, held_up);
        let seconds = OVERDUE.as_secs();
        is_overdue.then(|| lost(format_args!("data that was sent did not arrive in {seconds} s")))
    }

    /// Ends the intake: lanes find no buffer any more.
    pub(super) fn close(&self) {
        self.slab.close();
        self.gate.close();
    }
}

fn lost(why: impl std::fmt::Display) -> Fault {
    Fault::new(FaultCode::Lost, Blame::Path, why).hint(hint::Again::Encrypted)
}
