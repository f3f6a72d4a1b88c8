//! The host of a set: its targets, the time, and the orders that have not come back.
//!
//! In: orders of a process. Out: their ends, in the order of time. It outlives processes: what a
//! dead one ordered may still land. Knows no striped file.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use longhaul_core::load::WriteId;
use longhaul_proto::Timestamp;

use super::check::SetLedger;
use super::disk::{DiskView, NodeId, SetDir, SetName};
use super::mutants::SetMutant;
use super::play::SetTallies;
use super::target::{FOREVER, Order, OrderError, VirtualTarget};
use super::texts::{Block, FileNo, TextNo, Texts};
use crate::rng::Rng;
use crate::trace::Trace;

/// The host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) now: u64,
    pub(crate) targets: Vec<VirtualTarget>,
    pub(crate) texts: Texts,
    pub(crate) ledger: SetLedger,
    pub(crate) rng: Rng,
    pub(crate) trace: Trace,
    pub(crate) seen: SetTallies,
    pub(crate) mutant: Option<SetMutant>,
    /// The number of the process that runs.
    pub(crate) process: u32,
    /// Whether two targets are exchanged.
    pub(crate) is_swapped: bool,
    orders: BTreeMap<u64, Ordered>,
    events: BinaryHeap<Reverse<(u64, u64, HostEvent)>>,
    /// Counts what happens. A sync covers what happened before it was ordered.
    moment: u64,
}

/// Something that happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostEvent {
    /// An order comes back.
    Order(u64),
    /// A process looks at what is overdue.
    Tick(u32),
    /// A chunk comes.
    Arrival(u32),
    /// The next crash of the plan.
    Crash,
    /// A process ends, as a target failed.
    Death(u32),
    /// The moment of which an image of a target is kept.
    Image,
}

/// An order that has not come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordered {
    pub(crate) process: u32,
    pub(crate) target: usize,
    pub(crate) began: u64,
    pub(crate) order: Order,
    pub(crate) purpose: Purpose,
}

/// The purpose of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Chunk {
        file: FileNo,
        write: WriteId,
        index: u64,
        slot: u64,
    },
    BodySync {
        file: FileNo,
        pass: u32,
    },
    Append(FileNo),
    LogSync(FileNo),
    Records(FileNo),
    Footer(FileNo),
    FooterSync(FileNo),
    Header(FileNo),
    HeaderSync(FileNo),
    Publish(FileNo),
    NameSync(FileNo),
    /// A stripe file is removed. Its bodies go when that is done.
    Discard(FileNo),
    /// Nobody waits for it.
    Tidy,
}

impl Host {
    pub(crate) fn new(targets: Vec<VirtualTarget>, ledger: SetLedger, seed: u64, trace: Trace) -> Host {
        Host {
            now: 0,
            targets,
            texts: Texts::default(),
            ledger,
            rng: Rng::new(seed ^ 0x7365_7473),
            trace,
            seen: SetTallies::default(),
            mutant: None,
            process: 0,
            is_swapped: false,
            orders: BTreeMap::new(),
            events: BinaryHeap::new(),
            moment: 0,
        }
    }

    pub(crate) fn has(&self, mutant: SetMutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(crate) fn say(&mut self, line: impl FnOnce() -> String) {
        self.trace.say(Timestamp(self.now), line);
    }

    pub(crate) fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub(crate) fn at(&mut self, time: u64, event: HostEvent) {
        self.moment += 1;
        self.events.push(Reverse((time, self.moment, event)));
    }

    /// The next event, with the time set to it. `None`: nothing will happen any more.
    pub(crate) fn next(&mut self) -> Option<HostEvent> {
        let Reverse((time, _, event)) = self.events.pop()?;
        self.now = self.now.max(time);
        Some(event)
    }

    /// Gives an order to a target.
    pub(crate) fn order(&mut self, target: usize, order: Order, purpose: Purpose) {
        if self.is_swapped {
            self.ledger.broken(|| format!("target {target} of a set with exchanged targets is written to"));
        }
        let began = self.next_moment();
        let end = self.targets[target].take(&mut self.rng, self.now, &order);
        self.orders.insert(began, Ordered { process: self.process, target, began, order, purpose });
        if end != FOREVER {
            self.events.push(Reverse((end, began, HostEvent::Order(began))));
        }
    }

    /// Carries out an order whose time has come.
    pub(crate) fn end(&mut self, order: u64) -> Option<(Ordered, Result<(), OrderError>)> {
        let ordered = self.orders.remove(&order)?;
        let times = (self.now, self.next_moment());
        let target = &mut self.targets[ordered.target];
        let result = target.end(&mut self.rng, times, ordered.began, &ordered.order);
        Some((ordered, result))
    }

    /// Makes a file, at once.
    pub(crate) fn create(&mut self, target: usize, name: SetName) -> Result<NodeId, OrderError> {
        self.targets[target].answers(self.now)?;
        if self.is_swapped {
            self.ledger.broken(|| format!("{name:?} is made on target {target} of a set with exchanged targets"));
        }
        let moment = self.next_moment();
        Ok(self.targets[target].disk.create(moment, name))
    }

    /// Removes a name, at once.
    pub(crate) fn remove(&mut self, target: usize, name: SetName) {
        let moment = self.next_moment();
        self.targets[target].disk.remove(moment, name);
    }

    /// Writes to the cache, at once.
    pub(crate) fn put(&mut self, target: usize, ino: usize, at: usize, blocks: [Block; 2]) {
        let moment = self.next_moment();
        self.targets[target].disk.write(moment, ino, at, &blocks);
    }

    /// Cuts a file off in the cache, at once.
    pub(crate) fn cut(&mut self, target: usize, ino: usize, len: usize) {
        let moment = self.next_moment();
        self.targets[target].disk.set_len(moment, ino, len);
    }

    /// Syncs a file, at once.
    pub(crate) fn sync(&mut self, target: usize, ino: usize) -> Result<(), OrderError> {
        let times = (self.now, self.next_moment());
        let order = Order::Sync { ino, names: Some(SetDir::Tree) };
        self.targets[target].end(&mut self.rng, times, times.1, &order)
    }

    pub(crate) fn put_text(&mut self, target: usize, ino: usize, at: usize, text: TextNo) {
        self.put(target, ino, at, text.blocks());
    }

    /// Whether a write to a file may still land: its writer holds the lock of it as long.
    pub(crate) fn is_in_use(&self, target: usize, ino: usize) -> bool {
        self.orders.values().any(|ordered| ordered.target == target && ordered.writes_to() == Some(ino))
    }

    /// Whether a write to a slot of a file may still land.
    pub(crate) fn may_land(&self, target: usize, ino: usize, block: usize) -> bool {
        let is_it = |ordered: &Ordered| matches!(ordered.order, Order::Write { ino: other, at, .. } if (other, at) == (ino, block));
        self.orders.values().any(|ordered| ordered.target == target && is_it(ordered))
    }

    /// Whether any order of this process has not come back from a target.
    pub(crate) fn waits_for(&self, target: usize) -> bool {
        self.orders.values().any(|ordered| ordered.target == target && ordered.process == self.process)
    }

    /// Takes the orders of the process that died: each is not done, done in part, or comes later.
    pub(crate) fn orphan_orders(&mut self) {
        for (id, ordered) in self.orders.clone() {
            let hangs = self.targets[ordered.target].hangs(self.now).is_some();
            let is_write = ordered.writes_to().is_some();
            match self.rng.below(4) {
                _ if is_write && hangs => {}
                0 if is_write => {}
                1 => drop(self.end(id)),
                2 => self.cut_off(id),
                _ => drop(self.orders.remove(&id)),
            }
        }
    }

    /// Takes all orders off, as the power was cut.
    pub(crate) fn lose_orders(&mut self) {
        for id in self.orders.keys().copied().collect::<Vec<_>>() {
            self.cut_off(id);
        }
    }

    fn cut_off(&mut self, id: u64) {
        let Some(ordered) = self.orders.remove(&id) else { return };
        let moment = self.next_moment();
        self.targets[ordered.target].cut_off(&mut self.rng, moment, &ordered.order);
    }

    /// The targets on which a name stands.
    pub(crate) fn stands(&self, view: DiskView, name: SetName) -> impl Iterator<Item = (usize, NodeId)> {
        let found = self.targets.iter().enumerate();
        found.filter_map(move |(at, target)| Some((at, target.disk.find(view, name)?)))
    }

    /// The names in the directories of all targets.
    pub(crate) fn names(&self, view: DiskView, dir: SetDir) -> Vec<(usize, SetName)> {
        let of = |(at, target): (usize, &VirtualTarget)| {
            target.disk.names(view, dir).map(|name| (at, name)).collect::<Vec<_>>()
        };
        self.targets.iter().enumerate().flat_map(of).collect()
    }
}

impl Ordered {
    /// The file that it writes to.
    fn writes_to(&self) -> Option<usize> {
        match self.order {
            Order::Write { ino, .. } | Order::EndBody { ino, .. } => Some(ino),
            Order::Sync { .. } | Order::SyncDir(_) | Order::Rename(..) | Order::Remove(_) => None,
        }
    }
}
