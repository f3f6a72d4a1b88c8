//! Owns the list of sessions by run, so that a client that dials again takes over from its own dead
//! session.
//!
//! In: the secret of a run, which shows the same 16 bytes each time it dials, and a client's key.
//! Out: a seat for its session, once the earlier session of that run and that key was stopped and
//! has let go of its files. It knows no files and no protocol.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::limits::TAKE_OVER_SECONDS_MAX;
use longhaul_core::{Blame, DatasetName, Fault, FaultCode, RelPath, hint};
use longhaul_net::PublicKey;
use tokio::sync::watch;

use super::orders::OrderPlaces;
use crate::api::{Stop, StopTrigger};
use crate::session::course::CommittedVersions;
use crate::session::idle::Activity;
use crate::session::rounds::SessionRounds;

/// A client's key, and the secret of its run.
type Name = (PublicKey, [u8; 16]);

/// The place of a dataset: its root, the path in it, and its name there.
pub(super) type DatasetPlace = (String, RelPath, DatasetName);

/// A dataset that has appeared, and when.
type PublishedDataset = (DatasetPlace, Instant);

/// The runs whose sessions live, and those that may come back. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Runs {
    live: Arc<Mutex<HashMap<Name, LiveRun>>>,
    /// The committed entries of runs whose last session was lost, the latest last.
    lost: Arc<Mutex<VecDeque<(Name, CommittedVersions)>>>,
    /// The datasets that runs have had appear, the latest last.
    published: Arc<Mutex<VecDeque<(Name, PublishedDataset)>>>,
    rounds: SessionRounds,
    orders: OrderPlaces,
}

/// A session that lives.
struct LiveRun {
    trigger: StopTrigger,
    /// Closed when the session has let go.
    ended: watch::Receiver<()>,
    /// The time since which nothing moved in it.
    activity: Activity,
    /// Whether it was told to make room, and has not gone yet.
    makes_room: bool,
}

/// The place of a session among the runs. It is dropped when the session has let go of everything.
pub(super) struct RunSeat {
    runs: Runs,
    name: Name,
    /// The name under which it is known what was committed.
    recalled: Name,
    trigger: StopTrigger,
    stop: Stop,
    alive: watch::Sender<()>,
    activity: Activity,
    /// The dataset that the run receives. `None`: each file appears when it is done.
    dataset: Option<DatasetPlace>,
}

impl Runs {
    /// The loops of the sessions.
    pub(super) fn rounds(&self) -> &SessionRounds {
        &self.rounds
    }

    /// The runs that clients have this daemon begin.
    pub(super) fn orders(&self) -> &OrderPlaces {
        &self.orders
    }

    /// Takes a place for another session of a run, once an earlier one has let go.
    ///
    /// # Errors
    /// [`FaultCode::Busy`] when that takes too long.
    pub(super) async fn take_over(&self, key: PublicKey, run: [u8; 16]) -> Result<RunSeat, Fault> {
        self.take_over_within(key, run, LET_GO_MAX).await
    }

    async fn take_over_within(&self, key: PublicKey, run: [u8; 16], patience: Duration) -> Result<RunSeat, Fault> {
        let name = (key, run);
        let until = Instant::now() + patience;
        loop {
            let mut gone = match self.enter(name) {
                Ok(place) => return Ok(place),
                Err(gone) => gone,
            };
            let left = until.saturating_duration_since(Instant::now());
            // The channel carries no values: it ends by being closed.
            if tokio::time::timeout(left, gone.changed()).await.is_err() {
                return Err(Fault::new(
                    FaultCode::Busy,
                    Blame::Local,
                    "an earlier session of the same command has not let go of its files yet",
                )
                .hint(hint::Again::Later));
            }
        }
    }

    /// A place, or the receiver that closes when the session that has it is gone. That session is
    /// stopped.
    fn enter(&self, name: Name) -> Result<RunSeat, watch::Receiver<()>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = live.get(&name) {
            // This code tells a session that its client is elsewhere.
            earlier.trigger.stop(FaultCode::Lost);
            return Err(earlier.ended.clone());
        }
        let (here, gone) = watch::channel(());
        let (trigger, stop) = Stop::new();
        let activity = Activity::new(Instant::now());
        let (its_trigger, its_activity) = (trigger.clone(), activity.clone());
        live.insert(name, LiveRun { trigger: its_trigger, ended: gone, activity: its_activity, makes_room: false });
        Ok(RunSeat { runs: self.clone(), name, recalled: name, trigger, stop, alive: here, activity, dataset: None })
    }

    /// Has a session end in favour of `newcomer`, which has none, and waits until it has let go. It
    /// is the session in which nothing moved for longest, of the client that has most. Returns
    /// false if there is none in which nothing moved for a while. One that does not let go soon is
    /// followed by the next one: its disk may hang for good.
    pub(super) async fn make_room(&self, newcomer: PublicKey) -> bool {
        for _ in 0..EVICTIONS_MAX {
            let Some((trigger, mut gone)) = self.most_idle(newcomer, Instant::now()) else { return false };
            trigger.stop(ROOM_NEEDED);
            // The channel carries no values: it ends by being closed.
            if tokio::time::timeout(LET_GO_MAX / EVICTIONS_MAX, gone.changed()).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// The session to end. It is chosen once: the next newcomer is given another.
    fn most_idle(&self, newcomer: PublicKey, now: Instant) -> Option<(StopTrigger, watch::Receiver<()>)> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count: HashMap<PublicKey, usize> = HashMap::new();
        // Sessions that are about to go do not count.
        let stay = live.iter().filter(|(_, session)| !session.makes_room);
        stay.for_each(|((key, _), _)| *count.entry(*key).or_default() += 1);
        let idle = |session: &LiveRun| now.saturating_duration_since(session.activity.since());
        let (_, session) = live
            .iter_mut()
            .filter(|((key, _), session)| *key != newcomer && !session.makes_room && idle(session) >= EVICTED_AFTER)
            .max_by_key(|((key, _), session)| (count.get(key).copied(), idle(session)))?;
        session.makes_room = true;
        Some((session.trigger.clone(), session.ended.clone()))
    }
}

impl RunSeat {
    /// The record in which the session shows since when nothing moved in it.
    pub(super) fn activity(&self) -> Activity {
        self.activity.clone()
    }

    /// The stop by which another session takes over.
    pub(super) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Ends the session when it is pulled.
    pub(super) fn trigger(&self) -> StopTrigger {
        self.trigger.clone()
    }

    /// Ends the session after this time, unless it has ended by then.
    pub(super) fn end_after(&self, time: Duration) {
        let (trigger, mut gone) = (self.trigger.clone(), self.alive.subscribe());
        tokio::spawn(async move {
            // The channel carries no values: it ends by being closed.
            if tokio::time::timeout(time, gone.changed()).await.is_err() {
                trigger.stop(FaultCode::TimedOut);
            }
        });
    }

    /// Has sessions of other runs of its client go on where this one ends, if they have this name
    /// too: a shard that outlasts a grant goes on by another one, in a run of its own.
    pub(super) fn recall_by(&mut self, name: [u8; 16]) {
        self.recalled = (self.name.0, name);
    }

    /// The entries that earlier sessions of the run committed, of which its sender may not have
    /// heard.
    pub(super) fn committed_before(&self) -> CommittedVersions {
        let mut lost = self.runs.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let at = lost.iter().position(|(name, _)| *name == self.recalled);
        at.and_then(|at| lost.remove(at)).map(|(_, committed)| committed).unwrap_or_default()
    }

    /// Records that the session is lost: the run may come back.
    pub(super) fn remember(&self, committed: CommittedVersions) {
        if committed.is_empty() {
            return;
        }
        let mut lost = self.runs.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.len() >= LOST_MAX {
            forget_one(&mut lost);
        }
        lost.push_back((self.recalled, committed));
    }

    /// Begins to receive a dataset, unless an earlier session of the run has had it appear: its
    /// client may not have heard so.
    ///
    /// # Errors
    /// [`FaultCode::Published`] if one has.
    pub(super) fn stages(&mut self, dataset: DatasetPlace) -> Result<(), Fault> {
        let mut published = self.runs.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.retain(|(_, (_, at))| at.elapsed() < PUBLISHED_FOR);
        if published.iter().any(|(name, (place, _))| *name == self.name && *place == dataset) {
            let name = dataset.2.escaped();
            let why = format_args!("an earlier session of the same command has had dataset '{name}' appear");
            return Err(Fault::new(FaultCode::Published, Blame::Local, why).about(name));
        }
        self.dataset = Some(dataset);
        Ok(())
    }

    /// Records that the dataset has appeared.
    pub(super) fn has_published(&self) {
        let Some(dataset) = self.dataset.clone() else { return };
        let mut published = self.runs.published.lock().unwrap_or_else(PoisonError::into_inner);
        if published.len() >= PUBLISHED_MAX {
            forget_one(&mut published);
        }
        published.push_back((self.name, (dataset, Instant::now())));
    }
}

/// Forgets the oldest run of the client key that has most.
fn forget_one<T>(lost: &mut VecDeque<(Name, T)>) {
    let mut count: HashMap<PublicKey, usize> = HashMap::new();
    lost.iter().for_each(|((key, _), _)| *count.entry(*key).or_default() += 1);
    let most = count.values().max().copied();
    let oldest = lost.iter().position(|((key, _), _)| count.get(key).copied() == most);
    drop(oldest.and_then(|at| lost.remove(at)));
}

impl Drop for RunSeat {
    fn drop(&mut self) {
        self.runs.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// Runs that may come back whose committed entries are remembered. Most take some hundred KiB. One
/// that is broken off again and again has half a MiB of its last session and 4.5 MiB of those
/// before it, so all take 320 MiB at the very most.
const LOST_MAX: usize = 64;
/// Datasets that have appeared and are remembered, at some KiB each.
const PUBLISHED_MAX: usize = 1024;
/// A client that lost its connection comes back within this, or not at all.
const PUBLISHED_FOR: Duration = Duration::from_secs(3600);
/// The code that tells a session that its place is needed. It has no other use at a daemon's
/// session.
const ROOM_NEEDED: FaultCode = FaultCode::Unreachable;
/// A session in which nothing moved for this long makes room for a client that has none. A slow
/// path's pauses are shorter.
const EVICTED_AFTER: Duration = Duration::from_secs(30);
/// Sessions that are told to make room for one newcomer, one after the other.
const EVICTIONS_MAX: u32 = 3;
/// How long a stopped session may take for the work of its disk.
const LET_GO_MAX: Duration = Duration::from_secs(TAKE_OVER_SECONDS_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::course::ReceiveCourse;
    use crate::session::idle::{Doings, Idle};
    use longhaul_net::Identity;
    use longhaul_proto::wire::message::Outcome;

    fn key() -> PublicKey {
        Identity::generate().expect("a key").public()
    }

    #[tokio::test]
    async fn a_newcomer_stops_its_runs_earlier_session_and_waits_until_it_has_let_go() {
        let (runs, key) = (Runs::default(), key());
        let first = runs.take_over(key, [1; 16]).await.expect("nobody is there");
        let mut stop = first.stop();
        let holder = tokio::spawn(async move {
            let code = stop.stopped().await;
            drop(first);
            code
        });
        let second = runs.take_over(key, [1; 16]).await.expect("it lets go");
        assert_eq!(holder.await.expect("no panic"), FaultCode::Lost);
        drop(second);
        assert!(runs.live.lock().expect("no panic").is_empty());
    }

    fn entry() -> longhaul_core::Entry {
        longhaul_core::Entry {
            path: longhaul_core::RelPath::new("f").expect("a path"),
            kind: longhaul_core::EntryKind::Symlink { target: b"x".to_vec() },
            meta: longhaul_core::Meta::default(),
        }
    }

    fn committed() -> CommittedVersions {
        let mut course = ReceiveCourse::default();
        course.settled(&entry(), &Outcome::Committed(None));
        course.committed
    }

    #[tokio::test]
    async fn what_a_lost_session_committed_is_known_to_the_next_one_of_its_run_alone() {
        let (runs, key, entry) = (Runs::default(), key(), entry());
        let first = runs.take_over(key, [1; 16]).await.expect("nobody is there");
        first.remember(committed());
        drop(first);
        let known = |committed| {
            let mut course = ReceiveCourse::after(committed);
            course.begin();
            course.committed.before()(&entry)
        };
        let other = runs.take_over(key, [2; 16]).await.expect("another run");
        assert!(!known(other.committed_before()));
        let second = runs.take_over(key, [1; 16]).await.expect("it has let go");
        assert!(known(second.committed_before()));
    }

    #[tokio::test]
    async fn what_was_committed_by_one_grant_of_a_claim_is_known_by_the_next_one_of_that_claim_alone() {
        let (runs, owner, entry) = (Runs::default(), key(), entry());
        let seat = async |owner, run, claim| {
            let mut seat = runs.take_over(owner, [run; 16]).await.expect("nobody is there");
            seat.recall_by([claim; 16]);
            seat
        };
        seat(owner, 1, 7).await.remember(committed());
        let known = |seat: RunSeat| {
            let mut course = ReceiveCourse::after(seat.committed_before());
            course.begin();
            course.committed.before()(&entry)
        };
        assert!(!known(seat(owner, 2, 8).await), "another claim");
        assert!(!known(seat(key(), 2, 7).await), "another client");
        assert!(!known(runs.take_over(owner, [1; 16]).await.expect("nobody is there")), "a run without a claim");
        assert!(known(seat(owner, 2, 7).await));
    }

    #[tokio::test]
    async fn a_run_is_told_that_it_has_had_its_dataset_appear_and_no_other_run_is() {
        let (runs, key) = (Runs::default(), key());
        let dataset = |name: &str| {
            ("data".to_owned(), RelPath::new("in").expect("a path"), DatasetName::new(name).expect("a name"))
        };
        let mut first = runs.take_over(key, [1; 16]).await.expect("nobody is there");
        first.stages(dataset("run-7")).expect("nothing has appeared");
        drop(first);
        let mut second = runs.take_over(key, [1; 16]).await.expect("it has let go");
        second.stages(dataset("run-7")).expect("the first was lost before it did");
        second.has_published();
        drop(second);
        let mut other = runs.take_over(key, [2; 16]).await.expect("another run");
        other.stages(dataset("run-7")).expect("it is none of its own");
        let mut third = runs.take_over(key, [1; 16]).await.expect("it has let go");
        assert_eq!(third.stages(dataset("run-7")).map_err(|fault| fault.code), Err(FaultCode::Published));
        third.stages(dataset("run-8")).expect("another dataset");
        for run in 0..2 * PUBLISHED_MAX {
            let mut secret = [9; 16];
            secret[..8].copy_from_slice(&run.to_le_bytes());
            let mut seat = runs.take_over(key, secret).await.expect("nobody is there");
            seat.stages(dataset("run-7")).expect("nothing has appeared");
            seat.has_published();
        }
        assert_eq!(runs.published.lock().expect("no panic").len(), PUBLISHED_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_whose_time_is_over_is_stopped_and_one_that_has_gone_is_not() {
        let (runs, key) = (Runs::default(), key());
        let place = runs.take_over(key, [1; 16]).await.expect("nobody is there");
        place.end_after(Duration::from_secs(9));
        assert_eq!(place.stop().stopped().await, FaultCode::TimedOut);
        drop(place);
        let place = runs.take_over(key, [1; 16]).await.expect("nobody is there");
        let mut stop = place.stop();
        place.end_after(Duration::from_secs(9));
        drop(place);
        assert!(tokio::time::timeout(Duration::from_secs(99), stop.stopped()).await.is_err());
    }

    #[tokio::test]
    async fn the_most_idle_session_of_whoever_has_most_makes_room() {
        let (runs, greedy, modest, newcomer) = (Runs::default(), key(), key(), key());
        let mut places = Vec::new();
        for (key, run) in [(modest, 1), (greedy, 2), (greedy, 3)] {
            places.push(runs.take_over(key, [run; 16]).await.expect("nobody is there"));
        }
        let now = Instant::now();
        assert!(runs.most_idle(newcomer, now + EVICTED_AFTER / 2).is_none(), "all may be at something");
        let later = now + 2 * EVICTED_AFTER;
        // A session that moves is left alone, and so is a client with fewer, though it is idle for
        // longest.
        let moves_at = |place: &RunSeat, at| {
            Idle::new(None, place.activity()).look(at, Doings { moved: 1, at_work: false, peer_stalls: false })
        };
        moves_at(&places[1], later);
        moves_at(&places[2], now + EVICTED_AFTER / 2);
        let (trigger, _) = runs.most_idle(newcomer, later).expect("one is idle");
        trigger.stop(ROOM_NEEDED);
        let stopped = tokio::time::timeout(Duration::ZERO, places[2].stop().stopped()).await;
        assert_eq!(stopped.ok(), Some(ROOM_NEEDED));
        assert!(runs.most_idle(greedy, later).is_some(), "the other's is idle too");
        assert!(runs.most_idle(newcomer, later).is_none(), "both are told already");
        drop(places);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_does_not_let_go_is_followed_by_the_next_one() {
        let (runs, owner) = (Runs::default(), key());
        let long_ago = Instant::now().checked_sub(2 * EVICTED_AFTER).expect("the machine runs for longer");
        let hung = runs.take_over(owner, [1; 16]).await.expect("nobody is there");
        let other = runs.take_over(owner, [2; 16]).await.expect("nobody is there");
        for (place, at) in [(&hung, long_ago), (&other, long_ago + EVICTED_AFTER / 2)] {
            let doings = Doings { moved: 1, at_work: false, peer_stalls: false };
            Idle::new(None, place.activity()).look(at, doings);
        }
        let lets_go = tokio::spawn(async move {
            let code = other.stop().stopped().await;
            drop(other);
            code
        });
        assert!(runs.make_room(key()).await);
        assert_eq!(lets_go.await.expect("no panic"), ROOM_NEEDED);
        assert!(!runs.make_room(key()).await, "it hangs still, and is not waited for again");
    }

    #[tokio::test]
    async fn runs_that_one_key_aborts_push_out_no_other_keys_memory() {
        let (runs, modest, greedy) = (Runs::default(), key(), key());
        let place = |key, run: u8| {
            let runs = runs.clone();
            async move { runs.take_over(key, [run; 16]).await.expect("nobody is there") }
        };
        place(modest, 1).await.remember(committed());
        for run in 1..=200 {
            place(greedy, run).await.remember(CommittedVersions::default());
        }
        assert_eq!(runs.lost.lock().expect("no panic").len(), 1, "nothing is nothing to remember");
        for run in 1..=200 {
            place(greedy, run).await.remember(committed());
        }
        assert_eq!(runs.lost.lock().expect("no panic").len(), LOST_MAX);
        assert!(!place(modest, 1).await.committed_before().is_empty());
        assert!(place(greedy, 1).await.committed_before().is_empty(), "its oldest is forgotten");
    }

    #[tokio::test]
    async fn other_runs_and_other_keys_are_left_alone() {
        let (runs, key, other) = (Runs::default(), key(), key());
        let first = runs.take_over(key, [1; 16]).await.expect("nobody is there");
        let _second = runs.take_over(key, [2; 16]).await.expect("another run");
        let _third = runs.take_over(other, [1; 16]).await.expect("another key");
        let stopped = tokio::time::timeout(Duration::ZERO, first.stop().stopped()).await;
        assert!(stopped.is_err());
    }

    #[tokio::test]
    async fn a_session_that_does_not_let_go_keeps_the_newcomer_out() {
        let (runs, key) = (Runs::default(), key());
        let _first = runs.take_over(key, [1; 16]).await.expect("nobody is there");
        let refused = runs.take_over_within(key, [1; 16], Duration::from_millis(20)).await;
        assert_eq!(refused.map(drop).map_err(|fault| fault.code), Err(FaultCode::Busy));
    }
}
