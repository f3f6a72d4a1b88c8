//! The bugs that can be planted into the worlds of sets, one at a time, to see that they are found.
//!
//! Each is asked for where it strikes: in the doer of a striped file, in what opens a set, or in
//! what reads. Nothing here acts.

/// A planted bug in the worlds of sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMutant {
    /// A stripe file gets its name while its bodies are being synced.
    RenameBeforeBodySync,
    /// A chunk that was written twice is recorded at the place of the write that came later.
    LoserRecorded,
    /// Chunks on a target that failed, or did not answer, are recorded like all others.
    FailedPlacementBelieved,
    /// The footer of a body is written before the chunks are durable.
    FooterBeforeData,
    /// The slot of a write that came late is given to another chunk.
    LoserSlotUsedAgain,
    /// A file is sealed while writes to its bodies are under way.
    SealWithoutWaitingForLosers,
    /// Targets are given more than their share of the memory.
    ShareIgnored,
    /// The digest of what is read from a body is not compared.
    OldImageBelieved,
    /// Chunks are recorded while their bodies are being synced.
    RecordBeforeBodySync,
    /// After a failed sync only the chunks that it covered are given up, not those that were
    /// written meanwhile.
    FailedSyncForgotten,
    /// The records of a file that is continued are taken from the cache as they are.
    CachedRecordsBelieved,
    /// The end at which the records of a file that is continued are cut is not made durable.
    CutNotSynced,
    /// A file is continued while writes of the process before may still land in its bodies.
    BodyInUseContinued,
    /// A file is sealed though its records may be in the cache alone.
    SealWithoutRecords,
    /// The marks of the targets are not looked at.
    MarksUnread,
    /// Bodies of a file that is replaced are removed before the new name is durable.
    ReplacedRemovedEarly,
    /// Stripe files are made again though two files had the path.
    OlderRebuilt,
}

impl SetMutant {
    /// All of them.
    pub const ALL: &'static [SetMutant] = &[
        SetMutant::RenameBeforeBodySync,
        SetMutant::LoserRecorded,
        SetMutant::FailedPlacementBelieved,
        SetMutant::FooterBeforeData,
        SetMutant::LoserSlotUsedAgain,
        SetMutant::SealWithoutWaitingForLosers,
        SetMutant::ShareIgnored,
        SetMutant::OldImageBelieved,
        SetMutant::RecordBeforeBodySync,
        SetMutant::FailedSyncForgotten,
        SetMutant::CachedRecordsBelieved,
        SetMutant::CutNotSynced,
        SetMutant::BodyInUseContinued,
        SetMutant::SealWithoutRecords,
        SetMutant::MarksUnread,
        SetMutant::ReplacedRemovedEarly,
        SetMutant::OlderRebuilt,
    ];
}
