//! Where a transfer's names come from and go to on this host: sources opened, the destination resolved.
//!
//! In: paths as the user or a peer gave them. Out: trees for a session, and the mapping of names. The rules are rsync's;
//! `tests/mapping.rs` shows them.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use longhaul_core::{Blame, Escaped, Fault, FaultCode, RelPath};
use longhaul_disk::{DirectMode, FsSource, FsTarget, SourceSpec, SourceTree, Standing, TargetTree, Tree, VoidTarget};
use longhaul_proto::receiver::Landing;
use longhaul_proto::wire::message::Placing;

use crate::api::{LocalDest, LocalSource};

/// A destination that is ready to be written to.
#[derive(Clone)]
pub(crate) struct Destination {
    /// Where names go.
    pub(crate) tree: Arc<dyn TargetTree>,
    /// How.
    pub(crate) landing: Landing,
    /// Where it stands, for people.
    pub(crate) base: String,
}

/// What a destination is opened for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// Direct I/O.
    pub(crate) direct: DirectMode,
    /// Make nothing.
    pub(crate) dry_run: bool,
    /// How sources are placed.
    pub(crate) placing: Placing,
    /// Whether what stands there may be changed.
    pub(crate) may_modify: bool,
}

/// How sources are placed at a destination: a slash, several sources or the content of a directory mean beneath it.
pub(crate) fn placing(slash: bool, sources: usize, contents: bool) -> Placing {
    if slash || sources != 1 || contents { Placing::Beneath } else { Placing::BeneathIfDir }
}

/// Opens sources of this host.
pub(crate) fn local_source(sources: &[LocalSource], direct: DirectMode) -> Arc<dyn SourceTree> {
    let spec = |s: &LocalSource| SourceSpec { path: s.path.clone(), contents: s.contents };
    Arc::new(FsSource::open(sources.iter().map(spec).collect(), direct))
}

/// The destination on this host. A link to a directory that the user names is followed, as by rsync.
pub(crate) fn local_destination(dest: &LocalDest, opening: Opening) -> Result<Destination, Fault> {
    let is_dir = is_directory(&dest.path);
    let (dir, landing) = if opening.placing == Placing::Beneath || is_dir {
        (dest.path.as_path(), Landing::beneath())
    } else {
        let name = dest.path.file_name().ok_or_else(|| no_name(dest.path.as_os_str().as_bytes()))?;
        let parent = dest.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        (parent, Landing::beneath().renamed_to(checked_name(name.as_bytes())?))
    };
    let tree: Arc<dyn TargetTree> = if opening.dry_run && !is_directory(dir) {
        Arc::new(VoidTarget)
    } else {
        Arc::new(FsTarget::open(dir, opening.direct).map_err(|e| e.fault())?)
    };
    Ok(Destination { tree, landing, base: Escaped(dir.as_os_str().as_bytes()).to_string() })
}

/// The destination beneath a served tree.
pub(crate) fn served_destination(root: &Arc<Tree>, path: &RelPath, opening: Opening) -> Result<Destination, Fault> {
    let standing = root.stat(path).or_else(absent).map_err(|e| e.fault())?;
    let is_dir = matches!(standing, Some(Standing::Dir { .. }));
    let (dir, landing) = match (path.parent(), path.name()) {
        (Some(parent), Some(name))
            if opening.placing == Placing::Named || opening.placing == Placing::BeneathIfDir && !is_dir =>
        {
            (parent, Landing::beneath().renamed_to(name.to_vec()))
        }
        _ => (path.clone(), Landing::beneath()),
    };
    let stands = matches!(root.stat(&dir).or_else(absent).map_err(|e| e.fault())?, Some(Standing::Dir { .. }));
    let tree: Arc<dyn TargetTree> = if opening.dry_run && !stands {
        Arc::new(VoidTarget)
    } else {
        let target = FsTarget::beneath(root, &dir, opening.direct).map_err(|e| e.fault())?;
        Arc::new(if opening.may_modify { target } else { target.keeping_standing_dirs() })
    };
    Ok(Destination { tree, landing, base: dir.escaped().to_string() })
}

/// A missing parent means that nothing stands there.
fn absent(e: longhaul_disk::DiskError) -> Result<Option<Standing>, longhaul_disk::DiskError> {
    if e.kind() == longhaul_disk::ErrorKind::NotFound { Ok(None) } else { Err(e) }
}

#[expect(clippy::disallowed_methods, reason = "a look at the name that the user gave; links are followed there")]
fn is_directory(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_dir())
}

fn checked_name(name: &[u8]) -> Result<Vec<u8>, Fault> {
    RelPath::root()
        .join(name)
        .map(|_| name.to_vec())
        .map_err(|e| Fault::new(FaultCode::Usage, Blame::Local, e).about(Escaped(name)))
}

fn no_name(path: &[u8]) -> Fault {
    Fault::new(FaultCode::Usage, Blame::Local, "the destination has no name to give to the source").about(Escaped(path))
}
