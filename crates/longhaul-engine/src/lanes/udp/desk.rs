//! The acceptor's end of native UDP lanes: looks at what knocks at the port, and takes the lanes
//! that prove to belong to a session.
//!
//! In: [`Knock`]s. Out: an [`AcceptedUdp`], which becomes a lane with the first sealed packet from
//! its other end. Nobody gets an answer who does not prove that it holds a session's key. A JOIN
//! that names no open lane costs a look at the tables of sessions. If it names one of the first
//! lanes, it may wait for its session (`early`), which costs a look at those that wait. Of proofs
//! there are at most [`PROOFS_PER_S`] a second. A session may run in another process, which then
//! takes its lanes by [`take_passed`]. It knows no messages and no files.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use longhaul_core::LaneId;
use longhaul_net::{Knock, Knocks, Loss, NetError, Seat, UdpSeat};
use longhaul_proto::udp::join::UdpJoin;
use longhaul_sys::Slot;

use super::accepted::{AcceptedUdp, accept};
use super::early::{EarlyJoins, may_be_early};
use super::join::UdpTerms;
use crate::lanes::join::Unjoined;

/// The sessions that expect UDP lanes.
pub(crate) trait UdpSessions {
    /// The secrets of a session that expects this lane now, by its name or by that of
    /// [`early_session`](longhaul_proto::udp::join::early_session). Whoever asks may be anybody.
    fn terms(&self, session: &[u8; 16], lane: LaneId) -> Option<UdpTerms>;

    /// Takes a seat for a lane of this session that has proved, until its other end has shown that
    /// it heard: such a lane costs a thread and a descriptor. `None` if seats need not be counted.
    fn enter(&self, session: &[u8; 16]) -> Option<(Seat, Loss)>;

    /// Gives the lane away, once: its dialler has proved to belong to the session. With it come the
    /// slots that the first units are promised; none if this end sends files. `None` if the lane is
    /// no longer to be had.
    fn take(&self, session: &[u8; 16], lane: LaneId) -> Option<Vec<Slot>>;
}

/// The sessions in other processes of this host that may have UDP lanes.
pub(crate) trait UdpSessionsElsewhere {
    /// The secrets of a session to which this lane was not passed yet. Whoever asks may be anybody.
    fn terms(&self, session: &[u8; 16], lane: LaneId) -> Option<UdpTerms>;

    /// Passes a lane of this session on, whose dialler has proved to belong to it by this JOIN.
    fn pass_on(&self, session: &[u8; 16], lane: LaneId, seat: UdpSeat, join: Vec<u8>) -> Result<(), NetError>;
}

/// Looks at knocks. See the module.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Proofs that may be looked at now.
    proofs: u32,
    /// When they were counted.
    counted: Instant,
    early: EarlyJoins,
}

impl Desk {
    /// A desk.
    pub(crate) fn new(now: Instant) -> Desk {
        Desk { proofs: PROOFS_AT_ONCE, counted: now, early: EarlyJoins::default() }
    }

    /// Looks at a knock. `None` if there is nothing to say.
    pub(crate) fn hear(
        &mut self,
        knock: &Knock,
        knocks: &Knocks,
        sessions: &impl UdpSessions,
    ) -> Option<Result<AcceptedUdp, Unjoined>> {
        let (join, terms) = self.prove(knock, |session, lane| sessions.terms(session, lane))?;
        let place = sessions.enter(&terms.session);
        // Without a socket the lane stays to be had: its dialler asks again.
        let seat = match knocks.seat(knock) {
            Ok(seat) => seat,
            Err(error) => return Some(Err(error.into())),
        };
        let claimed = sessions.take(&terms.session, join.lane)?;
        Some(accept((&knock.datagram, seat), &join, &terms, claimed).map(|accepted| accepted.seated(place)))
    }

    /// Keeps a knock of which nothing came for a while, as its session may be about to begin.
    pub(crate) fn keep(&mut self, knock: Knock, sessions: &impl UdpSessions) {
        let Ok(claimed) = UdpJoin::claimed(&knock.datagram) else { return };
        if may_be_early(&claimed) && sessions.terms(&claimed.session, claimed.lane).is_none() {
            self.early.keep(Instant::now(), knock, claimed);
        }
    }

    /// Looks at the knocks that were kept: a session has begun. Gives those of which something
    /// came, and who knocked.
    pub(crate) fn hear_kept(
        &mut self,
        knocks: &Knocks,
        sessions: &impl UdpSessions,
    ) -> Vec<(SocketAddr, Result<AcceptedUdp, Unjoined>)> {
        let is_expected = |join: &UdpJoin| sessions.terms(&join.session, join.lane).is_some();
        let kept = self.early.take(Instant::now(), is_expected);
        kept.iter().filter_map(|knock| Some((knock.from, self.hear(knock, knocks, sessions)?))).collect()
    }

    /// Looks at a knock for a session in another process, and passes its lane on. `None` if no such
    /// session expects it.
    pub(crate) fn hear_for(
        &mut self,
        knock: &Knock,
        knocks: &Knocks,
        sessions: &impl UdpSessionsElsewhere,
    ) -> Option<Result<(), NetError>> {
        let (join, terms) = self.prove(knock, |session, lane| sessions.terms(session, lane))?;
        let pass = |seat| sessions.pass_on(&terms.session, join.lane, seat, knock.datagram.clone());
        Some(knocks.seat(knock).and_then(pass))
    }

    /// The JOIN of a knock, and the secrets of its session, if that is expected and the proof is
    /// right.
    fn prove(
        &mut self,
        knock: &Knock,
        terms: impl Fn(&[u8; 16], LaneId) -> Option<UdpTerms>,
    ) -> Option<(UdpJoin, UdpTerms)> {
        let claimed = UdpJoin::claimed(&knock.datagram).ok()?;
        let terms = terms(&claimed.session, claimed.lane)?;
        if !self.may_prove(Instant::now()) {
            return None;
        }
        let join = UdpJoin::verify(&knock.datagram, &terms.key).ok()?;
        // Only wrong ones use them up.
        self.proofs = self.proofs.saturating_add(1).min(PROOFS_AT_ONCE);
        Some((join, terms))
    }

    /// Whether another proof may be looked at; counts it.
    fn may_prove(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.counted);
        let more = u32::try_from(since.as_micros() * u128::from(PROOFS_PER_S) / 1_000_000).unwrap_or(u32::MAX);
        self.proofs = self.proofs.saturating_add(more).min(PROOFS_AT_ONCE);
        self.counted += Duration::from_secs(1) / PROOFS_PER_S * more;
        let may = self.proofs > 0;
        self.proofs = self.proofs.saturating_sub(1);
        may
    }
}

/// Takes a lane that another process has passed on with its JOIN. `None` if nobody expects it.
pub(crate) fn take_passed(
    datagram: &[u8],
    seat: UdpSeat,
    sessions: &impl UdpSessions,
) -> Option<Result<AcceptedUdp, Unjoined>> {
    let claimed = UdpJoin::claimed(datagram).ok()?;
    let terms = sessions.terms(&claimed.session, claimed.lane)?;
    let join = UdpJoin::verify(datagram, &terms.key).ok()?;
    let place = sessions.enter(&terms.session);
    let claimed = sessions.take(&terms.session, join.lane)?;
    Some(accept((datagram, seat), &join, &terms, claimed).map(|accepted| accepted.seated(place)))
}

/// Wrong proofs that are looked at in a second. Each costs about a microsecond, so that all of them
/// take a tenth of a processor; whoever sees an honest JOIN go by and makes up as many others as
/// these keeps lanes from joining while that lasts, as he does by filling the link.
const PROOFS_PER_S: u32 = 100_000;
/// Wrong proofs that are looked at in a row: those of 0.1 s.
const PROOFS_AT_ONCE: u32 = 10_000;
#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::net::{SocketAddr, UdpSocket};
    use std::sync::mpsc;
    use std::thread;

    use longhaul_net::{
        AskingHandle, GreetLimits, Greeted, Identity, Listener, NetErrorKind, PeerCheck, QuicListener, ServerTls,
        dial_control, greet,
    };
    use longhaul_proto::join::JoinKey;
    use longhaul_proto::udp::join::{JOIN_BYTES, UdpJoined};
    use longhaul_proto::udp::packet::{Outer, OuterBody, PacketNumber, SendTime, SizeSearch};
    use longhaul_sys::Slab;

    use super::super::join::{JoinedUdp, UdpOrder, dial, dial_early, index};
    use super::*;

    pub(in super::super) const SESSION: [u8; 16] = [7; 16];
    pub(in super::super) const PATIENCE: Duration = Duration::from_secs(30);

    /// A table of one session, whose lanes may be had once each.
    struct Table {
        terms: UdpTerms,
        open: RefCell<HashMap<LaneId, Vec<Slot>>>,
    }

    impl UdpSessions for Table {
        fn terms(&self, session: &[u8; 16], lane: LaneId) -> Option<UdpTerms> {
            (*session == self.terms.session && self.open.borrow().contains_key(&lane)).then(|| self.terms.clone())
        }

        fn enter(&self, _session: &[u8; 16]) -> Option<(Seat, Loss)> {
            None
        }

        fn take(&self, _session: &[u8; 16], lane: LaneId) -> Option<Vec<Slot>> {
            self.open.borrow_mut().remove(&lane)
        }
    }

    /// A port, the terms of both ends, and where knocks come.
    pub(crate) struct World {
        runtime: tokio::runtime::Runtime,
        pub(in super::super) knocks: Knocks,
        pub(crate) addr: SocketAddr,
        pub(crate) dialer: UdpTerms,
        table: Table,
        pub(in super::super) desk: Desk,
        _port: QuicListener,
    }

    impl World {
        pub(crate) fn new() -> World {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.expect("a runtime");
            let identity = Identity::generate().expect("a key");
            let tls = ServerTls::new(&identity, GreetLimits::default()).expect("sound");
            let mut port = QuicListener::bind("127.0.0.1:0".parse().expect("an address"), &tls).expect("a port");
            let (addr, knocks) = (port.local_addr(), port.take_knocks().expect("the first time"));
            let (dialled, accepted) = runtime.block_on(async {
                let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
                let to = listener.local_addr().to_string();
                let (client, pinned) = (Identity::generate().expect("a key"), PeerCheck::Pinned(identity.public()));
                let dialling = dial_control(&to, &client, pinned);
                let greeting = async { greet(listener.accept().await.expect("somebody").0, &tls).await };
                let (dialled, Ok(Greeted::Control(accepted))) = tokio::join!(dialling, greeting) else {
                    panic!("no control connection")
                };
                (dialled.expect("accepted"), accepted)
            });
            let terms = |control: longhaul_net::Control| UdpTerms {
                session: SESSION,
                key: JoinKey(control.exporter),
                secret: control.udp,
                round_trip: Duration::ZERO,
            };
            let slots = || {
                let slab = Slab::new(1 << 20, 4).expect("memory");
                std::iter::from_fn(move || slab.try_claim()).collect()
            };
            let open = RefCell::new((0..4).map(|n| (LaneId(n), slots())).collect());
            let table = Table { terms: terms(accepted), open };
            let desk = Desk::new(Instant::now());
            World { runtime, knocks, addr, dialer: terms(dialled), table, desk, _port: port }
        }

        /// Both ends of a lane, which goes by a relay if there is one. Each has four slots if it
        /// receives.
        pub(crate) fn lane(&mut self, relay: Option<SocketAddr>) -> (JoinedUdp, AcceptedUdp) {
            let joining = self.dialling_to(relay.unwrap_or(self.addr), 0, 4, self.dialer.clone());
            let knock = self.knock();
            let accepted = self.hear(&knock).expect("an honest knock");
            let dialled = joining.recv_timeout(PATIENCE).expect("an answer");
            (dialled.unwrap_or_else(|e| panic!("{e:?}")), accepted)
        }

        /// Both ends of a lane of a session that others know.
        pub(in super::super) fn lane_of(
            &mut self,
            sessions: &impl UdpSessions,
            id: u32,
        ) -> (JoinedUdp, Result<AcceptedUdp, Unjoined>) {
            let joining = self.dialling(id, self.dialer.clone());
            let knock = self.knock();
            let accepted = self.desk.hear(&knock, &self.knocks, sessions).expect("an honest knock");
            let dialled = joining.recv_timeout(PATIENCE).expect("an answer");
            (dialled.unwrap_or_else(|e| panic!("{e:?}")), accepted)
        }

        /// The secrets of the accepting end, and what its tasks run on.
        pub(crate) fn acceptor(&self) -> (UdpTerms, tokio::runtime::Handle) {
            (self.table.terms.clone(), self.runtime.handle().clone())
        }

        fn dialling(&self, id: u32, terms: UdpTerms) -> mpsc::Receiver<Result<JoinedUdp, Unjoined>> {
            self.dialling_to(self.addr, id, 3, terms)
        }

        /// Asks for a lane before its session is agreed on.
        pub(in super::super) fn dialling_early(&self, id: u32) -> mpsc::Receiver<Result<JoinedUdp, Unjoined>> {
            let (order, terms) =
                (UdpOrder { to: self.addr, local: None, id: LaneId(id), admit: 0 }, self.dialer.clone());
            let (told, joined) = mpsc::channel();
            thread::spawn(move || {
                told.send(dial_early(&order, &terms, AskingHandle::default()).expect("a socket")).is_ok()
            });
            joined
        }

        fn dialling_to(
            &self,
            to: SocketAddr,
            id: u32,
            admit: u32,
            terms: UdpTerms,
        ) -> mpsc::Receiver<Result<JoinedUdp, Unjoined>> {
            let order = UdpOrder { to, local: None, id: LaneId(id), admit };
            let (told, joined) = mpsc::channel();
            thread::spawn(move || told.send(dial(&order, &terms)).is_ok());
            joined
        }

        pub(crate) fn knock(&mut self) -> Knock {
            let (runtime, knocks) = (&self.runtime, &mut self.knocks);
            let knock = runtime.block_on(async { tokio::time::timeout(PATIENCE, knocks.next()).await });
            knock.expect("somebody knocks").expect("open")
        }

        fn hear(&mut self, knock: &Knock) -> Option<AcceptedUdp> {
            let heard = self.desk.hear(knock, &self.knocks, &self.table)?;
            Some(heard.unwrap_or_else(|e| panic!("{e:?}")))
        }
    }

    fn join(id: u32) -> UdpJoin {
        let index = index().unwrap_or_else(|e| panic!("{e:?}"));
        UdpJoin { route_bytes: 1472, index, session: SESSION, lane: LaneId(id), nonce: [1; 16], admit: 0 }
    }

    pub(in super::super) fn header(lane: &JoinedUdp) -> Vec<u8> {
        let number = PacketNumber::new(lane.lane.send.number().expect("many")).expect("small");
        let outer = Outer { index: lane.there, number, sent: SendTime(0), body: OuterBody::Probe(SizeSearch(0)) };
        outer.encode().as_ref().to_vec()
    }

    #[test]
    fn a_lane_joins_once_and_stands_with_the_first_sealed_packet() {
        let mut world = World::new();
        let joining = world.dialling(1, world.dialer.clone());
        let knock = world.knock();
        let accepted = world.hear(&knock).expect("an honest knock");
        let mut dialled = joining.recv_timeout(PATIENCE).expect("an answer").unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(world.desk.proofs, PROOFS_AT_ONCE, "who is right uses up no proof");
        // Recorded and said again by anybody, it joins nothing.
        assert!(world.hear(&knock).is_none());
        dialled.lane.send.send_alone(&header(&dialled), &[0; 5]).expect("sent");
        let mut accepted = accepted.first().unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!((accepted.id, dialled.id), (LaneId(1), LaneId(1)));
        assert_eq!((accepted.here, accepted.there), (dialled.there, dialled.here));
        assert_eq!((dialled.admit, accepted.admit), (4, 3));
        assert_eq!([dialled.routes[0], dialled.routes[1]], [accepted.routes[1], accepted.routes[0]]);
        // The first packet is not lost to the join.
        accepted.lane.receive.receive(PATIENCE).expect("open");
        let (mut runs, _) = accepted.lane.receive.parts();
        let first = runs.next().and_then(|run| run.datagrams().next()).map(<[u8]>::len);
        assert_eq!(first, Some(16 + 5 + 16));
    }

    #[test]
    fn an_answer_that_was_lost_is_given_again_to_who_asks_again() {
        let mut world = World::new();
        let (silent, answers) = (UdpSocket::bind("127.0.0.1:0").expect("a port"), &mut [0; 2000]);
        silent.set_read_timeout(Some(PATIENCE)).expect("taken");
        let join = join(0);
        let said = join.encode(&world.dialer.key);
        silent.send_to(&said, world.addr).expect("sent");
        let knock = world.knock();
        let accepted = world.hear(&knock).expect("an honest knock");
        let standing = thread::spawn(move || accepted.first_within(Duration::from_secs(1)));
        for _ in 0..3 {
            let len = silent.recv(answers).expect("an answer");
            assert!(UdpJoined::verify(&answers[..len], &world.dialer.key, &said).is_ok());
            silent.send_to(&said, world.addr).expect("sent");
        }
        // It never says anything that is sealed.
        match standing.join().expect("no panic") {
            Err(Unjoined::Net(error)) => assert_eq!(error.kind(), NetErrorKind::TimedOut),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn strangers_get_no_answer_and_take_no_lane() {
        let mut world = World::new();
        let other = World::new();
        let unknown = UdpTerms { session: [8; 16], ..world.dialer.clone() };
        // Another session's key, a session that is none, an id that was never named.
        for (id, terms) in [(0, other.dialer.clone()), (0, unknown), (4, world.dialer.clone())] {
            let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
            let join = UdpJoin { session: terms.session, lane: LaneId(id), ..join(0) };
            stranger.send_to(&join.encode(&terms.key), world.addr).expect("sent");
            let knock = world.knock();
            assert!(world.hear(&knock).is_none());
            stranger.set_read_timeout(Some(Duration::from_millis(50))).expect("taken");
            assert!(stranger.recv(&mut [0; 2000]).is_err());
        }
        assert_eq!(world.table.open.borrow().len(), 4);
        // A changed byte of an honest one.
        let _joining = world.dialling(2, world.dialer.clone());
        let honest = world.knock();
        for at in (0..JOIN_BYTES).step_by(97) {
            let mut changed = honest.clone();
            changed.datagram[at] ^= 1;
            assert!(world.hear(&changed).is_none(), "byte {at}");
        }
        assert!(world.hear(&honest).is_some());
    }

    #[test]
    fn proofs_are_looked_at_as_often_as_the_bucket_says() {
        let begun = Instant::now();
        let mut desk = Desk::new(begun);
        let looked = |desk: &mut Desk, after: u64| {
            let now = begun + Duration::from_millis(after);
            (0..1_000_000).filter(|_| desk.may_prove(now)).count()
        };
        assert_eq!(looked(&mut desk, 0), PROOFS_AT_ONCE as usize);
        assert_eq!(looked(&mut desk, 50), 5000);
        assert_eq!(looked(&mut desk, 3_600_000), PROOFS_AT_ONCE as usize);
        let trickle: usize = (0..10_000)
            .map(|tick| {
                let now = begun + Duration::from_millis(3_600_000) + Duration::from_micros(7 * (tick + 1));
                (0..3).filter(|_| desk.may_prove(now)).count()
            })
            .sum();
        assert_eq!(trickle, 7000, "what is less than one proof is not lost between two looks");
    }
}
