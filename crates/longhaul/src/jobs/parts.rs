//! Lists of names for movers without a queue: a manifest cut into as many parts as are asked for.
//!
//! In: a sealed manifest. Out: files `part-1` to `part-N` in a directory, each a list of names that
//! end in NUL, in the order of the manifest. A part has about as much as another, where a file
//! counts for its bytes and a fixed amount. Must not know who moves them.

#![allow(clippy::disallowed_methods, reason = "the lists are files that the user names")]

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};

use longhaul_jobs::Amount;
use longhaul_manifest::{ItemKind, Sealed};

use super::faults::fault_of_manifest;
use crate::error::Error;

/// A list that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartList {
    /// Its file.
    pub path: PathBuf,
    /// Its names and their bytes.
    pub total: Amount,
}

/// Writes the lists.
///
/// # Errors
/// A list that stands already, or cannot be written; a manifest that cannot be read.
pub fn write_parts(sealed: &Sealed, dir: &Path, count: NonZero<u32>) -> Result<Vec<PartList>, Error> {
    let all = u128::from(sealed.head().bytes()) + u128::from(sealed.head().items()) * BYTES_OF_FILE;
    let mut items = sealed.items().peekable();
    let (mut lists, mut weight) = (Vec::new(), 0);
    for number in 1..=u128::from(count.get()) {
        let path = dir.join(format!("part-{number}"));
        let failed = || Error::file("write", &path);
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed())?;
        let (mut out, mut total) = (BufWriter::new(file), Amount::default());
        let end = all * number / u128::from(count.get());
        let is_last = number == u128::from(count.get());
        while let Some(item) = items.next_if(|item| is_last || item.is_err() || weight < end) {
            let item = item.map_err(|error| Error::from(fault_of_manifest(&error)))?;
            weight += u128::from(item.bytes()) + BYTES_OF_FILE;
            if matches!(item.kind, ItemKind::Dir) {
                continue;
            }
            total = total.plus(Amount { files: 1, bytes: item.bytes() }).unwrap_or(total);
            out.write_all(item.path.as_bytes()).and_then(|()| out.write_all(b"\0")).map_err(failed())?;
        }
        let file = out.into_inner().map_err(|error| failed()(error.into_error()))?;
        file.sync_all().map_err(failed())?;
        lists.push(PartList { path, total });
    }
    Ok(lists)
}

/// The bytes for which a file counts beside its own: opening and committing takes the time of some.
const BYTES_OF_FILE: u128 = 64 << 10;
