//! The figures of one connection as a sender: counters, settings, and its turns.
//!
//! Owns what its controller, its driver and its lane's handle share. Takes and gives single figures
//! on any thread. Must not know quinn.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use longhaul_core::LaneId;

use super::host_socket::Importance;
use crate::shared_path::bucket::Bucket;
use crate::shared_path::{PathPlace, SharedPath};

/// A congestion control that QUIC lanes have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// The program's own, which holds a rate: see [`super::rate`].
    #[default]
    Rate,
    /// Quinn's.
    Bbr,
    Cubic,
}

impl Algorithm {
    const ALL: [Algorithm; 3] = [Algorithm::Rate, Algorithm::Bbr, Algorithm::Cubic];

    /// The name that users give.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Algorithm::Rate => "rate",
            Algorithm::Bbr => "bbr",
            Algorithm::Cubic => "cubic",
        }
    }

    /// The algorithm of this name.
    pub(crate) fn named(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// A connection in one poll of its driver.
#[derive(Debug)]
struct DriverPoll {
    /// Bytes that may still be sent in it.
    turn: AtomicI64,
    /// Whether it sent less in it, as all that may be on its way is.
    is_full: AtomicBool,
}

/// Counters and settings of a connection as a sender. Bytes are those of QUIC packets.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Bytes acknowledged so far.
    pub(crate) acked: AtomicU64,
    /// Bytes found lost so far.
    pub(crate) lost: AtomicU64,
    /// Bytes on their way.
    pub(crate) flying: AtomicU64,
    /// Bytes that may be on their way at a time.
    pub(crate) window: AtomicU64,
    /// The rate limit in bytes/s; 0 means no limit.
    ceiling: AtomicU64,
    /// The rate in bytes/s that the rate control last asked for; 0 if it asked for none.
    pub(super) asked: AtomicU64,
    wanted: AtomicU8,
    /// The bucket that keeps the rate of this connection alone.
    pub(super) bucket: Arc<Bucket>,
    poll: DriverPoll,
    /// Whether what it sends is of less importance than anybody else's.
    is_scavenger: AtomicBool,
    /// Bytes that were read here so far.
    read: AtomicU64,
    /// Its place on a path that lanes share.
    place: OnceLock<PathPlace>,
}

impl Default for Figures {
    /// The figures of a connection that begins: nobody gives it turns yet.
    fn default() -> Figures {
        Figures {
            acked: AtomicU64::default(),
            lost: AtomicU64::default(),
            flying: AtomicU64::default(),
            window: AtomicU64::default(),
            ceiling: AtomicU64::default(),
            asked: AtomicU64::default(),
            wanted: AtomicU8::default(),
            bucket: Bucket::of_lane(),
            poll: DriverPoll { turn: AtomicI64::new(i64::MAX), is_full: AtomicBool::default() },
            is_scavenger: AtomicBool::default(),
            read: AtomicU64::default(),
            place: OnceLock::new(),
        }
    }
}

impl Figures {
    /// Asks for `algorithm` from now on.
    pub(crate) fn want(&self, algorithm: Algorithm) {
        let place = Algorithm::ALL.iter().position(|one| *one == algorithm).unwrap_or(0);
        self.wanted.store(place as u8, Ordering::Relaxed);
    }

    /// The algorithm that was last asked for.
    pub(crate) fn wanted(&self) -> Algorithm {
        Algorithm::ALL[usize::from(self.wanted.load(Ordering::Relaxed)) % Algorithm::ALL.len()]
    }

    /// Limits the rate to `ceiling` bytes/s from now on; `None` takes the limit away.
    pub(crate) fn set_ceiling(&self, ceiling: Option<u64>) {
        self.ceiling.store(ceiling.unwrap_or(0), Ordering::Relaxed);
        // Also where no acknowledgement comes that would bring the rate here.
        if ceiling.is_some() || self.wanted() != Algorithm::Rate {
            let asked = Some(self.asked.load(Ordering::Relaxed)).filter(|asked| *asked > 0);
            self.bucket.set_rate(Instant::now(), ceiling.into_iter().chain(asked).min());
        }
    }

    /// Has what it sends from now on be of less importance than anybody else's.
    pub(crate) fn set_scavenger(&self) {
        self.is_scavenger.store(true, Ordering::Relaxed);
    }

    /// The importance of what it sends.
    pub(crate) fn importance(&self) -> Importance {
        if self.is_scavenger.load(Ordering::Relaxed) { Importance::Less } else { Importance::Usual }
    }

    /// Has the connection share `path` from now on: the control of that takes the place of the
    /// program's own, and keeps the rate of quinn's. One that shares a path already stays there.
    /// Returns whether it took a place.
    pub(crate) fn share(&self, path: &Arc<SharedPath>, lane: LaneId) -> bool {
        let mut is_new = false;
        self.place.get_or_init(|| {
            is_new = true;
            PathPlace::new(path, lane)
        });
        is_new
    }

    /// Its place on a path that lanes share. `None` if it shares none.
    pub(super) fn place(&self) -> Option<&PathPlace> {
        self.place.get()
    }

    /// Whether it may send now.
    pub(super) fn has_turn(&self) -> bool {
        self.poll.turn.load(Ordering::Relaxed) > 0
    }

    /// Notes that it sends less in this poll, as all that may be on its way is.
    pub(super) fn note_full(&self) {
        self.poll.is_full.store(true, Ordering::Relaxed);
    }

    /// The lane is over: others may use its part of the path.
    pub(crate) fn leave_path(&self) {
        self.place.get().into_iter().for_each(PathPlace::leave);
    }

    /// The bucket on which the lane draws.
    pub(crate) fn bucket(&self) -> &Arc<Bucket> {
        self.place.get().map_or(&self.bucket, PathPlace::bucket)
    }

    /// The driver is polled, and may send so many bytes.
    pub(crate) fn begin_poll(&self, bytes: i64) {
        self.poll.turn.store(bytes, Ordering::Relaxed);
        self.poll.is_full.store(false, Ordering::Relaxed);
    }

    /// The bytes that it might still have sent, and whether it sent less as all that may be on its
    /// way is.
    pub(crate) fn end_poll(&self) -> (i64, bool) {
        (self.poll.turn.load(Ordering::Relaxed), self.poll.is_full.load(Ordering::Relaxed))
    }

    /// Notes that so many bytes were read.
    pub(crate) fn note_read(&self, bytes: usize) {
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that were read so far.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Notes that so many bytes left.
    pub(crate) fn charge(&self, bytes: usize) {
        self.poll.turn.fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// The limit of the rate, bytes/s. `None` for none.
    pub(super) fn ceiling(&self) -> Option<u64> {
        Some(self.ceiling.load(Ordering::Relaxed)).filter(|ceiling| *ceiling > 0)
    }
}
