//! A manifest being written: segments, each of which appears whole, and a head at the end.
//!
//! In: items in order. Out: a directory with a [`Sealed`] manifest. Every file is written beside
//! its name, synced and renamed; the head comes last, so that there is no manifest, or a whole one.
//! One process writes at a time. Knows no tree and no list.

#![allow(clippy::disallowed_methods, reason = "a manifest is a file of its user, beside the data and no part of it")]

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use longhaul_core::Escaped;
use tempfile::NamedTempFile;

use crate::error::ManifestError;
use crate::head::{HEAD_NAME, Head, Lists, SEGMENT_ITEMS_MAX, SEGMENTS_MAX, Segment};
use crate::item::Item;
use crate::lock::{Lock, PROGRESS_NAME};
use crate::sealed::{Sealed, check_file};
use crate::segment::SegmentWriter;

/// A manifest being written.
pub struct Draft {
    dir: PathBuf,
    /// The directory itself.
    held: File,
    _lock: Lock,
    segments: Vec<Segment>,
    writer: Option<SegmentWriter<BufWriter<NamedTempFile>>>,
    last: Vec<u8>,
    segment_items: u64,
}

/// The part of a manifest that stands when a draft begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftStart {
    /// Its segments.
    pub segments: Vec<Segment>,
    /// The path of the last item in them. Empty if there is none.
    pub last: Vec<u8>,
}

/// A segment that has just appeared, and the path of its last item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The segment.
    pub segment: Segment,
    /// The path of its last item.
    pub last: Vec<u8>,
}

impl Draft {
    /// Begins a manifest in the directory `dir`, which is made if it does not exist.
    ///
    /// # Errors
    /// [`ManifestError::Stands`] if there is one, [`ManifestError::Busy`] if another process writes
    /// one there, [`ManifestError::OtherDraft`] if a scan has left an unfinished one.
    pub fn begin(dir: &Path) -> Result<Draft, ManifestError> {
        let draft = Draft::hold(dir)?;
        if draft.is_sealed() {
            return Err(ManifestError::Stands { path: draft.dir });
        }
        if draft.has(PROGRESS_NAME) {
            return Err(ManifestError::OtherDraft { path: draft.dir, of: "command" });
        }
        Ok(draft)
    }

    /// Holds the directory `dir`, which may have an unfinished manifest, or one of which only the
    /// record was not removed yet.
    ///
    /// # Errors
    /// [`ManifestError::Stands`] if there is a manifest without a record, [`ManifestError::Busy`]
    /// if another process writes one there.
    pub(crate) fn hold(dir: &Path) -> Result<Draft, ManifestError> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(ManifestError::file("make the directory", dir)(error));
            }
            _ => {}
        }
        let held = File::open(dir).map_err(ManifestError::file("open the directory", dir))?;
        let stands = |name| fs::symlink_metadata(dir.join(name)).is_ok();
        if stands(HEAD_NAME) && !stands(PROGRESS_NAME) {
            Lock::clear(dir);
            return Err(ManifestError::Stands { path: dir.to_owned() });
        }
        let lock = Lock::take(dir)?;
        remove_drafts(dir);
        let (dir, segment_items) = (dir.to_owned(), SEGMENT_ITEMS_MAX);
        Ok(Draft { dir, held, _lock: lock, segments: Vec::new(), writer: None, last: Vec::new(), segment_items })
    }

    /// Whether the head stands.
    pub(crate) fn is_sealed(&self) -> bool {
        self.has(HEAD_NAME)
    }

    fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.dir.join(name)).is_ok()
    }

    /// The same with fewer items in a segment.
    #[must_use]
    pub fn with_segments_of(self, items: u64) -> Draft {
        Draft { segment_items: items.clamp(1, SEGMENT_ITEMS_MAX), ..self }
    }

    /// Goes on behind segments that stand.
    ///
    /// # Errors
    /// If one of them is not there any more, or another.
    pub fn go_on(&mut self, start: DraftStart) -> Result<(), ManifestError> {
        for segment in &start.segments {
            check_file(&self.dir.join(segment.file_name()), segment)?;
        }
        (self.segments, self.last) = (start.segments, start.last);
        Ok(())
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of the last item so far. Empty if there is none.
    pub fn last(&self) -> &[u8] {
        &self.last
    }

    /// The directory itself, open.
    pub(crate) fn held(&self) -> &File {
        &self.held
    }

    /// The segments so far.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Adds the next item. If a segment is whole with it, the segment appears and is given.
    ///
    /// # Errors
    /// [`ManifestError::Order`] if its path does not follow that of the item before,
    /// [`ManifestError::Unlistable`] if no reader would take it.
    pub fn add(&mut self, item: &Item) -> Result<Option<Finished>, ManifestError> {
        if item.path.as_bytes() <= self.last.as_slice() {
            return Err(ManifestError::Order { path: item.path.clone() });
        }
        if let Some(why) = item.flaw() {
            return Err(ManifestError::Unlistable { path: item.path.clone(), why });
        }
        let failed = || ManifestError::file("write a segment in", &self.dir);
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None if self.segments.len() >= SEGMENTS_MAX => return Err(ManifestError::TooMany { max: SEGMENTS_MAX }),
            None => {
                let file = draft_in(&self.dir, SEGMENT_DRAFT).map_err(failed())?;
                self.writer.insert(SegmentWriter::new(BufWriter::new(file)).map_err(failed())?)
            }
        };
        writer.add(item).map_err(failed())?;
        self.last.clear();
        self.last.extend_from_slice(item.path.as_bytes());
        if writer.items() < self.segment_items { Ok(None) } else { self.finish_segment() }
    }

    /// Has the segment that is being written appear. `None`: there is none.
    fn finish_segment(&mut self) -> Result<Option<Finished>, ManifestError> {
        let Some(writer) = self.writer.take() else { return Ok(None) };
        let publish = || {
            let (out, segment) = writer.finish()?;
            let file = out.into_inner().map_err(|error| error.into_error())?;
            file.as_file().sync_all()?;
            file.persist(self.dir.join(segment.file_name()))?;
            self.held.sync_all()?;
            Ok(segment)
        };
        let segment = publish().map_err(ManifestError::file("write a segment in", &self.dir))?;
        self.segments.push(segment);
        Ok(Some(Finished { segment, last: self.last.clone() }))
    }

    /// Ends the manifest: the last segment and the head appear.
    ///
    /// # Errors
    /// If any of it cannot be written.
    pub fn seal(mut self, lists: Lists, omitted: u64) -> Result<Sealed, ManifestError> {
        self.finish(lists, omitted)
    }

    /// The same, and the directory is held still.
    pub(crate) fn finish(&mut self, lists: Lists, omitted: u64) -> Result<Sealed, ManifestError> {
        self.finish_segment()?;
        let head = Head { lists, omitted, segments: std::mem::take(&mut self.segments) };
        self.replace(HEAD_NAME, head.text().as_bytes())?;
        Sealed::open(&self.dir)
    }

    /// Has a small file appear whole, in the place of one that stands.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<File, ManifestError> {
        let path = self.dir.join(name);
        let publish = || {
            let mut draft = draft_in(&self.dir, FILE_DRAFT)?;
            draft.write_all(bytes)?;
            draft.as_file().sync_all()?;
            let file = draft.persist(&path)?;
            self.held.sync_all()?;
            Ok(file)
        };
        publish().map_err(ManifestError::file("write", &path))
    }
}

/// Whether a directory has an unfinished manifest, with which the command that began it goes on.
pub fn is_unfinished(dir: &Path) -> bool {
    let stands = |name| fs::symlink_metadata(dir.join(name)).is_ok();
    stands(PROGRESS_NAME) && !stands(HEAD_NAME)
}

/// It says where it lies, and no more.
impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Draft({})", Escaped(self.dir.as_os_str().as_encoded_bytes()))
    }
}

/// A file that is being written. Its name is its own, so that two processes that no lock parts do
/// not write one file.
fn draft_in(dir: &Path, begin: &str) -> io::Result<NamedTempFile> {
    let mut named = tempfile::Builder::new();
    // The umask takes its part of it, as of every file.
    named.prefix(begin).suffix(DRAFT_END).permissions(fs::Permissions::from_mode(0o666)).tempfile_in(dir)
}

/// Removes what processes that were killed have left.
fn remove_drafts(dir: &Path) {
    let Ok(names) = fs::read_dir(dir) else { return };
    for name in names.flatten().map(|entry| entry.file_name()) {
        let bytes = name.as_encoded_bytes();
        let begins = [SEGMENT_DRAFT, FILE_DRAFT].into_iter().any(|begin| bytes.starts_with(begin.as_bytes()));
        if begins && bytes.ends_with(DRAFT_END.as_bytes()) {
            // One that stays takes room, and is in nobody's way.
            let _ = fs::remove_file(dir.join(name));
        }
    }
}

/// The beginning of the name of a segment that is being written.
const SEGMENT_DRAFT: &str = "segment.";
/// The beginning of the name of any other file that is being written.
const FILE_DRAFT: &str = "file.";
/// The end of both names.
const DRAFT_END: &str = ".lhd";
