//! Tests of followers: what clients are told that read fast, slowly or not at all, and how orders
//! go on with them.

use longhaul_core::{RelPath, Sums};
use longhaul_net::PublicKey;
use longhaul_proto::wire::message::OrderVerdict;
use tokio::io::AsyncReadExt;

use super::*;
use crate::api::{FileEvent, FileStatus, OwnFacts};
use crate::daemon::shares::ClientShares;
use crate::session::channel::write_message;
use crate::session::outbox::Queue;

const ID: [u8; 16] = [9; 16];

fn end() -> OrderEnd {
    OrderEnd {
        verdict: OrderVerdict::Complete,
        files: Default::default(),
        bytes: Default::default(),
        failures: Vec::new(),
        scanned: true,
        millis: 0,
        limits: Vec::new(),
    }
}

/// An order with the two ends of its client.
fn followed(takes: usize) -> (Follower, ReadHalf, WriteHalf) {
    following(takes, FollowerNeeds::Failures)
}

fn following(takes: usize, needs: FollowerNeeds) -> (Follower, ReadHalf, WriteHalf) {
    following_within(takes, needs, 1 << 30)
}

/// The same at a daemon with so many bytes of memory.
fn following_within(takes: usize, needs: FollowerNeeds, memory: u64) -> (Follower, ReadHalf, WriteHalf) {
    let ((near, far), (hears, says)) = (tokio::io::duplex(takes), tokio::io::duplex(4096));
    let share = ClientShares::whole("bytes of memory", memory).claim(PublicKey::from_bytes([1; 32]), 0);
    let claim = FollowerClaim::new(share.expect("there is room"), FOLLOWER_BYTES);
    (Follower::begin((Box::new(hears), Box::new(near)), ID, (needs, claim)), Box::new(far), Box::new(says))
}

fn settled(name: u64, status: FileStatus) -> Event {
    settled_at(RelPath::new(name.to_string()).expect("a path"), status)
}

/// A name of nearly 4 KiB that failed, with a reason as long.
fn failed_at_length(name: u64) -> Event {
    let path = RelPath::new(format!("{}{name}", format!("{}/", "x".repeat(199)).repeat(19))).expect("a path");
    let why = format!("'{}' cannot be read", path.escaped());
    let fault = Fault::new(FaultCode::Io, Blame::Local, why).about(path.escaped());
    settled_at(path, FileStatus::Failed(fault))
}

fn settled_at(path: RelPath, status: FileStatus) -> Event {
    Event::File(FileEvent {
        placed: path.clone(),
        path,
        status,
        bytes: 1,
        b3: None,
        regular: true,
        renamed: false,
        own: OwnFacts::default(),
        sums: Sums::default(),
    })
}

/// The names, the failures among them, and the number of those unheard, of which a client is
/// told before the end, if it reads a message after each pause.
async fn heard(mut reader: ReadHalf, pause: Duration) -> (u64, u64, u64) {
    let (mut names, mut failed, mut unheard) = (0, 0, 0);
    loop {
        tokio::time::sleep(pause).await;
        match read_message(&mut reader).await.expect("messages") {
            Some(Message::OrderEvents(events)) => events.iter().for_each(|event| match event {
                OrderEvent::Settled(_) => {
                    names += 1;
                    failed += u64::from(!did_well(event));
                }
                OrderEvent::Unheard(count) => unheard += count,
                _ => {}
            }),
            Some(Message::OrderTaken(_)) => {}
            Some(Message::OrderEnded(_)) => return (names, failed, unheard),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_is_told_of_each_failure_and_how_many_other_names_there_were() {
    let (follower, reader, _writer) = followed(4096);
    let fault = Fault::new(FaultCode::Io, Blame::Local, "x");
    for name in 0..40_000 {
        let status = if name % 100 == 99 { FileStatus::Failed(fault.clone()) } else { FileStatus::Committed };
        follower.told().event(settled(name, status));
    }
    assert!(follower.too_full().is_none());
    let ((names, failed, unheard), ()) = tokio::join!(heard(reader, Duration::ZERO), follower.end(end()));
    assert_eq!((names + unheard, failed), (40_000, 400));
    assert!(unheard > 10_000, "{unheard}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_must_hear_each_name_and_cannot_is_told_the_end_and_why() {
    let (follower, reader, _writer) = following(4096, FollowerNeeds::Each);
    (0..60_000).for_each(|name| follower.told().event(settled(name, FileStatus::Committed)));
    assert_eq!(timeout(TAKEN_IN_WITHIN, follower.stop().stopped()).await, Ok(FaultCode::TimedOut));
    assert_eq!(follower.too_full().map(|fault| fault.code), Some(FaultCode::TimedOut));
    assert!(!follower.has_left());
    let ((_, _, unheard), ()) = tokio::join!(heard(reader, Duration::ZERO), follower.end(end()));
    assert_eq!(unheard, 0);
}

#[tokio::test(start_paused = true)]
async fn names_that_wait_at_the_end_of_an_order_do_not_keep_its_end_from_a_slow_client() {
    let (follower, reader, _writer) = followed(4096);
    (0..2000).for_each(|name| follower.told().event(settled(name, FileStatus::Committed)));
    let slowly = TAKEN_IN_WITHIN / 4;
    let ((names, _, unheard), ()) = tokio::join!(heard(reader, slowly), follower.end(end()));
    assert_eq!(names + unheard, 2000);
    assert!(unheard > 500, "{unheard}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_in_nothing_is_let_go_at_the_end_of_its_order() {
    let (follower, mut reader, _writer) = followed(8);
    timeout(TAKEN_IN_WITHIN * 3, follower.end(end())).await.expect("it is not waited for");
    let mut told = Vec::new();
    timeout(TAKEN_IN_WITHIN, reader.read_to_end(&mut told))
        .await
        .expect("its connection is closed")
        .expect("in memory");
    assert!(told.len() <= 8, "nothing is written any more: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_lost_stops_its_order_and_one_that_leaves_does_not() {
    let (follower, reader, writer) = followed(4096);
    drop((reader, writer));
    assert_eq!(timeout(TAKEN_IN_WITHIN, follower.stop().stopped()).await, Ok(FaultCode::Lost));
    let (follower, mut reader, mut writer) = followed(4096);
    write_message(&mut writer, &Message::OrderLeft(OrderLeft { id: ID })).await.expect("said");
    let taken = Message::OrderTaken(OrderTaken { id: ID });
    assert_eq!(read_message(&mut reader).await, Ok(Some(taken)));
    while read_message(&mut reader).await.expect("messages") != Some(Message::OrderLeft(OrderLeft { id: ID })) {}
    drop((reader, writer));
    assert!(follower.has_left());
    assert!(timeout(TAKEN_IN_WITHIN, follower.stop().stopped()).await.is_err(), "it goes on");
    let (follower, _reader, mut writer) = followed(4096);
    write_message(&mut writer, &Message::OrderLeft(OrderLeft { id: [1; 16] })).await.expect("said");
    assert_eq!(timeout(TAKEN_IN_WITHIN, follower.stop().stopped()).await, Ok(FaultCode::Protocol), "another's name");
}

#[tokio::test(start_paused = true)]
async fn work_waits_for_a_slow_client_that_must_hear_of_many_failures_with_long_names() {
    for needs in [FollowerNeeds::Failures, FollowerNeeds::Each] {
        let (follower, reader, _writer) = following(64 << 10, needs);
        let told = follower.told();
        let work = async {
            for name in 0..2000 {
                told.event(failed_at_length(name));
                assert!(told.lock().bytes <= ROOMS_BEYOND * FOLLOWER_BYTES);
                if name % 64 == 63 {
                    tokio::task::yield_now().await;
                }
            }
        };
        let carried = async {
            told.paced(follower.stop(), work).await;
            assert!(follower.too_full().is_none());
            follower.end(end()).await;
        };
        let slowly = TAKEN_IN_WITHIN / 3;
        let ((names, failed, unheard), ()) = tokio::join!(heard(reader, slowly), carried);
        assert_eq!((names, failed, unheard), (2000, 2000, 0), "{needs:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_a_message_each_25_s_is_kept_and_its_session_says_that_it_is_held_up() {
    let (follower, reader, _writer) = following(4096, FollowerNeeds::Each);
    let (told, queue) = (follower.told(), Arc::<Queue>::default());
    told.set_session(Some(Holdup::of(queue.clone())));
    let work = async {
        for name in 0..100 {
            told.event(failed_at_length(name));
            if name % 32 == 31 {
                tokio::task::yield_now().await;
            }
        }
    };
    let carried = async {
        told.paced(follower.stop(), work).await;
        assert!(queue.gauge().waiting > 0, "a sign of life");
        follower.end(end()).await;
    };
    let ((names, failed, unheard), ()) = tokio::join!(heard(reader, Duration::from_secs(25)), carried);
    assert_eq!((names, failed, unheard), (100, 100, 0));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_in_nothing_for_a_minute_ends_its_order() {
    let (follower, _reader, _writer) = followed(8);
    let stopped = timeout(TAKEN_IN_WITHIN + FOLLOWER_HEARS_EVERY, follower.stop().stopped()).await;
    assert_eq!(stopped, Ok(FaultCode::TimedOut));
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_is_dropped_lets_its_connection_and_its_events_go() {
    let (follower, mut reader, _writer) = followed(8);
    let told = follower.told();
    tokio::task::yield_now().await;
    drop(follower);
    timeout(FOLLOWER_HEARS_EVERY, reader.read_to_end(&mut Vec::new())).await.expect("closed").expect("in memory");
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&told), 1, "nobody else has them");
}

#[tokio::test(start_paused = true)]
async fn what_waits_beyond_the_room_is_the_daemons_memory_and_ends_the_order_where_there_is_none() {
    let over = |memory| {
        let (follower, _reader, _writer) = following_within(4096, FollowerNeeds::Each, memory);
        (0..30_000).for_each(|name| follower.told().event(settled(name, FileStatus::Committed)));
        follower.too_full().map(|fault| fault.code)
    };
    assert_eq!([1 << 20, 16 << 20].map(over), [Some(FaultCode::Busy), None], "that is not the client's fault");
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_told_in_short_before_an_order_ends_for_want_of_memory() {
    let (follower, _reader, _writer) = following_within(4096, FollowerNeeds::Each, 64 << 10);
    // Each has 16 KiB, and half of that in short.
    (0..480).for_each(|name| follower.told().event(failed_at_length(name)));
    assert!(follower.too_full().is_none());
    let told = follower.told();
    let queue = told.lock();
    assert!(queue.waiting.len() == 480 && queue.bytes <= FOLLOWER_BYTES + (64 << 10), "{}", queue.bytes);
}

#[tokio::test(start_paused = true)]
async fn failures_beyond_the_room_are_told_in_short() {
    let (follower, mut reader, _writer) = followed(64 << 10);
    (0..600).for_each(|name| follower.told().event(failed_at_length(name)));
    assert!(follower.too_full().is_none());
    let hearing = async {
        let (mut whole, mut short) = (0, 0);
        loop {
            match read_message(&mut reader).await.expect("messages") {
                Some(Message::OrderEvents(events)) => events.iter().for_each(|event| {
                    let OrderEvent::Settled(file) = event else { panic!("{event:?}") };
                    let OrderOutcome::Failed(fault) = &file.outcome else { panic!("{file:?}") };
                    assert_eq!(fault.code, FaultCode::Io);
                    *(if fault.message == *REASON_LEFT_OUT { &mut short } else { &mut whole }) += 1;
                }),
                Some(Message::OrderEnded(_)) => return (whole, short),
                _ => {}
            }
        }
    };
    let ((whole, short), ()) = tokio::join!(hearing, follower.end(end()));
    assert!(whole + short == 600 && whole > 200 && short > 200, "{whole} {short}");
}

#[tokio::test(start_paused = true)]
async fn work_that_waits_goes_on_when_it_is_stopped_and_when_its_client_is_gone() {
    for is_stopped in [true, false] {
        let (follower, reader, writer) = followed(8);
        let told = follower.told();
        let work = async {
            (0..300).for_each(|name| told.event(failed_at_length(name)));
            tokio::task::yield_now().await;
        };
        let ends = async {
            tokio::task::yield_now().await;
            match is_stopped {
                true => follower.trigger().stop(FaultCode::Terminated),
                false => drop((reader, writer)),
            }
        };
        let both = async { tokio::join!(told.paced(follower.stop(), work), ends) };
        timeout(TAKEN_IN_WITHIN / 2, both).await.expect("it does not wait any more");
    }
}
