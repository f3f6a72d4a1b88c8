//! The names on which two sealed manifests differ, as a list for a transfer.
//!
//! In: the manifests of a source and of its destination. Out: a file of names, each ended by a NUL,
//! and how many are new, changed and the same. Looks at neither tree.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use longhaul_core::Fault;
use longhaul_manifest::{Difference, ItemKind, ManifestError, Sealed, diff};

use crate::commands::manifest::fault;
use crate::error::Error;
use crate::output::SyncCounts;

/// The names on which two manifests differ.
pub(super) struct Differing {
    /// The names of files and links that the source has.
    pub(super) list: tempfile::NamedTempFile,
    /// How many files and links there are of each kind.
    pub(super) counts: SyncCounts,
}

/// Lists what the first manifest has and the second has not, or has otherwise. Names of which
/// nothing tells whether they are the same are looked at too.
///
/// # Errors
/// The fault of a manifest that cannot be read or is not complete, and that of the list.
pub(super) fn list(of_source: &Path, of_dest: &Path) -> Result<Differing, Error> {
    let read = |error: ManifestError| Error::from(fault(&error));
    let (source, dest) = (Sealed::open(of_source).map_err(read)?, Sealed::open(of_dest).map_err(read)?);
    let lists = source.head().lists.common(dest.head().lists);
    let written = |error: io::Error| Error::file("write", "a list of names")(error);
    let list = tempfile::NamedTempFile::new().map_err(written)?;
    let (mut counts, mut out, mut failed) = (SyncCounts::default(), BufWriter::new(list.as_file()), None);
    let compared = diff(source.items(), dest.items(), lists, |item, difference| {
        match difference {
            _ if item.kind == ItemKind::Dir => return ControlFlow::Continue(()),
            Difference::Same => counts.same += 1,
            Difference::Removed => counts.new += 1,
            Difference::Changed | Difference::Unknown => counts.changed += 1,
            Difference::Added => {
                counts.only_there += 1;
                return ControlFlow::Continue(());
            }
        }
        if difference != Difference::Same {
            failed = out.write_all(item.path.as_bytes()).and_then(|()| out.write_all(&[0])).err();
        }
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    compared.map_err(read)?;
    failed.map_or(Ok(()), Err).and_then(|()| out.flush()).map_err(written)?;
    drop(out);
    if source.head().omitted > 0 {
        let message = format_args!("'{}' was sealed without names that could not be read", of_source.display());
        let fault = Fault::new(longhaul_core::FaultCode::Usage, longhaul_core::Blame::Local, message);
        return Err(fault.hint_in_words("make it again when all of the source can be read").into());
    }
    Ok(Differing { list, counts })
}
