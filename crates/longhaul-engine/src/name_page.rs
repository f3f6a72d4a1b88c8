//! Turns names of a directory into listed names: the next page of them, in the wire's form.
//!
//! In: a lister of the disk's. Out: entries for a message or for the caller. It knows neither the
//! reader nor the connection.

use longhaul_core::Fault;
use longhaul_core::limits::PAGE_BYTES_MAX;
use longhaul_disk::{Lister, Standing};
use longhaul_proto::wire::message::{Listed, ListedKind};

/// The next names of a listing in the wire's form. `memory`: bytes of names that may be held.
pub(crate) fn name_page(lister: &mut Lister, memory: usize) -> Result<Vec<Listed>, Fault> {
    let page = lister.next_page(PAGE_NAMES, PAGE_BYTES_MAX, memory)?;
    Ok(page.into_iter().map(|name| listed(name.name, name.standing)).collect())
}

fn listed(name: Vec<u8>, standing: Standing) -> Listed {
    let meta = standing.meta();
    let (kind, len) = match standing {
        Standing::File { len, .. } => (ListedKind::File, len),
        Standing::Dir { .. } => (ListedKind::Dir, 0),
        Standing::Symlink { target, .. } => (ListedKind::Symlink { target }, 0),
        Standing::Special { .. } => (ListedKind::Special, 0),
    };
    Listed { name, kind, len, meta }
}

/// Names in one message: their memory besides their bytes stays below 200 KiB.
const PAGE_NAMES: usize = 1000;
/// Bytes of names of a directory that are held between pages, where there is memory for it. See
/// [`Lister`] for the cost of less.
pub(crate) const NAMES_BYTES: usize = 16 << 20;
