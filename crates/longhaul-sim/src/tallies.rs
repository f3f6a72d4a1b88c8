//! The counts of worlds that were played.
//!
//! Plain data: the environment counts, and who plays many worlds sums up.

/// Counts of worlds, which show whether they play enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tallies {
    /// Sessions of the command.
    pub sessions: u64,
    /// Events played.
    pub events: u64,
    /// Times that the receiver's host died.
    pub crashes: u64,
    /// Times that a partial was continued, ...
    pub continued: u64,
    /// ... and of these, from another version of its source.
    pub revised: u64,
    /// Chunks that were declared without payload, as the receiver had them.
    pub same: u64,
    /// Chunks of standing files that were copied, ...
    pub copied: u64,
    /// ... and files that stood with the content of their sources.
    pub equal: u64,
    /// Lanes that were lost and replaced.
    pub lanes_lost: u64,
    /// Chunks that syncs gave up, ...
    pub chunks_lost: u64,
    /// ... and files that barriers postponed.
    pub files_postponed: u64,
    /// Payload bytes sent.
    pub sent: u64,
    /// Bytes of the source's tree at the start.
    pub tree: u64,
    /// Virtual microseconds, ...
    pub time_us: u64,
    /// ... those of them after the last fault, ...
    pub calm_us: u64,
    /// ... and those that the same worlds take without any fault.
    pub ideal_us: u64,
}

impl Tallies {
    /// Adds the counts of other worlds.
    pub(crate) fn add(&mut self, other: &Tallies) {
        self.sessions += other.sessions;
        self.events += other.events;
        self.crashes += other.crashes;
        self.continued += other.continued;
        self.revised += other.revised;
        self.same += other.same;
        self.copied += other.copied;
        self.equal += other.equal;
        self.lanes_lost += other.lanes_lost;
        self.chunks_lost += other.chunks_lost;
        self.files_postponed += other.files_postponed;
        self.sent += other.sent;
        self.tree += other.tree;
        self.time_us += other.time_us;
        self.calm_us += other.calm_us;
        self.ideal_us += other.ideal_us;
    }
}
