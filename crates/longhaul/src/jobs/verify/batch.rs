//! Some files of a shard: a look at each, and a reading of those that look as they were delivered.
//!
//! In: names with what is known of them. Out: which of them are well, bad, or read for the first
//! time. The engine reads and hashes, past the page cache and at a rate, as it does for `check`.
//! Must not know the queue.

#![allow(clippy::disallowed_methods, reason = "only lengths, times and targets of links are looked at")]

use std::collections::BTreeMap;
use std::fs::{read_link, symlink_metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::clock::Clock;
use longhaul_core::{Blame, ByteCount, Fault, FaultCode, Hash32, Mtime, PathList, PlainText, RelPath};
use longhaul_engine::{
    Event, FileEvent, FileStatus, LocalSource, Observer, RATE_MIN, Settings, Stop, StopTrigger, digest_sources,
};
use longhaul_jobs::BadKind;
use longhaul_jobs::queue::FoundBad;
use longhaul_manifest::{Item, ItemKind};

use super::shard::{NamesBatch, ShardFiles, TimesKept};
use super::{ChangedUse, blocking};
use crate::jobs::mover::Halt;
use crate::jobs::spec::beneath;

/// The rules by which files are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRules {
    /// The rate, bytes/s. `None`: as fast as it goes.
    pub(super) budget: Option<u64>,
    /// Buffers. `None`: the engine's.
    pub(super) memory: Option<ByteCount>,
    /// The use of files that somebody wrote to.
    pub(super) changed: ChangedUse,
}

/// The findings on a batch.
#[derive(Debug, Default)]
pub(super) struct BatchFindings {
    /// Names that were looked at.
    pub(super) files: u64,
    /// Bytes that were read.
    pub(super) bytes: u64,
    /// The paths that are well.
    pub(super) well: Vec<Vec<u8>>,
    /// The files that are bad.
    pub(super) bad: Vec<FoundBad>,
    /// Files that were read and could not be compared, with their lengths and digests.
    pub(super) first: Vec<(RelPath, u64, Hash32)>,
    /// Files that somebody wrote to, and that are passed over.
    pub(super) passed_over: u64,
}

/// The outcome of a look at a name.
enum Glance {
    /// It is as it was delivered, as far as can be seen without reading.
    Alike,
    /// It is bad.
    Bad(BadKind, String),
}

/// A file that was read: its length and digest, or the words of the failure.
type FileRead = Result<(u64, Hash32), PlainText>;

/// Looks at a batch, and reads it. `None`: it was stopped.
///
/// # Errors
/// The fault of a reading that concerns no single file.
pub(super) async fn read(
    files: &ShardFiles,
    batch: &NamesBatch,
    rules: ReadRules,
    mut stopping: Halt,
) -> Result<Option<BatchFindings>, Fault> {
    let (trigger, stop) = Stop::new();
    let guard = StopsAtEnd(trigger);
    let looked = look_at_all(files, batch.items.clone()).await?;
    let read = looked.iter().filter(|(item, look)| item.is_file() && matches!(look, Glance::Alike));
    let names: Vec<RelPath> = read.map(|(item, _)| item.path.clone()).collect();
    let digests = digests(&files.top, names, rules, stop);
    let digests = tokio::select! {
        digests = digests => digests?,
        _ = stopping.wait_for(Option::is_some) => return Ok(None),
    };
    drop(guard);
    let mut findings = BatchFindings { files: looked.len() as u64, ..BatchFindings::default() };
    let mut again = Vec::new();
    for (item, look) in looked {
        match look {
            Glance::Bad(kind, why) => findings.note_bad(&item, kind, why, rules),
            Glance::Alike if item.is_file() => again.push(item),
            Glance::Alike => findings.well.push(item.path.as_bytes().to_vec()),
        }
    }
    // It may have been written to while it was read.
    for (item, look) in look_at_all(files, again).await? {
        match (look, digests.get(&item.path)) {
            (Glance::Bad(kind, why), _) => findings.note_bad(&item, kind, why, rules),
            (Glance::Alike, Some(Ok((bytes, b3)))) => findings.compare(&item, (*bytes, *b3), files.known(&item), rules),
            (Glance::Alike, Some(Err(why))) => findings.note_bad(&item, BadKind::Unread, why.to_string(), rules),
            (Glance::Alike, None) => {
                let why = "the reader passed it over".to_owned();
                findings.note_bad(&item, BadKind::Unread, why, rules);
            }
        }
    }
    Ok(Some(findings))
}

/// Stops a reading that nobody waits for any more.
struct StopsAtEnd(StopTrigger);

impl Drop for StopsAtEnd {
    fn drop(&mut self) {
        self.0.stop(FaultCode::Terminated);
    }
}

impl BatchFindings {
    fn note_bad(&mut self, item: &Item, kind: BadKind, why: String, rules: ReadRules) {
        if kind == BadKind::Changed && rules.changed == ChangedUse::PassedOver {
            self.passed_over += 1;
            // If it was bad in another way before, somebody has replaced it since.
            self.well.push(item.path.as_bytes().to_vec());
            return;
        }
        let (path, message) = (item.path.as_bytes().to_vec(), PlainText::from(why));
        self.bad.push(FoundBad { path, bytes: item.bytes(), kind, message });
    }

    fn compare(&mut self, item: &Item, (bytes, b3): (u64, Hash32), known: Option<Hash32>, rules: ReadRules) {
        self.bytes += bytes;
        match known {
            Some(known) if known != b3 => {
                let hex = |digest: Hash32| blake3::Hash::from_bytes(digest).to_hex().to_string();
                let why = format!("its BLAKE3 is {}, and was {}", hex(b3), hex(known));
                self.note_bad(item, BadKind::Damaged, why, rules);
            }
            Some(_) => self.well.push(item.path.as_bytes().to_vec()),
            None => {
                self.first.push((item.path.clone(), bytes, b3));
                self.well.push(item.path.as_bytes().to_vec());
            }
        }
    }
}

async fn look_at_all(files: &ShardFiles, items: Vec<Item>) -> Result<Vec<(Item, Glance)>, Fault> {
    let (top, keeps_times) = (files.top.clone(), files.keeps_times);
    blocking(move || {
        let looked = items.into_iter().map(|item| (glance(&top, &item, keeps_times), item));
        looked.map(|(look, item)| (item, look)).collect()
    })
    .await
}

/// Looks at a name. A file with the time that it was delivered with, and not with the length, was
/// written by nobody: it is damaged.
fn glance(top: &Path, item: &Item, times: TimesKept) -> Glance {
    let given = item.mtime.filter(|_| times == TimesKept::Yes);
    let (seen, why) = match seen(top, item) {
        Seen::Alike => return Glance::Alike,
        Seen::Bad(kind, why) => return Glance::Bad(kind, why),
        Seen::File(seen, why) => (seen, why),
    };
    match (why, given.map(|given| Clock::Unknown.shows(given, seen))) {
        (None, None | Some(true)) => Glance::Alike,
        (None, Some(false)) => Glance::Bad(BadKind::Changed, "it was written to since".to_owned()),
        (Some(why), Some(true)) => Glance::Bad(BadKind::Damaged, format!("{why}, and has the time of its delivery")),
        (Some(why), None | Some(false)) => Glance::Bad(BadKind::Changed, why),
    }
}

/// The thing that stands under a name.
enum Seen {
    /// A file with this time, and the words of another length than it was delivered with.
    File(Mtime, Option<String>),
    /// Something that has no content to be read, and is as it was.
    Alike,
    /// Something else, or nothing.
    Bad(BadKind, String),
}

fn seen(top: &Path, item: &Item) -> Seen {
    let place = beneath(top, &item.path);
    let found = match symlink_metadata(&place) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Seen::Bad(BadKind::Lost, "nothing stands under its name".to_owned());
        }
        Err(error) => return Seen::Bad(BadKind::Unread, error.to_string()),
        Ok(found) => found,
    };
    let other_kind = || Seen::Bad(BadKind::Changed, "it has become another kind of file".to_owned());
    match &item.kind {
        ItemKind::File { .. } if !found.is_file() => other_kind(),
        ItemKind::File { bytes } => {
            let other = bytes.filter(|bytes| *bytes != found.len());
            let why = other.map(|bytes| format!("it has {} bytes, and was delivered with {bytes}", found.len()));
            Seen::File(Mtime::said(found.mtime(), u32::try_from(found.mtime_nsec()).unwrap_or_default()), why)
        }
        ItemKind::Link { .. } if !found.is_symlink() => other_kind(),
        ItemKind::Link { target } => match read_link(&place) {
            Ok(shown) if shown.as_os_str().as_bytes() == target => Seen::Alike,
            Ok(_) => Seen::Bad(BadKind::Changed, "it leads elsewhere".to_owned()),
            Err(error) => Seen::Bad(BadKind::Unread, error.to_string()),
        },
        ItemKind::Dir => Seen::Alike,
    }
}

/// Reads files, as fast as the budget allows.
async fn digests(
    top: &Path,
    names: Vec<RelPath>,
    rules: ReadRules,
    stop: Stop,
) -> Result<BTreeMap<RelPath, FileRead>, Fault> {
    // No list would mean everything.
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let defaults = Settings::default();
    let settings = Settings {
        files_from: Some(Arc::new(PathList::new(&names))),
        rate: rules.budget.map(|rate| rate.max(RATE_MIN)),
        memory: rules.memory.unwrap_or(defaults.memory),
        ..defaults
    };
    let (heard, top) = (Arc::new(ReadFiles::default()), PathBuf::from(top));
    let observer = Arc::clone(&heard);
    let runtime = tokio::runtime::Handle::current();
    // On a thread of its own: it must not wait while something here waits for the queue's file.
    let reading = tokio::task::spawn_blocking(move || {
        runtime.block_on(digest_sources(vec![LocalSource::contents(&top)], settings, observer, stop))
    });
    let report = reading.await.map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))?;
    match report.fault {
        Some(fault) => Err(fault),
        None => Ok(std::mem::take(&mut *heard.0.lock().unwrap_or_else(PoisonError::into_inner))),
    }
}

/// Hears of the files that the engine reads.
#[derive(Default)]
struct ReadFiles(Mutex<BTreeMap<RelPath, FileRead>>);

impl Observer for ReadFiles {
    fn event(&self, event: Event) {
        let Event::File(FileEvent { path, status, bytes, b3, .. }) = event else { return };
        let read = match (status, b3) {
            (FileStatus::Failed(fault), _) => Err(fault.message),
            (_, Some(b3)) => Ok((bytes, b3)),
            (_, None) => return,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path, read);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use longhaul_core::RelPath;

    use super::*;

    #[test]
    fn a_file_that_was_cut_is_damaged_if_its_time_says_that_nobody_wrote_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("f");
        fs::write(&place, b"whole").unwrap();
        let found = fs::metadata(&place).unwrap();
        let delivered = found.modified().unwrap();
        let mtime = Mtime::said(found.mtime(), u32::try_from(found.mtime_nsec()).unwrap());
        let item = Item::file(RelPath::new("f").unwrap(), Some(5), Default::default());
        let item = Item { mtime: Some(mtime), ..item };
        let look = |times| match glance(dir.path(), &item, times) {
            Glance::Alike => None,
            Glance::Bad(kind, _) => Some(kind),
        };
        assert_eq!(look(TimesKept::Yes), None);
        fs::write(&place, b"cut").unwrap();
        let file = fs::File::options().write(true).open(&place).unwrap();
        file.set_modified(delivered).unwrap();
        assert_eq!((look(TimesKept::Yes), look(TimesKept::No)), (Some(BadKind::Damaged), Some(BadKind::Changed)));
        file.set_modified(delivered + std::time::Duration::from_secs(10)).unwrap();
        assert_eq!(look(TimesKept::Yes), Some(BadKind::Changed));
    }
}
