//! Tells of the commit by which all files of a campaign appear together.
//!
//! In: the state of it, and the figures of its campaign. Out: words, and a word of an event.

use longhaul_jobs::queue::misses_files;
use longhaul_jobs::{Hold, Left, ShardState};

use super::bodies::JobBesideBody;
use super::{reason, units};

/// The commit of a campaign in words: how far it is, and what it waits for.
pub(super) fn told(commit: ShardState, left: &Left) -> String {
    match commit {
        ShardState::Held(Hold::AwaitsShards) if left.omitted > 0 => format!(
            "nothing appears without {} that could not be read: cancel the campaign, and add it anew",
            units::count(left.omitted, "name")
        ),
        ShardState::Held(Hold::AwaitsShards) if left.failed.files > 0 => format!(
            "nothing appears without {} given up, which {} for 'longhaul job retry'",
            units::count(left.failed.files, "file"),
            if left.failed.files == 1 { "waits" } else { "wait" }
        ),
        ShardState::Held(Hold::AwaitsShards) => "nothing appears before all files are there".to_owned(),
        ShardState::Held(hold @ Hold::Broken(code)) if misses_files(code) => format!(
            "files that were staged are gone or others, and 'longhaul job retry' has them moved again: {}",
            reason(hold)
        ),
        ShardState::Held(hold) => format!("held until 'longhaul job release': {}", reason(hold)),
        ShardState::Planned | ShardState::Ready | ShardState::Leased(_) => {
            "all files are there, and appear next".to_owned()
        }
        ShardState::Done | ShardState::Partial => "all files have appeared".to_owned(),
        ShardState::Cancelled => "cancelled: nothing appears".to_owned(),
    }
}

/// The figures of a campaign that are in no sum of files.
pub(super) fn beside(left: &Left) -> JobBesideBody {
    let commit = left.commit.map(|commit| match commit {
        ShardState::Held(Hold::AwaitsShards) => "waiting",
        other => other.kind().name(),
    });
    JobBesideBody { omitted: left.omitted, unclaimed: left.unclaimed, commit }
}
