//! A sealed manifest on disk, being read: its head, and its items one by one.
//!
//! In: a directory, or a head in one. Out: [`Sealed`] and [`Items`]. A segment is read twice:
//! nothing of it is believed before its digest was found to be its name, and behind its last item
//! that of the second reading is compared too.

#![allow(clippy::disallowed_methods, reason = "a manifest is a file of its user, beside the data and no part of it")]

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use longhaul_core::{Hash32, RelPath};

use crate::error::{ManifestError, SegmentFlaw};
use crate::head::{HEAD_NAME, Head, SEALED_HEAD_BYTES_MAX, Segment};
use crate::item::Item;
use crate::segment::{ReadError, SegmentReader, digest_of};
use longhaul_core::checksum::Algorithms;

/// A sealed manifest.
#[derive(Clone, Debug)]
pub struct Sealed {
    dir: PathBuf,
    head: Head,
    digest: Hash32,
}

impl Sealed {
    /// Opens the manifest in the directory `path`, or the one whose head is the file `path`.
    ///
    /// # Errors
    /// [`ManifestError::File`] if there is none, [`ManifestError::Head`] if it is another file.
    pub fn open(path: &Path) -> Result<Sealed, ManifestError> {
        let is_dir = std::fs::metadata(path).is_ok_and(|found| found.is_dir());
        let file = if is_dir { path.join(HEAD_NAME) } else { path.to_owned() };
        let failed = || ManifestError::file("read the manifest", &file);
        let mut bytes = Vec::new();
        let opened = File::open(&file).map_err(failed())?;
        opened.take(SEALED_HEAD_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed())?;
        let head = Head::parse(&bytes).map_err(|flaw| ManifestError::Head { path: file.clone(), flaw })?;
        let dir = file.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Sealed { dir, digest: *blake3::hash(&bytes).as_bytes(), head })
    }

    /// The head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The digest of the head, which names the dataset.
    pub fn digest(&self) -> Hash32 {
        self.digest
    }

    /// The file of a segment.
    pub fn file(&self, segment: &Segment) -> PathBuf {
        self.dir.join(segment.file_name())
    }

    /// The file of the head.
    pub fn head_file(&self) -> PathBuf {
        self.dir.join(HEAD_NAME)
    }

    /// The items in order. Each segment's file is opened and checked when its turn comes.
    pub fn items(&self) -> Items<'_> {
        Items { sealed: self, next: 0, end: usize::MAX, reading: None, last: Vec::new() }
    }

    /// The items of one segment in order, read as those of all segments are. `number` counts the
    /// segments of the head from 0; there are no items of one that it does not have. `behind` is
    /// the path of the last item of the segment before, and the root if there is none: the first
    /// item has to follow it.
    pub fn items_of(&self, number: usize, behind: &RelPath) -> Items<'_> {
        let last = behind.as_bytes().to_vec();
        Items { sealed: self, next: number, end: number.saturating_add(1), reading: None, last }
    }
}

/// The items of a sealed manifest, or of one segment of it. Behind an error there is none.
pub struct Items<'m> {
    sealed: &'m Sealed,
    /// The index of the segment to come.
    next: usize,
    /// The index behind the last segment that is meant.
    end: usize,
    reading: Option<Reading>,
    last: Vec<u8>,
}

/// A segment being read, and what was found in it so far.
struct Reading {
    reader: SegmentReader<BufReader<File>>,
    found: Segment,
}

impl Items<'_> {
    fn step(&mut self) -> Result<Option<Item>, ManifestError> {
        loop {
            let Some(reading) = &mut self.reading else {
                let meant = self.sealed.head.segments.get(self.next).filter(|_| self.next < self.end);
                let Some(segment) = meant else { return Ok(None) };
                self.reading = Some(begin(&self.sealed.file(segment), segment)?);
                continue;
            };
            let segment = self.sealed.head.segments[self.next];
            let failed = |error| read_failed(&self.sealed.file(&segment), error);
            match reading.reader.read_item().map_err(failed)? {
                Some(item) => {
                    if item.path.as_bytes() <= self.last.as_slice() {
                        return Err(failed(SegmentFlaw::Order.into()));
                    }
                    self.last.clear();
                    self.last.extend_from_slice(item.path.as_bytes());
                    let found = &mut reading.found;
                    found.items += 1;
                    found.files += u64::from(item.is_file());
                    found.bytes = found.bytes.saturating_add(item.bytes());
                    found.known = found.known.and(item.sums.known());
                    return Ok(Some(item));
                }
                // Somebody has written to it since its digest was compared.
                None if reading.reader.digest() != segment.digest => return Err(failed(SegmentFlaw::Digest.into())),
                None if reading.found != segment => return Err(failed(SegmentFlaw::Sums.into())),
                None => {
                    self.reading = None;
                    self.next += 1;
                }
            }
        }
    }
}

impl Iterator for Items<'_> {
    type Item = Result<Item, ManifestError>;

    fn next(&mut self) -> Option<Result<Item, ManifestError>> {
        let step = self.step();
        if step.is_err() {
            (self.next, self.reading) = (usize::MAX, None);
        }
        step.transpose()
    }
}

/// Opens the file of a segment and checks that it is that.
fn begin(path: &Path, segment: &Segment) -> Result<Reading, ManifestError> {
    let failed = |error| read_failed(path, error);
    let mut file = check_file(path, segment)?;
    file.rewind().map_err(|error| failed(ReadError::Io(error)))?;
    let reader = SegmentReader::open(BufReader::with_capacity(READ_BYTES, file)).map_err(failed)?;
    let found = Segment { digest: segment.digest, items: 0, files: 0, bytes: 0, known: Algorithms::default() };
    Ok(Reading { reader, found })
}

/// Checks that the file of a segment has its digest; gives the file back, read to its end.
pub(crate) fn check_file(path: &Path, segment: &Segment) -> Result<File, ManifestError> {
    let failed = |error| read_failed(path, error);
    let mut file = File::open(path).map_err(|error| failed(ReadError::Io(error)))?;
    let digest = digest_of(BufReader::with_capacity(READ_BYTES, &mut file)).map_err(failed)?;
    if digest == segment.digest { Ok(file) } else { Err(failed(SegmentFlaw::Digest.into())) }
}

fn read_failed(path: &Path, error: ReadError) -> ManifestError {
    match error {
        ReadError::Io(error) => ManifestError::file("read the segment", path)(error),
        ReadError::Flaw(flaw) => ManifestError::Segment { path: path.to_owned(), flaw },
    }
}

/// Bytes of a read of a segment's file.
const READ_BYTES: usize = 256 << 10;
