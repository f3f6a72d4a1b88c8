//! Room at the destination: a file in chunks is begun only if it fits the free bytes, less the
//! bytes that open files will still take.
//!
//! In: measurements of the disk ([`Receiver::handle_measure_room`]), bytes that are written, files
//! that end. Out: whether a file may be begun, and [`ReceiverAction::MeasureRoom`]. A measurement
//! serves the files of one directory for a second. Small files are begun unmeasured. A file is
//! refused only if nothing is under way that may give room back, and measurements find no more room
//! for 2 s ([`SHORT_FOR`]): file systems free removed files some time after the call that removes
//! them. Knows no file system; a destination without a known room has enough.

use std::collections::HashMap;
use std::time::Duration;

use longhaul_core::{Blame, ByteCount, EntryKind, Fault, FaultCode, FileId, RelPath, hint};

use super::large::LargeStage;
use super::{EntryState, Receiver, ReceiverAction};
use crate::time::Timestamp;

/// Free space and file entries of a file system, as its user may take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The file system: files of one number share the room.
    pub device: u64,
    /// Free bytes.
    pub bytes: u64,
    /// Free file entries (inodes). `None` if their number is not fixed.
    pub inodes: Option<u64>,
}

/// A part of the room of a file system that an open file will still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reserved {
    device: u64,
    bytes: u64,
    /// Bytes of those written first that take none of it, as they have blocks already.
    standing: u64,
}

/// The known room of each file system of the destination.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    /// The file system's name in messages. It may be empty.
    name: String,
    devices: HashMap<u64, Device>,
    /// The directory that was measured last, and its file system, which is `None` if it does not
    /// tell its room. `None` before the first measurement.
    measured: Option<(RelPath, Option<u64>)>,
    /// Bytes that earlier sessions received of files that were refused.
    refused: u64,
    /// The measurement that is under way.
    asked: Option<Question>,
    /// The file that lacks room although nothing is under way that may give some back. `None` if no
    /// file does.
    short: Option<Short>,
    /// When to measure again for a file that lacks room. `None` if no file does.
    again: Option<Timestamp>,
}

/// How long a file has had no room.
#[derive(Clone, Copy, Debug)]
struct Short {
    file: FileId,
    /// When it lacked room first.
    first: Timestamp,
    /// When the most room so far was found, and how much that was.
    since: Timestamp,
    most: u64,
}

#[derive(Debug)]
struct Question {
    dir: RelPath,
    /// Whether nothing was under way that will take room or give some back.
    alone: bool,
}

/// One file system.
#[derive(Clone, Copy, Debug)]
struct Device {
    /// Free bytes, less the bytes that open files will still take.
    free: u64,
    inodes: Option<u64>,
    /// When the room was measured.
    at: Timestamp,
    /// Whether no file was open then and none was begun since.
    alone: bool,
    /// Bytes that open files will still take.
    reserved: u64,
}

/// The room that a file will take.
#[derive(Clone, Copy)]
struct Need {
    file: FileId,
    bytes: u64,
    /// Bytes that go to places where there are blocks already.
    standing: u64,
    inode: bool,
}

/// Whether a file may be begun.
enum Admission {
    Begin(Option<Reserved>),
    /// The file must wait for another event.
    Wait,
    Measure,
    Refuse(Fault),
}

impl Receiver {
    /// Names the destination's file system in messages: the subject of a sentence, for people.
    #[must_use]
    pub fn named(mut self, file_system: &str) -> Receiver {
        file_system.clone_into(&mut self.rooms.name);
        self
    }

    /// Whether the first file that waits may be begun now; if so, its room is kept for it. Fails
    /// the file, and with it the session, if there will be no room for it.
    pub(super) fn admit(&mut self, now: Timestamp, id: FileId) -> bool {
        // A rename may replace a file and so give room back.
        let alone = !self.window.has_open() && !self.committer.has_any() && !self.manifest.is_staging();
        let Some(slot) = self.manifest.get_mut(id) else { return true };
        let (EntryState::Large(large), EntryKind::File { sparse, .. }) = (&mut slot.state, &slot.entry.entry.kind)
        else {
            return true;
        };
        // A file that is compared takes room only once a difference is found.
        if large.comparison.is_some() && large.partial.is_none() {
            return true;
        }
        let (held, occupied) = large.partial.as_ref().map_or((0, 0), |partial| (partial.bytes(), partial.occupied()));
        // How much of a sparse file are holes is not known.
        let need = if *sparse && self.config.preserve.sparse { 0 } else { large.map.len().saturating_sub(occupied) };
        let dir = slot.entry.placed.parent().unwrap_or_default();
        // Bytes that overwrite bytes which were written and not journalled take no room either.
        let need = Need { file: id, bytes: need, standing: occupied - held, inode: large.partial.is_none() };
        match self.rooms.admit(now, &dir, need, alone) {
            Admission::Begin(reserved) => {
                large.room = reserved;
                true
            }
            Admission::Wait => false,
            Admission::Measure => {
                self.rooms.asked = Some(Question { dir, alone });
                self.actions.push(ReceiverAction::MeasureRoom { entry: slot.entry.clone(), behind_discards: alone });
                false
            }
            Admission::Refuse(fault) => {
                self.rooms.refused += large.resumed();
                self.fail_file(id, fault);
                false
            }
        }
    }

    /// Bytes that earlier sessions received of files that this session has not begun. They are
    /// held, and no counter includes them.
    pub fn held_unopened(&self) -> u64 {
        let waiting = self.manifest.all_large().filter(|(_, large)| large.stage == LargeStage::Waiting);
        waiting.map(|(_, large)| large.resumed()).fold(self.rooms.refused, u64::saturating_add)
    }

    /// The room of the file system on which a file would lie. `None` if it is unknown.
    pub fn handle_measure_room(&mut self, now: Timestamp, room: Option<Room>) {
        if self.is_over() {
            return;
        }
        if let Some(asked) = self.rooms.asked.take() {
            self.rooms.measured(now, asked, room);
        }
        self.settle_down(now);
    }
}

impl Rooms {
    fn admit(&mut self, now: Timestamp, dir: &RelPath, need: Need, alone: bool) -> Admission {
        let Need { file, bytes: need, standing, inode } = need;
        if self.asked.is_some() {
            return Admission::Wait;
        }
        let Some((_, device)) = self.measured.as_ref().filter(|(measured, _)| measured == dir) else {
            return Admission::Measure;
        };
        // A file longer than any file system holds is refused by the disk at once.
        let Some(number) = device.filter(|_| need <= FILE_BYTES_MAX) else { return Admission::Begin(None) };
        let Some(device) = self.devices.get_mut(&number) else { return Admission::Measure };
        if now >= device.at.after(ROOM_AGE) {
            return Admission::Measure;
        }
        let lacks_inode = inode && device.inodes == Some(0);
        if need <= device.free && !lacks_inode {
            device.free -= need;
            device.inodes = device.inodes.map(|inodes| inodes.saturating_sub(u64::from(inode)));
            device.reserved += need;
            // The file may take less than its length, or replace a file and so give room back.
            device.alone = false;
            self.short = None;
            return Admission::Begin((need > 0).then_some(Reserved { device: number, bytes: need, standing }));
        }
        if !alone {
            // Files that end may give room back: by replacing a file, or by not needing all that
            // was kept for them.
            self.short = None;
            return Admission::Wait;
        }
        if !device.alone || now >= device.at.after(AGAIN_AFTER) {
            return Admission::Measure;
        }
        let fresh = Short { file, first: now, since: now, most: device.free };
        let short = self.short.get_or_insert(fresh);
        if short.file != file {
            *short = fresh;
        } else if device.free > short.most {
            (short.since, short.most) = (now, device.free);
        }
        if now >= short.since.after(SHORT_FOR).min(short.first.after(SHORT_MAX)) {
            self.short = None;
            let need = if lacks_inode { None } else { Some(need) };
            return Admission::Refuse(shortage(&self.name, need, device.free));
        }
        self.again = Some(device.at.after(AGAIN_AFTER));
        Admission::Wait
    }

    /// Forgets when to measure again: each event finds that out anew.
    pub(super) fn look_anew(&mut self) {
        self.again = None;
    }

    /// When to measure again. `None` if no file lacks room.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.again
    }

    fn measured(&mut self, now: Timestamp, asked: Question, room: Option<Room>) {
        self.measured = Some((asked.dir, room.map(|room| room.device)));
        let Some(Room { device, bytes, inodes }) = room else { return };
        let reserved = self.devices.get(&device).map_or(0, |device| device.reserved);
        let free = bytes.saturating_sub(reserved);
        self.devices.insert(device, Device { free, inodes, at: now, alone: asked.alone, reserved });
    }

    /// Takes written bytes from the room that is kept for their file.
    pub(super) fn written(&mut self, room: &mut Option<Reserved>, bytes: u64) {
        let Some(reserved) = room else { return };
        let free = bytes.min(reserved.standing);
        reserved.standing -= free;
        let taken = (bytes - free).min(reserved.bytes);
        reserved.bytes -= taken;
        if let Some(device) = self.devices.get_mut(&reserved.device) {
            device.reserved -= taken;
        }
    }

    /// Keeps room once more for bytes that were written and are to be written again elsewhere.
    pub(super) fn written_in_vain(&mut self, room: &mut Option<Reserved>, bytes: u64) {
        let Some(reserved) = room else { return };
        if let Some(device) = self.devices.get_mut(&reserved.device) {
            reserved.bytes += bytes;
            device.reserved += bytes;
        }
    }

    /// Frees the room that was kept for a file that ended. The next measurement finds it.
    pub(super) fn give_back(&mut self, room: Option<Reserved>) {
        if let Some(reserved) = room
            && let Some(device) = self.devices.get_mut(&reserved.device)
        {
            device.reserved -= reserved.bytes;
        }
    }

    /// Bytes that are reserved on all devices.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn reserved(&self) -> u64 {
        self.devices.values().map(|device| device.reserved).sum()
    }
}

impl Reserved {
    /// Bytes of the reservation.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }
}

/// The fault of a file without room. `need` is in bytes; `None` if inodes are lacking.
fn shortage(name: &str, need: Option<u64>, free: u64) -> Fault {
    let fault = |message| Fault::new(FaultCode::NoSpace, Blame::Local, message);
    let Some(need) = need else {
        return fault(format!("{name} has no inodes (file entries) left")).hint(hint::Storage::FreeInodes);
    };
    let (need, free) = (ByteCount(need), ByteCount(free));
    fault(format!("{name} has no room for this file: it needs {need} more, and {free} are free"))
        .hint(hint::Storage::FreeSpace)
}

/// The longest file in which the system can name an offset, in bytes.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// How long a measurement counts: others write to the file system as well.
const ROOM_AGE: Duration = Duration::from_secs(1);
/// A file is refused when no more room was found for this long. XFS and ext4 free removed files in
/// the background, mostly within a second.
const SHORT_FOR: Duration = Duration::from_secs(2);
/// A file is refused after this long even if room grows all the time, as others remove files.
const SHORT_MAX: Duration = Duration::from_secs(10);
/// The pause between measurements until then: one `statfs` each.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
