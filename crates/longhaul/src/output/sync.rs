//! Counts what a sync found: new, changed and the same, and tells the sums.
//!
//! In: settled files, or the counts of two manifests. Out: one line and one event. Knows no
//! transfer.

use std::io;

use longhaul_engine::{FileEvent, FileStatus};
use serde::Serialize;

use super::{JsonLines, Summary, Talker};
use crate::exit::Exit;
use crate::settings::Talk;

/// Whether a run is a sync, and how it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncTold {
    /// It is none.
    Never,
    /// It is one, and files are counted as they are settled.
    #[default]
    AsSettled,
    /// It is one of names on which two manifests differ, which were counted before.
    Before(SyncCounts),
}

/// Files and links of a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncCounts {
    /// The destination had none of that name.
    pub new: u64,
    /// It had another one.
    pub changed: u64,
    /// It has the same.
    pub same: u64,
    /// They were sent, or a dry run would send them, and this side does not know whether the
    /// destination had another one.
    pub sent: u64,
    /// It has them and the source has not, as far as that was looked at.
    pub only_there: u64,
}

/// The sums of a sync, right before its summary.
#[derive(Serialize)]
struct SyncBody {
    /// Files and links that the destination did not have.
    new: u64,
    /// Files and links that it had otherwise.
    changed: u64,
    /// Files and links that were there already.
    same: u64,
    /// Files and links that were sent to a daemon that does not say which of them it had, or that a
    /// dry run would send.
    sent: u64,
    /// Files and links that it has alone. Null but in a comparison of manifests.
    only_there: Option<u64>,
}

impl SyncCounts {
    /// Counts a settled file.
    pub(super) fn settle(&mut self, file: &FileEvent) {
        match file.status {
            FileStatus::Skipped => self.same += 1,
            FileStatus::Planned => self.sent += 1,
            FileStatus::Committed | FileStatus::Staged | FileStatus::Linked => match file.own.stood {
                Some(true) => self.changed += 1,
                Some(false) => self.new += 1,
                None => self.sent += 1,
            },
            FileStatus::Failed(_) => {}
        }
    }

    /// Names that the two have not alike, and that the source has.
    pub fn differing(&self) -> u64 {
        self.new + self.changed
    }

    /// The sums in one line.
    pub(super) fn line(&self, told: SyncTold) -> String {
        let SyncCounts { new, changed, same, sent, only_there } = *self;
        let mut line =
            if sent > 0 { format!("{sent} new or changed") } else { format!("{new} new, {changed} changed") };
        line.push_str(&format!(", {same} the same"));
        if only_there > 0 {
            line.push_str(&format!(", {only_there} at DEST alone"));
        }
        if matches!(told, SyncTold::Before(_)) {
            line.push_str(", by the manifests");
        }
        line
    }

    /// Writes them as an event.
    pub(super) fn event<W: io::Write>(&self, json: &mut JsonLines<W>, told: SyncTold) -> io::Result<()> {
        let SyncCounts { new, changed, same, sent, only_there } = *self;
        let only_there = matches!(told, SyncTold::Before(_)).then_some(only_there);
        json.say("sync", SyncBody { new, changed, same, sent, only_there })
    }

    /// Ends a sync of two manifests that has nothing to transfer.
    pub fn conclude(&self, talk: Talk) -> Exit {
        Talker::new(talk).say(format_args!("nothing to do: {}", self.line(SyncTold::Before(*self))));
        let mut json = JsonLines::new(io::stdout());
        let told = || {
            self.event(&mut json, SyncTold::Before(*self))
                .and_then(|()| json.summary(&Summary::nothing(Exit::Complete)))
        };
        match if talk.json { Some(told) } else { None }.map_or(Ok(()), |mut told| told()) {
            Ok(()) => Exit::Complete,
            Err(error) => super::stdout_failed(error),
        }
    }
}
