//! Everything that touches a disk: confined trees to scan, read, write and publish in, and engines
//! that move chunks.
//!
//! Takes slots from `longhaul-sys` and orders from the engine of a session; gives open files,
//! entries, and slots back. Knows nothing of peers, digests and sessions.
//!
//! Sources are scanned and opened through a [`SourceTree`], files of the destination are written
//! and published through a [`TargetTree`]; chunks move between their files and slots through
//! [`ChunkIo`]. Trees of another kind than a directory give it files made of [`ReadAt`] and
//! [`WriteAt`].

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests look at the disk behind the crate's back"))]

mod access_list;
mod accounts;
mod affinity;
mod at_once;
mod bytes;
mod catalogue;
mod cpus;
mod destination;
mod direct;
mod error;
mod facts;
mod fill;
mod grace;
mod io;
mod kernel;
mod lines;
mod load;
mod names;
mod overlap;
mod room;
mod scratch;
mod set;
mod set_id;
mod shared;
mod shelf;
mod source;
mod stat;
mod stripe;
mod sysfs;
#[cfg(test)]
mod testing;
mod tree;
mod walk;
mod whereabouts;

pub use affinity::{Affinity, BoundThreads, CpusError, Pin, ThreadWork};
pub use bytes::{ReadAt, WriteAt};
pub use catalogue::SumsCatalogue;
pub use cpus::{CpuList, CpuListError};
pub use destination::{
    Back, Body, CountLeft, DatasetError, DatasetOrder, DatasetStage, DatasetTop, ExtrasPolicy, FoundStage, FsTarget,
    IdleStage, Journalled, LastBlock, LinkPolicy, ListedName, Made, ModePolicy, NameBefore, NameMade, NameProof,
    NamedBytes, Prefill, Published, ReadRoots, Removed, Reopened, ReopenedBody, Replace, Room, StageFacts, StagePart,
    Staged, StagedKind, StagedNames, StreamFigures, StreamForm, StreamOutput, StreamShape, StreamSink, StreamTarget,
    SyncCounts, SyncMethod, TargetFile, TargetTree, TreePolicy, VoidTarget, Zeros, look_at_dataset,
};
pub use direct::{DirectMode, IoMode};
pub use error::{ClaimsError, DiskError, ErrorKind, PathText, SetError};
pub use facts::{NameFacts, NameKind};
pub use grace::{Grace, Withdrawn};
pub use io::{ChunkIo, Depth, DeviceDepth, Done, EngineKind, EngineReport, WriteDone};
pub use kernel::{Call, Descriptor, InodeId, Interposer, Passage};
pub use load::{LoadFigures, RecentFiles, TargetCondition, TargetLoad};
pub use overlap::way_into;
pub use scratch::{Fullness, ScratchDir, ScratchFile, open_for_scan};
pub use set::{
    Beginning, BodySurvey, CopyKind, Listed, Lister, LostFile, Marks, MissingTarget, Moved, Moving, OldTarget,
    OnMissing, Orphan, Orphans, Rebalance, Rebuilding, Relocation, ReplaceEnd, Replaced, Replacement,
    STRIPE_FROM_BYTES, SameDevice, SetLayout, SetMark, SpreadTarget, TargetDirs, TargetRoom, TargetSet, Verification,
    Verified, VerifyEnd, Writing,
};
pub use set_id::SetId;
pub use shared::{ReadingFigures, ReadingMeans, SharedReading, SourceReader};
pub use shelf::{
    CLAIMS_PAGE_PATIENCE, ClaimsOwner, Journal, JournalReader, KeptShowing, LockedShard, Pieces, Proves, ShardKey,
    Shelf, Shelved, StageNote, boot_id,
};
pub use source::{
    FileNames, FsSource, NamesMemory, SameName, ScanRequest, Scanned, Shape, SmallFile, SourceFile, SourceRef,
    SourceSpec, SourceTree, StreamFrom, StreamMemory, StreamSoFar, StreamSource, StreamSpec, TimedVoid, VoidSource,
};
pub use stat::{Identity, Standing};
pub use sysfs::{DeviceFacts, Medium, Sysfs};
pub use tree::Tree;
