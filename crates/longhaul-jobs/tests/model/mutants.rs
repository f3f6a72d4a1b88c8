//! The bugs that can be planted, one at a time.
//!
//! Each is asked for where it strikes: between the rules and the rows (`bent.rs`), at the
//! destination, or in a mover. Nothing here acts.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The destination lets an equal fence with another id pass.
    EqualFencePasses,
    /// A daemon welcomes a claim before it is kept durably.
    KeptNotDurable,
    /// A batch is published without a look at the kept claim.
    PublishUnchecked,
    /// A daemon looks at its own memory alone, not at what others of the root have kept.
    OtherDaemonIgnored,
    /// A claim is kept while a batch of another daemon is under way.
    KeptWithoutLock,
    /// A session is welcomed while the one before it goes on.
    OlderGoesOn,
    /// A mover sends what stands at the destination already.
    SentWithoutComparing,
    /// A mover reports a shard whose last file is not published yet.
    ReportedEarly,
    /// A mover whose claim was refused shows it again, for ever.
    NeverRaised,
    /// A claim gets the fence of the one before.
    FenceNotRaised,
    /// A claim gets a fence below that of the one before.
    FenceFalls,
    /// The report of a claim is heard, though the shard is another's.
    AnybodyReports,
    /// Permits are not given back.
    PermitKept,
    /// Permits that others have are not seen.
    PermitsUncounted,
    /// Rows of failed files are not written.
    FaultRowsLost,
    /// The shard's row of a transaction with several rows is lost.
    TornCommit,
    /// A leader's turn is taken in whatever term.
    TermUnchecked,
    /// Lapsed leases are not looked for.
    LapsedForgotten,
    /// A lease that was set by a clock an hour ahead lasts until then.
    ClockBackForgotten,
    /// Files that are given up are said to be done as well.
    FailedCountedDone,
    /// A daemon takes each showing of a claim for the one that is kept.
    SessionUnchecked,
    /// The lock is let go between the look at the kept claim and the renames.
    LockLetGo,
    /// A mover looks at what stands before it is welcome.
    ComparedEarly,
    /// The commit of a campaign is let go before every other shard is done.
    CommitEarly,
    /// A mover has a dataset appear though it stands already.
    CommitAgain,
    /// A daemon that pauses in the middle of a batch loses its lock, as one with a lease would.
    SleeperLosesLock,
    /// The closed hours of a campaign are not looked at.
    CampaignHoursForgotten,
    /// The closed hours of a link are not looked at.
    LinkHoursForgotten,
    /// A shard that became ready later is claimed first.
    LaterReadyFirst,
    /// All campaigns have one priority.
    PriorityForgotten,
    /// All campaigns have one weight.
    WeightForgotten,
    /// No campaign has a deadline.
    DeadlineForgotten,
    /// A campaign's share is not written down.
    ShareForgotten,
}

impl Mutant {
    /// The bugs that break a promise of the worlds in which everything goes wrong.
    pub(crate) const ALL: [Mutant; 29] = [
        Mutant::EqualFencePasses,
        Mutant::KeptNotDurable,
        Mutant::PublishUnchecked,
        Mutant::OtherDaemonIgnored,
        Mutant::KeptWithoutLock,
        Mutant::OlderGoesOn,
        Mutant::SentWithoutComparing,
        Mutant::ReportedEarly,
        Mutant::NeverRaised,
        Mutant::FenceNotRaised,
        Mutant::FenceFalls,
        Mutant::AnybodyReports,
        Mutant::PermitKept,
        Mutant::PermitsUncounted,
        Mutant::FaultRowsLost,
        Mutant::TornCommit,
        Mutant::TermUnchecked,
        Mutant::LapsedForgotten,
        Mutant::ClockBackForgotten,
        Mutant::FailedCountedDone,
        Mutant::SessionUnchecked,
        Mutant::LockLetGo,
        Mutant::ComparedEarly,
        Mutant::CommitEarly,
        Mutant::CommitAgain,
        Mutant::SleeperLosesLock,
        Mutant::CampaignHoursForgotten,
        Mutant::LinkHoursForgotten,
        Mutant::LaterReadyFirst,
    ];

    /// The bugs that break a promise of the worlds in which campaigns are put in order.
    pub(crate) const OF_ORDER: [Mutant; 7] = [
        Mutant::CampaignHoursForgotten,
        Mutant::LinkHoursForgotten,
        Mutant::LaterReadyFirst,
        Mutant::PriorityForgotten,
        Mutant::WeightForgotten,
        Mutant::DeadlineForgotten,
        Mutant::ShareForgotten,
    ];
}
