//! The event about metadata that could not be kept.
//!
//! In: a loss. Out: the body of its event.

use longhaul_engine::{LossAt, MetadataLoss};
use serde::Serialize;

use super::{Name, name};

/// Metadata of one kind that was to be carried over (`--preserve`) and could not be kept: at the
/// end of the run, once for each side and reason.
#[derive(Serialize)]
pub(super) struct NotKeptBody<'a> {
    /// The kind: `xattrs`, `owner`, `set-id`, `acls`, `hardlinks` (the name has a copy of its own),
    /// `mode` or `times` (of a file that stood), or `checksums` (`--extra-checksum`: the file is
    /// there, without them).
    pub(super) kind: &'static str,
    /// The side at which it was lost: `source` or `destination`.
    pub(super) side: &'static str,
    /// The reason: `unsupported` (the file system has no such thing), `denied` (the system does not
    /// let this user), `policy` (the root of the daemon does not take it), `too-long`, `system` (an
    /// attribute beyond `user.`), `unknown-account`, `several-names` (a file that stood and has
    /// hard links), `striped` (it belongs to whom its set does, and has one name), `changed`
    /// (another entry stood there when it was read), `too-many` (files with several names, names of
    /// one file, or checksums in the catalogue, where those of an older file gave way), `elsewhere`
    /// (the first name is on another file system or target), `unproven` (nothing shows that the
    /// first name is of a file of this transfer), `failed` (the system could not) or `not-computed`
    /// (checksums: not all bytes came while they were computed).
    pub(super) reason: &'static str,
    /// The number of files, directories and links that lost it.
    pub(super) entries: u64,
    /// The first of them, beneath the destination.
    #[serde(flatten)]
    pub(super) first: Name<'a>,
}

/// The body of the event about a loss.
pub(super) fn body(loss: &MetadataLoss) -> NotKeptBody<'_> {
    NotKeptBody {
        kind: loss.kind.name(),
        side: match loss.at {
            LossAt::Source => "source",
            LossAt::Destination => "destination",
        },
        reason: loss.reason.name(),
        entries: loss.entries,
        first: name(loss.first.as_bytes()),
    }
}
