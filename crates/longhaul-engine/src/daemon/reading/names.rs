//! Lists a directory of a root, a page at a time.
//!
//! In: a directory beneath the path of a conversation. Out: its names in order. Follows no link.
//! Must not know the connection.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_core::{Blame, Fault, FaultCode, RelPath};
use longhaul_disk::{Lister, Standing};
use longhaul_proto::wire::message::Listing;

use super::files::ReadingTree;
use crate::name_page::{NAMES_BYTES, name_page};
use crate::workers::blocking;

/// The names of a directory, a page at a time.
pub(super) struct NamesListed {
    /// `None`: it is no directory, or over.
    lister: Option<Lister>,
    unwanted: Arc<AtomicBool>,
    /// Bytes of names that are held between pages.
    held: usize,
}

impl NamesListed {
    /// Nothing is listed yet.
    ///
    /// # Errors
    /// The fault of a directory that cannot be listed.
    pub(super) async fn open(tree: Arc<ReadingTree>, dir: RelPath) -> Result<NamesListed, Fault> {
        // Nothing else is read meanwhile. Each reading of a large directory costs as much as the
        // first, and with more memory there are fewer.
        let half = usize::try_from(tree.memory.get() / 2).unwrap_or(usize::MAX);
        let held = half.clamp(LISTED_BYTES, NAMES_BYTES);
        let lister = blocking(move || {
            let path = tree.base.concat(&dir);
            let path = path.map_err(|error| Fault::new(FaultCode::Unsupported, Blame::Peer, error))?;
            match (tree.set.stat(&path)?, tree.away()) {
                (Some(Standing::Dir { .. }), _) => Ok(Some(Lister::new(&tree.set, &path)?)),
                (None, Some(fault)) => Err(fault),
                _ => Ok(None),
            }
        });
        let lister = lister.await?;
        let unwanted = lister.as_ref().map_or_else(Arc::default, Lister::unwanted);
        Ok(NamesListed { lister, unwanted, held })
    }

    /// The flag that ends a page which is being read.
    pub(super) fn unwanted(&self) -> Arc<AtomicBool> {
        self.unwanted.clone()
    }

    /// The next page. One that is no directory has no names.
    ///
    /// # Errors
    /// The fault of a directory that cannot be listed.
    pub(super) async fn next(&mut self) -> Result<Listing, Fault> {
        let Some(mut lister) = self.lister.take() else { return Ok(Listing { names: Vec::new(), last: true }) };
        let held = self.held;
        let read = blocking(move || {
            let names = name_page(&mut lister, held)?;
            Ok((Listing { names, last: lister.is_over() }, lister))
        });
        let (page, lister) = read.await?;
        self.lister = Some(lister);
        Ok(page)
    }
}

/// Bytes of names of a directory that are held between pages, as a listing has them at first.
const LISTED_BYTES: usize = 1 << 20;
