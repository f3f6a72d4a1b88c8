//! Reading back: synced chunks and staged small files are read from the medium once more and
//! compared before they are journalled, acknowledged or renamed.
//!
//! In: synced chunks, from `flow`; digests of the bytes that the disk gives back. Out: records for
//! the journal and verdicts, or chunks that are wanted again. A chunk has no verdict until then, so
//! that the sender will still send it. Chunks of an earlier session are read back too, beside the
//! rest, as it is unknown how they were verified; these also if nothing else is read back and the
//! file is to have further checksums that combine. Knows nothing of how a medium is read.

use longhaul_core::digest::Digest;
use longhaul_core::limits::{ATTEMPTS_MAX, CHUNKS_WANTED_MAX};
use longhaul_core::{Blame, BundleId, ChunkIndex, Fault, FaultCode, FileId, Unit, hint};

use super::bundles::{Reading, Unread};
use super::chunks::{ChunkEvent, ChunkState};
use super::in_order::OrderedReading;
use super::large::{LargeStage, LargeTarget, Leftover};
use super::order::{ReceiverConfig, SyncGroup};
use super::partial::Source;
use super::{EntryState, Receiver, ReceiverAction};
use crate::steps;
use crate::time::Timestamp;
use crate::wire::message::{Finding, Verdict};

/// The chunks of one file that are being read back.
#[derive(Debug, Default)]
pub(super) struct Checks {
    on: bool,
    /// Whether chunks of an earlier session are read back.
    reads_held: bool,
    /// Synced chunks being read back.
    fresh: usize,
    /// Chunks of an earlier session being read back.
    earlier: usize,
    /// Whether digests that came back are being judged: a file that fails by one of them does not
    /// end before all are judged.
    judging: bool,
    /// The chunk from which on chunks of an earlier session are still to be read back. `None` if
    /// none are.
    next_held: Option<ChunkIndex>,
    /// How far the file is read in order.
    pub(super) in_order: OrderedReading,
    /// Whether the disk gave back other bytes when all of it was read in order.
    pub(super) was_misread: bool,
}

/// The result of reading a chunk back.
enum Check {
    Good(ChunkIndex, Digest),
    Spoilt(ChunkIndex),
    /// A chunk of an earlier session is spoilt.
    Lost(ChunkIndex),
    Nothing,
}

impl Checks {
    /// The checks that a receiver wants. For further checksums, chunks of an earlier session are
    /// read in any case: nobody summed them for this one, and what is summed must be what is known.
    /// Where the whole file is read in order, that is enough.
    pub(super) fn under(config: &ReceiverConfig) -> Checks {
        let (on, in_order) = (config.read_back, OrderedReading::under(config));
        let sums_held = !config.preserve.sums.is_empty() && !in_order.is_wanted();
        Checks { on, reads_held: on || sums_held, in_order, ..Checks::default() }
    }

    pub(super) fn are_on(&self) -> bool {
        self.on
    }

    pub(super) fn are_under_way(&self) -> bool {
        self.judging || self.fresh + self.earlier > 0 || self.in_order.is_under_way()
    }

    pub(super) fn are_over(&self) -> bool {
        !self.are_under_way() && self.next_held.is_none()
    }

    /// Panics at the first counter that differs from what the chunks themselves say.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn audit(&self, synced: usize) {
        assert!(!self.on || self.fresh == synced, "{} chunks are read back, {synced} are synced", self.fresh);
    }
}

impl LargeTarget {
    /// Whether the written chunks wait for nothing but a sync.
    fn waits_for_sync(&self) -> bool {
        let is_on_its_way = |state| matches!(state, ChunkState::Wanted | ChunkState::Verified);
        self.checks.on
            && self.stage == LargeStage::Open
            && self.failed.is_none()
            && self.written > 0
            && self.writing == 0
            && !self.has_chunks_to_want()
            && !self.chunks.values().any(|chunk| is_on_its_way(chunk.state))
    }

    /// The next chunks of an earlier session to read back.
    fn next_held(&mut self) -> Vec<ChunkIndex> {
        let Some(from) = self.checks.next_held.filter(|_| self.failed.is_none()) else { return Vec::new() };
        let held = self.partial.iter().flat_map(|partial| partial.indices_from(from));
        let next: Vec<_> = held.take(READ_BACK_AT_ONCE).collect();
        self.checks.next_held = next.last().map(|last| ChunkIndex(last.0 + 1));
        self.checks.earlier = next.len();
        next
    }

    /// Compares a chunk that was read back with its digest.
    fn checked(&mut self, index: ChunkIndex, found: Digest) -> Result<Check, Fault> {
        let Some(chunk) = self.chunks.get(&index).copied() else {
            self.checks.earlier = self.checks.earlier.saturating_sub(1);
            let same = self.partial.as_ref().and_then(|partial| partial.get(index)) == Some(*found.bytes());
            return Ok(if same { Check::Nothing } else { Check::Lost(index) });
        };
        let Some(digest) = chunk.digest.filter(|_| chunk.state == ChunkState::Synced) else {
            return Ok(Check::Nothing);
        };
        self.checks.fresh -= 1;
        if found == digest {
            self.step(index, ChunkEvent::Checked);
            self.wanted -= 1;
            if !chunk.judged {
                self.enter_tree(index, digest)?;
            }
            return Ok(Check::Good(index, digest));
        }
        Ok(Check::Spoilt(index))
    }

    /// Wants a chunk again that is spoilt on the medium. Gives its bytes, which count as synced no
    /// more.
    fn spoil(&mut self, index: ChunkIndex) -> u64 {
        let bytes = self.map.len_of(index).unwrap_or(0);
        self.step(index, ChunkEvent::Spoilt);
        self.synced -= bytes;
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.attempt = chunk.attempt.next();
            chunk.digest = None;
        }
        if self.failed.is_some() {
            self.chunks.remove(&index);
        }
        bytes
    }

    /// Notes that a chunk could not be read back. Gives the bytes that count as synced no more.
    fn unchecked(&mut self, index: ChunkIndex) -> u64 {
        match self.chunks.get(&index).map(|chunk| chunk.state) {
            Some(ChunkState::Synced) => {
                self.checks.fresh -= 1;
                self.spoil(index)
            }
            _ => {
                self.checks.earlier = self.checks.earlier.saturating_sub(1);
                0
            }
        }
    }
}

impl Receiver {
    /// Orders synced chunks to be read back, a few at a time. The good ones of each order are
    /// journalled when it is done.
    pub(super) fn read_back(&mut self, file: FileId, chunks: &[(ChunkIndex, Digest)]) {
        let Some(large) = self.large(file) else { return };
        large.checks.fresh += chunks.len();
        for some in chunks.chunks(READ_BACK_AT_ONCE) {
            let chunks = some.iter().map(|(index, _)| *index).collect();
            self.actions.push(ReceiverAction::ReadBack { file, chunks });
        }
    }

    /// Begins to read back the chunks of a file that an earlier session left and that the sender is
    /// not asked about.
    pub(super) fn read_back_held(&mut self, file: FileId) {
        let Some(large) = self.large(file).filter(|large| large.checks.reads_held) else { return };
        if large.partial.as_ref().is_some_and(|partial| partial.source() == Source::Same) {
            large.checks.next_held = Some(ChunkIndex(0));
            self.go_on_reading_held(file);
        }
    }

    fn go_on_reading_held(&mut self, file: FileId) {
        if self.is_draining() {
            return;
        }
        let Some(large) = self.large(file).filter(|large| large.checks.earlier == 0) else { return };
        let chunks = large.next_held();
        if !chunks.is_empty() {
            self.actions.push(ReceiverAction::ReadBack { file, chunks });
        }
    }

    /// The digests of chunks as the medium gives them back: all chunks of one order.
    pub fn handle_read_back(
        &mut self,
        now: Timestamp,
        file: FileId,
        results: Vec<(ChunkIndex, Result<Digest, Fault>)>,
    ) {
        if self.is_over() {
            return;
        }
        self.judging(file, true);
        let mut good = Vec::with_capacity(results.len());
        let result = results.into_iter().try_for_each(|(index, result)| match result {
            Ok(found) => self.checked(file, index, found, &mut good),
            Err(fault) => {
                let bytes = self.large(file).map_or(0, |large| large.unchecked(index));
                self.unsynced.count_no_more(bytes);
                self.fail_file(file, fault);
                Ok(())
            }
        });
        self.journal_chunks(file, good);
        self.judging(file, false);
        self.go_on_reading_held(file);
        self.proceed(file);
        self.after(now, result);
    }

    fn judging(&mut self, file: FileId, is: bool) {
        if let Some(large) = self.large(file) {
            large.checks.judging = is;
        }
    }

    fn checked(
        &mut self,
        file: FileId,
        index: ChunkIndex,
        found: Digest,
        good: &mut Vec<(ChunkIndex, Digest)>,
    ) -> Result<(), Fault> {
        let Some(large) = self.large(file) else { return Ok(()) };
        let len = large.map.len_of(index).unwrap_or(0);
        let check = large.checked(index, found)?;
        self.tally.read_back += len;
        match check {
            Check::Nothing => {}
            Check::Good(index, digest) => {
                self.window.give_back(file, 1);
                let unit = Unit::Chunk { file, index };
                let chunk = self.large(file).and_then(|large| large.chunks.get(&index));
                let attempt = chunk.filter(|chunk| !chunk.judged).map(|chunk| chunk.attempt);
                if let Some(attempt) = attempt {
                    self.actions.verdict(Verdict { unit, attempt, finding: Finding::Good(digest) });
                }
                good.push((index, digest));
            }
            Check::Spoilt(index) => self.spoilt(file, index, len),
            Check::Lost(index) => {
                self.tally.misread += len;
                let fault = misread(format_args!(
                    "the disk gives back other bytes of chunk {} than an earlier session wrote",
                    index.0
                ));
                self.fail_file_leaving(file, fault, Leftover::Discard);
            }
        }
        Ok(())
    }

    fn spoilt(&mut self, file: FileId, index: ChunkIndex, len: u64) {
        self.tally.misread += len;
        let Some(large) = self.large(file) else { return };
        let has_failed = large.failed.is_some();
        let chunk = large.chunks.get(&index).copied();
        let bytes = large.spoil(index);
        self.unsynced.count_no_more(bytes);
        // The sender has its verdict and does not send it again.
        if chunk.is_some_and(|chunk| chunk.judged) {
            return self.fail_file(file, misread("the disk gives back other bytes than were copied to it"));
        }
        if let Some(chunk) = chunk.filter(|_| !has_failed) {
            self.want_again(file, index, (chunk.attempt, chunk), || {
                misread(format_args!(
                    "the disk gives back other bytes of chunk {} than were written to it, {ATTEMPTS_MAX} times",
                    index.0
                ))
            });
        }
    }

    /// Wants a small file again that is spoilt on the medium. False if its bundle had its last
    /// attempt.
    pub(super) fn want_small_again(&mut self, id: FileId) -> bool {
        let Some(slot) = self.manifest.get_mut(id) else { return false };
        let Some(bundle) = slot.bundle else { return false };
        if self.bundles.unread(bundle).is_none_or(|unread| unread.attempt.0 >= ATTEMPTS_MAX) {
            return false;
        }
        steps::step(&mut slot.state, EntryState::Wanted);
        slot.bundle = None;
        self.actions.push(ReceiverAction::Discard(id));
        self.read_of_bundle(bundle, Reading::Spoilt);
        true
    }

    /// Notes that a file of a bundle was read back. After the last one, the bundle has its verdict.
    pub(super) fn read_of_bundle(&mut self, id: BundleId, reading: Reading) {
        let Some(Unread { attempt, computed, is_spoilt, .. }) = self.bundles.read(id, reading) else { return };
        let finding = if is_spoilt {
            self.bundles.want_again(id, attempt);
            // Files that are committed by now are said first, so that the sender does not send them
            // again.
            self.actions.flush();
            Finding::Again
        } else {
            Finding::Good(computed)
        };
        self.actions.verdict(Verdict { unit: Unit::Bundle(id), attempt, finding });
    }

    /// Syncs a file at once if no more of it can come before its written chunks were read back.
    pub(super) fn sync_what_waits_for_nothing(&mut self, file: FileId) {
        let Some(slot) = self.manifest.get_mut(file) else { return };
        let EntryState::Large(large) = &mut slot.state else { return };
        if large.waits_for_sync() {
            self.unsynced.leave(file, large);
            large.begin_sync();
            self.actions.push(ReceiverAction::SyncData(file));
        }
    }
}

/// The sync group of a session. If chunks are read back, they take part of the window of wanted
/// chunks until then, so a group is at most a quarter of that window.
pub(super) fn group(config: &ReceiverConfig) -> SyncGroup {
    let most = config.chunk.bytes() * (CHUNKS_WANTED_MAX as u64 / 4);
    let bytes = if config.read_back { config.group.bytes.min(most) } else { config.group.bytes };
    SyncGroup { bytes, ..config.group }
}

/// The fault of bytes that are not read as they were written.
pub(super) fn misread(message: impl std::fmt::Display) -> Fault {
    Fault::new(FaultCode::Mismatch, Blame::Local, message).hint(hint::Storage::SuspectDisk)
}

/// Chunks of one order: the good ones are journalled together, and a drain waits for no more.
const READ_BACK_AT_ONCE: usize = 16;
