//! The destination: one root with two daemons, each with a real gate for each shard.
//!
//! In: claims that movers show, and batches of one file. Out: answers, and what stands. Must not
//! know the queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use longhaul_jobs::{Fence, Gate, GateAction, Kept, ShardId};

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
    /// It is being published.
    UnderWay,
    /// Another batch is under way.
    Busy,
    /// The session is over.
    Refused,
}

struct Session {
    shard: ShardId,
    kept: Kept,
    /// A file that is being published, and the version of its source that was read.
    batch: Option<(FileNo, u64)>,
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
    /// The time of the world, and until when each daemon pauses.
    pub(crate) now: u64,
    pub(crate) paused_until: [u64; 2],
    /// The showings that the root's directory keeps.
    kept: BTreeMap<ShardId, Kept>,
    /// The daemon that has the lock of a shard.
    locks: BTreeMap<ShardId, usize>,
    answers: BTreeMap<(ShardId, Kept), Shown>,
    /// The version of each file that stands.
    pub(crate) published: BTreeMap<FileNo, u64>,
    /// The session that last published a file of a shard, and those before it.
    publishers: BTreeMap<ShardId, Kept>,
    retired: BTreeSet<(ShardId, Kept)>,
    /// The highest fence that was ever welcome.
    welcomed: BTreeMap<ShardId, Fence>,
    /// The files that must stand before the dataset of a commit appears.
    pub(crate) commits: BTreeMap<ShardId, Vec<FileNo>>,
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

    /// A daemon pauses, with all locks that it has. Gives whether it has sessions.
    pub(crate) fn pause(&mut self, at: usize, until: u64) -> bool {
        self.paused_until[at] = until;
        if self.has(Mutant::SleeperLosesLock) {
            self.locks.retain(|_, holder| *holder != at);
        }
        !self.daemons[at].sessions.is_empty()
    }

    /// Whether a daemon pauses: it hears nothing, and does nothing.
    pub(crate) fn pauses(&self, at: usize) -> bool {
        self.paused_until[at] > self.now
    }

    pub(crate) fn show(&mut self, at: usize, shard: ShardId, shown: Kept) {
        let mut on_disk = self.kept.get(&shard).copied();
        if self.has(Mutant::EqualFencePasses) && on_disk.is_some_and(|kept| kept.claim.fence == shown.claim.fence) {
            on_disk = on_disk.map(|kept| Kept { claim: shown.claim, ..kept });
        }
        let gate = self.daemons[at].gates.entry(shard).or_insert_with(|| Gate::new(on_disk));
        let actions = gate.handle_shown(shown, on_disk);
        self.daemons[at].actions.extend(actions.into_iter().map(|action| (shard, action)));
    }

    pub(crate) fn answer(&mut self, shard: ShardId, session: Kept) -> Option<Shown> {
        self.answers.remove(&(shard, session))
    }

    /// The files of a shard that stand, and their versions.
    pub(crate) fn standing(&self, shard: ShardId) -> BTreeMap<u64, u64> {
        let files = self.published.range((shard, 0)..=(shard, u64::MAX));
        files.map(|((_, file), version)| (*file, *version)).collect()
    }

    /// A daemon goes on: by chance it ends a batch, or carries out the next action of a gate.
    pub(crate) fn step(&mut self, at: usize, chance: u64) {
        if self.pauses(at) {
            return;
        }
        let open = self.daemons[at].sessions.iter_mut().find(|session| session.batch.is_some());
        if let Some(session) = open.filter(|_| chance.is_multiple_of(6)) {
            let (batch, kept) = (session.batch.take(), session.kept);
            self.publish(at, batch, kept);
            return;
        }
        let Some((shard, action)) = self.daemons[at].actions.pop_front() else { return };
        let reported = match action {
            GateAction::EndSession(session) => self.end_session(at, shard, session),
            GateAction::Keep(shown) => self.keep(at, shard, shown),
            GateAction::Welcome(session) => {
                self.welcome(at, shard, session);
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

    fn end_session(&mut self, at: usize, shard: ShardId, ended: Kept) -> Vec<GateAction> {
        let mine = |session: &Session| session.shard == shard && session.kept == ended;
        if self.daemons[at].sessions.iter().any(|session| mine(session) && session.batch.is_some()) {
            return vec![GateAction::EndSession(ended)];
        }
        if !self.has(Mutant::OlderGoesOn) {
            self.daemons[at].sessions.retain(|session| !mine(session));
        }
        self.answers.insert((shard, ended), Shown::Ended);
        self.daemons[at].gates.get_mut(&shard).map(|gate| gate.handle_ended(ended)).unwrap_or_default()
    }

    fn keep(&mut self, at: usize, shard: ShardId, next: Kept) -> Vec<GateAction> {
        if self.locks.contains_key(&shard) && !self.has(Mutant::KeptWithoutLock) {
            return vec![GateAction::Keep(next)];
        }
        let before = self.kept.get(&shard).copied();
        let Some(gate) = self.daemons[at].gates.get_mut(&shard) else { return Vec::new() };
        let passes = self.mutant == Some(Mutant::EqualFencePasses);
        let equal =
            |before: Kept| before.claim.fence == next.claim.fence && before.claim.id != next.claim.id && !passes;
        if let Some(before) = before.filter(|before| before.claim.fence > next.claim.fence || equal(*before)) {
            return gate.handle_overtaken(before);
        }
        let actions = gate.handle_kept();
        if self.has(Mutant::KeptNotDurable) {
            return actions;
        }
        if before.is_some_and(|before| before.claim.fence == next.claim.fence && before.claim.id != next.claim.id) {
            self.breaks(format!("{shard:?}: two claims with {:?} were kept", next.claim.fence));
        }
        if before.is_some_and(|before| before.claim.fence > next.claim.fence) {
            self.breaks(format!("{shard:?}: the kept fence fell to {:?}", next.claim.fence));
        }
        self.kept.insert(shard, next);
        actions
    }

    fn welcome(&mut self, at: usize, shard: ShardId, welcome: Kept) {
        let (here, there) = (&self.daemons[at].sessions, &self.daemons[1 - at].sessions);
        if here.iter().any(|session| session.shard == shard) {
            self.breaks(format!("{shard:?}: a session was welcome before the older one had ended"));
        } else if self.kept.get(&shard) == Some(&welcome)
            && there.iter().any(|session| session.shard == shard && session.batch.is_some())
        {
            self.breaks(format!("{shard:?}: a session was welcome while the other daemon published"));
        }
        let highest = self.welcomed.entry(shard).or_default();
        *highest = welcome.claim.fence.max(*highest);
        self.daemons[at].sessions.push(Session { shard, kept: welcome, batch: None });
        self.answers.insert((shard, welcome), Shown::Welcome);
    }

    /// A mover asks for a version of a file to be published. The lock is held until the batch is
    /// through.
    pub(crate) fn begin(&mut self, at: usize, (file, version): (FileNo, u64), kept: Kept) -> Begun {
        let shard = file.0;
        let mine = |session: &&mut Session| session.shard == shard && session.kept == kept;
        let unchecked = self.mutant == Some(Mutant::PublishUnchecked);
        if self.pauses(at) {
            return Begun::Busy;
        }
        if self.daemons[at].sessions.iter_mut().find(mine).is_none() {
            return Begun::Refused;
        }
        if self.locks.contains_key(&shard) {
            return Begun::Busy;
        }
        let mut on_disk = self.kept.get(&shard).copied();
        let same_claim = on_disk.is_some_and(|on_disk| on_disk.claim == kept.claim);
        if self.has(Mutant::OtherDaemonIgnored)
            || self.has(Mutant::KeptNotDurable)
            || self.has(Mutant::SessionUnchecked) && same_claim
        {
            on_disk = Some(kept);
        }
        let may = self.daemons[at].gates.get(&shard).is_some_and(|gate| gate.may_publish(kept, on_disk));
        if !may && !unchecked {
            self.leave(at, shard, kept);
            return Begun::Refused;
        }
        if let Some(session) = self.daemons[at].sessions.iter_mut().find(mine) {
            session.batch = Some((file, version));
        }
        if !self.has(Mutant::LockLetGo) {
            self.locks.insert(shard, at);
        }
        Begun::UnderWay
    }

    /// Whether a mover's batch is still under way.
    pub(crate) fn is_under_way(&self, at: usize, file: FileNo, kept: Kept) -> bool {
        let batch = |session: &Session| session.batch.is_some_and(|batch| batch.0 == file);
        self.daemons[at].sessions.iter().any(|session| session.kept == kept && batch(session))
    }

    fn publish(&mut self, at: usize, batch: Option<(FileNo, u64)>, kept: Kept) {
        let Some((file, version)) = batch else { return };
        let shard = file.0;
        if self.welcomed.get(&shard).is_some_and(|highest| kept.claim.fence < *highest) {
            self.breaks(format!("{file:?} was published by {kept:?}, and a higher claim was welcome before"));
        }
        if self.retired.contains(&(shard, kept)) {
            self.breaks(format!("{file:?} was published by {kept:?}, and a later session had published before"));
        }
        if let Some(before) = self.publishers.insert(shard, kept).filter(|before| *before != kept) {
            self.retired.insert((shard, before));
        }
        let missing = self.commits.get(&shard).into_iter().flatten().find(|file| !self.published.contains_key(file));
        if let Some(missing) = missing.copied() {
            self.breaks(format!("{shard:?}: a dataset appeared without {missing:?}"));
        }
        match self.published.insert(file, version) {
            Some(before) if before > version => {
                self.breaks(format!("{file:?}: version {version} was published over {before}, which is newer"));
            }
            Some(before) if before == version => self.breaks(format!("{file:?} was published twice")),
            _ => {}
        }
        if self.locks.get(&shard) == Some(&at) {
            self.locks.remove(&shard);
        }
    }

    /// A mover's session ends, by itself or as its connection broke. A daemon that pauses does not
    /// hear of it, and has half a connection then.
    pub(crate) fn leave(&mut self, at: usize, shard: ShardId, kept: Kept) {
        if self.pauses(at) {
            return;
        }
        let mine = |session: &Session| session.shard == shard && session.kept == kept;
        let Some(index) = self.daemons[at].sessions.iter().position(mine) else { return };
        let session = self.daemons[at].sessions.swap_remove(index);
        self.publish(at, session.batch, kept);
        let actions = self.daemons[at].gates.get_mut(&shard).map(|gate| gate.handle_ended(kept)).unwrap_or_default();
        self.daemons[at].actions.extend(actions.into_iter().map(|action| (shard, action)));
    }

    /// A daemon dies. A batch that was under way may stand or not.
    pub(crate) fn crash(&mut self, at: usize, stands: u64) {
        for session in std::mem::take(&mut self.daemons[at].sessions) {
            if stands.is_multiple_of(2) {
                self.publish(at, session.batch, session.kept);
            }
            self.answers.insert((session.shard, session.kept), Shown::Ended);
        }
        self.daemons[at] = Daemon::default();
        self.paused_until[at] = 0;
        self.locks.retain(|_, holder| *holder != at);
    }
}
