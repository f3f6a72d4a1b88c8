//! Tells of the commit by which all files of a campaign appear together, and what `job retry` has
//! tried again.
//!
//! In: the state of it, and the figures of its campaign. Out: words, and a word of an event.

use std::io::Write;

use longhaul_jobs::queue::misses_files;
use longhaul_jobs::{Hold, Left, ShardState};

use super::bodies::JobBesideBody;
use super::{JobTelling, reason, units};

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
    JobBesideBody { omitted: left.omitted, unclaimed: left.unclaimed, commit: left.commit.map(word) }
}

/// The state of a commit in a word.
fn word(commit: ShardState) -> &'static str {
    match commit {
        ShardState::Held(Hold::AwaitsShards) => "waiting",
        other => other.kind().name(),
    }
}

/// The things that `job retry` has tried again.
#[derive(Clone, Copy, Default)]
pub(super) struct Retried {
    /// Files.
    pub(super) files: u64,
    /// The state of the commit in a word, if it is tried again.
    pub(super) commit: Option<&'static str>,
}

impl<W: Write> JobTelling<W> {
    /// Tells how many files are tried again, and the state in which that leaves a commit that was
    /// held with a fault. `None`: there is none.
    pub fn retried(&mut self, files: u64, commit: Option<ShardState>) {
        self.retried = Retried { files, commit: commit.map(word) };
        if self.json {
            return;
        }
        if files > 0 || commit.is_none() {
            self.line(&format!("{} tried again", units::count(files, "file")));
        }
        match commit {
            None => {}
            Some(ShardState::Held(Hold::AwaitsShards)) => {
                self.line("the commit waits until all files are there");
            }
            Some(_) => self.line("the commit is tried again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Talk;

    /// The lines and the summary of a `job retry`.
    fn lines(files: u64, commit: Option<ShardState>) -> (String, String) {
        let told = |json| {
            let mut out = Vec::new();
            let mut telling = JobTelling::new(&mut out, Talk { json, ..Talk::default() });
            telling.retried(files, commit);
            telling.end();
            String::from_utf8(out).expect("text")
        };
        (told(false), told(true))
    }

    #[test]
    fn a_retry_tells_of_the_commit_that_it_lets_go() {
        let (text, json) = lines(0, Some(ShardState::Planned));
        assert_eq!(text, "the commit is tried again\n");
        assert!(json.contains("\"files_retried\":0,\"commit_retried\":\"planned\","), "{json}");
        let (text, json) = lines(20, Some(ShardState::Held(Hold::AwaitsShards)));
        assert_eq!(text, "20 files tried again\nthe commit waits until all files are there\n");
        assert!(json.contains("\"files_retried\":20,\"commit_retried\":\"waiting\","), "{json}");
        let (text, json) = lines(0, None);
        assert_eq!(text, "0 files tried again\n");
        assert!(json.contains("\"files_retried\":0,\"commit_retried\":null,"), "{json}");
    }
}
