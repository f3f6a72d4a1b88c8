//! Datagrams that came, in bulk, and what the kernel says of them.
//!
//! Owns the buffers and the unsafe lines of receiving. In: a socket that is [`super::prepare`]d.
//! Out: runs of datagrams of one length, as the kernel has joined them. It must not know what they
//! mean.

use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::message::{Control, empty_header};
use super::passed::{HEAD_BYTES, PassedHead};
use super::{AsFd, AsRawFd, Mark, is_note_of_others};

/// Buffers for what one system call brings.
pub struct Inbox {
    /// [`RUN_ROOM`] bytes for each run.
    bytes: Vec<u8>,
    controls: Vec<Control>,
    /// The length of each message that came last, and that of its control data.
    came: Vec<(usize, usize)>,
    runs: Vec<Run>,
    /// Datagrams that the socket had no room for, since it was made.
    dropped: u32,
    losses: SocketLosses,
    /// When the last call began that left nothing in the socket: what comes now came after that.
    emptied: Instant,
}

/// The losses of a socket as the kernel counts them: datagrams that it has joined as one.
#[derive(Clone, Copy, Default)]
struct SocketLosses {
    /// The count of the last run.
    said: u32,
    /// Datagrams of a run of late, the mean: what is dropped was joined like that.
    joined: f64,
}

impl SocketLosses {
    /// Takes the datagrams of each run that came by one call, and the count that the last of them
    /// says. Gives the datagrams that were dropped since the call before.
    fn take(&mut self, runs: impl Iterator<Item = u32>, said: u32) -> u32 {
        let (count, sum) = runs.fold((0_u32, 0_u32), |(count, sum), run| (count + 1, sum.saturating_add(run)));
        if count == 0 {
            return 0;
        }
        let mean = f64::from(sum) / f64::from(count);
        let part = if self.joined > 0.0 { f64::from(count) / (f64::from(count) + MEAN_RUNS) } else { 1.0 };
        self.joined = (self.joined + (mean - self.joined) * part).max(1.0);
        let fresh = said.wrapping_sub(self.said);
        self.said = said;
        (f64::from(fresh) * self.joined).round() as u32
    }
}

/// A run in its buffer.
#[derive(Clone, Copy)]
struct Run {
    /// Where it begins in the buffers.
    start: usize,
    len: usize,
    datagram_bytes: usize,
    mark: Mark,
    came: Instant,
}

/// The facts of a run that its control data says.
#[derive(Clone, Copy, Default)]
struct RunFacts {
    datagram_bytes: Option<usize>,
    mark: Mark,
    /// Datagrams dropped so far.
    dropped: Option<u32>,
    /// When it came, by the clock of the day since 1970.
    came: Option<Duration>,
}

/// Datagrams that came one after the other from one sender.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Their bytes: each has `datagram_bytes`, and the last one may be shorter.
    pub bytes: &'a [u8],
    /// The length of each, at least 1.
    pub datagram_bytes: usize,
    /// Their congestion mark.
    pub mark: Mark,
    /// When the first of them came to this host, and not when this thread took it: a thread that
    /// ran late is no queue on the way. Where the kernel does not say, it is when it was taken.
    pub came: Instant,
}

impl<'a> Arrived<'a> {
    /// The datagrams, one by one.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.datagram_bytes)
    }
}

impl Inbox {
    /// Room for this many runs, 1 to [`Inbox::RUNS`], 64 KiB each.
    pub fn new(runs: usize) -> Inbox {
        let runs = runs.clamp(1, Inbox::RUNS);
        Inbox {
            bytes: vec![0; runs * RUN_ROOM],
            controls: vec![Control::empty(); runs],
            came: Vec::with_capacity(runs),
            runs: Vec::with_capacity(runs),
            dropped: 0,
            losses: SocketLosses::default(),
            emptied: Instant::now(),
        }
    }

    /// The most runs that there can be room for.
    pub const RUNS: usize = 16;

    /// Receives what is there, without waiting, in place of what came before. Gives the number of
    /// runs, 0 if there is nothing.
    ///
    /// # Errors
    /// The error of `recvmmsg`. A note that another host or router may have sent is none.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<usize> {
        let emptied = self.emptied;
        self.receive_all(socket, Control::BYTES)?;
        let (day, taken, mut said) = (clock_of_the_day(), Instant::now(), self.losses.said);
        for (place, ((len, control_len), control)) in self.came.iter().zip(&self.controls).enumerate() {
            let (len, facts) = ((*len).min(RUN_ROOM), RunFacts::of(*control_len, control));
            said = facts.dropped.unwrap_or(said);
            let waited = facts.came.map_or(Duration::ZERO, |came| day.saturating_sub(came));
            self.runs.push(Run {
                start: place * RUN_ROOM,
                len,
                datagram_bytes: facts.datagram_bytes.unwrap_or(len.max(1)),
                mark: facts.mark,
                came: came_at(taken, waited, emptied),
            });
        }
        let sizes = self.runs.iter().map(|run| run.len.div_ceil(run.datagram_bytes.max(1)) as u32);
        self.dropped = self.dropped.wrapping_add(self.losses.take(sizes, said));
        Ok(self.runs.len())
    }

    /// Receives what another process has passed on ([`super::pass_on`]), likewise. `orders` hears
    /// what is no run.
    ///
    /// # Errors
    /// The error of `recvmmsg`; `UnexpectedEof` when the other end is closed, `InvalidData` for
    /// what nobody says here.
    pub fn receive_passed(&mut self, socket: impl AsFd, mut orders: impl FnMut(PassedHead)) -> io::Result<usize> {
        // Without room for control data, descriptors that come with a message are closed at once.
        self.receive_all(socket, 0)?;
        let taken = Instant::now();
        for (place, ((len, _), bytes)) in self.came.iter().zip(self.bytes.chunks_exact(RUN_ROOM)).enumerate() {
            if *len == 0 {
                // What came before the end is given first.
                let is_end = place == 0;
                return if is_end { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(self.runs.len()) };
            }
            match PassedHead::decode(&bytes[..(*len).min(RUN_ROOM)]) {
                Some(PassedHead::Run { datagram_bytes, mark, dropped }) => {
                    let (start, datagram_bytes) = (place * RUN_ROOM + HEAD_BYTES, datagram_bytes.into());
                    self.dropped = dropped;
                    self.runs.push(Run { start, len: *len - HEAD_BYTES, datagram_bytes, mark, came: taken });
                }
                Some(order) => orders(order),
                None => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(self.runs.len())
    }

    /// Receives messages into the buffers, in place of what came before, with room for so many
    /// bytes of control data each.
    fn receive_all(&mut self, socket: impl AsFd, control_bytes: usize) -> io::Result<()> {
        self.runs.clear();
        self.came.clear();
        let (room, begun) = (self.controls.len(), Instant::now());
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; Inbox::RUNS];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; Inbox::RUNS];
        let places = self.bytes.chunks_exact_mut(RUN_ROOM).zip(&mut self.controls);
        for ((bytes, control), (vector, header)) in places.zip(vectors.iter_mut().zip(headers.iter_mut())) {
            *vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            let mut one = empty_header();
            one.msg_iov = &raw mut *vector;
            one.msg_iovlen = 1;
            one.msg_control = control.as_mut_ptr();
            one.msg_controllen = control_bytes.min(Control::BYTES) as _;
            header.write(libc::mmsghdr { msg_hdr: one, msg_len: 0 });
        }
        // SAFETY: the descriptor is open while it is borrowed; the first `room` headers are written
        // and name distinct parts of buffers that this owns, with their lengths. No timeout.
        let came = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                headers.as_mut_ptr().cast(),
                room as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(came) = usize::try_from(came) else {
            let error = io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::EAGAIN) {
                self.emptied = begun;
            }
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::ENOMEM | libc::ENOBUFS) => Ok(()),
                Some(code) if is_note_of_others(code) => Ok(()),
                _ => Err(error),
            };
        };
        for header in &headers[..came] {
            // SAFETY: it was written above, and the kernel has changed its integers.
            let header = unsafe { header.assume_init_ref() };
            #[allow(clippy::unnecessary_cast, reason = "some C libraries have 32 bits there")]
            let control_len = header.msg_hdr.msg_controllen as usize;
            self.came.push((header.msg_len as usize, control_len));
        }
        if came < room {
            self.emptied = begun;
        }
        Ok(())
    }

    /// The most runs of one call.
    pub fn room(&self) -> usize {
        self.controls.len()
    }

    /// The runs that came last.
    pub fn runs(&self) -> impl Iterator<Item = Arrived<'_>> {
        self.runs.iter().map(|run| Arrived {
            bytes: &self.bytes[run.start..run.start + run.len],
            datagram_bytes: run.datagram_bytes,
            mark: run.mark,
            came: run.came,
        })
    }

    /// Datagrams that came to this socket since it was made and that its buffer had no room for, as
    /// of the last one that was received. Of those that the kernel had joined before it dropped
    /// them, the number is that of the largest run of late. Wraps around.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }
}

impl RunFacts {
    fn of(control_len: usize, control: &Control) -> RunFacts {
        let mut facts = RunFacts::default();
        control.values(control_len, |level, kind, data| match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                facts.datagram_bytes = number(data).filter(|bytes| *bytes > 0).map(|bytes| bytes as usize);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => facts.dropped = number(data),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => facts.came = time_of_day(data),
            (libc::IPPROTO_IP, libc::IP_TOS) => facts.mark = data.first().map_or(Mark::Deaf, |class| mark(*class)),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                facts.mark = number(data).map_or(Mark::Deaf, |class| mark(class.to_le_bytes()[0]));
            }
            _ => {}
        });
        facts
    }
}

/// When a datagram came that has waited for so long by the clock of the day, which may have been
/// set meanwhile: not before the socket was seen empty.
pub(super) fn came_at(taken: Instant, waited: Duration, emptied: Instant) -> Instant {
    taken.checked_sub(waited).unwrap_or(emptied).max(emptied)
}

/// The clock by which the kernel stamps what comes.
fn clock_of_the_day() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or_default(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// A stamp of that clock: seconds and nanoseconds, of 64 bits each. `None` where they are shorter.
fn time_of_day(data: &[u8]) -> Option<Duration> {
    let (seconds, rest) = data.split_first_chunk()?;
    let seconds = u64::try_from(i64::from_ne_bytes(*seconds)).ok()?;
    let nanos = u32::try_from(i64::from_ne_bytes(*rest.first_chunk()?)).ok()?;
    Some(Duration::new(seconds, nanos))
}

fn number(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn mark(class: u8) -> Mark {
    match class & 3 {
        0 => Mark::Deaf,
        3 => Mark::Congested,
        _ => Mark::Capable,
    }
}

/// Room for a run: the kernel joins datagrams up to the length of an IP packet.
const RUN_ROOM: usize = 64 << 10;
/// Runs over which their length is a mean.
const MEAN_RUNS: f64 = 8.0;
