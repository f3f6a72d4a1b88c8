//! The file `stored` in the directory of a daemon's `state`: what clients have stored, so that a
//! bound on it outlives the daemon.
//!
//! In: the engine's text. Out: the same text to the next daemon. Knows nothing of what it says.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::Fault;
use longhaul_engine::QuotaFile;

use crate::config::{check_strictly, replace};
use crate::error::Error;

/// The file in this directory.
pub(super) fn file_in(state: &Path) -> Arc<dyn QuotaFile> {
    Arc::new(StoredFile(state.join("stored")))
}

#[derive(Debug)]
struct StoredFile(PathBuf);

impl QuotaFile for StoredFile {
    fn load(&self) -> Result<Option<String>, Fault> {
        let failed = || Error::file("read", &self.0);
        let file = match File::open(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed())?,
        };
        check_strictly(&self.0)?;
        let mut text = String::new();
        let len = file.take(STORED_BYTES_MAX).read_to_string(&mut text).map_err(failed())?;
        if len as u64 == STORED_BYTES_MAX {
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

/// A line takes some 100 bytes, and there is one for each client in each root: what is longer is no
/// such file.
const STORED_BYTES_MAX: u64 = 256 << 20;
