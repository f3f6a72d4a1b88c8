//! Reads files of a root for a client where they lie, and tells their digests: none of their bytes
//! travels.
//!
//! In: orders of one conversation, each of bounded size and about names beneath one path. Out: what
//! has each name, the digest of each file that was read, names of directories; records, and the
//! figures of the conversation. It holds one order at a time. `files` looks and reads. It compares
//! nothing: what the files should be is the client's to know.

mod files;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::limits::PAGE_BYTES_MAX;
use longhaul_core::{Blame, ByteCount, ChunkSize, Fault, FaultCode, RelPath, Transport};
use longhaul_net::{Control, Protection, PublicKey};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{FoundName, FoundNames, FoundThing, ReadOrder, ReadingWord};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use self::files::{NamesListed, ReadingTree};
use super::access::need;
use super::admission::{buffers, memory_of, session_place};
use super::audit::{AuditDeed, AuditRecord, SessionAudit};
use super::buffers::{Buffers, Need};
use super::current::Current;
use super::deputy::{LinkedSession, Outcome};
use super::handle::shown;
use super::live::{Counts, Live, Needs, SessionCounter};
use super::serve::{end_if_unwanted, transport_name};
use super::shares::Share;
use super::tallies::COMPLETE;
use super::{ClientConfig, Daemon, RootConfig};
use crate::api::{Stop, StopTrigger};
use crate::random::nonce;
use crate::session::channel::{ReadHalf, WriteHalf, read_message, write_message};

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
    _holds: ReadingHolds,
}

/// The things that such a conversation has of the daemon, in the order in which they are given
/// back.
struct ReadingHolds {
    _session: Share,
    _linked: Option<LinkedSession>,
    _buffers: Buffers,
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
    let _session = session_place(daemon, client.key).await?;
    let what = format!("reading in {root}/{}", path.escaped());
    let (trigger, stop) = Stop::new();
    let needed = Need::new(memory_of(daemon, client, &[config]), ChunkSize::DEFAULT)?;
    let _linked = match &daemon.live.link {
        Some(link) => {
            let needs = Needs::of_reading(root).of_user(client.uid());
            let asked = (what.clone(), false, needs);
            let linked = link.begin(asked, (Protection::Private, Transport::Tcp), 0, trigger.clone()).await?;
            link.reserve(needed.first()).await;
            Some(linked)
        }
        None => None,
    };
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
        rate: rate_cap(daemon, client, config),
        audit: audit.clone(),
    };
    let tree = tree.opened().await?;
    let holds = ReadingHolds { _session, _linked, _buffers };
    let (uid, root) = (client.uid(), root.to_owned());
    let (client, key) = (client.name.clone(), client.key);
    Ok(Reading { client, key, peer, uid, what, root, tree, audit, stop, trigger, _holds: holds })
}

/// The rate at which files are read at most: the least of the caps that what is sent would have.
fn rate_cap(daemon: &Daemon, client: &ClientConfig, root: &RootConfig) -> Option<u64> {
    [daemon.config.rate, root.rate, client.rate].into_iter().flatten().min()
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
        if let Some(fault) = fault.clone().filter(|fault| fault.code != FaultCode::Lost) {
            let _ = timeout(FINDING_TAKEN_WITHIN, write_message(&mut control.writer, &Message::Refuse(fault))).await;
        }
        let _ = timeout(FINDING_TAKEN_WITHIN, control.writer.shutdown()).await;
        let code = fault.as_ref().map(|fault| fault.code);
        let end = fault.as_ref().map_or_else(|| COMPLETE.to_owned(), |fault| format!("{}: {fault}", fault.code.name()));
        let (session, result) = (audit.name(), code.map_or(COMPLETE, FaultCode::name));
        let (files_read, failed, seconds) = (counts.digests, counts.failed, begun.elapsed().as_secs_f64());
        tracing::info!(
            target: "longhaul::session",
            session,
            %peer,
            %client,
            %key,
            result,
            files_read,
            failed,
            seconds = (seconds * 1e3).round() / 1e3,
            "ended: {what}: {end}"
        );
        daemon.live.link.iter().for_each(|link| link.outcome(Outcome::Ended(counts, code)));
        daemon.live.tallies.ended(transport_name(Transport::Tcp), code);
        fault.iter().for_each(|fault| daemon.live.tallies.fault(&client, &what, fault));
        let record = AuditRecord { deed: AuditDeed::SessionEnded, what: Some(&what), code, ..AuditRecord::default() };
        audit.keep(AuditRecord { count: Some(files_read), ..record });
    }

    /// Enters the list of sessions, and hears orders. What it holds is given back at the end.
    async fn conversed(
        self,
        (daemon, current): (&Daemon, &Current),
        control: &mut Control,
        counts: &mut Counts,
    ) -> Result<(), Fault> {
        let Reading { client, key, peer, uid, what, root, tree, audit, mut stop, trigger, _holds } = self;
        let session = daemon.live.link.as_ref().map_or_else(nonce, |link| Ok(link.session()))?;
        audit.admitted(shown(&session), trigger.clone());
        audit.keep(AuditRecord { deed: AuditDeed::SessionBegan, what: Some(&what), ..AuditRecord::default() });
        let (needs, counter) = (Needs::of_reading(&root).of_user(uid), Arc::new(SessionCounter::default()));
        let (protection, transport) = (Protection::Private, transport_name(Transport::Tcp));
        let (receives, begun) = (false, Instant::now());
        let live = Live { key, client, peer, what, protection, transport, receives, begun, needs, counter, trigger };
        let seat = daemon.live.enter(session, live);
        end_if_unwanted(current, &seat);
        let tree = Arc::new(tree);
        let mut orders = ReadingOrders { tree, stop: stop.clone(), counts, writer: &mut control.writer };
        orders.say(ReadingWord::Opened).await?;
        loop {
            let order = tokio::select! {
                biased;
                code = stop.stopped() => return Err(ended_here(code)),
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

fn ended_here(code: FaultCode) -> Fault {
    Fault::new(code, Blame::Local, "the daemon ends this conversation")
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

/// The orders of a conversation, one after the other.
struct ReadingOrders<'c> {
    tree: Arc<ReadingTree>,
    stop: Stop,
    counts: &'c mut Counts,
    writer: &'c mut WriteHalf,
}

impl ReadingOrders<'_> {
    /// Says what has some names.
    async fn look(&mut self, names: Vec<RelPath>) -> Result<(), Fault> {
        files::need_sound(&names)?;
        let (tree, found) = (self.tree.clone(), mpsc::unbounded_channel());
        let (sink, stop) = (found.0, Stop::new());
        let work = async move { tree.look_at_all(names, &sink, stop.1).await };
        self.tell(found.1, work, &stop.0).await
    }

    /// Reads files, and tells each as it is read.
    async fn read(&mut self, order: ReadOrder) -> Result<(), Fault> {
        files::need_sound(&order.names)?;
        let (tree, found) = (self.tree.clone(), mpsc::unbounded_channel());
        let (sink, stop) = (found.0, Stop::new());
        let work = async move { tree.read(order, sink, stop.1).await };
        self.tell(found.1, work, &stop.0).await
    }

    /// Tells findings as they come, and now and then that the work is under way: the other side
    /// takes silence for an end. If nobody hears them any more, or the conversation is to end, the
    /// work is stopped, and awaited.
    async fn tell(
        &mut self,
        mut found: mpsc::UnboundedReceiver<FoundName>,
        work: impl Future<Output = Result<(), Fault>>,
        stopper: &StopTrigger,
    ) -> Result<(), Fault> {
        let (mut work, mut done) = (std::pin::pin!(work), None);
        let (mut stop, mut ends, mut said) = (self.stop.clone(), None, Ok(()));
        loop {
            let next = tokio::select! {
                biased;
                code = stop.stopped(), if ends.is_none() => {
                    stopper.stop(code);
                    ends = Some(code);
                    continue;
                }
                next = found.recv() => next,
                ended = &mut work, if done.is_none() => {
                    // Everything that it found is in the channel.
                    found.close();
                    done = Some(ended);
                    continue;
                }
                () = tokio::time::sleep(SIGN_OF_LIFE_EVERY) => {
                    if said.is_ok() {
                        said = self.say(ReadingWord::Found(FoundNames { names: Vec::new(), last: false })).await;
                    }
                    continue;
                }
            };
            let Some(first) = next else { break };
            let names = batch(first, &mut found);
            self.count(&names);
            if said.is_ok() {
                said = self.say(ReadingWord::Found(FoundNames { names, last: false })).await;
            }
            if said.is_err() {
                stopper.stop(FaultCode::Lost);
            }
        }
        let done = match done {
            Some(done) => done,
            None => work.await,
        };
        said?;
        if let Some(code) = ends {
            return Err(ended_here(code));
        }
        done?;
        self.say(ReadingWord::Found(FoundNames { names: Vec::new(), last: true })).await
    }

    /// Lists a directory. One that cannot be listed is a finding: others still can.
    async fn list(&mut self, dir: RelPath) -> Result<(), Fault> {
        let mut listed = NamesListed::new(self.tree.clone(), dir);
        loop {
            let mut stop = self.stop.clone();
            let next = {
                let mut reading = std::pin::pin!(listed.next());
                loop {
                    tokio::select! {
                        biased;
                        code = stop.stopped() => return Err(ended_here(code)),
                        next = &mut reading => break next,
                        () = tokio::time::sleep(SIGN_OF_LIFE_EVERY) => {
                            self.say(ReadingWord::Found(FoundNames { names: Vec::new(), last: false })).await?;
                        }
                    }
                }
            };
            match next {
                Ok(page) => {
                    let is_last = page.last;
                    self.say(ReadingWord::Names(page)).await?;
                    if is_last {
                        return Ok(());
                    }
                }
                Err(fault) => {
                    let names = vec![FoundName { at: 0, found: FoundThing::Failed(fault) }];
                    return self.say(ReadingWord::Found(FoundNames { names, last: true })).await;
                }
            }
        }
    }

    /// Counts what was read, and what could not be.
    fn count(&mut self, names: &[FoundName]) {
        for name in names {
            match &name.found {
                FoundThing::Read { bytes, .. } => {
                    self.counts.digests += 1;
                    self.counts.pace.bytes_committed = self.counts.pace.bytes_committed.saturating_add(*bytes);
                }
                FoundThing::Failed(_) => self.counts.failed += 1,
                _ => {}
            }
        }
    }

    async fn say(&mut self, word: ReadingWord) -> Result<(), Fault> {
        match timeout(FINDING_TAKEN_WITHIN, write_message(self.writer, &Message::Reading(word))).await {
            Ok(said) => said,
            Err(_) => Err(Fault::new(FaultCode::TimedOut, Blame::Peer, "the findings on files are not taken")),
        }
    }
}

/// The findings that are there, as many as fit a message.
fn batch(first: FoundName, found: &mut mpsc::UnboundedReceiver<FoundName>) -> Vec<FoundName> {
    let (mut bytes, mut names) = (bytes_of(&first), vec![first]);
    while bytes < PAGE_BYTES_MAX / 2
        && let Ok(next) = found.try_recv()
    {
        bytes += bytes_of(&next);
        names.push(next);
    }
    names
}

/// Bytes of a finding in a message, at most: a fault has texts of 3 KiB.
fn bytes_of(name: &FoundName) -> usize {
    FINDING_BYTES
        + match &name.found {
            FoundThing::Link { target } => target.len(),
            FoundThing::Failed(_) => FINDING_TEXTS_BYTES,
            _ => 0,
        }
}

/// Bytes of the buffers of a conversation, if the daemon has them: eight for each half of the
/// reading.
const READING_BYTES: u64 = 64 << 20;
/// Bytes of a finding besides texts.
const FINDING_BYTES: usize = 64;
/// Bytes of the texts of a fault.
const FINDING_TEXTS_BYTES: usize = 4 << 10;
/// How long an order is waited for. A client that had none for half as long begins anew.
const ORDER_AWAITED_FOR: Duration = Duration::from_secs(90);
/// A conversation ends if a finding is not taken for this long.
const FINDING_TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Time between two signs of life.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(4);
