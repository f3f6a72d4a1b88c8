//! Small files that go in bundles: the bundles that are packed, sent and judged.
//!
//! Takes reports of packing from the disk and of sendings from the lanes, verdicts from the
//! receiver; orders to pack again. Which files are in a bundle, the manifest decides. Knows nothing
//! of files that go in chunks.

use std::collections::{HashMap, HashSet};

use longhaul_core::digest::Digest;
use longhaul_core::{Attempt, Blame, BundleId, Fault, FaultCode, FileId, Unit};

use super::lanes::Carrier;
use super::{Sender, SenderAction, Sent, Small, may_be_said, wrong_digest};
use crate::wire::message::Finding;

/// A bundle that is not sent yet, or has no good verdict.
#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) files: Vec<Small>,
    pub(super) attempt: Attempt,
    /// The digest of this attempt, once its lane has reported it.
    pub(super) sent: Option<Digest>,
    /// A verdict on this attempt that overtook the lane's report. It takes effect after the report.
    pub(super) overtook: Option<Finding>,
    pub(super) carrier: Carrier,
    /// Whether some lane had it whole, whatever the attempt.
    pub(super) is_handed: bool,
}

impl Bundle {
    pub(super) fn new(files: Vec<Small>) -> Bundle {
        let (sent, overtook, carrier, is_handed) = (None, None, Carrier::None, false);
        Bundle { files, attempt: Attempt::FIRST, sent, overtook, carrier, is_handed }
    }

    /// Takes the bundle for lost with its carrier: it is packed for the same attempt. If it was
    /// judged bad, it did arrive, and it is packed for the next one.
    pub(super) fn lose(&mut self) {
        if self.overtook == Some(Finding::Again) {
            self.want_again();
        } else {
            (self.carrier, self.sent) = (Carrier::Lost, None);
        }
    }

    fn want_again(&mut self) {
        let (attempt, is_handed) = (self.attempt.next(), self.is_handed);
        *self = Bundle { attempt, is_handed, ..Bundle::new(std::mem::take(&mut self.files)) };
    }
}

/// The bundles that have no good verdict.
#[derive(Debug, Default)]
pub(super) struct SentBundles {
    by_id: HashMap<BundleId, Bundle>,
    /// The number of files in all of them.
    files: usize,
    next: BundleId,
}

impl SentBundles {
    /// Takes a bundle that is to be packed. Gives its id.
    pub(super) fn add(&mut self, files: Vec<Small>) -> BundleId {
        let id = self.next;
        self.next = BundleId(id.0 + 1);
        self.files += files.len();
        self.by_id.insert(id, Bundle::new(files));
        id
    }

    /// A bundle, to be changed in all but its files.
    pub(super) fn get_mut(&mut self, id: BundleId) -> Option<&mut Bundle> {
        self.by_id.get_mut(&id)
    }

    /// Forgets the files of a bundle that are not to be kept.
    fn retain(&mut self, id: BundleId, keep: impl Fn(FileId) -> bool) {
        let Some(bundle) = self.by_id.get_mut(&id) else { return };
        let before = bundle.files.len();
        bundle.files.retain(|small| keep(small.file));
        self.files -= before - bundle.files.len();
    }

    /// Forgets a bundle. Gives its files.
    fn remove(&mut self, id: BundleId) -> Vec<Small> {
        let files = self.by_id.remove(&id).map(|bundle| bundle.files).unwrap_or_default();
        self.files -= files.len();
        files
    }

    /// Takes the bundles that went down with their carrier for lost. Gives them in the order of
    /// their ids.
    pub(super) fn lose(&mut self, is_down: impl Fn(&Carrier) -> bool) -> Vec<(BundleId, &Bundle)> {
        let mut lost = Vec::new();
        for (id, bundle) in self.by_id.iter_mut().filter(|(_, bundle)| is_down(&bundle.carrier)) {
            bundle.lose();
            lost.push((*id, &*bundle));
        }
        lost.sort_by_key(|(id, _)| *id);
        lost
    }

    /// The number of files in all bundles.
    pub(super) fn files(&self) -> usize {
        self.files
    }

    /// The number of bundles, and of the files in them, counted anew.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn counted(&self) -> (usize, usize) {
        (self.by_id.len(), self.by_id.values().map(|bundle| bundle.files.len()).sum())
    }
}

impl Sender {
    pub(super) fn bundle_sent(&mut self, id: BundleId, sent: &Sent) {
        let Some(bundle) = self.bundles.get_mut(id).filter(|b| b.attempt == sent.attempt) else { return };
        bundle.sent = Some(sent.digest);
        bundle.carrier = Carrier::of(sent);
        if let Some(finding) = bundle.overtook.take()
            && let Err(fault) = self.bundle_judged(id, finding)
        {
            self.abort(fault);
        }
    }

    /// Files of a bundle dropped out while it was packed. `empty` if no file was left, so that
    /// nothing is sent.
    pub fn handle_pack(&mut self, id: BundleId, missing: Vec<(FileId, Fault)>, empty: bool) {
        if self.is_over {
            return;
        }
        if !missing.is_empty() {
            let gone: HashSet<FileId> = missing.iter().map(|(file, _)| *file).collect();
            self.bundles.retain(id, |file| !gone.contains(&file));
        }
        for (file, fault) in missing {
            self.say_file_fault(file, &fault);
        }
        if empty {
            self.bundles.remove(id);
        }
    }

    pub(super) fn on_bundle_verdict(&mut self, id: BundleId, attempt: Attempt, finding: Finding) -> Result<(), Fault> {
        let unit = Unit::Bundle(id);
        let bundle = self.bundles.get_mut(id).filter(|b| b.attempt == attempt && b.overtook.is_none());
        let Some(bundle) = bundle else {
            return Err(Fault::protocol(format_args!("a verdict on {unit} that was not sent so")));
        };
        may_be_said(unit, attempt.0, finding)?;
        if bundle.sent.is_none() {
            bundle.overtook = Some(finding);
            return Ok(());
        }
        self.bundle_judged(id, finding)
    }

    /// Acts on a verdict on a bundle that was sent.
    fn bundle_judged(&mut self, id: BundleId, finding: Finding) -> Result<(), Fault> {
        let Some(sent) = self.bundles.get_mut(id).map(|bundle| bundle.sent) else { return Ok(()) };
        match finding {
            Finding::Good(digest) if sent != Some(digest) => return Err(wrong_digest(Unit::Bundle(id))),
            Finding::Good(_) => drop(self.bundles.remove(id)),
            Finding::Again => {
                // If files are read back, the committed ones have their outcome already.
                self.bundles.retain(id, |file| self.entries.contains_key(&file));
                let Some(bundle) = self.bundles.get_mut(id).filter(|bundle| !bundle.files.is_empty()) else {
                    self.bundles.remove(id);
                    return Ok(());
                };
                bundle.want_again();
                let pack = SenderAction::Pack { bundle: id, attempt: bundle.attempt, files: bundle.files.clone() };
                self.actions.push_back(pack);
            }
            Finding::GivenUp => {
                let fault = Fault::new(FaultCode::Mismatch, Blame::Path, "its bundle arrived damaged every time");
                let files = self.bundles.remove(id);
                files.iter().for_each(|small| self.say_file_fault(small.file, &fault));
            }
        }
        Ok(())
    }
}
