//! Names what is short where a file does not fit: the host, the file system, and whether it is
//! space, inodes or a quota.
//!
//! In: faults of the disk, from any job. Out: the same faults; those for want of room name the
//! place and the shortage. It knows no files.

use longhaul_core::{ByteCount, Fault, FaultCode, PlainText, RelPath, hint};
use longhaul_disk::TargetTree;
use longhaul_proto::receiver::Surveyed;
use rustix::system::uname;

use super::DestinationDone;

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

    /// Has a fault for want of room say on which file system of which host, and what is short.
    /// Other faults stay as they are.
    pub(crate) fn name_shortage(&self, tree: &dyn TargetTree, fault: &mut Fault) {
        let is_bound = fault.hint == Some(hint::Storage::AskForRoom.into());
        if fault.code != FaultCode::NoSpace || is_bound || fault.message.as_str().starts_with(&self.name) {
            return;
        }
        let room = tree.room(&RelPath::root());
        let lacks_inodes = room.is_some_and(|room| room.bytes >= SPACE_BYTES_MIN && room.inodes == Some(0));
        let short = match room {
            Some(room) if room.bytes < SPACE_BYTES_MIN => {
                format!("is full ({} free)", ByteCount(room.bytes))
            }
            Some(_) if lacks_inodes => "has no inodes (file entries) left".to_owned(),
            // It is a quota, or another file system beneath.
            Some(room) => format!("has no room for this ({} free)", ByteCount(room.bytes)),
            None => "has no room for this".to_owned(),
        };
        let message = format!("{} {short}: {}", self.name, fault.message);
        let named = Fault::new(fault.code, fault.blame, message);
        // Free space does not help without inodes.
        let hint = if lacks_inodes { Some(hint::Storage::FreeInodes.into()) } else { fault.hint.clone() };
        *fault = Fault { object: fault.object.clone(), hint, ..named };
    }
}

impl DestinationDone {
    /// Shows every fault of the report to `see`.
    pub(super) fn each_fault(&mut self, see: impl FnMut(&mut Fault)) {
        fn of<T>(result: &mut Result<T, Fault>) -> Option<&mut Fault> {
            result.as_mut().err()
        }
        match self {
            DestinationDone::MeasureRoom(_)
            | DestinationDone::DigestProgress(_)
            | DestinationDone::SumChunks(..)
            | DestinationDone::SumSmall(_)
            | DestinationDone::Name(..) => {}
            DestinationDone::PublishRefused(fault) | DestinationDone::FinishDirsRefused(fault) => {
                std::iter::once(fault).for_each(see);
            }
            DestinationDone::DigestSkipped(results) => {
                results.iter_mut().filter_map(|(_, result)| of(result)).for_each(see);
            }
            DestinationDone::Survey { found, .. } => found.iter_mut().filter_map(of::<Surveyed>).for_each(see),
            DestinationDone::Create(_, result) => of(result).into_iter().for_each(see),
            DestinationDone::SyncData((_, result)) => of(result).into_iter().for_each(see),
            DestinationDone::Barrier(result) => of(result).into_iter().for_each(see),
            DestinationDone::Write { result, .. }
            | DestinationDone::Journal(result)
            | DestinationDone::Tidy(result)
            | DestinationDone::SyncDirs(result) => of(result).into_iter().for_each(see),
            DestinationDone::Stage(results) => results.iter_mut().filter_map(|(_, result)| of(result)).for_each(see),
            DestinationDone::Retouch(results)
            | DestinationDone::Publish(results)
            | DestinationDone::FinishDirs(results) => {
                results.iter_mut().filter_map(|(_, result)| of(result)).for_each(see);
            }
            DestinationDone::ReadStaged(results) | DestinationDone::ReadStanding(results) => {
                results.iter_mut().filter_map(|(_, result)| of(result)).for_each(see);
            }
            DestinationDone::ReadBack { results, .. }
            | DestinationDone::ReadInOrder { results, .. }
            | DestinationDone::ReadStandingChunks { results, .. } => {
                results.iter_mut().filter_map(|(_, result)| of(result)).for_each(see);
            }
        }
    }
}

/// Fewer free bytes than this count as none: one chunk or one directory may take more.
const SPACE_BYTES_MIN: u64 = 1 << 20;
