//! Sums the bytes that the sessions of a run moved, without counting any twice that a later session
//! resumes.
//!
//! In: the counters of each session that ends. Out: the sums, and what the session under way adds
//! to them. It knows no entries.

use longhaul_proto::wire::message::Tally;

use super::entries::FileCount;

/// The counters of a session that is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    /// Seconds that it lasted.
    pub(crate) seconds: f64,
    /// Payload bytes handed to lanes.
    pub(crate) sent: u64,
    /// Payload bytes taken from lanes and verified.
    pub(crate) received: u64,
    /// Bytes that are durable, including those that it resumed.
    pub(crate) durable: u64,
    /// Bytes that an earlier session had brought.
    pub(crate) resumed: u64,
    /// Bytes of holes that arrived.
    pub(crate) holes: u64,
    /// Durable bytes of files that it did not commit, as far as it came to them.
    pub(crate) held: u64,
    /// Bytes that the receiver read back.
    pub(crate) read_back: u64,
    /// Bytes that were read back and differed from those written.
    pub(crate) misread: u64,
    /// Bytes of skipped files that the receiver read.
    pub(crate) digested: u64,
    /// Payload bytes that were sent again within the session.
    pub(crate) resent: u64,
    /// Payload bytes sent in vain, as their file was not committed.
    pub(crate) lost: u64,
}

impl Moved {
    /// The counters that a sender has of a session by the receiver's last report. Its durable bytes
    /// include those that earlier sessions brought of files that this one did not come to. These
    /// are held, but this session neither brought nor resumed them.
    pub(crate) fn by_last_words(tally: &Tally) -> Moved {
        let came = tally.received.saturating_add(tally.holes).saturating_add(tally.resumed);
        Moved {
            received: tally.received,
            durable: tally.durable.min(came),
            resumed: tally.resumed,
            holes: tally.holes,
            held: tally.held(),
            read_back: tally.read_back,
            misread: tally.misread,
            digested: tally.standing,
            ..Moved::default()
        }
    }

    /// Bytes that this session itself made durable.
    pub(crate) fn fresh(&self) -> u64 {
        self.durable.saturating_sub(self.resumed)
    }
}

/// The sums of the sessions that are over. Bytes where nothing else is said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SessionSums {
    /// Whether an earlier session of the run is over.
    is_resumed: bool,
    /// The counters, each byte counted by the session that brought it. `resent` is without `lost`,
    /// which are those of the last session that another would resend.
    all: Moved,
    /// The files that were committed when the last session ended.
    committed: FileCount,
}

impl SessionSums {
    /// Begins another session: what was lost is sent again.
    pub(super) fn begin(&mut self) {
        self.all.resent = self.all.resent.saturating_add(std::mem::take(&mut self.all.lost));
    }

    /// Adds the counters of a session that is over, after which `committed` files stand.
    pub(super) fn add(&mut self, moved: &Moved, committed: FileCount) {
        let before = self.all;
        self.all = Moved {
            seconds: before.seconds + moved.seconds,
            sent: before.sent.saturating_add(moved.sent),
            received: before.received.saturating_add(moved.received),
            durable: before.durable.saturating_add(self.durable_of(moved.durable, moved.resumed)),
            resumed: self.resumed_with(moved.resumed),
            holes: before.holes.saturating_add(moved.holes),
            // Bytes that an earlier session held and this one did not come to are still there.
            held: moved.held.max(before.held.saturating_sub(moved.resumed)),
            read_back: before.read_back.saturating_add(moved.read_back),
            misread: before.misread.saturating_add(moved.misread),
            digested: before.digested.saturating_add(moved.digested),
            resent: before.resent.saturating_add(moved.resent),
            lost: moved.lost,
        };
        self.committed = committed;
        self.is_resumed = true;
    }

    /// The sums of all sessions that are over.
    pub(super) fn all(&self) -> &Moved {
        &self.all
    }

    /// Forgets the files that were committed: they are named again.
    pub(super) fn forget_committed(&mut self) {
        self.committed = FileCount::default();
    }

    /// The files that were committed when the last session ended.
    pub(super) fn committed(&self) -> FileCount {
        self.committed
    }

    /// Takes the bytes held at the destination from the half of a copy that wrote there.
    pub(super) fn take_held(&mut self, received: &SessionSums) {
        self.all.held = received.all.held;
    }

    /// Takes bytes for not sent again: an earlier session committed their file.
    pub(super) fn were_not_resent(&mut self, bytes: u64) {
        self.all.resent = self.all.resent.saturating_sub(bytes);
    }

    /// The durable bytes that a session adds: it resumes those that earlier ones of this run
    /// counted.
    pub(super) fn durable_of(&self, durable: u64, resumed: u64) -> u64 {
        if self.is_resumed { durable.saturating_sub(resumed) } else { durable }
    }

    /// The bytes that earlier runs had brought and this run resumed, if the session under way
    /// resumed `resumed`. Bytes that a later session resumes this run brought itself.
    pub(super) fn resumed_with(&self, resumed: u64) -> u64 {
        if self.is_resumed { self.all.resumed } else { resumed }
    }

    /// Bytes of files that the session under way brought to the receiver, durable or not yet.
    pub(super) fn arrived_of(&self, tally: &Tally) -> u64 {
        let came = tally.received.saturating_add(tally.arriving).saturating_add(tally.holes);
        let resumed = if self.is_resumed { 0 } else { tally.resumed };
        came.saturating_add(resumed).max(self.durable_of(tally.durable, tally.resumed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(sums: &mut SessionSums, moved: &Moved) {
        sums.add(moved, FileCount::default());
    }

    #[test]
    fn bytes_held_are_those_of_the_last_session_and_what_it_did_not_come_to() {
        let mut sums = SessionSums::default();
        over(&mut sums, &Moved { durable: 30, held: 30, ..Moved::default() });
        assert_eq!(sums.all.held, 30);
        // The session was lost before a name was looked at.
        over(&mut sums, &Moved::default());
        assert_eq!(sums.all.held, 30);
        // The session continued 20 of them, of a file that it committed.
        over(&mut sums, &Moved { durable: 20, resumed: 20, ..Moved::default() });
        assert_eq!(sums.all.held, 10);
    }

    #[test]
    fn what_lies_there_unopened_is_held_and_is_durable_by_no_session_of_this_run() {
        let mut sums = SessionSums::default();
        // Two files of which earlier runs brought 60 and 40 bytes; the first is continued.
        let first = Tally { received: 10, durable: 110, resumed: 60, ..Tally::default() };
        over(&mut sums, &Moved::by_last_words(&first));
        assert_eq!((sums.all.durable, sums.all.held, sums.all.resumed), (70, 110, 60));
        // Sessions that are lost before they open anything.
        for _ in 0..3 {
            sums.begin();
            let moved = Moved::by_last_words(&Tally { durable: 110, ..Tally::default() });
            assert_eq!((moved.durable, moved.fresh()), (0, 0));
            over(&mut sums, &moved);
            assert_eq!((sums.all.durable, sums.all.held, sums.all.resumed), (70, 110, 60));
        }
    }
}
