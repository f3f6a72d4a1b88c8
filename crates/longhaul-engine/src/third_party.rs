//! Words the events and the report of a run for the control connection on which a client follows
//! an order, and reads them there.
//!
//! In: events and a report of this side, or messages of the other. Out: the other of the two. It
//! knows no connection and carries out nothing.

use std::time::Duration;

use longhaul_core::{Loss, PlainText, Word};
use longhaul_proto::wire::message::{
    Limited as SaidLimited, OrderBytes, OrderEnd, OrderEvent, OrderFile, OrderFiles, OrderOutcome, OrderProgress,
    OrderStart, OrderSum, OrderUnsent, OrderVerdict, Transport as SaidTransport,
};

use crate::api::{
    Direction, Event, FileEvent, FileStatus, LaneKind, Limited, LossAt, MetadataLoss, OwnFacts, Progress, Redial,
    Report, SkipReason, Start, StartNote, WayFigures,
};
use crate::session::handshake;
use longhaul_net::Protection;

/// The event as it is told to whoever follows. `None` if it is told otherwise, or not at all.
pub(crate) fn said(event: &Event) -> Option<OrderEvent> {
    Some(match event {
        Event::Start(start) => OrderEvent::Started(said_start(start)),
        Event::Progress(progress) => OrderEvent::Moved(said_progress(progress)),
        Event::File(file) => OrderEvent::Settled(Box::new(said_file(file))),
        Event::Skipped { path, placed, reason, message } => OrderEvent::Unsent(OrderUnsent {
            path: path.clone(),
            placed: placed.clone(),
            reason: PlainText::from(&*match reason {
                SkipReason::Other(words) => words.to_string(),
                known => known.name().to_owned(),
            }),
            message: PlainText::from(&**message),
        }),
        Event::Redial(redial) => OrderEvent::Lost(redial.fault.clone(), millis(redial.wait.as_secs_f64())),
        Event::Redialled(session) => OrderEvent::Restarted(unhex(session)),
        Event::NotKept(MetadataLoss { at, kind, reason, entries, first }) => OrderEvent::NotKept {
            at_source: *at == LossAt::Source,
            loss: Loss { kind: *kind, reason: *reason, entries: *entries, first: first.clone() },
        },
        // The end of the order carries the same fault. Lanes, paths and targets are the other
        // host's, and its log tells of them.
        _ => return None,
    })
}

/// The event that was told.
pub(crate) fn heard(said: OrderEvent) -> Event {
    match said {
        OrderEvent::Started(start) => Event::Start(heard_start(start)),
        OrderEvent::Moved(progress) => Event::Progress(heard_progress(&progress)),
        OrderEvent::Settled(file) => Event::File(heard_file(*file)),
        OrderEvent::Unsent(OrderUnsent { path, placed, reason, message }) => {
            Event::Skipped { path, placed, reason: SkipReason::of(&reason), message: message.to_string() }
        }
        OrderEvent::Lost(fault, wait) => {
            Event::Redial(Redial { fault: fault.seen_from_afar(), wait: Duration::from_millis(wait) })
        }
        OrderEvent::Restarted(session) => Event::Redialled(hex(&session)),
        OrderEvent::NotKept { at_source, loss: Loss { kind, reason, entries, first } } => {
            let at = if at_source { LossAt::Source } else { LossAt::Destination };
            Event::NotKept(MetadataLoss { at, kind, reason, entries, first })
        }
        OrderEvent::Unheard(names) => Event::Unheard(names),
    }
}

/// The start of a run as it is told.
pub(crate) fn said_start(start: &Start) -> OrderStart {
    OrderStart {
        session: unhex(&start.session),
        transport: match start.transport {
            LaneKind::Quic => SaidTransport::Quic,
            LaneKind::Ssh => SaidTransport::Ssh,
            LaneKind::Udp => SaidTransport::Udp,
            LaneKind::Tcp | LaneKind::Pair => SaidTransport::Tcp,
        },
        protect: handshake::to_wire(start.protect),
        lanes: start.lanes,
        chunk: start.chunk,
        congestion: Word::try_from(start.congestion.as_str()).unwrap_or_default(),
        caps: handshake::receiver_caps(start.sync),
    }
}

fn heard_start(start: OrderStart) -> Start {
    let protect = handshake::from_wire(start.protect);
    Start {
        session: hex(&start.session),
        direction: Direction::ThirdParty,
        transport: match start.transport {
            SaidTransport::Tcp => LaneKind::Tcp,
            SaidTransport::Quic => LaneKind::Quic,
            SaidTransport::Ssh => LaneKind::Ssh,
            SaidTransport::Udp => LaneKind::Udp,
        },
        protect,
        lanes: start.lanes,
        chunk: start.chunk,
        congestion: start.congestion.to_string(),
        sync: handshake::sync_said(start.caps),
        notes: if protect == Protection::Safe { vec![StartNote::NotEncrypted] } else { Vec::new() },
    }
}

fn said_progress(progress: &Progress) -> OrderProgress {
    OrderProgress {
        millis: millis(progress.seconds),
        found: OrderSum { files: progress.files_total, bytes: progress.bytes_total },
        scanned: progress.scanned,
        committed: OrderSum { files: progress.files_committed, bytes: progress.bytes_committed },
        without: OrderSum { files: progress.files_done_without, bytes: progress.bytes_done_without },
        received: progress.bytes_received,
        arrived: progress.bytes_arrived,
        resumed: progress.bytes_resumed,
        durable: progress.bytes_durable,
        limited: progress.limited_by.map(|limited| SaidLimited::new(limited.by, limited.share)),
    }
}

fn heard_progress(said: &OrderProgress) -> Progress {
    let seconds = said.millis as f64 / 1e3;
    Progress {
        seconds,
        counted_s: seconds,
        files_total: said.found.files,
        bytes_total: said.found.bytes,
        scanned: said.scanned,
        files_committed: said.committed.files,
        bytes_received: said.received,
        bytes_arrived: said.arrived,
        bytes_resumed: said.resumed,
        bytes_durable: said.durable,
        bytes_committed: said.committed.bytes,
        bytes_done_without: said.without.bytes,
        files_done_without: said.without.files,
        limited_by: said.limited.map(Limited::from),
        ..Progress::default()
    }
}

fn said_file(file: &FileEvent) -> OrderFile {
    OrderFile {
        path: file.path.clone(),
        placed: file.placed.clone(),
        outcome: match &file.status {
            FileStatus::Committed => OrderOutcome::Committed,
            FileStatus::Staged => OrderOutcome::Staged,
            FileStatus::Skipped => OrderOutcome::Skipped,
            FileStatus::Linked => OrderOutcome::Linked,
            FileStatus::Planned => OrderOutcome::Planned,
            FileStatus::Failed(fault) => OrderOutcome::Failed(fault.clone()),
        },
        bytes: file.bytes,
        b3: file.b3,
        regular: file.regular,
        renamed: file.renamed,
        replaced: file.own.stood,
        sums: file.sums.clone(),
    }
}

fn heard_file(said: OrderFile) -> FileEvent {
    FileEvent {
        path: said.path,
        placed: said.placed,
        status: match said.outcome {
            OrderOutcome::Committed => FileStatus::Committed,
            OrderOutcome::Staged => FileStatus::Staged,
            OrderOutcome::Skipped => FileStatus::Skipped,
            OrderOutcome::Linked => FileStatus::Linked,
            OrderOutcome::Planned => FileStatus::Planned,
            OrderOutcome::Failed(fault) => FileStatus::Failed(fault.seen_from_afar()),
        },
        bytes: said.bytes,
        b3: said.b3,
        regular: said.regular,
        renamed: said.renamed,
        own: OwnFacts { replaced: said.replaced == Some(true), stood: said.replaced, source: None },
        sums: said.sums,
    }
}

/// The report of a run as it is told at the end of an order.
pub(crate) fn said_end(report: &Report) -> OrderEnd {
    OrderEnd {
        verdict: report.fault.clone().map_or(OrderVerdict::Complete, OrderVerdict::Ended),
        files: OrderFiles {
            committed: report.files_committed,
            skipped: report.files_skipped,
            failed: report.files_failed,
            changed: report.files_changed,
            mismatched: report.files_mismatched,
            total: report.files_total,
        },
        bytes: OrderBytes {
            committed: report.bytes_committed,
            moved: report.bytes_moved,
            holes: report.bytes_holes,
            wanted: report.bytes_wanted,
            resent: report.bytes_resent,
            resumed: report.bytes_resumed,
            held: report.bytes_held,
            read_back: report.bytes_read_back,
            misread: report.bytes_misread,
        },
        failures: report.failures.clone(),
        scanned: report.scanned,
        millis: millis(report.seconds),
        limits: report.limits.iter().map(|limited| SaidLimited::new(limited.by, limited.share)).collect(),
    }
}

/// The report that was told.
pub(crate) fn heard_end(said: OrderEnd) -> Report {
    let OrderEnd { verdict, files, bytes, failures, scanned, millis, limits } = said;
    Report {
        fault: match verdict {
            OrderVerdict::Complete => None,
            OrderVerdict::Ended(fault) => Some(fault.seen_from_afar()),
        },
        failures,
        files_committed: files.committed,
        files_skipped: files.skipped,
        files_failed: files.failed,
        files_changed: files.changed,
        files_mismatched: files.mismatched,
        files_total: files.total,
        bytes_committed: bytes.committed,
        bytes_moved: bytes.moved,
        bytes_holes: bytes.holes,
        bytes_wanted: bytes.wanted,
        scanned,
        bytes_resent: bytes.resent,
        bytes_resumed: bytes.resumed,
        bytes_held: bytes.held,
        bytes_read_back: bytes.read_back,
        bytes_misread: bytes.misread,
        bytes_digested: 0,
        seconds: millis as f64 / 1e3,
        sender_cpu: None,
        receiver_cpu: None,
        limits: limits.into_iter().map(Limited::from).collect(),
        stages: Vec::new(),
        io: None,
        ways: WayFigures::default(),
        troubled_targets: Vec::new(),
        files_at_risk: 0,
    }
}

fn millis(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e3).round() as u64
}

/// 16 bytes as 32 hexadecimal digits.
pub(crate) fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of such a text. Zeros where it is none.
fn unhex(text: &str) -> [u8; 16] {
    u128::from_str_radix(text, 16).unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use longhaul_core::{Blame, ChunkSize, Fault, FaultCode, RelPath};
    use longhaul_proto::Message;
    use longhaul_proto::wire::message::Limit;

    use super::*;

    /// The event that a client hears of this one.
    fn passed(event: &Event) -> String {
        let message = Message::OrderEvents(said(event).into_iter().collect()).encode();
        let Ok(Message::OrderEvents(events)) = Message::decode(&message[4..]) else { panic!("events") };
        format!("{:?}", events.into_iter().map(heard).collect::<Vec<_>>())
    }

    #[test]
    fn a_client_hears_of_files_and_counters_what_the_daemon_told() {
        let file = FileEvent {
            path: RelPath::new("a/b").expect("a path"),
            placed: RelPath::new("c/b").expect("a path"),
            status: FileStatus::Committed,
            bytes: 7,
            b3: Some([5; 32]),
            regular: true,
            renamed: true,
            own: OwnFacts { replaced: true, stood: Some(true), source: None },
            sums: Default::default(),
        };
        let progress = Progress {
            seconds: 1.5,
            counted_s: 1.5,
            files_total: 9,
            bytes_total: 10,
            scanned: true,
            bytes_durable: 11,
            limited_by: Some(Limited { by: Limit::Target, share: 0.5 }),
            ..Progress::default()
        };
        let session = hex(&[0xab; 16]);
        for event in [Event::File(file), Event::Progress(progress), Event::Redialled(session)] {
            assert_eq!(passed(&event), format!("[{event:?}]"));
        }
        assert_eq!(passed(&Event::Fault(Fault::new(FaultCode::Lost, Blame::Path, "x"))), "[]");
    }

    #[test]
    fn a_start_names_the_lanes_and_the_way() {
        let start = Start {
            session: hex(&[7; 16]),
            direction: Direction::Pull,
            transport: LaneKind::Udp,
            protect: Protection::Safe,
            lanes: 3,
            chunk: ChunkSize::DEFAULT,
            congestion: "bbr".to_owned(),
            sync: None,
            notes: Vec::new(),
        };
        let notes = vec![StartNote::NotEncrypted];
        let want = Event::Start(Start { direction: Direction::ThirdParty, notes, ..start.clone() });
        assert_eq!(passed(&Event::Start(start)), format!("[{want:?}]"));
    }
}
