//! Reads outlines of journals on a shelf, without their locks: which files each of them names.
//!
//! In: a shelf, and the principal and run that ask. Out: an outline for each journal. By these a
//! session knows which journals concern it, and locks only those; a partial that it then continues
//! is read again under the lock. Of another principal's journal only the beginning is read, unless
//! its session lives and may be writing a file that this one wants, or it is a journal of doubts.
//! It writes nothing and knows no machines.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::{ChunkSize, Fault, Layout, RelPath, SessionTag, SourceStamp};
use longhaul_disk::JournalReader;
use longhaul_proto::journal::keeper::Beginning;
use longhaul_proto::journal::{JournalError, Opened, Replay, Replayed};

/// The content of a journal at one look.
#[derive(Debug)]
pub(super) struct Outline {
    pub(super) tag: SessionTag,
    pub(super) opened: Opened,
    /// Files that are neither done nor dropped, each with the size of the largest chunks that are
    /// held of it.
    pub(super) files: HashMap<RelPath, ChunkSize>,
    /// Files that were committed by the run that asks, each as a digest of its path and version:
    /// there may be millions.
    finished: HashSet<[u8; 16]>,
    /// Whether a session had it then: it may have grown since.
    pub(super) live: bool,
    /// Its length then, bytes.
    pub(super) len: u64,
}

/// The session that asks: the principal of the wanted journals, and its run.
#[derive(Clone, Debug)]
pub(super) struct Whose {
    pub(super) principal: String,
    /// The layout of the destination.
    pub(super) layout: Layout,
    /// The run. Entries that it committed count as done.
    pub(super) run: [u8; 16],
}

/// The finding of a look at a journal.
#[derive(Debug)]
pub(super) enum Looked {
    /// A journal of files, of the principal that asks.
    Own(Outline),
    /// A journal of another principal whose session lives.
    Foreign(Outline),
    /// A journal of names in doubt, of any principal.
    Doubts(Vec<RelPath>),
    /// A journal that never promised anything.
    Unopened,
    /// A journal of no interest.
    Nothing,
}

impl Whose {
    /// The session of this beginning.
    pub(super) fn of(beginning: &Beginning) -> Whose {
        let Beginning { opened, origin, layout } = beginning;
        Whose { principal: opened.principal.clone(), layout: *layout, run: origin.run }
    }
}

impl Outline {
    /// Whether this run committed this version of a source at `path`.
    pub(super) fn is_finished(&self, path: &RelPath, source: &SourceStamp) -> bool {
        !self.finished.is_empty() && self.finished.contains(&version_key(path, source))
    }

    /// When the session began that wrote it last.
    pub(super) fn since(&self) -> SystemTime {
        // A time beyond what the clock can show is as good as unknown.
        UNIX_EPOCH.checked_add(Duration::from_secs(self.opened.at_unix)).unwrap_or(UNIX_EPOCH)
    }

    fn of(tag: SessionTag, replayed: Replayed, whose: &Whose, live: bool, len: u64) -> Outline {
        let mut files = HashMap::new();
        for partial in replayed.files.into_values() {
            let size = partial.file.map.size();
            let known = files.entry(partial.file.path).or_insert(size);
            *known = size.max(*known);
        }
        let of_run = replayed.done.iter().filter(|done| done.origin.is_of_run(whose.run));
        let finished = of_run.map(|done| version_key(&done.file.path, &done.file.source)).collect();
        Outline { tag, opened: replayed.opened, files, finished, live, len }
    }
}

/// Whether a locked journal may be that of a session of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elsewhere {
    Maybe,
    /// Sessions of this process have it: the paths that they own say more.
    No,
}

/// Looks at a journal.
pub(super) fn look(reader: &JournalReader, whose: &Whose, elsewhere: Elsewhere) -> Result<Looked, Fault> {
    // The length is read first: records that are appended meanwhile make it longer, and it is
    // looked at again.
    let (len, live) = (reader.len()?, reader.is_live()?);
    let mut replay = Replay::over(whose.layout);
    let is_theirs = |replay: &Replay| replay.opened().is_some_and(|opened| opened.principal != whose.principal);
    let read = reader.read(&mut |bytes| {
        replay.push(bytes);
        let others_matter = live && elsewhere == Elsewhere::Maybe || replay.may_be_of_doubts();
        !replay.ended() && (others_matter || !is_theirs(&replay))
    });
    let tag = reader.tag();
    if let Err(error) = read {
        tracing::warn!(target: "longhaul::journal", %tag, %error, "a journal is left alone");
        return Ok(Looked::Nothing);
    }
    let theirs = is_theirs(&replay);
    Ok(match replay.finish() {
        Ok(replayed) if !replayed.doubts.is_empty() => Looked::Doubts(replayed.doubts.into_iter().collect()),
        Ok(replayed) if !theirs => Looked::Own(Outline::of(tag, replayed, whose, live, len)),
        Ok(replayed) if live && elsewhere == Elsewhere::Maybe => {
            Looked::Foreign(Outline::of(tag, replayed, whose, live, len))
        }
        Err(JournalError::Unopened) => Looked::Unopened,
        Ok(_) => Looked::Nothing,
        Err(error) => {
            tracing::warn!(target: "longhaul::journal", %tag, %error, "a journal is left alone");
            Looked::Nothing
        }
    })
}

fn version_key(path: &RelPath, source: &SourceStamp) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(path.as_bytes());
    let (mtime, ctime) = (source.mtime, source.ctime);
    for word in [0, source.len, source.dev, source.ino, mtime.secs as u64, ctime.secs as u64] {
        hasher.update(&word.to_le_bytes());
    }
    for word in [mtime.nanos, ctime.nanos] {
        hasher.update(&word.to_le_bytes());
    }
    let mut key = [0; 16];
    key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_no_clock_shows_is_as_good_as_unknown() {
        let opened = Opened {
            principal: String::new(),
            owner: String::new(),
            pid: 1,
            at_unix: u64::MAX,
            generation: 1,
            session: [0; 16],
        };
        let (tag, files, finished) = (SessionTag([0; 8]), HashMap::new(), Default::default());
        let outline = Outline { tag, opened, files, finished, live: false, len: 0 };
        assert_eq!(outline.since(), UNIX_EPOCH);
    }
}
