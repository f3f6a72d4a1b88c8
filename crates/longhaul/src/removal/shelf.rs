//! The places of removal plans in this user's state, and the devices that trees were found on.
//!
//! In: plans as text. Out: their files, and those read back. Believes nothing that it reads: a plan
//! is checked by its digest, by whoever asked for it.

#![allow(
    clippy::disallowed_methods,
    reason = "the files are this side's own: no root holds them and no peer names them"
)]

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The directory of this user's plans.
#[derive(Clone, Debug)]
pub struct PlanShelf {
    dir: PathBuf,
}

/// The device on which the source of a pair of trees was found by the last plan.
#[derive(Clone, Debug)]
pub struct KnownDevice {
    /// The file that says so.
    pub file: PathBuf,
    /// The device. `None`: there was no plan before.
    pub device: Option<u64>,
}

impl PlanShelf {
    /// The directory, made for this user alone if it does not stand.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be made.
    pub fn open(dir: PathBuf) -> Result<PlanShelf, Error> {
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(Error::file("make", &dir))?;
        Ok(PlanShelf { dir })
    }

    /// A directory for lists that nobody needs behind this run. It goes with the value.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be made.
    pub fn scratch(&self) -> Result<tempfile::TempDir, Error> {
        let made = tempfile::Builder::new().prefix("lists-").tempdir_in(&self.dir);
        made.map_err(Error::file("make a directory in", &self.dir))
    }

    /// The file of the plan of this digest.
    pub fn plan(&self, digest: &str) -> PathBuf {
        self.dir.join(format!("{digest}.plan"))
    }

    /// The device on which the source was found when this pair of trees was planned last.
    ///
    /// # Errors
    /// [`Error::File`] if that cannot be read, or is no number.
    pub fn known_device(&self, source: &[u8], destination: &[u8]) -> Result<KnownDevice, Error> {
        let pair = blake3::Hasher::new().update(source).update(&[0]).update(destination).finalize();
        let file = self.dir.join(format!("{}.device", pair.to_hex()));
        let device = match read(&file, DEVICE_BYTES_MAX) {
            Ok(text) => Some(text.trim_end().parse().map_err(|_| Error::file("read", &file)(no_device()))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::file("read", &file)(error)),
        };
        Ok(KnownDevice { file, device })
    }

    /// Writes a file of this user's whole, or not at all.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be written.
    pub fn write(path: &Path, text: &str) -> Result<(), Error> {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let written = || {
            let mut file = tempfile::Builder::new().prefix(".plan-").tempfile_in(above)?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path).map_err(|error| error.error)?;
            File::open(above)?.sync_all()
        };
        written().map_err(Error::file("write", path))
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read.
    pub fn read(path: &Path) -> Result<String, Error> {
        read(path, PLAN_BYTES_MAX).map_err(Error::file("read", path))
    }
}

fn no_device() -> io::Error {
    let why = "it has no number of a device: look whether the source is the right one, and remove the file";
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn read(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than such a file can be"));
    }
    Ok(text)
}

/// Bytes of a plan at most: a million names of a common length.
pub(super) const PLAN_BYTES_MAX: u64 = 512 << 20;
const DEVICE_BYTES_MAX: u64 = 64;
