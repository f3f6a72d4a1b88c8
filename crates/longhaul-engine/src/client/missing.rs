//! Ends runs whose sources are all missing: each source is named and counted as a failure, no
//! session begins, and no destination is made.
//!
//! In: the shape of the sources, or a daemon's refusal. Out: the totals of such a run. It knows no
//! connection and makes no file.

use longhaul_core::hint::Names;
use longhaul_core::{Blame, EntryKind, Fault, FaultCode, Hint, RelPath};
use longhaul_disk::Shape;

use crate::api::{Event, FileEvent, FileStatus, Observer, OwnFacts, Remote, RemotePath};
use crate::session::totals::Totals;

/// The totals of a run with sources of this host. `None` if any of them exists.
pub(crate) fn here(shape: &Shape, observer: &dyn Observer) -> Option<Totals> {
    let Shape::Missing(missing) = shape else { return None };
    Some(tell(
        missing.iter().map(|(name, error)| (name.clone(), Fault { hint: globs(name), ..error.fault() })),
        observer,
    ))
}

/// The totals of a pull that a daemon refused because it has none of the sources. `None` if it had
/// another reason.
pub(crate) fn there(refusal: &Fault, remote: &Remote, paths: &[RemotePath], observer: &dyn Observer) -> Option<Totals> {
    if refusal.code != FaultCode::NotFound {
        return None;
    }
    let faults = paths.iter().map(|path| {
        let location = remote.location(path);
        let fault = Fault::new(
            FaultCode::NotFound,
            Blame::Peer,
            format_args!("cannot examine {location}: No such file or directory"),
        );
        (path.path.clone(), Fault { hint: globs(&path.path), ..fault.about(location) })
    });
    Some(tell(faults, observer))
}

fn tell(missing: impl Iterator<Item = (RelPath, Fault)>, observer: &dyn Observer) -> Totals {
    let mut totals = Totals::default();
    for (path, fault) in missing {
        let placed = path.name().and_then(|name| RelPath::new(name).ok()).unwrap_or_default();
        let status = FileStatus::Failed(fault);
        totals.settled(&EntryKind::Dir, &status);
        let (bytes, b3, regular, renamed) = (0, None, false, false);
        observer.event(Event::File(FileEvent {
            path: placed.clone(),
            placed,
            status,
            bytes,
            b3,
            regular,
            renamed,
            own: OwnFacts::default(),
            sums: Default::default(),
        }));
    }
    totals
}

/// Advice for a name that is missing and looks like a pattern that a shell should have expanded.
fn globs(path: &RelPath) -> Option<Hint> {
    path.as_bytes().iter().any(|byte| b"*?[".contains(byte)).then(|| Names::NoPattern.into())
}
