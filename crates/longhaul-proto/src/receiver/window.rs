//! The window of a receiver: which large files are open, which wait, and how many of their chunks
//! are asked for.
//!
//! In: ids of large files with the device that each lies on at the sender, and counts of chunks.
//! Out: the next file to open, to ask chunks of or to copy chunks in, as long as there is room.
//! Devices share the room: the next turn goes to the one that has the least, so that a sender with
//! several disks has work for all of them. Knows neither entries nor messages.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::FileId;
use longhaul_core::limits::{CHUNKS_WANTED_MAX, DEVICES_MAX, FILES_BEGUN_MAX};

use super::in_order::OrderedReadings;
use super::order::WantOrder;

/// The window. See the module.
#[derive(Debug, Default)]
pub(super) struct Window {
    order: WantOrder,
    /// Each file that has no outcome.
    files: BTreeMap<FileId, WindowFile>,
    /// The lengths of all of them.
    bytes: u128,
    /// The devices that the files lie on. At most [`DEVICES_MAX`].
    devices: Vec<SourceDevice>,
    /// Files with chunks to copy from the standing file.
    copying: BTreeSet<FileId>,
    /// Files whose temporary is being made.
    creating: usize,
    /// Files that hold a descriptor.
    open: usize,
    /// Chunks that are asked for, or being copied, and not at their end.
    chunks: usize,
    /// Whole files that are read once more.
    pub(super) in_order: OrderedReadings,
}

/// A file in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WindowFile {
    /// The place of its device.
    device: usize,
    /// Its length, bytes. 0 if it is a stream, whose length nobody knows.
    len: u64,
    /// Its chunks that are asked for, or being copied, and not at their end.
    chunks: usize,
}

/// The part of the window that files of one device of the sender take.
#[derive(Debug, Default)]
struct SourceDevice {
    /// Its number at the sender.
    dev: u64,
    /// Its files without outcome. With none left its place may be taken by another device.
    files: usize,
    /// Its files that wait for a descriptor.
    waiting: BTreeSet<FileId>,
    /// Its files with chunks to ask for.
    wanting: BTreeSet<FileId>,
    /// Its files that hold a descriptor.
    open: usize,
    /// Its chunks that are asked for, or being copied, and not at their end.
    chunks: usize,
}

impl Window {
    /// An empty window of a session in which chunks are asked for in this order.
    pub(super) fn new(order: WantOrder) -> Window {
        Window { order, ..Window::default() }
    }

    /// A file of `len` bytes of the sender's device `dev` waits for a descriptor.
    pub(super) fn queue(&mut self, id: FileId, (dev, len): (u64, u64)) {
        let at = self.place_of(dev);
        self.devices[at].files += 1;
        self.devices[at].waiting.insert(id);
        self.files.insert(id, WindowFile { device: at, len, chunks: 0 });
        self.bytes += u128::from(len);
    }

    /// The file to open next, if a descriptor is free: the first that waits of the device with the
    /// fewest open files. In sequence it is the first of all that waits, and none is begun before
    /// the one ahead of it can be asked for: it would take the window from that one.
    pub(super) fn next_to_open(&self) -> Option<FileId> {
        let firsts = self.devices.iter().filter_map(|device| Some((device.open, *device.waiting.first()?)));
        let first = match self.order {
            WantOrder::Any => firsts.min().map(|(_, id)| id),
            WantOrder::Spread { files_max, .. } => {
                firsts.min().map(|(_, id)| id).filter(|_| self.open < files_max.max(1))
            }
            WantOrder::Sequence { .. } => firsts.map(|(_, id)| id).min().filter(|_| self.creating == 0),
        };
        first.filter(|_| self.open < LARGE_OPEN_MAX)
    }

    /// The number of files that have no outcome, and their lengths together.
    pub(super) fn load(&self) -> (usize, u64) {
        (self.files.len(), u64::try_from(self.bytes).unwrap_or(u64::MAX))
    }

    /// A file waits no more.
    pub(super) fn dequeue(&mut self, id: FileId) {
        if let Some(device) = self.device_of(id) {
            device.waiting.remove(&id);
        }
    }

    /// A file takes a descriptor.
    pub(super) fn open(&mut self, id: FileId) {
        self.open += 1;
        if let Some(device) = self.device_of(id) {
            device.open += 1;
        }
    }

    /// The temporary of a file is being made.
    pub(super) fn begin_creating(&mut self) {
        self.creating += 1;
    }

    /// The temporary of a file is made, or could not be.
    pub(super) fn end_creating(&mut self) {
        self.creating -= 1;
    }

    /// A file gives its descriptor back.
    pub(super) fn close(&mut self, id: FileId) {
        self.open -= 1;
        if let Some(device) = self.device_of(id) {
            device.open -= 1;
        }
    }

    /// Whether any file holds a descriptor.
    pub(super) fn has_open(&self) -> bool {
        self.open > 0
    }

    /// A file has chunks to ask for.
    pub(super) fn want_chunks_of(&mut self, id: FileId) {
        if let Some(device) = self.device_of(id) {
            device.wanting.insert(id);
        }
    }

    /// The file to ask chunks of next, if there is room for one more, and for how many there is
    /// room: the first file of the device that has the fewest chunks asked for. While several
    /// devices have chunks to ask for, one is given no more than an equal share at a time. In
    /// sequence it is the first of all files; over several targets it is the file with the fewest,
    /// and few chunks of it.
    pub(super) fn next_to_want(&self) -> Option<(FileId, u64)> {
        let wanting = || self.devices.iter().filter_map(|device| Some((device.chunks, *device.wanting.first()?)));
        let left = self.order.chunks_max().saturating_sub(self.chunks);
        if left == 0 {
            return None;
        }
        if matches!(self.order, WantOrder::Sequence { .. }) {
            return wanting().map(|(_, id)| id).min().map(|id| (id, left as u64));
        }
        if matches!(self.order, WantOrder::Spread { .. }) {
            let files = self.devices.iter().flat_map(|device| &device.wanting);
            let least = files.map(|id| (self.files.get(id).map_or(0, |file| file.chunks), *id)).min();
            return least.map(|(_, id)| (id, CHUNKS_AT_A_TURN.min(left as u64)));
        }
        let (chunks, id) = wanting().min()?;
        let share = CHUNKS_WANTED_MAX / wanting().count().max(1);
        let room = share.saturating_sub(chunks).clamp(1, left);
        Some((id, room as u64))
    }

    /// A file has no more chunks to ask for.
    pub(super) fn want_no_more_of(&mut self, id: FileId) {
        if let Some(device) = self.device_of(id) {
            device.wanting.remove(&id);
        }
    }

    /// A file has chunks to copy.
    pub(super) fn copy_chunks_of(&mut self, id: FileId) {
        self.copying.insert(id);
    }

    /// The files with chunks to copy.
    pub(super) fn files_to_copy(&self) -> Vec<FileId> {
        self.copying.iter().copied().collect()
    }

    /// A file has no more chunks to copy.
    pub(super) fn copy_no_more_of(&mut self, id: FileId) {
        self.copying.remove(&id);
    }

    /// Whether one more chunk may be asked for.
    pub(super) fn has_room(&self) -> bool {
        self.chunks < self.order.chunks_max()
    }

    /// Chunks that are asked for, or being copied, and not at their end.
    pub(super) fn chunks(&self) -> usize {
        self.chunks
    }

    /// This many more chunks of a file are asked for.
    pub(super) fn take(&mut self, id: FileId, chunks: usize) {
        self.chunks += chunks;
        if let Some(file) = self.files.get_mut(&id) {
            file.chunks += chunks;
        }
        if let Some(device) = self.device_of(id) {
            device.chunks += chunks;
        }
    }

    /// This many chunks of a file came to their end.
    pub(super) fn give_back(&mut self, id: FileId, chunks: usize) {
        self.chunks -= chunks;
        if let Some(file) = self.files.get_mut(&id) {
            file.chunks -= chunks;
        }
        if let Some(device) = self.device_of(id) {
            device.chunks -= chunks;
        }
    }

    /// A file came to its end, with so many of its chunks asked for. Its descriptor was given back
    /// before.
    pub(super) fn forget(&mut self, id: FileId, chunks: usize) {
        self.dequeue(id);
        self.want_no_more_of(id);
        self.copying.remove(&id);
        self.give_back(id, chunks);
        if let Some(file) = self.files.remove(&id) {
            self.devices[file.device].files -= 1;
            self.bytes -= u128::from(file.len);
        }
    }

    /// The place of a device, which may be one that has no files any more. Further devices share.
    fn place_of(&mut self, dev: u64) -> usize {
        let known = self.devices.iter().position(|device| device.dev == dev && device.files > 0);
        if let Some(at) = known.or_else(|| self.devices.iter().position(|device| device.files == 0)) {
            self.devices[at].dev = dev;
            return at;
        }
        if self.devices.len() < DEVICES_MAX {
            self.devices.push(SourceDevice { dev, ..SourceDevice::default() });
            return self.devices.len() - 1;
        }
        (dev % DEVICES_MAX as u64) as usize
    }

    fn device_of(&mut self, id: FileId) -> Option<&mut SourceDevice> {
        self.files.get(&id).and_then(|file| self.devices.get_mut(file.device))
    }

    /// Panics at the first bound that is broken, and at the first set or counter that differs from
    /// what the files themselves say.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn audit(&self, waiting: &BTreeSet<FileId>, wanting: &BTreeSet<FileId>, open: usize, chunks: usize) {
        assert!(self.creating <= self.open, "{} files are being made", self.creating);
        assert!(self.chunks <= self.order.chunks_max(), "{} chunks wanted", self.chunks);
        assert!(self.open <= LARGE_OPEN_MAX, "{} files open", self.open);
        assert_eq!(self.chunks, chunks, "chunks wanted");
        assert_eq!(self.open, open, "files open");
        let of_all = |of: fn(&SourceDevice) -> &BTreeSet<FileId>| -> BTreeSet<FileId> {
            self.devices.iter().flat_map(|device| of(device).iter().copied()).collect()
        };
        assert_eq!(&of_all(|device| &device.waiting), waiting, "files that wait for a descriptor");
        assert!(of_all(|device| &device.wanting).is_superset(wanting), "files whose chunks are never wanted");
        let sum = |of: fn(&SourceDevice) -> usize| self.devices.iter().map(of).sum::<usize>();
        assert_eq!(sum(|device| device.chunks), chunks, "chunks wanted of all devices");
        assert_eq!(sum(|device| device.open), open, "files open of all devices");
        assert_eq!(sum(|device| device.files), self.files.len(), "files of all devices");
        assert_eq!(self.files.values().map(|file| file.chunks).sum::<usize>(), chunks, "chunks wanted of all files");
        assert_eq!(
            self.files.values().map(|file| u128::from(file.len)).sum::<u128>(),
            self.bytes,
            "bytes of all files"
        );
    }
}

impl WantOrder {
    /// The most chunks that are asked for at once: one at least.
    fn chunks_max(self) -> usize {
        match self {
            WantOrder::Any => CHUNKS_WANTED_MAX,
            WantOrder::Sequence { chunks_max } | WantOrder::Spread { chunks_max, .. } => {
                chunks_max.clamp(1, CHUNKS_WANTED_MAX)
            }
        }
    }
}

/// The most large files that have a descriptor open at once.
pub(super) const LARGE_OPEN_MAX: usize = FILES_BEGUN_MAX;
/// The chunks of a file that are asked for at a turn where files take turns.
const CHUNKS_AT_A_TURN: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Files `from..from + count` of a device, opened as far as descriptors go, with chunks to ask
    /// for.
    fn open_files(window: &mut Window, ids: std::ops::Range<u64>, dev: u64) {
        ids.for_each(|id| window.queue(FileId(id), (dev, 1)));
        while let Some(id) = window.next_to_open() {
            window.dequeue(id);
            window.open(id);
            window.want_chunks_of(id);
        }
    }

    /// Asks for chunks of files that have no end, until there is no more room. Gives what each turn
    /// asked for.
    fn ask(window: &mut Window) -> Vec<(u64, u64)> {
        let turns = std::iter::from_fn(|| {
            let (id, room) = window.next_to_want()?;
            window.take(id, room as usize);
            Some((id.0, room))
        });
        turns.collect()
    }

    #[test]
    fn one_device_is_asked_in_the_order_of_the_manifest_for_all_there_is_room_for() {
        let mut window = Window::default();
        open_files(&mut window, 0..300, 7);
        assert_eq!(window.open, LARGE_OPEN_MAX);
        assert_eq!(ask(&mut window), [(0, CHUNKS_WANTED_MAX as u64)]);
        window.give_back(FileId(0), 3);
        assert_eq!(ask(&mut window), [(0, 3)]);
    }

    #[test]
    fn devices_share_the_room_however_many_files_of_one_come_first() {
        let mut window = Window::default();
        open_files(&mut window, 0..100, 1);
        open_files(&mut window, 100..101, 2);
        let half = CHUNKS_WANTED_MAX as u64 / 2;
        assert_eq!(ask(&mut window), [(0, half), (100, half)]);
        // What the fast device gives back is asked of it again.
        window.give_back(FileId(100), 5);
        assert_eq!(ask(&mut window), [(100, 5)]);
    }

    #[test]
    fn a_device_that_comes_late_gets_what_the_first_gives_back_until_both_have_the_same() {
        let mut window = Window::default();
        open_files(&mut window, 0..1, 1);
        assert_eq!(ask(&mut window).len(), 1);
        open_files(&mut window, 1..2, 2);
        for _ in 0..CHUNKS_WANTED_MAX / 2 {
            window.give_back(FileId(0), 1);
            assert_eq!(ask(&mut window), [(1, 1)]);
        }
        window.give_back(FileId(0), 1);
        assert_eq!(ask(&mut window), [(0, 1)], "now the first has the least");
    }

    #[test]
    fn descriptors_go_to_the_device_with_the_fewest_open_files() {
        let mut window = Window::default();
        open_files(&mut window, 0..1000, 1);
        open_files(&mut window, 1000..1010, 2);
        window.close(FileId(0));
        assert_eq!(window.next_to_open(), Some(FileId(1000)));
    }

    #[test]
    fn a_sender_that_names_a_device_for_each_file_costs_no_more_than_some_devices() {
        let mut window = Window::default();
        (0..5000).for_each(|id| window.queue(FileId(id), (id, 1)));
        assert_eq!(window.devices.len(), DEVICES_MAX);
        (0..5000).for_each(|id| window.forget(FileId(id), 0));
        assert!(window.files.is_empty() && window.devices.iter().all(|device| device.waiting.is_empty()));
        // A device that comes later has a share of its own again.
        window.queue(FileId(5000), (1 << 40, 1));
        window.queue(FileId(5001), ((1 << 40) + DEVICES_MAX as u64, 1));
        assert_ne!(window.files[&FileId(5000)].device, window.files[&FileId(5001)].device);
    }

    #[test]
    fn over_several_targets_few_files_are_begun_and_each_gets_as_many_chunks() {
        let mut window = Window::new(WantOrder::Spread { files_max: 3, chunks_max: 24 });
        (0..10).for_each(|id| window.queue(FileId(id), (1, 1)));
        let mut begun = Vec::new();
        while let Some(id) = window.next_to_open() {
            window.dequeue(id);
            window.open(id);
            window.want_chunks_of(id);
            begun.push(id.0);
        }
        assert_eq!(begun, [0, 1, 2]);
        let ask = |window: &mut Window| {
            while let Some((id, room)) = window.next_to_want() {
                window.take(id, room as usize);
            }
            begun.iter().map(|id| window.files[&FileId(*id)].chunks).collect::<Vec<_>>()
        };
        assert_eq!(ask(&mut window), [8, 8, 8]);
        // What others give back does not go to the one whose target is slow.
        for _ in 0..100 {
            window.give_back(FileId(0), 4);
            window.give_back(FileId(2), 4);
            assert_eq!(ask(&mut window), [8, 8, 8]);
        }
        window.want_no_more_of(FileId(0));
        window.give_back(FileId(0), 8);
        window.close(FileId(0));
        assert_eq!(window.next_to_open(), Some(FileId(3)));
    }
}
