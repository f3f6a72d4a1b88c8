//! The environment that every part of a world shares: the clock, chance, the receiver's file
//! system, the source, and the checks' ledger.
//!
//! Begins operations of the file system and decides how each ends; gives messages their way. Knows
//! the present faults, and nothing of the sessions' work.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::{Blame, Fault, FaultCode, FileId, LaneId, Mtime};
use longhaul_proto::receiver::Room;

use crate::clock::Clock;
use crate::events::{Event, JobNo, SessionNo};
use crate::fs::{Errno, Fs, Ino, Node, Op, OpId};
use crate::ledger::Ledger;
use crate::left;
use crate::mutants::Mutant;
use crate::names;
use crate::plan::{CHUNK, Plan};
use crate::rng::Rng;
use crate::scene::Standing;
use crate::source::SourceTree;
use crate::tallies::Tallies;
use crate::trace::Trace;

/// When the orders of a machine are carried out that took an event in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hesitation {
    /// At once, and the machine is told of nothing else.
    No,
    /// At once, as the events are over that were there.
    Over,
    /// A moment later, behind the events that come until then.
    Yes,
}

/// Operations that fail at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Operations that need space.
    Space,
    /// Operations that make durable.
    Syncs,
    /// All operations.
    All,
}

/// The operation that fails, counted from the start, and whether every later one fails as well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nth {
    pub(crate) at: u64,
    pub(crate) persistent: bool,
}

/// The shared environment. See the module.
pub(crate) struct Env {
    pub(crate) clock: Clock<Event>,
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) trace: Trace,
    pub(crate) ledger: Ledger,
    pub(crate) seen: Tallies,
    pub(crate) source: SourceTree,
    pub(crate) fs: Fs,
    /// The session and the job of each operation, and the number of the operation.
    owners: BTreeMap<OpId, (SessionNo, JobNo, u64)>,
    /// Whether nothing goes wrong by itself any more.
    pub(crate) calm: bool,
    /// The operations that the disk refuses, and until when. `None` if it refuses none.
    pub(crate) refused: Option<(Refused, u64)>,
    pub(crate) nth: Option<Nth>,
    /// Operations begun so far.
    pub(crate) ops: u64,
    /// Nothing passes the link before this time.
    pub(crate) partition_until: u64,
    /// Sessions whose connections are lost.
    pub(crate) cut: BTreeSet<SessionNo>,
    /// Lanes that broke, and when: units that would have arrived later are lost.
    pub(crate) broken: BTreeMap<(SessionNo, LaneId), u64>,
    /// Lanes of which one end is closed.
    half_gone: BTreeSet<(SessionNo, LaneId)>,
    next_lane: u32,
}

impl Env {
    pub(crate) fn new(plan: Plan, seed: u64, mutant: Option<Mutant>, trace: bool) -> Env {
        let mut fs = Fs::default();
        if !plan.standing_files.is_empty() {
            fs.put_node("t", Node::Dir);
        }
        for (path, bytes) in &plan.standing_files {
            fs.put(path, bytes, OLD);
        }
        let source = SourceTree::new(&plan);
        stand(&mut fs, &source, &plan);
        let mut rng = Rng::new(seed ^ 0x00c0_ffee);
        left::put(&mut fs, &source, &plan, &mut rng);
        Env {
            clock: Clock::new(),
            rng,
            mutant,
            trace: Trace::new(trace),
            ledger: Ledger::new(&plan),
            seen: Tallies { tree: plan.chunks() * CHUNK as u64, ..Tallies::default() },
            source,
            fs,
            owners: BTreeMap::new(),
            calm: false,
            refused: None,
            nth: None,
            ops: 0,
            partition_until: 0,
            cut: BTreeSet::new(),
            broken: BTreeMap::new(),
            half_gone: BTreeSet::new(),
            next_lane: plan.lanes,
            plan,
        }
    }

    pub(crate) fn say(&mut self, line: impl FnOnce() -> String) {
        self.trace.say(self.clock.now(), line);
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether a fault with this frequency in a thousand happens now.
    pub(crate) fn mishap(&mut self, permille: u32) -> bool {
        !self.calm && permille > 0 && self.rng.permille(permille)
    }

    /// When the orders of a machine are carried out that took an event in.
    pub(crate) fn hesitates(&mut self) -> Hesitation {
        match self.plan.scene.hesitates {
            0 => Hesitation::No,
            often if self.rng.permille(often) => Hesitation::Yes,
            _ => Hesitation::Over,
        }
    }

    /// The time until a side acts that hesitates, in microseconds.
    pub(crate) fn hesitation(&mut self) -> u64 {
        self.rng.below(self.plan.disk_us)
    }

    /// Whether a side that acts has too little memory, or too much that waits, until it acts again.
    pub(crate) fn is_pressed(&mut self) -> bool {
        self.rng.permille(50)
    }

    /// The time when a message arrives that leaves now.
    pub(crate) fn arrival(&mut self) -> u64 {
        let delay = self.plan.delay_us;
        let at = self.clock.now().0 + delay / 4 + self.rng.below(delay);
        if at < self.partition_until { self.partition_until + delay / 4 + self.rng.below(delay) } else { at }
    }

    /// Breaks a lane now or a moment later: units that have not arrived by then never will.
    pub(crate) fn break_lane(&mut self, session: SessionNo, lane: LaneId) {
        let at = self.clock.now().0 + self.rng.below(2 * self.plan.delay_us);
        self.broken.entry((session, lane)).or_insert(at);
        // The receiver finds that by itself, or only when it is told.
        if self.rng.permille(500) {
            self.clock.at(at + self.rng.below(1_000_000), Event::FarEnds(session, lane));
        }
    }

    /// Notes that one more end of a lane is closed. When both are, another lane takes its place.
    pub(crate) fn lane_end_is_gone(&mut self, session: SessionNo, lane: LaneId) {
        if self.half_gone.insert((session, lane)) {
            return;
        }
        let new = LaneId(self.next_lane);
        self.next_lane += 1;
        self.seen.lanes_lost += 1;
        self.say(|| format!("s{} {lane:?} is gone, {new:?} takes its place", session.0));
        let (here, there) = (self.arrival(), self.arrival());
        self.clock.at(here, Event::NearJoins(session, new, there));
        self.clock.at(there, Event::FarJoins(session, new));
    }

    /// Begins an operation for a job.
    pub(crate) fn begin(&mut self, session: SessionNo, job: JobNo, op: Op) -> OpId {
        self.ops += 1;
        let most = self.plan.disk_us;
        let mut us = most / 10 + self.rng.below(most);
        if self.mishap(self.plan.rates.disk_stalls) {
            us += self.rng.below(8_000_000);
        }
        let id = self.fs.begin(op);
        self.owners.insert(id, (session, job, self.ops));
        self.clock.after(us, Event::Disk(id));
        id
    }

    /// Ends an operation, well or not. Gives its session and job; `None` if it ended with its host.
    pub(crate) fn end(&mut self, id: OpId) -> Option<(SessionNo, JobNo, Result<(), Errno>)> {
        let (session, job, number) = self.owners.remove(&id)?;
        let op = self.fs.op(id)?.clone();
        let result = match self.fate(&op, job, number) {
            None if self.spoils(&op) => self.fs.end_spoilt(id),
            None => self.fs.end(id),
            Some(errno) => self.fs.fail(&mut self.rng, id, errno),
        };
        self.say(|| format!("s{} disk {} {:?}", session.0, brief(&op), result));
        self.take_room(&op);
        self.check_op(&op);
        Some((session, job, result))
    }

    fn fate(&mut self, op: &Op, job: JobNo, number: u64) -> Option<Errno> {
        let grows =
            matches!(op, Op::MakeDir(_) | Op::MakeFile(..) | Op::MakeLink(..) | Op::Name { .. } | Op::Write { .. });
        let syncs = matches!(op, Op::SyncFile(_) | Op::SyncDir(_));
        if let Some(nth) = self.nth
            && (number == nth.at || nth.persistent && number > nth.at)
        {
            let errno = if grows { Errno::NoSpace } else { Errno::Io };
            return Some(self.plan.scene.fault.map_or(errno, Errno::Other));
        }
        if let Some((refused, _)) = self.refused.filter(|(_, until)| self.clock.now().0 < *until) {
            match refused {
                Refused::Space if grows => return Some(Errno::NoSpace),
                Refused::Syncs if syncs => return Some(Errno::Io),
                Refused::All => return Some(Errno::Io),
                _ => {}
            }
        }
        if matches!(op, Op::Unlink(_)) && self.mishap(self.plan.rates.names.removals) {
            return Some(Errno::Io);
        }
        let rate = self.plan.rates.disk_faults;
        if let Some(code) = self.plan.scene.fault {
            let spared = job == JobNo::OPENING || self.is_of_journal(op);
            return (self.mishap(rate) && !spared).then_some(Errno::Other(code));
        }
        let errno = if grows && self.rng.permille(200) { Errno::NoSpace } else { Errno::Io };
        self.mishap(rate).then_some(errno)
    }

    /// Whether an operation is one on a journal or on the shelf.
    fn is_of_journal(&self, op: &Op) -> bool {
        let of = |path: &str| path == names::SHELF || names::is_journal(path);
        match op {
            Op::Write { ino, .. } | Op::SetLen(ino, _) | Op::SetTime(ino, _) | Op::SyncFile(ino) => {
                self.fs.cached().names.iter().any(|(path, node)| *node == Node::File(*ino) && names::is_journal(path))
            }
            Op::MakeDir(path) | Op::MakeFile(path, _) | Op::MakeLink(path, _) => of(path),
            Op::SyncDir(path) | Op::Unlink(path) | Op::RemoveDir(path) => of(path),
            Op::Rename { .. } | Op::Name { .. } => false,
        }
    }

    /// Whether the medium will keep other bytes of a write than these.
    fn spoils(&mut self, op: &Op) -> bool {
        let Op::Write { bytes, .. } = op else { return false };
        let always = self.plan.scene.always_spoilt.iter().any(|content| bytes.starts_with(content));
        let spoils = always || self.mishap(self.plan.rates.spoils);
        spoils && self.plan.terms.read_back && !self.is_of_journal(op)
    }

    /// The result of a look at a file of the receiver's disk.
    pub(crate) fn look(&mut self) -> Result<(), Fault> {
        match self.mishap(self.plan.rates.read_faults) {
            false => Ok(()),
            true => {
                let code = self.plan.scene.fault.unwrap_or(FaultCode::Io);
                Err(Fault::new(code, Blame::Local, "the disk cannot be read"))
            }
        }
    }

    /// The result of a look at what stands under one name of a page.
    pub(crate) fn examine(&mut self) -> Result<(), Fault> {
        if !self.mishap(self.plan.rates.names.unseen) {
            return Ok(());
        }
        let code = *self.rng.pick(&[FaultCode::Io, FaultCode::Denied, FaultCode::Busy]);
        Err(Fault::new(code, Blame::Local, "the name cannot be looked at"))
    }

    /// The result of the tidying of the destination.
    pub(crate) fn tidied(&self) -> Result<(), Fault> {
        match self.plan.scene.is_untidy {
            false => Ok(()),
            true => Err(Fault::new(FaultCode::Io, Blame::Local, "the destination cannot be tidied")),
        }
    }

    /// The time of a look at files, in microseconds.
    pub(crate) fn look_us(&mut self) -> u64 {
        match self.plan.scene.look_us {
            0 => 0,
            most => self.rng.below(most),
        }
    }

    /// The free room at the destination, if the plan limits it.
    pub(crate) fn room(&mut self) -> Option<Room> {
        let room = self.plan.scene.room?;
        Some(Room { device: 1, bytes: room.saturating_sub(self.ledger.written), inodes: None })
    }

    /// Counts the content of a write against the room.
    fn take_room(&mut self, op: &Op) {
        let (Some(room), Op::Write { bytes, .. }) = (self.plan.scene.room, op) else { return };
        if bytes.iter().any(|byte| *byte != 0) && !self.is_of_journal(op) {
            self.ledger.written += bytes.len() as u64;
        }
        if self.ledger.written > room {
            self.violate(|| "more is written than there is room for".to_owned());
        }
    }

    /// A session looks at a standing file for an entry, and somebody may write to it. Fails if it
    /// is not as the entry saw it first.
    pub(crate) fn look_at_standing(&mut self, entry: FileId, ino: Ino, path: &str) -> Result<(), Fault> {
        self.look()?;
        if self.mishap(self.plan.rates.restless) {
            self.fs.scribble(ino);
            let bytes = self.fs.cached().content(ino).bytes.clone();
            self.ledger.stands(path, Standing::Older(bytes));
        }
        if self.plan.rates.restless > 0 {
            let bytes = self.fs.cached().content(ino).bytes.clone();
            self.ledger.first_looks.entry(entry).or_insert((ino, bytes));
        }
        self.untouched(entry)
    }

    /// Whether the standing file is as the entry saw it first.
    pub(crate) fn untouched(&self, entry: FileId) -> Result<(), Fault> {
        match self.ledger.first_looks.get(&entry) {
            Some((ino, bytes)) if self.fs.cached().content(*ino).bytes != *bytes => {
                Err(Fault::new(FaultCode::Busy, Blame::Local, "somebody writes to what stands"))
            }
            _ => Ok(()),
        }
    }
}

/// Lets the nodes of the scene stand.
fn stand(fs: &mut Fs, source: &SourceTree, plan: &Plan) {
    for (path, standing) in &plan.scene.standing {
        let current = || source.versions(path).last().map_or(OLD, |version| version.stamp.mtime);
        let (node, file) = match standing {
            Standing::Dir => (Some(Node::Dir), None),
            Standing::Link(target) => (Some(Node::Link(target.clone())), None),
            Standing::Special => (Some(Node::Special), None),
            Standing::Current(bytes) => (None, Some((bytes, current()))),
            Standing::Older(bytes) => (None, Some((bytes, OLD))),
        };
        if !fs.put_dirs_above(path) {
            continue;
        }
        match (node, file) {
            (Some(node), _) => drop(fs.put_node(path, node)),
            (None, Some((bytes, time))) => fs.put(path, bytes, time),
            (None, None) => {}
        }
    }
}

/// The time of files that stand at the destination before.
const OLD: Mtime = Mtime { secs: 1_500_000_000, nanos: 0 };

/// An operation in one line.
pub(crate) fn brief(op: &Op) -> String {
    match op {
        Op::Write { ino, offset, bytes } => format!("Write {ino:?} {offset}+{}", bytes.len()),
        op => format!("{op:?}"),
    }
}
