//! Checksums of the files of a spread destination: each target keeps those of its own.
//!
//! In: the catalogue of this side. Out: a destination whose targets use it. Knows no files.

use super::SpreadTarget;
use crate::catalogue::SumsCatalogue;

impl SpreadTarget {
    /// As [`FsTarget::cataloguing`](crate::FsTarget::cataloguing). A striped file has no entry.
    #[must_use]
    pub fn cataloguing(self, catalogue: Option<SumsCatalogue>) -> SpreadTarget {
        let targets = self.targets.into_iter().map(|target| target.cataloguing(catalogue.clone())).collect();
        SpreadTarget { targets, ..self }
    }
}
