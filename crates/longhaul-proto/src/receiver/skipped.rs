//! Roots of skipped files: a user who wants a list of all files at the destination has skipped
//! files read there.
//!
//! In: files that were skipped unread, then their roots from the disk. Out: orders to read them,
//! small ones together and large ones alone, and their outcomes. Compares nothing: the root says
//! nothing about the source.

use std::sync::Arc;

use longhaul_core::digest::Hash32;
use longhaul_core::{EntryKind, Fault, FileId};

use super::order::SkippedDigests;
use super::{EntryRef, EntryState, Receiver, ReceiverAction, ReceiverConfig};
use crate::time::Timestamp;
use crate::wire::message::Outcome;

impl Receiver {
    /// Orders skipped files to be read, in jobs of a bounded length.
    pub(super) fn digest_skipped(&mut self, files: Vec<Arc<EntryRef>>) {
        let (mut job, mut bytes) = (Vec::new(), 0u64);
        for held in files {
            let len = if let EntryKind::File { len, .. } = held.entry.kind { len } else { 0 };
            if !job.is_empty() && (job.len() >= FILES_AT_ONCE || bytes.saturating_add(len) > BYTES_AT_ONCE) {
                self.actions.push(ReceiverAction::DigestSkipped(std::mem::take(&mut job)));
                bytes = 0;
            }
            bytes = bytes.saturating_add(len);
            job.push(held);
        }
        if !job.is_empty() {
            self.actions.push(ReceiverAction::DigestSkipped(job));
        }
    }

    /// Counts `bytes` of skipped files that were read.
    pub fn handle_digest_progress(&mut self, bytes: u64) {
        self.tally.standing = self.tally.standing.saturating_add(bytes);
    }

    /// The roots of skipped files; `None` for a file whose root was said in an earlier session.
    pub fn handle_digest_skipped(&mut self, now: Timestamp, results: Vec<(FileId, Result<Option<Hash32>, Fault>)>) {
        if self.is_over() || self.is_draining() {
            return;
        }
        for (id, result) in results {
            if !matches!(self.manifest.get(id).map(|slot| &slot.state), Some(EntryState::Digesting)) {
                continue;
            }
            self.finish(
                id,
                match result {
                    Ok(Some(root)) => Outcome::Stands(root),
                    Ok(None) => Outcome::Skipped,
                    Err(fault) => Outcome::Failed(fault),
                },
            );
        }
        self.settle_down(now);
    }

    /// The outcome as the sender gets it: with the root of a standing file only if it asked for
    /// that.
    pub(super) fn outcome_for_sender(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Stands(_) if self.config.digests != SkippedDigests::Told => Outcome::Skipped,
            outcome => outcome,
        }
    }
}

/// Whether an entry that is skipped is read for its root first.
pub(super) fn wants_digest(config: &ReceiverConfig, held: &EntryRef) -> bool {
    config.digests != SkippedDigests::Unwanted && !config.dry_run && matches!(held.entry.kind, EntryKind::File { .. })
}

/// Small files of one job to read: few enough that several threads share those of a page.
const FILES_AT_ONCE: usize = 32;
/// The most bytes that the files of one job have together, if there are several.
const BYTES_AT_ONCE: u64 = 16 << 20;
