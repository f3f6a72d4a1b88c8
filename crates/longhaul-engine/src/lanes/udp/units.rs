//! Units that a lane sends: what they are, where they come from, and where they go when they are
//! sent.
//!
//! In: nothing. Out: the types that a lane's thread and its feed share. It knows no lane.

use std::ops::Deref;

use longhaul_core::digest::Digest;
use longhaul_proto::time::Timestamp;
use longhaul_proto::udp::sending::UdpSample;
use longhaul_proto::wire::data::Piece;

/// A unit to be sent.
#[derive(Debug)]
pub(crate) struct UdpUnit<B> {
    /// Its header.
    pub(crate) header: Piece,
    /// Its bytes, from the beginning. `None` for a hole, and for a unit that the receiver has.
    pub(crate) bytes: Option<B>,
    /// Its digest, if it is known already. The lane computes it otherwise: a unit without bytes has
    /// one.
    pub(crate) digest: Option<Digest>,
}

/// Units that are not whole at the other end.
pub(crate) type UnsentUnits<B> = Vec<UdpUnit<B>>;

/// The next unit of a lane.
#[derive(Debug)]
pub(crate) enum FeedNext<B> {
    /// This one.
    Unit(UdpUnit<B>),
    /// None for now.
    NotNow,
    /// There will be no more.
    Over,
}

/// The source of a lane's units, and where they go when they are sent.
pub(crate) trait UdpFeed {
    /// The buffer of a unit.
    type Bytes: Deref<Target = [u8]>;

    /// The next unit, without waiting. It is asked only if the receiver admits one.
    fn next(&mut self) -> FeedNext<Self::Bytes>;

    /// Whether there will be no more. It is asked while the receiver admits none.
    fn is_over(&mut self) -> bool;

    /// All of a unit is about to have been sent once, and its digest is known: the receiver may
    /// come to have it whole at any time from now on. Each unit is named once, before the system
    /// gets the last message that it lacks, and in any order.
    fn sent(&mut self, serial: u32, header: &Piece, digest: Digest);

    /// A unit is whole at the receiver; the serial is that of the receiver's ticket.
    fn whole(&mut self, serial: u32, unit: UdpUnit<Self::Bytes>, digest: Digest);

    /// An observation of the path, for the control of the rate.
    fn observe(&mut self, now: Timestamp, sample: &UdpSample);
}
