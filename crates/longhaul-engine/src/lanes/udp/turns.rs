//! How much a UDP lane sends at a time: bytes of a message, and of a turn.
//!
//! In: the rate that is kept. Out: sizes. It sends nothing.

use longhaul_proto::udp::plan::MessageRoom;
use longhaul_sys::udp::{RUN_BYTES_MAX, RUN_DATAGRAMS_MAX};

/// The room of a message: a millisecond of the rate, as TCP's segmentation makes them, and ten
/// datagrams at least where that is no more than 20 ms: nothing is heard while a turn is waited
/// for.
pub(super) fn message_room(rate: Option<u64>, datagram: usize) -> MessageRoom {
    let part = |of: u64| rate.map_or(usize::MAX, |rate| usize::try_from(rate / of).unwrap_or(usize::MAX));
    let least = part(TURNS_PER_S / 20).min(10 * datagram).max(datagram);
    MessageRoom { bytes: part(TURNS_PER_S).max(least).min(RUN_BYTES_MAX), datagrams: RUN_DATAGRAMS_MAX }
}

/// Bytes of a turn: as much as a millisecond carries, so that the thread sleeps no more often.
pub(super) fn turn_bytes(rate: Option<u64>, message: usize) -> usize {
    let moment = rate.map(|rate| usize::try_from(rate / TURNS_PER_S).unwrap_or(usize::MAX));
    moment.map_or(TURN_BYTES, |moment| moment.clamp(message, TURN_BYTES_MOST))
}

/// Turns of a second: a sleep costs as much as sealing 20 kB.
const TURNS_PER_S: u64 = 1000;
/// Bytes between two looks for statuses where there is no rate.
const TURN_BYTES: usize = 256 << 10;
/// Bytes of the longest turn: a millisecond of 32 Gbit/s.
const TURN_BYTES_MOST: usize = 4 << 20;
