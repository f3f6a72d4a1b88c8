//! Reads files of a root for a client where they lie, and tells their digests: none of their bytes
//! travels.
//!
//! In: orders of one conversation, each of bounded size and about names beneath one path. Out: what
//! has each name, the digest of each file that was read, names of directories; records, and the
//! figures of the conversation. It compares nothing: what the files should be is the client's to
//! know. `orders` has one order at a time carried out, and tells what waits in `findings`; `files`
//! looks and reads, at the `pace` of the conversation, `unread` are the names on which nothing was
//! found yet, and `names` lists.

mod files;
mod findings;
mod names;
mod orders;
mod pace;
mod unread;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{ByteCount, ChunkSize, Fault, RelPath, Transport};
use longhaul_net::{Control, Protection, PublicKey};
use longhaul_proto::Message;
use longhaul_proto::wire::message::ReadingWord;
use tokio::sync::mpsc;
use tokio::time::timeout;

use self::files::ReadingTree;
use self::orders::ReadingOrders;
use self::pace::ReadingPace;
use super::access::need;
use super::admission::{buffers, memory_of, session_place};
use super::audit::{AuditDeed, AuditRecord, SessionAudit};
use super::bounds::lanes_max;
use super::buffers::{Buffers, Need};
use super::current::Current;
use super::deputy::LinkedSession;
use super::ending::{EndedKind, EndedSession, part};
use super::handle::shown;
use super::live::{Counts, Live, Needs, SessionCounter};
use super::rates::{Entered, RateClaim};
use super::runs::RunSeat;
use super::serve::{end_if_unwanted, transport_name};
use super::shares::Share;
use super::{ClientConfig, Daemon};
use crate::api::{Stop, StopTrigger};
use crate::budget::LANES_DEFAULT;
use crate::lanes::worker::hole_costs::HoleCosts;
use crate::random::nonce;
use crate::session::channel::{ReadHalf, read_message};
use crate::session::stopped::stopped;

/// A conversation about files of a root that is allowed and has what it needs.
pub(super) struct Reading {
    client: String,
    key: PublicKey,
    peer: SocketAddr,
    uid: Option<u32>,
    /// Its doing, as the log says it.
    what: String,
    /// The name of the root.
    root: String,
    tree: ReadingTree,
    audit: Arc<SessionAudit>,
    stop: Stop,
    trigger: StopTrigger,
    holds: ReadingHolds,
}

/// The things that such a conversation has of the daemon, in the order in which they are given
/// back. The last is its place among the runs: whoever waits for that may begin at once.
struct ReadingHolds {
    _session: Share,
    _rate: Entered,
    linked: Option<LinkedSession>,
    _buffers: Buffers,
    run: RunSeat,
}

/// Answers whether a client may have files beneath a path read, and takes what that needs.
pub(super) async fn admit(
    daemon: &Arc<Daemon>,
    peer: SocketAddr,
    client: &ClientConfig,
    (root, path): (&str, RelPath),
) -> Result<Reading, Fault> {
    let (config, rights) = daemon.root(client, root)?;
    need(rights.read, "read", config)?;
    daemon.live.drain.admit()?;
    // One in which nothing is asked for makes room for others, as any session does.
    let run = daemon.runs.take_over(client.key, nonce()?).await?;
    let _session = session_place(daemon, client.key).await?;
    let what = format!("reading in {root}/{}", path.escaped());
    let (trigger, stop) = (run.trigger(), run.stop());
    let needed = Need::new(memory_of(daemon, client, &[config]), ChunkSize::DEFAULT)?;
    let linked = match &daemon.live.link {
        Some(link) => {
            let needs = Needs::of_reading(root).of_user(client.uid());
            let asked = (what.clone(), false, needs);
            let linked = link.begin(asked, (Protection::Private, Transport::Tcp), 0, trigger.clone()).await?;
            link.reserve(needed.first()).await;
            Some(linked)
        }
        None => None,
    };
    let (sink, changes) = mpsc::unbounded_channel();
    let (_rate, rate) = daemon.live.rates.enter(RateClaim::new(client, &[config], None), sink.clone());
    // A deputy is told its share by the daemon.
    let rate = linked.as_ref().map_or(rate, |linked| linked.rate(sink));
    let place = daemon.live.places.take(config)?;
    let (set, _, base) = daemon.spot(root, path).await?;
    let _buffers = buffers(daemon, client.key, (needed, vec![place])).await?;
    let more = READING_BYTES.saturating_sub(needed.first());
    let memory = if (_buffers.more())(more) { READING_BYTES } else { needed.first() };
    let stop = stop.or(daemon.stop.clone());
    let audit = daemon.live.audit.session(client, (client.key, peer));
    let tree = ReadingTree {
        set,
        base,
        named: root.to_owned(),
        direct: daemon.config.io,
        memory: ByteCount(memory),
        lanes: LANES_DEFAULT.min(lanes_max(client, &[config])),
        pace: ReadingPace::new(rate, changes),
        holes: HoleCosts::by(daemon.live.rates.hole_permit(client.key)),
        audit: audit.clone(),
    };
    let tree = tree.opened().await?;
    let holds = ReadingHolds { _session, _rate, linked, _buffers, run };
    let (uid, root) = (client.uid(), root.to_owned());
    let (client, key) = (client.name.clone(), client.key);
    Ok(Reading { client, key, peer, uid, what, root, tree, audit, stop, trigger, holds })
}

impl Reading {
    /// Carries out orders until the client has no more.
    pub(super) async fn run(self, (daemon, current): (&Daemon, &Current), mut control: Control) {
        let begun = Instant::now();
        let Reading { client, key, peer, what, audit, .. } = &self;
        let (client, key, peer, what, audit) = (client.clone(), *key, *peer, what.clone(), audit.clone());
        tracing::info!(target: "longhaul::session", %peer, %client, "opened: {what}");
        let mut counts = Counts::default();
        let fault = self.conversed((daemon, current), &mut control, &mut counts).await.err();
        part(&mut control, fault.as_ref()).await;
        let (client, what, fault) = (&client, &what, fault.as_ref());
        let (transport, kind) = (transport_name(Transport::Tcp), EndedKind::Reading);
        EndedSession { client, key, peer, what, transport, begun, counts, fault, kind }.tell(daemon, &audit);
    }

    /// Enters the list of sessions, and hears orders. What it holds is given back at the end.
    async fn conversed(
        self,
        (daemon, current): (&Daemon, &Current),
        control: &mut Control,
        counts: &mut Counts,
    ) -> Result<(), Fault> {
        let Reading { client, key, peer, uid, what, root, tree, audit, mut stop, trigger, mut holds } = self;
        let session = daemon.live.link.as_ref().map_or_else(nonce, |link| Ok(link.session()))?;
        audit.admitted(shown(&session), trigger.clone());
        audit.keep(AuditRecord { deed: AuditDeed::SessionBegan, what: Some(&what), ..AuditRecord::default() });
        let (needs, counter) = (Needs::of_reading(&root).of_user(uid), Arc::new(SessionCounter::default()));
        let (protection, transport) = (Protection::Private, transport_name(Transport::Tcp));
        let (receives, begun) = (false, Instant::now());
        let counted = counter.clone();
        holds.linked.iter_mut().for_each(|linked| linked.show(counter.clone()));
        let live = Live { key, client, peer, what, protection, transport, receives, begun, needs, counter, trigger };
        let seat = daemon.live.enter(session, live);
        end_if_unwanted(current, &seat);
        let tree = Arc::new(tree);
        let (activity, writer) = (holds.run.activity(), &mut control.writer);
        let mut orders = ReadingOrders { tree, stop: stop.clone(), activity, counts, counter: counted, writer };
        orders.say(ReadingWord::Opened).await?;
        loop {
            let order = tokio::select! {
                biased;
                code = stop.stopped() => return Err(stopped(code)),
                order = next_order(&mut control.reader) => order?,
            };
            match order {
                Some(ReadingWord::Look(names)) => orders.look(names).await?,
                Some(ReadingWord::Read(order)) => orders.read(order).await?,
                Some(ReadingWord::List(dir)) => orders.list(dir).await?,
                Some(_) => return Err(Fault::protocol("an answer in place of an order to read files")),
                None => return Ok(()),
            }
        }
    }
}

/// Waits for the next order. `None`: there is none, or none came for so long that there may be
/// none any more; a client that has one after all begins anew.
async fn next_order(reader: &mut ReadHalf) -> Result<Option<ReadingWord>, Fault> {
    match timeout(ORDER_AWAITED_FOR, read_message(reader)).await {
        Ok(Ok(Some(Message::Reading(word)))) => Ok(Some(word)),
        Ok(Ok(Some(Message::Refuse(fault)))) => Err(fault.seen_from_afar()),
        Ok(Ok(Some(other))) => Err(Fault::protocol(format_args!("{} in place of an order", other.name()))),
        Ok(Ok(None)) => Ok(None),
        Ok(Err(fault)) => Err(fault),
        Err(_) => Ok(None),
    }
}

/// Bytes of the buffers of a conversation, if the daemon has them: eight for each half of the
/// reading.
const READING_BYTES: u64 = 64 << 20;
/// How long an order is waited for. A client that had none for half as long begins anew.
const ORDER_AWAITED_FOR: Duration = Duration::from_secs(90);
