//! Listing: what stands at a path of a daemon, its roots, or a path of this host.

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

/// What stands at `path` of a daemon; without one, the roots that this key may see.
///
/// # Errors
/// A [`Fault`] as for a transfer.
pub async fn list(remote: Remote, path: Option<RemotePath>, mut stop: Stop) -> Result<Vec<Listed>, Fault> {
    tokio::select! {
        biased;
        code = stop.stopped() => Err(Fault::new(code, Blame::Local, "stopped before the listing was complete")),
        names = ask(remote, path) => names,
    }
}

async fn ask(remote: Remote, path: Option<RemotePath>) -> Result<Vec<Listed>, Fault> {
    let mut control = connect(&remote).await?;
    let request = path.map_or(Request::Roots, |p| Request::List { root: p.root, path: p.path });
    write_message(&mut control.writer, &handshake::hello(request)).await?;
    let mut names = Vec::new();
    loop {
        let Message::Listing(listing) = handshake::answer(&mut control.reader).await? else {
            return Err(Fault::protocol("a listing was asked for and something else came"));
        };
        names.extend(listing.names);
        if listing.last {
            return Ok(names);
        }
        if names.len() > NAMES_MAX {
            return Err(Fault::new(
                FaultCode::Unsupported,
                Blame::Peer,
                format_args!("the listing has more than {NAMES_MAX} names"),
            ));
        }
    }
}

/// A listing is held whole to be shown in order; a daemon that lists without end is cut off here.
const NAMES_MAX: usize = 10_000_000;

/// What stands at a path of this host.
///
/// # Errors
/// A [`Fault`] that names the path.
pub fn list_local(path: &Path) -> Result<Vec<Listed>, Fault> {
    let failed = |e: longhaul_disk::DiskError| e.fault();
    match Tree::open(path) {
        Ok(tree) => crate::service::list_tree(&tree, &RelPath::root()),
        // Not a directory: its parent lists it.
        Err(e) => {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(failed(e)) };
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let name = RelPath::new(std::os::unix::ffi::OsStrExt::as_bytes(name))
                .map_err(|e| Fault::new(FaultCode::Usage, Blame::Local, e))?;
            crate::service::list_tree(&*Tree::open(parent).map_err(failed)?, &name)
        }
    }
}
