//! The making of a manifest of a tree whose directories somebody else lists, whole ones and in any
//! order.
//!
//! In: the items of each directory. Out: the directories that are to be listed, and at the end a
//! [`Sealed`] manifest. A record has the directories that were listed, so that a run that was
//! killed goes on with the others. Memory has the paths of directories that wait, up to a bound,
//! and a part of each directory that is being listed; the rest is in files. Lists nothing itself.
//!
//! The items of one directory stand together in the record, and a frame behind them says that it is
//! done. Whatever follows the last such frame is cut off. All is sorted once, from the record, when
//! no directory waits any more.

#![allow(clippy::disallowed_methods, reason = "a manifest is a file of its user, beside the data and no part of it")]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use longhaul_core::{Fault, Filter, RelPath};

use crate::block::{BlockBuilder, BlockItems};
use crate::draft::Draft;
use crate::error::ManifestError;
use crate::frames::{Frames, block_body, block_of, frame};
use crate::head::Lists;
use crate::item::{Item, ItemKind};
use crate::lock::PROGRESS_NAME;
use crate::make::Made;
use crate::progress::{self, Terms};
use crate::sealed::Sealed;
use crate::sort::Sorter;

/// A manifest that is to be collected.
#[derive(Clone, Debug)]
pub struct Collecting<'a> {
    /// The directory of the manifest.
    pub out: &'a Path,
    /// The name of the tree, without a NUL: a record is gone on with only under the same one.
    pub tree: Vec<u8>,
    /// The filter of names, which the caller applies; the same holds of it.
    pub filter: &'a Filter,
    /// The most memory of the directories that wait, in bytes.
    pub waiting_bytes_max: usize,
}

/// The beginning of a collection.
#[derive(Debug)]
pub enum CollectionStart {
    /// An earlier run has made the manifest, and was killed when only its record was left to be
    /// removed.
    Made(Made),
    /// There are directories to be listed, or all was listed and is to be sealed.
    Goes(Box<Collection>),
}

/// A manifest being collected.
#[derive(Debug)]
pub struct Collection {
    draft: Draft,
    /// `None`: no directory is done yet. What is only begun leaves no record, which would be in the
    /// way of another tree.
    record: Option<File>,
    /// The first frame of the record.
    terms: Vec<u8>,
    path: PathBuf,
    /// Bytes of the record.
    length: u64,
    /// Bytes of it that the disk may not have yet.
    unsynced: u64,
    waiting: Waiting,
    signs: TreeSigns,
    is_resumed: bool,
    /// Items that an earlier run had listed.
    resumed: u64,
    omitted: u64,
}

/// The signs by which a tree is known again.
#[derive(Debug, Default)]
struct TreeSigns {
    /// The directories that an earlier run had found at the top, done or not.
    tops: BTreeSet<Vec<u8>>,
    /// The key of whoever lists the tree.
    lister: Option<Vec<u8>>,
}

/// The items of a directory that is being listed.
#[derive(Debug, Default)]
pub struct DirItems {
    dir: RelPath,
    /// The path of the last item.
    last: Vec<u8>,
    block: BlockBuilder,
    /// Whole frames, behind those that are in the file.
    frames: Vec<u8>,
    /// A file without a name, of a directory of many names.
    spilled: Option<File>,
    dirs: Vec<RelPath>,
    omitted: u64,
}

impl DirItems {
    /// The directory.
    pub fn dir(&self) -> &RelPath {
        &self.dir
    }

    /// Makes a frame of the items that have none yet.
    fn close_block(&mut self, out: &Path) -> Result<(), ManifestError> {
        if self.block.block().items > 0 {
            let body = block_body(&[], self.block.block());
            self.block.clear();
            self.push(DIR_ITEMS, &body, out)?;
        }
        Ok(())
    }

    fn push(&mut self, kind: u8, body: &[u8], out: &Path) -> Result<(), ManifestError> {
        self.frames.extend(frame(kind, body));
        if self.frames.len() < FRAMES_HELD_BYTES {
            return Ok(());
        }
        let failed = || ManifestError::file("write a temporary file in", out);
        let file = match &mut self.spilled {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(out).map_err(failed())?),
        };
        file.write_all(&self.frames).map_err(failed())?;
        self.frames.clear();
        Ok(())
    }
}

impl Collection {
    /// Begins a collection, or goes on with one that an earlier run has begun. `told` gets the
    /// faults of names that it left out.
    ///
    /// # Errors
    /// [`ManifestError::Stands`] if there is a manifest already, [`ManifestError::Busy`] if another
    /// process makes one there, [`ManifestError::OtherDraft`] if an unfinished one is of another
    /// tree.
    pub fn open(asked: &Collecting, told: &mut dyn FnMut(&Fault)) -> Result<CollectionStart, ManifestError> {
        let filter = format!("{:?}", asked.filter.rules());
        let terms = Terms { tree: asked.tree.clone(), inode: 0, checksums: String::new(), filter };
        let draft = Draft::hold(asked.out)?;
        if draft.is_sealed() {
            if !progress::remove_leftover(&draft, &terms)? {
                return Err(ManifestError::Stands { path: draft.dir().to_owned() });
            }
            let sealed = Sealed::open(draft.dir())?;
            return Ok(CollectionStart::Made(Made { items_resumed: sealed.head().items(), sealed }));
        }
        let path = draft.dir().join(PROGRESS_NAME);
        let failed = || ManifestError::file(READING, &path);
        let mut replay = Replayed::default();
        replay.waiting.insert(RelPath::root());
        let record = match File::options().read(true).write(true).open(&path) {
            Ok(mut record) => {
                let mut frames = Frames::of(BufReader::new(&mut record));
                if let Some(of) = terms.differing_in(&mut frames).map_err(failed())? {
                    return Err(ManifestError::OtherDraft { path: draft.dir().to_owned(), of });
                }
                replay.read(&mut frames, told).map_err(failed())?;
                drop(frames);
                let end = replay.length;
                record.set_len(end).and_then(|()| record.seek(SeekFrom::Start(end))).map_err(failed())?;
                Some(record)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed()(error)),
        };
        let terms = terms.first_frame();
        let Replayed { waiting: dirs, signs, length, items: resumed, omitted, is_begun: is_resumed } = replay;
        let mut waiting = Waiting::new(asked.waiting_bytes_max);
        dirs.into_iter().for_each(|dir| waiting.put(dir));
        let unsynced = 0;
        let collection =
            Collection { draft, record, terms, path, length, unsynced, waiting, signs, is_resumed, resumed, omitted };
        Ok(CollectionStart::Goes(Box::new(collection)))
    }

    /// Whether an earlier run had listed a directory.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Whether an earlier run had found a directory with this name at the top. A tree with none of
    /// them is another one: see [`Collection::other`].
    pub fn had_at_top(&self, name: &[u8]) -> bool {
        self.signs.tops.contains(name)
    }

    /// The error of a record that was begun with another one `of` these.
    pub fn other(&self, of: &'static str) -> ManifestError {
        ManifestError::OtherDraft { path: self.draft.dir().to_owned(), of }
    }

    /// Needs the tree to be listed by whoever has listed it before, as far as that is known. A
    /// record that is not begun yet will have the key.
    ///
    /// # Errors
    /// [`ManifestError::OtherDraft`] if this is another key.
    pub fn need_lister(&mut self, key: &[u8]) -> Result<(), ManifestError> {
        let lister = self.signs.lister.get_or_insert_with(|| key.to_vec());
        if lister.as_slice() == key { Ok(()) } else { Err(self.other("key of the daemon")) }
    }

    /// Items that an earlier run had listed.
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Whether a directory waits.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.dirs.is_empty()
    }

    /// Begins with a directory that waits: the one that came last. `None`: none waits just now.
    pub fn begin(&mut self) -> Option<DirItems> {
        Some(DirItems { dir: self.waiting.pop()?, ..DirItems::default() })
    }

    /// Adds an item to a directory. A directory in it waits as soon as this one is done.
    ///
    /// # Errors
    /// [`ManifestError::Order`] if its path does not follow that of the item before,
    /// [`ManifestError::Unlistable`] if no reader would take it, [`ManifestError::TooManyDirs`] if
    /// too many directories wait.
    pub fn add(&mut self, to: &mut DirItems, item: &Item) -> Result<(), ManifestError> {
        if item.path.as_bytes() <= to.last.as_slice() {
            return Err(ManifestError::Order { path: item.path.clone() });
        }
        if let Some(why) = item.flaw() {
            return Err(ManifestError::Unlistable { path: item.path.clone(), why });
        }
        if item.kind == ItemKind::Dir {
            if !self.waiting.reserve(&item.path) {
                return Err(ManifestError::TooManyDirs { max_mib: self.waiting.bytes_max >> 20 });
            }
            to.dirs.push(item.path.clone());
        }
        to.last.clear();
        to.last.extend_from_slice(item.path.as_bytes());
        to.block.push(item);
        if to.block.block().is_full() { to.close_block(self.draft.dir()) } else { Ok(()) }
    }

    /// Notes a name of a directory that cannot be listed.
    ///
    /// # Errors
    /// If that cannot be written down.
    pub fn omit(&mut self, from: &mut DirItems, fault: &Fault) -> Result<(), ManifestError> {
        from.omitted += 1;
        match serde_json::to_vec(fault) {
            Ok(body) if from.omitted <= FAULTS_OF_DIR_MAX => from.push(DIR_FAULT, &body, self.draft.dir()),
            // It is counted.
            _ => Ok(()),
        }
    }

    /// Forgets what was listed of a directory, which is listed from its beginning.
    pub fn begin_again(&mut self, listed: &mut DirItems) {
        let DirItems { dir, dirs, .. } = std::mem::take(listed);
        dirs.iter().for_each(|dir| self.waiting.release(dir));
        listed.dir = dir;
    }

    /// Forgets what was listed of a directory, which waits again: it is the next to be begun.
    pub fn put_back(&mut self, mut listed: DirItems) {
        self.begin_again(&mut listed);
        self.waiting.put(listed.dir);
    }

    /// Leaves out what is in a directory. It is not in the record, so that a later run asks for it
    /// once more.
    pub fn leave_out(&mut self, mut listed: DirItems) {
        self.begin_again(&mut listed);
        self.omitted += 1;
    }

    /// Writes down a directory that was listed to its end.
    ///
    /// # Errors
    /// If it cannot be written, behind which this collection is of no more use. Another run goes
    /// on.
    pub fn done(&mut self, mut listed: DirItems) -> Result<(), ManifestError> {
        listed.close_block(self.draft.dir())?;
        let body = [&listed.omitted.to_le_bytes()[..], listed.dir.as_bytes()].concat();
        listed.frames.extend(frame(DIR_DONE, &body));
        if self.record.is_none() {
            let mut start = self.terms.clone();
            start.extend(self.signs.lister.iter().flat_map(|key| frame(LISTER, key)));
            self.record = Some(self.draft.replace(PROGRESS_NAME, &start)?);
            self.length = start.len() as u64;
        }
        self.write(&mut listed).map_err(ManifestError::file(WRITING, &self.path))?;
        self.omitted += listed.omitted;
        self.waiting.dirs.append(&mut listed.dirs);
        Ok(())
    }

    fn write(&mut self, listed: &mut DirItems) -> io::Result<()> {
        let Some(record) = &mut self.record else { return Ok(()) };
        let mut bytes = listed.frames.len() as u64;
        if let Some(spilled) = &mut listed.spilled {
            spilled.rewind()?;
            bytes += io::copy(spilled, record)?;
        }
        record.write_all(&listed.frames)?;
        self.length += bytes;
        self.unsynced += bytes;
        if self.unsynced >= UNSYNCED_BYTES_MAX {
            record.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Sorts what was listed with about so many bytes of memory, and seals it. The record goes when
    /// the manifest stands.
    ///
    /// # Errors
    /// [`ManifestError::Stopped`] if it is to end early, or if something cannot be read or written.
    /// Another run goes on.
    pub fn seal(mut self, sort_bytes: usize, is_stopped: &dyn Fn() -> bool) -> Result<Made, ManifestError> {
        let failed = || ManifestError::file(READING, &self.path);
        let damaged = || failed()(damage());
        let mut sorter = Sorter::new(self.draft.dir(), sort_bytes);
        let mut frames = Frames::of(BufReader::new(File::open(&self.path).map_err(failed())?));
        while let Some((kind, body)) = frames.next_frame().map_err(failed())? {
            if is_stopped() {
                return Err(ManifestError::Stopped);
            }
            if kind == DIR_ITEMS {
                let mut items = BlockItems::new(block_of(&body).ok_or_else(damaged)?);
                while let Some(item) = items.next_item().map_err(|_| damaged())? {
                    sorter.add(item)?;
                }
            }
        }
        if frames.end() != self.length {
            return Err(damaged());
        }
        for (number, item) in sorter.finish()?.enumerate() {
            if number % ITEMS_PER_STOP == 0 && is_stopped() {
                return Err(ManifestError::Stopped);
            }
            self.draft.add(&item?)?;
        }
        let sealed = self.draft.finish(Lists::ALL, self.omitted)?;
        progress::remove(&self.draft)?;
        Ok(Made { sealed, items_resumed: self.resumed })
    }
}

/// The state that a record gives back.
#[derive(Default)]
struct Replayed {
    /// Directories that are in a directory that is done, and are not done themselves.
    waiting: BTreeSet<RelPath>,
    signs: TreeSigns,
    /// Bytes up to the end of the last directory that is done.
    length: u64,
    items: u64,
    omitted: u64,
    is_begun: bool,
}

impl Replayed {
    /// Reads the frames behind the terms.
    fn read<R: Read>(&mut self, frames: &mut Frames<R>, told: &mut dyn FnMut(&Fault)) -> io::Result<()> {
        let (mut dirs, mut faults, mut items) = (Vec::new(), Vec::new(), 0);
        self.length = frames.end();
        while let Some((kind, body)) = frames.next_frame()? {
            match kind {
                DIR_ITEMS => {
                    let mut of_block = BlockItems::new(block_of(&body).ok_or_else(damage)?);
                    while let Some(item) = of_block.next_item().map_err(|_| damage())? {
                        items += 1;
                        if item.kind == ItemKind::Dir {
                            dirs.push(item.path);
                        }
                    }
                }
                LISTER if !self.is_begun => (self.signs.lister, self.length) = (Some(body), frames.end()),
                DIR_FAULT => faults.push(serde_json::from_slice(&body).map_err(|_| damage())?),
                DIR_DONE => {
                    let (omitted, dir) = body.split_first_chunk().ok_or_else(damage)?;
                    let dir = if dir.is_empty() { RelPath::root() } else { RelPath::new(dir).map_err(|_| damage())? };
                    if !self.waiting.remove(&dir) {
                        return Err(damage());
                    }
                    if dir.is_root() {
                        self.signs.tops.extend(dirs.iter().map(|dir| dir.as_bytes().to_vec()));
                    }
                    self.waiting.extend(dirs.drain(..));
                    faults.drain(..).for_each(|fault| told(&fault));
                    self.items += std::mem::take(&mut items);
                    self.omitted += u64::from_le_bytes(*omitted);
                    (self.length, self.is_begun) = (frames.end(), true);
                }
                _ => return Err(damage()),
            }
        }
        Ok(())
    }
}

fn damage() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is damaged")
}

/// Directories that wait, the last one first, and the memory of these and of those that will.
#[derive(Debug)]
struct Waiting {
    dirs: Vec<RelPath>,
    bytes: usize,
    bytes_max: usize,
}

impl Waiting {
    fn new(bytes_max: usize) -> Waiting {
        Waiting { dirs: Vec::new(), bytes: 0, bytes_max }
    }

    /// Has room kept for a directory. Gives whether there was some.
    #[must_use]
    fn reserve(&mut self, dir: &RelPath) -> bool {
        let bytes = self.bytes + memory_of(dir);
        if bytes > self.bytes_max {
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// Gives back the room that was kept for a directory.
    fn release(&mut self, dir: &RelPath) {
        self.bytes -= memory_of(dir);
    }

    /// Has a directory wait that did before, when there was room for it.
    fn put(&mut self, dir: RelPath) {
        self.bytes += memory_of(&dir);
        self.dirs.push(dir);
    }

    fn pop(&mut self) -> Option<RelPath> {
        let dir = self.dirs.pop()?;
        self.release(&dir);
        Some(dir)
    }
}

/// The memory of a directory that waits.
fn memory_of(dir: &RelPath) -> usize {
    size_of::<RelPath>() + 32 + dir.as_bytes().len()
}

const READING: &str = "read the record of an unfinished manifest";
const WRITING: &str = "write the record of an unfinished manifest";
/// Kinds of frames: items of a directory, the fault of a name of it, and its end, with the number
/// of names that were left out.
const DIR_ITEMS: u8 = b'i';
const DIR_FAULT: u8 = b'f';
const DIR_DONE: u8 = b'd';
/// The key of whoever lists the tree, behind the terms.
const LISTER: u8 = b'k';
/// Bytes of a directory that are held in memory before they go to a file: some 30,000 names.
const FRAMES_HELD_BYTES: usize = 1 << 20;
/// Faults of names of one directory that a later run tells once more. Any others are counted.
const FAULTS_OF_DIR_MAX: u64 = 256;
/// Items that are sealed between two looks for a stop.
const ITEMS_PER_STOP: usize = 4096;
/// Bytes of the record that a power cut may cost.
const UNSYNCED_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_that_wait_take_bounded_memory() {
        let mut waiting = Waiting::new(10_000);
        let name = |n: usize| RelPath::new(format!("{n:0100}")).unwrap();
        let room = (0..1000).find(|n| !waiting.reserve(&name(*n))).unwrap();
        assert!((10..100).contains(&room), "{room}");
        waiting.release(&name(0));
        assert!(waiting.reserve(&name(7)) && !waiting.reserve(&name(8)));
        (0..room).for_each(|n| waiting.release(&name(n)));
        assert_eq!(waiting.bytes, 0);
        waiting.put(name(1));
        assert_eq!((waiting.pop(), waiting.pop(), waiting.bytes), (Some(name(1)), None, 0));
    }
}
