//! The basic types of longhaul: ids, units, limits, the manifest, the map of chunks, the digest
//! tree, filters.
//!
//! Pure: no clock, file, socket or thread. Everything above imports it; it imports nothing of ours.

pub mod account_map;
pub mod checksum;
pub mod chunkmap;
pub mod claim;
pub mod clock;
pub mod dataset;
pub mod digest;
pub mod extras;
pub mod fault;
pub mod filter;
pub mod hint;
pub mod ids;
pub mod kept_sums;
pub mod limits;
pub mod load;
pub mod losses;
pub mod manifest;
pub mod path;
pub mod path_list;
mod path_share;
pub mod place;
pub mod removal;
pub mod reserved;
pub mod rights;
pub mod stamp;
pub mod stripe;
pub mod temp_name;
pub mod text;
pub mod units;
pub mod whereabouts;

pub use account_map::{AccountMap, AccountRule};
pub use checksum::{Agreement, Algorithm, Algorithms, ChunkSums, PartSums, Sums};
pub use chunkmap::{ChunkMap, DigestKind};
pub use claim::{ShardClaim, ShardClaimError};
pub use clock::Clock;
pub use dataset::{DatasetName, DatasetNameError, DatasetPart};
pub use digest::{ChunkHasher, Digest, Hash32, MergeError, RootMerger, TreePart, digest_of};
pub use extras::{AccessList, Account, Extras, Grant, Grantee, Owner, Permissions, Xattr, XattrName};
pub use fault::{Author, Blame, Fault, FaultCode};
pub use filter::{Filter, FilterError, Pattern, PatternFault, Rule, RuleKind};
pub use hint::Hint;
pub use ids::{Attempt, BundleId, FileId, LaneId, Role, Transport, Unit};
pub use load::{Candidate, DepthSearch, Latency, LoadMeter, slow, soonest};
pub use losses::{Loss, LossKind, LossReason, Losses};
pub use manifest::{Entry, EntryKind, IfExists, Inode, Meta, Mtime, Preserve, SeveralNames};
pub use path::{Escaped, PathError, RelPath};
pub use path_list::{Gathering, PathList, PathListError};
pub use path_share::PathShare;
pub use place::{Layout, Place, TargetId};
pub use removal::{PlanName, is_kept};
pub use reserved::is_reserved;
pub use rights::{Rights, RightsError};
pub use stamp::{FileNode, SourceStamp};
pub use temp_name::{SessionTag, TEMP_NAME_BYTES, TempName};
pub use text::{PlainText, Word, WordError, is_deceptive};
pub use units::{ByteCount, ChunkIndex, ChunkSize, FileOffset};
pub use whereabouts::{DirMark, Siting, Whereabouts};
