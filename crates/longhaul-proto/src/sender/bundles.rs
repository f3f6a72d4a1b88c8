//! Small files that go in bundles: what was packed, what was sent, and what the receiver found.
//!
//! Takes reports of packing from the disk and of sendings from the lanes, verdicts from the receiver; orders to pack again.
//! Which files are in a bundle, the manifest decides. Knows nothing of files that go in chunks.

use std::collections::HashSet;

use longhaul_core::digest::Digest;
use longhaul_core::limits::ATTEMPTS_MAX;
use longhaul_core::{Attempt, Blame, BundleId, Fault, FaultCode, FileId, Unit};

use super::lanes::Carrier;
use super::{Action, Sender, Sent, Small, once_too_often, wrong_digest};
use crate::wire::message::Finding;

/// A bundle that was not sent, or has no good verdict.
#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) files: Vec<Small>,
    pub(super) attempt: Attempt,
    pub(super) sent: Option<Digest>,
    /// A good verdict that overtook the lane's report.
    pub(super) good: Option<Digest>,
    pub(super) carrier: Carrier,
}

impl Sender {
    pub(super) fn bundle_sent(&mut self, id: BundleId, sent: &Sent) {
        let Some(bundle) = self.bundles.get_mut(&id).filter(|b| b.attempt == sent.attempt) else { return };
        bundle.sent = Some(sent.digest);
        bundle.carrier = Carrier::of(sent);
        if let Some(good) = bundle.good
            && let Err(fault) = self.acknowledge_bundle(id, good)
        {
            self.abort(fault);
        }
    }

    fn acknowledge_bundle(&mut self, id: BundleId, good: Digest) -> Result<(), Fault> {
        let Some(bundle) = self.bundles.get_mut(&id) else { return Ok(()) };
        match bundle.sent {
            None => bundle.good = Some(good),
            Some(sent) if sent != good => return Err(wrong_digest(Unit::Bundle(id))),
            Some(_) => drop(self.forget_bundle(id)),
        }
        Ok(())
    }

    fn forget_bundle(&mut self, id: BundleId) -> Vec<Small> {
        let files = self.bundles.remove(&id).map(|bundle| bundle.files).unwrap_or_default();
        self.files_bundled -= files.len();
        files
    }

    /// Files of a bundle dropped out while it was packed; `empty` when none was left, so that nothing is sent.
    pub fn handle_packed(&mut self, id: BundleId, missing: Vec<(FileId, Fault)>, empty: bool) {
        if self.over {
            return;
        }
        if let Some(bundle) = self.bundles.get_mut(&id).filter(|_| !missing.is_empty()) {
            let gone: HashSet<FileId> = missing.iter().map(|(file, _)| *file).collect();
            let before = bundle.files.len();
            bundle.files.retain(|small| !gone.contains(&small.file));
            self.files_bundled -= before - bundle.files.len();
        }
        for (file, fault) in missing {
            self.say_file_fault(file, &fault);
        }
        if empty {
            self.forget_bundle(id);
        }
    }

    pub(super) fn on_bundle_verdict(&mut self, id: BundleId, attempt: Attempt, finding: Finding) -> Result<(), Fault> {
        let Some(bundle) = self.bundles.get_mut(&id).filter(|b| b.attempt == attempt) else {
            return Err(Fault::protocol(format_args!("a verdict on {} that was not sent so", Unit::Bundle(id))));
        };
        match finding {
            Finding::Good(digest) => self.acknowledge_bundle(id, digest),
            Finding::Again if attempt.0 >= ATTEMPTS_MAX => Err(once_too_often(Unit::Bundle(id))),
            Finding::Again => {
                // Where files are read back, those that stand have their outcome already.
                let before = bundle.files.len();
                bundle.files.retain(|small| self.entries.contains_key(&small.file));
                self.files_bundled -= before - bundle.files.len();
                if bundle.files.is_empty() {
                    self.bundles.remove(&id);
                    return Ok(());
                }
                bundle.attempt = attempt.next();
                bundle.sent = None;
                bundle.good = None;
                bundle.carrier = Carrier::None;
                let pack = Action::Pack { bundle: id, attempt: bundle.attempt, files: bundle.files.clone() };
                self.actions.push_back(pack);
                Ok(())
            }
            Finding::GivenUp => {
                let fault = Fault::new(FaultCode::Mismatch, Blame::Path, "its bundle arrived damaged every time");
                let files = self.forget_bundle(id);
                files.iter().for_each(|small| self.say_file_fault(small.file, &fault));
                Ok(())
            }
        }
    }
}
