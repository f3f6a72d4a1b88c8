//! `--manifest`: a line as `b3sum` prints it for every regular file that stands at the destination after the run.
//!
//! In: the engine's file events. Out: the manifest, under its name only when whole. Digests of sent files come with their
//! events, and so do those of files that were compared; another skipped file was never read, so it is read here at the
//! end, if it lies on this host. Knows no session.

#![allow(
    clippy::disallowed_methods,
    reason = "the manifest is the user's own file beside the transfer, not part of it"
)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use longhaul_core::Escaped;
use longhaul_engine::{FileEvent, FileStatus};
use tempfile::NamedTempFile;

use crate::destination::Destination;
use crate::error::Error;

/// A manifest being written. Dropped before [`Manifest::finish`] it leaves nothing behind.
pub struct Manifest {
    path: PathBuf,
    destination: Destination,
    lines: BufWriter<NamedTempFile>,
    /// Files without a digest, each its name and its path, both ended by NUL: a spool, as there may be millions.
    undigested: BufWriter<File>,
    counts: Omissions,
    /// The first failure of a write; later ones follow from it.
    failed: Option<io::Error>,
}

/// What stands at the destination and is not in the manifest as one would expect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Omissions {
    /// Files without a line, as nobody read them.
    pub unread: u64,
    /// Why one of them could not be read here, if it was tried.
    pub why: Option<String>,
    /// Lines whose names are no UTF-8: as in `b3sum`'s own output, the odd bytes are U+FFFD and `b3sum -c` refuses them.
    pub not_utf8: u64,
}

/// Whether files without a digest are read at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undigested {
    /// Read them, where they are on this host.
    Read,
    /// Leave them out: the user wants to go.
    LeaveOut,
}

impl Manifest {
    /// Begins the manifest that is to lie at `path`, of the files that land at `destination`.
    ///
    /// # Errors
    /// [`Error::File`] if nothing can be written beside `path`.
    pub fn create(path: PathBuf, destination: Destination) -> Result<Manifest, Error> {
        let begin = || {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let readable = PermissionsExt::from_mode(0o666);
            let lines = tempfile::Builder::new().prefix(".longhaul-").permissions(readable).tempfile_in(dir)?;
            Ok((BufWriter::new(lines), BufWriter::new(tempfile::tempfile_in(dir)?)))
        };
        let (lines, undigested) = begin().map_err(Error::file("write the manifest", &path))?;
        Ok(Manifest { path, destination, lines, undigested, counts: Omissions::default(), failed: None })
    }

    /// Takes a settled file.
    pub fn hear(&mut self, file: &FileEvent) {
        let name = self.destination.name(file);
        let written = match (&file.status, file.b3) {
            _ if !file.regular || self.failed.is_some() => return,
            // What was compared has its digest, too.
            (FileStatus::Committed | FileStatus::Skipped, Some(digest)) => self.line(&digest, &name),
            (FileStatus::Committed | FileStatus::Skipped, _) => match self.destination.file(file) {
                Some(path) => self.spool(&[&name, path.as_os_str().as_bytes()]),
                None => {
                    self.counts.unread += 1;
                    return;
                }
            },
            (FileStatus::Planned | FileStatus::Failed(_), _) => return,
        };
        self.failed = written.err();
    }

    fn spool(&mut self, texts: &[&[u8]]) -> io::Result<()> {
        texts.iter().try_for_each(|text| {
            self.undigested.write_all(text)?;
            self.undigested.write_all(b"\0")
        })
    }

    /// Puts the manifest under its name, durable.
    ///
    /// # Errors
    /// [`Error::File`] if any of it could not be written; then there is none.
    pub fn finish(mut self, undigested: Undigested) -> Result<Omissions, Error> {
        let path = self.path.clone();
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.complete(undigested),
        }
        .map_err(Error::file("write the manifest", path))
    }

    fn complete(mut self, undigested: Undigested) -> io::Result<Omissions> {
        self.undigested.flush()?;
        let mut spool = BufReader::new(self.undigested.get_ref().try_clone()?);
        spool.rewind()?;
        let mut texts = spool.split(0);
        while let (Some(name), Some(path)) = (texts.next().transpose()?, texts.next().transpose()?) {
            self.read(&name, OsStr::from_bytes(&path), undigested)?;
        }
        let file = self.lines.into_inner().map_err(|error| error.into_error())?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        Ok(self.counts)
    }

    /// The line of a file that was not sent.
    fn read(&mut self, name: &[u8], path: &OsStr, undigested: Undigested) -> io::Result<()> {
        if undigested == Undigested::LeaveOut {
            self.counts.unread += 1;
            return Ok(());
        }
        match digest(Path::new(path)) {
            Ok(digest) => self.line(&digest, name),
            Err(error) => {
                self.counts.unread += 1;
                self.counts.why = Some(format!("{}: {error}", Escaped(path.as_bytes())));
                Ok(())
            }
        }
    }

    fn line(&mut self, digest: &[u8; 32], name: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(name);
        self.counts.not_utf8 += u64::from(matches!(text, std::borrow::Cow::Owned(_)));
        self.lines.write_all(line(digest, &text).as_bytes())
    }
}

/// One line; a backslash or newline in the name is escaped and the line then begins with a backslash.
fn line(digest: &[u8; 32], name: &str) -> String {
    let hex = blake3::Hash::from_bytes(*digest).to_hex();
    if name.contains(['\\', '\n']) {
        format!("\\{hex}  {}\n", name.replace('\\', "\\\\").replace('\n', "\\n"))
    } else {
        format!("{hex}  {name}\n")
    }
}

fn digest(path: &Path) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::tests::event as placed;
    use crate::location::{LocalPath, Location};

    fn event(name: &[u8], status: FileStatus, b3: Option<[u8; 32]>) -> FileEvent {
        placed(name, name, status, b3)
    }

    fn here(dir: &Path) -> Destination {
        Destination::local(&LocalPath { path: dir.to_owned(), slash: true })
    }

    fn elsewhere() -> Destination {
        match Location::parse(OsStr::new("lh://h/r/")).unwrap() {
            Location::Daemon(daemon) => Destination::daemon(&daemon),
            Location::Local(_) => unreachable!(),
        }
    }

    fn hex(bytes: &[u8]) -> String {
        blake3::hash(bytes).to_hex().to_string()
    }

    #[test]
    fn names_are_escaped_as_b3sum_does() {
        let zeros = "0".repeat(64);
        for (name, want) in [
            ("a b/c", format!("{zeros}  a b/c\n")),
            ("a\\b", format!("\\{zeros}  a\\\\b\n")),
            ("a\nb", format!("\\{zeros}  a\\nb\n")),
            ("\\n\n", format!("\\{zeros}  \\\\n\\n\n")),
            (" lead", format!("{zeros}   lead\n")),
        ] {
            assert_eq!(line(&[0; 32], name), want);
        }
    }

    #[test]
    fn sent_files_come_from_events_and_skipped_ones_are_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("old"), b"stood").unwrap();
        let path = dir.path().join("list");
        let mut manifest = Manifest::create(path.clone(), here(dir.path())).unwrap();
        manifest.hear(&event(b"new", FileStatus::Committed, Some([7; 32])));
        manifest.hear(&event(b"old", FileStatus::Skipped, None));
        manifest.hear(&event(b"gone", FileStatus::Skipped, None));
        manifest.hear(&FileEvent { regular: false, ..event(b"link", FileStatus::Committed, None) });
        manifest.hear(&event(b"plan", FileStatus::Planned, None));
        assert!(!path.exists());
        let omissions = manifest.finish(Undigested::Read).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{}  new\n{}  old\n", "07".repeat(32), hex(b"stood")));
        assert_eq!(omissions.unread, 1);
        assert!(omissions.why.unwrap().contains("/gone: "));
    }

    #[test]
    fn what_lies_elsewhere_or_was_interrupted_is_left_out_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        for (to, undigested) in [(elsewhere(), Undigested::Read), (here(dir.path()), Undigested::LeaveOut)] {
            let mut manifest = Manifest::create(dir.path().join("list"), to).unwrap();
            manifest.hear(&event(b"old", FileStatus::Skipped, None));
            manifest.hear(&event(b"\xff", FileStatus::Committed, Some([0; 32])));
            let omissions = manifest.finish(undigested).unwrap();
            assert_eq!(omissions, Omissions { unread: 1, why: None, not_utf8: 1 });
        }
    }

    #[test]
    fn an_unfinished_manifest_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        drop(Manifest::create(dir.path().join("list"), elsewhere()).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Manifest::create(dir.path().join("no/such/list"), elsewhere()).is_err());
    }
}
