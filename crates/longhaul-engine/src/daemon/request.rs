//! Hears the rest of a request: sources and names of a pull that did not fit its hello, and names
//! of a push whose grant is for a list, part by part.
//!
//! In: messages behind a hello. Out: all sources, the list of names, and the claim on the daemon's
//! memory for them, which lasts as long as the session. Each part is claimed before it is kept and
//! must come within its time, and the number of sources and names is bounded, so that no client
//! makes a daemon grow beyond its share. It opens no files and knows no rights.

use std::time::Duration;

use longhaul_core::limits::{
    MESSAGE_BYTES_MAX, PAGE_BYTES_MAX, PATH_BYTES_MAX, REQUEST_BYTES_MAX, SOURCE_COST_BYTES, SOURCES_MAX,
};
use longhaul_core::{Blame, ByteCount, Fault, FaultCode, Hash32, PathList, hint};
use longhaul_net::PublicKey;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Far, FarSource, Follows, Request, Transfer};
use tokio::time::{Instant, timeout};

use super::shares::{ClientShares, Share};
use crate::api::Stop;
use crate::session::channel::{ReadHalf, read_message};

/// The parts of a request that follow its hello.
#[derive(Default)]
pub(super) struct Rest {
    /// Only these names beneath the one source are sent. `None`: all of them.
    pub(super) names: Option<PathList>,
    /// The memory that sources and names take. `None` if that is next to nothing.
    pub(super) claim: Option<Share>,
}

/// Whether more may follow a hello before its answer: the parts of its request, or a first page.
pub(super) fn says_more(request: &Request) -> bool {
    match request {
        Request::Transfer(transfer) => match &transfer.far {
            Far::Sources { follows, .. } => *follows != Follows::Nothing,
            Far::Destination { .. } => true,
            Far::Memory { .. } => false,
        },
        _ => false,
    }
}

/// Hears the rest of a request, if there is one. Its sources are added to those of the hello.
/// Names follow a push where the grant by which it is asked for is for a `list`.
///
/// # Errors
/// [`FaultCode::Busy`] when the daemon has no memory for it just now, [`FaultCode::Unsupported`]
/// when it is longer than any may be, [`FaultCode::TimedOut`] when it does not come, the code of
/// `stop` when that is pulled.
pub(super) async fn hear_rest(
    reader: &mut ReadHalf,
    (transfer, list): (&mut Transfer, Option<Hash32>),
    (memory, client): (&ClientShares, PublicKey),
    mut stop: Stop,
) -> Result<Rest, Fault> {
    let mut none = Vec::new();
    let (sources, follows) = match (&mut transfer.far, list) {
        (Far::Sources { sources, follows: Follows::Names, .. }, _) if sources.len() != 1 => {
            return Err(Fault::protocol("a list of names beneath another number of sources than one"));
        }
        (Far::Sources { sources, follows, .. }, _) => (sources, *follows),
        (Far::Destination { .. }, Some(_)) => (&mut none, Follows::Names),
        _ => return Ok(Rest::default()),
    };
    if sources.len() > SOURCES_MAX {
        return Err(Fault::protocol("more sources in one message than there may be"));
    }
    if follows == Follows::Nothing {
        return Ok(Rest::default());
    }
    let hearing = hear_parts(reader, sources, follows, Costs::new(memory, client));
    tokio::select! {
        biased;
        code = stop.stopped() => Err(Fault::new(code, Blame::Local, "the session ends before its request was complete")),
        rest = hearing => rest,
    }
}

async fn hear_parts(
    reader: &mut ReadHalf,
    sources: &mut Vec<FarSource>,
    follows: Follows,
    mut costs: Costs<'_>,
) -> Result<Rest, Fault> {
    costs.add(sources.iter().map(cost).sum())?;
    let (mut names, mut pace) = (PathList::default(), RequestPace::begin());
    loop {
        let part = match pace.next(reader).await? {
            Message::RequestPart(part) => part,
            other => return Err(Fault::protocol(format_args!("{} in the middle of a request", other.name()))),
        };
        let fits = match follows {
            Follows::Names => part.sources.is_empty() && part.names.len() <= PAGE_BYTES_MAX,
            _ => part.names.is_empty() && part.sources.len() <= SOURCES_MAX,
        };
        let said = part.names.len() + part.sources.iter().map(said).sum::<usize>();
        // A short part would cost only time: a client that has more to send fills a part.
        if !fits || !part.last && said < PART_BYTES_MIN && part.sources.len() < SOURCES_MAX {
            return Err(Fault::protocol("a part of a request that is none"));
        }
        costs.add(part.names.len() as u64 + part.sources.iter().map(cost).sum::<u64>())?;
        names.append(&part.names).map_err(Fault::protocol)?;
        sources.extend(part.sources);
        if part.last {
            let names = (follows == Follows::Names).then_some(names);
            return Ok(Rest { names, claim: costs.share });
        }
        pace.earn(said);
    }
}

/// The time that a request has left, of which each part earns some.
pub(super) struct RequestPace {
    until: Instant,
}

impl RequestPace {
    /// The time of a request that begins now.
    pub(super) fn begin() -> RequestPace {
        RequestPace { until: Instant::now() + PATIENCE }
    }

    /// The next message of it.
    ///
    /// # Errors
    /// [`FaultCode::TimedOut`] when it does not come in time, [`FaultCode::Lost`] at the end of the
    /// connection.
    pub(super) async fn next(&self, reader: &mut ReadHalf) -> Result<Message, Fault> {
        let left = self.until.saturating_duration_since(Instant::now()).min(PATIENCE);
        match timeout(left, read_message(reader)).await {
            Ok(Ok(Some(message))) => Ok(message),
            Ok(Ok(None)) => Err(Fault::new(FaultCode::Lost, Blame::Peer, "the request ended before it was complete")),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::new(FaultCode::TimedOut, Blame::Peer, "the rest of the request did not come in time")),
        }
    }

    /// Counts a part of so many bytes.
    pub(super) fn earn(&mut self, bytes: usize) {
        self.until = (self.until + earned(bytes)).min(Instant::now() + PATIENCE);
    }
}

/// The time that a part's bytes earn for the rest of the request.
fn earned(bytes: usize) -> Duration {
    PATIENCE_A_PART.mul_f64(bytes.min(PAGE_BYTES_MAX) as f64 / PAGE_BYTES_MAX as f64)
}

/// Bytes of a source in a part, without its numbers.
fn said(source: &FarSource) -> usize {
    source.root.len() + source.path.as_bytes().len()
}

/// Bytes of memory that a source takes: its path as it was sent, as it is opened and as it is
/// named.
fn cost(source: &FarSource) -> u64 {
    SOURCE_COST_BYTES + source.root.len() as u64 + 3 * source.path.as_bytes().len() as u64
}

/// Bytes that a request has cost so far.
pub(super) struct Costs<'m> {
    memory: &'m ClientShares,
    client: PublicKey,
    share: Option<Share>,
    bytes: u64,
}

impl Costs<'_> {
    /// Nothing so far, of a client.
    pub(super) fn new(memory: &ClientShares, client: PublicKey) -> Costs<'_> {
        Costs { memory, client, share: None, bytes: 0 }
    }

    /// The claim on the daemon's memory. `None`: it is next to nothing.
    pub(super) fn into_share(self) -> Option<Share> {
        self.share
    }

    /// Claims this many bytes more, before they are kept.
    ///
    /// # Errors
    /// See [`hear_rest`].
    pub(super) fn add(&mut self, bytes: u64) -> Result<(), Fault> {
        let before = self.bytes.max(UNCLAIMED_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > REQUEST_BYTES_MAX {
            let most = ByteCount(REQUEST_BYTES_MAX);
            let why = format_args!("the list of what to send is longer than the {most} that one request may take");
            return Err(Fault::new(FaultCode::Unsupported, Blame::Local, why).hint(hint::Names::NameDirectories));
        }
        let more = self.bytes.saturating_sub(before);
        if more == 0 {
            return Ok(());
        }
        let share = self.share.get_or_insert_with(|| self.memory.claim_later(self.client));
        share.grow(more).map_err(|full| too_long(&share.refusal(full)))
    }
}

fn too_long(refusal: &Fault) -> Fault {
    let why = format_args!(
        "the list of what to send needs more memory than the daemon has for it just now: {}",
        refusal.message
    );
    Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Daemon::AskForMemory)
}

/// Bytes of a request that are not claimed: as much as a hello may bring by itself.
const UNCLAIMED_BYTES: u64 = 2 * MESSAGE_BYTES_MAX as u64;
/// How long a request may take, and the most time that it has left at any moment however fast it
/// came so far, ...
const PATIENCE: Duration = Duration::from_secs(30);
/// ... and the time that a full part adds; a shorter one adds its share. A full part is 64 KiB, so
/// 64 kbit/s are fast enough.
const PATIENCE_A_PART: Duration = Duration::from_secs(8);
/// Bytes of a part that others follow, at least, unless it has as many sources as there may be in
/// one: it is closed only because one more path, of 4 KiB at most, would not fit in its 64 KiB.
pub(super) const PART_BYTES_MIN: usize = PAGE_BYTES_MAX / 4;
const _: () = assert!(
    PART_BYTES_MIN + PATH_BYTES_MAX < PAGE_BYTES_MAX,
    "a part that one more path does not fit in is long enough"
);

#[cfg(test)]
mod tests;
