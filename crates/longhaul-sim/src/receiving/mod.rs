//! The receiving side of a session: the receiver's machine and a small model of the doer that
//! carries out its orders.
//!
//! In: messages, frames, ends of operations. Out: operations of the file system, messages, reports
//! to the machine. Its rules are those of the real one: `book` journals, `orders` turns actions
//! into jobs, `reports` gives their results. Knows nothing of the sender.

mod book;
mod dirs;
mod hardlinks;
mod job;
mod orders;
mod reports;
mod sequence;
mod standing;
mod temp_dirs;
mod unasked;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use longhaul_core::digest::Hash32;
use longhaul_core::{
    Blame, ChunkIndex, ChunkMap, ChunkSize, EntryKind, Fault, FaultCode, FileId, LaneId, SourceStamp, Unit,
};
use longhaul_proto::Message;
use longhaul_proto::receiver::{EntryRef, Ticket, WantOrder};
use longhaul_proto::wire::message::{FileEnd, LandedUnits};

use crate::env::{Env, Hesitation};
use crate::events::{Event, JobNo, SessionNo};
use crate::fs::{Errno, Ino, Op};
use crate::link::{Frame, Lane, Pipe, Rows, told};
use crate::mutants::Mutant;
use crate::names;
use crate::watched::Watched;
use book::Book;
use dirs::Directories;
use job::{Job, Queue, StepEnd, Work};
use sequence::Sequence;

/// A file under a temporary name.
#[derive(Clone, Debug)]
struct Temp {
    entry: Arc<EntryRef>,
    name: String,
    ino: Ino,
    map: ChunkMap,
    /// Whether an earlier session wrote to it, so that no part of it is known to be a hole.
    continued: bool,
    /// Whether its name is durable, or is being made so.
    name_synced: bool,
    /// Chunks that were written and that no sync covers yet.
    unsynced: BTreeSet<ChunkIndex>,
    /// Chunks whose bytes were given up and that have not come again.
    lost: BTreeSet<ChunkIndex>,
}

/// The content of an arrival, until its verdict.
#[derive(Debug)]
struct Payload {
    unit: Unit,
    /// `None` if nothing is to be written, as the chunk is there.
    bytes: Option<Vec<u8>>,
    hole: bool,
    rows: Rows,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The journal is being opened.
    Opening,
    Running,
    /// The machine is over; operations under way are waited for.
    Closing,
    /// The last jobs are under way.
    Leaving,
    Closed,
}

/// The roots that a session knows.
#[derive(Debug, Default)]
struct Roots {
    /// Roots that the sender declared.
    declared: BTreeMap<FileId, Hash32>,
    /// Roots of files that may get other names, which need not be known.
    named: BTreeMap<Ino, Option<Hash32>>,
}

/// The receiving side of a session.
pub(crate) struct RecvSession {
    pub(crate) no: SessionNo,
    /// The receiver's machine.
    pub(crate) machine: Watched,
    chunk: ChunkSize,
    lanes: Vec<Lane>,
    pipe: Pipe,
    book: Book,
    phase: Phase,
    /// Whether it ended well, so that no other session needs its journal.
    is_finished: bool,
    jobs: BTreeMap<JobNo, Job>,
    next_job: u64,
    journal_queue: VecDeque<JobNo>,
    survey_queue: VecDeque<JobNo>,
    temps: BTreeMap<FileId, Temp>,
    dirs: Directories,
    arrivals: Arrivals,
    /// Durable bytes of each file, by the syncs that really succeeded.
    durable: BTreeMap<FileId, u64>,
    roots: Roots,
    wakes: Wakes,
    planted: Planted,
}

/// The content that came and is not written.
#[derive(Debug)]
struct Arrivals {
    /// Until its verdict.
    payloads: BTreeMap<Ticket, Payload>,
    /// The writes that wait for their turn. `None` where chunks are written as they come.
    sequence: Option<Sequence>,
}

/// The coming events by which a session wakes itself.
#[derive(Debug, Default)]
struct Wakes {
    /// The time of the next timeout of the machine that is an event.
    timeout: Option<u64>,
    /// Whether the machine's orders are carried out at an event that is coming.
    act_is_due: bool,
    /// Events since they were.
    events: usize,
}

/// State of planted bugs alone.
#[derive(Debug, Default)]
struct Planted {
    /// Syncs that wait until their chunks are journalled.
    late_syncs: Vec<Op>,
    /// Files that are committed.
    afterlife: BTreeMap<FileId, (Ino, ChunkMap)>,
    /// Payload that was dropped.
    dropped: Vec<(FileId, ChunkIndex, Vec<u8>)>,
}

impl RecvSession {
    /// A session that begins with its journal; the machine's offer follows when the journal is
    /// open.
    pub(crate) fn start(env: &mut Env, no: SessionNo) -> RecvSession {
        let (book, job) = Book::open(env, no);
        let mut machine = Watched::new(&env.plan, no.0);
        let lanes = (0..env.plan.lanes).map(LaneId).filter(|id| machine.handle_lane_joined(*id));
        let lanes = lanes.map(|id| Lane::new(id, 0, &env.plan)).collect();
        let in_sequence = matches!(env.plan.terms.order, WantOrder::Sequence { .. });
        let sequence = in_sequence.then(Sequence::default);
        let mut session = RecvSession {
            no,
            machine,
            chunk: env.plan.chunk_of(no.0),
            lanes,
            pipe: Pipe::new(&env.plan),
            book,
            phase: Phase::Opening,
            is_finished: false,
            jobs: BTreeMap::new(),
            next_job: 0,
            journal_queue: VecDeque::new(),
            survey_queue: VecDeque::new(),
            temps: BTreeMap::new(),
            dirs: Directories::default(),
            arrivals: Arrivals { payloads: BTreeMap::new(), sequence },
            durable: BTreeMap::new(),
            roots: Roots::default(),
            wakes: Wakes::default(),
            planted: Planted::default(),
        };
        session.start_job(env, job);
        session
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether operations of it are under way.
    pub(crate) fn is_at_disk(&self) -> bool {
        self.jobs.values().any(Job::is_running)
    }

    pub(crate) fn hears(&mut self, env: &mut Env, message: Message) {
        if self.phase != Phase::Running {
            return;
        }
        let message = match message {
            Message::FileEnd(end) => {
                self.roots.declared.insert(end.file, end.root);
                Message::FileEnd(self.declared(env, end))
            }
            Message::Unasked(unasked) => return self.comes_unasked(env, unasked.bundle),
            message => message,
        };
        self.machine.handle_message(env.clock.now(), message);
        self.act(env);
    }

    /// The end of a file as it is told to the machine. A mutant that does not compare roots gets
    /// its own root.
    fn declared(&self, env: &Env, end: FileEnd) -> FileEnd {
        let temp = self.temps.get(&end.file).filter(|_| env.is(Mutant::CommitWithoutRoot));
        let versions = temp.map(|temp| env.source.versions(&book::text(&temp.entry.placed)));
        let stamp = temp.and_then(|temp| stamp_of(&temp.entry));
        let offered = versions.and_then(|versions| versions.into_iter().find(|v| Some(v.stamp) == stamp));
        offered.map_or(end.clone(), |version| FileEnd { root: *blake3::hash(&version.bytes).as_bytes(), ..end })
    }

    /// Ends the session: the connections are lost, or the user or a newcomer wants an end.
    pub(crate) fn stop(&mut self, env: &mut Env, code: FaultCode, why: &str) {
        env.say(|| format!("s{} receiver is stopped: {why}", self.no.0));
        let fault = Fault::new(code, Blame::Path, why);
        if self.phase == Phase::Opening {
            self.say(env, &Message::Refuse(fault));
            return self.close(env);
        }
        self.machine.abort(fault);
        self.machine.handle_timeout(env.clock.now());
        self.act(env);
    }

    pub(crate) fn landed(&mut self, env: &mut Env, lane: LaneId, frame: Frame) {
        let is_lost = env.broken.get(&(self.no, lane)).is_some_and(|at| env.clock.now().0 > *at);
        if self.phase != Phase::Running || is_lost {
            return;
        }
        let Some(lane) = self.lanes.iter_mut().find(|of| of.id == lane && of.is_open) else { return };
        let Some((landed, rows)) = lane.receive(&frame) else { return };
        let piece = &landed.piece;
        env.seen.same += u64::from(piece.same);
        let bytes = match piece.is_bare() {
            true => piece.hole.then(|| vec![0; piece.unit_len as usize]),
            false => Some(frame.payload),
        };
        self.arrivals.payloads.insert(landed.ticket, Payload { unit: piece.unit, bytes, hole: piece.hole, rows });
        self.machine.handle_landed(env.clock.now(), landed);
        self.act(env);
    }

    /// Number of units that came out of a lane.
    #[cfg(test)]
    pub(crate) fn brought_by(&self, id: LaneId) -> u64 {
        self.lanes.iter().find(|lane| lane.id == id).map_or(0, Lane::brought)
    }

    /// Whether a unit came out of a lane, and one before it did not.
    #[cfg(test)]
    pub(crate) fn has_gap(&self, id: LaneId) -> bool {
        self.lanes.iter().any(|lane| lane.id == id && !lane.landed().beyond.is_empty())
    }

    /// Closes this end of a lane, also if the lane is found broken: no more units come out of it.
    pub(crate) fn lane_ends(&mut self, env: &mut Env, id: LaneId) {
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.id == id && lane.is_open) else { return };
        lane.is_open = env.is(Mutant::LaneStaysOpen);
        let mut landed = lane.landed();
        landed.below += u64::from(env.is(Mutant::LaneOvercounts));
        if env.is(Mutant::GapForgotten) {
            landed = LandedUnits::from(lane.last_landed().map_or(0, |last| last + 1));
        }
        self.machine.handle_lane_ended(env.clock.now(), id, landed);
        env.lane_end_is_gone(self.no, id);
        if env.rng.permille(500) {
            let at = env.arrival();
            env.clock.at(at, Event::NearBreaks(self.no, id));
        }
        self.act(env);
    }

    pub(crate) fn gives_up(&mut self, env: &mut Env, id: LaneId) {
        self.machine.lose_lane(id);
        self.act(env);
    }

    /// A lane joins, unless the sender gave it up before.
    pub(crate) fn lane_joins(&mut self, env: &mut Env, id: LaneId) {
        if self.machine.handle_lane_joined(id) {
            self.lanes.push(Lane::new(id, 0, &env.plan));
        } else {
            env.lane_end_is_gone(self.no, id);
        }
    }

    pub(crate) fn time_passed(&mut self, env: &mut Env) {
        self.wakes.timeout = None;
        if self.phase == Phase::Running {
            self.machine.handle_timeout(env.clock.now());
            self.act(env);
        }
    }

    /// Carries out the orders of the machine, now or a moment later.
    fn act(&mut self, env: &mut Env) {
        self.wakes.events += 1;
        if self.wakes.act_is_due {
            return;
        }
        match env.hesitates() {
            Hesitation::No => self.carry_out(env),
            Hesitation::Over => self.act_late(env),
            Hesitation::Yes => self.act_soon(env),
        }
    }

    /// Tells the machine the time and carries out its orders, as the loop of the engine does behind
    /// the events that are there.
    pub(crate) fn act_late(&mut self, env: &mut Env) {
        self.wakes.act_is_due = false;
        if self.phase == Phase::Running {
            let now = env.clock.now();
            self.machine.handle_timeout(now);
            let (is_cramped, is_backlogged) = (env.is_pressed(), env.is_pressed());
            self.machine.handle_cramped(now, is_cramped);
            self.machine.handle_backlog(now, is_backlogged);
            self.carry_out(env);
            if is_cramped || is_backlogged {
                self.machine.seen.rounds.pressed += 1;
                self.act_soon(env);
            }
        }
    }

    fn act_soon(&mut self, env: &mut Env) {
        self.wakes.act_is_due = true;
        let us = env.hesitation();
        env.clock.after(us, Event::ReceiverActs(self.no));
    }

    fn carry_out(&mut self, env: &mut Env) {
        let events = std::mem::take(&mut self.wakes.events);
        let rounds = &mut self.machine.seen.rounds;
        rounds.events_at_once = events.max(rounds.events_at_once);
        while self.phase == Phase::Running
            && let Some(action) = self.machine.poll_action()
        {
            self.order(env, action);
        }
        if self.machine.seen.end.is_some() {
            self.machine.check_over();
        }
        if self.machine.is_draining() {
            // What waits would wait for what never comes.
            let left = self.arrivals.sequence.as_mut().map(Sequence::give_up).unwrap_or_default();
            left.into_iter().for_each(|job| self.start_job(env, job));
        }
        self.rearm(env);
        if env.plan.scene.is_one_session {
            self.machine.audit();
        }
        let (said, durable) = (self.machine.tally().durable, self.durable.values().sum::<u64>());
        if said > durable {
            env.violate(|| format!("{said} bytes are called durable, {durable} are"));
        }
    }

    fn rearm(&mut self, env: &mut Env) {
        let Some(at) = self.machine.poll_timeout().filter(|_| self.phase == Phase::Running) else { return };
        if self.wakes.timeout.is_none_or(|set| at.0 < set) {
            self.wakes.timeout = Some(at.0);
            env.clock.at(at.0, Event::ReceiverTimeout(self.no));
        }
    }

    fn say(&mut self, env: &mut Env, message: &Message) {
        env.say(|| format!("s{} < {}", self.no.0, told(message)));
        let at = env.arrival();
        let at = self.pipe.arrival(message, at);
        env.clock.at(at, Event::ToSender(self.no, Box::new(crate::link::carried(message))));
    }

    fn start_job(&mut self, env: &mut Env, job: Job) {
        let no = JobNo(self.next_job);
        self.next_job += 1;
        let queue = job.queue;
        self.jobs.insert(no, job);
        let queue = match queue {
            Queue::None => return self.advance(env, no),
            Queue::Journal => &mut self.journal_queue,
            Queue::Survey => &mut self.survey_queue,
        };
        queue.push_back(no);
        if queue.len() == 1 {
            self.advance(env, no);
        }
    }

    /// Begins the next operation of a job. Steps of the journal get their place when they are
    /// reached.
    fn advance(&mut self, env: &mut Env, no: JobNo) {
        let Some(job) = self.jobs.get_mut(&no) else { return };
        while let Some(step) = job.next() {
            match step.work.clone() {
                Work::Disk(op) => {
                    if let Op::MakeFile(name, _) | Op::MakeLink(name, _) | Op::Name { name, .. } = &op
                        && names::temp(name).is_some()
                    {
                        env.check_named(name);
                    }
                    let id = env.begin(self.no, no, op);
                    return job.begun(id, step);
                }
                Work::Journal(journal) => match self.book.resolve(env, self.no, journal) {
                    Ok(steps) => job.prepend(steps, step.item),
                    Err(error) => job.fail(step.item, fault_of(Errno::Io, &error.to_string())),
                },
            }
        }
        let us = env.look_us();
        env.clock.after(us, Event::JobDone(self.no, no));
    }

    /// An operation of a job ended.
    pub(crate) fn op_ended(&mut self, env: &mut Env, no: JobNo, result: Result<(), Errno>) {
        let Some(job) = self.jobs.get_mut(&no) else { return };
        match job.ended(result.map_err(|errno| fault_of(errno, "the disk refuses"))) {
            StepEnd::ChangeDone(journal) => self.book.change_done(journal),
            StepEnd::ChangeFailed(journal, op) => self.book.change_failed(env, journal, &op),
            StepEnd::Other => {}
        }
        self.advance(env, no);
    }

    /// A job has nothing left to do.
    pub(crate) fn job_done(&mut self, env: &mut Env, no: JobNo) {
        let Some(job) = self.jobs.remove(&no) else { return };
        for queue in [Queue::Journal, Queue::Survey] {
            let waiting = if queue == Queue::Journal { &mut self.journal_queue } else { &mut self.survey_queue };
            if waiting.front() == Some(&no) {
                waiting.pop_front();
                if let Some(next) = waiting.front().copied() {
                    self.advance(env, next);
                }
            }
        }
        self.report(env, job);
        self.act(env);
        if self.phase == Phase::Closing && self.jobs.is_empty() {
            self.leave(env);
        }
    }

    /// Begins nothing new. Operations under way come to their end, and after a good end all ordered
    /// ones.
    fn close(&mut self, env: &mut Env) {
        self.phase = Phase::Closing;
        if !self.is_finished {
            self.journal_queue.clear();
            self.survey_queue.clear();
            self.jobs.values_mut().for_each(Job::cancel);
            let idle: Vec<JobNo> = self.jobs.iter().filter(|(_, job)| !job.is_running()).map(|(no, _)| *no).collect();
            idle.iter().for_each(|no| drop(self.jobs.remove(no)));
        }
        if self.jobs.is_empty() {
            self.leave(env);
        }
    }
}

/// The fault that is reported to the machine for a failed operation.
fn fault_of(errno: Errno, why: &str) -> Fault {
    let code = match errno {
        Errno::Io => FaultCode::Io,
        Errno::NoSpace => FaultCode::NoSpace,
        Errno::Exists => FaultCode::Exists,
        Errno::Missing => FaultCode::NotFound,
        Errno::NotEmpty => FaultCode::InTheWay,
        Errno::Other(code) => code,
    };
    Fault::new(code, Blame::Local, why)
}

/// The version of the source that an entry speaks of.
fn stamp_of(held: &EntryRef) -> Option<SourceStamp> {
    let EntryKind::File { len, inode, .. } = held.entry.kind else { return None };
    Some(SourceStamp { len, mtime: held.entry.meta.mtime, ctime: inode.ctime, dev: inode.dev, ino: inode.ino })
}
