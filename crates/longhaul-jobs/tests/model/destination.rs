//! The destination: one root with two daemons, each with a real gate for each shard.
//!
//! In: claims that movers show, and batches of one file. Out: answers, and what stands. Must not
//! know the queue.

use std::collections::{BTreeMap, VecDeque};

use longhaul_jobs::{Claim, Fence, Gate, GateAction, ShardId};

use crate::mutants::Mutant;

/// A file, as shard and number.
pub(crate) type FileNo = (ShardId, u64);

/// The answer to a mover that showed its claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    Welcome,
    Refused(Fence),
    Ended,
}

/// How a batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The file stands, and was compared.
    Stands,
    /// It is being published.
    UnderWay,
    /// Another batch is under way.
    Busy,
    /// The session is over.
    Refused,
}

struct Session {
    shard: ShardId,
    claim: Claim,
    batch: Option<FileNo>,
}

#[derive(Default)]
struct Daemon {
    gates: BTreeMap<ShardId, Gate>,
    actions: VecDeque<(ShardId, GateAction)>,
    sessions: Vec<Session>,
}

#[derive(Default)]
pub(crate) struct Destination {
    mutant: Option<Mutant>,
    daemons: [Daemon; 2],
    /// The claims that the root's directory keeps.
    kept: BTreeMap<ShardId, Claim>,
    /// The daemon that has the lock of a shard.
    locks: BTreeMap<ShardId, usize>,
    answers: BTreeMap<(ShardId, Claim), Shown>,
    /// How often each file was published.
    pub(crate) published: BTreeMap<FileNo, u64>,
    /// The highest fence that was ever welcome.
    welcomed: BTreeMap<ShardId, Fence>,
    pub(crate) refused: u64,
    pub(crate) broken: Option<String>,
}

impl Destination {
    pub(crate) fn new(mutant: Option<Mutant>) -> Destination {
        Destination { mutant, ..Destination::default() }
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn breaks(&mut self, promise: String) {
        self.broken.get_or_insert(promise);
    }

    pub(crate) fn show(&mut self, at: usize, shard: ShardId, claim: Claim) {
        let mut on_disk = self.kept.get(&shard).copied();
        if self.has(Mutant::EqualFencePasses) && on_disk.is_some_and(|kept| kept.fence == claim.fence) {
            on_disk = Some(claim);
        }
        let gate = self.daemons[at].gates.entry(shard).or_insert_with(|| Gate::new(on_disk));
        let actions = gate.handle_shown(claim, on_disk);
        self.daemons[at].actions.extend(actions.into_iter().map(|action| (shard, action)));
    }

    pub(crate) fn answer(&mut self, shard: ShardId, claim: Claim) -> Option<Shown> {
        self.answers.remove(&(shard, claim))
    }

    /// A daemon goes on: by chance it ends a batch, or carries out the next action of a gate.
    pub(crate) fn step(&mut self, at: usize, chance: u64) {
        let open = self.daemons[at].sessions.iter_mut().find(|session| session.batch.is_some());
        if let Some(session) = open.filter(|_| chance.is_multiple_of(6)) {
            let (file, claim) = (session.batch.take(), session.claim);
            self.publish(at, file, claim);
            return;
        }
        let Some((shard, action)) = self.daemons[at].actions.pop_front() else { return };
        let reported = match action {
            GateAction::EndSession(claim) => self.end_session(at, shard, claim),
            GateAction::Keep(claim) => self.keep(at, shard, claim),
            GateAction::Welcome(claim) => {
                self.welcome(at, shard, claim);
                Vec::new()
            }
            GateAction::Refuse { shown, kept } => {
                self.refused += 1;
                self.answers.insert((shard, shown), Shown::Refused(kept));
                Vec::new()
            }
        };
        self.daemons[at].actions.extend(reported.into_iter().map(|action| (shard, action)));
    }

    fn end_session(&mut self, at: usize, shard: ShardId, claim: Claim) -> Vec<GateAction> {
        let under_way = |session: &Session| session.shard == shard && session.batch.is_some();
        if self.daemons[at].sessions.iter().any(under_way) {
            return vec![GateAction::EndSession(claim)];
        }
        if !self.has(Mutant::OlderGoesOn) {
            self.daemons[at].sessions.retain(|session| session.shard != shard);
        }
        self.answers.insert((shard, claim), Shown::Ended);
        self.daemons[at].gates.get_mut(&shard).map(|gate| gate.handle_ended(claim)).unwrap_or_default()
    }

    fn keep(&mut self, at: usize, shard: ShardId, claim: Claim) -> Vec<GateAction> {
        if self.locks.contains_key(&shard) && !self.has(Mutant::KeptWithoutLock) {
            return vec![GateAction::Keep(claim)];
        }
        let before = self.kept.get(&shard).copied();
        let Some(gate) = self.daemons[at].gates.get_mut(&shard) else { return Vec::new() };
        let passes = self.mutant == Some(Mutant::EqualFencePasses);
        if let Some(before) = before
            && (before.fence > claim.fence || before.fence == claim.fence && before.id != claim.id && !passes)
        {
            return gate.handle_overtaken(before);
        }
        let actions = gate.handle_kept();
        if self.has(Mutant::KeptNotDurable) {
            return actions;
        }
        if before.is_some_and(|before| before.fence == claim.fence && before.id != claim.id) {
            self.breaks(format!("{shard:?}: two claims with {:?} were kept", claim.fence));
        }
        if before.is_some_and(|before| before.fence > claim.fence) {
            self.breaks(format!("{shard:?}: the kept fence fell to {:?}", claim.fence));
        }
        self.kept.insert(shard, claim);
        actions
    }

    fn welcome(&mut self, at: usize, shard: ShardId, claim: Claim) {
        if self.daemons[at].sessions.iter().any(|session| session.shard == shard) {
            self.breaks(format!("{shard:?}: a session was welcome before the older one had ended"));
        }
        let highest = self.welcomed.entry(shard).or_default();
        *highest = claim.fence.max(*highest);
        self.daemons[at].sessions.push(Session { shard, claim, batch: None });
        self.answers.insert((shard, claim), Shown::Welcome);
    }

    /// A mover asks for a file to be published. The lock is held until the batch is through.
    pub(crate) fn begin(&mut self, at: usize, file: FileNo, claim: Claim) -> Begun {
        let shard = file.0;
        let mine = |session: &&mut Session| session.shard == shard && session.claim == claim;
        let unchecked = self.mutant == Some(Mutant::PublishUnchecked);
        if self.daemons[at].sessions.iter_mut().find(mine).is_none() {
            return Begun::Refused;
        }
        if self.locks.contains_key(&shard) {
            return Begun::Busy;
        }
        let mut on_disk = self.kept.get(&shard).copied();
        if self.has(Mutant::OtherDaemonIgnored) || self.has(Mutant::KeptNotDurable) {
            on_disk = Some(claim);
        }
        let may = self.daemons[at].gates.get(&shard).is_some_and(|gate| gate.may_publish(claim, on_disk));
        if !may && !unchecked {
            self.leave(at, shard, claim);
            return Begun::Refused;
        }
        if self.published.contains_key(&file) && !self.has(Mutant::SentWithoutComparing) {
            return Begun::Stands;
        }
        if let Some(session) = self.daemons[at].sessions.iter_mut().find(mine) {
            session.batch = Some(file);
        }
        self.locks.insert(shard, at);
        Begun::UnderWay
    }

    /// Whether a mover's batch is still under way.
    pub(crate) fn is_under_way(&self, at: usize, file: FileNo) -> bool {
        self.daemons[at].sessions.iter().any(|session| session.batch == Some(file))
    }

    fn publish(&mut self, at: usize, file: Option<FileNo>, claim: Claim) {
        let Some(file) = file else { return };
        if self.welcomed.get(&file.0).is_some_and(|highest| claim.fence < *highest) {
            self.breaks(format!("{file:?} was published by {claim:?}, and a higher claim was welcome before"));
        }
        let times = self.published.entry(file).or_default();
        *times += 1;
        if *times > 1 {
            self.breaks(format!("{file:?} was published twice"));
        }
        if self.locks.get(&file.0) == Some(&at) {
            self.locks.remove(&file.0);
        }
    }

    /// A mover's session ends, by itself or as its connection broke.
    pub(crate) fn leave(&mut self, at: usize, shard: ShardId, claim: Claim) {
        let mine = |session: &Session| session.shard == shard && session.claim == claim;
        let Some(index) = self.daemons[at].sessions.iter().position(mine) else { return };
        let session = self.daemons[at].sessions.swap_remove(index);
        self.publish(at, session.batch, claim);
        let actions = self.daemons[at].gates.get_mut(&shard).map(|gate| gate.handle_ended(claim)).unwrap_or_default();
        self.daemons[at].actions.extend(actions.into_iter().map(|action| (shard, action)));
    }

    /// A daemon dies. A batch that was under way may stand or not.
    pub(crate) fn crash(&mut self, at: usize, stands: u64) {
        for session in std::mem::take(&mut self.daemons[at].sessions) {
            if stands.is_multiple_of(2) {
                self.publish(at, session.batch, session.claim);
            }
            self.answers.insert((session.shard, session.claim), Shown::Ended);
        }
        self.daemons[at] = Daemon::default();
        self.locks.retain(|_, holder| *holder != at);
    }
}
