//! A lane over UDP without sockets: its packets, its join, and the machines of its two ends.
//!
//! In: datagrams as bytes, facts as numbers, time as an argument. Out: typed packets, bytes, and
//! plans of what to send next. Payload goes around all of this, and so do keys and rates: what is
//! sealed is encoded and parsed here as plain text, and how much may be sent is the caller's to
//! say. `docs/WIRE.md` section 10 has the bytes.

pub mod breaker;
pub mod control;
mod drops;
mod ended;
pub mod join;
pub mod mtu;
pub mod packet;
mod pieces;
pub mod plan;
pub mod receiving;
pub mod sending;
pub mod status;

/// The reason why a lane ends at once: an end that holds its keys says what it cannot mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UdpBreach {
    /// A status names a packet, a unit or a piece that was never sent, or contradicts an earlier
    /// one.
    #[error("a status of what was never sent")]
    Status,
    /// A unit that was not admitted, or is larger than its slot.
    #[error("a unit that was not admitted")]
    NotAdmitted,
    /// A description of a unit that contradicts another one, or the pieces that landed.
    #[error("a unit that contradicts itself")]
    Unit,
    /// An end that contradicts another one, or the units that came.
    #[error("an end that contradicts the units")]
    End,
}
