//! [`VoidTarget`] takes all data and keeps none, to measure all but the disk. For users of the
//! library only.

use std::ops::Range;
use std::sync::Arc;

use longhaul_core::{Meta, Preserve, RelPath, TempName};

use super::readback::{Back, impossible};
use super::{Journalled, Made, Reopened, Replace, Staged, SyncCounts, SyncMethod, TargetFile, TargetTree};
use crate::error::DiskError;
use crate::stat::{Identity, Standing};

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
    fn create(&self, path: &RelPath, len: u64, _: bool, _temp: &TempName) -> Result<Arc<TargetFile>, DiskError> {
        Ok(Arc::new(TargetFile::void(path, len)))
    }
    fn reopen(
        &self,
        _path: &RelPath,
        _len: u64,
        _sparse: bool,
        _temp: &TempName,
        _journalled: &Journalled,
    ) -> Result<Option<Reopened>, DiskError> {
        Ok(None)
    }
    fn remove_temp(&self, _path: &RelPath, _temp: &TempName) -> Result<(), DiskError> {
        Ok(())
    }
    fn sweep(&self, _path: &RelPath, _orphan: &dyn Fn(&TempName) -> bool) -> Result<usize, DiskError> {
        Ok(0)
    }
    fn sync_names(&self, _dirs: &[RelPath]) -> Result<(), DiskError> {
        Ok(())
    }
    fn make_hole(&self, _file: &TargetFile, _range: Range<u64>) -> Result<(), DiskError> {
        Ok(())
    }
    fn write_small(&self, path: &RelPath, _bytes: &[u8], _meta: &Meta, _keep: Preserve) -> Result<Staged, DiskError> {
        Ok(Staged::void(path))
    }
    fn make_link(&self, path: &RelPath, _target: &[u8], _meta: &Meta, _keep: Preserve) -> Result<Staged, DiskError> {
        Ok(Staged::void(path))
    }
    fn sync_data(&self, _file: &TargetFile) -> Result<(), DiskError> {
        Ok(())
    }
    fn read_back(&self, file: &TargetFile, _: u64, _: usize, _: &mut [u8]) -> Result<Back, DiskError> {
        Err(impossible(file.path()))
    }
    fn read_staged(&self, staged: &Staged, _: usize, _: &mut [u8]) -> Result<Back, DiskError> {
        Err(impossible(staged.path()))
    }
    fn read_standing(&self, path: &RelPath, _: u64, _: usize, _: &mut [u8]) -> Result<(Back, Identity), DiskError> {
        Err(impossible(path))
    }
    fn retouch(&self, path: &RelPath, _: &Identity, _: Option<&Meta>, _: Preserve) -> Result<(), DiskError> {
        Err(impossible(path))
    }
    fn seal(&self, file: Arc<TargetFile>, _meta: &Meta, _keep: Preserve) -> Result<Staged, DiskError> {
        Ok(Staged::void(file.path()))
    }
    fn barrier(&self, _staged: &[&Staged]) -> Result<(), DiskError> {
        Ok(())
    }
    fn believe(&self, _staged: &Staged) {}
    fn publish(&self, _staged: &Staged, _replace: Replace) -> Result<(), DiskError> {
        Ok(())
    }
    fn sync_dirs(&self, _staged: &[Staged]) -> Result<(), DiskError> {
        Ok(())
    }
    fn finish_dir(&self, _path: &RelPath, _meta: &Meta, _keep: Preserve) -> Result<(), DiskError> {
        Ok(())
    }
    fn sync_counts(&self) -> SyncCounts {
        SyncCounts::default()
    }
    fn sync_method(&self) -> Option<SyncMethod> {
        None
    }
}
