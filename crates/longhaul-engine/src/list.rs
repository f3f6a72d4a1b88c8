//! Listing: what stands at a path of a daemon, its roots, or a path of this host.
//!
//! In: a location. Out: names in order, a page at a time as they come, to a sink that may break off. Holds one page, however
//! many there are.

use std::ops::ControlFlow;
use std::path::Path;

use longhaul_core::{Blame, Fault, FaultCode, RelPath};
use longhaul_disk::{ErrorKind, Tree};
use longhaul_proto::Message;
use longhaul_proto::wire::message::Request;
pub use longhaul_proto::wire::message::{Listed, ListedKind, ListedPartial};

use crate::api::{Remote, RemotePath, Stop};
use crate::control::write_message;
use crate::handshake;
use crate::partials::{Store, Who};
use crate::transfer::connect;

/// Gives `sink` what stands at `path` of a daemon; without one, the roots that this key may see.
///
/// # Errors
/// A [`Fault`] as for a transfer; names may have been given before.
pub async fn list(
    remote: Remote,
    path: Option<RemotePath>,
    stop: Stop,
    sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let request = path.map_or(Request::Roots, |p| Request::List { root: p.root, path: p.path });
    ask_or_stop(remote, request, stop, sink).await
}

/// Gives `sink` what is left of this key's unfinished files at `path` of a daemon and beneath it.
///
/// # Errors
/// As [`list`].
pub async fn list_partials(
    remote: Remote,
    path: RemotePath,
    stop: Stop,
    sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    ask_or_stop(remote, Request::Partials { root: path.root, path: path.path }, stop, sink).await
}

async fn ask_or_stop(
    remote: Remote,
    request: Request,
    mut stop: Stop,
    sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    tokio::select! {
        biased;
        code = stop.stopped() => Err(Fault::new(code, Blame::Local, "stopped before the listing was complete")),
        listed = ask(remote, request, sink) => listed,
    }
}

async fn ask(
    remote: Remote,
    request: Request,
    mut sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let mut control = connect(&remote).await?;
    write_message(&mut control.writer, &handshake::hello(request)).await?;
    loop {
        let Message::Listing(listing) = handshake::answer(&mut control.reader).await? else {
            return Err(Fault::protocol("a listing was asked for and something else came"));
        };
        if sink(listing.names).is_break() || listing.last {
            return Ok(());
        }
    }
}

/// Gives `sink` what stands at a path of this host.
///
/// # Errors
/// A [`Fault`] that names the path; names may have been given before.
pub fn list_local(path: &Path, sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>) -> Result<(), Fault> {
    let failed = |e: longhaul_disk::DiskError| e.fault();
    match Tree::open(path) {
        Ok(tree) => list_tree(&tree, &RelPath::root(), sink),
        // Not a directory: its parent lists it.
        Err(e) => {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(failed(e)) };
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let name = RelPath::new(std::os::unix::ffi::OsStrExt::as_bytes(name))
                .map_err(|e| Fault::new(FaultCode::Usage, Blame::Local, e))?;
            list_tree(&*Tree::open(parent).map_err(failed)?, &name, sink)
        }
    }
}

/// What is left of this user's unfinished files at a path of this host and beneath it, sorted by name. Written down at the
/// top of the destination that the transfer was given: looked for in the directory itself and in those above it.
///
/// # Errors
/// A [`Fault`] that names the path.
pub fn list_local_partials(path: &Path) -> Result<Vec<Listed>, Fault> {
    let (place, stands) = crate::place::resolved(path)?;
    let who = Who::local();
    let mut found = Vec::new();
    for dir in place.ancestors() {
        let beneath = place.strip_prefix(dir).unwrap_or(Path::new(""));
        // Where no destination can be any more, neither can any above.
        let Ok(beneath) = RelPath::new(std::os::unix::ffi::OsStrExt::as_bytes(beneath.as_os_str())) else { break };
        match partials_at(dir, &who.principal, &beneath) {
            Ok(partials) => found.extend(partials),
            Err(fault) if beneath.is_root() => return Err(fault),
            // What is above may be anybody's: a shelf that is not ours to open tells of nothing of ours.
            Err(fault) => tracing::debug!(target: "longhaul::journal", %fault, "nothing is looked for there"),
        }
    }
    if found.is_empty() && !stands {
        list_local(path, |_| ControlFlow::Break(()))?;
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// What the shelf of a directory tells; nothing where there is no directory.
fn partials_at(dir: &Path, principal: &str, beneath: &RelPath) -> Result<Vec<Listed>, Fault> {
    match Tree::open(dir) {
        Ok(tree) => Store::new(tree.shelf()).partials(principal, beneath),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(e) => Err(e.fault()),
    }
}

fn list_tree(tree: &Tree, path: &RelPath, mut sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>) -> Result<(), Fault> {
    let mut after = None;
    loop {
        let (names, next) = crate::service::list_page(tree, path, after.as_deref())?;
        if sink(names).is_break() || next.is_none() {
            return Ok(());
        }
        after = next;
    }
}
