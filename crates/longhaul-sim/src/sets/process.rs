//! The process that writes the files of a set: which target each chunk goes to, what is written
//! again elsewhere, and which targets are used at all.
//!
//! In: chunks that come, ends of orders, ticks. Out: orders to targets. The scheduler and the draft
//! are the real machines; what is around them does what `longhaul-disk` does. Knows no crash.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use longhaul_core::load::{ChunkScheduler, LatencyLog, WriteEnd, WriteId, WriteResult, patience};
use longhaul_core::stripe::{Spot, WriteOutcome};
use longhaul_core::{Candidate, ChunkIndex, TargetId, soonest};

use super::disk::{DiskView, SetName};
use super::host::{Host, HostEvent, Ordered, Purpose};
use super::mutants::SetMutant;
use super::plan::{OnFailure, SetPlan};
use super::reading::slot_at;
use super::resume::remove_unrecorded;
use super::striped::{DoerBody, SET_CHUNK, Stage, StripeDoer};
use super::target::{Order, OrderError};
use super::texts::{FileNo, SetText, TextNo, VersionNo, digest_of_chunk};

/// A process that writes to a set.
#[derive(Debug)]
pub(crate) struct SetProcess {
    pub(super) plan: Rc<SetPlan>,
    pub(super) files: Vec<StripeDoer>,
    pub(super) targets: Vec<TargetUse>,
    /// Files of an earlier process that are still to be continued.
    pub(super) resuming: Vec<FileNo>,
    scheduler: ChunkScheduler,
    jobs: BTreeMap<WriteId, ChunkJob>,
    /// Chunks that no target takes at the moment.
    waiting: VecDeque<WriteId>,
    buffers: usize,
    is_arriving: bool,
}

/// The knowledge that a process has of a target.
#[derive(Debug)]
pub(super) struct TargetUse {
    pub(super) health: Health,
    /// A write that began before this moment does not count: a sync failed while it was under way.
    distrusted: u64,
    latency: LatencyLog,
    patience: Duration,
    answers: u32,
}

/// Whether a target is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Well,
    Hangs,
    /// It was found full or failed at this time.
    Full(u64),
    Failed(u64),
}

/// A chunk that holds a buffer.
#[derive(Clone, Debug)]
struct ChunkJob {
    file: FileNo,
    index: u64,
    /// Targets to which writes of it are under way.
    on: Vec<usize>,
}

impl SetProcess {
    /// Opens a set. `None`: it is refused.
    pub(crate) fn open(host: &mut Host, plan: &Rc<SetPlan>) -> Option<SetProcess> {
        let is_whole = host.targets.iter().all(|target| !target.is_away);
        let is_in_place = host.targets.iter().enumerate().all(|(at, target)| target.mark == at);
        host.ledger.process_begins();
        if !is_whole || !is_in_place && !host.has(SetMutant::MarksUnread) {
            host.seen.refused += 1;
            return None;
        }
        let memory = plan.buffers as u64 * SET_CHUNK;
        let targets = host.targets.iter().map(|_| TargetUse {
            health: Health::Well,
            distrusted: 0,
            latency: LatencyLog::default(),
            patience: patience(None),
            answers: 0,
        });
        let mut process = SetProcess {
            plan: Rc::clone(plan),
            files: Vec::new(),
            targets: targets.collect(),
            resuming: Vec::new(),
            scheduler: ChunkScheduler::new(memory, plan.targets.len()),
            jobs: BTreeMap::new(),
            waiting: VecDeque::new(),
            buffers: plan.buffers,
            is_arriving: false,
        };
        process.resume_all(host);
        process.tick(host);
        Some(process)
    }

    pub(super) fn position(&self, file: FileNo) -> Option<usize> {
        self.files.iter().position(|doer| doer.file == file)
    }

    /// Takes an order that came back.
    pub(crate) fn handle(&mut self, host: &mut Host, ordered: Ordered, result: Result<(), OrderError>) {
        let known = &mut self.targets[ordered.target];
        if known.health == Health::Hangs {
            known.health = Health::Well;
        }
        match ordered.purpose {
            Purpose::Chunk { file, write, index, slot } => {
                let spot = Spot { target: TargetId(ordered.target as u32), slot };
                self.end_chunk(host, (file, write, index), spot, (ordered.began, result));
            }
            purpose => self.end_other(host, ordered.target, purpose, result),
        }
        if self.waiting.is_empty() {
            self.wake(host);
        } else {
            self.place_waiting(host);
        }
    }

    /// Takes the end of a chunk's write.
    fn end_chunk(
        &mut self,
        host: &mut Host,
        (file, write, index): (FileNo, WriteId, u64),
        spot: Spot,
        (began, result): (u64, Result<(), OrderError>),
    ) {
        let target = spot.target.0 as usize;
        host.ledger.ends_write(target, SET_CHUNK);
        let known = &mut self.targets[target];
        let went_well = result.is_ok() && began >= known.distrusted;
        known.answers += 1;
        let at = self.position(file);
        if let Some(doer) = at.map(|at| &mut self.files[at]) {
            let outcome = match went_well {
                true => Some(doer.draft.end_write(ChunkIndex(index), spot)),
                false => {
                    doer.draft.fail_write(ChunkIndex(index), spot);
                    None
                }
            };
            match outcome {
                Some(WriteOutcome::Placed) => {
                    doer.lost.remove(&index);
                    host.ledger.wins(file, index, Spot { slot: doer.slot_of(spot), ..spot });
                    host.say(|| format!("chunk {index} of file {} lies at {target}:{}", file.0, spot.slot));
                }
                Some(WriteOutcome::Late) => {
                    host.seen.losers += 1;
                    host.say(|| format!("chunk {index} of file {} came late to {target}:{}", file.0, spot.slot));
                }
                None => host.say(|| format!("chunk {index} of file {} failed on {target}: {result:?}", file.0)),
            }
        }
        match result {
            Err(OrderError::Io) => self.fail_target(host, target),
            Err(OrderError::NoSpace) => self.targets[target].health = Health::Full(host.now),
            _ => {}
        }
        let outcome = if went_well { WriteResult::Written } else { WriteResult::Failed };
        let end = self.scheduler.end(time(host), write, spot.target, outcome);
        let Some(job) = self.jobs.get_mut(&write) else { return };
        job.on.retain(|other| *other != target);
        let is_free = job.on.is_empty();
        if end == WriteEnd::Alone && self.position(file).is_some() {
            self.place_or_wait(host, write);
        } else if is_free {
            self.drop_job(write);
        }
        self.step_file(host, file);
    }

    /// Lets go of the buffer of a chunk that has no write under way.
    fn drop_job(&mut self, write: WriteId) {
        if self.jobs.remove(&write).is_some() {
            self.scheduler.give_up(write);
            self.buffers += 1;
        }
    }

    fn place_or_wait(&mut self, host: &mut Host, write: WriteId) {
        if !self.place(host, write) {
            self.waiting.push_back(write);
        }
    }

    fn place_waiting(&mut self, host: &mut Host) {
        for _ in 0..self.waiting.len() {
            let Some(write) = self.waiting.pop_front() else { break };
            self.place_or_wait(host, write);
        }
        self.wake(host);
    }

    /// Begins a write of a chunk, the first one or another one. Returns false if no target takes
    /// it.
    fn place(&mut self, host: &mut Host, write: WriteId) -> bool {
        let mut tried = BTreeSet::new();
        loop {
            let Some(job) = self.jobs.get(&write).cloned() else { return true };
            let Some(at) = self.position(job.file) else {
                if job.on.is_empty() {
                    self.drop_job(write);
                }
                return true;
            };
            // It was wanted twice, as its target failed twice, and the other write has a place.
            let doer = &self.files[at];
            if job.on.is_empty() && (doer.stage != Stage::Writing || doer.has(job.index)) {
                self.drop_job(write);
                return true;
            }
            let mut candidates = self.candidates(host, &self.files[at]);
            candidates.retain(|candidate| !tried.contains(&candidate.target));
            let chosen = if host.has(SetMutant::ShareIgnored) {
                candidates.retain(|candidate| !job.on.contains(&(candidate.target.0 as usize)));
                soonest(&candidates, SET_CHUNK)
            } else {
                self.scheduler.choose(write, &candidates)
            };
            let Some(chosen) = chosen else { return false };
            match self.body_on(host, at, chosen.0 as usize) {
                Ok(()) => {
                    self.begin_write(host, at, (write, job.index), chosen);
                    return true;
                }
                Err(error) => {
                    tried.insert(chosen);
                    match error {
                        OrderError::Io => self.fail_target(host, chosen.0 as usize),
                        OrderError::NoSpace => self.targets[chosen.0 as usize].health = Health::Full(host.now),
                        OrderError::Hangs => self.targets[chosen.0 as usize].health = Health::Hangs,
                    }
                }
            }
        }
    }

    /// The targets that may take a chunk of a file: those that are well, or else all that did not
    /// fail.
    fn candidates(&self, host: &Host, doer: &StripeDoer) -> Vec<Candidate> {
        let of = |is_one: &dyn Fn(Health) -> bool| -> Vec<Candidate> {
            let found = self.targets.iter().enumerate().filter(|(_, known)| is_one(known.health));
            // A body that an earlier process may still write to is in the way of one of ours.
            let name = SetName::Body(doer.file);
            let is_free = |at: usize| {
                doer.bodies.contains_key(&at) || host.targets[at].disk.find(DiskView::Cached, name).is_none()
            };
            found.filter(|(at, _)| is_free(*at)).map(|(at, known)| self.candidate(host, at, known)).collect()
        };
        let well = of(&|health| health == Health::Well);
        if well.is_empty() { of(&|health| !matches!(health, Health::Failed(_))) } else { well }
    }

    fn candidate(&self, host: &Host, at: usize, known: &TargetUse) -> Candidate {
        let target = TargetId(at as u32);
        let write_us = host.targets[at].pace.write_us as f64;
        Candidate {
            target,
            assigned_bytes: self.scheduler.pinned_bytes(target),
            rate: (known.answers >= 4).then_some(SET_CHUNK as f64 / write_us * 1e6),
            free_bytes: Some(1 << 40),
            is_firm: true,
            reserve_bytes: 0,
        }
    }

    /// Makes the body of a file on a target, if that is still to be done.
    fn body_on(&mut self, host: &mut Host, at: usize, target: usize) -> Result<(), OrderError> {
        let doer = &mut self.files[at];
        if !doer.bodies.contains_key(&target) {
            let node = host.create(target, SetName::Body(doer.file))?;
            // It is given its length ahead of what is written.
            host.cut(target, node.ino, slot_at(doer.chunks()));
            doer.bodies.insert(target, DoerBody { node, is_named: false, is_recorded: false });
        }
        Ok(())
    }

    fn begin_write(&mut self, host: &mut Host, at: usize, (write, index): (WriteId, u64), target: TargetId) {
        let doer = &mut self.files[at];
        let to = target.0 as usize;
        let job_writes = self.jobs.get(&write).map_or(0, |job| job.on.len());
        let spot = match job_writes {
            0 => doer.draft.begin_write(ChunkIndex(index), target),
            _ => doer.draft.begin_hedge(ChunkIndex(index), target),
        };
        if let Some(other) = doer.losers.iter().find(|(other, loser)| *other != index && loser.target == target)
            && host.has(SetMutant::LoserSlotUsedAgain)
        {
            doer.aliases.insert((to, spot.slot), other.1.slot);
        }
        if job_writes > 0 {
            host.seen.hedged += 1;
            let other = self.jobs[&write].on[0];
            let loser = doer.last_write(index, other);
            doer.losers.extend(loser.map(|loser| (index, loser)));
        }
        let slot = doer.slot_of(spot);
        let ino = doer.bodies[&to].node.ino;
        let file = doer.file;
        host.ledger.begins_write(file, Spot { slot, ..spot }, SET_CHUNK);
        if host.may_land(to, ino, slot_at(slot)) {
            host.ledger.broken(|| {
                format!("slot {slot} of file {} on target {to} is given while a write to it may land", file.0)
            });
        }
        doer.writes.push((index, spot));
        let text = self.text_of(host, at, index);
        let order = Order::Write { ino, at: slot_at(slot), blocks: text.blocks() };
        self.scheduler.begin(time(host), write, target);
        self.jobs.entry(write).and_modify(|job| job.on.push(to));
        host.say(|| format!("chunk {index} of file {} goes to {to}:{slot}", file.0));
        host.order(to, order, Purpose::Chunk { file, write, index, slot: spot.slot });
    }

    fn text_of(&self, host: &mut Host, at: usize, index: u64) -> TextNo {
        host.texts.add(SetText::Chunk(self.files[at].version, index))
    }

    /// A chunk comes.
    pub(crate) fn arrive(&mut self, host: &mut Host) {
        self.is_arriving = false;
        if self.buffers == 0 {
            return;
        }
        let ready = self.files.iter().position(|doer| doer.stage == Stage::Writing && !doer.wanted.is_empty());
        let Some(at) = ready else { return };
        let doer = &mut self.files[at];
        let (file, version) = (doer.file, doer.version);
        if let Some(index) = doer.wanted.pop_front().filter(|index| !doer.has(*index)) {
            doer.draft.note_digest(ChunkIndex(index), digest_of_chunk(version, index));
            if host.ledger.is_hole(version, index) {
                doer.draft.is_hole(ChunkIndex(index));
                doer.holes.insert(index);
            } else {
                let write = self.scheduler.take(SET_CHUNK);
                self.jobs.insert(write, ChunkJob { file, index, on: Vec::new() });
                self.buffers -= 1;
                self.place_or_wait(host, write);
            }
        }
        self.step_file(host, file);
        self.wake(host);
    }

    /// Has the next chunk come, if there is a buffer for it.
    pub(super) fn wake(&mut self, host: &mut Host) {
        let is_wanted = self.files.iter().any(|doer| doer.stage == Stage::Writing && !doer.wanted.is_empty());
        if !self.is_arriving && self.buffers > 0 && is_wanted {
            self.is_arriving = true;
            let gap = self.plan.arrival_us;
            let at = host.now + gap / 2 + host.rng.below(gap);
            host.at(at, HostEvent::Arrival(host.process));
        }
    }

    /// Looks at everything that does not come back, and at what may be tried again.
    pub(crate) fn tick(&mut self, host: &mut Host) {
        for at in 0..self.targets.len() {
            let is_well = match self.targets[at].health {
                Health::Well => true,
                Health::Hangs => !host.waits_for(at) && host.targets[at].hangs(host.now).is_none(),
                Health::Full(since) => host.now >= since + TRIED_AGAIN_US,
                Health::Failed(since) => {
                    host.now >= since + TRIED_AGAIN_US && host.targets[at].answers(host.now).is_ok()
                }
            };
            if is_well {
                self.targets[at].health = Health::Well;
            }
        }
        let overdue = self.scheduler.overdue(time(host), |target| self.targets[target.0 as usize].patience);
        for late in overdue {
            self.targets[late.target.0 as usize].health = Health::Hangs;
            if self.jobs.get(&late.write).is_some_and(|job| self.position(job.file).is_some()) {
                self.place(host, late.write);
            }
        }
        self.give_up_syncs(host);
        self.resume_more(host);
        self.start_files(host);
        let files: Vec<FileNo> = self.files.iter().map(|doer| doer.file).collect();
        let writing = self.files.iter().filter(|doer| doer.stage == Stage::Writing);
        writing.for_each(|doer| remove_unrecorded(host, doer));
        for file in files {
            self.retry_stage(host, file);
            self.step_file(host, file);
        }
        self.place_waiting(host);
        if !self.is_done(host) {
            host.at(host.now + TICK_US, HostEvent::Tick(host.process));
        }
    }

    /// Whether there is nothing to do.
    fn is_done(&self, host: &Host) -> bool {
        let versions = &host.ledger.versions;
        let is_all = (0..versions.len() as u32).all(|version| self.is_past(host, VersionNo(version)));
        is_all && self.files.is_empty() && self.resuming.is_empty() && self.jobs.is_empty()
    }

    /// Stops using a target. What it holds and no record names is given up; a file whose records
    /// name it, or whose home it is, is written elsewhere.
    pub(super) fn fail_target(&mut self, host: &mut Host, target: usize) {
        self.targets[target].health = Health::Failed(host.now);
        self.targets[target].distrusted = host.next_moment();
        host.say(|| format!("target {target} fails"));
        if self.plan.on_failure == OnFailure::EndProcess && host.process < ENDED_MAX {
            host.at(host.now, HostEvent::Death(host.process));
        }
        let files: Vec<FileNo> = self.files.iter().map(|doer| doer.file).collect();
        for file in files {
            let Some(at) = self.position(file).filter(|at| self.files[*at].stage < Stage::Publish) else { continue };
            let doer = &mut self.files[at];
            if !host.has(SetMutant::FailedPlacementBelieved) {
                host.seen.given_up += doer.give_up_unrecorded(target) as u64;
            }
            let lost = doer.recorded_on(target);
            if doer.home == target || !lost.is_empty() && self.plan.on_failure == OnFailure::BeginAnew {
                self.abandon(host, at);
            } else if !lost.is_empty() {
                host.seen.given_up += lost.len() as u64;
                doer.lost.extend(lost.iter().copied());
                doer.want(lost);
                doer.stage = Stage::Writing;
            }
        }
        self.wake(host);
    }

    /// Takes how long a target took to sync.
    pub(super) fn note_latency(&mut self, host: &Host, target: usize, took_us: u64) {
        let known = &mut self.targets[target];
        known.latency.add(time(host), Duration::from_micros(took_us));
        known.patience = patience(known.latency.quantiles());
    }

    /// The time that a target is given to answer, in microseconds.
    pub(super) fn patience_us(&self, target: usize) -> u64 {
        self.targets[target].patience.as_micros() as u64
    }
}

/// The time of the scheduler.
fn time(host: &Host) -> Duration {
    Duration::from_micros(host.now)
}

/// The number of processes that may end because a target fails. The next one would find it as it
/// is.
const ENDED_MAX: u32 = 4;
/// A process looks at what is overdue so often.
const TICK_US: u64 = 500_000;
/// A target that was full or failed is tried again after this time.
const TRIED_AGAIN_US: u64 = 30_000_000;
