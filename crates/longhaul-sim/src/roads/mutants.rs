//! The bugs that can be planted into the worlds of roads, one at a time, to see that they are
//! found.
//!
//! Each is asked for where it strikes: where the record is read or written, or where a session
//! sends. Nothing here acts.

/// A planted bug in the worlds of roads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoadMutant {
    /// Half of a known rate is sent for two round trips, whatever comes of it.
    SendsUnvalidated,
    /// All of a known rate is tried.
    TriesAll,
    /// A known rate is taken for that of the path whatever its round trip was.
    IgnoresRoundTrip,
    /// The rate that was known is left to the next session though it was found to be wrong.
    KeepsWrongRate,
    /// The path is never found to be full.
    NeverLeavesStart,
}

impl RoadMutant {
    /// All of them.
    pub const ALL: &'static [RoadMutant] = &[
        RoadMutant::SendsUnvalidated,
        RoadMutant::TriesAll,
        RoadMutant::IgnoresRoundTrip,
        RoadMutant::KeepsWrongRate,
        RoadMutant::NeverLeavesStart,
    ];
}
