//! Orders that are carried out while nobody listens any more, and conversations without orders.

use longhaul_core::Rights;

use super::super::live::tests::daemon;
use super::super::shares::Full;
use super::*;

/// A time at which a conversation without orders was idle for long.
fn long_ago() -> Instant {
    Instant::now().checked_sub(Duration::from_secs(40)).expect("the machine runs for longer")
}

/// A daemon with one place for a session, and its client with that right.
fn served(dir: &std::path::Path) -> Arc<Daemon> {
    served_until(dir, Stop::new().1)
}

/// The same until this stop.
fn served_until(dir: &std::path::Path, stop: Stop) -> Arc<Daemon> {
    let rights = Rights { read: true, delete: true, ..Rights::default() };
    Arc::new(Daemon { stop, ..daemon(dir, Some(rights), rights) })
}

async fn admitted(daemon: &Arc<Daemon>) -> Removal {
    let removal = admit(daemon, ([127, 0, 0, 1], 1).into(), &daemon.config.clients[0], ("data", RelPath::root()));
    removal.await.unwrap_or_else(|fault| panic!("{fault}"))
}

#[tokio::test]
async fn a_removal_in_which_nothing_is_asked_for_makes_room_for_another_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = served(dir.path());
    let removal = admitted(&daemon).await;
    let newcomer = PublicKey::from_bytes([77; 32]);
    assert_eq!(daemon.sessions.claim(newcomer, 1).err(), Some(Full::Daemon));
    let refused = session_place(&daemon, newcomer).await;
    assert_eq!(refused.err().map(|fault| fault.code), Some(FaultCode::Busy), "it may be at something");
    removal.holds.run.activity().set(long_ago());
    let mut stop = removal.mover.stop.clone();
    let ends = async {
        let code = stop.stopped().await;
        drop(removal);
        code
    };
    let (place, code) = tokio::join!(session_place(&daemon, newcomer), ends);
    assert!(place.is_ok());
    assert_eq!(stopped(code).code, FaultCode::Busy, "its client begins anew");
}

#[tokio::test]
async fn a_removal_that_is_kicked_or_whose_daemon_ends_hears_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = served(dir.path());
    let removal = admitted(&daemon).await;
    removal.trigger.stop(crate::api::KICKED);
    assert_eq!(removal.mover.stop.clone().stopped().await, crate::api::KICKED);
    let other = tempfile::tempdir().expect("a directory");
    let (trigger, stop) = Stop::new();
    let daemon = served_until(other.path(), stop);
    let removal = admitted(&daemon).await;
    trigger.stop(FaultCode::Terminated);
    assert_eq!(removal.mover.stop.clone().stopped().await, FaultCode::Terminated);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_taken_shows_that_a_removal_is_at_work() {
    let (near, _far) = tokio::io::duplex(4096);
    let (mut counts, mut writer): (Counts, WriteHalf) = (Counts::default(), Box::new(near));
    let before = long_ago();
    let activity = Activity::new(before);
    let (shown, writer) = (activity.clone(), &mut writer);
    let mut orders = RemovalOrders { mover: None, counts: &mut counts, activity, writer };
    let work = async {
        tokio::time::sleep(2 * SAY_EVERY).await;
        Ok(())
    };
    let (_, said) = orders.while_it_works(work, &Stop::new().0).await;
    assert!(said.is_ok() && shown.since() > before, "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_done_is_known_also_if_the_client_left_in_the_middle_and_the_rest_is_told_to_end() {
    let (near, far) = tokio::io::duplex(64);
    drop(far);
    let (mut counts, mut writer): (Counts, WriteHalf) = (Counts::default(), Box::new(near));
    let activity = Activity::new(Instant::now());
    let mut orders = RemovalOrders { mover: None, counts: &mut counts, activity, writer: &mut writer };
    let (unheard, mut stop) = Stop::new();
    let work = async move { Ok(stop.stopped().await) };
    let (done, said) = orders.while_it_works(work, &unheard).await;
    assert_eq!(done, Ok(FaultCode::Lost), "what the work has is given");
    assert!(said.is_err(), "and that nobody heard of it");
}

#[test]
fn an_order_about_one_name_twice_is_none_where_each_look_may_take_long() {
    let name = |name: &str| RelPath::new(name).expect("a path");
    assert!(need_sound(&RemovalOrder::Look(vec![name("a"), name("b")])).is_ok());
    let fault = need_sound(&RemovalOrder::Look(vec![name("a"), name("b"), name("a")])).expect_err("twice");
    assert_eq!(fault.code, FaultCode::Protocol);
}
