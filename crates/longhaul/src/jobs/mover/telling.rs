//! Tells hooks what the queue has for them, beside the shards that are moved.
//!
//! In: notices, which the queue's rules wrote together with what they tell of. Out: hooks that were
//! told, and the queue's knowledge of that. A hook that fails concerns nothing else: it is tried
//! again later, by whichever mover has it. Must not know what a hook is.

use std::sync::Arc;
use std::time::Duration;

use longhaul_jobs::ClaimId;
use longhaul_jobs::queue::{TakenNotice, Telling, settle_notice, take_notice};
use tokio::sync::watch;
use tokio::task::JoinSet;
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
    /// No more: what is under way is left to the next mover.
    Stopped,
}

impl Mover {
    /// Tells hooks until the phase says that it is enough.
    pub(super) async fn tell_hooks(self: Arc<Self>, mut phase: watch::Receiver<HookPhase>) {
        let mut telling = JoinSet::new();
        loop {
            let now = *phase.borrow_and_update();
            if now == HookPhase::Stopped {
                while telling.join_next().await.is_some() {}
                return;
            }
            let has_room = telling.len() < TOLD_AT_A_TIME;
            if has_room {
                if let Some(taken) = self.take_notice().await {
                    telling.spawn(Arc::clone(&self).tell_hook(taken, phase.clone()));
                    continue;
                }
                if now == HookPhase::Finishing && telling.is_empty() {
                    return;
                }
            }
            tokio::select! {
                changed = phase.changed() => if changed.is_err() { return },
                Some(_) = telling.join_next() => {}
                () = sleep(LOOK_EVERY), if has_room => {}
                () = self.settled.notified(), if has_room => {}
            }
        }
    }

    /// The next notice for a hook of this host. A store that does not answer is told of by those
    /// who claim.
    async fn take_notice(&self) -> Option<TakenNotice> {
        let (keys, time) = (self.hooks.keys(), self.hooks.time_max() + SETTLED_WITHIN);
        let taker = ClaimId(random_id().ok()?);
        self.queue.transact(move |rows| take_notice(rows, &keys, (taker, time))).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "the queue was not asked for what hooks are told");
            None
        })
    }

    async fn tell_hook(self: Arc<Self>, taken: TakenNotice, mut phase: watch::Receiver<HookPhase>) {
        let key = &taken.notice.hook;
        let Some(hook) = self.hooks.get(key) else { return };
        let told = tokio::select! {
            told = hook.tell(&taken) => Some(told),
            _ = phase.wait_for(|phase| *phase == HookPhase::Stopped) => None,
        };
        let telling = match told {
            Some(Ok(())) => Telling::Told,
            None => Telling::HandedBack,
            Some(Err(failure)) => {
                self.observer.trouble(&failure.fault(key));
                let chance = random().map_or(0, u64::from_ne_bytes);
                Telling::Failed { words: failure.words().clone(), tries_max: hook.tries_max, chance }
            }
        };
        let notice = taken.notice.clone();
        if let Err(error) = self.queue.transact(move |rows| settle_notice(rows, &notice, &telling)).await {
            // It is told again, as whoever took it is not heard of.
            self.observer.trouble(&fault_of_jobs(&error));
        }
    }
}

/// Hooks that are told at a time.
const TOLD_AT_A_TIME: usize = 4;
/// The queue is looked at so often, besides whenever a shard was settled.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Behind the longest time of a hook another mover takes its notice after so much more.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
/// The longest time that hooks are told once all shards are settled.
pub(super) const FINISHING_MAX: Duration = Duration::from_secs(60);
