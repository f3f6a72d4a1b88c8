//! Room on the target: a file that comes in chunks is begun only while what is free there, less
//! what files under way will still take, holds it.
//!
//! In: what the disk measures ([`Receiver::handle_measure_room`]), bytes that are written, files
//! that end. Out: whether a file may be begun, and [`Action::MeasureRoom`]. A measurement serves
//! the files of one directory for a second. Small files are begun unmeasured: they take what they
//! find. A file is refused only if nothing is under way that may give room back, and measurements
//! that follow each other for a while find no more: file systems free what was removed behind the
//! call that removes it. Knows no file system; a target that says nothing of its room has enough.

use std::collections::HashMap;
use std::time::Duration;

use longhaul_core::{Blame, ByteCount, EntryKind, Fault, FaultCode, FileId, RelPath};

use super::large::LargeStage;
use super::{EntryState, PendingEntry, Receiver, ReceiverAction};
use crate::time::Timestamp;

/// Free space and file entries of a file system, as its user may take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The file system: files of one number share the room.
    pub device: u64,
    /// Free bytes.
    pub bytes: u64,
    /// Free file entries (inodes). `None` where their number is not fixed.
    pub inodes: Option<u64>,
}

/// A part of the room of a file system that an open file will still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reserved {
    device: u64,
    bytes: u64,
    /// So many of those that it writes first take none.
    standing: u64,
}

/// What is known of the room on the target.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    /// The file system's name in messages. May be empty.
    name: String,
    devices: HashMap<u64, Device>,
    /// The directory that was measured last, and its file system; that is `None` where nothing is
    /// said of it.
    measured: Option<(RelPath, Option<u64>)>,
    /// Bytes that earlier sessions brought of files that were refused.
    refused: u64,
    /// The measurement that is under way.
    asked: Option<Question>,
    /// The file that has no room, though nothing is under way that may give some back.
    short: Option<Short>,
    /// When to measure again, for that.
    again: Option<Timestamp>,
}

/// How long a file has had no room.
#[derive(Clone, Copy, Debug)]
struct Short {
    file: FileId,
    /// Since when.
    first: Timestamp,
    /// Since when no more was found, and how much there was then.
    since: Timestamp,
    most: u64,
}

#[derive(Debug)]
struct Question {
    dir: RelPath,
    /// Nothing was under way that will take room, or give some back.
    alone: bool,
}

/// One file system.
#[derive(Clone, Copy, Debug)]
struct Device {
    /// Bytes that nobody takes, as far as is known.
    free: u64,
    inodes: Option<u64>,
    /// When that was measured.
    at: Timestamp,
    /// No file was open then, and none was begun since.
    alone: bool,
    /// Bytes that open files will still take.
    reserved: u64,
}

/// What a file will take.
#[derive(Clone, Copy)]
struct Need {
    file: FileId,
    bytes: u64,
    /// Bytes that come to where there are blocks already.
    standing: u64,
    inode: bool,
}

/// Whether a file may be begun.
enum Admission {
    Begin(Option<Reserved>),
    /// Not before something else has happened.
    Wait,
    Measure,
    Refuse(Fault),
}

impl Receiver {
    /// The same, with a name for its file system, for people: the subject of a sentence.
    #[must_use]
    pub fn named(mut self, file_system: &str) -> Receiver {
        file_system.clone_into(&mut self.rooms.name);
        self
    }

    /// Whether the first file that waits may be begun now; has its room kept for it then. Fails it,
    /// and with it the session, if there is no room for it however long it waits.
    pub(super) fn admit(&mut self, now: Timestamp, id: FileId) -> bool {
        // What is renamed may replace what gives room back.
        let alone = self.large_open == 0 && !self.committer.has_any() && !self.is_staging();
        let Some(slot) = self.entries.get_mut(&id) else { return true };
        let (EntryState::Large(large), EntryKind::File { sparse, .. }) = (&mut slot.state, &slot.entry.entry.kind)
        else {
            return true;
        };
        // What is compared takes room only once a difference is found.
        if large.comparison.is_some() && large.partial.is_none() {
            return true;
        }
        let (held, occupied) = large.partial.as_ref().map_or((0, 0), |partial| (partial.bytes(), partial.occupied()));
        // How much of it are holes is not known.
        let need = if *sparse && self.config.preserve.sparse { 0 } else { large.map.len().saturating_sub(occupied) };
        let dir = slot.entry.placed.parent().unwrap_or_default();
        // What is written in the place of what was written and not journalled takes no room either.
        let need = Need { file: id, bytes: need, standing: occupied - held, inode: large.partial.is_none() };
        match self.rooms.admit(now, &dir, need, alone) {
            Admission::Begin(reserved) => {
                large.room = reserved;
                true
            }
            Admission::Wait => false,
            Admission::Measure => {
                self.rooms.asked = Some(Question { dir, alone });
                self.actions
                    .push_back(ReceiverAction::MeasureRoom { entry: slot.entry.clone(), behind_discards: alone });
                false
            }
            Admission::Refuse(fault) => {
                self.rooms.refused += large.resumed();
                self.fail_file(id, fault);
                false
            }
        }
    }

    /// Bytes that earlier sessions brought of files that were not begun in this one: they are held,
    /// and no counter has them.
    pub fn held_unopened(&self) -> u64 {
        let waits = |slot: &PendingEntry| match &slot.state {
            EntryState::Large(large) if large.stage == LargeStage::Waiting => large.resumed(),
            _ => 0,
        };
        self.entries.values().map(waits).fold(self.rooms.refused, u64::saturating_add)
    }

    /// The room where a file would go was measured. `None`: nothing is known of it.
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
        // What no file system holds is the disk's to refuse, at once.
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
            // It may take less than it is long, or replace what gives room back.
            device.alone = false;
            self.short = None;
            return Admission::Begin((need > 0).then_some(Reserved { device: number, bytes: need, standing }));
        }
        if !alone {
            // Files that end may give room back: what they replace, and what was kept for them and
            // not needed.
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

    /// Forgets when it was to be measured again: whether it is, is found out anew at each event.
    pub(super) fn look_anew(&mut self) {
        self.again = None;
    }

    /// When it is to be measured again.
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

    /// Bytes of a file were written: they are taken, and kept for it no longer.
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

    /// A file ended: what was kept for it is free. That is found when it is measured next.
    pub(super) fn give_back(&mut self, room: Option<Reserved>) {
        if let Some(reserved) = room
            && let Some(device) = self.devices.get_mut(&reserved.device)
        {
            device.reserved -= reserved.bytes;
        }
    }

    #[cfg(test)]
    pub(super) fn reserved(&self) -> u64 {
        self.devices.values().map(|device| device.reserved).sum()
    }
}

impl Reserved {
    #[cfg(test)]
    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }
}

/// `need`: bytes, if it is not a file entry that is lacking.
fn shortage(name: &str, need: Option<u64>, free: u64) -> Fault {
    let fault = |message| Fault::new(FaultCode::NoSpace, Blame::Local, message);
    let Some(need) = need else {
        return fault(format!("{name} has no inodes (file entries) left"))
            .hint("remove files there, or take a file system with more inodes, then run the same command again");
    };
    let (need, free) = (ByteCount(need), ByteCount(free));
    fault(format!("{name} has no room for this file: it needs {need} more, and {free} are free"))
        .hint("free space or raise the quota, then run the same command again")
}

/// The longest file that the system can name an offset in.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// So long what was measured is believed: others write there as well.
const ROOM_AGE: Duration = Duration::from_secs(1);
/// A file is refused when no more room was found for so long. XFS and ext4 free what was removed in
/// the background, mostly within a second.
const SHORT_FOR: Duration = Duration::from_secs(2);
/// Where room grows all the time, by what others remove, it is waited for no longer.
const SHORT_MAX: Duration = Duration::from_secs(10);
/// Until then it is measured so often: one `statfs` each.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
