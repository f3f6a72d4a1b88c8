//! The record of a verification that is not through yet: which striped files and chunks were read,
//! so that a later run goes on with it.
//!
//! In: the first target of a set, and what was found. Out: the file `.longhaul-set/verify` there,
//! appended to every few seconds, and what an earlier run left in it. Each line is a fact of its
//! own: one that is torn, and all behind it, do not count, and what they told is read again. A file
//! is known by its id, which it has as long as its content is the same. Reads no chunks.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_core::{Mtime, TargetId, TempName};
use longhaul_sys::lock;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{DiskError, SetError};
use crate::fill::read_up_to;
use crate::kernel::Kernel;
use crate::lines::{from_hex, hex};
use crate::set::lock::patiently;
use crate::set::mark::own_dir;
use crate::set::{SetTarget, TargetSet};
use crate::shelf::has_no_locks;
use crate::stat::{len_of, type_of};
use crate::tree::Tree;

/// Whether a verification goes on with one that was interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Beginning {
    /// It does, if there is one.
    #[default]
    Continued,
    /// It does not: everything is read.
    Anew,
}

/// The record of a verification.
#[derive(Debug)]
pub(super) struct VerifyRecord {
    earlier: Earlier,
    /// `None`: it is not kept, and the verification cannot be gone on with.
    log: Mutex<Option<Log>>,
}

/// The finds of earlier runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Earlier {
    /// When the verification began. Zero if this run is the first.
    pub(super) began: Mtime,
    files: HashMap<TempName, FileState>,
}

/// A file in a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileState {
    /// All of its chunks are right.
    Right {
        /// Its length in bytes.
        bytes: u64,
    },
    /// A chunk of it is not what was written.
    Damaged {
        /// The number of the chunk.
        chunk: u64,
        /// The number of the target that it lies on.
        target: u32,
    },
    /// The first slots of its bodies are right: so many on each target.
    Begun(BTreeMap<TargetId, u64>),
}

/// The file of a record, open and locked.
#[derive(Debug)]
struct Log {
    fd: OwnedFd,
    kernel: Kernel,
    home: Arc<Tree>,
    /// The offset at which it is appended to.
    end: u64,
    /// Lines that are not written yet.
    pending: Vec<u8>,
    /// Slots of files under way that are not written yet.
    begun: BTreeMap<(TempName, TargetId), u64>,
    written: Instant,
}

impl Earlier {
    /// The number of files that were read whole, and their bytes.
    pub(super) fn sums(&self) -> (u64, u64) {
        let right = self.files.values().filter_map(|file| match file {
            FileState::Right { bytes } => Some(*bytes),
            _ => None,
        });
        right.fold((0, 0), |(files, sum), bytes| (files + 1, sum + bytes))
    }

    /// Whether anything was found.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let id = TempName::of(from_hex(words.next()?.as_bytes())?);
        let mut number = || words.next()?.parse::<u64>().ok();
        match kind {
            RIGHT => {
                self.files.insert(id, FileState::Right { bytes: number()? });
            }
            DAMAGED => {
                let (chunk, target) = (number()?, u32::try_from(number()?).ok()?);
                self.files.insert(id, FileState::Damaged { chunk, target });
            }
            BEGUN => {
                let (target, slots) = (TargetId(u32::try_from(number()?).ok()?), number()?);
                let known = self.files.entry(id).or_insert_with(|| FileState::Begun(BTreeMap::new()));
                if let FileState::Begun(bodies) = known {
                    bodies.insert(target, slots);
                }
            }
            _ => return None,
        }
        words.next().is_none().then_some(())
    }

    /// The finds that a text tells, and the length of the part of it that counts. `None` if it is
    /// no record that begins with `header`.
    fn parse(text: &[u8], header: &str) -> Option<(Earlier, usize)> {
        let mut rest = text.strip_prefix(header.as_bytes())?;
        let line = |rest: &mut &[u8]| {
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let line = str::from_utf8(&rest[..end]).ok()?.to_owned();
            *rest = &rest[end + 1..];
            Some(line)
        };
        let secs = line(&mut rest)?.strip_prefix(BEGAN)?.parse().ok()?;
        let mut earlier = Earlier { began: Mtime { secs, nanos: 0 }, files: HashMap::new() };
        let mut counted = text.len() - rest.len();
        while let Some(next) = line(&mut rest)
            && earlier.take(&next).is_some()
        {
            counted = text.len() - rest.len();
        }
        Some((earlier, counted))
    }
}

impl VerifyRecord {
    /// Goes on with the record of a set, or begins one. The error says why none is kept.
    pub(super) fn open(set: &TargetSet, beginning: Beginning) -> (VerifyRecord, Option<DiskError>) {
        match Log::open(set, beginning) {
            Ok((log, earlier)) => (VerifyRecord { earlier, log: Mutex::new(Some(log)) }, None),
            Err(error) => (VerifyRecord { earlier: Earlier::default(), log: Mutex::new(None) }, Some(error)),
        }
    }

    /// The finds of the runs before this one.
    pub(super) fn earlier(&self) -> &Earlier {
        &self.earlier
    }

    /// The state in which the runs before this one left a file.
    pub(super) fn of(&self, id: &TempName) -> Option<&FileState> {
        self.earlier.files.get(id)
    }

    /// Notes that the first slots of a body are right.
    pub(super) fn note_slots(&self, id: &TempName, target: TargetId, slots: u64) {
        if let Some(log) = &mut *self.lock() {
            log.begun.insert((*id, target), slots);
            if log.written.elapsed() >= WRITTEN_EVERY {
                log.try_flush();
            }
        }
    }

    /// Notes that a file was read whole and is right.
    pub(super) fn note_right(&self, id: &TempName, bytes: u64) {
        self.note(id, format!("{RIGHT} {} {bytes}\n", hex(id.bytes())));
    }

    /// Notes that a chunk of a file is not what was written.
    pub(super) fn note_damaged(&self, id: &TempName, chunk: u64, target: u32) {
        self.note(id, format!("{DAMAGED} {} {chunk} {target}\n", hex(id.bytes())));
    }

    fn note(&self, id: &TempName, line: String) {
        if let Some(log) = &mut *self.lock() {
            log.begun.retain(|(known, _), _| known != id);
            log.pending.extend_from_slice(line.as_bytes());
            if log.written.elapsed() >= WRITTEN_EVERY {
                log.try_flush();
            }
        }
    }

    /// Writes what is not written yet: the run stops. Returns whether another one can go on.
    pub(super) fn leave(self) -> bool {
        let log = self.log.into_inner().unwrap_or_else(PoisonError::into_inner);
        log.is_some_and(|mut log| log.try_flush())
    }

    /// Removes the record: the run went through everything.
    pub(super) fn remove(self) {
        let Some(log) = self.log.into_inner().unwrap_or_else(PoisonError::into_inner) else { return };
        let removed = own_dir(log.home.root()).and_then(|own| {
            let own = own.ok_or(Errno::NOENT)?;
            log.kernel.unlinkat(&own, NAME)
        });
        if let Err(error) = removed {
            let dir = log.home.named().display();
            tracing::warn!(target: "longhaul::disk", %error, %dir, "cannot remove the record of a verification");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Log>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn open(set: &TargetSet, beginning: Beginning) -> Result<(Log, Earlier), DiskError> {
        let home = set.targets().iter().find(|target| target.id == TargetId::FIRST);
        let home = home.ok_or(SetError::Away { number: TargetId::FIRST.0 })?;
        let (SetTarget { tree, .. }, mark) = (home, set.mark());
        let dir = || tree.named().into();
        let mark = mark.ok_or_else(|| SetError::NoSet { dir: dir() })?;
        let failed = |error| DiskError::call(CALL, tree.named(), error);
        let kernel = tree.root().kernel();
        let own = own_dir(tree.root()).map_err(failed)?.ok_or(Errno::NOENT).map_err(failed)?;
        let locked = (0..OPENED_MAX).find_map(|_| Log::locked(tree, &own).transpose());
        let (fd, stat) = locked.unwrap_or_else(|| Err(SetError::Verifying { dir: dir() }.into()))?;
        let mut text = vec![0; usize::try_from(len_of(&stat).min(BYTES_MAX)).unwrap_or(0)];
        let len = read_up_to(&fd, &mut text, 0).map_err(failed)?;
        let header = format!("{HEADER}\nset {}\ngeneration {}\n", mark.set, mark.generation);
        let known = Earlier::parse(&text[..len], &header).filter(|_| beginning == Beginning::Continued);
        let (pending, (earlier, end)) = match known {
            Some(known) => (Vec::new(), known),
            None => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                (format!("{header}{BEGAN}{}\n", now.as_secs()).into_bytes(), (Earlier::default(), 0))
            }
        };
        kernel.ftruncate(&fd, end as u64).map_err(failed)?;
        let (begun, written) = (BTreeMap::new(), Instant::now());
        let mut log = Log { fd, kernel: kernel.clone(), home: tree.clone(), end: end as u64, pending, begun, written };
        // Whether it can be kept shows now.
        log.flush().map_err(failed)?;
        Ok((log, earlier))
    }

    /// Opens or makes the file in the set's own directory on a target, and locks it. `None`: it was
    /// removed meanwhile, as another run has come to its end.
    fn locked(tree: &Tree, own: &OwnedFd) -> Result<Option<(OwnedFd, Stat)>, DiskError> {
        let failed = |error| DiskError::call(CALL, tree.named(), error);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match openat(own, NAME, flags, Mode::empty()) {
            Err(Errno::NOENT) => tree.root().kernel().create(own, NAME, OFlags::RDWR, Mode::RUSR | Mode::WUSR),
            outcome => outcome,
        };
        let fd = match opened {
            Err(Errno::EXIST) => return Ok(None),
            outcome => outcome.map_err(failed)?,
        };
        let is_good = |stat: &Stat| {
            let is_ours = stat.st_uid == geteuid().as_raw() || stat.st_uid == 0;
            type_of(stat) == FileType::RegularFile && stat.st_nlink <= 1 && is_ours && stat.st_mode & 0o022 == 0
        };
        if !is_good(&fstat(&fd).map_err(failed)?) {
            return Err(failed(Errno::PERM));
        }
        match patiently(|| lock::try_lock(&fd)) {
            Ok(true) => {}
            Ok(false) => return Err(SetError::Verifying { dir: tree.named().into() }.into()),
            Err(error) if has_no_locks(&error) => {}
            Err(error) => return Err(DiskError::call(CALL, tree.named(), error)),
        }
        // Whoever held the lock has written to it since, or removed it.
        let stat = fstat(&fd).map_err(failed)?;
        Ok((stat.st_nlink > 0).then_some((fd, stat)))
    }

    /// Writes what is not written yet. Returns whether it did: what is not there is read again.
    fn try_flush(&mut self) -> bool {
        let written = self.flush();
        if let Err(error) = &written {
            let dir = self.home.named().display();
            tracing::warn!(target: "longhaul::disk", %error, %dir, "cannot write the record of a verification");
        }
        written.is_ok()
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.written = Instant::now();
        for ((id, target), slots) in std::mem::take(&mut self.begun) {
            let line = format!("{BEGUN} {} {} {slots}\n", hex(id.bytes()), target.0);
            self.pending.extend_from_slice(line.as_bytes());
        }
        while !self.pending.is_empty() {
            match self.kernel.pwrite(&self.fd, &self.pending, self.end) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(written) => {
                    self.pending.drain(..written);
                    self.end += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.kernel.fdatasync(&self.fd)
    }
}

/// The file in the set's own directory.
const NAME: &[u8] = b"verify";
const CALL: &str = "keep the record of a verification on";
const HEADER: &str = "longhaul set verify 1";
const BEGAN: &str = "began ";
const RIGHT: &str = "right";
const DAMAGED: &str = "damaged";
const BEGUN: &str = "begun";
/// A crash costs no more than is read in this time.
const WRITTEN_EVERY: Duration = Duration::from_secs(2);
/// Each time another run has just ended.
const OPENED_MAX: u32 = 8;
/// A longer record is not read to its end: that of 10 million files has 600 MB.
const BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden text: a run of a later build goes on with it.
    const GOLDEN: &str = "longhaul set verify 1\nset a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\ngeneration 3\nbegan 1764038400\n\
                          begun 01010101010101010101010101010101 2 7\nright 01010101010101010101010101010101 9437185\n\
                          damaged 02020202020202020202020202020202 5 1\n\
                          begun 03030303030303030303030303030303 0 4\nbegun 03030303030303030303030303030303 1 3\n\
                          begun 03030303030303030303030303030303 0 6\n";

    #[test]
    fn a_record_tells_what_was_read_and_what_is_torn_or_behind_that_does_not_count() {
        let header = GOLDEN.split_inclusive('\n').take(3).collect::<String>();
        let (earlier, len) = Earlier::parse(GOLDEN.as_bytes(), &header).expect("a record");
        assert_eq!(len, GOLDEN.len());
        assert_eq!((earlier.began.secs, earlier.sums()), (1_764_038_400, (1, 9_437_185)));
        let state = |byte| earlier.files.get(&TempName::of([byte; 16]));
        assert_eq!(state(1), Some(&FileState::Right { bytes: 9_437_185 }));
        assert_eq!(state(2), Some(&FileState::Damaged { chunk: 5, target: 1 }));
        assert_eq!(state(3), Some(&FileState::Begun([(TargetId(0), 6), (TargetId(1), 3)].into())));
        assert!(Earlier::parse(GOLDEN.as_bytes(), &header.replace("generation 3", "generation 4")).is_none());
        let starts: Vec<usize> = GOLDEN.match_indices('\n').map(|(at, _)| at + 1).collect();
        for len in 0..GOLDEN.len() {
            let counted = Earlier::parse(&GOLDEN.as_bytes()[..len], &header).map_or(0, |(_, counted)| counted);
            let whole = starts.iter().filter(|start| **start <= len).max().copied().unwrap_or(0);
            assert_eq!(counted, if whole < starts[3] { 0 } else { whole }, "{len} bytes");
        }
        let torn = GOLDEN.replacen("damaged", "\0\0\0\0\0\0\0", 1);
        assert_eq!(Earlier::parse(torn.as_bytes(), &header).expect("a record").1, starts[5]);
    }
}
