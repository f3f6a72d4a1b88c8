//! The promises of a session that is told of its path, held against the same session that is told
//! nothing.
//!
//! In: what was told, and the figures of both. Out: the first promise that was broken.

use longhaul_core::PathShare;
use longhaul_proto::udp::control::{KnownPath, KnownRate};

use super::plan::RoadSession;
use super::road::{PACKET, RoadFigures};

/// The first broken promise of a session, in words.
pub(crate) fn broken(
    session: &RoadSession,
    told: Option<KnownPath>,
    known: &RoadFigures,
    first: &RoadFigures,
) -> Option<String> {
    let line = session.line;
    let said = |what: &str| Some(format!("{what}: {session:?}, told {told:?}: {known:?}; told nothing: {first:?}"));
    let rate = told.map_or(0.0, |told| told.rate as f64);
    let train = (rate / 2.0 * line.rtt.max(SHORTEST) / 8.0).min(TRAIN_MOST);
    if known.unheard > train.max(first.unheard) + SLACK {
        return said("more than a train is sent before anything is heard");
    }
    if known.tried > rate / 2.0 + 1.0 && known.tried > first.first_rate {
        return said("more than half of a known rate is tried");
    }
    let is_same = told.is_some_and(|told| {
        let then = told.round_trip.as_secs_f64();
        (then - line.rtt).abs() <= 0.251 * then
    });
    if !is_same && known.first_rate > first.first_rate {
        return said("a path with another round trip is taken for the one that is known");
    }
    // The search of the start may lose a round trip of packets when it ends, as 2.4 are on their
    // way, and a first visit may not have come to that yet.
    let search = line.rate * line.rtt / PACKET;
    let own = 1.5 * line.loss * known.early / PACKET;
    if known.lost > 2.0 * first.lost + train / PACKET + own + search + 100.0 {
        return said("what is known of a path makes it lose more");
    }
    // Beside others who take most and give way to nobody, a rate is chance.
    if known.later < LATER * first.later && line.others < 0.5 {
        return said("what is known of a path makes it slower for good");
    }
    let is_true = (0.8..1.25).contains(&(rate / line.rate)) && line.others == 0.0 && line.loss <= 0.01;
    // A slow or short one takes no time to find.
    let is_long = rate / 2.0 > 8.0 * first.first_rate && line.queue >= 0.5;
    // A line that loses may lose so much of a train by chance that its rate is taken for wrong.
    let by_chance = line.loss > 0.0 && matches!(known.known, KnownRate::Wrong(_));
    let least = if by_chance { EARLY_BY_CHANCE } else { EARLY };
    if is_true && is_same && is_long && known.early < least * first.early {
        return said("a path that is known as it is takes as long as another one");
    }
    let left = known.left.map_or(0.0, |left| left.rate as f64);
    if left > 1.2 * line.rate && known.known != KnownRate::Unused {
        return said("more is left to the next session than the line carries");
    }
    let was_told_wrong = matches!(known.known, KnownRate::Wrong(_)) && session.share == PathShare::Fair;
    if was_told_wrong && left == 0.0 {
        return said("a wrong rate is left to the next session");
    }
    None
}

/// The shortest round trip that is reckoned with.
const SHORTEST: f64 = 0.01;
/// Bytes of the longest train, and what a pacer and the least of a flight add.
const TRAIN_MOST: f64 = 2097152.0;
const SLACK: f64 = 45_000.0;
/// The part of a first visit's later rate, and the multiple of what that carries in the beginning.
const LATER: f64 = 0.6;
const EARLY: f64 = 1.0;
/// The same, if losses by chance made a right rate seem wrong: one world in 1,700 is such.
const EARLY_BY_CHANCE: f64 = 0.6;
