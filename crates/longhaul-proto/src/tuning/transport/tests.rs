//! Paths on which TCP and another transport are played second by second.

use super::*;

/// A path on which TCP delivers `tcp` MB/s.
#[derive(Clone, Copy)]
struct PlayedPath {
    rival: Rival,
    hindered: bool,
    tcp: u64,
    /// MB/s that lanes over the rival deliver beside TCP, from the second after they are asked
    /// for. `None`: they never join.
    beside: Option<u64>,
    /// MB/s that they deliver alone.
    alone: u64,
    remaining: Option<u64>,
}

const PATH: PlayedPath =
    PlayedPath { rival: Rival::Quic, hindered: true, tcp: 5, beside: Some(110), alone: 110, remaining: None };

fn play(path: PlayedPath) -> Vec<(u64, String)> {
    let (mut choice, mut told) = (Choice::new([path.rival]), Vec::new());
    let (mut asked, mut is_alone) = (None, false);
    for second in 1..=40 {
        let stands = asked.is_some_and(|at| second > at) && path.beside.is_some();
        let other = if is_alone { path.alone } else { path.beside.unwrap_or(0) };
        let carried = Carried {
            elapsed: Duration::from_secs(1),
            tcp: if is_alone { 0 } else { path.tcp * 1_000_000 },
            rival: if stands { other * 1_000_000 } else { 0 },
            rival_lanes: if stands { path.rival.lanes() } else { 0 },
            rtt: Duration::from_millis(100),
            hindered: path.hindered,
            by_network: true,
            remaining: path.remaining,
            ..Carried::default()
        };
        let Some(decision) = choice.second(&carried) else { continue };
        let (what, why) = match decision {
            TransportDecision::Try(rival, why) => {
                asked = Some(second);
                (format!("try {}", rival.lanes()), why)
            }
            TransportDecision::Keep(_, alone, why) => {
                is_alone = alone;
                ((if alone { "keep alone" } else { "keep both" }).to_owned(), why)
            }
            TransportDecision::Drop(_, why) => {
                asked = None;
                ("drop".to_owned(), why)
            }
            TransportDecision::Abandon(_, why) => {
                asked = None;
                ("abandon".to_owned(), why)
            }
            TransportDecision::Return(_, why) => {
                (asked, is_alone) = (None, false);
                ("return".to_owned(), why)
            }
        };
        told.push((second, format!("{what}: {why}")));
    }
    told
}

#[test]
fn a_path_that_tcp_fills_is_left_alone() {
    assert_eq!(play(PlayedPath { hindered: false, tcp: 110, ..PATH }), []);
}

#[test]
fn where_loss_holds_tcp_back_quic_takes_over() {
    let want = [
        (3, "try 4: the network limits at 5.0 MB/s".to_owned()),
        (9, "keep alone: lanes over QUIC carry more: 5.0 MB/s before, 115.0 with them".to_owned()),
    ];
    assert_eq!(play(PATH), want);
}

#[test]
fn both_stay_where_each_carries_its_part() {
    let told = play(PlayedPath { tcp: 50, beside: Some(50), ..PATH });
    assert!(told[1].1.starts_with("keep both"), "{told:?}");
}

#[test]
fn where_both_carry_hardly_more_tcp_stays() {
    let told = play(PlayedPath { tcp: 100, beside: Some(10), ..PATH });
    assert_eq!(told[1], (9, "drop: lanes over QUIC carry no more: 100.0 MB/s before, 110.0 with them".to_owned()));
    assert_eq!(told.len(), 2, "and are not tried again");
}

#[test]
fn where_udp_does_not_pass_tcp_goes_on() {
    let told = play(PlayedPath { beside: None, ..PATH });
    assert_eq!(told[1], (7, "drop: no lane over QUIC joined in 4 s: a firewall may drop UDP".to_owned()));
}

/// The second in which a rival is tried, where TCP carries 100 MB/s for 8 s, unhindered, and then
/// that, hindered.
fn tried(rival: Rival, tcp: u64) -> Option<u64> {
    let mut choice = Choice::new([rival]);
    (1..=100).find(|second| {
        let (tcp, hindered) = if *second <= 8 { (100_000_000, false) } else { (tcp, true) };
        let carried = Carried { elapsed: Duration::from_secs(1), tcp, hindered, ..Carried::default() };
        choice.second(&carried).is_some()
    })
}

#[test]
fn where_tcp_carried_more_a_short_while_ago_it_is_left_to_the_search() {
    assert_eq!(tried(Rival::Quic, 91_000_000), Some(11));
    // Its rate a minute ago does not count any more.
    assert!(tried(Rival::Quic, 89_000_000).is_some_and(|second| second > 60));
    // UDP waits for it for a while.
    assert_eq!([91_000_000, 89_000_000].map(|tcp| tried(Rival::Udp, tcp)), [Some(11), Some(14)]);
}

#[test]
fn lanes_on_trial_get_longer_to_find_their_speed_on_longer_paths_but_not_for_ever() {
    for (rtt_ms, judged) in [(10, 9), (300, 12), (2000, 15)] {
        let mut choice = Choice::new([Rival::Quic]);
        let verdict = (1..=60u64).find(|second| {
            let carried = Carried {
                elapsed: Duration::from_secs(1),
                tcp: 5_000_000,
                rival: 20_000_000,
                rival_lanes: u32::from(*second > 3),
                rtt: Duration::from_millis(rtt_ms),
                hindered: true,
                by_network: true,
                remaining: None,
                ..Carried::default()
            };
            matches!(choice.second(&carried), Some(TransportDecision::Keep(..)))
        });
        assert_eq!(verdict, Some(judged), "{rtt_ms} ms");
    }
}

#[test]
fn near_the_end_nothing_is_tried() {
    assert_eq!(play(PlayedPath { remaining: Some(70_000_000), ..PATH }), []);
}

#[test]
fn lanes_over_udp_that_pay_go_on_alone_and_stay_if_they_carry_as_much_by_themselves() {
    let udp = PlayedPath { rival: Rival::Udp, ..PATH };
    let want = [
        (3, "try 1: the network limits at 5.0 MB/s".to_owned()),
        (9, "keep alone: a lane over UDP carries more: 5.0 MB/s before, 115.0 with it".to_owned()),
    ];
    assert_eq!(play(udp), want);
    // Even where both carry their part: two controls on one path would take two shares.
    assert!(play(PlayedPath { tcp: 50, beside: Some(50), alone: 100, ..udp })[1].1.starts_with("keep alone"));
}

#[test]
fn where_udp_carries_less_alone_than_tcp_did_that_is_taken_back() {
    let told = play(PlayedPath { rival: Rival::Udp, tcp: 50, beside: Some(20), alone: 40, ..PATH });
    let want = (14, "return: a lane over UDP carries less by itself: 40.0 MB/s, and TCP 50.0".to_owned());
    assert_eq!(told[2..], [want]);
}

#[test]
fn lanes_that_wait_for_another_part_than_the_network_are_not_taken_back() {
    let mut choice = Choice::new([Rival::Udp]);
    let mut decided = Vec::new();
    for second in 1..=60u64 {
        let stands = second > 3;
        let carried = Carried {
            elapsed: Duration::from_secs(1),
            tcp: if second < 10 { 50_000_000 } else { 0 },
            rival: if stands { 20_000_000 } else { 0 },
            rival_lanes: u32::from(stands),
            rtt: Duration::from_millis(100),
            hindered: true,
            by_network: second < 10,
            remaining: None,
            ..Carried::default()
        };
        decided.extend(choice.second(&carried));
    }
    assert!(matches!(decided[..], [TransportDecision::Try(..), TransportDecision::Keep(..)]), "{decided:?}");
    assert!(choice.is_over());
}

#[test]
fn where_no_lane_over_udp_can_be_had_quic_is_tried_next_if_it_may_be() {
    let mut choice = Choice::new([Rival::Udp, Rival::Quic]);
    let second = Carried { elapsed: Duration::from_secs(1), tcp: 5_000_000, hindered: true, ..Carried::default() };
    let decided: Vec<_> = (1..=60).filter_map(|_| choice.second(&second)).collect();
    let want = [Rival::Udp, Rival::Quic].map(|rival| {
        [
            TransportDecision::Try(rival, Why::Trying { rate: 5_000_000 }),
            TransportDecision::Drop(rival, rival.not_there()),
        ]
    });
    assert_eq!(decided, want.concat());
    assert!(choice.is_over());
}

#[test]
fn a_rival_whose_lanes_are_lost_before_the_verdict_takes_over_nothing_whatever_they_carried() {
    for rival in [Rival::Udp, Rival::Quic] {
        let mut choice = Choice::new([rival]);
        let mut decided = Vec::new();
        for second in 1..=20u64 {
            let rival_lanes = if (4..9).contains(&second) { rival.lanes() } else { 0 };
            let carried = Carried {
                elapsed: Duration::from_secs(1),
                tcp: 5_000_000,
                rival: if rival_lanes > 0 { 100_000_000 } else { 0 },
                rival_lanes,
                rtt: Duration::from_millis(100),
                hindered: true,
                by_network: true,
                remaining: None,
                ..Carried::default()
            };
            decided.extend(choice.second(&carried));
        }
        assert!(matches!(decided[..], [TransportDecision::Try(..), TransportDecision::Drop(..)]), "{decided:?}");
    }
}

#[test]
fn a_lane_over_udp_that_carries_next_to_nothing_is_given_up_and_one_that_carries_some_ends_in_order() {
    for (beside, want) in [(6, "abandon"), (7, "drop")] {
        let told = play(PlayedPath { rival: Rival::Udp, tcp: 50, beside: Some(beside), ..PATH });
        assert!(told[1].1.starts_with(want), "{told:?}");
    }
}

/// The last decision where TCP carries 50 MB/s at 10 ms of processor time a second, and a lane over
/// UDP alone so many MB/s at so many ms, with this limit there.
fn proved(alone: u64, cost_ms: u64, by_processors: bool) -> Option<TransportDecision> {
    let (mut choice, mut asked, mut is_alone) = (Choice::new([Rival::Udp]), false, false);
    for _ in 1..=40 {
        let carried = Carried {
            elapsed: Duration::from_secs(1),
            tcp: if is_alone { 0 } else { 50_000_000 },
            rival: if is_alone { alone * 1_000_000 } else { u64::from(asked) * 50_000_000 },
            rival_lanes: u32::from(asked),
            hindered: true,
            by_network: !(is_alone && by_processors),
            by_processors: is_alone && by_processors,
            spent: Duration::from_millis(if is_alone { cost_ms } else { 10 }),
            ..Carried::default()
        };
        match choice.second(&carried) {
            Some(TransportDecision::Try(..)) => asked = true,
            Some(TransportDecision::Keep(..)) => is_alone = true,
            Some(decision) => return Some(decision),
            None => {}
        }
    }
    assert!(is_alone && choice.is_over());
    None
}

#[test]
fn of_two_that_carry_alike_the_one_that_costs_less_carries_on() {
    let less = |before, after| TransportDecision::Return(Rival::Udp, Why::UdpCarriesLess { before, after });
    let more = |after| TransportDecision::Return(Rival::Udp, Why::UdpCostsMore { before: 200_000, after });
    for (alone, cost_ms, want) in [
        (50, 5, None),
        (50, 10, None),
        (50, 20, Some(more(400_000))),
        // A little less, and cheaper: it stays.
        (48, 5, None),
        (48, 20, Some(more(416_666))),
        // Beyond that the bytes decide.
        (47, 1, Some(less(50_000_000, 47_000_000))),
        (60, 100, None),
        // Nobody knows what it costs.
        (48, 0, Some(less(50_000_000, 48_000_000))),
        (52, 0, None),
    ] {
        assert_eq!(proved(alone, cost_ms, false), want, "{alone} MB/s at {cost_ms} ms");
    }
}

#[test]
fn a_lane_that_carries_less_is_taken_back_where_this_side_s_processors_are_used_up_however_cheap_it_is() {
    let less = TransportDecision::Return(Rival::Udp, Why::UdpCarriesLess { before: 50_000_000, after: 30_000_000 });
    assert_eq!(proved(30, 3, true), Some(less));
    let more = TransportDecision::Return(Rival::Udp, Why::UdpCostsMore { before: 200_000, after: 416_666 });
    assert_eq!((proved(48, 5, true), proved(48, 20, true)), (None, Some(more)));
    assert_eq!(proved(100, 40, true), None, "it carries more than TCP did");
}
