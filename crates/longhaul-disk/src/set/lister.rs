//! Lists a path, sorted by name, a page at a time, in memory that does not depend on the size of
//! the directory.
//!
//! In: a tree, a path, and how many bytes of names may be held. Out: pages, in order and each name
//! once. A directory is read once for each batch of names that fits that memory, and a name is
//! examined when its page is asked for. Knows no peers.
//!
//! A directory of `n` names costs `n * (name + NAME_COST) / memory` readings: of 10 million names
//! of 20 bytes, with 16 MiB, 41 readings, which is 100 s where a system reads four million names a
//! second, and a fifth of that is for examining them.

use std::collections::BinaryHeap;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::{Clock, RelPath, is_reserved};
use rustix::fs::RawDir;
use rustix::io::Errno;

use super::TargetSet;
use crate::error::{DiskError, ErrorKind, SetError};
use crate::stat::Standing;
use crate::tree::standing;
use crate::walk::Dir;

/// A name in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The bare name, any bytes.
    pub name: Vec<u8>,
    /// Its kind and facts.
    pub standing: Standing,
}

/// A listing under way: see the module.
#[derive(Debug)]
pub struct Lister {
    path: RelPath,
    /// The directory, on each target where it stands. Empty for anything else, which is listed
    /// itself.
    dirs: Vec<Arc<Dir>>,
    /// The next names.
    batch: VecDeque<Box<[u8]>>,
    /// The single find, if the path is no directory.
    itself: Option<Listed>,
    unread: Unread,
    /// The number of a target that is missing: the listing ends with that.
    away: Option<u32>,
    unwanted: Arc<AtomicBool>,
}

/// The part of the directory that was not in a batch yet.
#[derive(Debug)]
enum Unread {
    All,
    /// The names behind this one, which was the last of its batch.
    Behind(Box<[u8]>),
    Nothing,
}

impl Lister {
    /// Begins to list `path`, without reserved names. A directory is not read before its first page
    /// is asked for.
    ///
    /// # Errors
    /// As [`TargetSet::stat`]; [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if nothing
    /// stands there.
    pub fn new(set: &TargetSet, path: &RelPath) -> Result<Lister, DiskError> {
        let batch = VecDeque::new();
        let (unread, unwanted) = (Unread::Nothing, Arc::default());
        let mut lister =
            Lister { path: path.clone(), dirs: Vec::new(), away: None, batch, itself: None, unread, unwanted };
        match set.stat(path)? {
            None => return Err(set.away().unwrap_or_else(|| DiskError::call("list", path, Errno::NOENT))),
            Some(Standing::Dir { .. }) => {
                for target in set.targets() {
                    match target.tree.dir(path) {
                        Ok(dir) => lister.dirs.push(dir),
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
                lister.unread = Unread::All;
                lister.away = set.missing().first().map(|missing| missing.id.0);
            }
            Some(standing) => {
                lister.itself = Some(Listed { name: path.name().unwrap_or_default().to_vec(), standing });
            }
        }
        Ok(lister)
    }

    /// A flag that another thread sets when the listing is not wanted any more: a page that is
    /// being read is broken off, and no other is read.
    pub fn unwanted(&self) -> Arc<AtomicBool> {
        self.unwanted.clone()
    }

    /// Whether all names were given.
    pub fn is_over(&self) -> bool {
        let names_are_over = self.batch.is_empty() && matches!(self.unread, Unread::Nothing);
        names_are_over && self.itself.is_none() && self.away.is_none()
    }

    /// Whether the directory turned out to have more names than are held at a time.
    pub fn is_read_again(&self) -> bool {
        matches!(self.unread, Unread::Behind(_))
    }

    /// The next names: at most `max`, and about `bytes` of names and link targets. Reads the
    /// directory, for as many names as `memory` bytes hold, when all names of the last batch were
    /// given. Empty once the listing is over, and if all of its names vanished meanwhile.
    ///
    /// # Errors
    /// What the system says of the directory or of a name.
    pub fn next_page(&mut self, max: usize, bytes: usize, memory: usize) -> Result<Vec<Listed>, DiskError> {
        if self.batch.is_empty() {
            match std::mem::replace(&mut self.unread, Unread::Nothing) {
                Unread::All => self.read_names(None, memory)?,
                Unread::Behind(name) => self.read_names(Some(&name), memory)?,
                Unread::Nothing => {
                    if let Some(number) = self.away.take() {
                        return Err(SetError::Away { number }.into());
                    }
                }
            }
        }
        let mut page: Vec<Listed> = self.itself.take().into_iter().collect();
        let mut said = 0;
        while page.len() < max.max(1)
            && said < bytes
            && let Some(name) = self.batch.pop_front()
        {
            self.need_wanted()?;
            let found = self.standing(&name);
            if let Some(standing) = found.map_err(|error| shown_beneath(&self.path, &name, error))? {
                said += name.len() + if let Standing::Symlink { target, .. } = &standing { target.len() } else { 0 };
                page.push(Listed { name: name.into_vec(), standing });
            }
        }
        Ok(page)
    }

    /// The entry of a name, on whichever target it stands.
    fn standing(&self, name: &[u8]) -> Result<Option<Standing>, Errno> {
        let mut first: Option<Standing> = None;
        for dir in &self.dirs {
            let Some(found) = standing(dir, name, Clock::Unknown)? else { continue };
            match &first {
                None => first = Some(found),
                Some(Standing::Dir { .. }) if matches!(found, Standing::Dir { .. }) => {}
                Some(before) => return Ok(Some(Standing::Special { what: "on two targets", meta: before.meta() })),
            }
        }
        Ok(first)
    }

    fn need_wanted(&self) -> Result<(), DiskError> {
        match self.unwanted.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(DiskError::call("list", &self.path, Errno::CANCELED)),
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.batch.len()
    }

    /// Reads the directory for the first names behind `after`.
    fn read_names(&mut self, after: Option<&[u8]>, memory: usize) -> Result<(), DiskError> {
        let mut first = FirstNames { names: BinaryHeap::new(), held_bytes: 0, memory, more: false };
        self.dirs.iter().try_for_each(|dir| self.offer_names(dir, after, &mut first))?;
        let more = first.more;
        let mut names = first.names.into_sorted_vec();
        // A directory may stand on several targets.
        names.dedup();
        self.batch = names.into();
        self.unread = self.batch.back().filter(|_| more).map_or(Unread::Nothing, |last| Unread::Behind(last.clone()));
        Ok(())
    }

    /// Offers the names in one directory behind `after`.
    fn offer_names(&self, dir: &Dir, after: Option<&[u8]>, first: &mut FirstNames) -> Result<(), DiskError> {
        let failed = |error| DiskError::call("list", &self.path, error);
        let fd = dir.readable().map_err(failed)?;
        let mut scratch = [MaybeUninit::uninit(); SCRATCH_BYTES];
        let mut entries = RawDir::new(&fd, &mut scratch);
        loop {
            // A batch of entries is some hundred names.
            if entries.is_buffer_empty() {
                self.need_wanted()?;
            }
            let Some(entry) = entries.next() else { break };
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            let ours = name == b"." || name == b".." || is_reserved(name);
            if !ours && after.is_none_or(|after| name > after) {
                first.offer(name);
            }
        }
        Ok(())
    }
}

/// The first names of all offered ones, which come in any order; as many as fit in a memory, at
/// least one.
struct FirstNames {
    names: BinaryHeap<Box<[u8]>>,
    /// Bytes that the names take.
    held_bytes: usize,
    memory: usize,
    more: bool,
}

impl FirstNames {
    fn offer(&mut self, name: &[u8]) {
        // Once a name was left out, every name behind the held ones is left out too: otherwise
        // there would be a gap.
        if self.more && self.names.peek().is_some_and(|last| name > last.as_ref()) {
            return;
        }
        self.held_bytes += cost(name);
        self.names.push(name.into());
        while self.held_bytes > self.memory && self.names.len() > 1 {
            self.held_bytes -= self.names.pop().map_or(0, |last| cost(&last));
            self.more = true;
        }
    }
}

fn cost(name: &[u8]) -> usize {
    name.len() + NAME_COST
}

fn shown_beneath(dir: &RelPath, name: &[u8], error: Errno) -> DiskError {
    let path = if dir.is_root() { name.to_vec() } else { [dir.as_bytes(), name].join(&b'/') };
    DiskError::call("examine", path.as_slice(), error)
}

const SCRATCH_BYTES: usize = 16 << 10;
/// Bytes that a name takes besides its own: its pointer and length, the room that a growing list of
/// those keeps free, and the allocator's overhead.
const NAME_COST: usize = 48;

#[cfg(test)]
mod tests;
