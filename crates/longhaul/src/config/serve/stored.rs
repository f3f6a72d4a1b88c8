//! The files `stored` and `grants` in the directory of a daemon's `state`, so that they outlive it:
//! what clients have stored, and which of their grants are used up.
//!
//! In: the engine's text. Out: the same text to the next daemon. Knows nothing of what it says.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::Fault;
use longhaul_engine::StateFile;

use crate::config::{check_strictly, replace};
use crate::error::Error;

/// The file of what is stored, in this directory.
pub(super) fn stored_in(state: &Path) -> Arc<dyn StateFile> {
    Arc::new(KeptFile(state.join("stored")))
}

/// The file of the grants that are used up, in this directory.
pub fn grants_in(state: &Path) -> Arc<dyn StateFile> {
    Arc::new(KeptFile(state.join("grants")))
}

#[derive(Debug)]
struct KeptFile(PathBuf);

impl StateFile for KeptFile {
    fn load(&self) -> Result<Option<String>, Fault> {
        let failed = || Error::file("read", &self.0);
        let file = match File::open(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed())?,
        };
        check_strictly(&self.0)?;
        let mut text = String::new();
        let len = file.take(KEPT_BYTES_MAX).read_to_string(&mut text).map_err(failed())?;
        if len as u64 == KEPT_BYTES_MAX {
            return Err(failed()(io::ErrorKind::FileTooLarge.into()).into());
        }
        Ok(Some(text))
    }

    fn store(&self, text: &str) -> Result<(), Fault> {
        if let Some(dir) = self.0.parent() {
            match std::fs::DirBuilder::new().mode(0o700).create(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::file("make", dir)(error).into());
                }
                _ => {}
            }
        }
        Ok(replace(&self.0, text)?)
    }
}

/// A line takes some 150 bytes, and there is one for each client in each root, or 4,096 for each
/// client: what is longer is no such file.
const KEPT_BYTES_MAX: u64 = 256 << 20;
