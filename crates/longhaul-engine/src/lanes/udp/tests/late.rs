//! A lane whose thread has no processor for a while.

use std::sync::Barrier;

use longhaul_proto::udp::packet::{CloseReason, Outer, OuterBody, SizeSearch, encode_end};
use longhaul_proto::udp::status::{LargestArrived, Status};

use super::super::packets::{next_number, open, send_alone};
use super::*;

/// The time for which the thread has none.
const HELD: Duration = Duration::from_millis(20);
/// Runs that one look at the socket brings.
const RUNS: usize = 16;

/// A sink that holds its thread up once.
struct HeldUp<'a> {
    gate: &'a Barrier,
    passed: AtomicBool,
}

impl UdpSink for HeldUp<'_> {
    fn claim(&mut self) -> Option<Slot> {
        None
    }

    fn window(&self) -> u32 {
        if !self.passed.swap(true, Ordering::Relaxed) {
            self.gate.wait();
            self.gate.wait();
        }
        0
    }

    fn deliver(&mut self, arrival: UdpArrival) {
        panic!("{arrival:?}");
    }
}

/// The statuses of the other end, as far as the one of this packet.
fn statuses(lane: &mut JoinedUdp, last: u64) -> Vec<LargestArrived> {
    let (mut heard, mut scratch) = (Vec::<LargestArrived>::new(), Vec::new());
    let begun = Instant::now();
    while heard.last().is_none_or(|largest| largest.number.get() < last) {
        assert!(begun.elapsed() < PATIENCE, "{heard:?}");
        lane.lane.receive.receive(Duration::from_millis(10)).expect("open");
        let (runs, opener) = lane.lane.receive.parts();
        for datagram in runs.flat_map(|run| run.datagrams()) {
            let outer = Outer::parse(datagram).expect("sound");
            let plain = open(opener, &outer, datagram, &mut scratch).expect("keys").expect("its own");
            if outer.body == OuterBody::Status {
                heard.extend(Status::decode(plain).expect("sound").largest);
            }
        }
    }
    heard
}

/// Sends a PROBE with so many bytes of nothing. Gives its number.
fn probe(lane: &mut JoinedUdp, bytes: usize) -> u64 {
    let number = next_number(&lane.lane.send).expect("fresh").get();
    say(lane, OuterBody::Probe(SizeSearch(0)), &vec![0; bytes]);
    number
}

fn say(lane: &mut JoinedUdp, body: OuterBody, plain: &[u8]) {
    send_alone(&mut lane.lane.send, lane.there, Timestamp(0), body, plain).expect("open");
}

/// Holds a lane's thread up while one packet more than one look brings comes. Gives for how long
/// the last two of them had waited, as the statuses say in which they are the largest.
fn wait_of_the_last_two(lane: &mut JoinedUdp, accepted: AcceptedUdp) -> [Duration; 2] {
    let gate = Barrier::new(2);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (times, pulse) = (StageTimes::default(), Pulse::default());
            let means = UdpReceiveMeans { times: &times, pulse: &pulse, slot_bytes: CHUNK as usize };
            let joined = End::Accepted(Box::new(accepted)).stand();
            receive::run(joined, Duration::ZERO, means, &mut HeldUp { gate: &gate, passed: AtomicBool::new(false) }).1
        });
        probe(lane, 0);
        gate.wait();
        // The kernel joins none of these into a run, as each is longer than the one before.
        let numbers: Vec<u64> = (1..=RUNS + 1).map(|bytes| probe(lane, bytes)).collect();
        let sent = Instant::now();
        while sent.elapsed() < HELD {
            thread::yield_now();
        }
        gate.wait();
        let heard = statuses(lane, numbers[RUNS]);
        say(lane, OuterBody::End, &encode_end(0));
        say(lane, OuterBody::Close, &CloseReason::Over.encode());
        receiving.join().expect("no panic").expect("the lane ends in order");
        [RUNS - 1, RUNS].map(|at| {
            let told = heard.iter().find(|largest| largest.number.get() == numbers[at]);
            Duration::from_micros(told.unwrap_or_else(|| panic!("{at} is not in {heard:?}")).waited_us.into())
        })
    })
}

#[test]
fn a_thread_that_was_held_up_says_when_packets_came_and_that_nothing_overtook_what_it_did_not_see() {
    let (mut world, mut lanes, begun) = (World::new(), Vec::new(), Instant::now());
    loop {
        let (mut lane, accepted) = world.lane(None);
        let waited = wait_of_the_last_two(&mut lane, accepted);
        lanes.push(lane);
        // When the first look ended, one more lay there. All was seen when the second had.
        assert!(waited[0] < HELD / 2, "{waited:?}");
        if waited[1] >= HELD - Duration::from_millis(1) {
            break;
        }
        // The kernel begins to stamp what comes a little after the first socket asks for it.
        assert!(begun.elapsed() < Duration::from_secs(10), "{waited:?}");
    }
}
