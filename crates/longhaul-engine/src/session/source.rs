//! Owns the source side of a session: it turns orders into filled slots in the lanes' queue.
//!
//! In: orders from the sender's loop. Out: [`Ready`] units to the lanes, [`SourceDone`]s to the
//! loop. Each device of the sources has a queue of orders and a thread that feeds from it: to open
//! a file may take long on one device while the others could read. A slot is claimed before
//! anything is read; chunks are read by `disk` with its depth, bundles are packed by a few threads.
//! It knows no lanes and no messages.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use longhaul_core::digest::digest_of;
use longhaul_core::limits::DEVICES_MAX;
use longhaul_core::{
    Attempt, Blame, BundleId, ChunkSize, DigestKind, Fault, FaultCode, FileId, FileOffset, Losses, Unit, hint,
};
use longhaul_disk::{Affinity, ChunkIo, Identity, Medium, SourceFile, SourceRef, SourceTree, Sysfs, ThreadWork};
use longhaul_proto::sender::Small;
use longhaul_proto::wire::bundle::Packer;
use longhaul_sys::{Slab, Slot};
use tokio::sync::mpsc::UnboundedSender;

use super::device_orders::PACKERS;
use super::orders::{ChunkOrder, DeviceNumber, FileOrder, Order, Orders, Turn};
use super::unasked::{self, PackedUnasked};
use super::{FileResult, SessionEvent};
use crate::cpu::{Stage, StageTimes};
use crate::faults::system_fault;
use crate::lanes::worker::hole_costs::HoleCosts;
use crate::lanes::worker::send::{Ready, UnitPayload};
use crate::workers::Workers;

/// A report of the source side.
#[derive(Debug)]
pub(crate) enum SourceDone {
    /// A file of chunks cannot be read.
    Unreadable(FileId, Fault),
    /// A bundle was packed, or no file was left of it.
    Pack { bundle: BundleId, missing: Vec<(FileId, Fault)>, empty: bool },
    /// Whether a file still is the version that was listed.
    CheckSource(FileResult),
    /// Small files that are said unasked were read.
    PackUnasked(PackedUnasked),
}

/// The source of an entry, kept until the entry is settled.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Its place.
    pub(crate) at: SourceRef,
    /// The version of it that was listed.
    pub(crate) identity: Identity,
    /// Whether holes are left out.
    pub(crate) sparse: bool,
}

/// The source side's workers. Dropping them waits until no read is outstanding.
pub(crate) struct SourceWorkers {
    shared: Arc<SourceShared>,
    orders: Arc<Orders>,
    /// The number of each device that was ordered from, by its number in the system.
    devices: HashMap<u64, DeviceNumber>,
    /// The thread that feeds from each device, in the order of their numbers.
    feeders: Vec<JoinHandle<()>>,
    /// Where feeders put what is ready. `None` when there will be no more feeders.
    ready: Option<Sender<Ready>>,
    queue: Receiver<Ready>,
    pending: Pending,
    /// Held once by each check whether a file changed that has no answer yet.
    checks: Arc<()>,
    /// The time for which files that nobody asked for may be read.
    patience: Duration,
    /// How the chunks count that lie in holes.
    pub(super) holes: HoleCosts,
}

/// Held once by each order of which nothing is in the lanes' queue yet.
pub(super) type Pending = Arc<()>;

struct SourceShared {
    tree: Arc<dyn SourceTree>,
    slab: Arc<Slab>,
    io: ChunkIo,
    chunk: ChunkSize,
    times: StageTimes,
    sink: UnboundedSender<SessionEvent>,
    /// Files of chunks that are outstanding. An order for a file that is no longer here has come
    /// too late.
    open: Mutex<HashMap<FileId, Opened>>,
    packers: Workers,
    /// Held once by each order that the disk works on.
    at_disk: Arc<()>,
}

/// The state of an outstanding file of chunks.
#[derive(Clone, Debug)]
enum Opened {
    /// Its first chunk is not read yet.
    NotYet,
    /// It is open.
    Open(Arc<SourceFile>),
    /// It could not be opened, which was reported.
    Failed,
}

/// Small files that each packer has open, and the system fetching, ahead of the one it reads. With
/// 4, packers still wait for the disk; from 16 to 64 nothing changes.
const OPEN_AHEAD: usize = 16;

/// Checks that wait for the disk before no more entries are taken. A receiver may hold each file
/// whole that is named to it.
const CHECKS_WAITING_MAX: usize = 1024;

impl SourceWorkers {
    /// The metadata that the source could not give so far.
    pub(crate) fn losses(&self) -> Losses {
        self.shared.tree.losses()
    }

    /// The path of an entry, as messages show it.
    pub(crate) fn shown(&self, origin: &Origin) -> Vec<u8> {
        self.shared.tree.shown(&origin.at)
    }

    /// Starts the source side.
    pub(crate) fn start(
        tree: Arc<dyn SourceTree>,
        slab: Arc<Slab>,
        io: ChunkIo,
        chunk: ChunkSize,
        times: StageTimes,
        sink: UnboundedSender<SessionEvent>,
    ) -> Result<SourceWorkers, Fault> {
        let packers =
            Workers::start("pack", PACKERS, io.affinity()).map_err(|e| system_fault("packing threads", &e))?;
        let shared = Arc::new(SourceShared {
            tree,
            slab,
            io,
            chunk,
            times,
            sink,
            open: Mutex::default(),
            packers,
            at_disk: Arc::default(),
        });
        let (ready, queue) = unbounded();
        let mut workers = SourceWorkers {
            shared,
            orders: Arc::default(),
            devices: HashMap::new(),
            feeders: Vec::new(),
            ready: Some(ready),
            queue,
            pending: Arc::default(),
            checks: Arc::default(),
            patience: Duration::ZERO,
            holes: HoleCosts::default(),
        };
        workers.start_feeder(Medium::Unknown).map_err(|e| system_fault("the reading thread", &e))?;
        Ok(workers)
    }

    /// Starts the thread that feeds from another device of this kind.
    fn start_feeder(&mut self, medium: Medium) -> std::io::Result<()> {
        let Some(ready) = self.ready.clone() else { return Ok(()) };
        let (shared, orders, device) = (self.shared.clone(), self.orders.clone(), self.feeders.len());
        let name = if device == 0 { "feed".to_owned() } else { format!("feed-{device}") };
        let feeder = std::thread::Builder::new().name(name).spawn(move || {
            shared.io.affinity().bind(ThreadWork::Elsewhere("feed"));
            feed(&shared, &orders, device, &ready);
        })?;
        self.orders.set_device(device, medium);
        self.feeders.push(feeder);
        Ok(())
    }

    /// The same, with so much time to read files that nobody asked for; holes count so.
    pub(super) fn patient(mut self, patience: Duration, holes: HoleCosts) -> SourceWorkers {
        (self.patience, self.holes) = (patience, holes);
        self
    }

    /// The number of the device `dev`, which gets a feeder of its own if it is new.
    fn device(&mut self, dev: u64) -> DeviceNumber {
        if let Some(number) = self.devices.get(&dev) {
            return *number;
        }
        let (known, medium) = (self.devices.len(), Sysfs::default().device(dev).medium);
        let number = match known {
            // The first feeder was started when nothing was known of any device.
            0 => {
                self.orders.set_device(0, medium);
                0
            }
            DEVICES_MAX.. => known % DEVICES_MAX,
            _ => match self.start_feeder(medium) {
                Ok(()) => self.feeders.len() - 1,
                Err(error) => {
                    tracing::warn!(%error, "no thread for another device, which shares that of the first");
                    0
                }
            },
        };
        self.devices.insert(dev, number);
        number
    }

    /// The number of devices that were ordered from and do not share a feeder; at least 1.
    pub(crate) fn devices(&self) -> usize {
        self.feeders.len()
    }

    /// Sets how many buffers all devices share.
    pub(crate) fn set_slots(&self, slots: usize) {
        self.orders.set_slots(slots);
    }

    /// Where the threads of this side run.
    pub(crate) fn affinity(&self) -> Affinity {
        self.shared.io.affinity().clone()
    }

    /// The queue from which lanes take units. It ends when [`SourceWorkers`] was closed and every
    /// order is through.
    pub(crate) fn queue(&self) -> Receiver<Ready> {
        self.queue.clone()
    }

    /// Whether there are orders, and no unit of theirs is there for a lane to take.
    pub(crate) fn is_behind(&self) -> bool {
        Arc::strong_count(&self.pending) > 1 && self.queue.is_empty()
    }

    /// Whether the disk has anything to do. An order that waits for a buffer gives it nothing.
    pub(crate) fn is_at_work(&self) -> bool {
        Arc::strong_count(&self.shared.at_disk) > 1 || Arc::strong_count(&self.checks) > 1
    }

    /// Orders a chunk.
    pub(crate) fn chunk(&mut self, chunk: ChunkOrder) {
        lock(&self.shared.open).entry(chunk.file).or_insert(Opened::NotYet);
        let device = self.device(chunk.origin.identity.dev);
        self.orders.push(device, Order::Chunk(chunk), self.pending.clone());
    }

    /// Orders a bundle. It is read with those of the device of its first file: neighbours in the
    /// manifest lie on one device, but where another one is mounted.
    pub(super) fn bundle(&mut self, bundle: BundleId, attempt: Attempt, files: impl Iterator<Item = FileOrder>) {
        let files: Vec<_> = files.map(Some).collect();
        let first = files.iter().flatten().next();
        let device = first.map_or(0, |(_, origin)| self.device(origin.identity.dev));
        self.orders.push(device, Order::Bundle { bundle, attempt, files }, self.pending.clone());
    }

    /// Has small files read that are said unasked. When `patience` is over, none are reported if
    /// they are not read yet; that they are is reported all the same then.
    pub(super) fn pack_unasked(&self, files: Vec<FileOrder>) {
        let (sink, patience) = (self.shared.sink.clone(), self.patience);
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            let _ = sink.send(SessionEvent::Read(SourceDone::PackUnasked(PackedUnasked::default())));
        });
        let (shared, at_disk) = (self.shared.clone(), self.shared.at_disk.clone());
        self.shared.packers.run(move || {
            let _at_disk = at_disk;
            let packed = shared.times.count(Stage::Files, || unasked::pack(&*shared.tree, &files));
            let _ = shared.sink.send(SessionEvent::Read(SourceDone::PackUnasked(packed)));
        });
    }

    /// Whether more checks wait for the disk than it answers in a moment.
    pub(crate) fn is_swamped(&self) -> bool {
        Arc::strong_count(&self.checks) > CHECKS_WAITING_MAX
    }

    /// Stops or resumes the beginning of orders.
    pub(crate) fn hold(&self, is_held: bool) {
        self.orders.hold(is_held);
    }

    /// Checks whether a file still is the version that was listed. A file of which nothing had to
    /// be read is opened for that.
    pub(crate) fn check(&self, file: FileId, origin: Arc<Origin>) {
        lock(&self.shared.open).entry(file).or_insert(Opened::NotYet);
        let (shared, sink, waiting) = (self.shared.clone(), self.shared.sink.clone(), self.checks.clone());
        self.shared.packers.run(move || {
            let result = match shared.opened(file, &origin).map(|source| source.unchanged()) {
                Some(Ok(true)) => Ok(()),
                Some(Err(e)) => Err(e.into()),
                // Opened by its name as it is now: it may be gone.
                Some(Ok(false)) => {
                    Err(shared.tree.open(&origin.at, &origin.identity).map_or_else(|e| e.fault(), |_| changed()))
                }
                // A file that does not open any more is reported as such before this.
                None => Err(changed()),
            };
            drop(waiting);
            let _ = sink.send(SessionEvent::Read(SourceDone::CheckSource((file, result))));
        });
    }

    /// Closes a file. Its orders that were not begun are dropped with their names.
    pub(crate) fn forget(&self, file: FileId) {
        self.orders.forget(file);
        lock(&self.shared.open).remove(&file);
    }

    /// Takes no more orders. The lanes' queue ends after the last one.
    pub(crate) fn close(&mut self) {
        self.ready = None;
        self.orders.close();
    }
}

impl Drop for SourceWorkers {
    fn drop(&mut self) {
        self.close();
        self.shared.slab.close();
        for feeder in self.feeders.drain(..) {
            let _ = feeder.join();
        }
    }
}

/// Carries out the orders of a device one after the other, as slots become free.
fn feed(shared: &Arc<SourceShared>, orders: &Arc<Orders>, device: DeviceNumber, ready: &Sender<Ready>) {
    while let Some((order, pending, turn)) = orders.take(device) {
        let alive = match order {
            Order::Chunk(chunk) => shared.feed_chunk(&chunk, (pending, turn), ready),
            Order::Bundle { bundle, attempt, files } => {
                let wanted = files.into_iter().flatten().collect();
                shared.feed_bundle((bundle, attempt), wanted, (pending, turn), ready)
            }
        };
        if alive.is_none() {
            return;
        }
    }
}

impl SourceShared {
    /// Reads one chunk into a slot of its own. `None` when there are no more slots for this
    /// session.
    fn feed_chunk(
        self: &Arc<Self>,
        chunk: &ChunkOrder,
        (pending, turn): (Pending, Turn),
        ready: &Sender<Ready>,
    ) -> Option<()> {
        let ChunkOrder { file, index, attempt, map, expect, ref origin } = *chunk;
        let unit = Unit::Chunk { file, index };
        let at_disk = self.at_disk.clone();
        let Some(source) = self.opened(file, origin) else { return Some(()) };
        let (start, len) = (map.start_of(index), map.len_of(index)?);
        let made =
            move |payload| Ready { unit, attempt, payload, len, expect, digest: map.kind(), start, chunk: map.size() };
        if origin.sparse && matches!(source.data_in(start.0, len), Ok(false)) {
            let _ = ready.send(made(UnitPayload::Hole));
            return Some(());
        }
        drop(at_disk);
        let slot = self.slab.claim()?;
        let (ready, shared, at_disk) = (ready.clone(), self.clone(), self.at_disk.clone());
        let done = move |slot: Slot, result: Result<(), longhaul_disk::DiskError>| {
            drop((at_disk, turn));
            match result {
                Ok(()) => drop(ready.send(made(UnitPayload::Slot(slot)))),
                Err(e) => shared.unreadable(file, e.fault()),
            }
            drop(pending);
        };
        self.io.read(source, start.0, len as usize, slot, Box::new(done));
        Some(())
    }

    /// The open file. It is opened at its first chunk; a file that does not open is reported once
    /// and skipped from then on.
    fn opened(&self, file: FileId, origin: &Origin) -> Option<Arc<SourceFile>> {
        match lock(&self.open).get(&file)? {
            Opened::Open(source) => return Some(source.clone()),
            Opened::Failed => return None,
            Opened::NotYet => {}
        }
        let opened = match self.tree.open(&origin.at, &origin.identity) {
            Ok(source) => Opened::Open(source),
            Err(e) => {
                self.unreadable(file, e.fault());
                Opened::Failed
            }
        };
        // If the file was settled while it was opened, it is closed again here.
        let mut open = lock(&self.open);
        let known = open.get_mut(&file)?;
        *known = opened.clone();
        match opened {
            Opened::Open(source) => Some(source),
            _ => None,
        }
    }

    fn unreadable(&self, file: FileId, fault: Fault) {
        let _ = self.sink.send(SessionEvent::Read(SourceDone::Unreadable(file, fault)));
    }

    /// Packs a bundle on one of the packing threads. `None` when there are no more slots for this
    /// session.
    fn feed_bundle(
        self: &Arc<Self>,
        (bundle, attempt): (BundleId, Attempt),
        files: Vec<FileOrder>,
        (pending, turn): (Pending, Turn),
        ready: &Sender<Ready>,
    ) -> Option<()> {
        if files.is_empty() {
            let _ = self.sink.send(SessionEvent::Read(SourceDone::Pack { bundle, missing: Vec::new(), empty: true }));
            return Some(());
        }
        let mut slot = self.slab.claim()?;
        let (ready, shared, at_disk) = (ready.clone(), self.clone(), self.at_disk.clone());
        self.packers.run(move || {
            let _at_disk = at_disk;
            let times = shared.times.clone();
            let (len, kept, missing) = times.count(Stage::Files, || pack(&*shared.tree, &mut slot, &files));
            drop(turn);
            let empty = kept == 0;
            let _ = shared.sink.send(SessionEvent::Read(SourceDone::Pack { bundle, missing, empty }));
            if !empty {
                let _ = ready.send(Ready {
                    unit: Unit::Bundle(bundle),
                    attempt,
                    payload: UnitPayload::Slot(slot),
                    len: len as u64,
                    expect: None,
                    digest: DigestKind::Root,
                    start: FileOffset(0),
                    chunk: shared.chunk,
                });
            }
            drop(pending);
        });
        Some(())
    }
}

/// Reads the files into a bundle in `unit`. Returns its length, the number of files in it, and the
/// files that are missing.
pub(super) fn pack(
    tree: &dyn SourceTree,
    unit: &mut [u8],
    files: &[FileOrder],
) -> (usize, usize, Vec<(FileId, Fault)>) {
    let mut packer = Packer::new(unit, files.len());
    let mut missing = Vec::new();
    let mut opening = files.iter().map(|(small, origin)| {
        let opened = tree.open_small(&origin.at, &origin.identity);
        (*small, opened)
    });
    let mut ahead: VecDeque<_> = opening.by_ref().take(OPEN_AHEAD).collect();
    while let Some((Small { file, len, standing_root: stands }, opened)) = ahead.pop_front() {
        ahead.extend(opening.next());
        let len = len as usize;
        let Some(space) = packer.space(len) else {
            missing.push((file, Fault::new(FaultCode::Internal, Blame::Bug, "a bundle outgrew its buffer")));
            continue;
        };
        match opened.and_then(|source| source.read(space)) {
            Ok(()) => {
                let root = *digest_of(space, DigestKind::Root, FileOffset(0)).bytes();
                match stands == Some(root) {
                    true => packer.keep_same(file, len, root),
                    false => packer.keep(file, len, root),
                }
            }
            Err(e) => missing.push((file, e.fault())),
        }
    }
    let (len, kept) = packer.finish();
    (len, kept, missing)
}

fn changed() -> Fault {
    Fault::new(FaultCode::Changed, Blame::Local, "the source changed while it was sent").hint(hint::Again::AtRest)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
