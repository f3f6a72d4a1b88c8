//! The gate of a shard at its destination: which claim may publish.
//!
//! In: claims that movers show, and the reports of whoever carries out the actions. Out: actions,
//! one at a time. Must not know the store of the queue: a gate holds though that store was restored
//! from a backup, and hands out fences a second time.
//!
//! The kept claim outlives the daemon: it lies in `.longhaul/` of the root, and the gate is made
//! from it. All daemons of a root hold that directory's lock while they keep a claim, and look at
//! it before each batch that they publish.

use crate::ids::{Claim, Fence};

/// An order of a gate. Each is carried out once, and reported back by the method that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAction {
    /// End the session of this claim, with all that it has under way, and then report
    /// [`Gate::handle_ended`].
    EndSession(Claim),
    /// Keep this claim durably, unless one is kept that is higher, or has the same fence and
    /// another id; then report [`Gate::handle_kept`], or [`Gate::handle_overtaken`].
    Keep(Claim),
    /// Let the session of this claim begin.
    Welcome(Claim),
    /// Refuse the session of this claim, and tell it the fence above which its next one must be.
    Refuse {
        /// The claim that was shown.
        shown: Claim,
        /// The fence that is kept.
        kept: Fence,
    },
}

/// The gate of one shard.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// The claim that is kept durably.
    kept: Option<Claim>,
    /// The claim whose session runs in this daemon.
    running: Option<Claim>,
    stage: GateStage,
}

/// The way of a claim through the gate.
///
/// ```text
/// Idle     a higher claim is shown, a session runs   Ending
/// Idle     a higher claim is shown, none runs        Keeping
/// Ending   the session has ended                     Keeping
/// Ending   a still higher claim is shown             Ending
/// Keeping  the claim is durable                      Idle
/// Keeping  another daemon has kept a higher one      Idle
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GateStage {
    #[default]
    Idle,
    /// The session before is ending, for this claim.
    Ending(Claim),
    /// This claim is being made durable.
    Keeping(Claim),
}

impl Gate {
    /// The gate of a shard whose kept claim was read from the root.
    pub fn new(kept: Option<Claim>) -> Gate {
        Gate { kept, running: None, stage: GateStage::Idle }
    }

    /// A mover shows its claim, when the root's directory keeps `on_disk`. A claim passes if its
    /// fence is higher than the kept one, or if it is the kept one itself; an equal fence with
    /// another id was given out twice.
    pub fn handle_shown(&mut self, shown: Claim, on_disk: Option<Claim>) -> Vec<GateAction> {
        let highest = match self.stage {
            GateStage::Idle => {
                self.kept = on_disk;
                on_disk
            }
            GateStage::Ending(next) | GateStage::Keeping(next) => Some(next),
        };
        match (highest, self.stage) {
            (Some(kept), _) if shown.fence < kept.fence || shown.fence == kept.fence && shown.id != kept.id => {
                vec![GateAction::Refuse { shown, kept: kept.fence }]
            }
            (Some(kept), GateStage::Idle) if shown == kept => match self.running {
                Some(running) => self.begin_ending(running, shown),
                None => {
                    self.running = Some(shown);
                    vec![GateAction::Welcome(shown)]
                }
            },
            (_, GateStage::Idle) => match self.running {
                Some(running) => self.begin_ending(running, shown),
                None => self.begin_keeping(shown),
            },
            (_, GateStage::Ending(next) | GateStage::Keeping(next)) if next == shown => Vec::new(),
            (_, GateStage::Ending(next)) => {
                self.stage = GateStage::Ending(shown);
                vec![GateAction::Refuse { shown: next, kept: shown.fence }]
            }
            // It is asked again once this one is durable; until then it is the higher one that
            // waits.
            (_, GateStage::Keeping(next)) => vec![GateAction::Refuse { shown, kept: next.fence }],
        }
    }

    /// The session of a claim has ended, by itself or by order, and nothing of it is under way.
    pub fn handle_ended(&mut self, ended: Claim) -> Vec<GateAction> {
        if self.running != Some(ended) {
            return Vec::new();
        }
        self.running = None;
        match self.stage {
            GateStage::Ending(next) => self.begin_keeping(next),
            GateStage::Idle | GateStage::Keeping(_) => Vec::new(),
        }
    }

    /// The claim of the last [`GateAction::Keep`] is durable.
    pub fn handle_kept(&mut self) -> Vec<GateAction> {
        let GateStage::Keeping(next) = self.stage else { return Vec::new() };
        self.kept = Some(next);
        self.running = Some(next);
        self.stage = GateStage::Idle;
        vec![GateAction::Welcome(next)]
    }

    /// The claim of the last [`GateAction::Keep`] was not kept: another daemon of the root has kept
    /// this one since, which is higher, or has the same fence.
    pub fn handle_overtaken(&mut self, on_disk: Claim) -> Vec<GateAction> {
        let GateStage::Keeping(next) = self.stage else { return Vec::new() };
        self.kept = Some(on_disk);
        self.stage = GateStage::Idle;
        vec![GateAction::Refuse { shown: next, kept: on_disk.fence }]
    }

    /// Whether the session of a claim may publish a batch, when the root's directory keeps
    /// `on_disk`: another daemon of the root may have kept a higher claim.
    pub fn may_publish(&self, claim: Claim, on_disk: Option<Claim>) -> bool {
        self.running == Some(claim) && self.kept == Some(claim) && on_disk == Some(claim)
    }

    /// The claim that is kept.
    pub fn kept(&self) -> Option<Claim> {
        self.kept
    }

    fn begin_ending(&mut self, running: Claim, next: Claim) -> Vec<GateAction> {
        self.stage = GateStage::Ending(next);
        vec![GateAction::EndSession(running)]
    }

    fn begin_keeping(&mut self, next: Claim) -> Vec<GateAction> {
        self.stage = GateStage::Keeping(next);
        vec![GateAction::Keep(next)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ClaimId;

    fn claim(fence: u64, id: u8) -> Claim {
        Claim { fence: Fence(fence), id: ClaimId([id; 16]) }
    }

    fn refuse(shown: Claim, kept: u64) -> Vec<GateAction> {
        vec![GateAction::Refuse { shown, kept: Fence(kept) }]
    }

    #[test]
    fn a_claim_is_kept_before_it_is_welcome() {
        let (mut gate, one) = (Gate::default(), claim(1, 1));
        assert_eq!(gate.handle_shown(one, None), [GateAction::Keep(one)]);
        assert!(!gate.may_publish(one, Some(one)));
        assert_eq!(gate.handle_kept(), [GateAction::Welcome(one)]);
        assert!(gate.may_publish(one, Some(one)));
        assert!(!gate.may_publish(one, Some(claim(2, 2))), "another daemon has kept a higher one");
    }

    #[test]
    fn a_lower_fence_and_an_equal_one_with_another_id_are_refused_with_the_kept_fence() {
        let mut gate = Gate::new(Some(claim(5, 1)));
        for shown in [claim(4, 1), claim(4, 9), claim(5, 2)] {
            assert_eq!(gate.handle_shown(shown, Some(claim(5, 1))), refuse(shown, 5));
        }
        assert_eq!(gate.handle_shown(claim(5, 1), Some(claim(5, 1))), [GateAction::Welcome(claim(5, 1))]);
    }

    #[test]
    fn a_higher_claim_waits_until_the_session_before_has_ended() {
        let (mut gate, one, two, three) = (Gate::default(), claim(1, 1), claim(2, 2), claim(3, 3));
        gate.handle_shown(one, None);
        gate.handle_kept();
        assert_eq!(gate.handle_shown(two, Some(one)), [GateAction::EndSession(one)]);
        assert!(gate.may_publish(one, Some(one)), "it may finish its batch while nothing else is kept");
        assert_eq!(gate.handle_shown(three, Some(one)), refuse(two, 3));
        assert_eq!(gate.handle_ended(two), []);
        assert_eq!(gate.handle_ended(one), [GateAction::Keep(three)]);
        assert_eq!(gate.handle_shown(claim(4, 4), Some(one)), refuse(claim(4, 4), 3));
        assert_eq!(gate.handle_kept(), [GateAction::Welcome(three)]);
        assert!(gate.may_publish(three, Some(three)) && !gate.may_publish(one, Some(three)));
    }

    #[test]
    fn the_same_claim_over_a_new_connection_ends_the_one_before() {
        let (mut gate, one) = (Gate::new(Some(claim(1, 1))), claim(1, 1));
        assert_eq!(gate.handle_shown(one, Some(one)), [GateAction::Welcome(one)]);
        assert_eq!(gate.handle_shown(one, Some(one)), [GateAction::EndSession(one)]);
        assert_eq!(gate.handle_shown(one, Some(one)), []);
        assert_eq!(gate.handle_ended(one), [GateAction::Keep(one)]);
        assert_eq!(gate.handle_kept(), [GateAction::Welcome(one)]);
    }

    #[test]
    fn a_claim_that_another_daemon_has_overtaken_is_refused() {
        let (mut gate, one, two) = (Gate::default(), claim(1, 1), claim(2, 2));
        gate.handle_shown(one, None);
        assert_eq!(gate.handle_overtaken(two), refuse(one, 2));
        assert_eq!(gate.handle_shown(one, Some(two)), refuse(one, 2));
        assert_eq!(gate.kept(), Some(two));
    }
}
