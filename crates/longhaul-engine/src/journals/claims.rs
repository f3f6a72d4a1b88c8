//! Owns the claims that movers show for shards of one root: which session may publish, and that it
//! still may before each batch.
//!
//! In: a claim that is shown to a receiving session before that begins. Out: a [`HeldClaim`], which
//! the session keeps until it has let go of everything, or the refusal with the fence that is kept.
//! The rules are the gate's (`longhaul_jobs::gate`), one for each shard; this carries out what a
//! gate orders. The kept claims lie on the shelf, under locks that all processes take which use
//! that. It knows no messages and no queue.
//!
//! Locks are taken in this order: the shard on the shelf, then the gate. A look at what is kept
//! takes none on the shelf, as pages are replaced whole. Nothing is read or written while a gate is
//! locked: a session that publishes must not wait for the disk of one that shows its claim.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use longhaul_core::limits::CLAIM_SECONDS_MAX;
use longhaul_core::{Blame, Fault, FaultCode, ShardClaim, hint};
use longhaul_disk::{CLAIMS_PAGE_PATIENCE, ClaimsOwner, KeptShowing, LockedShard, ShardKey, Shelf};
use longhaul_jobs::ids::{Claim, ClaimId, Fence, SessionId};
use longhaul_jobs::{Gate, GateAction, Kept};

use super::Principal;
use super::presence::Presence;
use crate::random::nonce;

/// The claims on shards of one root, as far as this process has to do with them.
#[derive(Debug)]
pub(crate) struct RootClaims {
    shelf: Shelf,
    /// Gates of shards that a session has, or that somebody shows a claim for.
    gates: Mutex<HashMap<ShardKey, Arc<ShardGate>>>,
    /// How often a session looks whether its claim is still kept. `None`: it does not, and only the
    /// look before each batch is left.
    look_every: Option<Duration>,
}

/// The gate of one shard, and those who wait at it.
#[derive(Debug, Default)]
struct ShardGate {
    state: Mutex<ShardGateState>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct ShardGateState {
    gate: Gate,
    /// Tells the session that runs to end, which has this claim.
    running: Option<(Arc<Presence>, ShardClaim)>,
    /// The showing that is to be kept on the shelf, by whoever waits with it.
    keeping: Option<Kept>,
    /// The decisions about those who wait.
    verdicts: HashMap<SessionId, Verdict>,
    /// The showings that wait.
    waiting: Vec<SessionId>,
    /// Changes whenever the gate does, so that a look at the shelf from before is known to be old.
    turn: u64,
}

/// The decision about a showing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Welcome,
    /// With the fence that is kept.
    Refused(Fence),
}

/// A claim that is kept, of a session that may publish by it. Dropping it says that the session has
/// ended.
#[derive(Debug)]
pub(crate) struct HeldClaim {
    claims: Arc<RootClaims>,
    gate: Arc<ShardGate>,
    claim: ShardClaim,
    shown: Kept,
    /// Ends the watch by being dropped.
    _watch: mpsc::Sender<()>,
}

/// The right to publish one batch. While it is held no other claim on the shard is kept.
#[derive(Debug)]
pub(crate) struct PublishRight(#[expect(dead_code, reason = "it is held for its lock")] LockedShard);

impl RootClaims {
    /// The claims that lie on this shelf.
    pub(crate) fn new(shelf: Shelf) -> Arc<RootClaims> {
        Arc::new(RootClaims { shelf, gates: Mutex::default(), look_every: Some(LOOK_EVERY) })
    }

    /// The claims of the same shelf, whose sessions look at theirs before each batch alone.
    #[cfg(test)]
    pub(crate) fn unwatched(shelf: Shelf) -> Arc<RootClaims> {
        Arc::new(RootClaims { shelf, gates: Mutex::default(), look_every: None })
    }

    /// Shows a claim for a session that is about to begin and whose end `presence` can ask for.
    /// Blocks until an older session of this process has ended, and the claim is kept durably.
    ///
    /// # Errors
    /// A fault of code [`FaultCode::Superseded`] with the fence that is kept; [`FaultCode::Busy`]
    /// if the older session does not end, or another process does not let go of the shard; the
    /// fault of a shelf that cannot be used.
    pub(crate) fn show(
        self: &Arc<Self>,
        claim: ShardClaim,
        who: &Principal,
        presence: &Arc<Presence>,
    ) -> Result<HeldClaim, Fault> {
        let key = ShardKey { campaign: claim.campaign, shard: claim.shard };
        let of_claim = Claim { fence: Fence(claim.fence), id: ClaimId(claim.id) };
        let shown = Kept { claim: of_claim, session: SessionId(nonce()?) };
        let gate = lock(&self.gates).entry(key).or_default().clone();
        let verdict = self.passed((&key, who.claims_owner()), &gate, shown, (presence, claim));
        if verdict != Ok(Verdict::Welcome) {
            self.forget(&key, gate);
            return Err(match verdict {
                Err(fault) => fault,
                Ok(Verdict::Refused(kept)) => refused(&claim, kept),
                Ok(Verdict::Welcome) => bug(),
            });
        }
        let _watch = self.watch(claim, shown, presence.clone());
        Ok(HeldClaim { claims: self.clone(), gate, claim, shown, _watch })
    }

    /// Looks now and then whether a showing is still kept, and tells its session to end if not: a
    /// newer one at another daemon finds the files of this session in use until then. Whether the
    /// session may publish does not depend on it.
    fn watch(&self, claim: ShardClaim, shown: Kept, presence: Arc<Presence>) -> mpsc::Sender<()> {
        let (watched, ended) = mpsc::channel::<()>();
        let Some(every) = self.look_every else { return watched };
        let (shelf, key) = (self.shelf.clone(), ShardKey { campaign: claim.campaign, shard: claim.shard });
        let look = move || {
            while ended.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
                let Ok(kept) = shelf.kept(key) else { continue };
                let kept = kept.map(kept_of);
                if kept != Some(shown) {
                    return presence.supersede(overtaken(&claim, kept.map(|kept| kept.claim)));
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("claim".to_owned()).spawn(look) {
            tracing::warn!(target: "longhaul::journal", %error, "a claim is looked at before each batch alone");
        }
        watched
    }

    /// Waits until it is decided about a showing, and keeps it when its turn has come.
    fn passed(
        &self,
        (key, owner): (&ShardKey, ClaimsOwner),
        gate: &ShardGate,
        shown: Kept,
        (presence, claim): (&Arc<Presence>, ShardClaim),
    ) -> Result<Verdict, Fault> {
        let until = Instant::now() + OLDER_SESSION_MAX;
        let (mut state, on_disk) = gate.looked(|| Ok(self.shelf.kept(*key)?.map(kept_of)))?;
        let actions = state.gate.handle_shown(shown, on_disk);
        state.waiting.push(shown.session);
        state.carry_out(actions, shown);
        gate.moved.notify_all();
        loop {
            if let Some(verdict) = state.verdicts.remove(&shown.session) {
                if verdict == Verdict::Welcome {
                    state.running = Some((presence.clone(), claim));
                }
                state.leave(shown);
                return Ok(verdict);
            }
            if state.keeping == Some(shown) {
                drop(state);
                let kept = self.keep(key, shown, owner);
                state = lock(&gate.state);
                state.keeping = None;
                let actions = match kept {
                    Ok(None) => state.gate.handle_kept(),
                    Ok(Some(on_disk)) => state.gate.handle_overtaken(on_disk),
                    Err(fault) => {
                        // Nothing runs while a showing is being kept: the gate begins anew.
                        state.gate = Gate::default();
                        state.leave(shown);
                        return Err(fault);
                    }
                };
                state.carry_out(actions, shown);
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.leave(shown);
                return Err(unended());
            }
            state = gate.moved.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Keeps a showing on the shelf, unless a claim is kept that it does not follow, which is
    /// returned.
    fn keep(&self, key: &ShardKey, shown: Kept, owner: ClaimsOwner) -> Result<Option<Kept>, Fault> {
        let mut locked = self.shelf.lock_shard(*key, SHOWN_LOCK_PATIENCE)?;
        if let Some(on_disk) = locked.kept().map(kept_of)
            && on_disk.claim.fence >= shown.claim.fence
            && on_disk.claim != shown.claim
        {
            return Ok(Some(on_disk));
        }
        locked.keep((shown.claim.fence.0, shown.claim.id.0, shown.session.0), owner)?;
        Ok(None)
    }

    /// Forgets the gate of a shard with which nobody has to do any more.
    fn forget(&self, key: &ShardKey, gate: Arc<ShardGate>) {
        let mut gates = lock(&self.gates);
        // One is the table's, the other is ours.
        if Arc::strong_count(&gate) == 2 {
            gates.remove(key);
        }
    }
}

impl HeldClaim {
    /// The right to publish a batch, if claim and session are still those that are kept.
    ///
    /// # Errors
    /// As [`RootClaims::show`].
    pub(crate) fn publishing(&self) -> Result<PublishRight, Fault> {
        let key = self.key();
        let locked = self.claims.shelf.lock_shard(key, LOCK_PATIENCE)?;
        let on_disk = locked.kept().map(kept_of);
        if lock(&self.gate.state).gate.may_publish(self.shown, on_disk) {
            return Ok(PublishRight(locked));
        }
        Err(overtaken(&self.claim, on_disk.map(|kept| kept.claim)))
    }

    fn key(&self) -> ShardKey {
        ShardKey { campaign: self.claim.campaign, shard: self.claim.shard }
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        let mut state = lock(&self.gate.state);
        state.running = None;
        let actions = state.gate.handle_ended(self.shown);
        state.carry_out(actions, self.shown);
        drop(state);
        self.gate.moved.notify_all();
        let gate = std::mem::take(&mut self.gate);
        self.claims.forget(&self.key(), gate);
    }
}

impl ShardGate {
    /// Looks at what is kept, and locks the gate. The look is one of this turn of the gate: a claim
    /// that was kept here meanwhile is in it. One that another process keeps after the look is met
    /// under the shard's lock, before anything is kept.
    fn looked(
        &self,
        look: impl Fn() -> Result<Option<Kept>, Fault>,
    ) -> Result<(MutexGuard<'_, ShardGateState>, Option<Kept>), Fault> {
        let mut turn = lock(&self.state).turn;
        loop {
            let on_disk = look()?;
            let state = lock(&self.state);
            if state.turn == turn {
                return Ok((state, on_disk));
            }
            turn = state.turn;
        }
    }
}

impl ShardGateState {
    /// Carries out what the gate orders because of a showing.
    fn carry_out(&mut self, actions: Vec<GateAction>, by: Kept) {
        self.turn += 1;
        for action in actions {
            match action {
                GateAction::EndSession(_) => {
                    let ends = |(presence, claim): &(Arc<Presence>, ShardClaim)| {
                        presence.supersede(overtaken(claim, Some(by.claim)));
                    };
                    self.running.iter().for_each(ends);
                }
                // Whoever showed it waits no more: the next one begins at an empty gate.
                GateAction::Keep(next) if !self.waiting.contains(&next.session) => self.gate = Gate::default(),
                GateAction::Keep(next) => self.keeping = Some(next),
                GateAction::Welcome(welcome) => self.decide(welcome.session, Verdict::Welcome),
                GateAction::Refuse { shown, kept } => self.decide(shown.session, Verdict::Refused(kept)),
            }
        }
    }

    fn decide(&mut self, session: SessionId, verdict: Verdict) {
        if self.waiting.contains(&session) {
            self.verdicts.insert(session, verdict);
        }
    }

    /// A showing waits no more.
    fn leave(&mut self, shown: Kept) {
        self.waiting.retain(|session| *session != shown.session);
        self.verdicts.remove(&shown.session);
        if self.keeping == Some(shown) {
            (self.keeping, self.gate) = (None, Gate::default());
        }
    }
}

fn kept_of(kept: KeptShowing) -> Kept {
    let claim = Claim { fence: Fence(kept.fence), id: ClaimId(kept.id) };
    Kept { claim, session: SessionId(kept.session) }
}

fn refused(claim: &ShardClaim, kept: Fence) -> Fault {
    let ShardClaim { shard, fence, .. } = claim;
    let why = match kept.0 == *fence {
        true => {
            format!("another claim on shard {shard} with fence {fence} is kept here: the fence was given out twice")
        }
        false => format!("a claim on shard {shard} with fence {} is kept here, and the one shown has {fence}", kept.0),
    };
    Fault::superseded(claim, kept.0, why)
}

/// The fault of a session at whose batch another showing is kept, or none.
fn overtaken(claim: &ShardClaim, kept: Option<Claim>) -> Fault {
    let ShardClaim { shard, fence, .. } = claim;
    let (kept_fence, why) = match kept {
        Some(kept) if kept.fence.0 == *fence => (
            *fence,
            format!("the claim on shard {shard} was shown in another session since, and this one publishes no more"),
        ),
        Some(kept) => (
            kept.fence.0,
            format!(
                "a newer claim on shard {shard} is kept, with fence {}: this session publishes no more",
                kept.fence.0
            ),
        ),
        None => (*fence, format!("the claim on shard {shard} is kept no more: somebody removed it")),
    };
    Fault::superseded(claim, kept_fence, why)
}

fn unended() -> Fault {
    let why = "the session of an earlier claim on the shard has not let go of its files yet";
    Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Again::Later)
}

fn bug() -> Fault {
    Fault::new(FaultCode::Internal, Blame::Bug, "a claim that is welcome and refused")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long an older session of this process may take to end, with the work of its disk. Batches
/// and syncs of a disk that is well take a second or two; one that takes longer is busy, and the
/// mover shows its claim again.
const OLDER_SESSION_MAX: Duration = Duration::from_secs(15);
/// How often a session looks whether its claim is still kept while it publishes nothing.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long the lock of a shard is waited for where a claim is shown. Another process holds it
/// while it keeps a claim or renames a batch.
const SHOWN_LOCK_PATIENCE: Duration = Duration::from_secs(8);
/// How long the same lock is waited for before a batch, while no client waits for an answer.
const LOCK_PATIENCE: Duration = Duration::from_secs(20);

// Whoever shows a claim is answered while it still waits.
const _: () = assert!(
    OLDER_SESSION_MAX.as_secs() + SHOWN_LOCK_PATIENCE.as_secs() + CLAIMS_PAGE_PATIENCE.as_secs() <= CLAIM_SECONDS_MAX
);

#[cfg(test)]
mod tests;
