//! A world of a set: the loop of its events, its crashes, and its end.
//!
//! In: a plan. Out: the first broken promise, if there is one. It lets a host and its processes
//! act, and knows none of their rules.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::check::SetLedger;
use super::disk::{CacheLeft, DiskView, SetDir, SetDisk, SetName};
use super::host::{Host, HostEvent};
use super::mutants::SetMutant;
use super::plan::{CrashKind, Mounted, SetPlan};
use super::process::SetProcess;
use super::striped::SET_CHUNK;
use super::target::VirtualTarget;
use super::texts::{FileNo, PathNo};
use crate::trace::Trace;

/// A world of a set.
#[derive(Debug)]
pub(crate) struct SetWorld {
    pub(crate) host: Host,
    plan: Rc<SetPlan>,
    process: Option<SetProcess>,
    /// The next crash of the plan.
    next: usize,
    image: Option<SetDisk>,
    swapped: Option<(usize, usize)>,
}

impl SetWorld {
    pub(crate) fn new(plan: SetPlan, seed: u64, mutant: Option<SetMutant>, trace: Trace) -> SetWorld {
        let targets = plan.targets.iter().enumerate();
        let targets: Vec<_> =
            targets.map(|(at, (pace, faults))| VirtualTarget::new(at, *pace, faults.clone())).collect();
        let share = plan.buffers as u64 * SET_CHUNK / (targets.len() as u64 + 1);
        let ledger = SetLedger::new(&plan, share);
        let mut host = Host::new(targets, ledger, seed, trace);
        host.mutant = mutant;
        SetWorld { host, plan: Rc::new(plan), process: None, next: 0, image: None, swapped: None }
    }

    /// Plays it to its end, or to the first broken promise.
    pub(crate) fn run(&mut self) {
        self.host.say(|| format!("{:?}", self.plan));
        for crash in &self.plan.crashes {
            self.host.at(crash.at_us, HostEvent::Crash);
        }
        if let Some((_, at)) = self.plan.image {
            self.host.at(at, HostEvent::Image);
        }
        self.process = SetProcess::open(&mut self.host, &self.plan);
        while let Some(event) = self.host.next() {
            self.host.seen.events += 1;
            if self.host.seen.events > EVENTS_MAX || self.host.now > TIME_MAX_US {
                let process = &self.process;
                self.host.ledger.broken(|| format!("it does not end: {process:?}"));
            }
            if self.host.ledger.violation.is_some() {
                return;
            }
            self.handle(event);
            self.repair();
        }
        self.end();
    }

    fn handle(&mut self, event: HostEvent) {
        let number = self.host.process;
        match event {
            HostEvent::Order(order) => {
                let Some((ordered, result)) = self.host.end(order) else { return };
                if ordered.process != number {
                    self.host.seen.after_death += 1;
                } else if let Some(process) = &mut self.process {
                    process.handle(&mut self.host, ordered, result);
                }
            }
            HostEvent::Tick(of) if of == number => {
                if let Some(process) = &mut self.process {
                    process.tick(&mut self.host);
                }
            }
            HostEvent::Arrival(of) if of == number => {
                if let Some(process) = &mut self.process {
                    process.arrive(&mut self.host);
                }
            }
            HostEvent::Death(of) if of == number => self.crash(CrashKind::Death),
            HostEvent::Tick(_) | HostEvent::Arrival(_) | HostEvent::Death(_) => {}
            HostEvent::Crash => {
                let planned = self.plan.crashes.get(self.next).map(|crash| crash.kind);
                self.next += 1;
                self.crash(planned.unwrap_or(CrashKind::PowerCut(Mounted::Well)));
            }
            HostEvent::Image if self.swapped.is_some() => {}
            HostEvent::Image => {
                self.image = self.plan.image.map(|(target, _)| self.host.targets[target].disk.image());
            }
        }
    }

    /// Has the power cut once more, if something would last without end.
    fn repair(&mut self) {
        let lasts = self.process.is_none() || self.host.targets.iter().any(|target| target.faults.has_endless());
        if lasts && self.next == self.plan.crashes.len() {
            self.next += 1;
            let at = self.host.now + REPAIRED_US;
            self.host.at(at, HostEvent::Crash);
        }
    }

    fn crash(&mut self, kind: CrashKind) {
        self.host.say(|| format!("{kind:?}"));
        self.host.seen.crashes += 1;
        self.process = None;
        self.host.process += 1;
        match kind {
            CrashKind::Death => {
                self.host.orphan_orders();
                self.host.check(DiskView::Cached);
            }
            CrashKind::PowerCut(mounted) => {
                self.cut_power();
                self.host.check(DiskView::Medium);
                self.mount(mounted);
            }
        }
        if self.host.ledger.violation.is_none() {
            self.process = SetProcess::open(&mut self.host, &self.plan);
        }
    }

    fn cut_power(&mut self) {
        let host = &mut self.host;
        host.lose_orders();
        for at in 0..host.targets.len() {
            let some = host.rng.below(1000) as u32;
            let left =
                CacheLeft { permille: *host.rng.pick(&[0, 1000, 500, some]), names_in_order: host.rng.permille(500) };
            host.targets[at].disk.lose_cache(&mut host.rng, left);
            host.targets[at].is_away = false;
            host.targets[at].begin_anew(host.now);
        }
        if let Some((one, other)) = self.swapped.take() {
            self.exchange(one, other);
        }
        self.host.is_swapped = false;
    }

    fn mount(&mut self, mounted: Mounted) {
        match mounted {
            Mounted::Well => {}
            Mounted::Away(target) => {
                self.host.targets[target].is_away = true;
                self.host.check(DiskView::Medium);
            }
            Mounted::Swapped(one, other) => {
                self.exchange(one, other);
                self.swapped = Some((one, other));
                self.host.is_swapped = true;
            }
            Mounted::Old => {
                let kept = self.plan.image.map(|(target, _)| target).zip(self.image.take());
                let Some((target, image)) = kept else { return };
                self.host.targets[target].disk = image;
                self.host.ledger.came_back_old(target);
                self.host.seen.old += 1;
                self.host.check(DiskView::Medium);
            }
        }
    }

    fn exchange(&mut self, one: usize, other: usize) {
        let (low, high) = (one.min(other), one.max(other));
        let (before, after) = self.host.targets.split_at_mut(high);
        std::mem::swap(&mut before[low].disk, &mut after[0].disk);
        std::mem::swap(&mut before[low].mark, &mut after[0].mark);
    }

    /// Checks that everything is committed, survives a power cut, and can be made again if its
    /// stripe file is lost.
    fn end(&mut self) {
        let host = &mut self.host;
        let paths: BTreeSet<PathNo> = host.ledger.versions.iter().map(|version| version.path).collect();
        for path in &paths {
            let last = host.ledger.versions.iter().rposition(|version| version.path == *path);
            let committed = host.ledger.committed.get(path).map(|file| host.ledger.files[file].version.0 as usize);
            if committed != last {
                host.ledger.broken(|| format!("it ended, and version {last:?} of path {} is not committed", path.0));
            }
        }
        self.cut_power();
        let host = &mut self.host;
        host.seen.time_us += host.now;
        // All faults are past.
        host.now = host.now.max(TIME_MAX_US);
        host.check(DiskView::Medium);
        if !self.plan.loses_stripe || host.ledger.violation.is_some() {
            return;
        }
        let committed: Vec<(PathNo, FileNo)> =
            host.ledger.committed.iter().map(|(path, file)| (*path, *file)).collect();
        let whole: Vec<_> = committed.into_iter().filter(|(_, file)| host.ledger.is_whole(*file)).collect();
        if whole.is_empty() {
            return;
        }
        let (path, file) = *host.rng.pick(&whole);
        let home = host.ledger.files[&file].home;
        host.remove(home, SetName::Final(path));
        let moment = host.next_moment();
        host.targets[home].disk.sync_dir(moment, SetDir::Tree);
        host.seen.stripes_lost += 1;
        let others: Vec<_> = host.names(DiskView::Cached, SetDir::Tree);
        let nodes = |host: &Host| -> Vec<_> {
            others.iter().map(|(target, name)| host.targets[*target].disk.find(DiskView::Cached, *name)).collect()
        };
        let before = nodes(host);
        host.rebuild();
        if nodes(host) != before {
            host.ledger.broken(|| "a rebuild has replaced a name".to_owned());
        }
        if host.check_rebuilt(path, file) {
            host.seen.rebuilt += 1;
        }
    }
}

/// A world of so many events does not end.
const EVENTS_MAX: u64 = 100_000;
/// No fault of a plan lasts as long.
const TIME_MAX_US: u64 = 3_600_000_000;
/// Faults that would last without end do so for this time after the last crash of the plan.
const REPAIRED_US: u64 = 30_000_000;
