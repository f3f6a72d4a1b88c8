//! [`VoidTarget`] takes all data and keeps none, to measure all but the disk. For users of the
//! library only.

use std::sync::Arc;

use longhaul_core::{ChunkMap, Meta, Preserve, RelPath, TempName};

use super::{Made, Replace, Staged, TargetFile, TargetTree};
use crate::error::DiskError;
use crate::stat::Standing;

/// A destination where nothing stands and every call succeeds. Its files may be written by any
/// engine; with the void engine their bytes go nowhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct VoidTarget;

impl TargetTree for VoidTarget {
    fn examine(&self, _path: &RelPath) -> Result<Option<Standing>, DiskError> {
        Ok(None)
    }
    fn make_dir(&self, _path: &RelPath) -> Result<Made, DiskError> {
        Ok(Made::Created)
    }
    fn create(&self, path: &RelPath, map: ChunkMap, _: bool, _temp: &TempName) -> Result<Arc<TargetFile>, DiskError> {
        Ok(Arc::new(TargetFile::new(path, map.len(), Vec::new())))
    }
    fn write_small(&self, path: &RelPath, _bytes: &[u8], _meta: &Meta, _keep: Preserve) -> Result<Staged, DiskError> {
        Ok(Staged::void(path))
    }
    fn make_link(&self, path: &RelPath, _target: &[u8], _meta: &Meta, _keep: Preserve) -> Result<Staged, DiskError> {
        Ok(Staged::void(path))
    }
    fn publish(&self, _staged: &Staged, _replace: Replace) -> Result<(), DiskError> {
        Ok(())
    }
}
