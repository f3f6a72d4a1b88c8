//! The sender's session loop: one machine, one source side, the lanes that empty it.
//!
//! `wait` changes nothing, `absorb` is synchronous, `settle` has done what the machine orders. Scanned entries are
//! taken only while the machine has room, so that the scan goes no faster than the receiver's credit.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::filter::Filter;
use longhaul_core::{Blame, ChunkSize, Entry, EntryKind, Fault, FaultCode, FileId, Meta, Preserve, RelPath};
use longhaul_disk::{ChunkIo, ScanRequest, Scanned, SourceTree};
use longhaul_proto::Message;
use longhaul_proto::receiver::{Held, Landing};
use longhaul_proto::sender::{Action, Config, Sender};
use longhaul_proto::wire::message::{Ending, Outcome};
use longhaul_sys::Slab;
use tokio::sync::mpsc;

use super::link::Wake;
use super::reading::{ChunkOrder, Origin, Reading, Report};
use super::receive::tell_settled;
use super::{Event, Link};
use crate::api::{self, Progress};
use crate::faults::system_fault;
use crate::lane;
use crate::report::Totals;

/// What a sending session works with.
pub(crate) struct Sending {
    /// Where it reads.
    pub(crate) tree: Arc<dyn SourceTree>,
    /// Its buffers.
    pub(crate) slab: Arc<Slab>,
    /// Its chunk I/O.
    pub(crate) io: ChunkIo,
    /// What was agreed.
    pub(crate) chunk: ChunkSize,
    pub(crate) chunk_max: ChunkSize,
    pub(crate) bundled_max: u64,
    /// What of the sources is sent.
    pub(crate) filter: Filter,
    pub(crate) names: Option<Vec<RelPath>>,
    pub(crate) preserve: Preserve,
}

struct Loop {
    link: Link,
    machine: Sender,
    reading: Reading,
    scan: Option<mpsc::Receiver<Scanned>>,
    outstanding: HashMap<FileId, (Arc<Held>, Source)>,
    landing: Landing,
    preserve: Preserve,
    totals: Totals,
    told: u64,
    verdict: Option<Result<Ending, Fault>>,
    told_by_peer: bool,
}

/// What this side knows of an entry that the receiver does not.
enum Source {
    /// Where to read it.
    Readable(Origin),
    /// Why it cannot be read, with more than is told the receiver.
    Failed(Fault),
    /// It is never read.
    Special,
}

/// Runs a sending session to its end.
pub(crate) async fn run(mut link: Link, sending: Sending) -> Totals {
    let Sending { tree, slab, io, chunk, chunk_max, bundled_max, filter, names, preserve } = sending;
    let started = Reading::start(tree.clone(), slab, io.clone(), chunk, link.times.clone(), link.sink())
        .and_then(|reading| Ok((reading, start_scan(tree, filter, names, preserve)?)));
    let (reading, scan) = match started {
        Ok(started) => started,
        Err(fault) => {
            link.refuse(&fault, false);
            link.end().await;
            return Totals::ended_by(fault);
        }
    };
    let mut this = Loop {
        link,
        machine: Sender::new(Config { chunk, chunk_max, bundled_max }),
        reading,
        scan: Some(scan),
        outstanding: HashMap::new(),
        landing: Landing::beneath(),
        preserve,
        totals: Totals::default(),
        told: 0,
        verdict: None,
        told_by_peer: false,
    };
    while this.verdict.is_none() {
        let wake = match &mut this.scan {
            Some(scan) if this.machine.has_room() => tokio::select! {
                biased;
                wake = this.link.wait(None) => Some(wake),
                scanned = scan.recv() => {
                    this.take_scanned(scanned);
                    None
                }
            },
            _ => Some(this.link.wait(None).await),
        };
        if let Some(wake) = wake {
            this.absorb(wake);
        }
        this.take_ready();
        this.settle();
    }
    this.finish(io).await
}

/// Scanned entries that wait for the loop: enough for a page, so that a page fills without a wait for each entry.
const SCAN_AHEAD: usize = 2 * longhaul_core::limits::PAGE_ENTRIES_MAX;

fn start_scan(
    tree: Arc<dyn SourceTree>,
    filter: Filter,
    files_from: Option<Vec<RelPath>>,
    preserve: Preserve,
) -> Result<mpsc::Receiver<Scanned>, Fault> {
    let (tx, rx) = mpsc::channel(SCAN_AHEAD);
    let scan = move || {
        let request = ScanRequest { filter: &filter, preserve, files_from };
        tree.scan(&request, &mut |scanned| match tx.blocking_send(scanned) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        });
    };
    std::thread::Builder::new()
        .name("scan".to_owned())
        .spawn(scan)
        .map_err(|e| system_fault("the scanning thread", &e))?;
    Ok(rx)
}

impl Loop {
    /// Takes what else was scanned or happened already, as far as there is room.
    fn take_ready(&mut self) {
        while let Some(wake) = self.link.try_next() {
            self.absorb(wake);
        }
        while self.machine.has_room()
            && let Some(scan) = &mut self.scan
        {
            match scan.try_recv() {
                Ok(scanned) => self.take_scanned(Some(scanned)),
                Err(mpsc::error::TryRecvError::Empty) => return self.machine.handle_scan_idle(),
                Err(mpsc::error::TryRecvError::Disconnected) => self.take_scanned(None),
            }
        }
    }

    fn take_scanned(&mut self, scanned: Option<Scanned>) {
        match scanned {
            None => {
                self.scan = None;
                self.totals.scanned = true;
                self.machine.handle_scan_end();
            }
            Some(Scanned::Entry { entry, source, identity }) => {
                let sparse = self.preserve.sparse && matches!(entry.kind, EntryKind::File { sparse: true, .. });
                self.offer(entry, Source::Readable(Origin { at: source, identity, sparse }));
            }
            Some(Scanned::Skipped { path, why }) => {
                self.offer(unsent(path, None, why.to_owned()), Source::Special);
            }
            Some(Scanned::Failed { path, error }) => {
                let fault = error.fault();
                self.offer(unsent(path, Some(fault.code), fault.message.clone()), Source::Failed(fault));
            }
        }
    }

    fn offer(&mut self, entry: Entry, source: Source) {
        self.totals.found(&entry.kind);
        let placed = self.place(&entry);
        let id = self.machine.handle_scanned(entry.clone());
        self.outstanding.insert(id, (Arc::new(Held { id, entry, placed }), source));
    }

    /// Where the receiver says that it puts an entry; its own name if it does not say.
    fn place(&mut self, entry: &Entry) -> RelPath {
        self.landing.place(&entry.path).unwrap_or_else(|_| entry.path.clone())
    }

    fn absorb(&mut self, wake: Wake) {
        match wake {
            Wake::Time => {}
            Wake::Stop(fault) => self.machine.abort(fault),
            Wake::Event(Event::Control(message)) => self.hear(message),
            Wake::Event(Event::Lane(joined)) => {
                let (queue, times, sink) = (self.reading.queue(), self.link.times.clone(), self.link.sink());
                let started = self.link.start_lane(joined, move |stream, id| {
                    lane::send::run(stream, id, &queue, &times, |sent| drop(sink.send(Event::Sent(sent))))
                });
                if let Err(fault) = started {
                    self.machine.abort(fault);
                }
            }
            Wake::Event(Event::Sent(sent)) => self.machine.handle_sent(sent),
            Wake::Event(Event::Read(Report::Unreadable(file, fault))) => self.machine.handle_unreadable(file, &fault),
            Wake::Event(Event::Read(Report::Packed { bundle, missing, empty })) => {
                self.machine.handle_packed(bundle, missing, empty)
            }
            Wake::Event(Event::Read(Report::Checked((file, result)))) => self.machine.handle_checked(file, result),
            Wake::Event(Event::ControlEnded(_) | Event::LaneEnded(_) | Event::Arrived(_) | Event::Wrote(_)) => {}
        }
    }

    fn hear(&mut self, message: Message) {
        self.told_by_peer |= matches!(message, Message::Refuse(_));
        if let Message::Offer(offer) = &message
            && let Some(name) = &offer.renamed
        {
            self.landing = Landing::beneath().renamed_to(name.clone());
        }
        self.machine.handle_message(message);
    }

    fn settle(&mut self) {
        while self.verdict.is_none()
            && let Some(action) = self.machine.poll_action()
        {
            self.act(action);
        }
        let second = self.link.seconds() as u64;
        if self.verdict.is_none() && second > self.told {
            self.told = second;
            self.link.observer.event(api::Event::Progress(self.progress()));
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send(Message::Bye(ending)) => {
                let cpu_us = self.link.cpu_us();
                self.link.ending = true;
                self.link.say(Message::Bye(Ending { cpu_us, ..ending }));
            }
            Action::Send(message) => self.link.say(message),
            Action::ReadChunk { file, index, attempt, map, expect } => {
                if let Some((_, Source::Readable(origin))) = self.outstanding.get(&file) {
                    self.reading.chunk(ChunkOrder { file, index, attempt, map, expect, origin: origin.clone() });
                }
            }
            Action::Pack { bundle, attempt, files } => {
                let origin = |(id, len)| match self.outstanding.get(&id) {
                    Some((_, Source::Readable(origin))) => Some((id, len, origin.clone())),
                    _ => None,
                };
                self.reading.bundle(bundle, attempt, files.into_iter().filter_map(origin).collect());
            }
            Action::CheckSource(file) => {
                if let Some((_, Source::Readable(origin))) = self.outstanding.get(&file) {
                    self.reading.check(file, origin.clone());
                }
            }
            Action::Settled(file, outcome) => self.settled(file, outcome),
            Action::Finished(ending) => self.verdict = Some(Ok(ending)),
            Action::Abort(fault) => self.verdict = Some(Err(fault)),
        }
    }

    fn settled(&mut self, file: FileId, outcome: Outcome) {
        self.reading.forget(file);
        let Some((held, source)) = self.outstanding.remove(&file) else { return };
        let outcome = match (outcome, source) {
            (Outcome::Failed(_), Source::Failed(fault)) => Outcome::Failed(fault),
            (Outcome::Failed(fault), _) => Outcome::Failed(fault.seen_from_afar()),
            (other, _) => other,
        };
        tell_settled(&held, outcome, &mut self.totals, &*self.link.observer);
    }

    fn progress(&self) -> Progress {
        let tally = self.machine.tally();
        Progress {
            seconds: self.link.seconds(),
            bytes_sent: self.machine.bytes_sent().0,
            bytes_received: tally.received,
            bytes_durable: tally.durable,
            bytes_committed: tally.committed,
            files_committed: tally.files,
            ..self.totals.progress()
        }
    }

    /// Ends everything in order: the lanes' queue, the lanes, the reads.
    async fn finish(mut self, io: ChunkIo) -> Totals {
        match self.verdict.take() {
            Some(Ok(ending)) => self.totals.receiver_cpu_us = Some(ending.cpu_us),
            Some(Err(fault)) => {
                self.link.refuse(&fault, self.told_by_peer);
                self.totals.fault = Some(fault);
            }
            None => {
                self.totals.fault = Some(Fault::new(FaultCode::Internal, Blame::Bug, "a session without a verdict"))
            }
        }
        self.totals.bytes_resent = self.machine.bytes_sent().1;
        self.totals.bytes_resumed = self.machine.tally().resumed;
        self.totals.sender_cpu_us = Some(self.link.cpu_us());
        self.totals.seconds = self.link.seconds();
        self.link.observer.event(api::Event::Progress(self.progress()));
        self.totals.io = Some(io.report());
        self.totals.stages = self.link.times.seconds();
        self.scan = None;
        self.reading.close();
        let Loop { link, reading, totals, .. } = self;
        // The lanes' queue ends when the last read is through, so reading goes first.
        let _ = tokio::task::spawn_blocking(move || drop((reading, io))).await;
        link.end().await;
        totals
    }
}

/// The entry of something that is not sent.
fn unsent(path: RelPath, failure: Option<FaultCode>, why: String) -> Entry {
    Entry { path, kind: EntryKind::Unsent { failure, why }, meta: Meta::default() }
}
