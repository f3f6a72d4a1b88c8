//! The gate of a shard at its destination: which showing of which claim may publish.
//!
//! In: claims that movers show, and the reports of whoever carries out the actions. Out: actions,
//! one at a time. Must not know the store of the queue: a gate holds though that store was restored
//! from a backup, and hands out fences a second time.
//!
//! A mover that lost its connection dials again and shows the same claim, perhaps to another daemon
//! of the root, while the daemon before still takes its old connection for a live one. So a claim
//! alone does not say who may publish: each showing has a session of its own, and the whole of both
//! is kept ([`Kept`]).
//!
//! The kept claim outlives the daemon: it lies in `.longhaul/` of the root, and the gate is made
//! from it. All daemons of a root hold that directory's lock while they keep a claim. They hold it
//! for each batch as well, from the look at what is kept until the batch's last rename: a daemon
//! that let go of the lock after the look could still rename behind another one's next claim.
//!
//! Within one daemon a session is welcome when the one before it has ended. Across daemons the one
//! before may go on for a while, but it can publish no more.

use crate::ids::{Claim, Fence, SessionId};

/// One showing of a claim, as the root's directory keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// The claim.
    pub claim: Claim,
    /// Drawn anew by the daemon for each showing.
    pub session: SessionId,
}

/// An order of a gate. Each is carried out once, and reported back by the method that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAction {
    /// End this session, with all that it has under way, and then report [`Gate::handle_ended`].
    EndSession(Kept),
    /// Keep this durably, under the lock, unless a claim is kept that is higher, or has the same
    /// fence and another id; then report [`Gate::handle_kept`], or [`Gate::handle_overtaken`].
    Keep(Kept),
    /// Let this session begin. If its connection is gone by now, report [`Gate::handle_ended`].
    Welcome(Kept),
    /// Refuse this session, and tell it the fence above which its next claim must be.
    Refuse {
        /// The session, and the claim that was shown.
        shown: Kept,
        /// The fence that is kept.
        kept: Fence,
    },
}

/// The gate of one shard.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// The showing that is kept durably.
    kept: Option<Kept>,
    /// The session that runs in this daemon.
    running: Option<Kept>,
    stage: GateStage,
}

/// The way of a showing through the gate.
///
/// ```text
/// Idle     a claim passes, and a session runs        Ending
/// Idle     a claim passes, and none runs             Keeping
/// Ending   the session has ended                     Keeping
/// Ending   another claim passes                      Ending
/// Keeping  the showing is durable                    Idle
/// Keeping  another daemon has kept a higher one      Idle
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GateStage {
    #[default]
    Idle,
    /// The session before is ending, for this one.
    Ending(Kept),
    /// This one is being made durable.
    Keeping(Kept),
}

impl Gate {
    /// The gate of a shard whose kept showing was read from the root.
    pub fn new(kept: Option<Kept>) -> Gate {
        Gate { kept, running: None, stage: GateStage::Idle }
    }

    /// A mover shows its claim, when the root's directory keeps `on_disk`. A claim passes if its
    /// fence is higher than the kept one, or if it is the kept one itself in another session; an
    /// equal fence with another id was given out twice. A fence from the upper half of all numbers
    /// is none that a queue gave out, and would leave no higher one for those to come.
    pub fn handle_shown(&mut self, shown: Kept, on_disk: Option<Kept>) -> Vec<GateAction> {
        let highest = match self.stage {
            GateStage::Idle => {
                self.kept = on_disk;
                on_disk
            }
            GateStage::Ending(next) | GateStage::Keeping(next) if next == shown => return Vec::new(),
            GateStage::Ending(next) | GateStage::Keeping(next) => Some(next),
        };
        if self.running == Some(shown) {
            return Vec::new();
        }
        let kept = highest.map(|highest| highest.claim.fence).unwrap_or_default();
        let passes = highest.is_none_or(|highest| follows(shown, highest));
        if !passes || !shown.claim.fence.may_be_shown() {
            return vec![GateAction::Refuse { shown, kept }];
        }
        match (self.stage, self.running) {
            (GateStage::Idle, Some(running)) => {
                self.stage = GateStage::Ending(shown);
                vec![GateAction::EndSession(running)]
            }
            (GateStage::Idle, None) => self.begin_keeping(shown),
            (GateStage::Ending(next), _) => {
                self.stage = GateStage::Ending(shown);
                vec![GateAction::Refuse { shown: next, kept: shown.claim.fence }]
            }
            // It is asked again once this one is durable; until then it is the later one that
            // waits.
            (GateStage::Keeping(next), _) => vec![GateAction::Refuse { shown, kept: next.claim.fence }],
        }
    }

    /// A session has ended, by itself or by order, and nothing of it is under way. Of one that was
    /// not welcome yet there is nothing to report.
    pub fn handle_ended(&mut self, ended: Kept) -> Vec<GateAction> {
        if self.running != Some(ended) {
            return Vec::new();
        }
        self.running = None;
        match self.stage {
            GateStage::Ending(next) => self.begin_keeping(next),
            GateStage::Idle | GateStage::Keeping(_) => Vec::new(),
        }
    }

    /// The showing of the last [`GateAction::Keep`] is durable.
    pub fn handle_kept(&mut self) -> Vec<GateAction> {
        let GateStage::Keeping(next) = self.stage else { return Vec::new() };
        self.kept = Some(next);
        self.running = Some(next);
        self.stage = GateStage::Idle;
        vec![GateAction::Welcome(next)]
    }

    /// The showing of the last [`GateAction::Keep`] was not kept: another daemon of the root has
    /// kept this one since, whose claim is higher, or has the same fence.
    pub fn handle_overtaken(&mut self, on_disk: Kept) -> Vec<GateAction> {
        let GateStage::Keeping(next) = self.stage else { return Vec::new() };
        self.kept = Some(on_disk);
        self.stage = GateStage::Idle;
        vec![GateAction::Refuse { shown: next, kept: on_disk.claim.fence }]
    }

    /// Whether a session may publish a batch, when the root's directory keeps `on_disk`: another
    /// daemon of the root may have kept a higher claim, or another showing of this one. The lock is
    /// held from the look at `on_disk` until the batch's last rename.
    pub fn may_publish(&self, session: Kept, on_disk: Option<Kept>) -> bool {
        self.running == Some(session) && self.kept == Some(session) && on_disk == Some(session)
    }

    /// The showing that is kept.
    pub fn kept(&self) -> Option<Kept> {
        self.kept
    }

    fn begin_keeping(&mut self, next: Kept) -> Vec<GateAction> {
        self.stage = GateStage::Keeping(next);
        vec![GateAction::Keep(next)]
    }
}

/// Whether a showing passes where another one is kept. The very same one was there before: it does
/// not pass a second time.
fn follows(shown: Kept, kept: Kept) -> bool {
    shown.claim.fence > kept.claim.fence || shown.claim == kept.claim && shown.session != kept.session
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ClaimId;

    /// The showing of a claim in a session of its own.
    fn shown(fence: u64, id: u8, session: u8) -> Kept {
        Kept { claim: Claim { fence: Fence(fence), id: ClaimId([id; 16]) }, session: SessionId([session; 16]) }
    }

    fn claim(fence: u64, id: u8) -> Kept {
        shown(fence, id, id)
    }

    fn refuse(shown: Kept, kept: u64) -> Vec<GateAction> {
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
        let again = shown(5, 1, 7);
        assert_eq!(gate.handle_shown(again, Some(claim(5, 1))), [GateAction::Keep(again)]);
    }

    #[test]
    fn a_fence_that_no_queue_gave_out_is_refused() {
        let mut gate = Gate::default();
        for (fence, passes) in [(i64::MAX as u64 / 2, true), (i64::MAX as u64 / 2 + 1, false), (u64::MAX, false)] {
            let shown = claim(fence, 1);
            assert_eq!(gate.clone().handle_shown(shown, None) == [GateAction::Keep(shown)], passes, "{fence}");
        }
        assert_eq!(gate.handle_shown(claim(u64::MAX, 1), Some(claim(3, 1))), refuse(claim(u64::MAX, 1), 3));
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
        let (mut gate, one, again) = (Gate::default(), shown(1, 1, 1), shown(1, 1, 2));
        gate.handle_shown(one, None);
        gate.handle_kept();
        assert_eq!(gate.handle_shown(one, Some(one)), [], "it runs");
        assert_eq!(gate.handle_shown(again, Some(one)), [GateAction::EndSession(one)]);
        assert_eq!(gate.handle_shown(again, Some(one)), []);
        assert_eq!(gate.handle_ended(again), [], "the waiting connection broke, and the older one goes on");
        assert_eq!(gate.handle_ended(one), [GateAction::Keep(again)]);
        assert_eq!(gate.handle_kept(), [GateAction::Welcome(again)]);
        assert!(gate.may_publish(again, Some(again)) && !gate.may_publish(one, Some(again)));
        assert_eq!(gate.handle_ended(one), [], "a second report of the older one ends nothing");
        assert!(gate.may_publish(again, Some(again)));
    }

    #[test]
    fn the_same_claim_at_another_daemon_is_kept_anew_and_the_first_one_can_publish_no_more() {
        let (mut here, mut there) = (Gate::default(), Gate::default());
        let (one, again) = (shown(1, 1, 1), shown(1, 1, 2));
        here.handle_shown(one, None);
        here.handle_kept();
        assert_eq!(there.handle_shown(again, Some(one)), [GateAction::Keep(again)]);
        assert!(here.may_publish(one, Some(one)), "nothing else is kept yet");
        there.handle_kept();
        assert!(there.may_publish(again, Some(again)) && !here.may_publish(one, Some(again)));
        assert_eq!(Gate::new(Some(one)).handle_shown(one, Some(one)), refuse(one, 1), "it was shown before");
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
