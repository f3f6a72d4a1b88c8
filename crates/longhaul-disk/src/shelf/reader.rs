//! [`JournalReader`]: a journal that is read without being taken, from whichever of its copies says
//! more.
//!
//! In: the open copies with their epochs. Out: the bytes of the one that is believed. All copies
//! are read side by side, as far as whoever reads wants to hear; where they part, the one that is
//! proven further goes on (COPIES-4). Knows no locks but to ask about them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use longhaul_core::{Mtime, SessionTag};
use rustix::fs::fstat;
use rustix::io::{Errno, pread};

use super::Proves;
use super::copy::{FIRST_PIECE_BYTES, PIECE_BYTES, written};
use super::dir::shown;
use super::epoch::Epoch;
use super::locks;
use crate::error::DiskError;
use crate::stat::len_of;

/// A journal open for reading, which keeps no other session from it.
#[derive(Debug)]
pub struct JournalReader {
    tag: SessionTag,
    /// The copies that count.
    copies: Vec<OwnedFd>,
    /// The copies that do not count: whoever has the journal has them locked as well.
    others: Vec<OwnedFd>,
    proves: Arc<dyn Proves>,
}

/// How copies of a journal stand to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// The place of the one that is believed.
    pub(super) believed: usize,
    /// Whether another one is proven beyond the point where it parts from that.
    pub(super) parted: bool,
    /// Whether not all of them are the same to their ends.
    pub(super) differ: bool,
}

impl JournalReader {
    /// A reader of the copies that were found.
    pub(super) fn new(tag: SessionTag, found: Vec<(OwnedFd, Epoch)>, proves: Arc<dyn Proves>) -> JournalReader {
        let highest = found.iter().map(|(_, epoch)| epoch.number).max();
        let (copies, others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(_, epoch)| Some(epoch.number) == highest);
        let bare = |found: Vec<(OwnedFd, Epoch)>| found.into_iter().map(|(fd, _)| fd).collect();
        JournalReader { tag, copies: bare(copies), others: bare(others), proves }
    }

    /// The tag of the session that owns it.
    pub fn tag(&self) -> SessionTag {
        self.tag
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's error.
    #[expect(clippy::len_without_is_empty, reason = "whether it is empty says nothing of what it promises")]
    pub fn len(&self) -> Result<u64, DiskError> {
        let len = |fd| fstat(fd).map(|stat| len_of(&stat));
        let longest = self.copies.iter().map(len).reduce(longer).unwrap_or(Ok(0));
        longest.map_err(|error| DiskError::call("examine", shown(self.tag), error))
    }

    /// Whether a live session, of this process or another, has it locked.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_live(&self) -> Result<bool, DiskError> {
        for fd in self.copies.iter().chain(&self.others) {
            let locked = locks::is_locked(fd);
            if locked.map_err(|error| DiskError::call("examine the lock of", shown(self.tag), error))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The time of the last write.
    ///
    /// # Errors
    /// The system's error.
    pub fn written(&self) -> Result<Mtime, DiskError> {
        self.copies.iter().map(|fd| written(fd, self.tag)).reduce(longer).unwrap_or(Ok(Mtime::default()))
    }

    /// Gives all its bytes to `sink`, in pieces of up to a megabyte, until `sink` returns false.
    /// The read may end in the middle of a record that is being appended.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(&self, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), DiskError> {
        let copies: Vec<&OwnedFd> = self.copies.iter().collect();
        merge(&copies, self.tag, self.proves.as_ref(), sink).map(drop)
    }
}

/// The larger of two values, or the one that there is.
fn longer<T: Ord, E>(one: Result<T, E>, other: Result<T, E>) -> Result<T, E> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(one.max(other)),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Compares copies of a journal to their ends.
///
/// # Errors
/// The system's error, if none of them can be read.
pub(super) fn compare(copies: &[&OwnedFd], tag: SessionTag, proves: &dyn Proves) -> Result<Comparison, DiskError> {
    merge(copies, tag, proves, &mut |_| true)
}

/// Reads copies of a journal side by side. All bytes that `sink` gets are those of the one that is
/// believed, as those that part from it had the same until then.
fn merge(
    copies: &[&OwnedFd],
    tag: SessionTag,
    proves: &dyn Proves,
    sink: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Comparison, DiskError> {
    // Most callers want only the beginning, which names the owner.
    let (mut piece, mut beside) = (vec![0; FIRST_PIECE_BYTES], Vec::new());
    let mut comparison = Comparison::default();
    let mut alike: Vec<usize> = (0..copies.len()).collect();
    let (mut offset, mut ended) = (0, false);
    while let Some(at) = alike.first().copied() {
        let filled = match fill(copies[at], &mut piece, offset) {
            Ok(filled) => filled,
            Err(error) if alike.len() == 1 => return Err(DiskError::call("read", shown(tag), error)),
            Err(_) => {
                alike.remove(0);
                (comparison.believed, comparison.differ) = (alike[0], true);
                continue;
            }
        };
        if filled == 0 {
            // A longer one goes on.
            alike.remove(0);
            ended = true;
            continue;
        }
        comparison.believed = at;
        comparison.differ |= ended;
        let mut further = false;
        let mut others = alike.split_off(1).into_iter();
        while let Some(other) = others.next() {
            beside.resize(filled, 0);
            let read = fill(copies[other], &mut beside, offset).unwrap_or(0);
            if beside[..read] == piece[..read] {
                // A shorter one has nothing more to say.
                match read == filled {
                    true => alike.push(other),
                    false => comparison.differ = true,
                }
                continue;
            }
            comparison.differ = true;
            let parting = offset + beside.iter().zip(&piece).take_while(|(a, b)| a == b).count() as u64;
            let [ours, theirs] = [at, other].map(|one| proven(copies[one], tag, proves));
            comparison.parted |= ours.min(theirs) > parting;
            if theirs > ours {
                // It is read from here on.
                further = true;
                alike = std::iter::once(other).chain(others).collect();
                break;
            }
        }
        if further {
            continue;
        }
        if !sink(&piece[..filled]) {
            return Ok(comparison);
        }
        offset += filled as u64;
        piece.resize((2 * piece.len()).min(PIECE_BYTES), 0);
    }
    Ok(comparison)
}

/// The number of bytes of a copy that are proven. None of one that cannot be read.
fn proven(fd: &OwnedFd, tag: SessionTag, proves: &dyn Proves) -> u64 {
    let mut failed = false;
    let len = proves.proven_len(&mut |sink| failed = super::copy::read(fd, tag, sink).is_err());
    if failed { 0 } else { len }
}

/// Reads as much of `into` as there is at an offset.
fn fill(fd: &OwnedFd, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < into.len() {
        match pread(fd, &mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
