//! Where the files of a campaign stand, and what has their names there: a directory of this host,
//! or one at a daemon, which looks and reads itself.
//!
//! In: paths beneath that directory. Out: what has each of them, and digests of files, read past
//! the page cache and at a rate. Judges none of it, and must not know the queue.

#![allow(clippy::disallowed_methods, reason = "only lengths, times and targets of links are looked at")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_link, symlink_metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::limits::READING_NAMES_MAX;
use longhaul_core::{Blame, Fault, FaultCode, Hash32, Mtime, PathList, PlainText, RelPath};
use longhaul_engine::{
    Event, FarReading, FileEvent, FileStatus, FoundThing, LocalSource, Observer, RATE_MIN, Remote, RemotePath,
    Settings, Stop, digest_sources, locate,
};
use tokio::sync::Mutex as AsyncMutex;

use super::batch::ReadRules;
use super::blocking;
use super::doubt::PlaceMark;
use crate::jobs::spec::beneath;

/// Where the files of a shard stand.
pub(super) enum FilesGround {
    /// Beneath this directory of this host.
    Here(PathBuf),
    /// At a daemon.
    There(Box<FarGround>),
}

/// A directory at a daemon.
pub(super) struct FarGround {
    reading: AsyncMutex<FarReading>,
    remote: Remote,
    path: RemotePath,
    /// The path beneath it beneath which the files stand.
    onto: RelPath,
}

/// A file that was read: its length and digest, or the words of the failure.
pub(super) type FileRead = Result<(u64, Hash32), PlainText>;

impl FarGround {
    /// Asks a daemon for a directory. Gives the mark by which that is known again, too.
    ///
    /// # Errors
    /// The fault of a daemon that is not reached, or refuses; of a directory that is not there.
    pub(super) async fn open(
        remote: Remote,
        path: RemotePath,
        onto: RelPath,
        stop: &Stop,
    ) -> Result<(FarGround, PlaceMark), Fault> {
        let reading = FarReading::open(remote.clone(), path.clone(), stop).await?;
        let mark = mark_of(&remote, &path, stop).await;
        Ok((FarGround { reading: AsyncMutex::new(reading), remote, path, onto }, mark))
    }

    fn paths(&self, names: &[RelPath]) -> Result<Vec<RelPath>, Fault> {
        let paths = names.iter().map(|name| self.onto.concat(name)).collect::<Result<_, _>>();
        paths.map_err(|error| Fault::new(FaultCode::Usage, Blame::Local, error))
    }
}

/// The mark by which a daemon's directory is known again. Without one a few losses are doubted.
async fn mark_of(remote: &Remote, path: &RemotePath, stop: &Stop) -> PlaceMark {
    let whereabouts = locate(remote.clone(), path.clone(), stop.clone()).await.ok();
    let marks = whereabouts.map(|whereabouts| whereabouts.at.concat());
    marks.map_or(PlaceMark::Unknown, |marks| PlaceMark::Told(blake3::hash(&marks).to_hex().to_string()))
}

impl FilesGround {
    /// The mark that a daemon tells now. `None`: it is a directory of this host.
    pub(super) async fn mark_now(&self) -> Option<PlaceMark> {
        match self {
            FilesGround::Here(_) => None,
            FilesGround::There(far) => {
                // A signal ends it by dropping it.
                let (_trigger, stop) = Stop::new();
                Some(mark_of(&far.remote, &far.path, &stop).await)
            }
        }
    }

    /// Says what has these names. Nothing is read.
    ///
    /// # Errors
    /// The fault of a daemon, and of a target that it misses. That of one name is the finding on
    /// it.
    pub(super) async fn look(&self, names: Vec<RelPath>, stop: &Stop) -> Result<Vec<FoundThing>, Fault> {
        match self {
            FilesGround::Here(top) => {
                let top = top.clone();
                blocking(move || names.iter().map(|name| thing_here(&top, name)).collect()).await
            }
            FilesGround::There(far) => {
                let mut reading = far.reading.lock().await;
                let mut found = Vec::with_capacity(names.len());
                for names in far.paths(&names)?.chunks(READING_NAMES_MAX) {
                    found.extend(reading.look(names, stop).await?);
                }
                need_whole(&found)?;
                Ok(found)
            }
        }
    }

    /// Reads files, as fast as the budget allows.
    ///
    /// # Errors
    /// The fault of a reading that concerns no single file.
    pub(super) async fn read(
        &self,
        names: Vec<RelPath>,
        rules: ReadRules,
        stop: &Stop,
    ) -> Result<BTreeMap<RelPath, FileRead>, Fault> {
        match self {
            // No list would mean everything.
            _ if names.is_empty() => Ok(BTreeMap::new()),
            FilesGround::Here(top) => read_here(top, names, rules, stop.clone()).await,
            FilesGround::There(far) => {
                let (mut reading, mut read) = (far.reading.lock().await, BTreeMap::new());
                let mut away = None;
                let paths = far.paths(&names)?;
                for (names, paths) in names.chunks(READING_NAMES_MAX).zip(paths.chunks(READING_NAMES_MAX)) {
                    let sink = |at: usize, found| {
                        if away.is_none() {
                            away = need_whole(std::slice::from_ref(&found)).err();
                        }
                        if let (Some(name), Some(found)) = (names.get(at), file_read(found)) {
                            read.insert(name.clone(), found);
                        }
                    };
                    reading.read((paths, rules.budget), stop, sink).await?;
                }
                away.map_or(Ok(read), Err)
            }
        }
    }
}

/// Refuses findings of a daemon that misses a target of its set: nobody knows how the files are
/// that stand there.
fn need_whole(found: &[FoundThing]) -> Result<(), Fault> {
    let is_away = |found: &FoundThing| match found {
        FoundThing::Failed(fault) if fault.code == FaultCode::TargetFailed => Some(fault.clone()),
        _ => None,
    };
    found.iter().find_map(is_away).map_or(Ok(()), Err)
}

/// A finding of a daemon that was to read a file. `None`: no file has the name any more.
fn file_read(found: FoundThing) -> Option<FileRead> {
    match found {
        FoundThing::Read { bytes, b3 } => Some(Ok((bytes, b3))),
        FoundThing::Failed(fault) => Some(Err(fault.message)),
        _ => None,
    }
}

/// The thing that has a name beneath a directory of this host.
pub(super) fn thing_here(top: &Path, name: &RelPath) -> FoundThing {
    let place = beneath(top, name);
    let failed = |error: std::io::Error| FoundThing::Failed(Fault::new(FaultCode::Io, Blame::Local, error));
    let found = match symlink_metadata(&place) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return FoundThing::Absent;
        }
        Err(error) => return failed(error),
        Ok(found) => found,
    };
    let kind = found.file_type();
    match () {
        () if kind.is_file() => {
            let mtime = Mtime::said(found.mtime(), u32::try_from(found.mtime_nsec()).unwrap_or_default());
            FoundThing::File { bytes: found.len(), mtime }
        }
        () if kind.is_symlink() => read_link(&place)
            .map_or_else(failed, |target| FoundThing::Link { target: target.into_os_string().into_vec() }),
        () if kind.is_dir() => FoundThing::Dir,
        () => FoundThing::Special,
    }
}

async fn read_here(
    top: &Path,
    names: Vec<RelPath>,
    rules: ReadRules,
    stop: Stop,
) -> Result<BTreeMap<RelPath, FileRead>, Fault> {
    let defaults = Settings::default();
    let settings = Settings {
        files_from: Some(Arc::new(PathList::new(&names))),
        rate: rules.budget.map(|rate| rate.max(RATE_MIN)),
        memory: rules.memory.unwrap_or(defaults.memory),
        ..defaults
    };
    let (heard, top) = (Arc::new(ReadFiles::of(names.into_iter().collect())), PathBuf::from(top));
    let observer = Arc::clone(&heard);
    let runtime = tokio::runtime::Handle::current();
    // On a thread of its own: it must not wait while something here waits for the queue's file.
    let reading = tokio::task::spawn_blocking(move || {
        runtime.block_on(digest_sources(vec![LocalSource::contents(&top)], settings, observer, stop))
    });
    let report = reading.await.map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))?;
    match report.fault {
        Some(fault) => Err(fault),
        None => Ok(heard.taken()),
    }
}

/// Hears of the files that the engine reads or sends. A peer may tell of any number of others.
pub(super) struct ReadFiles {
    asked: BTreeSet<RelPath>,
    heard: Mutex<BTreeMap<RelPath, FileRead>>,
}

impl ReadFiles {
    /// Hears of these files.
    pub(super) fn of(asked: BTreeSet<RelPath>) -> ReadFiles {
        ReadFiles { asked, heard: Mutex::default() }
    }

    /// Takes the files that were heard of.
    pub(super) fn taken(&self) -> BTreeMap<RelPath, FileRead> {
        std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for ReadFiles {
    fn event(&self, event: Event) {
        let Event::File(FileEvent { path, status, bytes, b3, .. }) = event else { return };
        let read = match (status, b3) {
            (FileStatus::Failed(fault), _) => Err(fault.message),
            (_, Some(b3)) => Ok((bytes, b3)),
            (_, None) => return,
        };
        if self.asked.contains(&path) {
            self.heard.lock().unwrap_or_else(PoisonError::into_inner).insert(path, read);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_of_a_daemon_that_misses_a_target_are_no_findings_on_files() {
        let failed = |code| FoundThing::Failed(Fault::new(code, Blame::Peer, "no"));
        assert!(need_whole(&[FoundThing::Absent, failed(FaultCode::Io), FoundThing::Dir]).is_ok());
        let fault = need_whole(&[FoundThing::Absent, failed(FaultCode::TargetFailed)]).expect_err("one is away");
        assert_eq!(fault.code, FaultCode::TargetFailed);
    }
}
