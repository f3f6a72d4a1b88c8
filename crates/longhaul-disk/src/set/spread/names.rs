//! Further names of files in a spread destination: only on the target of the first name.
//!
//! In: a name and the place of the first one. Out: a staged name there, or the count of one that
//! the file could not get. Knows no other files.

use longhaul_core::{LossReason, RelPath};

use super::SpreadTarget;
use crate::destination::{NameMade, NameProof};
use crate::load::TargetCondition;

impl SpreadTarget {
    /// Stages another name of the file at `first` on the target on which that stands.
    pub(super) fn stage_name(&self, path: &RelPath, first: &RelPath, proof: &NameProof<'_>) -> NameMade {
        let (Ok(of_first), Ok(stands)) = (self.standing(first), self.standing(path)) else {
            return self.at(0).refuse_name(path, LossReason::Failed);
        };
        let Some((at, _)) = of_first else { return self.at(0).refuse_name(path, LossReason::Changed) };
        let target = self.at(at);
        if stands.as_ref().is_some_and(|(other, _)| *other != at) {
            return target.refuse_name(path, LossReason::Elsewhere);
        }
        let may_be_new = if stands.is_none() { self.set.need_all_for_new_names() } else { Ok(()) };
        let is_well = matches!(target.condition(), TargetCondition::Well | TargetCondition::Full);
        if !is_well || may_be_new.and_then(|()| self.dirs.reach(&self.targets, at, path)).is_err() {
            return target.refuse_name(path, LossReason::Failed);
        }
        target.stage_name(path, first, proof)
    }
}
