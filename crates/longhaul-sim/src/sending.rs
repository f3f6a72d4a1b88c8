//! The sending side of a session: carries out the orders of the sender's machine, with the source's
//! files as they are by then.
//!
//! Takes actions; gives messages and frames to the link, and reports to the machine. Knows nothing
//! of the destination.

mod lanes;
mod unasked;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use longhaul_core::digest::digest_of;
use longhaul_core::{
    Attempt, Blame, BundleId, ChunkIndex, ChunkMap, ChunkSize, Digest, DigestKind, EntryKind, Fault, FaultCode, FileId,
    FileOffset, IfExists, LaneId, SourceStamp, Unit,
};
use longhaul_proto::Message;
use longhaul_proto::sender::{Sender, SenderAction, SenderConfig, Small, Unfinished};
use longhaul_proto::wire::bundle::Packer;
use longhaul_proto::wire::message::{Ending, FileEnd, Outcome};

use crate::env::{Env, Hesitation};
use crate::events::{Event, SessionNo, SourceJob};
use crate::link::{Lane, Pipe, Ready, told};
use crate::plan::Plan;

/// The end of the sender's part of a session.
#[derive(Clone, Debug)]
pub(crate) enum SenderEnd {
    /// Every entry has an outcome, and all are good.
    Complete,
    /// Some files failed.
    Partial,
    /// The session could not go on.
    Aborted(Fault),
}

/// One entry as this session offered it.
#[derive(Clone, Debug)]
struct Offered {
    path: String,
    version: usize,
    is_file: bool,
    is_leaf: bool,
}

/// The reads and sendings of a session.
#[derive(Debug, Default)]
pub(crate) struct Units {
    /// How often each unit went to a lane.
    pub(crate) sendings: BTreeMap<Unit, u32>,
    /// How often each chunk was read for a lane that took it.
    reads: BTreeMap<Unit, u32>,
    /// Chunks that were read with other bytes than before.
    altered: BTreeSet<(Unit, Attempt)>,
    /// Times that the machine's orders were carried out.
    acts: usize,
    /// Whether they are carried out at an event that is coming.
    act_is_due: bool,
    /// Files that were found changed or unreadable; they must not be committed.
    pub(crate) bad: BTreeSet<FileId>,
}

/// The sending side of a session.
pub(crate) struct SendSession {
    pub(crate) no: SessionNo,
    /// The sender's machine.
    pub(crate) machine: Sender,
    chunk: ChunkSize,
    offered: Vec<Offered>,
    scan_over: bool,
    lanes: Vec<Lane>,
    /// Units that no lane has taken yet.
    waiting: VecDeque<Ready>,
    pipe: Pipe,
    /// The outcomes of entries, as the machine says them.
    pub(crate) outcomes: BTreeMap<FileId, Outcome>,
    /// The reads and sendings so far.
    pub(crate) units: Units,
    pub(crate) payload_bytes: u64,
    pub(crate) ended: Option<SenderEnd>,
}

impl SendSession {
    pub(crate) fn new(env: &Env, no: SessionNo) -> SendSession {
        let chunk = env.plan.chunk_of(no.0);
        let (chunk_min, chunk_max) = (Plan::chunk_min(), Plan::chunk_max());
        let config = SenderConfig { chunk, chunk_min, chunk_max, bundled_max: env.plan.bundled_max };
        let mut machine = Sender::new(config);
        if env.plan.terms.unasked_bytes > 0 {
            machine.fit_first_page(env.plan.terms.unasked_bytes);
        }
        machine.allow_unasked(env.plan.terms.unasked_bytes);
        (0..env.plan.lanes).for_each(|id| machine.handle_lane_joined(LaneId(id)));
        SendSession {
            no,
            machine,
            chunk,
            offered: Vec::new(),
            scan_over: false,
            lanes: (0..env.plan.lanes).map(|id| Lane::new(LaneId(id), 0, &env.plan)).collect(),
            waiting: VecDeque::new(),
            pipe: Pipe::new(&env.plan),
            outcomes: BTreeMap::new(),
            units: Units::default(),
            payload_bytes: 0,
            ended: None,
        }
    }

    pub(crate) fn hears(&mut self, env: &mut Env, message: Message) {
        self.machine.handle_message(message);
        if !self.scan_over {
            env.clock.after(0, Event::Scan(self.no));
        }
        self.act(env);
    }

    pub(crate) fn loses(&mut self, env: &mut Env) {
        self.machine.abort(Fault::new(FaultCode::Lost, Blame::Path, "the connection is gone"));
        self.act(env);
    }

    pub(crate) fn sent(&mut self, env: &mut Env, sent: longhaul_proto::sender::Sent) {
        self.machine.handle_sent(sent);
        self.act(env);
    }

    /// Takes some more entries off the scan.
    pub(crate) fn scan(&mut self, env: &mut Env) {
        for _ in 0..1 + env.rng.below(6) {
            if self.scan_over || !self.machine.has_room() {
                break;
            }
            if self.offered.len() == env.source.len() {
                self.ends_scan();
                break;
            }
            let (entry, path, version) = env.source.scan(self.offered.len());
            let is_file = matches!(entry.kind, EntryKind::File { .. });
            let is_leaf = !matches!(entry.kind, EntryKind::Dir | EntryKind::DirEnd);
            self.offered.push(Offered { path, version, is_file, is_leaf });
            self.machine.handle_scanned(entry);
        }
        if self.machine.has_room() {
            if env.rng.permille(300) {
                self.machine.handle_scan_idle();
            }
            let us = env.rng.below(3000);
            env.clock.after(us, Event::Scan(self.no));
        }
        self.act(env);
    }

    /// Nothing is left to be scanned.
    pub(crate) fn ends_scan(&mut self) {
        self.scan_over = true;
        self.machine.handle_scan_end();
    }

    /// Carries out the orders of the machine, now or a moment later.
    fn act(&mut self, env: &mut Env) {
        if self.units.act_is_due {
            return;
        }
        match env.hesitates() {
            Hesitation::No => self.carry_out(env),
            Hesitation::Over => self.act_late(env),
            Hesitation::Yes => self.act_soon(env),
        }
    }

    /// Carries out the orders of the machine behind the events that were there.
    pub(crate) fn act_late(&mut self, env: &mut Env) {
        self.units.act_is_due = false;
        let is_backlogged = self.ended.is_none() && env.is_pressed();
        let had_room = self.machine.has_room();
        self.machine.handle_backlog(is_backlogged);
        if !had_room && self.machine.has_room() && !self.scan_over {
            env.clock.after(0, Event::Scan(self.no));
        }
        self.carry_out(env);
        if is_backlogged {
            self.act_soon(env);
        }
    }

    fn act_soon(&mut self, env: &mut Env) {
        self.units.act_is_due = true;
        let us = env.hesitation();
        env.clock.after(us, Event::SenderActs(self.no));
    }

    fn carry_out(&mut self, env: &mut Env) {
        while let Some(action) = self.machine.poll_action() {
            assert!(self.ended.is_none(), "an action after the end: {action:?}");
            let job = match action {
                SenderAction::Send(message) => {
                    self.say(env, message);
                    continue;
                }
                SenderAction::ReadChunk { file, index, attempt, map, expect } => {
                    SourceJob::Chunk { file, index, attempt, map, expect }
                }
                SenderAction::Pack { bundle, attempt, files } => SourceJob::Pack { bundle, attempt, files },
                SenderAction::PackUnasked(files) => SourceJob::PackUnasked(files),
                SenderAction::CheckSource { file, .. } => SourceJob::Check(file),
                // Its sources are files, of which nothing is kept.
                SenderAction::Release { .. } => continue,
                SenderAction::CloseLane(lane) => {
                    self.close_lane(env, lane, None);
                    continue;
                }
                SenderAction::Settled(file, outcome) => {
                    assert!(self.outcomes.insert(file, outcome).is_none(), "{file:?} is settled twice");
                    continue;
                }
                SenderAction::Finished(ending) => {
                    self.finished(env, &ending);
                    continue;
                }
                SenderAction::Abort(fault) => {
                    env.say(|| format!("s{} sender aborts: {fault}", self.no.0));
                    env.check_abort("sender", &fault);
                    self.say(env, Message::Refuse(fault.clone()));
                    self.ended = Some(SenderEnd::Aborted(fault));
                    continue;
                }
            };
            let us = 20 + env.rng.below(3000);
            env.clock.after(us, Event::Source(self.no, job));
        }
        self.units.acts += 1;
        if env.plan.scene.is_one_session && self.units.acts.is_multiple_of(1 + self.machine.unsettled() / 8) {
            self.machine.audit();
        }
    }

    fn say(&mut self, env: &mut Env, message: Message) {
        let message = match message {
            Message::FileEnd(end) if env.mishap(env.plan.rates.false_roots) => {
                let mut root = end.root;
                root[env.rng.index(32)] ^= 1;
                env.say(|| format!("s{} the root of {:?} leaves damaged", self.no.0, end.file));
                Message::FileEnd(FileEnd { root, ..end })
            }
            message => message,
        };
        env.say(|| format!("s{} > {}", self.no.0, told(&message)));
        let no = self.no;
        let at = env.arrival();
        let at = self.pipe.arrival(&message, at);
        env.clock.at(at, Event::ToReceiver(no, Box::new(crate::link::carried(&message))));
    }

    fn finished(&mut self, env: &mut Env, ending: &Ending) {
        let failed = self.outcomes.values().filter(|outcome| matches!(outcome, Outcome::Failed(_))).count();
        env.say(|| format!("s{} sender is done, {failed} failed, {:?}", self.no.0, ending.tally));
        self.ended = Some(if failed == 0 { SenderEnd::Complete } else { SenderEnd::Partial });
        if self.outcomes.len() != self.offered.len() {
            env.violate(|| "the sender is done and has not heard of every entry".to_owned());
        }
        let good = |outcome: &Outcome| matches!(outcome, Outcome::Committed(_) | Outcome::Skipped | Outcome::Equal(_));
        for (id, outcome) in self.outcomes.iter().filter(|(_, outcome)| good(outcome)) {
            let Offered { path, is_leaf, .. } = self.offered[id.0 as usize].clone();
            // A directory is well only when its end is.
            if (is_leaf || failed == 0) && !env.fs.is_name_durable(&path) {
                env.violate(|| format!("{outcome:?} is said, but {path} does not stand durably"));
            }
        }
    }

    /// Whether every leaf of the tree was there already.
    pub(crate) fn was_all_skipped(&self) -> bool {
        self.outcomes.iter().all(|(id, outcome)| {
            matches!(outcome, Outcome::Skipped | Outcome::Equal(_) | Outcome::Linked(_))
                || !self.offered[id.0 as usize].is_file
        })
    }

    /// Whether every file is still the version that was offered.
    pub(crate) fn is_up_to_date(&self, env: &Env) -> bool {
        let mut files = self.offered.iter().enumerate().filter(|(_, of)| of.is_file);
        files.all(|(at, of)| env.source.current(at).0 == of.version)
    }

    fn stamp(&self, env: &Env, file: FileId) -> SourceStamp {
        let offered = &self.offered[file.0 as usize];
        env.source.version(file.0 as usize, offered.version).stamp
    }

    /// Whether a file is still the version that was offered.
    fn unchanged(&self, env: &Env, file: FileId) -> Result<(), Fault> {
        let offered = &self.offered[file.0 as usize];
        match env.source.current(file.0 as usize).0 == offered.version {
            true => Ok(()),
            false => Err(Fault::new(FaultCode::Changed, Blame::Local, "the source changed while it was sent")),
        }
    }

    /// An order is carried out.
    pub(crate) fn work(&mut self, env: &mut Env, job: SourceJob) {
        if self.ended.is_some() {
            return;
        }
        match job {
            SourceJob::Chunk { file, index, attempt, map, expect } => {
                self.read(env, file, index, attempt, map, expect);
            }
            SourceJob::Pack { bundle, attempt, files } => self.pack(env, bundle, attempt, &files),
            SourceJob::PackUnasked(files) => self.pack_unasked(env, &files),
            SourceJob::Check(file) => {
                let result = self.unchanged(env, file).and_then(|()| self.fate(env, file, FaultCode::Changed));
                self.machine.handle_check_source(file, result);
            }
        }
        self.act(env);
    }

    fn read(
        &mut self,
        env: &mut Env,
        file: FileId,
        index: ChunkIndex,
        attempt: Attempt,
        map: ChunkMap,
        expect: Option<Digest>,
    ) {
        if let Err(fault) = self.fate(env, file, FaultCode::Io) {
            return self.machine.handle_unreadable(file, &fault);
        }
        let (start, len) = (map.start_of(index), map.len_of(index).unwrap_or(0));
        // The file as it is now: a descriptor shows bytes that were written since.
        let now = &env.source.current(file.0 as usize).1.bytes;
        let Some(mut bytes) = now.get(start.0 as usize..(start.0 + len) as usize).map(<[u8]>::to_vec) else {
            let fault = Fault::new(FaultCode::Changed, Blame::Local, "the source is shorter than it was");
            return self.machine.handle_unreadable(file, &fault);
        };
        self.read_again(env, Unit::Chunk { file, index }, attempt, &mut bytes);
        let same = expect.is_some_and(|expect| digest_of(&bytes, map.kind(), start) == expect);
        let hole = !same && !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0);
        let (unit, kind, chunk) = (Unit::Chunk { file, index }, map.kind(), map.size());
        let ready = Ready { unit, attempt, payload: (!hole).then_some(bytes), same, len, kind, start, chunk };
        if !same && !hole && self.unchanged(env, file).is_ok() {
            let (path, stamp) = (self.offered[file.0 as usize].path.clone(), self.stamp(env, file));
            env.check_sent(&path, stamp, index);
        }
        self.hand_over(env, &ready);
    }

    fn pack(&mut self, env: &mut Env, bundle: BundleId, attempt: Attempt, files: &[Small]) {
        let mut unit = vec![0xee; self.chunk.bytes() as usize];
        let mut packer = Packer::new(&mut unit, files.len());
        let (mut missing, mut kept) = (Vec::new(), 0);
        for Small { file, len, standing_root: stands } in files {
            let fate = self.fate(env, *file, FaultCode::Vanished);
            let content = &env.source.current(file.0 as usize).1.bytes;
            match (self.unchanged(env, *file).and(fate), packer.space(*len as usize)) {
                (Ok(()), Some(space)) if space.len() == content.len() => {
                    space.copy_from_slice(content);
                    let root = *digest_of(content, DigestKind::Root, FileOffset(0)).bytes();
                    match *stands == Some(root) {
                        true => packer.keep_same(*file, content.len(), root),
                        false => packer.keep(*file, content.len(), root),
                    }
                    kept += 1;
                }
                (result, _) => missing.push((*file, result.err().unwrap_or_else(no_room))),
            }
        }
        let (len, _) = packer.finish();
        unit.truncate(len);
        self.machine.handle_pack(bundle, missing, kept == 0);
        if kept > 0 {
            let ready = Ready {
                unit: Unit::Bundle(bundle),
                attempt,
                len: len as u64,
                payload: Some(unit),
                same: false,
                kind: DigestKind::Root,
                start: FileOffset(0),
                chunk: self.chunk,
            };
            self.hand_over(env, &ready);
        }
    }

    /// A lane takes a unit; other bytes may arrive.
    fn hand_over(&mut self, env: &mut Env, ready: &Ready) {
        let open: Vec<usize> = (0..self.lanes.len()).filter(|at| self.lanes[*at].is_open).collect();
        if open.is_empty() {
            return self.waiting.push_back(ready.clone());
        }
        let at = *env.rng.pick(&open);
        let (rates, safe) = (env.plan.rates, env.plan.safe);
        let id = self.lanes[at].id;
        let is_lost = env.mishap(rates.lanes.losses);
        if is_lost && env.rng.permille(300) {
            env.say(|| format!("s{} {id:?} breaks with {} in hand", self.no.0, ready.unit));
            env.break_lane(self.no, id);
            self.units.never_sent(ready.unit);
            return self.close_lane(env, id, Some(Unfinished { unit: ready.unit, attempt: ready.attempt }));
        }
        let (mut frame, sent) = self.lanes[at].send(ready, safe);
        // A bundle that only names standing files has no payload: it is a table.
        let bare = matches!(ready.unit, Unit::Bundle(_)) && env.plan.terms.if_exists == IfExists::Verify;
        self.payload_bytes += if bare { 0 } else { frame.payload.len() as u64 };
        self.units.sent(ready);
        if env.plan.scene.always_flipped.contains(&ready.unit) || env.mishap(rates.flips) {
            frame.flip(&mut env.rng);
        }
        if safe && env.mishap(rates.alters) {
            frame.alter(&mut env.rng);
        }
        env.say(|| format!("s{} lane {at} takes {} attempt {}", self.no.0, ready.unit, ready.attempt.0));
        let twice = safe && env.mishap(rates.replays);
        for _ in 0..1 + u32::from(twice) {
            let arrives = self.slowed(env, id);
            let arrives = self.lanes[at].arrival(arrives);
            env.clock.at(arrives, Event::Landed(self.no, id, frame.clone()));
        }
        let reports = env.clock.now().0 + env.rng.below(1000);
        env.clock.at(self.lanes[at].report(reports), Event::Sent(self.no, sent));
        if is_lost {
            self.lose_lane(env, id);
        }
        if env.mishap(rates.lanes.retirements) {
            self.retire_lane(env, id);
        }
        self.give_up_straggler(env);
    }

    /// Whether a source is still good, by chance.
    fn fate(&mut self, env: &mut Env, file: FileId, code: FaultCode) -> Result<(), Fault> {
        if !env.mishap(env.plan.rates.source_faults) {
            return Ok(());
        }
        self.units.bad.insert(file);
        Err(Fault::new(code, Blame::Local, "the source \n\x1b[31m is bad"))
    }

    /// A chunk is read, with other bytes than before by chance.
    fn read_again(&mut self, env: &mut Env, unit: Unit, attempt: Attempt, bytes: &mut [u8]) {
        let reads = self.units.reads.entry(unit).or_default();
        *reads += 1;
        if *reads > 1 && !bytes.is_empty() && env.mishap(4 * env.plan.rates.source_faults) {
            bytes[0] ^= 1;
            self.units.altered.insert((unit, attempt));
        }
    }
}

impl Units {
    /// A lane took the unit.
    fn sent(&mut self, ready: &Ready) {
        *self.sendings.entry(ready.unit).or_default() += 1;
        if let (Unit::Chunk { file, .. }, true) = (ready.unit, self.altered.remove(&(ready.unit, ready.attempt))) {
            self.bad.insert(file);
        }
    }

    /// No lane took the unit whole: no digest of it was said, so that the next read is the first
    /// again.
    fn never_sent(&mut self, unit: Unit) {
        *self.sendings.entry(unit).or_default() += 1;
        self.altered.retain(|(of, _)| *of != unit);
        if let Some(reads) = self.reads.get_mut(&unit) {
            *reads -= 1;
        }
    }
}

fn no_room() -> Fault {
    Fault::new(FaultCode::Internal, Blame::Bug, "a bundle that does not fit its unit")
}
