//! The path of a session's lanes over QUIC: one rate, and one limit of bytes on their way, for all
//! of them.
//!
//! Owns the account on which these lanes draw, and what each of them has on its way. Takes what
//! acknowledgements say from the controllers of the lanes, and asks a [`PathControl`] of the layer
//! above, which decides. Must not know what decides, nor quinn.

pub(crate) mod bucket;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::LaneId;

use self::bucket::Bucket;

/// A control of the rate of all lanes over QUIC of a path.
pub trait PathControl: fmt::Debug + Send + Sync {
    /// Takes what a lane's acknowledgements said, and gives what all lanes may send from now on.
    fn observe(&self, lane: LaneId, seen: &PathSeen) -> PathOrder;

    /// A lane is over.
    fn leave(&self, lane: LaneId);
}

/// The order of a [`PathControl`] to all lanes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathOrder {
    /// Bytes/s of UDP payload.
    pub rate: u64,
    /// Bytes that may be on their way.
    pub flight: u64,
}

/// The sight that a lane has of its path. Bytes are those of QUIC packets, and totals count from
/// when the lane came to the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSeen {
    /// The last round trip that was measured, without the time for which the other end waited.
    /// `None` if none was since the last time.
    pub round_trip: Option<Duration>,
    /// Packets acknowledged so far.
    pub packets: u64,
    /// Bytes acknowledged so far.
    pub bytes: u64,
    /// Acknowledgements so far that told of marks of congestion (ECN).
    pub marked: u32,
    /// Packets found lost since the last time.
    pub lost: u32,
    /// Packets sent so far.
    pub sent: u64,
    /// Bytes of the largest packets.
    pub packet_bytes: u16,
    /// Bytes on their way.
    pub flying: u64,
    /// Whether the lane had nothing to send at times since the last time.
    pub is_starved: bool,
}

/// A path that lanes over QUIC share. See the module.
#[derive(Debug)]
pub struct SharedPath {
    control: Box<dyn PathControl>,
    bucket: Arc<Bucket>,
    flying: AtomicU64,
    flight: AtomicU64,
}

impl SharedPath {
    /// A path without lanes, that begins as `first` says.
    pub fn new(control: Box<dyn PathControl>, first: PathOrder) -> Arc<SharedPath> {
        let bucket = Bucket::of_path();
        bucket.set_rate(Instant::now(), Some(first.rate.max(1)));
        Arc::new(SharedPath { control, bucket, flying: AtomicU64::new(0), flight: AtomicU64::new(first.flight) })
    }

    /// Has all lanes keep `order` from now on.
    pub fn follow(&self, now: Instant, order: PathOrder) {
        self.flight.store(order.flight, Ordering::Relaxed);
        self.bucket.set_rate(now, Some(order.rate.max(1)));
    }
}

/// The place of a lane on a path. It leaves at the latest when this is dropped.
#[derive(Debug)]
pub(crate) struct PathPlace {
    path: Arc<SharedPath>,
    lane: LaneId,
    flying: AtomicU64,
    is_over: AtomicBool,
    /// Whether the lane is not heard: it counts for nothing then, and has no room.
    is_silent: AtomicBool,
}

impl PathPlace {
    /// Takes a place for a lane.
    pub(crate) fn new(path: &Arc<SharedPath>, lane: LaneId) -> PathPlace {
        let (flying, is_over, is_silent) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        PathPlace { path: path.clone(), lane, flying, is_over, is_silent }
    }

    /// The account of all lanes.
    pub(crate) fn bucket(&self) -> &Arc<Bucket> {
        &self.path.bucket
    }

    /// Bytes that may be on their way on all lanes.
    pub(crate) fn flight(&self) -> u64 {
        self.path.flight.load(Ordering::Relaxed)
    }

    /// Whether fewer are, and the lane is heard.
    pub(crate) fn has_room(&self) -> bool {
        let is_full = self.path.flying.load(Ordering::Relaxed) >= self.flight();
        self.is_over() || !(is_full || self.is_silent())
    }

    /// Notes that so many bytes were sent.
    pub(crate) fn sent(&self, bytes: u64) {
        if self.is_over() || self.is_silent() {
            return;
        }
        self.flying.fetch_add(bytes, Ordering::SeqCst);
        self.path.flying.fetch_add(bytes, Ordering::Relaxed);
        if self.is_over() {
            self.fly(0);
        }
    }

    /// Notes that the bytes on their way are so many now, as others are lost.
    pub(crate) fn correct(&self, flying: u64) {
        if self.is_over() || self.is_silent() {
            return;
        }
        self.fly(flying);
        if self.is_over() {
            self.fly(0);
        }
    }

    /// Notes that the lane is not heard. Until it is, what it sent is not on its way as far as the
    /// others are concerned, and it sends no more than the probes for which nobody asks.
    pub(crate) fn silence(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
        self.fly(0);
    }

    /// Takes what acknowledgements said.
    pub(crate) fn observe(&self, now: Instant, seen: &PathSeen) {
        if self.is_over() {
            return;
        }
        self.is_silent.store(false, Ordering::Relaxed);
        self.fly(seen.flying);
        let order = self.path.control.observe(self.lane, seen);
        self.path.follow(now, order);
        // It ended meanwhile, on another thread.
        if self.is_over() {
            self.end();
        }
    }

    /// Leaves the path to the others. What is still to be sent keeps its rate.
    pub(crate) fn leave(&self) {
        if !self.is_over.swap(true, Ordering::SeqCst) {
            self.end();
        }
    }

    /// Takes the lane's bytes from the path, and the lane from the control. Again does no harm.
    fn end(&self) {
        self.fly(0);
        self.path.control.leave(self.lane);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Sets the bytes that this lane has on its way.
    fn fly(&self, bytes: u64) {
        let before = self.flying.swap(bytes, Ordering::SeqCst);
        // One addition, so that no other lane sees a sum in between.
        self.path.flying.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for PathPlace {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, OnceLock, Weak};

    use super::*;

    /// The words of lanes: bytes acknowledged so far, or that it is over.
    type Words = Arc<Mutex<Vec<(LaneId, Option<u64>)>>>;

    /// Says always the same, and notes what it hears.
    #[derive(Debug, Default)]
    struct Told(Words);

    impl PathControl for Told {
        fn observe(&self, lane: LaneId, seen: &PathSeen) -> PathOrder {
            self.0.lock().expect("nobody panics").push((lane, Some(seen.bytes)));
            PathOrder { rate: 1000, flight: 20_000 }
        }

        fn leave(&self, lane: LaneId) {
            self.0.lock().expect("nobody panics").push((lane, None));
        }
    }

    #[test]
    fn lanes_of_a_path_share_what_may_be_on_its_way_and_leave_it_to_the_others_at_their_end() {
        let heard = Words::default();
        let path = SharedPath::new(Box::new(Told(heard.clone())), PathOrder { rate: 1000, flight: 10_000 });
        let (one, other) = (PathPlace::new(&path, LaneId(1)), PathPlace::new(&path, LaneId(2)));
        one.sent(6000);
        assert!(other.has_room());
        other.sent(6000);
        assert!(!one.has_room() && !other.has_room());
        one.observe(Instant::now(), &PathSeen { bytes: 2000, flying: 15_000, ..PathSeen::default() });
        assert!(!other.has_room(), "it has 15,000 now, and the limit is 20,000");
        one.leave();
        one.sent(1 << 20);
        assert!(other.has_room() && one.has_room());
        drop(one);
        drop(other);
        assert_eq!(path.flying.load(Ordering::Relaxed), 0);
        let heard = heard.lock().expect("nobody panics");
        let left = [(LaneId(1), None), (LaneId(1), None), (LaneId(2), None)];
        assert_eq!((heard[0], &heard[1..]), ((LaneId(1), Some(2000)), &left[..]));
    }

    #[test]
    fn a_lane_that_is_not_heard_leaves_the_path_to_the_others_and_sends_nothing_until_it_is() {
        let path = SharedPath::new(Box::<Told>::default(), PathOrder { rate: 1000, flight: 10_000 });
        let (one, other) = (PathPlace::new(&path, LaneId(1)), PathPlace::new(&path, LaneId(2)));
        one.sent(12_000);
        assert!(!other.has_room());
        one.silence();
        one.sent(12_000);
        one.correct(12_000);
        assert!(other.has_room() && !one.has_room());
        one.observe(Instant::now(), &PathSeen { flying: 5000, ..PathSeen::default() });
        assert!(one.has_room());
        assert_eq!(path.flying.load(Ordering::Relaxed), 5000);
    }

    /// Notes what it hears, and has the lane end while it does.
    #[derive(Debug)]
    struct Ends(Words, Arc<OnceLock<Weak<PathPlace>>>);

    impl PathControl for Ends {
        fn observe(&self, lane: LaneId, seen: &PathSeen) -> PathOrder {
            self.1.get().and_then(Weak::upgrade).expect("a place").leave();
            Told(self.0.clone()).observe(lane, seen)
        }

        fn leave(&self, lane: LaneId) {
            Told(self.0.clone()).leave(lane);
        }
    }

    #[test]
    fn a_lane_that_ends_while_its_acknowledgements_are_taken_is_over_afterwards() {
        let (heard, place) = (Words::default(), Arc::new(OnceLock::new()));
        let control = Box::new(Ends(heard.clone(), place.clone()));
        let path = SharedPath::new(control, PathOrder { rate: 1000, flight: 10_000 });
        let one = Arc::new(PathPlace::new(&path, LaneId(1)));
        place.set(Arc::downgrade(&one)).expect("the first");
        one.observe(Instant::now(), &PathSeen { flying: 5000, ..PathSeen::default() });
        assert_eq!(path.flying.load(Ordering::Relaxed), 0);
        let last = heard.lock().expect("nobody panics").last().copied();
        assert_eq!(last, Some((LaneId(1), None)), "the control forgot it again");
        // Its driver had read that it goes on, and its bytes come late.
        one.fly(5000);
        drop(one);
        assert_eq!(path.flying.load(Ordering::Relaxed), 0);
    }
}
