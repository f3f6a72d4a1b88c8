//! The record of an unfinished scan: its terms, the segments that stand, and the items behind them
//! whose checksums were computed already.
//!
//! In: finished segments and read items. Out: a file beside the segments, from which the same scan
//! goes on. Frames are appended; a torn one at the end is cut off. It is synced with every segment
//! and not with every item: a power cut costs the checksums of some seconds. Knows no tree.

#![allow(clippy::disallowed_methods, reason = "a manifest is a file of its user, beside the data and no part of it")]

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use crate::block::{BlockBuilder, BlockItems};
use crate::draft::{Draft, DraftStart, Finished};
use crate::error::ManifestError;
use crate::frames::{Frames, block_body, block_of, frame};
use crate::head::Segment;
use crate::item::Item;
use crate::lock::PROGRESS_NAME;

/// The record of a scan that goes on.
pub(crate) struct Progress {
    file: File,
    path: PathBuf,
    terms: Terms,
    segments: Vec<Finished>,
    /// Items that were read and are not in the record yet.
    waiting: BlockBuilder,
    /// Names so far that could not be read.
    omitted: u64,
    /// Omitted names before the last item that was read.
    omitted_before: u64,
    /// Items that the record gave back.
    resumed: u64,
}

/// The terms of a scan: a record is gone on with only under the same ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The whole path of the tree.
    pub(crate) tree: Vec<u8>,
    /// The inode of its top: on a mount point without its file system there is another directory.
    /// The device is not looked at, as its number changes when a host starts.
    pub(crate) inode: u64,
    /// The names of the checksums.
    pub(crate) checksums: String,
    /// The rules of the filter.
    pub(crate) filter: String,
}

impl Terms {
    /// The first frame of a record that is begun under them.
    pub(crate) fn first_frame(&self) -> Vec<u8> {
        frame(TERMS, &self.bytes())
    }

    /// The part that is another one in a record, whose first frame this reads.
    pub(crate) fn differing_in<R: Read>(&self, frames: &mut Frames<R>) -> io::Result<Option<&'static str>> {
        Ok(match frames.next_frame()? {
            Some((TERMS, body)) => self.differing(&body),
            _ => Some("record"),
        })
    }

    fn bytes(&self) -> Vec<u8> {
        let inode = self.inode.to_string();
        [self.tree.as_slice(), inode.as_bytes(), self.checksums.as_bytes(), self.filter.as_bytes()].join(&0)
    }

    /// The part of other terms that differs.
    fn differing(&self, bytes: &[u8]) -> Option<&'static str> {
        let (mut parts, inode) = (bytes.splitn(4, |byte| *byte == 0), self.inode.to_string());
        let mine = [
            (self.tree.as_slice(), "tree"),
            (inode.as_bytes(), "tree"),
            (self.checksums.as_bytes(), "checksums"),
            (self.filter.as_bytes(), "filter"),
        ];
        mine.into_iter().find(|(part, _)| parts.next() != Some(part)).map(|(_, name)| name)
    }
}

impl Progress {
    /// Goes on with the record in the draft's directory, whose items the draft gets, or begins one.
    ///
    /// # Errors
    /// [`ManifestError::OtherDraft`] if it was begun under other terms.
    pub(crate) fn open(draft: &mut Draft, terms: Terms) -> Result<Progress, ManifestError> {
        let path = draft.dir().join(PROGRESS_NAME);
        let failed = || ManifestError::file("read the record of an unfinished manifest", &path);
        let old = match File::options().read(true).write(true).open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed()(error)),
        };
        let Some(mut file) = old else {
            let file = draft.replace(PROGRESS_NAME, &terms.first_frame())?;
            let (segments, waiting) = (Vec::new(), BlockBuilder::default());
            return Ok(Progress { file, path, terms, segments, waiting, omitted: 0, omitted_before: 0, resumed: 0 });
        };
        let mut replay = Replay(Frames::of(BufReader::new(&mut file)));
        if let Some(of) = terms.differing_in(&mut replay.0).map_err(failed())? {
            return Err(ManifestError::OtherDraft { path: draft.dir().to_owned(), of });
        }
        let (segments, omitted, resumed, late) = replay.give_to(draft, &path)?;
        let end = replay.0.end();
        file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end))).map_err(failed())?;
        let waiting = BlockBuilder::default();
        let mut progress = Progress { file, path, terms, segments, waiting, omitted, omitted_before: omitted, resumed };
        if let Some(finished) = late {
            progress.finished(draft, finished)?;
        }
        Ok(progress)
    }

    /// Names so far that could not be read.
    pub(crate) fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Items that the record gave back.
    pub(crate) fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Counts a name that could not be read.
    pub(crate) fn omit(&mut self) {
        self.omitted += 1;
    }

    /// Takes an item that was read; it is in the record some items later.
    pub(crate) fn read(&mut self, item: &Item) -> Result<(), ManifestError> {
        self.waiting.push(item);
        self.omitted_before = self.omitted;
        let block = self.waiting.block();
        if block.items >= ITEMS_WAITING_MAX || block.is_full() || item.bytes() >= LARGE_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes down the items that wait.
    pub(crate) fn flush(&mut self) -> Result<(), ManifestError> {
        let block = self.waiting.block();
        if block.items == 0 {
            return Ok(());
        }
        let body = block_body(&self.omitted_before.to_le_bytes(), block);
        let written = self.file.write_all(&frame(ITEMS, &body));
        written.map_err(ManifestError::file("write the record of an unfinished manifest", &self.path))?;
        self.waiting.clear();
        Ok(())
    }

    /// Notes a segment that stands: the items in it need no record any more.
    pub(crate) fn finished(&mut self, draft: &Draft, finished: Finished) -> Result<(), ManifestError> {
        self.waiting.clear();
        self.segments.push(finished);
        let mut bytes = self.terms.first_frame();
        for Finished { segment, last } in &self.segments {
            let body = [&self.omitted.to_le_bytes()[..], segment.line().as_bytes(), last].concat();
            bytes.extend(frame(SEGMENT, &body));
        }
        self.file = draft.replace(PROGRESS_NAME, &bytes)?;
        Ok(())
    }
}

/// Removes the record of a manifest that stands, if it was made under these terms. Gives whether
/// it was.
pub(crate) fn remove_leftover(draft: &Draft, terms: &Terms) -> Result<bool, ManifestError> {
    let path = draft.dir().join(PROGRESS_NAME);
    let failed = || ManifestError::file("read the record of an unfinished manifest", &path);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed()(error)),
    };
    if terms.differing_in(&mut Frames::of(BufReader::new(file))).map_err(failed())?.is_some() {
        return Ok(false);
    }
    remove(draft)?;
    Ok(true)
}

/// Removes the record, once the manifest is sealed.
pub(crate) fn remove(draft: &Draft) -> Result<(), ManifestError> {
    let path = draft.dir().join(PROGRESS_NAME);
    let removed = fs::remove_file(&path).and_then(|()| draft.held().sync_all());
    removed.map_err(ManifestError::file("remove", &path))
}

/// A record being read.
struct Replay<R>(Frames<R>);

/// The segments that stand, the names omitted, the items given back, and a segment that came to
/// stand by them.
type Given = (Vec<Finished>, u64, u64, Option<Finished>);

impl<R: Read> Replay<R> {
    /// Gives the draft all segments and items.
    fn give_to(&mut self, draft: &mut Draft, path: &std::path::Path) -> Result<Given, ManifestError> {
        let failed = || ManifestError::file("read the record of an unfinished manifest", path);
        let odd = || failed()(io::Error::new(io::ErrorKind::InvalidData, "it is damaged"));
        let (mut segments, mut omitted, mut resumed, mut late) = (Vec::new(), 0, 0, None);
        let mut begun = false;
        while let Some((kind, body)) = self.0.next_frame().map_err(failed())? {
            let (number, body) = body.split_first_chunk().ok_or_else(odd)?;
            omitted = u64::from_le_bytes(*number);
            match kind {
                SEGMENT if !begun => segments.push(finished_of(body).ok_or_else(odd)?),
                ITEMS => {
                    if !std::mem::replace(&mut begun, true) {
                        draft.go_on(start_of(&segments))?;
                    }
                    let mut items = BlockItems::new(block_of(body).ok_or_else(odd)?);
                    while let Some(item) = items.next_item().map_err(|_| odd())? {
                        late = draft.add(&item)?.or(late);
                        resumed += 1;
                    }
                }
                _ => return Err(odd()),
            }
        }
        if !begun {
            draft.go_on(start_of(&segments))?;
        }
        resumed += segments.iter().map(|finished| finished.segment.items).sum::<u64>();
        Ok((segments, omitted, resumed, late))
    }
}

fn start_of(segments: &[Finished]) -> DraftStart {
    DraftStart {
        segments: segments.iter().map(|finished| finished.segment).collect(),
        last: segments.last().map(|finished| finished.last.clone()).unwrap_or_default(),
    }
}

fn finished_of(body: &[u8]) -> Option<Finished> {
    let end = body.iter().position(|byte| *byte == b'\n')?;
    let segment = Segment::of_line(str::from_utf8(&body[..end]).ok()?)?;
    Some(Finished { segment, last: body[end + 1..].to_vec() })
}

/// Kinds of frames.
const TERMS: u8 = b'T';
const SEGMENT: u8 = b'S';
const ITEMS: u8 = b'I';
/// Items that wait for the record at most, and the length of a file which does not wait: what a
/// process that is killed has to read once more is half a thousand small files, or one large one.
const ITEMS_WAITING_MAX: u32 = 512;
const LARGE_BYTES: u64 = 16 << 20;
