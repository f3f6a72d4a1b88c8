//! Sealed manifests: lists of whole datasets, sorted, compressed, named by their content and
//! written once.
//!
//! In: a tree of this host, directories that somebody lists, lists of other programs, or other
//! sealed manifests. Out: a directory with segments and a head, whose digest names the dataset;
//! items and differences, one by one. A manifest may come from a stranger: nothing in it is
//! believed before it was checked, and reading one takes bounded memory. Knows no network, no
//! session and no command line. docs/MANIFEST.md has the bytes.

mod block;
mod collect;
mod consistency;
mod diff;
mod draft;
mod error;
mod frames;
mod head;
mod import;
mod item;
mod lock;
mod make;
mod merge;
mod progress;
mod sealed;
mod segment;
mod sort;

pub use collect::{Collecting, Collection, CollectionStart, DirItems};
pub use consistency::{ConsistencySums, Inconsistency, consistency};
pub use diff::{Difference, diff};
pub use draft::{Draft, DraftStart, Finished, is_unfinished};
pub use error::{HeadFlaw, LineFlaw, ManifestError, SegmentFlaw};
pub use head::{HEAD_NAME, Head, Lists, SEGMENT_ITEMS_MAX, Segment};
pub use import::{Format, import};
pub use item::{Item, ItemKind};
pub use longhaul_core::checksum::{Agreement, Algorithm, Algorithms, Hashing, Sums, adler32_combine, crc32c_combine};
pub use make::{KeptElsewhere, KeptUse, Made, Make, Watcher, make};
pub use merge::{Merge, united};
pub use sealed::{Items, Sealed};
pub use segment::{SegmentReader, SegmentWriter, check_segment};
pub use sort::{Sorted, Sorter};
