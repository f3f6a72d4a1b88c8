//! Owns the life of a native UDP lane: how it joins, and its threads at both ends.
//!
//! In: a session's secrets, units to send or slots to fill. Out: units that are whole at the other
//! end, or that came. The machines of `longhaul_proto::udp` decide what is sent and what is said of
//! it; this runs them between a clock and the halves of a `UdpLane`, and carries payload around
//! them. It knows no sessions and no files.
//!
//! | file | |
//! |---|---|
//! | `join` | the dialler's end joins |
//! | `packets` | packets sealed and opened |
//! | `desk` | the acceptor's end: knocks at the port |
//! | `early` | knocks that came before their session |
//! | `accepted` | a lane that was answered |
//! | `open_unit` | a unit of the end that sends files |
//! | `send` | the thread of the end that sends files |
//! | `statuses` | a bound of what the other end says |
//! | `hearing` | whether the other end is there, and what is sent lands |
//! | `path` | the rate of all lanes of a session that sends |
//! | `receive` | the thread of the end that receives them |
//! | `places` | slots of that end, and the units in them |
//! | `window` | how many units its sender may begin |
//! | `hold` | data that is held back |
//! | `units` | what a unit is, and its feed |
//! | `feed` | units of a session that sends |
//! | `sink` | units of a session that receives |
//! | `turns` | bytes of a message and of a turn |
//! | `sharers` | the slots of a receiver, as lanes come and go |

pub(crate) mod accepted;
pub(crate) mod desk;
mod early;
pub(crate) mod feed;
mod hearing;
mod hold;
pub(crate) mod join;
mod open_unit;
mod packets;
pub(crate) mod path;
pub(crate) mod places;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod sharers;
pub(crate) mod sink;
mod statuses;
#[cfg(test)]
mod tests;
mod turns;
pub(crate) mod units;
mod window;
