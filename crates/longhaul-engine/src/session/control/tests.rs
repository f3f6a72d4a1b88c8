//! Links and whole sessions against a peer that is spoken by hand. Mostly it writes and never
//! reads, and the memory that they hold is counted.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_core::Blame;
use longhaul_core::{Algorithms, ChunkSize, Entry, EntryKind, FileId, IfExists, Meta, PathShare, Preserve, RelPath};
use longhaul_disk::{
    Affinity, DiskError, EngineKind, Identity, ScanRequest, Scanned, SourceFile, SourceRef, SourceTree, VoidSource,
    VoidTarget,
};
use longhaul_proto::receiver::{Landing, Policy, ReceiverConfig, SyncGroup};
use longhaul_proto::wire::message::{Offer, Outcome, Page, PageCredit, Settlement, Transport};
use tokio::io::{AsyncWriteExt, DuplexStream, WriteHalf as Half, duplex, split};
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::api;
use crate::budget::{MemoryPlan, SessionBuffers};
use crate::lanes::replace::Replacement;
use crate::lanes::rules::TransportChanges;
use crate::lanes::udp::path::UdpPath;
use crate::lanes::worker::hole_costs::HoleCosts;
use crate::lanes::worker::pacer::LaneRates;
use crate::session::allowed::Allowed;
use crate::session::channel::read_message;
use crate::session::course::{ReceiveCourse, ScanWish, SendCourse};
use crate::session::destination::Keeping;
use crate::session::idle::Activity;
use crate::session::outbox::Queue;
use crate::session::plan::destination_options;
use crate::session::receiver::Receiving;
use crate::session::rounds::SessionRounds;
use crate::session::sender::Sending;
use crate::session::unasked::FirstFlight;
use crate::session::{receiver, sender};

/// Counts the entries that are reported to it.
#[derive(Default)]
struct Told(AtomicU64);

impl Observer for Told {
    fn event(&self, event: api::Event) {
        if matches!(event, api::Event::File(_)) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Told {
    async fn wait_for(&self, entries: u64) {
        while self.0.load(Ordering::Relaxed) < entries {
            tokio::task::yield_now().await;
        }
    }
}

/// The other end: it writes and never reads.
struct Deaf {
    says: Half<DuplexStream>,
    told: Arc<Told>,
    queue: Arc<Queue>,
    hears: tokio::io::ReadHalf<DuplexStream>,
}

impl Deaf {
    /// Returns false once nobody listens any more.
    async fn say(&mut self, message: &Message) -> bool {
        self.says.write_all(&message.encode()).await.is_ok()
    }

    /// Bytes that wait for it.
    fn waiting(&self) -> usize {
        self.queue.gauge().waiting
    }
}

fn link(role: Role) -> (ControlLink, Deaf) {
    link_since(role, Instant::now())
}

/// A link of a session that began at `start`.
fn link_since(role: Role, start: Instant) -> (ControlLink, Deaf) {
    let (near, far) = duplex(1 << 10);
    let ((reader, writer), (hears, says)) = (split(near), split(far));
    let (told, rules) = (Arc::<Told>::default(), rules(role));
    let (reader, writer) = (Box::new(reader) as ReadHalf, Box::new(writer) as WriteHalf);
    let (presence, stop) = (Arc::default(), Stop::new().1);
    let parts =
        ControlLinkParts { reader, writer, observer: told.clone(), stop, presence, events: unbounded_channel(), rules };
    let link = ControlLink::start_at(parts, start);
    let queue = link.connection.queue().expect("the last message was not said");
    (link, Deaf { says, told, queue, hears })
}

fn rules(role: Role) -> LaneRules {
    LaneRules {
        role,
        target: 1,
        lanes_max: 1,
        transport: Transport::Tcp,
        changes: TransportChanges::default(),
        windows: 0,
        tuning: None,
        rates: LaneRates::default(),
        path: UdpPath::new(PathShare::Fair),
        peer_knows_shared: true,
        stall_after: Duration::from_secs(20),
        replacement: Replacement::Never,
    }
}

#[test]
fn a_peer_that_does_not_know_the_limit_of_a_shared_path_is_told_of_another() {
    use longhaul_proto::wire::message::{Limit, Limited};
    for (peer_knows_shared, by) in [(true, Limit::NetworkShared), (false, Limit::NetworkRate)] {
        let rules = LaneRules { peer_knows_shared, ..rules(Role::Sender) };
        let clock = SessionClock::start(Instant::now());
        let lanes = SessionLanes::new(rules, Arc::new(Told::default()), clock, unbounded_channel().0);
        let said = lanes.worded(Some(Limited::new(Limit::NetworkShared, 0.5)));
        assert_eq!(said, Some(Limited::new(by, 0.5)));
    }
}

fn machinery(role: Role) -> SessionBuffers {
    let (engine, affinity) = (EngineKind::Void, Affinity::default());
    let means = MemoryPlan { slots: 4, lanes: 1, depth: Some(1), engine, chunk: CHUNK, affinity };
    SessionBuffers::start(role, means).expect("void I/O")
}

/// Runs a receiving session. Returns the fault by which it ends.
async fn receives(link: ControlLink) -> Option<Fault> {
    let SessionBuffers { slab, io, .. } = machinery(Role::Receiver);
    let config = ReceiverConfig {
        chunk: CHUNK,
        chunk_max: CHUNK,
        bundled_max: 256 << 10,
        policy: Policy { if_exists: IfExists::SkipSame, may_modify: true },
        landing: Landing::beneath(),
        preserve: Preserve::default(),
        dry_run: false,
        group: SyncGroup::default(),
        read_back: false,
        digests: Default::default(),
        order: Default::default(),
        cut: None,
    };
    let (asked, base, place, tree) = (Allowed::default(), String::new(), String::new(), Arc::new(VoidTarget));
    let mut course = ReceiveCourse::default();
    let options = destination_options(&config, slab.slot_bytes());
    let receiving = Receiving {
        tells_replaced: false,
        tree,
        slab,
        io,
        options,
        config,
        allowed: asked,
        base,
        place,
        keeping: Keeping::default(),
        stream: None,
        accounts: Default::default(),
    };
    receiver::run(link, receiving, &mut course).await;
    course.totals.fault
}

/// Runs a session that sends empty files without end. Returns the fault by which it ends.
async fn sends(link: ControlLink) -> Option<Fault> {
    sends_from(link, Arc::new(VoidSource { len: 0, files: 10_000_000 }), FirstFlight::UNBOUNDED).await
}

/// Runs a session that sends a tree. Returns the fault by which it ends.
async fn sends_from(link: ControlLink, tree: Arc<dyn SourceTree>, flight: FirstFlight) -> Option<Fault> {
    let SessionBuffers { slab, io } = machinery(Role::Sender);
    let sending = Sending {
        hears_replaced: false,
        tree,
        slab,
        io,
        chunk: CHUNK,
        chunk_max: CHUNK,
        bundled_max: 256 << 10,
        wanted: ScanWish {
            filter: Default::default(),
            names: None,
            preserve: Preserve::default(),
            accounts: Default::default(),
        },
        timed: false,
        flight,
        compared: Algorithms::NONE,
        holes: HoleCosts::default(),
    };
    let mut course = SendCourse::default();
    sender::run(link, sending, &mut course).await;
    course.totals.fault
}

/// Has the link take in everything that is there.
fn absorb_ready(link: &mut ControlLink) {
    while let Some(wake) = link.try_next() {
        link.absorb(wake);
    }
}

const BUSY: RoundState = RoundState { waits_for: WaitsFor::Other, at_work: true, remaining: None };

fn heartbeat() -> Message {
    Message::Heartbeat(Heartbeat { stalled: false, answer: true })
}

#[tokio::test]
async fn a_round_lasts_from_an_event_or_a_tick_until_the_loop_has_settled() {
    let rounds = SessionRounds::default();
    let (mut link, _deaf) = link(Role::Receiver);
    link.set_round(rounds.enter());
    for wake in [Wake::Event(SessionEvent::OwnRate(None)), Wake::Tick] {
        assert_eq!(rounds.longest(), Duration::ZERO);
        link.absorb(wake);
        assert!((0..1_000_000).any(|_| rounds.longest() > Duration::ZERO), "time passes in it");
        link.settle(RoundState { waits_for: WaitsFor::Wants, at_work: false, remaining: None });
        assert_eq!(rounds.longest(), Duration::ZERO, "it waits again");
    }
}

#[tokio::test]
async fn questions_whether_a_side_lives_leave_one_answer_waiting() {
    let (mut link, mut peer) = link(Role::Sender);
    let queue = peer.queue.clone();
    let flood = async {
        for _ in 0..20_000 {
            assert!(peer.say(&heartbeat()).await, "it is read");
        }
    };
    let listens = async {
        loop {
            let wake = link.wait(None).await;
            link.absorb(wake);
            absorb_ready(&mut link);
            link.settle(BUSY);
            assert!(queue.gauge().waiting < 4096, "{:?}", queue.gauge());
        }
    };
    tokio::select! {
        () = flood => {}
        () = listens => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_reads_no_outcome_is_asked_for_no_more_pages() {
    let (link, mut peer) = link(Role::Receiver);
    let session = tokio::spawn(receives(link));
    // Each entry fails with long reasons at the first look.
    let why = "w".repeat(900);
    let (mut first, mut most) = (0, 0);
    let pages = loop {
        let kind = EntryKind::Unsent { failure: Some(FaultCode::Denied), why: why.clone().into() };
        let path = RelPath::new("p".repeat(250)).expect("a path");
        let entries = vec![Entry { path, kind, meta: Meta::default() }; 50];
        let page = Page { first: FileId(first), last: false, entries };
        if !peer.say(&Message::Page(page)).await {
            break first / 50;
        }
        first += 50;
        // The peer needs no credit to go on: it sees the outcomes of its entries.
        tokio::select! {
            () = peer.told.wait_for(first) => {}
            () = async { while !session.is_finished() { tokio::task::yield_now().await } } => {}
        }
        most = most.max(peer.waiting());
        assert!(first < 1_000_000, "pages are taken in without end, {most} bytes wait");
    };
    let fault = session.await.expect("it ends").expect("not in order");
    assert_eq!(fault.code, FaultCode::Protocol, "{fault}");
    assert!((4 << 20..5 << 20).contains(&most), "{most} bytes waited after {pages} pages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_reads_no_page_is_sent_no_more() {
    let (link, mut peer) = link(Role::Sender);
    let session = tokio::spawn(sends(link));
    let offer = Offer { pages: u64::MAX, renamed: None, base: String::new().into() };
    assert!(peer.say(&Message::Offer(offer)).await);
    assert!(peer.say(&Message::PageCredit(PageCredit { upto: u64::MAX })).await);
    // The peer settles the entries that it guesses were offered. To settle another would be a
    // breach, so it stays below the number of entries that must be there.
    let (mut settled, mut most, mut idle_rounds) = (0, 0, 0);
    loop {
        let before = peer.waiting();
        for _ in 0..2000 {
            assert!(peer.say(&heartbeat()).await);
        }
        most = most.max(peer.waiting());
        if peer.waiting() == before {
            // The session stops at its bound. Below it, a thread that makes pages has no processor.
            if most > 4 << 20 || idle_rounds == 10_000 {
                break;
            }
            idle_rounds += 1;
            continue;
        }
        // The bytes that wait are those of offered entries, and an entry takes no more than this.
        let offered = (peer.waiting() / 30).saturating_sub(2048) as u64;
        while settled + 1000 <= offered {
            let outcome = |id| Settlement { file: FileId(id), outcome: Outcome::Skipped };
            assert!(peer.say(&Message::Settled((settled..settled + 1000).map(outcome).collect())).await);
            settled += 1000;
        }
        peer.told.wait_for(settled).await;
        assert!(most < 8 << 20, "pages are sent without end, {most} bytes wait");
    }
    assert!(settled > 10_000 && most > 4 << 20, "it was sent {most} bytes and settled {settled}");
    assert!(most < (4 << 20) + (256 << 10), "{most} bytes wait");
    drop(peer);
    assert_eq!(session.await.expect("it ends").map(|fault| fault.code), Some(FaultCode::Lost));
}

/// A tree of one file, whose scan takes its time to find that there is no other.
struct SlowScan(VoidSource);

impl SourceTree for SlowScan {
    fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        self.0.scan(what, sink);
        std::thread::sleep(Duration::from_millis(100));
    }

    fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        self.0.open(at, expect)
    }
}

#[tokio::test]
async fn on_a_long_path_the_first_page_waits_for_the_end_of_the_scan() {
    let (link, peer) = link(Role::Sender);
    let Deaf { says, hears, .. } = peer;
    let flight = FirstFlight::over(Duration::from_secs(3600), 1500);
    let session = tokio::spawn(sends_from(link, Arc::new(SlowScan(VoidSource { len: 0, files: 1 })), flight));
    let mut hears: ReadHalf = Box::new(hears);
    let page = loop {
        if let Message::Page(page) = read_message(&mut hears).await.expect("in order").expect("a page") {
            break page;
        }
    };
    assert_eq!((page.entries.len(), page.last), (1, true), "another page would have to be asked for");
    drop((says, hears));
    session.await.expect("it ends");
}

#[tokio::test]
async fn a_peer_that_takes_nothing_in_is_given_up() {
    for role in [Role::Sender, Role::Receiver] {
        let long_ago = Instant::now().checked_sub(SILENCE_MAX).expect("this host has run for so long");
        let (mut link, peer) = link_since(role, long_ago);
        let fault = Fault::new(FaultCode::Io, Blame::Local, "m".repeat(900));
        let list = vec![Settlement { file: FileId(0), outcome: Outcome::Failed(fault) }; 100];
        while !link.is_backlogged() {
            link.say(Message::Settled(list.clone()));
        }
        // It was heard just now.
        link.signs.excuse_silence();
        let wake = link.wait(None).await;
        let incoming = link.absorb(wake);
        let Some(Incoming::Stop(fault)) = incoming else { panic!("{role:?}: {incoming:?}") };
        assert!(fault.code == FaultCode::TimedOut && fault.message.contains("did not take in"), "{role:?}: {fault}");
        drop(peer);
    }
}

#[tokio::test]
async fn a_loop_that_was_held_up_takes_nobody_for_silent_and_says_that_it_stalls() {
    for is_told in [false, true] {
        let long_ago = Instant::now().checked_sub(2 * SILENCE_MAX).expect("this host has run for so long");
        let (mut link, Deaf { hears, says, queue, .. }) = link_since(Role::Receiver, long_ago);
        link.set_idle(Idle::new(Some(SILENCE_MAX), Activity::new(long_ago)));
        if is_told {
            link.holdup().expect("it goes on").goes_on();
            while queue.gauge().waiting > 0 {
                tokio::task::yield_now().await;
            }
        }
        let wake = link.wait(None).await;
        let incoming = link.absorb(wake);
        assert_eq!(matches!(incoming, Some(Incoming::Stop(_))), !is_told, "{incoming:?}");
        if is_told {
            let mut hears: ReadHalf = Box::new(hears);
            let said = read_message(&mut hears).await.expect("in order").expect("a sign of life");
            assert!(matches!(said, Message::Heartbeat(Heartbeat { stalled: true, .. })), "{said:?}");
        }
        drop(says);
    }
}

#[tokio::test]
async fn a_receiver_with_a_full_outbox_reads_no_more_and_a_sender_goes_on() {
    for (role, reads_on) in [(Role::Receiver, false), (Role::Sender, true)] {
        let (mut link, mut peer) = link(role);
        let fault = Fault::new(FaultCode::Io, Blame::Local, "m".repeat(900));
        let list = vec![Settlement { file: FileId(0), outcome: Outcome::Failed(fault) }; 100];
        while !link.gauge().stops_reading() {
            link.say(Message::Settled(list.clone()));
        }
        let flood = async {
            for _ in 0..2000 {
                peer.say(&heartbeat()).await;
            }
        };
        let listens = async {
            for _ in 0..200_000 {
                absorb_ready(&mut link);
                link.settle(BUSY);
                tokio::task::yield_now().await;
            }
        };
        let is_read = tokio::select! {
            () = flood => true,
            () = listens => false,
        };
        assert_eq!(is_read, reads_on, "{role:?}");
    }
}

const CHUNK: ChunkSize = match ChunkSize::from_log2(20) {
    Some(size) => size,
    None => ChunkSize::DEFAULT,
};
