//! Tells hooks what the queue has for them, beside the shards that are moved.
//!
//! In: notices, which the queue's rules wrote together with what they tell of. Out: hooks that were
//! told, and the queue's knowledge of that. A hook that fails concerns nothing else: it is tried
//! again later, by whichever mover has it. Must not know what a hook is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_jobs::queue::{TakenNotice, Telling, settle_notice, take_notice_among};
use longhaul_jobs::{ClaimId, HookKey, JobsError};
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep;

use super::{Mover, random, random_id};
use crate::jobs::faults::fault_of_jobs;

/// How long hooks are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HookPhase {
    /// For as long as shards are moved.
    Working,
    /// Until nothing is due.
    Finishing,
    /// No more: what is under way has its own time.
    Ending,
    /// Not even that: what is under way is left to the next mover.
    Stopped,
}

impl Mover {
    /// Tells hooks until the phase says that it is enough.
    pub(super) async fn tell_hooks(self: Arc<Self>, mut phase: watch::Receiver<HookPhase>) {
        let (mut telling, mut turns) = (JoinSet::new(), HookTurns::default());
        loop {
            let now = *phase.borrow_and_update();
            if matches!(now, HookPhase::Ending | HookPhase::Stopped) {
                // Each of them sees it, and ends at once if it is to stop.
                while telling.join_next().await.is_some() {}
                return;
            }
            let has_room = telling.len() < TOLD_AT_A_TIME;
            if has_room {
                if let Some(taken) = self.take_notice(&mut turns).await {
                    let key = taken.notice.hook.clone();
                    let task = telling.spawn(Arc::clone(&self).tell_hook(taken, phase.clone()));
                    turns.under_way.insert(task.id(), key);
                    continue;
                }
                if now == HookPhase::Finishing && telling.is_empty() {
                    return;
                }
            }
            tokio::select! {
                changed = phase.changed() => if changed.is_err() { return },
                Some(told) = telling.join_next_with_id() => turns.ended(told),
                () = sleep(LOOK_EVERY), if has_room => {}
                () = self.settled.notified(), if has_room => {}
            }
        }
    }

    /// The next notice for a hook of this host. A store that does not answer is told of by those
    /// who claim.
    async fn take_notice(&self, turns: &mut HookTurns) -> Option<TakenNotice> {
        let (keys, time) = (turns.next(self.hooks.keys()), self.hooks.time_max() + SETTLED_WITHIN);
        let (taker, admitting) = (ClaimId(random_id().ok()?), Arc::clone(&self.admitting));
        // Whoever may write to a queue runs nothing by that: a hook is told of campaigns that are
        // moved here. The notices of the others are left to the movers that move those.
        let taken = self.queue.transact(move |rows| take_notice_among(rows, &keys, (taker, time), &*admitting));
        match taken.await {
            Ok(taken) => {
                turns.trouble = None;
                taken
            }
            Err(error @ JobsError::Store { .. }) => {
                tracing::debug!(%error, "the queue was not asked for what hooks are told");
                None
            }
            Err(error) => {
                // It comes again at each look, and is told once.
                let words = Some(error.to_string());
                if turns.trouble != words {
                    self.observer.trouble(&fault_of_jobs(&error));
                    turns.trouble = words;
                }
                None
            }
        }
    }

    async fn tell_hook(self: Arc<Self>, taken: TakenNotice, mut phase: watch::Receiver<HookPhase>) {
        let key = &taken.notice.hook;
        let Some(hook) = self.hooks.get(key) else { return };
        let failed = |words| {
            let chance = random().map_or(0, u64::from_ne_bytes);
            Telling::Failed { words, tries_max: hook.tries_max, chance }
        };
        let told = tokio::select! {
            told = hook.tell(&taken) => Some(told),
            _ = phase.wait_for(|phase| *phase == HookPhase::Stopped) => None,
        };
        let telling = match told {
            Some(Ok(())) => Telling::Told,
            None => Telling::HandedBack,
            Some(Err(failure)) => {
                self.observer.trouble(&failure.fault(key));
                failed(failure.words().clone())
            }
        };
        let notice = taken.notice.clone();
        if let Err(error) = self.queue.transact(move |rows| settle_notice(rows, &notice, &telling)).await {
            // It is told again, as whoever took it is not heard of.
            self.observer.trouble(&fault_of_jobs(&error));
        }
    }
}

/// Whose turn it is, so that a hook that hangs keeps no other one from being told.
#[derive(Default)]
struct HookTurns {
    /// The hooks of the tasks under way.
    under_way: HashMap<Id, HookKey>,
    /// The times that somebody was asked for.
    asked: usize,
    /// The words of what failed last, until something goes well.
    trouble: Option<String>,
}

impl HookTurns {
    /// The hooks that have room, of which each is the first one in turn.
    fn next(&mut self, mut keys: Vec<HookKey>) -> Vec<HookKey> {
        keys.retain(|key| self.under_way.values().filter(|told| *told == key).count() < TOLD_OF_A_HOOK);
        let first = self.asked % keys.len().max(1);
        self.asked = self.asked.wrapping_add(1);
        keys.rotate_left(first);
        keys
    }

    fn ended(&mut self, told: Result<(Id, ()), JoinError>) {
        let id = told.map_or_else(|error| error.id(), |(id, ())| id);
        self.under_way.remove(&id);
    }
}

/// Hooks that are told at a time, and notices to the same one among them.
const TOLD_AT_A_TIME: usize = 4;
const TOLD_OF_A_HOOK: usize = 2;
/// The queue is looked at so often, besides whenever a shard was settled.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Behind the longest time of a hook another mover takes its notice after so much more.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
/// Once all shards are settled, hooks are begun to be told for so long.
pub(super) const FINISHING_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hook_is_the_first_one_in_turn_and_none_takes_all_places() {
        let key = |text: &str| HookKey::new(text).unwrap();
        let keys = || vec![key("a"), key("b"), key("c")];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut turns = HookTurns::default();
        let firsts: Vec<_> = (0..4).map(|_| turns.next(keys())[0].clone()).collect();
        assert_eq!(firsts, [key("a"), key("b"), key("c"), key("a")]);
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for _ in 0..TOLD_OF_A_HOOK {
                assert_eq!(turns.next(keys()).len(), 3);
                turns.under_way.insert(tasks.spawn(async {}).id(), key("b"));
            }
            assert!(!turns.next(keys()).contains(&key("b")));
            turns.ended(tasks.join_next_with_id().await.unwrap());
            assert!(turns.next(keys()).contains(&key("b")));
        });
        assert!(turns.next(Vec::new()).is_empty());
    }
}
