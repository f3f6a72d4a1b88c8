//! A little world in memory: the real sender against the real receiver, with a scheduler that lets
//! anything happen in any order that the real world allows, from one seed.

use std::collections::BTreeMap;

use longhaul_core::limits::{CHUNKS_WANTED_MAX, ENTRIES_UNSETTLED_MAX};
use longhaul_core::{ChunkSize, EntryKind, Fault, FileId, Preserve, Unit};

use super::plan::{CHUNK, Plan};
use super::rng::Rng;
use super::source::Source;
use super::target::{Standing, Target};
use super::wire::{Lane, LaneEnd, Pipe};
use crate::sender::Sent;
use crate::wire::message::{Finding, Message, Outcome};
use crate::{Receiver, Sender, Timestamp, receiver, sender};

/// How a session ended on one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Finished,
    Aborted(Fault),
}

/// The world.
pub(crate) struct World {
    pub(crate) plan: Plan,
    rng: Rng,
    now: Timestamp,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) source: Source,
    pub(crate) target: Target,
    to_sender: Pipe,
    to_receiver: Pipe,
    pub(crate) lanes: Vec<Lane>,
    /// Lanes that were lost.
    pub(crate) lost: usize,
    scan_over: bool,
    /// The outcome of each entry, as each side heard it.
    pub(crate) told: BTreeMap<FileId, Outcome>,
    /// How often each unit was sent, and the findings on it.
    pub(crate) sendings: BTreeMap<Unit, u32>,
    pub(crate) findings: Vec<(Unit, Finding)>,
    wanted: usize,
    pub(crate) compared: usize,
    pub(crate) ends: (Option<End>, Option<End>),
    steps: usize,
    /// How often nothing could happen before time had passed.
    pub(crate) waits: usize,
}

/// The events that can happen next.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Scan,
    ReceiverHears,
    SenderHears,
    Read,
    LaneTakes,
    LaneBrings(usize),
    LaneReports(usize),
    LaneEndsNear(usize),
    LaneEndsFar(usize),
    Disk,
    SenderActs,
    ReceiverActs,
}

impl World {
    pub(crate) fn new(plan: Plan) -> World {
        let chunk = ChunkSize::from_bytes(CHUNK as u64).expect("a size");
        let config = receiver::ReceiverConfig {
            chunk,
            chunk_max: ChunkSize::from_bytes(2 * CHUNK as u64).expect("a size"),
            bundled_max: plan.bundled_max,
            policy: plan.policy,
            landing: plan.landing.clone(),
            preserve: Preserve::default(),
            dry_run: plan.dry_run,
            group: plan.group,
            read_back: plan.read_back,
            digests: plan.digests,
        };
        let mut world = World {
            rng: Rng::new(plan.seed ^ 0x5eed),
            now: Timestamp(0),
            sender: Sender::new(sender::SenderConfig {
                chunk,
                chunk_min: chunk,
                chunk_max: config.chunk_max,
                bundled_max: plan.bundled_max,
            }),
            receiver: Receiver::new(config, "/somewhere".to_owned()),
            source: Source::new(&plan),
            target: Target::new(&plan),
            to_sender: Pipe::default(),
            to_receiver: Pipe::default(),
            lanes: Vec::new(),
            lost: 0,
            scan_over: false,
            told: BTreeMap::new(),
            sendings: BTreeMap::new(),
            findings: Vec::new(),
            wanted: 0,
            compared: 0,
            ends: (None, None),
            steps: 0,
            waits: 0,
            plan,
        };
        (0..world.plan.lanes).for_each(|_| world.join_lane());
        world
    }

    fn join_lane(&mut self) {
        let lane = Lane::new(self.lanes.len());
        self.sender.handle_lane_joined(lane.id);
        assert!(self.receiver.handle_lane_joined(lane.id));
        self.lanes.push(lane);
    }

    /// Runs until both sides are at their end; panics if that takes too long or if nothing can
    /// happen any more.
    pub(crate) fn run(mut self) -> World {
        let bytes: usize = self.plan.items.iter().map(|item| item.bytes.len()).sum();
        let steps_max = 4000 + 400 * self.plan.items.len() + 200 * bytes.div_ceil(CHUNK);
        while self.ends.0.is_none() || self.ends.1.is_none() {
            self.step();
            self.steps += 1;
            assert!(self.steps < steps_max, "seed {}: no end after {} steps", self.plan.seed, self.steps);
        }
        self
    }

    /// Runs to a good end on both sides and checks the result.
    pub(crate) fn run_well(self) -> World {
        let world = self.run();
        assert_eq!(world.ends, (Some(End::Finished), Some(End::Finished)), "seed {}", world.plan.seed);
        world.assert_whole();
        world
    }

    pub(crate) fn step(&mut self) {
        let turns = self.turns();
        if turns.is_empty() {
            self.pass_time();
        } else {
            let turn = *self.rng.pick(&turns);
            self.take(turn);
        }
        // Audits count everything anew: often enough to find a drift near its cause, not so often
        // that worlds crawl.
        if self.steps.is_multiple_of(1 + self.plan.items.len() / 8) {
            self.receiver.audit();
            self.sender.audit();
        }
        assert!(self.receiver.unsettled() <= ENTRIES_UNSETTLED_MAX);
        self.target.assert_durable(self.receiver.tally().durable);
    }

    /// Nothing happens by itself: time passes until something does.
    fn pass_time(&mut self) {
        let Some(next) = self.receiver.poll_timeout() else {
            panic!("seed {}: nothing can happen any more: {:?}", self.plan.seed, self.receiver)
        };
        self.waits += 1;
        self.now = self.now.max(next);
        self.receiver.handle_timeout(self.now);
        self.receiver_acts();
    }

    fn turns(&self) -> Vec<Turn> {
        let mut turns = vec![];
        let mut may = |can: bool, turn: Turn| {
            if can {
                turns.push(turn)
            }
        };
        if self.ends.0.is_none() {
            may(!self.scan_over && self.sender.has_room(), Turn::Scan);
            may(!self.to_sender.is_empty(), Turn::SenderHears);
            may(!self.source.is_idle(), Turn::Read);
            may(!self.source.ready.is_empty() && self.lanes.iter().any(|l| l.near == LaneEnd::Up), Turn::LaneTakes);
            may(self.sender.has_actions(), Turn::SenderActs);
        }
        if self.ends.1.is_none() {
            may(!self.to_receiver.is_empty(), Turn::ReceiverHears);
            may(!self.target.is_idle(), Turn::Disk);
            may(self.receiver.has_actions(), Turn::ReceiverActs);
        }
        for (at, lane) in self.lanes.iter().enumerate() {
            may(!lane.frames.is_empty() && self.ends.1.is_none(), Turn::LaneBrings(at));
            may(!lane.reports.is_empty() && self.ends.0.is_none(), Turn::LaneReports(at));
            let (near, far) = (lane.near == LaneEnd::Down, lane.far == LaneEnd::Down);
            may(near && lane.reports.is_empty() && self.ends.0.is_none(), Turn::LaneEndsNear(at));
            may(far && lane.frames.is_empty() && self.ends.1.is_none(), Turn::LaneEndsFar(at));
        }
        turns
    }

    fn take(&mut self, turn: Turn) {
        if self.rng.permille(self.plan.dawdling) {
            self.now = Timestamp(self.now.0 + self.rng.below(300_000) as u64);
            self.receiver.handle_timeout(self.now);
        }
        if self.rng.permille(self.plan.losses) {
            self.lose_lane();
        }
        if self.rng.permille(self.plan.retirements) {
            let at = self.rng.below(self.lanes.len());
            self.lanes[at].retire();
        }
        match turn {
            Turn::Scan => self.scan(),
            Turn::ReceiverHears => {
                if let Some(message) = self.to_receiver.receive(&mut self.rng, self.plan.any_class_order) {
                    self.receiver.handle_message(self.now, message);
                }
            }
            Turn::SenderHears => {
                if let Some(message) = self.to_sender.receive(&mut self.rng, self.plan.any_class_order) {
                    self.sender.handle_message(message);
                }
            }
            Turn::Read => self.source.step(&mut self.rng, &mut self.sender),
            Turn::LaneTakes => self.lane_takes(),
            Turn::LaneBrings(at) => self.lane_brings(at),
            Turn::LaneReports(at) => {
                let report: Option<Sent> = self.lanes[at].reports.pop_front();
                report.into_iter().for_each(|sent| self.sender.handle_sent(sent));
            }
            Turn::LaneEndsNear(at) => {
                let lane = &mut self.lanes[at];
                lane.near = LaneEnd::Gone;
                let (id, unfinished) = (lane.id, lane.unfinished.take());
                // A socket that is closed at one end breaks at the other.
                lane.far = lane.far.max_down();
                match lane.retired {
                    true => self.sender.handle_lane_retired(id),
                    false => self.sender.handle_lane_ended(id, unfinished),
                }
                self.replace_lane(at);
            }
            Turn::LaneEndsFar(at) => {
                let lane = &mut self.lanes[at];
                lane.far = LaneEnd::Gone;
                let (id, landed) = (lane.id, lane.landed);
                self.receiver.handle_lane_ended(self.now, id, landed);
                self.replace_lane(at);
            }
            Turn::Disk => self.target.step(&mut self.rng, self.now, &mut self.receiver),
            Turn::SenderActs => self.sender_acts(),
            Turn::ReceiverActs => self.receiver_acts(),
        }
    }

    fn scan(&mut self) {
        for _ in 0..1 + self.rng.below(40) {
            if !self.sender.has_room() {
                return;
            }
            match self.source.scan() {
                Some(item) => drop(self.sender.handle_scanned(item.entry)),
                None => {
                    self.scan_over = true;
                    return self.sender.handle_scan_end();
                }
            }
        }
        if self.rng.permille(300) {
            self.sender.handle_scan_idle();
        }
    }

    fn lane_takes(&mut self) {
        let up: Vec<_> = (0..self.lanes.len()).filter(|at| self.lanes[*at].near == LaneEnd::Up).collect();
        // The last one may have been lost a moment ago.
        if up.is_empty() {
            return;
        }
        let Some(ready) = self.source.ready.pop_front() else { return };
        let unit = ready.unit;
        *self.sendings.entry(unit).or_default() += 1;
        let at = *self.rng.pick(&up);
        if self.rng.permille(self.plan.losses) {
            self.lost += 1;
            self.source.never_sent(unit);
            return self.lanes[at].fail_with(&ready);
        }
        if let (Unit::Chunk { file, .. }, true) = (unit, ready.otherwise) {
            self.source.bad.insert(file);
        }
        self.lanes[at].send(ready, self.plan.safe);
        let Some(frame) = self.lanes[at].frames.back_mut() else { return };
        if self.plan.always_flipped.contains(&unit) || self.rng.permille(self.plan.flips) {
            frame.flip(&mut self.rng);
        }
        if self.plan.safe && self.rng.permille(self.plan.alters) {
            frame.alter(&mut self.rng);
        }
    }

    /// A lane breaks, or one side or the other gives it up.
    fn lose_lane(&mut self) {
        let at = self.rng.below(self.lanes.len());
        let lane = &mut self.lanes[at];
        self.lost += usize::from(lane.near == LaneEnd::Up && lane.far == LaneEnd::Up);
        match self.rng.below(3) {
            0 => lane.break_off(&mut self.rng),
            1 => self.sender.lose_lane(lane.id),
            _ => self.receiver.lose_lane(lane.id),
        }
    }

    /// Once both ends are gone, another lane takes its place.
    fn replace_lane(&mut self, at: usize) {
        if (self.lanes[at].near, self.lanes[at].far) == (LaneEnd::Gone, LaneEnd::Gone) {
            self.join_lane();
        }
    }

    pub(crate) fn lane_brings(&mut self, at: usize) {
        let Some((landed, payload, rows)) = self.lanes[at].receive() else { return };
        self.target.keep(&landed, payload, rows);
        self.receiver.handle_landed(self.now, landed);
    }

    fn sender_acts(&mut self) {
        while let Some(action) = self.sender.poll_action() {
            assert!(self.ends.0.is_none(), "an action after the end: {action:?}");
            match action {
                sender::SenderAction::Send(message) => self.to_receiver.send(&message),
                sender::SenderAction::ReadChunk { file, index, attempt, map, expect } => {
                    self.source.read(file, index, attempt, map, expect);
                }
                sender::SenderAction::Pack { bundle, attempt, files } => self.source.pack(bundle, attempt, files),
                sender::SenderAction::CheckSource(file) => self.source.check(file),
                sender::SenderAction::CloseLane(lane) => {
                    let lane = &mut self.lanes[lane.0 as usize];
                    lane.near = lane.near.max_down();
                }
                sender::SenderAction::Settled(file, outcome) => {
                    assert!(self.told.insert(file, outcome).is_none(), "{file:?} is settled twice");
                }
                sender::SenderAction::Finished(_) => self.ends.0 = Some(End::Finished),
                sender::SenderAction::Abort(fault) => {
                    self.to_receiver.send(&Message::Refuse(fault.clone()));
                    self.ends.0 = Some(End::Aborted(fault));
                }
            }
        }
    }

    fn receiver_acts(&mut self) {
        while let Some(action) = self.receiver.poll_action() {
            assert!(self.ends.1.is_none(), "an action after the end: {action:?}");
            self.target.order(action.clone());
            match action {
                receiver::ReceiverAction::Send(message) => {
                    self.hear_receiver(&message);
                    self.to_sender.send(&message);
                }
                receiver::ReceiverAction::MeasureRoom { .. } if self.plan.room.is_none() => {
                    self.receiver.handle_measure_room(self.now, None);
                }
                receiver::ReceiverAction::CloseLane(lane) => self.lanes[lane.0 as usize].close_far(),
                receiver::ReceiverAction::Finished(_) => self.ends.1 = Some(End::Finished),
                receiver::ReceiverAction::Abort(fault) => {
                    self.to_sender.send(&Message::Refuse(fault.clone()));
                    self.ends.1 = Some(End::Aborted(fault));
                }
                _ => {}
            }
        }
    }

    fn hear_receiver(&mut self, message: &Message) {
        match message {
            Message::WantChunks(want) => {
                self.wanted += want.count as usize;
                assert!(want.count as usize <= CHUNKS_WANTED_MAX);
            }
            Message::CheckChunks(check) => self.compared += check.digests.len(),
            Message::CheckFiles(check) => self.compared += check.files.len(),
            Message::Verdicts(list) => self.findings.extend(list.iter().map(|v| (v.unit, v.finding))),
            _ => {}
        }
    }

    /// Chunks asked for in all.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }

    /// The outcome of the entry with that path.
    pub(crate) fn outcome(&self, name: &str) -> &Outcome {
        let at = self.plan.items.iter().position(|item| item.entry.path.as_bytes() == name.as_bytes());
        &self.told[&FileId(at.expect("an entry") as u64)]
    }

    /// Checks a good end: both sides say the same of every entry, committed entries stand as they
    /// were sent, other entries do not stand, and nothing else is left.
    fn assert_whole(&self) {
        self.target.assert_clean();
        let mut standing: BTreeMap<_, _> = self.plan.standing.iter().cloned().collect();
        for (at, item) in self.plan.items.iter().enumerate() {
            let id = FileId(at as u64);
            let (there, here) = (&self.target.outcomes[&id], &self.told[&id]);
            assert_eq!(std::mem::discriminant(there), std::mem::discriminant(here), "{item:?}");
            let stands = self.target.names.get(&item.entry.path);
            match (here, &item.entry.kind) {
                (Outcome::Committed(root), EntryKind::File { .. }) => {
                    assert_eq!(*root, Some(*blake3::hash(&item.bytes).as_bytes()), "{item:?}");
                    assert!(!self.source.bad.contains(&id), "seed {}: a bad source is committed", self.plan.seed);
                    let other = |of: &FileId| *of != id && self.plan.items[of.0 as usize].entry.path == item.entry.path;
                    let whole = match stands {
                        Some(Standing::File(of, bytes)) => *of == id && *bytes == item.bytes || other(of),
                        Some(Standing::Link(of, _)) => other(of),
                        _ => false,
                    };
                    assert!(whole, "seed {}: {} stands otherwise", self.plan.seed, item.entry.path.escaped());
                    standing.remove(&item.entry.path);
                }
                (Outcome::Equal(root), EntryKind::File { .. }) => {
                    assert_eq!(*root, *blake3::hash(&item.bytes).as_bytes(), "{item:?}");
                    assert_eq!(self.target.stood.equal[&id], item.bytes, "{item:?} is called equal");
                }
                (Outcome::Stands(root), EntryKind::File { .. }) => {
                    let content = self.target.stood.contents.get(&item.entry.path);
                    assert!(content.is_none_or(|bytes| *root == *blake3::hash(bytes).as_bytes()), "{item:?}");
                }
                (Outcome::Failed(_) | Outcome::Skipped | Outcome::Planned, EntryKind::File { .. }) => {
                    let stands_whole = matches!(stands, Some(Standing::File(of, _)) if *of == id);
                    assert!(!stands_whole || self.target.unsure.contains(&id), "{item:?} stands after all");
                }
                _ => {}
            }
        }
        assert_eq!(self.told.len(), self.plan.items.len());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the world of seed {} after {} steps", self.plan.seed, self.steps);
        }
    }
}
