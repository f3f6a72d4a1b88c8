//! How a lane shows that it moves, when it reports a unit, and when it is lost.

use std::sync::atomic::AtomicU32;
use std::sync::mpsc;

use longhaul_proto::udp::packet::{Outer, OuterBody};

use super::*;
use crate::lanes::worker::pulse::Doing;

/// Units of a test, with something to do at each report and each word of the other end.
struct Watched<R, O> {
    units: Units,
    /// Whether there will be no more than these.
    ends: bool,
    reports: R,
    observes: O,
}

impl<R: FnMut(), O: FnMut()> UdpFeed for Watched<R, O> {
    type Bytes = Vec<u8>;

    fn next(&mut self) -> FeedNext<Vec<u8>> {
        match self.units.left.pop() {
            Some(unit) => FeedNext::Unit(unit),
            None if self.ends => FeedNext::Over,
            None => FeedNext::NotNow,
        }
    }

    fn is_over(&mut self) -> bool {
        false
    }

    fn sent(&mut self, serial: u32, header: &Piece, digest: Digest) {
        self.units.sent(serial, header, digest);
        (self.reports)();
    }

    fn whole(&mut self, serial: u32, unit: UdpUnit<Vec<u8>>, digest: Digest) {
        self.units.whole(serial, unit, digest);
    }

    fn observe(&mut self, _now: Timestamp, _sample: &UdpSample) {
        (self.observes)();
    }
}

/// The end of a lane that was watched.
struct WatchedEnd {
    sent: Result<(), Fault>,
    landed: UdpLanded,
}

/// Runs a lane that is dialled by its sender. `until` waits for what the test wants to see, and
/// then both ends are closed. It gets the pulses of both ends, and hears when the sender has ended.
fn watch(
    lane: (JoinedUdp, AcceptedUdp),
    mut feed: Watched<impl FnMut() + Send, impl FnMut() + Send>,
    patience: Duration,
    until: impl FnOnce([&Pulse; 2], &mpsc::Receiver<()>),
) -> WatchedEnd {
    let (dialled, accepted) = lane;
    let handles = [dialled.lane.handle.clone(), accepted.handle()];
    let slab = Slab::new(CHUNK as usize, WINDOW as usize).expect("memory");
    let mut came = Came { slab, units: Vec::new() };
    let (pacer, times) = (Pacer::new(None), StageTimes::default());
    let [of_sender, of_receiver] = [Pulse::default(), Pulse::default()];
    let (told, ended) = mpsc::channel();
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let pulse = &of_receiver;
            let means = UdpReceiveMeans { times: &times, pulse, slot_bytes: CHUNK as usize };
            let joined = promising(End::Accepted(Box::new(accepted)).stand(), &came.slab);
            receive::run(joined, Duration::ZERO, means, &mut came).0
        });
        let sending = scope.spawn(|| {
            let means = UdpSendMeans { pacer: &pacer, times: &times, pulse: &of_sender, path: None, patience };
            let sent = send::run(dialled, Duration::ZERO, means, &mut feed).map_err(|(fault, _)| fault);
            told.send(()).expect("somebody listens");
            sent
        });
        let closing = Closing(handles);
        until([&of_sender, &of_receiver], &ended);
        drop(closing);
        let landed = receiving.join().expect("no panic");
        WatchedEnd { sent: sending.join().expect("no panic"), landed }
    })
}

/// Closes both ends of a lane, also when a test fails: their threads are waited for.
struct Closing([UdpHandle; 2]);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.iter().for_each(UdpHandle::close);
    }
}

fn units(left: Vec<UdpUnit<Vec<u8>>>) -> Units {
    Units { left, sent: Vec::new(), settled: Vec::new(), samples: 0, wrong: 0 }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::yield_now();
    }
}

#[test]
fn a_unit_is_reported_before_the_receiver_may_have_all_of_it() {
    // One message has all of a short one.
    for len in [1000, CHUNK] {
        let mut world = World::new();
        let (dialled, accepted) = world.lane(None);
        let [sender, receiver] = [dialled.lane.handle.clone(), accepted.handle()];
        let reports = || {
            // All that was sent has come, and nothing will be sent any more.
            let begun = Instant::now();
            while receiver.get(UdpFigure::Received) < sender.get(UdpFigure::Sent) && begun.elapsed() < PATIENCE {
                thread::yield_now();
            }
            sender.close();
        };
        let feed = Watched { units: units(vec![unit(0, len)]), ends: true, reports, observes: || {} };
        let end = watch((dialled, accepted), feed, PATIENCE, |_, ended| {
            ended.recv_timeout(2 * PATIENCE).expect("it was closed");
        });
        assert!(end.sent.is_err());
        assert_eq!(end.landed, UdpLanded::default(), "a unit of {len} bytes is whole at the receiver");
    }
}

#[test]
fn the_sender_of_a_lane_that_is_refused_as_it_joins_hears_so() {
    let mut world = World::new();
    let (dialled, accepted) = world.lane(None);
    let (pacer, times, pulse) = (Pacer::new(None), StageTimes::default(), Pulse::default());
    let means = UdpSendMeans { pacer: &pacer, times: &times, pulse: &pulse, path: None, patience: PATIENCE };
    let sent = thread::scope(|scope| {
        scope.spawn(|| End::Accepted(Box::new(accepted)).stand().refuse());
        send::run(dialled, Duration::ZERO, means, &mut units(vec![unit(0, CHUNK)]))
    });
    let fault = sent.err().map(|(fault, _)| fault.to_string());
    assert!(fault.as_ref().is_some_and(|fault| fault.contains("closed a UDP lane")), "{fault:?}");
}

#[test]
fn a_lane_of_which_nothing_lands_is_lost_though_its_other_end_answers() {
    let mut world = World::new();
    let relay = Relay::to(world.addr, |_, datagram| {
        let is_piece = Outer::parse(datagram).is_ok_and(|outer| matches!(outer.body, OuterBody::Data(_)));
        if is_piece { vec![] } else { vec![datagram.to_vec()] }
    });
    let lane = world.lane(Some(relay.addr));
    let answers = AtomicU32::new(0);
    let observes = || {
        answers.fetch_add(1, Ordering::Relaxed);
    };
    let feed = Watched { units: units(vec![unit(0, CHUNK)]), ends: true, reports: || {}, observes };
    let mut has_ended = false;
    let end = watch(lane, feed, Duration::from_secs(1), |_, ended| {
        has_ended = ended.recv_timeout(PATIENCE).is_ok();
    });
    assert!(has_ended && answers.load(Ordering::Relaxed) > 0, "{has_ended}");
    let fault = end.sent.expect_err("nothing landed");
    assert!(fault.code == FaultCode::Lost && fault.message.contains("lands"), "{fault:?}");
}

#[test]
fn signs_of_life_move_nothing() {
    let mut world = World::new();
    let lane = world.lane(None);
    let (receiver, answers) = (lane.1.handle(), AtomicU32::new(0));
    let observes = || {
        answers.fetch_add(1, Ordering::Relaxed);
    };
    let feed = Watched { units: units(vec![]), ends: false, reports: || {}, observes };
    watch(lane, feed, PATIENCE, |pulses, _| {
        wait_until("the ends hear each other", || {
            answers.load(Ordering::Relaxed) > 0 && receiver.get(UdpFigure::Received) > 0
        });
        let readings = pulses.map(Pulse::read);
        assert!(readings.iter().all(|reading| reading.pieces == 0), "{readings:?}");
    });
}

#[test]
fn a_lane_says_of_its_units_what_it_has_in_hand_and_what_it_moved() {
    let mut world = World::new();
    let lane = world.lane(None);
    let mut left = mixture(7);
    left.reverse();
    let feed = Watched { units: units(left), ends: false, reports: || {}, observes: || {} };
    watch(lane, feed, PATIENCE, |pulses, _| {
        wait_until("all are whole", || pulses.iter().all(|pulse| pulse.read().units == 7));
        for reading in pulses.map(Pulse::read) {
            assert_eq!((reading.in_hand, reading.unit, reading.doing), (0, 0, Doing::Nothing), "{reading:?}");
            assert!(reading.pieces >= 7, "{reading:?}");
        }
    });
}

#[test]
fn an_end_that_is_closed_says_so_to_the_other_one() {
    let mut world = World::new();
    let lane = world.lane(None);
    let (receiver, answers) = (lane.1.handle(), AtomicU32::new(0));
    let observes = || {
        answers.fetch_add(1, Ordering::Relaxed);
    };
    let feed = Watched { units: units(vec![]), ends: false, reports: || {}, observes };
    let end = watch(lane, feed, PATIENCE, |_, ended| {
        wait_until("the ends hear each other", || answers.load(Ordering::Relaxed) > 0);
        receiver.close();
        ended.recv_timeout(PATIENCE).expect("it has heard so");
    });
    let fault = end.sent.expect_err("it was closed");
    assert!(fault.message.contains("other end has closed"), "{fault:?}");
}
