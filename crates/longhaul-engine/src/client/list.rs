//! Lists names: those at a path of a daemon, its roots, or those at a path of this host.
//!
//! In: a location. Out: names in order, a page at a time as they come, to a sink that may break
//! off. It holds one page, however many there are, and knows no sessions.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode, Layout, RelPath, Whereabouts, hint};
use longhaul_disk::{ErrorKind, Lister, Marks, SameDevice, TargetDirs, TargetSet, Tree, Writing};
use longhaul_proto::Message;
use longhaul_proto::wire::message::Request;
pub use longhaul_proto::wire::message::{Listed, ListedKind, ListedPartial};
use tokio::time::timeout;

use super::connect;
use super::connect::Reached;
use crate::api::{Remote, RemotePath, Stop};
use crate::journals::{Doubts, Principal, RootJournals};
use crate::name_page::{NAMES_BYTES, name_page};
use crate::session::channel::{ReadHalf, read_message, write_message};
use crate::session::handshake::{self, Shown, Units};

/// Gives `sink` the names at `path` of a daemon. If that is `None`, the roots that this key may
/// see.
///
/// # Errors
/// A [`Fault`] as for a transfer. Names may have been given before.
pub async fn list(
    remote: Remote,
    path: Option<RemotePath>,
    stop: Stop,
    sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let request = path.map_or(Request::Roots, |p| Request::List { root: p.root, path: p.path });
    ask_or_stop(remote, request, stop, sink).await
}

/// Gives `sink` the partials of this key at `path` of a daemon and beneath it.
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

/// Asks a daemon where a directory lies on its host.
///
/// # Errors
/// As [`list`]; [`FaultCode::Unsupported`] from a daemon that does not know how to say it.
pub async fn locate(remote: Remote, path: RemotePath, mut stop: Stop) -> Result<Whereabouts, Fault> {
    let asked = async {
        let Reached { mut control, ways: _ways } = connect(&remote).await?;
        let hello = handshake::hello(Request::List { root: path.root, path: path.path }, Units::Any);
        let hello = Shown { locates: true, ..Shown::default() }.announced_by(hello);
        write_message(&mut control.writer, &hello).await?;
        let Ok(heard) = timeout(SILENCE_MAX, read_message(&mut control.reader)).await else {
            let why = format_args!("the daemon said nothing for {} s", SILENCE_MAX.as_secs());
            return Err(Fault::new(FaultCode::TimedOut, Blame::Peer, why).hint(hint::Again::Now));
        };
        match heard? {
            Some(Message::Whereabouts(whereabouts)) => Ok(whereabouts),
            Some(Message::Refuse(fault)) => Err(fault.seen_from_afar()),
            // A build that does not know the bit.
            Some(Message::Listing(_)) => {
                let why = "the other side does not know how to say where a directory lies";
                Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint::Program::UpdateOrRemoveThere))
            }
            Some(_) => Err(Fault::protocol("it was asked where a directory lies and something else came")),
            None => Err(Fault::new(FaultCode::Lost, Blame::Peer, "the daemon ended the conversation")),
        }
    };
    tokio::select! {
        biased;
        code = stop.stopped() => Err(Fault::new(code, Blame::Local, "stopped before the daemon had answered")),
        located = asked => located,
    }
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

async fn ask(remote: Remote, request: Request, sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>) -> Result<(), Fault> {
    // The ways of a host behind ssh last as long as the listing.
    let Reached { mut control, ways: _ways } = connect(&remote).await?;
    write_message(&mut control.writer, &handshake::hello(request, Units::Any)).await?;
    hear_names(&mut control.reader, sink).await
}

async fn hear_names(reader: &mut ReadHalf, mut sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>) -> Result<(), Fault> {
    loop {
        let Ok(heard) = timeout(SILENCE_MAX, read_message(reader)).await else {
            let why = format_args!("the daemon said nothing for {} s", SILENCE_MAX.as_secs());
            return Err(Fault::new(FaultCode::TimedOut, Blame::Peer, why).hint(hint::Again::Now));
        };
        let listing = match heard? {
            Some(Message::Listing(listing)) => listing,
            Some(Message::Refuse(fault)) => return Err(fault.seen_from_afar()),
            Some(_) => return Err(Fault::protocol("a listing was asked for and something else came")),
            None => {
                let why = "the daemon ended the listing before it was complete";
                return Err(Fault::new(FaultCode::Lost, Blame::Peer, why).hint(hint::Daemon::ReadInTime));
            }
        };
        if sink(listing.names).is_break() || listing.last {
            return Ok(());
        }
    }
}

/// Gives `sink` the names at a path of this host.
///
/// # Errors
/// A [`Fault`] that names the path. Names may have been given before.
pub fn list_local(path: &Path, sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>) -> Result<(), Fault> {
    match Tree::open(path) {
        Ok(tree) => list_tree(&tree, &RelPath::root(), sink),
        // Not a directory: its parent lists it.
        Err(e) => {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(e.into()) };
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let name = RelPath::new(std::os::unix::ffi::OsStrExt::as_bytes(name))
                .map_err(|e| Fault::new(FaultCode::Usage, Blame::Local, e))?;
            list_tree(&Tree::open(parent)?, &name, sink)
        }
    }
}

/// The partials of this user at a path of this host and beneath it, sorted by name. Their journals
/// lie at the top of the destination that the transfer was given, so they are looked for in the
/// directory itself and in those above it.
///
/// # Errors
/// A [`Fault`] that names the path.
pub fn list_local_partials(path: &Path) -> Result<Vec<Listed>, Fault> {
    let (place, stands) = crate::place::resolved(path)?;
    let who = Principal::local();
    let mut found = Vec::new();
    for dir in place.ancestors() {
        let beneath = place.strip_prefix(dir).unwrap_or(Path::new(""));
        // A path that is too long for this directory is too long for those above it too.
        let Ok(beneath) = RelPath::new(std::os::unix::ffi::OsStrExt::as_bytes(beneath.as_os_str())) else { break };
        match partials_at(dir, &who.principal, &beneath) {
            Ok(partials) => found.extend(partials),
            Err(fault) if beneath.is_root() => return Err(fault),
            // A directory above may be another user's: a shelf that we may not open has no partials
            // of ours.
            Err(fault) => tracing::debug!(target: "longhaul::journal", %fault, "nothing is looked for there"),
        }
    }
    if found.is_empty() && !stands {
        list_local(path, |_| ControlFlow::Break(()))?;
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The set of which a directory is a target, as far as its targets are there. `None` if it is none,
/// or the set cannot be opened.
fn set_at(dir: &Path) -> Option<Arc<TargetSet>> {
    let targets = TargetDirs { same_device: SameDevice::Allowed, ..TargetDirs::of_target(dir).ok()? };
    TargetSet::open(&targets, Marks::Needed, Writing::Never).ok()
}

/// The partials on the shelf of a directory. Empty if there is no directory.
fn partials_at(dir: &Path, principal: &str, beneath: &RelPath) -> Result<Vec<Listed>, Fault> {
    match Tree::open(dir) {
        Ok(tree) => {
            let shelf = set_at(dir).map_or_else(|| tree.shelf(), |set| set.shelf());
            RootJournals::new(shelf, Layout::WHOLE, &Doubts::default()).partials(principal, beneath)
        }
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(e) => Err(e.into()),
    }
}

fn list_tree(
    tree: &Arc<Tree>,
    path: &RelPath,
    mut sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let mut lister = Lister::new(&TargetSet::plain(tree.clone()), path)?;
    while !lister.is_over() {
        if sink(name_page(&mut lister, NAMES_BYTES)?).is_break() {
            break;
        }
    }
    Ok(())
}

/// A daemon that reads a large directory sends a message every few seconds. One that is silent for
/// this long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use longhaul_core::Meta;
    use longhaul_proto::wire::message::Listing;
    use tokio::io::duplex;

    use super::*;
    use crate::session::channel::{ReadHalf, WriteHalf};

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_falls_silent_in_the_middle_is_waited_for_no_longer_than_half_a_minute() {
        let (here, there) = duplex(1 << 16);
        let (mut writer, mut reader): (WriteHalf, ReadHalf) = (Box::new(there), Box::new(here));
        let name = Listed { name: b"n".to_vec(), kind: ListedKind::File, len: 0, meta: Meta::default() };
        let page = Message::Listing(Listing { names: vec![name], last: false });
        write_message(&mut writer, &page).await.expect("said");
        let (began, mut names) = (tokio::time::Instant::now(), 0);
        let sink = |page: Vec<Listed>| {
            names += page.len();
            ControlFlow::Continue(())
        };
        let fault = hear_names(&mut reader, sink).await.expect_err("it says nothing more");
        assert_eq!((fault.code, names), (FaultCode::TimedOut, 1));
        assert_eq!(began.elapsed(), SILENCE_MAX);
    }

    #[tokio::test]
    async fn a_listing_that_ends_in_the_middle_says_why_that_may_be() {
        let (here, there) = duplex(1 << 16);
        drop(there);
        let mut reader: ReadHalf = Box::new(here);
        let fault = hear_names(&mut reader, |_| ControlFlow::Continue(())).await.expect_err("it is over");
        assert_eq!((fault.code, fault.hint), (FaultCode::Lost, Some(hint::Daemon::ReadInTime.into())));
    }
}
