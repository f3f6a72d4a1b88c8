//! Looks at names in a root for a client, and moves those away that its source has no more.
//!
//! In: orders of one conversation, each of bounded size and about names beneath one path. Out: what
//! became of each name, its record, and the figures of the conversation. A name goes only while it
//! has the facts that its order says, into the grace directory of its plan at the top of the root.
//! It holds one order at a time. It does not know whether the source has a name: that is the
//! client's to say.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::limits::REMOVAL_NAMES_MAX;
use longhaul_core::{Blame, Fault, FaultCode, PlanName, RelPath, Transport, hint, is_kept};
use longhaul_disk::{Grace, NameFacts, NameKind, TargetSet, Tree, Withdrawn};
use longhaul_net::{Control, Protection, PublicKey};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{KnownName, NameAnswer, RemovalAnswer, RemovalBatch, RemovalOpened, RemovalOrder};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::access::need;
use super::admission::session_place;
use super::audit::{AuditDeed, AuditRecord, SessionAudit};
use super::current::Current;
use super::deputy::{LinkedSession, Outcome};
use super::handle::shown;
use super::live::{Counts, Live, Needs, SessionCounter};
use super::root_places::RootPlace;
use super::serve::{end_if_unwanted, transport_name};
use super::shares::Share;
use super::tallies::COMPLETE;
use super::{ClientConfig, Daemon};
use crate::api::{Stop, StopTrigger};
use crate::known_name::{facts_said, known_facts};
use crate::random::nonce;
use crate::session::channel::{ReadHalf, WriteHalf, read_message, write_message};
use crate::workers::blocking;

/// A conversation about names of a root that is allowed and has what it needs.
pub(super) struct Removal {
    client: String,
    key: PublicKey,
    peer: SocketAddr,
    uid: Option<u32>,
    /// The name of the root.
    root: String,
    /// Its doing, as the log says it.
    what: String,
    mover: NameMover,
    audit: Arc<SessionAudit>,
    trigger: StopTrigger,
    _holds: RemovalHolds,
}

/// The things that such a conversation has of the daemon, in the order in which they are given
/// back.
struct RemovalHolds {
    _root: RootPlace,
    _linked: Option<LinkedSession>,
    _session: Share,
}

/// The names of a root as a conversation reaches them.
struct NameMover {
    root: Arc<Tree>,
    /// The path beneath the root beneath which names are asked for.
    base: RelPath,
    /// The plan whose names go, and where they go. `None`: no name was to go yet.
    moves: Option<(PlanName, Grace)>,
    stop: Stop,
}

/// Answers whether a client may have names beneath a path moved away, and takes what that needs.
pub(super) async fn admit(
    daemon: &Arc<Daemon>,
    peer: SocketAddr,
    client: &ClientConfig,
    (root, path): (&str, RelPath),
) -> Result<Removal, Fault> {
    let (config, rights) = daemon.root(client, root)?;
    need(rights.read, "read", config)?;
    need(rights.delete, "delete", config).map_err(|fault| fault.hint(hint::Daemon::AskForDelete))?;
    daemon.live.drain.admit()?;
    let _session = session_place(daemon, client.key).await?;
    let what = format!("removal in {root}/{}", path.escaped());
    let (trigger, stop) = Stop::new();
    let _linked = match &daemon.live.link {
        Some(link) => {
            let needs = Needs::of_removal(root).of_user(client.uid());
            let asked = (what.clone(), true, needs);
            Some(link.begin(asked, (Protection::Private, Transport::Tcp), 0, trigger.clone()).await?)
        }
        None => None,
    };
    let _root = daemon.live.places.take(config)?;
    let (set, _, base) = daemon.spot(root, path).await?;
    let stop = stop.or(daemon.stop.clone());
    let mover = blocking(move || NameMover::beneath(&set, base, stop)).await?;
    Ok(Removal {
        client: client.name.clone(),
        key: client.key,
        peer,
        uid: client.uid(),
        root: root.to_owned(),
        what,
        mover,
        audit: daemon.live.audit.session(client, (client.key, peer)),
        trigger,
        _holds: RemovalHolds { _root, _linked, _session },
    })
}

impl Removal {
    /// Carries out orders until the client has no more.
    pub(super) async fn run(self, (daemon, current): (&Daemon, &Current), mut control: Control) {
        let begun = Instant::now();
        let Removal { client, key, peer, what, audit, .. } = &self;
        let (client, key, peer, what, audit) = (client.clone(), *key, *peer, what.clone(), audit.clone());
        tracing::info!(target: "longhaul::session", %peer, %client, "opened: {what}");
        let mut counts = Counts::default();
        let fault = self.conversed((daemon, current), &mut control, &mut counts).await.err();
        if let Some(fault) = fault.clone().filter(|fault| fault.code != FaultCode::Lost) {
            let _ = timeout(ANSWER_TAKEN_WITHIN, write_message(&mut control.writer, &Message::Refuse(fault))).await;
        }
        let _ = timeout(ANSWER_TAKEN_WITHIN, control.writer.shutdown()).await;
        let code = fault.as_ref().map(|fault| fault.code);
        let end = fault.as_ref().map_or_else(|| COMPLETE.to_owned(), |fault| format!("{}: {fault}", fault.code.name()));
        let (session, result) = (audit.name(), code.map_or(COMPLETE, FaultCode::name));
        let (moved_away, failed, seconds) = (counts.moved_away, counts.failed, begun.elapsed().as_secs_f64());
        tracing::info!(
            target: "longhaul::session",
            session,
            %peer,
            %client,
            %key,
            result,
            moved_away,
            failed,
            seconds = (seconds * 1e3).round() / 1e3,
            "ended: {what}: {end}"
        );
        daemon.live.link.iter().for_each(|link| link.outcome(Outcome::Ended(counts, code)));
        daemon.live.tallies.ended(transport_name(Transport::Tcp), code);
        fault.iter().for_each(|fault| daemon.live.tallies.fault(&client, &what, fault));
        let record = AuditRecord { deed: AuditDeed::SessionEnded, what: Some(&what), code, ..AuditRecord::default() };
        audit.keep(AuditRecord { count: Some(moved_away), ..record });
    }

    /// Enters the list of sessions, and hears orders. What it holds is given back at the end.
    async fn conversed(
        self,
        (daemon, current): (&Daemon, &Current),
        control: &mut Control,
        counts: &mut Counts,
    ) -> Result<(), Fault> {
        let Removal { client, key, peer, uid, root, what, mover, audit, trigger, _holds } = self;
        let session = daemon.live.link.as_ref().map_or_else(nonce, |link| Ok(link.session()))?;
        audit.admitted(shown(&session), trigger.clone());
        audit.keep(AuditRecord { deed: AuditDeed::SessionBegan, what: Some(&what), ..AuditRecord::default() });
        let (needs, counter) = (Needs::of_removal(&root).of_user(uid), Arc::new(SessionCounter::default()));
        let (protection, transport) = (Protection::Private, transport_name(Transport::Tcp));
        let (receives, begun) = (true, Instant::now());
        let live = Live { key, client, peer, what, protection, transport, receives, begun, needs, counter, trigger };
        let seat = daemon.live.enter(session, live);
        end_if_unwanted(current, &seat);
        let opened = RemovalOpened { device: mover.root.device(), grace: Grace::place(&mover.root).into() };
        let mut stop = mover.stop.clone();
        let mut orders = RemovalOrders { mover: Some(mover), root, audit, counts, writer: &mut control.writer };
        orders.say(&Message::RemovalOpened(opened)).await?;
        loop {
            let order = tokio::select! {
                biased;
                code = stop.stopped() => return Err(Fault::new(code, Blame::Local, "the daemon ends this conversation")),
                order = next_order(&mut control.reader) => order?,
            };
            match order {
                Some(order) => orders.carry_out(order).await?,
                None => return Ok(()),
            }
        }
    }
}

/// Waits for the next order. `None`: there is none.
async fn next_order(reader: &mut ReadHalf) -> Result<Option<RemovalOrder>, Fault> {
    match timeout(PATIENCE, read_message(reader)).await {
        Ok(Ok(Some(Message::RemovalOrder(order)))) => Ok(Some(order)),
        Ok(Ok(Some(Message::Refuse(fault)))) => Err(fault.seen_from_afar()),
        Ok(Ok(Some(other))) => Err(Fault::protocol(format_args!("{} in place of an order", other.name()))),
        Ok(Ok(None)) => Ok(None),
        Ok(Err(fault)) => Err(fault),
        Err(_) => Err(Fault::new(FaultCode::TimedOut, Blame::Peer, "no order came for too long")),
    }
}

/// The orders of a conversation, one after the other.
struct RemovalOrders<'c> {
    /// `None` while an order is carried out.
    mover: Option<NameMover>,
    root: String,
    audit: Arc<SessionAudit>,
    counts: &'c mut Counts,
    writer: &'c mut WriteHalf,
}

impl RemovalOrders<'_> {
    /// Carries out an order, and says what became of its names.
    async fn carry_out(&mut self, order: RemovalOrder) -> Result<(), Fault> {
        need_sound(&order)?;
        let Some(mut mover) = self.mover.take() else { return Err(Fault::protocol("two orders at a time")) };
        let work = blocking(move || {
            let answers = match &order {
                RemovalOrder::Look(paths) => Ok(paths.iter().map(|path| mover.look(path)).collect()),
                RemovalOrder::Move(batch) => mover.move_all(batch),
            };
            Ok((answers, order, mover))
        });
        let (answers, order, mover) = self.while_it_works(work).await?;
        let answers = answers?;
        if let RemovalOrder::Move(batch) = &order {
            self.record(&mover.base, batch, &answers);
        }
        self.mover = Some(mover);
        let mut left = answers.into_iter().peekable();
        loop {
            let names: Vec<_> = left.by_ref().take(ANSWERS_OF_MESSAGE).collect();
            let last = left.peek().is_none();
            self.say(&Message::RemovalAnswer(RemovalAnswer { names, last })).await?;
            if last {
                return Ok(());
            }
        }
    }

    /// Records what went, and what could not.
    fn record(&mut self, base: &RelPath, batch: &RemovalBatch, answers: &[NameAnswer]) {
        for (name, answer) in batch.names.iter().zip(answers) {
            let code = match answer {
                NameAnswer::Moved => None,
                NameAnswer::Refused(fault) => Some(fault.code),
                _ => continue,
            };
            let sum = if code.is_none() { &mut self.counts.moved_away } else { &mut self.counts.failed };
            *sum += 1;
            if let Ok(path) = base.concat(&name.path) {
                self.audit.withdrawn((&self.root, &path), name.facts.bytes, code);
            }
        }
    }

    /// Waits for answers, and says now and then that it is at work: the other side takes silence
    /// for an end.
    async fn while_it_works<T>(&mut self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let mut work = std::pin::pin!(work);
        loop {
            match timeout(SAY_EVERY, &mut work).await {
                Ok(done) => return done,
                Err(_) => {
                    let busy = RemovalAnswer { names: Vec::new(), last: false };
                    // What is under way is done whether or not anybody hears of it.
                    if let Err(fault) = self.say(&Message::RemovalAnswer(busy)).await {
                        let _ = work.await;
                        return Err(fault);
                    }
                }
            }
        }
    }

    async fn say(&mut self, message: &Message) -> Result<(), Fault> {
        match timeout(ANSWER_TAKEN_WITHIN, write_message(self.writer, message)).await {
            Ok(said) => said,
            Err(_) => Err(Fault::new(FaultCode::TimedOut, Blame::Peer, "the answers to an order are not taken")),
        }
    }
}

/// Refuses an order that no client gives which keeps to the rules.
fn need_sound(order: &RemovalOrder) -> Result<(), Fault> {
    let (count, has_top) = match order {
        RemovalOrder::Look(paths) => (paths.len(), paths.iter().any(RelPath::is_root)),
        RemovalOrder::Move(batch) => (batch.names.len(), batch.names.iter().any(|name| name.path.is_root())),
    };
    if count == 0 || count > REMOVAL_NAMES_MAX || has_top {
        return Err(Fault::protocol("an order about no name, about more than there may be, or about the top itself"));
    }
    Ok(())
}

impl NameMover {
    /// The names beneath a path of a root, which is a directory.
    fn beneath(set: &TargetSet, base: RelPath, stop: Stop) -> Result<NameMover, Fault> {
        let unsupported = |why: &str| Err(Fault::new(FaultCode::Unsupported, Blame::Local, why).about(base.escaped()));
        if set.is_set() {
            return unsupported("names are moved away in a plain directory, and this root is a target set");
        }
        let root = set.first().clone();
        if !base.is_root() {
            match root.facts(&base)? {
                None => {
                    let fault = Fault::new(FaultCode::NotFound, Blame::Local, "there is no such directory");
                    return Err(fault.about(base.escaped()));
                }
                Some(facts) if facts.kind != NameKind::Dir => {
                    let fault = Fault::new(FaultCode::InTheWay, Blame::Local, "it is a link, or no directory");
                    return Err(fault.about(base.escaped()));
                }
                Some(facts) if facts.dev != root.device() => {
                    return unsupported(
                        "it lies on another file system than the top of its root, where names would go",
                    );
                }
                Some(_) => {}
            }
        }
        Ok(NameMover { root, base, moves: None, stop })
    }

    /// Says what has a name.
    fn look(&self, path: &RelPath) -> NameAnswer {
        let looked = || -> Result<NameAnswer, Fault> {
            let path = self.whole(path)?;
            let Some(facts) = self.root.facts(&path)? else { return Ok(NameAnswer::Absent) };
            let within = if facts.kind == NameKind::Dir { self.root.names_in(&path)? } else { 0 };
            Ok(NameAnswer::Found { facts: known_facts(&facts), within })
        };
        looked().unwrap_or_else(NameAnswer::Refused)
    }

    /// Moves the names of a plan away, durably.
    fn move_all(&mut self, batch: &RemovalBatch) -> Result<Vec<NameAnswer>, Fault> {
        let (_, mut grace) = match self.moves.take() {
            Some((plan, _)) if plan != batch.plan => {
                return Err(Fault::protocol("names of another plan than those before"));
            }
            Some(moves) => moves,
            None => (batch.plan, Grace::open(&self.root, &batch.plan.label())?),
        };
        let answers = batch.names.iter().map(|name| self.moved(name, &mut grace)).collect();
        grace.sync()?;
        self.moves = Some((batch.plan, grace));
        Ok(answers)
    }

    /// Moves a name away, if nothing speaks against it.
    fn moved(&self, KnownName { path, facts }: &KnownName, grace: &mut Grace) -> NameAnswer {
        if let Some(code) = self.stop.pulled() {
            return NameAnswer::Refused(Fault::new(code, Blame::Local, "the daemon ends this conversation"));
        }
        let facts: NameFacts = facts_said(facts);
        let mut moved = || -> Result<NameAnswer, Fault> {
            let path = self.whole(path)?;
            if is_kept(&path) {
                let why = "a dataset that was replaced is kept there, and no plan takes any of it";
                return Err(Fault::new(FaultCode::Denied, Blame::Local, why).about(path.escaped()));
            }
            // No name goes over the border of a file system, nor one of another kind.
            if facts.kind == NameKind::Special || facts.dev != self.root.device() {
                return Ok(NameAnswer::Changed);
            }
            Ok(match grace.withdraw(&path, &facts)? {
                Withdrawn::Moved => NameAnswer::Moved,
                Withdrawn::MovedBefore => NameAnswer::MovedBefore,
                Withdrawn::Gone => NameAnswer::Absent,
                Withdrawn::Changed => NameAnswer::Changed,
                Withdrawn::NotEmpty => NameAnswer::NotEmpty,
            })
        };
        moved().unwrap_or_else(NameAnswer::Refused)
    }

    /// The path beneath the root of one beneath the base.
    fn whole(&self, path: &RelPath) -> Result<RelPath, Fault> {
        self.base.concat(path).map_err(|error| Fault::new(FaultCode::Unsupported, Blame::Peer, error))
    }
}

/// Answers in one message: each may have texts of 3 KiB.
const ANSWERS_OF_MESSAGE: usize = 32;
/// How long an order is waited for. A client that has none for half as long begins anew.
const PATIENCE: Duration = Duration::from_secs(90);
/// A conversation ends if an answer is not taken for this long.
const ANSWER_TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Time between two signs of life.
const SAY_EVERY: Duration = Duration::from_secs(4);
