//! The verdict on every unit that arrives: is it wanted, is it this attempt, is its digest the
//! declared one?
//!
//! On a lane that authenticates, header and trailing digest are believed to be the sender's. On a
//! `safe` lane the header is a hint: the declaration over control says which unit the n-th arrival
//! of a lane was, and only that counts.

use longhaul_core::digest::Digest;
use longhaul_core::limits::{ATTEMPTS_MAX, ENTRIES_UNSETTLED_MAX};
use longhaul_core::{Attempt, Blame, BundleId, ChunkIndex, ChunkMap, EntryKind, Fault, FaultCode, FileId, Unit, hint};

use super::chunks::ChunkState;
use super::compare::differs;
use super::large::{LargeStage, WantedChunk};
use super::lost::came_otherwise;
use super::partial::of_kind;
use super::{EntryState, Landed, Receiver, ReceiverAction};
use crate::steps;
use crate::time::Timestamp;
use crate::wire::message::{Declared, Finding, Verdict};

impl Receiver {
    /// A unit arrived whole.
    pub fn handle_landed(&mut self, now: Timestamp, landed: Landed) {
        if self.is_over() {
            return;
        }
        // A session that is to end writes nothing more.
        if self.is_draining() || self.session.is_ending() {
            return self.actions.push(ReceiverAction::DropPayload(landed.ticket));
        }
        let pair = match landed.declared {
            Some(digest) => {
                let declared = Declared {
                    lane: landed.ticket.lane,
                    seq: landed.ticket.seq,
                    unit: landed.piece.unit,
                    attempt: landed.piece.attempt,
                    digest,
                };
                Ok(Some((landed, declared)))
            }
            None => self.lanes.land(now, landed),
        };
        let result = pair.and_then(|pair| pair.map_or(Ok(()), |(landed, declared)| self.judge(&landed, &declared)));
        self.after(now, result);
    }

    /// Declarations of a `safe` lane's units came.
    pub(super) fn on_digests(&mut self, list: Vec<Declared>) -> Result<(), Fault> {
        for declared in list {
            if let Some((landed, declared)) = self.lanes.declare(declared)? {
                self.judge(&landed, &declared)?;
            }
        }
        Ok(())
    }

    fn judge(&mut self, landed: &Landed, declared: &Declared) -> Result<(), Fault> {
        // A header that differs from the declaration was altered on the way, and the unit was
        // hashed by that header.
        let honest = landed.piece.unit == declared.unit && landed.piece.attempt == declared.attempt;
        // A chunk that is here already was hashed when it came, or is read in the standing file:
        // that digest is compared.
        let computed = if landed.piece.same { self.known(declared.unit) } else { Some(landed.computed) };
        let good = computed.filter(|computed| honest && *computed == declared.digest);
        if declared.attempt > Attempt::FIRST {
            self.lanes.count_resent(landed.piece.unit_len);
        }
        match declared.unit {
            Unit::Chunk { file, index } => self.judge_chunk(landed, declared.attempt, file, index, good),
            Unit::Bundle(id) => self.judge_bundle(landed, declared.attempt, id, good.is_some()),
        }
    }

    /// The digest of a chunk that is here already: the one that an earlier session journalled, or
    /// the one of the standing file.
    fn known(&mut self, unit: Unit) -> Option<Digest> {
        let Unit::Chunk { file, index } = unit else { return None };
        let large = self.large(file)?;
        large.known(index).or(large.stands(index)).map(|hash| of_kind(large.map.kind(), hash))
    }

    fn judge_chunk(
        &mut self,
        landed: &Landed,
        attempt: Attempt,
        file: FileId,
        index: ChunkIndex,
        good: Option<Digest>,
    ) -> Result<(), Fault> {
        let unit = Unit::Chunk { file, index };
        let wanted = self.large(file).and_then(|large| {
            let chunk = large.chunks.get(&index)?;
            (chunk.state == ChunkState::Wanted && chunk.attempt == attempt).then_some((*chunk, large.map))
        });
        let Some((chunk, map)) = wanted else {
            self.actions.push(ReceiverAction::DropPayload(landed.ticket));
            return Ok(());
        };
        let fits = good.is_some_and(|digest| fits(landed, digest, map, index));
        if good.is_some() && !fits && landed.declared.is_some() {
            return Err(Fault::protocol(format_args!(
                "{unit} does not have the length or place that its file gives it (chunks of {})",
                map.size().bytes()
            )));
        }
        let Some(computed) = good.filter(|_| fits) else {
            self.actions.push(ReceiverAction::DropPayload(landed.ticket));
            if let Some(large) = self.large(file).filter(|_| chunk.may_come_again(attempt)) {
                large.reject(index);
            }
            self.want_again(file, index, (attempt, chunk), || {
                mismatch(format_args!("chunk {} arrived damaged {ATTEMPTS_MAX} times", index.0))
            });
            return Ok(());
        };
        if chunk.before.is_some_and(|before| before != computed) {
            self.actions.push(ReceiverAction::DropPayload(landed.ticket));
            self.fail_file(file, came_otherwise());
            return Ok(());
        }
        let may_modify = self.config.policy.may_modify;
        let Some(large) = self.large(file) else { return Ok(()) };
        // Also if the sender did not compare the chunk, as after a lane was lost.
        if large.stands(index) == Some(*computed.bytes()) {
            self.actions.push(ReceiverAction::DropPayload(landed.ticket));
            return self.accept_equal(file, index, attempt, computed);
        }
        if large.comparison.is_some() && !may_modify {
            self.actions.push(ReceiverAction::DropPayload(landed.ticket));
            self.fail_file(file, differs());
            return Ok(());
        }
        large.accept(index, computed)?;
        if landed.piece.same {
            large.resumes(index);
        }
        let waits = matches!(large.stage, LargeStage::Comparing | LargeStage::Creating);
        self.count_arrival(landed);
        // If chunks are read back, they are good only afterwards, so that they can still be wanted
        // again.
        if !self.config.read_back {
            self.actions.verdict(Verdict { unit, attempt, finding: Finding::Good(computed) });
        }
        if waits {
            self.begin_replacing(file, index, landed.ticket);
        } else {
            self.actions.push(ReceiverAction::Write { file, index, ticket: landed.ticket });
        }
        Ok(())
    }

    /// Counts a chunk that is accepted.
    fn count_arrival(&mut self, landed: &Landed) {
        // Only payload counts: a hole brings none.
        self.tally.received += landed.piece.len;
        if landed.piece.hole {
            self.tally.holes += landed.piece.unit_len;
        }
        if landed.piece.same {
            self.tally.resumed += landed.piece.unit_len;
        }
    }

    /// Says that a chunk is wanted again, or gives its file up for `why`.
    pub(super) fn want_again(
        &mut self,
        file: FileId,
        index: ChunkIndex,
        (attempt, chunk): (Attempt, WantedChunk),
        why: impl FnOnce() -> Fault,
    ) {
        let unit = Unit::Chunk { file, index };
        if chunk.may_come_again(attempt) {
            return self.actions.verdict(Verdict { unit, attempt, finding: Finding::Again });
        }
        self.actions.verdict(Verdict { unit, attempt, finding: Finding::GivenUp });
        self.fail_file(file, why());
    }

    fn judge_bundle(&mut self, landed: &Landed, attempt: Attempt, id: BundleId, good: bool) -> Result<(), Fault> {
        let unit = Unit::Bundle(id);
        let admitted = self.bundles.admitted(id);
        if attempt != admitted || !good {
            self.actions.push(ReceiverAction::DropPayload(landed.ticket));
            return if attempt == admitted { self.reject_bundle(id, attempt) } else { Ok(()) };
        }
        if landed.rows.is_empty() {
            return Err(Fault::protocol(format_args!("{unit} is none, or has no files")));
        }
        self.bundles.want_no_more(id);
        let (mut files, mut equal) = (Vec::with_capacity(landed.rows.len()), Vec::new());
        for row in &landed.rows {
            let Some(slot) = self.manifest.get_mut(row.file) else { continue };
            let EntryKind::File { len, .. } = slot.entry.entry.kind else { continue };
            let stands = match slot.state {
                EntryState::Wanted if !row.same => None,
                EntryState::Compared(root) => Some(root),
                _ => return Err(unwanted(row.file)),
            };
            if len != row.len {
                return Err(unwanted(row.file));
            }
            let is_equal = stands == Some(row.computed);
            if row.declared != row.computed || row.same && !is_equal {
                self.fail_file(row.file, mismatch("the file's digest is not the one that the sender declared"));
            } else if is_equal {
                steps::step(&mut slot.state, EntryState::Retouching(row.computed));
                equal.push(slot.entry.clone());
            } else if stands.is_some() && !self.config.policy.may_modify {
                self.fail_file(row.file, differs());
            } else {
                steps::step(&mut slot.state, EntryState::Staging(Some(row.computed)));
                self.tally.received += len;
                files.push(slot.entry.clone());
            }
        }
        // If files are read back, no other file of the bundle may be without outcome when it is
        // wanted again.
        if self.config.read_back && !files.is_empty() {
            for held in files.iter().chain(&equal) {
                if let Some(slot) = self.manifest.get_mut(held.id) {
                    slot.bundle = Some(id);
                }
            }
            self.bundles.begin_reading(id, (attempt, landed.computed), files.len() + equal.len());
        } else {
            self.actions.verdict(Verdict { unit, attempt, finding: Finding::Good(landed.computed) });
        }
        self.retouch(equal);
        self.actions.push(match files.is_empty() {
            true => ReceiverAction::DropPayload(landed.ticket),
            false => ReceiverAction::WriteBundle { ticket: landed.ticket, files },
        });
        Ok(())
    }

    /// Wants a bundle again, or gives it up after the last attempt. Then the sender names each of
    /// its files, which nobody can know here.
    fn reject_bundle(&mut self, id: BundleId, attempt: Attempt) -> Result<(), Fault> {
        let finding = if attempt.0 >= ATTEMPTS_MAX {
            self.bundles.want_no_more(id);
            Finding::GivenUp
        } else {
            self.bundles.want_again(id, attempt);
            Finding::Again
        };
        self.actions.verdict(Verdict { unit: Unit::Bundle(id), attempt, finding });
        if self.bundles.wanted_again() > ENTRIES_UNSETTLED_MAX {
            return Err(Fault::protocol("more bundles than there are files wanted"));
        }
        Ok(())
    }
}

/// Whether the hashed unit is this chunk of this file: its place in the tree, its length and its
/// kind of digest.
fn fits(landed: &Landed, computed: Digest, map: ChunkMap, index: ChunkIndex) -> bool {
    let piece = &landed.piece;
    Some(piece.unit_len) == map.len_of(index) && piece.chunk == map.size() && computed.kind() == map.kind()
}

fn unwanted(file: FileId) -> Fault {
    Fault::protocol(format_args!("a bundle with entry {} that was not wanted so", file.0))
}

fn mismatch(message: impl std::fmt::Display) -> Fault {
    Fault::new(FaultCode::Mismatch, Blame::Path, message).hint(hint::Again::SuspectingHardware)
}
