//! The part that limits a transfer, named from the observations of each side in one second.
//!
//! In: shares of instants and of time, from the engine. Out: a [`Limited`]. A receiver names only a
//! limit at its own end ([`of_receiver`]) and tells the sender. The sender names the limit of the
//! whole transfer ([`of_transfer`]) and tells it back. Knows no sockets, no disks and no clock.
//!
//! An instant counts for the first part that is found waiting for another: a sending lane that has
//! nothing in hand though chunks were ordered waits for the source, however much the other lanes
//! move. For the same reason a receiving lane without a free buffer waits for the target: if the
//! network were slower, a buffer would be free.

use crate::wire::message::{Limit, Limited};

/// The observations of a receiver at its own end. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Receiving {
    /// Instants in which a lane waited for a buffer and the disk had as many requests as it takes
    /// at a time.
    pub target: f64,
    /// Instants in which a lane waited for a buffer and the disk had fewer requests than that.
    pub memory: f64,
    /// Instants in which a lane waited to keep a rate.
    pub paced: f64,
    /// The load of this side's processors.
    pub processors: Processors,
}

/// The observations of a sender. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sending {
    /// Instants in which a lane had nothing in hand, and the ordered chunks were not read yet.
    pub source: f64,
    /// Instants in which no lane had anything in hand, and nothing was ordered.
    pub unwanted: f64,
    /// Instants in which a lane waited to keep a rate that was asked for.
    pub paced: f64,
    /// Instants in which lanes waited for the rate that manners keep only.
    pub held: f64,
    /// Whether others on the path leave this session less than there is.
    pub shared: bool,
    /// The part of the network that the control of the lanes' rate names. `None` if there is no
    /// such control, or it does not know.
    pub named: Option<Limit>,
    /// The counts of the kernel. `None` within a host.
    pub path: Option<Path>,
    /// The load of this side's processors.
    pub processors: Processors,
}

/// The counts of the kernel, over all lanes together. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Path {
    /// The share of the sending time in which the other host's window was full. Sending time is
    /// time with something to send.
    pub receiver: f64,
    /// The share of the sending time in which this host's send buffer was full.
    pub buffer: f64,
    /// Payload that was sent again, as a share of all that was sent.
    pub resent: f64,
    /// The round trip time, as a multiple of the shortest recent one.
    pub stretch: f64,
}

/// The load of a side's processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processors {
    /// The busy share of the processors' time, or of its lanes' threads, whichever is larger. From
    /// 0 to 1.
    pub busy: f64,
    /// The work that took most of it: [`Limit::Hash`], or [`Limit::Cpu`] for anything else.
    pub most: Limit,
}

impl Default for Processors {
    fn default() -> Processors {
        Processors { busy: 0.0, most: Limit::Cpu }
    }
}

impl Processors {
    /// Whether a side is held up that uses this share of the time of all its processors.
    pub fn are_busy(share: f64) -> bool {
        share >= BUSY
    }

    fn limit(&self) -> Option<Limit> {
        Processors::are_busy(self.busy).then_some(self.most)
    }
}

/// The last word of the receiver to the sender, if it is recent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing.
    Silence,
    /// The limit at the receiver. `None` if nothing limits there.
    Says(Option<Limited>),
}

/// The limit at the receiver's end. `None` if nothing limits there.
pub fn of_receiver(seen: &Receiving) -> Option<Limited> {
    let Receiving { target, memory, paced, processors } = *seen;
    let mut shares = Shares::default();
    shares.add(Limit::Target, target);
    shares.add(Limit::Memory, memory);
    shares.add(Limit::NetworkRate, paced);
    if let Some(limit) = processors.limit() {
        shares.add(limit, 1.0 - target - memory - paced);
    }
    shares.most().filter(|limited| limited.thousandths >= WORTH_SAYING)
}

/// The limit of the transfer. `None` if it is not known.
pub fn of_transfer(seen: &Sending, heard: Heard) -> Option<Limited> {
    let Sending { source, unwanted, paced, held, shared, named, path, processors } = *seen;
    let mut shares = Shares::default();
    shares.add(Limit::Source, source);
    shares.add(Limit::NetworkRate, paced);
    // Alone on its path, a session is held to what that carries, and has what limits it there.
    let left = if shared { held } else { 0.0 };
    shares.add(Limit::NetworkShared, left);
    let moving = (1.0 - source - unwanted - paced - left).max(0.0);
    let full = path.map_or(0.0, |path| path.receiver);
    // A receiver whose lanes wait for nothing takes in everything that arrives, so a full window of
    // it is too small for the path.
    let (there, wants_nothing, held) = match heard {
        Heard::Says(Some(limited)) => (limited.by, limited.by, limited.share().max(full)),
        Heard::Says(None) => (Limit::NetworkWindow, Limit::Target, full),
        Heard::Silence => (Limit::Receiver, Limit::Receiver, full),
    };
    shares.add(wants_nothing, unwanted);
    shares.add(there, moving * held);
    let rest = moving * (1.0 - held);
    match (processors.limit(), path) {
        (Some(limit), _) => shares.add(limit, rest),
        // Within a host, nothing else is left, once the receiver was heard.
        (None, None) if heard == Heard::Silence => {}
        (None, None) => shares.add(processors.most, rest),
        // Who sets the rate knows why; the counters of its lanes do not tell.
        (None, Some(path)) => match named.unwrap_or_else(|| path.line(heard)) {
            Limit::NetworkRate | Limit::NetworkLoss if shared => shares.add(Limit::NetworkShared, rest),
            line => shares.add(line, rest),
        },
    }
    shares.most()
}

impl Path {
    /// The part of the network that holds back lanes which have something to send.
    fn line(&self, heard: Heard) -> Limit {
        // The kernel counts a buffer as the limit only while all of it is on its way, not while it
        // is refilled.
        if self.buffer >= NARROW || self.receiver >= NARROW && heard == Heard::Says(None) {
            return Limit::NetworkWindow;
        }
        // A queue on the way means that the line is full, and that lost packets found no place in
        // the queue. A policer keeps a rate without a queue: within one second it cannot be told
        // from a lossy line, and its drops make connections hold back. It is named loss, until the
        // user gives a rate below it (`--rate`), which is named then.
        if self.resent >= LOSSY && self.stretch < QUEUED { Limit::NetworkLoss } else { Limit::NetworkRate }
    }
}

/// Seconds by the part that limited in them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spent(Shares);

impl Spent {
    /// Adds `seconds` that were limited by this part.
    pub fn add(&mut self, by: Limit, seconds: f64) {
        self.0.add(by, seconds);
    }

    /// Adds the seconds of another.
    pub fn add_all(&mut self, other: &Spent) {
        self.0.0.iter_mut().zip(&other.0.0).for_each(|(sum, more)| *sum += more);
    }

    /// Each part that ever limited with its share of the time, the largest first.
    pub fn shares(&self) -> Vec<(Limit, f64)> {
        let total: f64 = self.0.0.iter().sum();
        let named = Limit::ALL.into_iter().zip(self.0.0).filter(|(_, seconds)| *seconds > 0.0);
        let mut shares: Vec<_> = named.map(|(limit, seconds)| (limit, seconds / total)).collect();
        shares.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        shares
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Shares([f64; Limit::ALL.len()]);

impl Shares {
    fn add(&mut self, limit: Limit, share: f64) {
        self.0[limit as usize] += share.max(0.0);
    }

    /// The part with the largest share. `None` if all are zero.
    fn most(&self) -> Option<Limited> {
        let largest = Limit::ALL.into_iter().zip(self.0).max_by(|(_, a), (_, b)| a.total_cmp(b));
        largest.filter(|(_, share)| *share > 0.0).map(|(by, share)| Limited::new(by, share))
    }
}

/// From this load on, a side has no time left; the rest is the time to wake threads.
const BUSY: f64 = 0.85;
/// The smallest share of waiting, in thousandths, at which a receiver is named as the limit.
const WORTH_SAYING: u16 = 100;
/// From this share of the time on, a full window is too small for the path. If the line is the
/// limit, the window is never full. (One of 128 KiB, on a path that has room for 7.5 MB, was
/// counted as full for 0.41 to 0.52 of the time.)
const NARROW: f64 = 0.2;
/// From this share of resent payload on, losses limit: a connection that backs off at each loss has
/// less than 40 segments on their way then (a window of `1.22/sqrt(p)`, Mathis et al. 1997).
const LOSSY: f64 = 0.001;
/// From this multiple of the shortest round trip on, there is a queue on the way.
const QUEUED: f64 = 1.3;

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Processors = Processors { busy: 0.3, most: Limit::Hash };
    const FREE: Path = Path { receiver: 0.0, buffer: 0.0, resent: 0.0, stretch: 1.0 };
    const WELL: Heard = Heard::Says(None);

    fn says(by: Limit, share: f64) -> Heard {
        Heard::Says(Some(Limited::new(by, share)))
    }

    #[test]
    fn each_part_is_named_when_it_is_what_limits() {
        let sending = Sending { path: Some(FREE), processors: IDLE, ..Sending::default() };
        let over = |path| Sending { path: Some(path), ..sending };
        let busy = |most| Sending { processors: Processors { busy: 0.9, most }, ..sending };
        let lossy = Path { resent: 0.002, ..FREE };
        let cases = [
            ("reads lag", Sending { source: 0.6, ..sending }, WELL, Limit::Source, 0.6),
            ("paced", Sending { paced: 0.7, ..sending }, WELL, Limit::NetworkRate, 1.0),
            ("nothing wanted", Sending { unwanted: 0.8, ..sending }, WELL, Limit::Target, 0.8),
            (
                "nothing wanted, as said",
                Sending { unwanted: 0.8, ..sending },
                says(Limit::Memory, 0.2),
                Limit::Memory,
                0.84,
            ),
            ("hashing", busy(Limit::Hash), WELL, Limit::Hash, 1.0),
            ("sealing", busy(Limit::Cpu), WELL, Limit::Cpu, 1.0),
            (
                "its window full, target behind",
                over(Path { receiver: 0.9, ..FREE }),
                says(Limit::Target, 0.3),
                Limit::Target,
                0.9,
            ),
            ("target behind", sending, says(Limit::Target, 0.8), Limit::Target, 0.8),
            ("target hardly behind", sending, says(Limit::Target, 0.3), Limit::NetworkRate, 0.7),
            ("its hashing", sending, says(Limit::Hash, 0.9), Limit::Hash, 0.9),
            (
                "its window full, nothing heard",
                over(Path { receiver: 0.9, ..FREE }),
                Heard::Silence,
                Limit::Receiver,
                0.9,
            ),
            ("its window too small", over(Path { receiver: 0.2, ..FREE }), WELL, Limit::NetworkWindow, 1.0),
            ("own window too small", over(Path { buffer: 0.2, ..FREE }), WELL, Limit::NetworkWindow, 1.0),
            ("own window hardly ever full", over(Path { buffer: 0.19, ..FREE }), WELL, Limit::NetworkRate, 1.0),
            ("losses", over(lossy), WELL, Limit::NetworkLoss, 1.0),
            ("a policer without a queue", over(Path { resent: 0.05, ..FREE }), WELL, Limit::NetworkLoss, 1.0),
            ("hardly a loss", over(Path { resent: 0.0009, ..FREE }), WELL, Limit::NetworkRate, 1.0),
            ("losses of a full queue", over(Path { stretch: 1.3, ..lossy }), WELL, Limit::NetworkRate, 1.0),
            ("others on the path", Sending { shared: true, ..over(lossy) }, WELL, Limit::NetworkShared, 1.0),
            (
                "losses that a control bears",
                Sending { named: Some(Limit::NetworkRate), ..over(Path { resent: 0.02, ..FREE }) },
                WELL,
                Limit::NetworkRate,
                1.0,
            ),
            (
                "losses that hold a control down",
                Sending { named: Some(Limit::NetworkLoss), ..over(FREE) },
                WELL,
                Limit::NetworkLoss,
                1.0,
            ),
            (
                "others, as a control finds",
                Sending { named: Some(Limit::NetworkRate), shared: true, ..over(FREE) },
                WELL,
                Limit::NetworkShared,
                1.0,
            ),
            ("a share is kept", Sending { shared: true, held: 0.9, ..sending }, WELL, Limit::NetworkShared, 1.0),
            (
                "a share is kept by a busy host",
                Sending { shared: true, held: 0.9, ..busy(Limit::Cpu) },
                WELL,
                Limit::NetworkShared,
                0.9,
            ),
            (
                "a rate is kept beside others",
                Sending { shared: true, paced: 0.9, ..sending },
                WELL,
                Limit::NetworkRate,
                0.9,
            ),
            ("nobody else is there", Sending { held: 0.9, ..sending }, WELL, Limit::NetworkRate, 1.0),
            ("the line", sending, WELL, Limit::NetworkRate, 1.0),
            ("within a host", Sending { path: None, ..sending }, WELL, Limit::Hash, 1.0),
            (
                "within a host, target behind",
                Sending { path: None, ..sending },
                says(Limit::Target, 0.8),
                Limit::Target,
                0.8,
            ),
        ];
        for (what, seen, heard, by, share) in cases {
            assert_eq!(of_transfer(&seen, heard), Some(Limited::new(by, share)), "{what}");
        }
    }

    #[test]
    fn nothing_is_named_within_a_host_before_the_receiver_was_heard() {
        assert_eq!(of_transfer(&Sending { processors: IDLE, ..Sending::default() }, Heard::Silence), None);
    }

    #[test]
    fn a_receiver_names_what_stands_at_its_own_end_or_nothing() {
        let busy = Processors { busy: 0.9, most: Limit::Hash };
        let cases = [
            (Receiving { target: 0.5, memory: 0.1, ..Receiving::default() }, Some((Limit::Target, 0.5))),
            (Receiving { target: 0.1, memory: 0.5, ..Receiving::default() }, Some((Limit::Memory, 0.5))),
            (Receiving { paced: 0.4, ..Receiving::default() }, Some((Limit::NetworkRate, 0.4))),
            (Receiving { target: 0.2, processors: busy, ..Receiving::default() }, Some((Limit::Hash, 0.8))),
            (Receiving { target: 0.1, ..Receiving::default() }, Some((Limit::Target, 0.1))),
            (Receiving { target: 0.099, processors: IDLE, ..Receiving::default() }, None),
        ];
        for (seen, want) in cases {
            assert_eq!(of_receiver(&seen), want.map(|(by, share)| Limited::new(by, share)), "{seen:?}");
        }
    }

    #[test]
    fn time_adds_up_by_what_limited_in_it_and_the_largest_is_named_first() {
        let (mut first, mut second) = (Spent::default(), Spent::default());
        assert!(first.shares().is_empty());
        first.add(Limit::Source, 1.0);
        second.add(Limit::Target, 2.0);
        second.add(Limit::Source, 0.5);
        second.add(Limit::Target, 0.5);
        first.add_all(&second);
        assert_eq!(first.shares(), [(Limit::Target, 0.625), (Limit::Source, 0.375)]);
    }

    #[test]
    fn every_limit_has_its_place_and_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Limit::ALL.map(Limit::name).into();
        assert_eq!(names.len(), Limit::ALL.len());
        for (place, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, place, "{limit:?}");
        }
    }
}
