//! The bugs that can be planted, one at a time, to see that the simulator finds them.
//!
//! Each is asked for where it strikes: in the doer, the daemon that fences, or the reports to the
//! receiver's machine. Nothing here acts.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A chunk is journalled while the sync of its data is still under way.
    JournalBeforeSync,
    /// The receiver commits without comparing the file's root with the declared one.
    CommitWithoutRoot,
    /// Received chunks are called durable before they are synced or journalled.
    ReceivedIsDurable,
    /// A newcomer takes over without stopping the session before it, which goes on writing.
    NoFence,
    /// The last chunk of a file is written one byte short.
    ShortTail,
    /// A dropped duplicate of a chunk is written after all, when the file stands under its final
    /// name.
    LateDuplicate,
    /// A newcomer takes over while writes of the session before it are under way.
    ReassignEarly,
    /// Chunks are journalled though the name of their temporary is not durable.
    NameNotSynced,
    /// A partial continues from another version of its source before the journal says so durably.
    ChangeNotSynced,
    /// Files are renamed before they are synced.
    RenameBeforeSync,
    /// A commit is said before the renames are durable.
    DirsNotSynced,
    /// Names that stand are taken for durable, though the session that made them may have died
    /// before it synced them.
    StandingNotSynced,
    /// A journal is continued as the cache shows it, though a sync of it may have failed before.
    CachedJournal,
    /// A journal is continued whose name may not be durable.
    ShelfNotSynced,
    /// A journal is continued behind its torn tail.
    TornTailKept,
    /// A journal is taken over without the syncs that make that durable.
    TakeoverNotSynced,
    /// A chunk is journalled, durably, before the group sync of its data begins.
    ChunkBeforeGroupSync,
    /// The partial of a name that is not continued is given up before the journal of the other one
    /// is taken over.
    LoserFirst,
    /// Chunks that were journalled are not offered when the file is continued.
    Forgetful,
    /// The receiver's end of a lane is said to be closed and goes on taking units in.
    LaneStaysOpen,
    /// The receiver's end of a lane is said to have taken in one unit more than it did.
    LaneOvercounts,
    /// All units of a closed lane up to the last that came out of it are said to have landed.
    GapForgotten,
    /// An equal chunk of the standing file is called copied, but is not.
    EqualNotCopied,
    /// A temporary is made before the journal names its directory.
    DirUnnamed,
    /// A journal forgets the directories that it names before their names are synced.
    LeftBeforeSync,
    /// It is forgotten that a temporary was removed from a directory.
    ThinnedForgotten,
    /// A partial is forgotten though its temporary could not be removed.
    RemovalUnchecked,
    /// The remains of an append that failed are not cut off, and the journal goes on behind them.
    TornAppendKept,
    /// A change of a journal that failed and is undone is taken for done.
    UndoneIsDone,
    /// A chunk whose bytes a sync gave up is journalled all the same.
    LostIsSynced,
    /// A chunk that comes again, as its bytes were given up, is called written and is not, so that
    /// its file is sealed without it.
    LostNotRewritten,
    /// A file that a barrier postponed is published.
    PostponedIsPublished,
    /// A file that came unasked and is not wanted is written over the one that stands.
    UnwantedIsWritten,
}

impl Mutant {
    /// All of them.
    pub const ALL: &'static [Mutant] = &[
        Mutant::JournalBeforeSync,
        Mutant::CommitWithoutRoot,
        Mutant::ReceivedIsDurable,
        Mutant::NoFence,
        Mutant::ShortTail,
        Mutant::LateDuplicate,
        Mutant::ReassignEarly,
        Mutant::NameNotSynced,
        Mutant::ChangeNotSynced,
        Mutant::RenameBeforeSync,
        Mutant::DirsNotSynced,
        Mutant::StandingNotSynced,
        Mutant::CachedJournal,
        Mutant::ShelfNotSynced,
        Mutant::TornTailKept,
        Mutant::TakeoverNotSynced,
        Mutant::ChunkBeforeGroupSync,
        Mutant::LoserFirst,
        Mutant::Forgetful,
        Mutant::LaneStaysOpen,
        Mutant::LaneOvercounts,
        Mutant::GapForgotten,
        Mutant::EqualNotCopied,
        Mutant::DirUnnamed,
        Mutant::LeftBeforeSync,
        Mutant::ThinnedForgotten,
        Mutant::RemovalUnchecked,
        Mutant::TornAppendKept,
        Mutant::UndoneIsDone,
        Mutant::LostIsSynced,
        Mutant::LostNotRewritten,
        Mutant::PostponedIsPublished,
        Mutant::UnwantedIsWritten,
    ];
}
