//! Answers requests to list: roots that a key may see, a key's partials, or names of a directory, a page at a time.
//!
//! In: a tree and a path, or a client. Out: listings over control, each name once and in order. Holds one page whatever lies in
//! the directory and however slowly the other side reads.

use std::sync::Arc;

use longhaul_core::limits::{PAGE_BYTES_MAX, PEER_TEXT_BYTES_MAX};
use longhaul_core::{Fault, Meta, RelPath};
use longhaul_disk::{Standing, Tree};
use longhaul_net::Control;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Listed, ListedKind, Listing};
use tokio::io::AsyncWriteExt;

use super::{ClientConfig, Daemon};
use crate::control::write_message;
use crate::partials::Store;
use crate::workers::blocking;

/// Names that can be told, of which the first page was found.
pub(super) struct Names {
    /// The directory, and where in it to go on.
    rest: Option<(Arc<Tree>, RelPath, Vec<u8>)>,
    page: Vec<Listed>,
}

impl Names {
    /// What stands at a path.
    pub(super) async fn beneath(tree: Arc<Tree>, path: RelPath) -> Result<Names, Fault> {
        Names::after(tree, path, None).await
    }

    /// What is left of a principal's unfinished files at a path and beneath it.
    pub(super) async fn partials(
        (tree, store): (Arc<Tree>, Arc<Store>),
        principal: String,
        path: RelPath,
    ) -> Result<Names, Fault> {
        blocking(move || {
            let page = partials(&tree, &store, &principal, &path)?;
            Ok(Names { rest: None, page })
        })
        .await
    }

    /// The roots that a client may see.
    pub(super) fn roots(daemon: &Daemon, client: &ClientConfig) -> Names {
        let listed = |name: &String| {
            let (_, rights) = daemon.root(client, name).ok()?;
            let kind = ListedKind::Root { rights };
            Some(Listed { name: name.clone().into_bytes(), kind, len: 0, meta: Meta::default() })
        };
        Names { rest: None, page: daemon.roots.keys().filter_map(listed).collect() }
    }

    async fn after(tree: Arc<Tree>, path: RelPath, after: Option<Vec<u8>>) -> Result<Names, Fault> {
        blocking(move || {
            let (page, next) = page(&tree, &path, after.as_deref())?;
            Ok(Names { rest: next.map(|next| (tree, path, next)), page })
        })
        .await
    }

    /// Tells all of them. What goes wrong on the way is told too.
    pub(super) async fn tell(mut self, control: &mut Control) -> Result<(), Fault> {
        loop {
            tell_page(control, self.page, self.rest.is_none()).await?;
            let Some((tree, path, next)) = self.rest else { break };
            self = match Names::after(tree, path, Some(next)).await {
                Ok(names) => names,
                Err(fault) => {
                    write_message(&mut control.writer, &Message::Refuse(fault)).await?;
                    break;
                }
            };
        }
        let _ = control.writer.shutdown().await;
        Ok(())
    }
}

/// A page of what stands at a path, in the wire's words, and the name to go on behind.
pub(crate) fn page(tree: &Tree, path: &RelPath, after: Option<&[u8]>) -> Result<(Vec<Listed>, Option<Vec<u8>>), Fault> {
    let page = tree.list(path, after, PAGE_NAMES).map_err(|e| e.fault())?;
    Ok((page.names.into_iter().map(|name| listed(name.name, name.standing)).collect(), page.next))
}

/// What is left of a principal's unfinished files at a path, which may be what has no other name yet.
fn partials(tree: &Tree, store: &Store, principal: &str, path: &RelPath) -> Result<Vec<Listed>, Fault> {
    let partials = store.partials(principal, path)?;
    if partials.is_empty() && tree.stat(path).map_err(|e| e.fault())?.is_none() {
        // Says so as for any other listing.
        page(tree, path, None)?;
    }
    Ok(partials)
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

/// Tells names in messages of a bounded size.
async fn tell_page(control: &mut Control, names: Vec<Listed>, is_last: bool) -> Result<(), Fault> {
    let mut names = names.into_iter().peekable();
    loop {
        let (mut some, mut bytes) = (Vec::new(), 0);
        while bytes < PAGE_BYTES_MAX
            && let Some(name) = names.next()
        {
            let more = match &name.kind {
                ListedKind::Symlink { target } => target.len(),
                ListedKind::Partial(_) => LISTED_TEXTS_BYTES,
                _ => 0,
            };
            bytes += name.name.len() + more + LISTED_NUMBERS_BYTES;
            some.push(name);
        }
        let over = names.peek().is_none();
        write_message(&mut control.writer, &Message::Listing(Listing { names: some, last: over && is_last })).await?;
        if over {
            return Ok(());
        }
    }
}

/// Names held at a time: 10 to 30 MiB with what is said of them, and directories of fewer are read but once.
const PAGE_NAMES: usize = 64 << 10;
/// What a listed name adds to a message beside its bytes, at most.
const LISTED_NUMBERS_BYTES: usize = 64;
/// What the texts of a partial add, at most.
const LISTED_TEXTS_BYTES: usize = 3 * PEER_TEXT_BYTES_MAX;
