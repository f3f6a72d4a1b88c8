//! `--manifest`: a line as `b3sum` prints it for every regular file that stands at the destination
//! after the run.
//!
//! In: the engine's file events, each with the digest of the standing file. Out: the lines, at
//! their place only when they are complete: a run that did not go through every file writes none,
//! and an older manifest stays. Knows no session.

#![allow(
    clippy::disallowed_methods,
    reason = "the manifest is the user's own file beside the transfer, not part of it"
)]

mod expected;
mod lines;
mod place;

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul_engine::{FileEvent, FileStatus};

use crate::destination::Destination;
use crate::error::Error;
use crate::location::LocalPath;
use lines::line;
use place::ManifestPlace;

pub use expected::{Expected, Finding};

/// A manifest being written. Dropped before [`Manifest::finish`], it leaves no file.
pub struct Manifest {
    path: PathBuf,
    place: ManifestPlace,
    destination: Destination,
    /// The lines so far, in a file without a name, as there may be millions.
    lines: BufWriter<File>,
    counts: Omissions,
    /// The names that the manifest itself would have among the files of the transfer.
    own: Own,
    /// The first failure of a write; later ones follow from it.
    failed: Option<io::Error>,
}

/// The name of the manifest's own place among the files of a transfer, if it lies where they come
/// from or go to.
#[derive(Clone, Debug, Default)]
struct Own {
    /// The names by which the sources have it.
    sent: Vec<Vec<u8>>,
    /// The names under which it is placed, with its own name and with the destination's.
    placed: Option<Vec<u8>>,
    renamed: Option<Vec<u8>>,
}

impl Own {
    /// Finds the names that the file at `path` has among the files sent from `sources` to
    /// `destination`.
    fn find(path: &Path, sources: &[LocalPath], destination: &Destination) -> Own {
        let Some(path) = whole(path) else { return Own::default() };
        let beneath = |base: PathBuf| path.strip_prefix(base).ok().map(|rest| rest.as_os_str().as_bytes().to_vec());
        let beneath_dir = |dir: &Path| beneath(nearest(dir)?);
        let sent = sources.iter().filter_map(|source| {
            let base =
                if source.slash { fs::canonicalize(&source.path).ok()? } else { whole(&source.path)?.parent()?.into() };
            beneath(base)
        });
        let sent = sent.collect();
        let Some((itself, parent)) = destination.bases() else { return Own { sent, ..Own::default() } };
        Own { sent, placed: beneath_dir(itself), renamed: beneath_dir(parent) }
    }

    fn is(&self, file: &FileEvent) -> bool {
        let is_sent = self.sent.iter().any(|name| name == file.path.as_bytes());
        let placed = if file.renamed { &self.renamed } else { &self.placed };
        is_sent || placed.as_deref() == Some(file.placed.as_bytes())
    }
}

/// A path without links above its last name. `None` if a directory above does not exist.
fn whole(path: &Path) -> Option<PathBuf> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(nearest(above)?.join(path.file_name()?))
}

/// A directory without links in its path, as far as it exists.
fn nearest(dir: &Path) -> Option<PathBuf> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    match fs::canonicalize(dir) {
        Ok(whole) => Some(whole),
        Err(_) => Some(nearest(dir.parent()?)?.join(dir.file_name()?)),
    }
}

/// Files at the destination that are not in the manifest as a user would expect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Omissions {
    /// Files without a line, as they failed: the file that stands there is not the one to be sent,
    /// or could not be read.
    pub failed: u64,
    /// Lines whose names are no UTF-8: as in `b3sum`'s own output, the odd bytes are U+FFFD and
    /// `b3sum -c` refuses them.
    pub not_utf8: u64,
}

impl Manifest {
    /// Begins a manifest for `path`, of the files that land at `destination`.
    ///
    /// # Errors
    /// [`Error::File`] if `path` cannot be written to, or lies in a directory that does not exist
    /// and that the run would not make.
    pub fn create(path: PathBuf, sources: &[LocalPath], destination: Destination) -> Result<Manifest, Error> {
        let begin = || {
            if path.as_os_str().as_bytes().ends_with(b"/") {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            let place = ManifestPlace::find(&path)?;
            // The run may make the directory, if it is beneath its destination.
            if !place.has_dir() && !destination.holds(&path) {
                let why = "it lies in a directory that does not exist, and that this run does not make";
                return Err(io::Error::new(io::ErrorKind::NotFound, why));
            }
            let lines = place.nearest_dir().map_or_else(tempfile::tempfile, tempfile::tempfile_in)?;
            Ok((place, BufWriter::new(lines)))
        };
        let (place, lines) = begin().map_err(Error::file("write the manifest", &path))?;
        let own = place.file().map(|file| Own::find(file, sources, &destination)).unwrap_or_default();
        Ok(Manifest { path, place, destination, lines, counts: Omissions::default(), own, failed: None })
    }

    /// Whether it goes to standard output.
    pub fn takes_stdout(&self) -> bool {
        self.place.is_stdout()
    }

    /// Whether it would replace the file at `other`.
    pub fn replaces(&self, other: &Path) -> bool {
        self.place.is_file_at(other)
    }

    /// The path of the manifest, as the user named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes a settled file.
    pub fn hear(&mut self, file: &FileEvent) {
        let name = self.destination.name(file);
        if self.own.is(file) {
            let why = "it is itself a file of this transfer: give --manifest another name";
            self.failed = Some(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let written = match (&file.status, file.b3) {
            _ if !file.regular || self.failed.is_some() => return,
            (FileStatus::Committed | FileStatus::Staged | FileStatus::Skipped | FileStatus::Linked, Some(digest)) => {
                self.line(&digest, &name)
            }
            // An event without a digest: the file has its line from an earlier session of the run.
            (FileStatus::Failed(_), _) => {
                self.counts.failed += 1;
                return;
            }
            _ => return,
        };
        self.failed = written.err();
    }

    /// Puts the manifest at its place: a regular file durably, and as a whole.
    ///
    /// # Errors
    /// [`Error::File`] if any of it could not be written.
    pub fn finish(mut self) -> Result<Omissions, Error> {
        let path = self.path.clone();
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.complete(),
        }
        .map_err(Error::file("write the manifest", path))
    }

    fn complete(self) -> io::Result<Omissions> {
        let mut lines = self.lines.into_inner().map_err(|error| error.into_error())?;
        lines.rewind()?;
        self.place.take(lines)?;
        Ok(self.counts)
    }

    fn line(&mut self, digest: &[u8; 32], name: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(name);
        self.counts.not_utf8 += u64::from(matches!(text, std::borrow::Cow::Owned(_)));
        self.lines.write_all(line(digest, &text).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use longhaul_core::{Blame, Fault, FaultCode};

    use super::*;
    use crate::destination::tests::event as placed;
    use crate::location::Location;

    fn event(name: &[u8], status: FileStatus, b3: Option<[u8; 32]>) -> FileEvent {
        placed(name, name, status, b3)
    }

    fn here(dir: &Path) -> Destination {
        Destination::local(&LocalPath { path: dir.to_owned(), slash: true })
    }

    fn elsewhere() -> Destination {
        match Location::parse(OsStr::new("lh://h/r/")).unwrap() {
            Location::Daemon(daemon) => Destination::daemon(&daemon),
            Location::Local(_) | Location::Ssh(_) => unreachable!(),
        }
    }

    #[test]
    fn files_that_stand_have_a_line_and_those_that_failed_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        let mut manifest = Manifest::create(path.clone(), &[], elsewhere()).unwrap();
        manifest.hear(&event(b"new", FileStatus::Committed, Some([7; 32])));
        manifest.hear(&event(b"old", FileStatus::Skipped, Some([8; 32])));
        manifest.hear(&event(b"told", FileStatus::Skipped, None));
        manifest.hear(&event(b"\xff", FileStatus::Committed, Some([0; 32])));
        let fault = Fault::new(FaultCode::Io, Blame::Local, "no");
        manifest.hear(&event(b"bad", FileStatus::Failed(fault), None));
        manifest.hear(&FileEvent { regular: false, ..event(b"link", FileStatus::Committed, None) });
        manifest.hear(&event(b"plan", FileStatus::Planned, None));
        assert!(!path.exists());
        assert_eq!(manifest.finish().unwrap(), Omissions { failed: 1, not_utf8: 1 });
        let (sevens, eights, zeros) = ("07".repeat(32), "08".repeat(32), "00".repeat(32));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{sevens}  new\n{eights}  old\n{zeros}  \u{fffd}\n"));
    }

    #[test]
    fn an_unfinished_manifest_leaves_nothing_behind_and_what_stood_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        drop(Manifest::create(dir.path().join("list"), &[], elsewhere()).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        std::fs::write(dir.path().join("list"), "old").unwrap();
        drop(Manifest::create(dir.path().join("list"), &[], elsewhere()).unwrap());
        assert_eq!(std::fs::read_to_string(dir.path().join("list")).unwrap(), "old");
    }

    #[test]
    fn a_directory_that_the_run_makes_need_not_stand_when_it_begins() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("new");
        let mut manifest = Manifest::create(new.join("sub/list"), &[], here(&new)).unwrap();
        manifest.hear(&event(b"f", FileStatus::Committed, Some([7; 32])));
        assert!(!new.exists());
        manifest.finish().unwrap();
        assert!(std::fs::read_to_string(new.join("sub/list")).unwrap().ends_with("  f\n"));
        for (path, destination) in [("gone/list", here(&new)), ("gone/list", elsewhere())] {
            assert!(Manifest::create(dir.path().join(path), &[], destination).is_err());
        }
    }

    #[test]
    fn a_file_of_the_transfer_is_not_replaced_by_its_list() {
        let dir = tempfile::tempdir().unwrap();
        let sent = dir.path().join("ds/a");
        fs::create_dir(dir.path().join("ds")).unwrap();
        fs::write(&sent, "content").unwrap();
        let source = |slash| [LocalPath { path: dir.path().join("ds"), slash }];
        for (sources, name) in [(source(false), "ds/a"), (source(true), "a")] {
            let mut manifest = Manifest::create(sent.clone(), &sources, elsewhere()).unwrap();
            manifest.hear(&event(name.as_bytes(), FileStatus::Committed, Some([1; 32])));
            assert!(manifest.finish().is_err(), "{name}");
            assert_eq!(fs::read_to_string(&sent).unwrap(), "content");
        }
        let mut manifest = Manifest::create(sent.clone(), &[], here(&dir.path().join("ds"))).unwrap();
        manifest.hear(&event(b"a", FileStatus::Skipped, Some([1; 32])));
        assert!(manifest.finish().is_err(), "what was received stays");
        let mut other = Manifest::create(sent, &source(true), here(dir.path())).unwrap();
        other.hear(&event(b"b", FileStatus::Committed, Some([1; 32])));
        assert!(other.finish().is_ok(), "it lies there, and is no file of the transfer");
    }

    #[test]
    fn a_manifest_knows_which_file_it_would_replace() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("f"), dir.path().join("l"));
        std::fs::write(&file, "data").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let manifest = |path: &Path| Manifest::create(path.to_owned(), &[], elsewhere()).unwrap();
        assert!(manifest(&file).replaces(&link) && manifest(&link).replaces(&file));
        assert!(!manifest(&file).replaces(dir.path()) && !manifest(Path::new("/dev/null")).replaces(&file));
    }
}
