//! Tests of the manners of one side: when they hold, which paths count, and what connections are
//! told.

use super::*;

#[test]
fn a_connection_may_use_more_than_its_part_where_an_account_keeps_the_sum() {
    assert_eq!(divide(Some(400), 4, SumKeeper::Account), Some(150));
    assert_eq!(divide(Some(400), 1, SumKeeper::Account), Some(600));
    assert_eq!(divide(Some(400), 4, SumKeeper::Nobody), Some(110));
    assert_eq!(divide(None, 4, SumKeeper::Account), None);
}

#[test]
fn lanes_lack_work_only_while_the_rate_of_all_is_not_used_up() {
    let seen = |is_asked| AccountSeen { is_asked, ..AccountSeen::default() };
    assert_eq!(seen(false).lacking(0.3, 0.0), 0.0, "the others make good what one leaves");
    assert_eq!(seen(false).lacking(0.3, 0.5), 0.3);
    assert_eq!(seen(false).lacking(0.0, 0.5), 0.0, "the path takes no more");
    assert_eq!(seen(true).lacking(0.0, 0.05), 1.0, "a lower rate was asked for");
    assert_eq!(seen(true).lacking(0.0, 0.5), 0.0, "it is more than the path takes");
}

#[test]
fn a_receiver_and_whoever_takes_all_keep_no_rate() {
    for (role, share) in [(Role::Receiver, PathShare::Fair), (Role::Sender, PathShare::All)] {
        let manners = LaneManners::new(role, share, PathPast::default());
        assert!(!manners.keeps && manners.look_at().is_none() && !manners.is_full(), "{role:?}");
    }
    assert!(LaneManners::new(Role::Sender, PathShare::Polite, PathPast::default()).keeps);
}

#[test]
fn a_path_of_lanes_over_quic_breaks_only_where_the_other_side_can_go_back_to_tcp() {
    for keeps_quic in [false, true] {
        let changes = TransportChanges { keeps_quic, ..TransportChanges::default() };
        let mut manners = LaneManners::new(Role::Sender, PathShare::Fair, PathPast::default()).within(changes);
        manners.break_quic();
        assert_eq!(manners.is_broken(), !keeps_quic);
    }
}

#[test]
fn a_path_counts_only_while_lanes_stand_on_it_and_is_forgotten_a_minute_after() {
    let (stream, _other) = LaneStream::pair().expect("a pair");
    let (handle, start) = (stream.handle(), Instant::now());
    let mut manners = LaneManners::new(Role::Sender, PathShare::Fair, PathPast::default());
    let met = |id| LaneMet { id: LaneId(id), handle: &handle, idle: Duration::ZERO };
    let (ends, none) = (|interface| (Some(interface), None), AccountSeen::default());
    manners.joined_path(LaneId(1), ends(1), start);
    manners.joined_path(LaneId(2), ends(2), start);
    let at = |seconds| start + Duration::from_secs(seconds);
    manners.look(at(1), [met(1), met(2)].into_iter(), none);
    assert_eq!(manners.standing().count(), 2);
    manners.look(at(2), [met(2)].into_iter(), none);
    assert_eq!((manners.standing().count(), manners.paths.len(), manners.path_of.len()), (1, 2, 1));
    manners.joined_path(LaneId(3), ends(1), at(30));
    manners.look(at(31), [met(2), met(3)].into_iter(), none);
    assert_eq!((manners.standing().count(), manners.paths.len()), (2, 2), "it is the same path again");
    manners.look(at(32), [met(2)].into_iter(), none);
    manners.look(at(93), [met(2)].into_iter(), none);
    assert_eq!(manners.paths.len(), 1);
    manners.look(at(94), std::iter::empty(), none);
    assert!(manners.rate().is_none() && !manners.is_full() && manners.standing().next().is_none());
}

#[test]
fn a_connection_is_told_a_pace_that_differs_by_more_than_a_twentieth() {
    for (told, pace, want) in [
        (None, None, false),
        (None, Some(100), true),
        (Some(100), Some(105), false),
        (Some(100), Some(106), true),
        (Some(100), Some(94), true),
        (Some(100), None, true),
    ] {
        assert_eq!(is_news(told, pace), want, "{told:?} {pace:?}");
    }
}

#[test]
fn the_time_in_which_a_lane_could_send_nothing_is_that_without_work_or_without_room_there() {
    let look = |idle, receiver| {
        let mut look = LaneLook { idle: Duration::from_millis(idle), ..LaneLook::default() };
        look.counters.waits.receiver = Duration::from_millis(receiver);
        look
    };
    assert_eq!(look(30, 50).idle_since(&look(10, 40)), Duration::from_millis(20));
    assert_eq!(look(30, 70).idle_since(&look(10, 40)), Duration::from_millis(30));
}
