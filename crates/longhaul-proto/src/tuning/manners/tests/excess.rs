//! Tests of what lanes lose beyond what their path loses by itself.

use super::*;

/// The part that is lost beyond the path's own loss after so many more rounds in which `lost` of
/// all packets are lost, with this round trip.
fn after(control: &mut PathControl, rounds: u32, lost: f64, rtt: u64) -> f64 {
    let look = round(0.8, rtt);
    let lost = (look.delivered as f64 * lost / (1.0 - lost)) as u64;
    (0..rounds).for_each(|_| control.look(&PathRound { lost, ..look }));
    control.excess_loss()
}

#[test]
fn what_a_path_loses_by_itself_is_no_excess_and_what_is_lost_beyond_it_is_for_some_seconds() {
    for share in [PathShare::Fair, PathShare::Polite] {
        let mut control = PathControl::new(share);
        let own = after(&mut control, 60, 0.03, 100);
        assert!(own < 0.005 && control.own_loss() > 0.025, "{share}: {own} {control:?}");
        let more = after(&mut control, 10, 0.15, 200);
        assert!((0.05..0.15).contains(&more), "{share}: {more} {control:?}");
        let gone = after(&mut control, 60, 0.03, 100);
        assert!(gone < 0.02, "{share}: {gone} {control:?}");
    }
    assert_eq!(after(&mut PathControl::new(PathShare::All), 10, 0.15, 200), 0.0, "it keeps no manners");
}

#[test]
fn a_few_packets_that_were_lost_by_chance_are_no_excess() {
    let mut control = PathControl::new(PathShare::Fair);
    let look = round(0.001, 100);
    control.look(&PathRound { lost: 4 * u64::from(look.packet_bytes), ..look });
    (0..4).for_each(|_| control.look(&look));
    assert_eq!(control.excess_loss(), 0.0, "four of {} bytes", look.delivered);
}

#[test]
fn a_burst_is_over_when_it_is_over() {
    let mut control = PathControl::new(PathShare::Fair);
    after(&mut control, 60, 0.0, 100);
    after(&mut control, 5, 0.3, 100);
    let told = (0..6).filter(|_| after(&mut control, 5, 0.0, 100) > 0.02).count();
    assert!(told < 2, "for {told} s: {control:?}");
}

#[test]
fn where_a_path_loses_so_much_by_itself_that_how_much_is_not_known_nothing_is_told() {
    let mut control = PathControl::new(PathShare::Fair);
    assert_eq!(after(&mut control, 100, 0.2, 100), 0.0, "{control:?}");
}
