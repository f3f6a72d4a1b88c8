//! Some files of a shard: a look at each, and a reading of those that look as they were delivered.
//!
//! In: names with what is known of them. Out: which of them are well, bad, or read for the first
//! time. `ground` looks and reads, here or at a daemon. Must not know the queue.

use longhaul_core::clock::Clock;
use longhaul_core::{ByteCount, Fault, FaultCode, Hash32, Mtime, PlainText, RelPath};
use longhaul_engine::{FoundThing, Stop, StopTrigger};
use longhaul_jobs::BadKind;
use longhaul_jobs::queue::FoundBad;
use longhaul_manifest::{Item, ItemKind};

use super::news::MendedFile;
use super::orders::ChangedUse;
use super::shard::{NamesBatch, ShardFiles, TimesKept};
use crate::jobs::mover::Halt;

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
    /// Files that were bad and were copied anew. They are among those that are well.
    pub(super) mended: Vec<MendedFile>,
}

/// The outcome of a look at a name.
enum Glance {
    /// It is as it was delivered, as far as can be seen without reading.
    Alike,
    /// It is bad.
    Bad(BadKind, String),
}

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
    let _guard = StopsAtEnd(trigger);
    tokio::select! {
        findings = findings(files, batch, rules, &stop) => findings.map(Some),
        _ = stopping.wait_for(Option::is_some) => Ok(None),
    }
}

/// Looks at a batch and reads it, unless `stop` ends that.
///
/// # Errors
/// As [`read`].
pub(super) async fn findings(
    files: &ShardFiles,
    batch: &NamesBatch,
    rules: ReadRules,
    stop: &Stop,
) -> Result<BatchFindings, Fault> {
    let looked = look_at_all(files, batch.items.clone(), stop).await?;
    let read = looked.iter().filter(|(item, look)| item.is_file() && matches!(look, Glance::Alike));
    let names: Vec<RelPath> = read.map(|(item, _)| item.path.clone()).collect();
    let digests = files.ground.read(names, rules, stop).await?;
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
    for (item, look) in look_at_all(files, again, stop).await? {
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
    Ok(findings)
}

/// Stops work of the engine that nobody waits for any more.
pub(super) struct StopsAtEnd(pub(super) StopTrigger);

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
        // A daemon may say anything, and the verifier waits as long as these bytes take.
        self.bytes = self.bytes.saturating_add(bytes.min(item.bytes()));
        match known {
            _ if matches!(item.kind, ItemKind::File { bytes: Some(given) } if given != bytes) => {
                let why = format!("{bytes} bytes of it were read, and it was delivered with {}", item.bytes());
                self.note_bad(item, BadKind::Unread, why, rules);
            }
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

async fn look_at_all(files: &ShardFiles, items: Vec<Item>, stop: &Stop) -> Result<Vec<(Item, Glance)>, Fault> {
    let names = items.iter().map(|item| item.path.clone()).collect();
    let found = files.ground.look(names, stop).await?;
    let looked = items.into_iter().zip(found).map(|(item, found)| {
        let look = glance(found, &item, files.keeps_times);
        (item, look)
    });
    Ok(looked.collect())
}

/// Judges what has a name. A file with the time that it was delivered with, and not with the
/// length, was written by nobody: it is damaged.
fn glance(found: FoundThing, item: &Item, times: TimesKept) -> Glance {
    let given = item.mtime.filter(|_| times == TimesKept::Yes);
    let (seen, why) = match seen(found, item) {
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

fn seen(found: FoundThing, item: &Item) -> Seen {
    let other_kind = || Seen::Bad(BadKind::Changed, "it has become another kind of file".to_owned());
    match (&item.kind, found) {
        (_, FoundThing::Absent) => Seen::Bad(BadKind::Lost, "nothing stands under its name".to_owned()),
        (_, FoundThing::Failed(fault)) => Seen::Bad(BadKind::Unread, fault.message.to_string()),
        (ItemKind::File { bytes }, FoundThing::File { bytes: len, mtime }) => {
            let other = bytes.filter(|bytes| *bytes != len);
            let why = other.map(|bytes| format!("it has {len} bytes, and was delivered with {bytes}"));
            Seen::File(mtime, why)
        }
        (ItemKind::Link { target }, FoundThing::Link { target: shown }) if shown == *target => Seen::Alike,
        (ItemKind::Link { .. }, FoundThing::Link { .. }) => {
            Seen::Bad(BadKind::Changed, "it leads elsewhere".to_owned())
        }
        (ItemKind::File { .. } | ItemKind::Link { .. }, _) => other_kind(),
        (ItemKind::Dir, _) => Seen::Alike,
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test writes what it looks at")]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use longhaul_core::RelPath;

    use super::super::ground::thing_here;
    use super::*;

    #[test]
    fn no_more_bytes_count_as_read_than_the_manifest_has() {
        let rules = ReadRules { budget: Some(1), memory: None, changed: ChangedUse::Bad };
        let item = |len| Item::file(RelPath::new("f").unwrap(), Some(len), Default::default());
        let mut findings = BatchFindings::default();
        findings.compare(&item(7), (u64::MAX, [1; 32]), Some([1; 32]), rules);
        findings.compare(&item(5), (5, [1; 32]), Some([1; 32]), rules);
        assert_eq!((findings.bytes, findings.bad.len(), findings.well.len()), (12, 1, 1));
        assert_eq!(findings.bad[0].kind, BadKind::Unread);
    }

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
        let look = |times| match glance(thing_here(dir.path(), &item.path), &item, times) {
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
