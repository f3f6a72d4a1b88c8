//! Tests of lanes that are taken back, and of the words of reasons.

use longhaul_core::PathShare;

use super::manners::{PathControl, PathRound};
use super::*;

/// A path on which eight lanes began, of which four are usual.
fn long_path(max: u32) -> Path {
    let mut path = Path::new(8, max, &[]);
    path.tuner = Tuner::new(TuningConfig { usual: 4, ..config(8, max) });
    path
}

#[test]
fn lanes_of_the_start_end_once_more_carry_no_more_and_four_carry_as_much() {
    let mut path = long_path(32);
    path.run(40, |_, count| 120 / count);
    told(
        &path.log,
        &[
            "3: +8 = 16: the network limits at 120.0 MB/s",
            "6: -8 = 8: more lanes carried no more: 120.0 MB/s before, 112.0 after",
            "9: -1 = 7: they were for the start, and more lanes do not carry more than 120.0 MB/s",
            "12: -1 = 6: they were for the start, and more lanes do not carry more than 120.0 MB/s",
            "15: -1 = 5: they were for the start, and more lanes do not carry more than 120.0 MB/s",
            "18: -1 = 4: they were for the start, and more lanes do not carry more than 120.0 MB/s",
        ],
    );
    path.run(60, |_, count| 120 / count);
    path.idle = 600;
    path.run(60, |_, _| 2);
    assert_eq!(path.lanes.len(), 4, "{}", path.log);
}

#[test]
fn lanes_of_the_start_that_carry_more_than_four_come_back_and_stay() {
    let mut path = long_path(8);
    // A limit of each lane, but not of more than eight.
    path.full = true;
    path.run(4, |_, _| 10);
    path.full = false;
    path.run(50, |_, _| 10);
    told(
        &path.log,
        &[
            "5: -1 = 7: they were for the start, and more lanes do not carry more than 80.0 MB/s",
            "8: +1 = 8: fewer lanes carried less: 80.0 MB/s before, 70.0 after",
        ],
    );
}

#[test]
fn lanes_of_the_start_end_one_by_one_on_a_full_path_and_come_back_where_clearly_less_is_carried() {
    let ended = ["5: -1 = 7", "8: -1 = 6", "11: -1 = 5", "14: -1 = 4"];
    let ended =
        ended.map(|line| format!("{line}: they were for the start, and more lanes do not carry more than 80.0 MB/s"));
    let ended = ended.each_ref().map(String::as_str);
    let mut path = long_path(32);
    path.full = true;
    path.run(58, |_, count| 80 / count);
    told(&path.log, &ended);
    // A limit of each lane.
    let mut path = long_path(32);
    path.full = true;
    path.run(58, |_, _| 10);
    let back = "14: +3 = 8: fewer lanes carried less: 80.0 MB/s before, 50.0 after";
    told(&path.log, &[ended[0], ended[1], ended[2], back]);
}

#[test]
fn the_others_have_sixteen_round_trips_to_take_what_a_lane_of_the_start_leaves() {
    let mut path = long_path(32);
    (path.full, path.rtt) = (true, Duration::from_millis(500));
    path.run(30, |_, count| 80 / count);
    told(
        &path.log,
        &[
            "12: -1 = 7: they were for the start, and more lanes do not carry more than 80.0 MB/s",
            "24: -1 = 6: they were for the start, and more lanes do not carry more than 80.0 MB/s",
        ],
    );
}

#[test]
fn lanes_of_the_start_stay_where_more_are_wanted_or_the_end_is_near() {
    let mut path = long_path(16);
    path.run(30, |_, _| 5);
    assert_eq!(path.lanes.len(), 16, "{}", path.log);
    let mut path = long_path(32);
    (path.full, path.remaining) = (true, Some(4_700_000_000));
    path.run(30, |_, _| 10);
    told(&path.log, &[]);
}

#[test]
fn lanes_of_the_start_end_where_another_part_limits_for_long() {
    let mut path = long_path(32);
    path.idle = 600;
    path.run(60, |_, _| 2);
    told(&path.log, &["30: -4 = 4: it is not the network that limits"]);
}

#[test]
fn lanes_with_which_another_part_limits_and_without_which_the_network_does_come_back_and_stay() {
    let mut path = long_path(32);
    for _ in 0..300 {
        path.idle = if path.lanes.len() > 4 { 600 } else { 0 };
        path.run(1, |_, _| 10);
    }
    told(&path.log, &["30: -4 = 4: it is not the network that limits", "33: +4 = 8: the network limits at 40.0 MB/s"]);
}

#[test]
fn lanes_on_trial_are_taken_back_when_they_lose_too_much_and_none_are_added_while_that_lasts() {
    let mut path = Path::new(4, 32, &[]);
    path.run(3, |_, _| 5);
    assert_eq!(path.lanes.len(), 8);
    // They carry more: it is the loss that counts.
    path.excess_loss = 21;
    path.run(30, |_, _| 5);
    told(
        &path.log,
        &[
            "3: +4 = 8: the network limits at 20.0 MB/s",
            "6: -4 = 4: 2.1 % is lost beyond what the path loses by itself",
        ],
    );
    let mut path = Path::new(4, 32, &[]);
    path.excess_loss = 21;
    path.run(30, |_, _| 5);
    told(&path.log, &[]);
    path.excess_loss = 20;
    path.run(8, |_, _| 5);
    assert!(path.log.contains(": +4 = 8:"), "it is over: {}", path.log);
}

#[test]
fn all_lanes_that_were_added_are_taken_back_by_halves_while_too_much_is_lost() {
    let mut path = Path::new(4, 32, &[]);
    path.run(12, |_, count| 5.min(100 / count));
    assert_eq!(path.lanes.len(), 32, "{}", path.log);
    let before = path.log.len();
    path.excess_loss = 150;
    path.run(2, |_, _| 4);
    path.excess_loss = 0;
    path.run(1, |_, _| 4);
    path.excess_loss = 150;
    path.run(2, |_, _| 4);
    assert_eq!(path.log.len(), before, "it did not last");
    path.run(20, |_, _| 4);
    told(
        &path.log[before..],
        &[
            "18: -16 = 16: 15.0 % is lost beyond what the path loses by itself",
            "21: -8 = 8: 15.0 % is lost beyond what the path loses by itself",
            "24: -4 = 4: 15.0 % is lost beyond what the path loses by itself",
        ],
    );
}

#[test]
fn on_a_path_that_more_lanes_overfill_the_search_comes_back_to_those_that_it_began_with() {
    let (mut path, mut control) = (Path::new(4, 32, &[]), PathControl::new(PathShare::Fair));
    for _ in 0..60 {
        // Lanes that ignore losses fill the queue, and lose what is above it.
        let is_over = path.lanes.len() > 4;
        let (lost, rtt) = if is_over { (15, 200) } else { (0, 100) };
        let round = PathRound {
            elapsed: Duration::from_millis(200),
            delivered: 10_000_000,
            lost: 10_000_000 * lost / 85,
            rtt: Duration::from_millis(rtt),
            packet_bytes: 1448,
            lanes: path.lanes.len() as u32,
            ..PathRound::default()
        };
        (0..5).for_each(|_| control.look(&round));
        path.excess_loss = (control.excess_loss() * 1000.0) as u16;
        path.run(1, |_, count| if count > 4 { 60 / count } else { 10 });
    }
    let log: Vec<_> = path.log.lines().collect();
    assert!(log[0].starts_with("3: +4 = 8:") && log[1].contains(": -4 = 4: 1"), "{}", path.log);
    assert!(log[1].contains("% is lost beyond") && log.len() == 2, "{}", path.log);
}

#[test]
fn lanes_that_lose_too_much_are_taken_back_whatever_else_limits() {
    let mut path = Path::new(4, 32, &[]);
    path.run(3, |_, _| 5);
    (path.idle, path.excess_loss) = (600, 30);
    path.run(10, |_, _| 2);
    assert!(path.log.ends_with("6: -4 = 4: 3.0 % is lost beyond what the path loses by itself\n"), "{}", path.log);
}

#[test]
fn each_reason_of_a_transport_has_words() {
    let (before, after, waited, left) = (1, 2, Duration::from_secs(4), Duration::from_secs(60));
    let reasons = [
        Why::QuicPaid { before, after },
        Why::QuicDidNotPay { before, after },
        Why::NoQuic { waited },
        Why::UdpPaid { before, after },
        Why::UdpDidNotPay { before, after },
        Why::UdpCarriesLess { before, after },
        Why::UdpCostsMore { before, after },
        Why::NoUdp { waited },
        Why::NoMoreUdp { waited },
        Why::UdpBroken,
        Why::UdpLost,
        Why::QuicBroken,
        Why::QuicMended,
        Why::StillBroken { left },
        Why::LanesBusy { thousandths: 850 },
        Why::ProcessorsBusy,
        Why::ReceiverDrops { rate: 250_000_000 },
    ];
    for why in reasons {
        assert!(why.to_string().contains(' '), "{why}");
    }
    assert!(Why::LanesBusy { thousandths: 850 }.to_string().contains("85 % of the time"));
}
