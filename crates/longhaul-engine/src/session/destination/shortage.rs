//! Naming what is short where something does not fit: the host, the file system, and whether it is space, inodes or a quota.
//!
//! In: faults of the disk, from wherever they come. Out: those for want of room say where and what. Knows no files.

use longhaul_core::{ByteCount, Fault, FaultCode, PlainText, RelPath};
use longhaul_disk::TargetTree;
use longhaul_proto::receiver::Surveyed;
use rustix::system::uname;

use super::Report;

/// The place of a destination, for people.
#[derive(Clone, Debug)]
pub(crate) struct Whereabouts {
    name: String,
}

impl Whereabouts {
    /// A destination that is known by `place` on this host.
    pub(crate) fn new(place: &str) -> Whereabouts {
        let system = uname();
        let host = PlainText::of(system.nodename().to_string_lossy());
        Whereabouts { name: format!("the file system of {place} on host {host}") }
    }

    /// The name of its file system.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Has a fault for want of room say on which file system of which host, and what is short; others stay as they are.
    pub(crate) fn name_shortage(&self, tree: &dyn TargetTree, fault: &mut Fault) {
        if fault.code != FaultCode::NoSpace || fault.message.as_str().starts_with(&self.name) {
            return;
        }
        let room = tree.room(&RelPath::root());
        let lacks_inodes = room.is_some_and(|room| room.bytes >= SPACE_BYTES_MIN && room.inodes == Some(0));
        let short = match room {
            Some(room) if room.bytes < SPACE_BYTES_MIN => {
                format!("is full ({} free)", ByteCount(room.bytes))
            }
            Some(_) if lacks_inodes => "has no inodes (file entries) left".to_owned(),
            // A quota, or another file system beneath.
            Some(room) => format!("has no room for this ({} free)", ByteCount(room.bytes)),
            None => "has no room for this".to_owned(),
        };
        let message = format!("{} {short}: {}", self.name, fault.message);
        let named = Fault::new(fault.code, fault.blame, message);
        let hint = if lacks_inodes { PlainText::from(INODES_HINT) } else { fault.hint.clone() };
        *fault = Fault { object: fault.object.clone(), hint, ..named };
    }
}

impl Report {
    /// Shows every fault in it.
    pub(super) fn each_fault(&mut self, see: impl FnMut(&mut Fault)) {
        fn of<T>(result: &mut Result<T, Fault>) -> Option<&mut Fault> {
            result.as_mut().err()
        }
        match self {
            Report::Room(_) | Report::SkippedRead(_) => {}
            Report::SkippedDigested(results) => {
                results.iter_mut().filter_map(|(_, result)| of(result)).for_each(see);
            }
            Report::Surveyed { found, .. } => found.iter_mut().filter_map(of::<Surveyed>).for_each(see),
            Report::Created(_, result) => of(result).into_iter().for_each(see),
            Report::Written { result, .. }
            | Report::Synced((_, result))
            | Report::Journalled(result)
            | Report::Tidied(result)
            | Report::Barrier(result)
            | Report::DirsSynced(result) => of(result).into_iter().for_each(see),
            Report::Staged(results) => results.iter_mut().filter_map(|(_, result)| of(result)).for_each(see),
            Report::Retouched(results) | Report::Published(results) | Report::DirsFinished(results) => {
                results.iter_mut().filter_map(|(_, result)| of(result)).for_each(see);
            }
            Report::StagedReadBack(results) | Report::Standing(results) => {
                results.iter_mut().filter_map(|(_, result)| of(result)).for_each(see);
            }
            Report::ReadBack { results, .. } | Report::StandingChunks { results, .. } => {
                results.iter_mut().filter_map(|(_, result)| of(result)).for_each(see);
            }
        }
    }
}

/// Free space does not help here.
const INODES_HINT: &str = "remove files there, or take a file system with more inodes, then run the same command again";
/// Less than this is no space: what one chunk or one directory takes may be more.
const SPACE_BYTES_MIN: u64 = 1 << 20;
