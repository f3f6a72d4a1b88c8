//! Owns the files of a session that may get another name: those with several names at the source
//! that it committed, or found equal to the source.
//!
//! In: orders to make a name, and the outcomes of entries. Out: staged names, and roots of their
//! files. A file is known by its device and inode, never by a name alone: whoever sends names a
//! path, and gets a link only to what stands there if it is such a file. It is forgotten when all
//! of its names came; so many are remembered as fit a bound. Knows no messages.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::digest::Hash32;
use longhaul_core::{Clock, Entry, EntryKind, FileId, LossReason, Mtime, RelPath, SeveralNames};
use longhaul_disk::{Identity, NameBefore, NameMade, NamedBytes};
use longhaul_proto::receiver::{EntryRef, Named, Seen, is_same};
use longhaul_proto::wire::message::Outcome;

use super::jobs::Pool;
use super::{DestinationDone, DestinationWorkers, begun};

/// The files that may get another name. See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct NamedFiles(Arc<Mutex<KnownFiles>>);

#[derive(Debug, Default)]
struct KnownFiles {
    /// By device and inode.
    files: HashMap<(u64, u64), NamedFile>,
    without_memory: bool,
}

/// A file that this session committed or found equal.
#[derive(Clone, Copy, Debug)]
struct NamedFile {
    len: u64,
    mtime: Mtime,
    proof: Proof,
    /// Its root, if this session knows it.
    root: Option<Hash32>,
    /// How many names may still come.
    left: u32,
}

/// How it is known that a file is the source's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// This session committed it: its bytes are durable.
    Committed,
    /// It stood, and was read: nobody has synced it.
    Read,
}

/// How the file that stands under a first name is judged.
struct Judge<'j> {
    files: &'j NamedFiles,
    held: &'j EntryRef,
    /// Whether a file that stands as the source has it may get another name, although this session
    /// did not commit it.
    standing: bool,
    /// Whether names are made only of files whose root is known: others may be about to be read for
    /// theirs, and another name would change them.
    needs_root: bool,
}

impl NamedFiles {
    fn lock(&self) -> MutexGuard<'_, KnownFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a file that stands, whose names are `names`.
    pub(super) fn remember(&self, is: &Identity, proof: Proof, root: Option<Hash32>, names: &SeveralNames) {
        let mut known = self.lock();
        if !known.are_full() && names.count > 1 {
            let file = NamedFile { len: is.len, mtime: is.mtime, proof, root, left: names.count - 1 };
            known.files.insert((is.dev, is.ino), file);
        }
    }

    /// The memory that they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.lock().files.capacity() * FILE_BYTES
    }

    /// Forgets all, and remembers none from now on: there is no memory for them.
    pub(super) fn forget(&self) {
        *self.lock() = KnownFiles { files: HashMap::new(), without_memory: true };
    }

    /// Notes that one more name of a file came.
    fn came(&self, place: (u64, u64)) {
        let files = &mut self.lock().files;
        if let Some(file) = files.get_mut(&place) {
            file.left = file.left.saturating_sub(1);
            if file.left == 0 {
                files.remove(&place);
            }
        }
    }

    fn get(&self, is: &Identity) -> Option<NamedFile> {
        self.lock().files.get(&(is.dev, is.ino)).copied()
    }

    fn are_full(&self) -> bool {
        self.lock().are_full()
    }
}

impl KnownFiles {
    fn are_full(&self) -> bool {
        self.without_memory || self.files.len() >= FILES_MAX
    }
}

impl Judge<'_> {
    /// Whether the file may get another name, or is what was offered, if the name is one of it
    /// already. Gives its root, if that is known, and whether its bytes are durable.
    fn judge(
        &self,
        is: &Identity,
        clock: Clock,
        before: NameBefore,
    ) -> Result<(Option<Hash32>, NamedBytes), LossReason> {
        let same = is_same(&self.held.entry, &Seen::File { len: is.len, mtime: is.mtime, clock });
        match self.files.get(is) {
            Some(file) => {
                // A file that stood may have been given the time of its source since it was read.
                // One that was committed has it, and another in its place could be given what fits.
                let has_its_time = file.mtime == is.mtime || file.proof == Proof::Read && same;
                let is_as_it_was = file.len == is.len && has_its_time;
                let fits = matches!(self.held.entry.kind, EntryKind::File { len, .. } if len == is.len);
                let bytes = match file.proof {
                    Proof::Committed => NamedBytes::Durable,
                    Proof::Read => NamedBytes::Standing,
                };
                if is_as_it_was && fits { Ok((file.root, bytes)) } else { Err(LossReason::Changed) }
            }
            None if self.standing && same && !self.needs_root => Ok((None, NamedBytes::Standing)),
            // Nothing is linked by that, and whoever may not skip it by its time does not.
            None if before == NameBefore::Same && same => Ok((None, NamedBytes::Standing)),
            None if self.files.are_full() => Err(LossReason::TooMany),
            None => Err(LossReason::Unproven),
        }
    }
}

impl DestinationWorkers {
    /// Makes an entry another name of the file at `first`. `committed` says which entries an
    /// earlier session of this run committed.
    pub(crate) fn make_name(
        &self,
        held: Arc<EntryRef>,
        first: RelPath,
        committed: impl Fn(&Entry) -> bool + Send + 'static,
    ) {
        let (files, ledger) = (self.named_files.clone(), self.journalling.ledger().cloned());
        let (may_stand, needs_root) = (self.options.names_standing, self.options.digests.is_some());
        self.jobs.report(Pool::Stage, move |tree| {
            if begun(ledger.as_deref(), std::iter::once(&held)).is_err() {
                return DestinationDone::Name(held.id, NameMade::Refused, None);
            }
            let of_first = held.entry.meta.names.as_ref().and_then(|names| names.first.clone());
            // The same file under its first name, as it was offered.
            let first_entry = of_first.map(|path| Entry { path, ..held.entry.clone() });
            let is_doubtful = ledger.as_deref().is_some_and(|ledger| ledger.is_doubtful(&first));
            let standing = !is_doubtful && (may_stand || first_entry.as_ref().is_some_and(&committed));
            let judge = Judge { files: &files, held: &held, standing, needs_root };
            let (root, place, is_tried) = (Cell::new(None), Cell::new(None), Cell::new(false));
            let made = tree.make_name(&held.placed, &first, &|is, clock, before| {
                place.set(Some((is.dev, is.ino)));
                let (known, bytes) = judge.judge(is, clock, before)?;
                root.set(known);
                is_tried.set(true);
                Ok(bytes)
            });
            if let (NameMade::Refused, Some(ledger), true) = (&made, &ledger, is_tried.get()) {
                // A temporary may have been made and removed.
                ledger.thin(&held.placed);
            }
            place.get().into_iter().for_each(|place| files.came(place));
            DestinationDone::Name(held.id, made, root.get())
        });
    }

    /// The memory of what may get further names, in bytes.
    pub(crate) fn named_bytes(&self) -> usize {
        self.named_files.bytes()
    }

    /// Has no file get further names but those that stand: there is no memory for more.
    pub(crate) fn forget_named(&self) {
        self.named_files.forget();
    }

    /// Takes a name that was made. Returns the result for the machine.
    pub(crate) fn named(&mut self, file: FileId, made: NameMade, root: Option<Hash32>) -> Named {
        match made {
            NameMade::Staged(staged) => {
                self.files.staged(file, *staged);
                Named::Staged(root)
            }
            NameMade::Stood => Named::Stood(root),
            NameMade::Refused => Named::Refused,
        }
    }

    /// Remembers a file that is settled, if it may get another name.
    pub(super) fn settled_name(&mut self, held: &EntryRef, outcome: &Outcome) {
        let staged = self.staged_identities.remove(&held.id);
        let Some(names) = held.entry.meta.names.as_ref() else { return };
        match outcome {
            Outcome::Committed(root) => {
                staged.iter().for_each(|is| self.named_files.remember(is, Proof::Committed, *root, names));
            }
            Outcome::Equal(root) => {
                let compared = self.reading.versions().get(held.id);
                compared.iter().for_each(|is| self.named_files.remember(is, Proof::Read, Some(*root), names));
            }
            _ => {}
        }
    }
}

/// The most files that may get another name and are remembered. Where a file stands as the source
/// has it, and the rights allow to read and replace it, none of this is needed.
const FILES_MAX: usize = 1 << 18;
/// Bytes of a place in their table: its key, its file, and what tables keep besides.
const FILE_BYTES: usize = size_of::<((u64, u64), NamedFile)>() * 8 / 7 + 1;

#[cfg(test)]
mod tests {
    use longhaul_core::{Inode, Meta};

    use super::*;

    const TIME: Mtime = Mtime { secs: 9, nanos: 0 };

    fn path(text: &str) -> RelPath {
        RelPath::new(text).expect("a path")
    }

    fn held(len: u64) -> EntryRef {
        let kind = EntryKind::File { len, sparse: false, inode: Inode::default() };
        let entry = Entry { path: path("b"), kind, meta: Meta::new(0o644, TIME) };
        EntryRef { id: FileId(1), entry, placed: path("b") }
    }

    fn is(ino: u64, len: u64, secs: i64) -> Identity {
        Identity { dev: 1, ino, len, mtime: Mtime { secs, nanos: 0 }, ctime: TIME }
    }

    fn names(count: u32) -> SeveralNames {
        SeveralNames { first: None, count }
    }

    #[test]
    fn only_what_was_committed_or_stands_where_all_is_allowed_gets_another_name() {
        let (files, held) = (NamedFiles::default(), held(5));
        files.remember(&is(1, 5, 3), Proof::Committed, Some([7; 32]), &names(2));
        let judge = |standing, needs_root, is: Identity| {
            Judge { files: &files, held: &held, standing, needs_root }.judge(&is, Clock::Exact, NameBefore::Other)
        };
        for standing in [false, true] {
            assert_eq!(judge(standing, false, is(1, 5, 3)), Ok((Some([7; 32]), NamedBytes::Durable)));
            let other = Err(LossReason::Changed);
            assert_eq!(judge(standing, false, is(1, 5, 9)), other, "its place has another file, of the right time");
            assert_eq!(judge(standing, false, is(1, 5, 4)), Err(LossReason::Changed), "written to since");
            assert_eq!(judge(standing, false, is(1, 6, 3)), Err(LossReason::Changed), "longer since");
            assert_eq!(judge(standing, false, is(2, 5, 8)), Err(LossReason::Unproven), "another's file");
        }
        assert_eq!(judge(false, false, is(2, 5, 9)), Err(LossReason::Unproven), "it stands as the source has it");
        assert_eq!(judge(true, false, is(2, 5, 9)), Ok((None, NamedBytes::Standing)));
        assert_eq!(judge(true, true, is(2, 5, 9)), Err(LossReason::Unproven), "its root may be read now");
    }

    #[test]
    fn a_file_of_another_length_than_the_entry_is_another_file() {
        let (files, held) = (NamedFiles::default(), held(6));
        files.remember(&is(1, 5, 3), Proof::Committed, None, &names(2));
        let judge = Judge { files: &files, held: &held, standing: true, needs_root: false };
        assert_eq!(judge.judge(&is(1, 5, 3), Clock::Exact, NameBefore::Same), Err(LossReason::Changed));
    }

    #[test]
    fn a_name_that_is_one_already_is_the_entry_only_if_it_stands_as_the_source_has_it() {
        let (files, held) = (NamedFiles::default(), held(5));
        let judge = Judge { files: &files, held: &held, standing: false, needs_root: true };
        assert_eq!(judge.judge(&is(2, 5, 9), Clock::Exact, NameBefore::Same), Ok((None, NamedBytes::Standing)));
        assert_eq!(judge.judge(&is(2, 5, 8), Clock::Exact, NameBefore::Same), Err(LossReason::Unproven), "older");
        assert_eq!(judge.judge(&is(2, 4, 9), Clock::Exact, NameBefore::Same), Err(LossReason::Unproven), "shorter");
    }

    #[test]
    fn files_are_forgotten_behind_their_last_name_and_never_more_than_fit() {
        let files = NamedFiles::default();
        files.remember(&is(1, 5, 3), Proof::Committed, None, &names(3));
        files.came((1, 1));
        assert!(files.get(&is(1, 5, 3)).is_some());
        files.came((1, 1));
        assert!(files.get(&is(1, 5, 3)).is_none());
        (0..FILES_MAX as u64 + 5).for_each(|ino| files.remember(&is(ino, 5, 3), Proof::Committed, None, &names(2)));
        assert_eq!(files.lock().files.len(), FILES_MAX);
        assert!((FILES_MAX * 64..FILES_MAX * 256).contains(&files.bytes()), "{}", files.bytes());
        let held = held(5);
        let judge = Judge { files: &files, held: &held, standing: false, needs_root: false };
        let other = || judge.judge(&is(u64::MAX, 5, 9), Clock::Exact, NameBefore::Other);
        assert_eq!(other(), Err(LossReason::TooMany));
        files.forget();
        files.remember(&is(1, 5, 3), Proof::Committed, None, &names(2));
        assert_eq!((files.bytes(), other()), (0, Err(LossReason::TooMany)), "there was no memory for them");
    }
}
