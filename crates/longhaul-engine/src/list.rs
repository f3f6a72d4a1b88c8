//! Listing: what stands at a path of a daemon, its roots, or a path of this host.
//!
//! In: a location. Out: names in order, a page at a time as they come, to a sink that may break off. Holds one page, however
//! many there are.

use std::ops::ControlFlow;
use std::path::Path;

use longhaul_core::{Blame, Fault, FaultCode, RelPath};
use longhaul_disk::Tree;
use longhaul_proto::Message;
use longhaul_proto::wire::message::Request;
pub use longhaul_proto::wire::message::{Listed, ListedKind};

use crate::api::{Remote, RemotePath, Stop};
use crate::control::write_message;
use crate::handshake;
use crate::transfer::connect;

/// Gives `sink` what stands at `path` of a daemon; without one, the roots that this key may see.
///
/// # Errors
/// A [`Fault`] as for a transfer; names may have been given before.
pub async fn list(
    remote: Remote,
    path: Option<RemotePath>,
    mut stop: Stop,
    sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    tokio::select! {
        biased;
        code = stop.stopped() => Err(Fault::new(code, Blame::Local, "stopped before the listing was complete")),
        listed = ask(remote, path, sink) => listed,
    }
}

async fn ask(
    remote: Remote,
    path: Option<RemotePath>,
    mut sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let mut control = connect(&remote).await?;
    let request = path.map_or(Request::Roots, |p| Request::List { root: p.root, path: p.path });
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
