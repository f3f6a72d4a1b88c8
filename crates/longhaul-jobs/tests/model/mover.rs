//! A mover, step by step: it claims, shows its claim, publishes file after file, beats and reports.
//!
//! In: turns. Out: calls of the store and of the destination. Must not know what the world plans.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longhaul_core::{Blame, FaultCode, PlainText};
use longhaul_jobs::queue::{Ask, Beat, BeatAnswer, BreakPlace, FileFault, Finished, Granted, Outcome, Report};
use longhaul_jobs::queue::{beat, claim, finish, raise};
use longhaul_jobs::{AlikeWatch, Amount, Claim, Kept, MoverId, SessionId, ShardId, ShardState, Tenure};

use crate::destination::{Begun, Shown};
use crate::mutants::Mutant;
use crate::world::{FILE_BYTES, World, path_of};

/// A mover that has nothing, or a shard.
#[derive(Clone, Debug)]
pub(crate) struct Mover {
    pub(crate) id: MoverId,
    pub(crate) paused_until: u64,
    pub(crate) holding: Option<Holding>,
}

#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) shard: ShardId,
    pub(crate) claim: Claim,
    session: SessionId,
    pub(crate) daemon: usize,
    /// The versions of files that stood when it was welcome.
    standing: BTreeMap<u64, u64>,
    total: Amount,
    tenure: Tenure,
    stage: Stage,
    next: u64,
    done: Amount,
    moved: u64,
    given_up: BTreeSet<Vec<u8>>,
    faults: Vec<FileFault>,
    /// The watch as it began, and as it is.
    watch: AlikeWatch,
    alike: AlikeWatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Showing,
    Waiting,
    Open,
    Publishing,
}

impl Holding {
    fn of(granted: Granted, daemon: usize, asked: Duration) -> Holding {
        Holding {
            shard: granted.shard.id,
            claim: granted.shard.claim,
            session: SessionId::default(),
            daemon,
            standing: BTreeMap::new(),
            total: granted.shard.total,
            tenure: Tenure::new(asked),
            stage: Stage::Showing,
            next: 0,
            done: Amount::default(),
            moved: 0,
            alike: AlikeWatch::of(&granted.shard),
            watch: AlikeWatch::of(&granted.shard),
            given_up: granted.given_up.into_iter().map(|fault| fault.path).collect(),
            faults: Vec::new(),
        }
    }

    pub(crate) fn kept(&self) -> Kept {
        Kept { claim: self.claim, session: self.session }
    }

    fn count_done(&mut self) {
        self.done = Amount { files: self.done.files + 1, bytes: self.done.bytes + FILE_BYTES };
        self.next += 1;
    }
}

impl World {
    /// A mover's turn.
    pub(crate) fn step_mover(&mut self, at: usize) {
        if self.movers[at].paused_until > self.time {
            return;
        }
        let now = Duration::from_micros(self.time);
        let Some(mut holding) = self.movers[at].holding.take() else { return self.claim_shard(at, now) };
        if !holding.tenure.holds(now) {
            self.destination.leave(holding.daemon, holding.shard, holding.kept());
            return;
        }
        if now >= holding.tenure.next_beat() {
            let Holding { shard, claim, done, moved, .. } = holding;
            match self.store(Some(claim), |rows| beat(rows, &Beat { shard, claim, done, moved })) {
                Some(BeatAnswer::GoOn(_)) => holding.tenure = Tenure::new(now),
                Some(BeatAnswer::Stop(_)) => return self.report(&holding, Outcome::HandedBack),
                Some(BeatAnswer::Gone) => {
                    return self.destination.leave(holding.daemon, holding.shard, holding.kept());
                }
                None => {}
            }
        }
        self.movers[at].holding = self.go_on(holding, now);
    }

    fn claim_shard(&mut self, at: usize, now: Duration) {
        let (mover, links) = (self.movers[at].id, self.links.clone());
        let (id, daemon) = (self.rng.claim_id(), self.rng.index(2));
        let granted = self.store(None, |rows| claim(rows, &Ask { mover, links: &links, id }));
        match granted {
            Some(Some(granted)) => {
                self.check_claim(&granted);
                self.movers[at].holding = Some(Holding::of(granted, daemon, now));
            }
            Some(None) => {
                let mut ready = self.store.all_shards().filter(|shard| shard.state == ShardState::Ready);
                let is_closed = ready.any(|shard| self.hours.are_closed(shard, self.store.now));
                self.tally.closed += u64::from(is_closed);
            }
            None => {}
        }
    }

    /// The mover dials again: its connection may be half-open, and the daemon before does not know.
    fn show_again(&mut self, holding: &mut Holding) {
        holding.daemon = self.rng.index(2);
        holding.stage = Stage::Showing;
        (holding.next, holding.done) = (0, Amount::default());
        holding.faults.clear();
        holding.alike = holding.watch.clone();
    }

    fn go_on(&mut self, mut holding: Holding, now: Duration) -> Option<Holding> {
        let (shard, claim) = (holding.shard, holding.claim);
        let answer = self.destination.answer(shard, holding.kept());
        match holding.stage {
            // It is not heard before the daemon wakes.
            Stage::Showing if self.destination.pauses(holding.daemon) => {}
            Stage::Showing => {
                holding.session = self.rng.session_id();
                holding.standing = self.destination.standing(shard);
                self.destination.show(holding.daemon, shard, holding.kept());
                holding.stage = Stage::Waiting;
            }
            Stage::Waiting => match answer {
                None if self.rng.one_in(40) => self.show_again(&mut holding),
                None => {}
                Some(Shown::Welcome) => {
                    if self.mutant != Some(Mutant::ComparedEarly) {
                        holding.standing = self.destination.standing(shard);
                    }
                    if self.mutant == Some(Mutant::SentWithoutComparing) {
                        holding.standing.clear();
                    }
                    holding.stage = Stage::Open;
                }
                Some(Shown::Ended) => {
                    let outcome = self.lost(&holding);
                    self.report(&holding, outcome);
                    return None;
                }
                Some(Shown::Refused(_)) if self.mutant == Some(Mutant::NeverRaised) => holding.stage = Stage::Showing,
                Some(Shown::Refused(kept)) => {
                    let fresh = self.rng.claim_id();
                    holding.claim = self.store(Some(claim), |rows| raise(rows, (shard, claim), kept, fresh))??;
                    self.tally.raised += 1;
                    holding.tenure = Tenure::new(now);
                    holding.stage = Stage::Showing;
                }
            },
            Stage::Open | Stage::Publishing if matches!(answer, Some(Shown::Ended)) => {
                let outcome = self.lost(&holding);
                self.report(&holding, outcome);
                return None;
            }
            Stage::Open | Stage::Publishing if self.goes_wrong() && self.rng.one_in(30) => {
                self.tally.shown_again += 1;
                self.show_again(&mut holding);
            }
            Stage::Open if self.destination.commits.contains_key(&shard) => return self.commit(holding),
            Stage::Open => return self.move_file(holding),
            Stage::Publishing if self.destination.commits.contains_key(&shard) => {
                if !self.destination.is_under_way(holding.daemon, (shard, 0), holding.kept()) {
                    holding.stage = Stage::Open;
                }
            }
            Stage::Publishing => {
                if !self.destination.is_under_way(holding.daemon, (shard, holding.next), holding.kept()) {
                    holding.count_done();
                    holding.moved += FILE_BYTES;
                    holding.stage = Stage::Open;
                    return self.go_on_unless_alike(holding, None);
                }
            }
        }
        Some(holding)
    }

    fn go_on_unless_alike(&mut self, mut holding: Holding, failed: Option<FaultCode>) -> Option<Holding> {
        let Some(hold) = holding.alike.settle(failed) else { return Some(holding) };
        self.report(&holding, Outcome::Alike(hold));
        None
    }

    /// The outcome of a session that was lost, in one of the words for that.
    fn lost(&mut self, holding: &Holding) -> Outcome {
        let codes =
            [FaultCode::Lost, FaultCode::TimedOut, FaultCode::Io, FaultCode::Unreachable, FaultCode::Terminated];
        let code = codes[self.rng.index(codes.len())];
        let at = BreakPlace::Link;
        Outcome::Broken { code, at, welcome: !matches!(holding.stage, Stage::Showing | Stage::Waiting) }
    }

    /// The dataset of a campaign: it appeared in an earlier session whose answer was lost, or it
    /// does now.
    fn commit(&mut self, mut holding: Holding) -> Option<Holding> {
        let dataset = (holding.shard, 0);
        if self.destination.published.contains_key(&dataset) && self.mutant != Some(Mutant::CommitAgain) {
            return self.end(&holding);
        }
        match self.destination.begin(holding.daemon, (dataset, 0), holding.kept()) {
            Begun::UnderWay => holding.stage = Stage::Publishing,
            Begun::Busy => {}
            Begun::Refused => {
                let outcome = self.lost(&holding);
                self.report(&holding, outcome);
                return None;
            }
        }
        Some(holding)
    }

    /// The next file: it stands as it was when the mover was welcome, or it is published.
    fn move_file(&mut self, mut holding: Holding) -> Option<Holding> {
        let (shard, file) = (holding.shard, holding.next);
        if file == holding.total.files {
            return self.end(&holding);
        }
        let path = path_of(shard, file);
        if holding.given_up.contains(&path) {
            holding.next += 1;
            return Some(holding);
        }
        if let Some(code) = self.source_fault(shard, file) {
            let message = PlainText::from("it cannot be read");
            holding.faults.push(FileFault { path, bytes: FILE_BYTES, code, blame: Blame::Local, message });
            holding.next += 1;
            return self.go_on_unless_alike(holding, Some(code));
        }
        let version = self.versions.get(&(shard, file)).copied().unwrap_or(0);
        if holding.standing.get(&file) == Some(&version) {
            self.tally.compared += 1;
            holding.count_done();
            return self.go_on_unless_alike(holding, None);
        }
        match self.destination.begin(holding.daemon, ((shard, file), version), holding.kept()) {
            Begun::UnderWay => {
                holding.stage = Stage::Publishing;
                if self.mutant == Some(Mutant::ReportedEarly) && file + 1 == holding.total.files {
                    holding.count_done();
                    return self.end(&holding);
                }
            }
            Begun::Busy => {}
            Begun::Refused => {
                let outcome = self.lost(&holding);
                self.report(&holding, outcome);
                return None;
            }
        }
        Some(holding)
    }

    /// The shard is through. If the store is away, the mover tries again at its next turn.
    fn end(&mut self, holding: &Holding) -> Option<Holding> {
        if let Some(hold) = holding.alike.finish() {
            self.report(holding, Outcome::Alike(hold));
            return None;
        }
        let mut holding = holding.clone();
        let faults = holding.faults.clone();
        if self.mutant == Some(Mutant::FailedCountedDone) {
            holding.done = holding.total;
            holding.faults.clear();
        }
        let outcome = Outcome::Through(if self.mutant == Some(Mutant::FailedCountedDone) { vec![] } else { faults });
        self.report(&holding, outcome);
        None
    }

    /// Reports, and leaves the session. A report that the store did not take is given up: another
    /// mover compares what stands.
    fn report(&mut self, holding: &Holding, outcome: Outcome) {
        let Holding { shard, claim, done, moved, .. } = *holding;
        let early = self.mutant == Some(Mutant::ReportedEarly);
        if !early {
            self.destination.leave(holding.daemon, shard, holding.kept());
        }
        let report = Report { shard, claim, done, moved, outcome, unclaimed: false, chance: self.rng.next() };
        let rightful = self.store.all_shards().any(|row| row.id == shard && row.lease_of(claim).is_some());
        let finished = self.store(Some(claim), |rows| finish(rows, &report));
        if matches!(finished, Some(Finished::Recorded(_))) {
            self.check_report(shard, rightful);
        }
        self.destination.leave(holding.daemon, shard, holding.kept());
    }
}
