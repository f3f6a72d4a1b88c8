//! Looks at names in a root for a client, and moves those away that its source has no more.
//!
//! In: orders of one conversation, each of bounded size and about names beneath one path. Out: what
//! became of each name, its record, and the figures of the conversation. A name goes only while it
//! has the facts that its order says, into the grace directory of its plan at the top of the root.
//! It holds one order at a time. It does not know whether the source has a name: that is the
//! client's to say.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::limits::REMOVAL_NAMES_MAX;
use longhaul_core::{Blame, Fault, FaultCode, PlanName, RelPath, Transport, Whereabouts, hint, is_kept};
use longhaul_disk::{Grace, NameFacts, NameKind, TargetSet, Tree, Withdrawn};
use longhaul_net::{Control, Protection, PublicKey};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{KnownName, NameAnswer, RemovalAnswer, RemovalBatch, RemovalOpened, RemovalOrder};
use tokio::time::timeout;

use super::access::need;
use super::admission::session_place;
use super::audit::{AuditDeed, AuditRecord, SessionAudit};
use super::current::Current;
use super::deputy::LinkedSession;
use super::ending::{EndedKind, EndedSession, part};
use super::handle::shown;
use super::live::{Counts, Live, Needs, SessionCounter};
use super::root_places::RootPlace;
use super::runs::RunSeat;
use super::serve::{end_if_unwanted, transport_name};
use super::shares::Share;
use super::{ClientConfig, Daemon};
use crate::api::{Stop, StopTrigger};
use crate::known_name::{facts_said, known_facts};
use crate::random::nonce;
use crate::session::channel::{ReadHalf, WriteHalf, read_message, write_message};
use crate::session::idle::Activity;
use crate::session::stopped::stopped;
use crate::workers::blocking;

/// A conversation about names of a root that is allowed and has what it needs.
pub(super) struct Removal {
    client: String,
    key: PublicKey,
    peer: SocketAddr,
    uid: Option<u32>,
    /// Its doing, as the log says it.
    what: String,
    mover: NameMover,
    trigger: StopTrigger,
    holds: RemovalHolds,
}

/// The things that such a conversation has of the daemon, in the order in which they are given
/// back. The last is its place among the runs: whoever waits for that may begin at once.
struct RemovalHolds {
    _root: RootPlace,
    _linked: Option<LinkedSession>,
    _session: Share,
    run: RunSeat,
}

/// The names of a root as a conversation reaches them.
struct NameMover {
    root: Arc<Tree>,
    /// The name of the root.
    named: String,
    audit: Arc<SessionAudit>,
    /// Where the directory of the path lies.
    whereabouts: Whereabouts,
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
    // One in which nothing is asked for makes room for others, as any session does.
    let run = daemon.runs.take_over(client.key, nonce()?).await?;
    let _session = session_place(daemon, client.key).await?;
    let what = format!("removal in {root}/{}", path.escaped());
    let (trigger, stop) = (run.trigger(), run.stop());
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
    let (named, audit) = (root.to_owned(), daemon.live.audit.session(client, (client.key, peer)));
    let mover = blocking(move || NameMover::beneath(&set, base, (named, audit), stop)).await?;
    Ok(Removal {
        client: client.name.clone(),
        key: client.key,
        peer,
        uid: client.uid(),
        what,
        mover,
        trigger,
        holds: RemovalHolds { _root, _linked, _session, run },
    })
}

impl Removal {
    /// Carries out orders until the client has no more.
    pub(super) async fn run(self, (daemon, current): (&Daemon, &Current), mut control: Control) {
        let begun = Instant::now();
        let Removal { client, key, peer, what, mover, .. } = &self;
        let (client, key, peer, what, audit) = (client.clone(), *key, *peer, what.clone(), mover.audit.clone());
        tracing::info!(target: "longhaul::session", %peer, %client, "opened: {what}");
        let mut counts = Counts::default();
        let fault = self.conversed((daemon, current), &mut control, &mut counts).await.err();
        part(&mut control, fault.as_ref()).await;
        let (client, what, fault) = (&client, &what, fault.as_ref());
        let (transport, kind) = (transport_name(Transport::Tcp), EndedKind::Removal);
        EndedSession { client, key, peer, what, transport, begun, counts, fault, kind }.tell(daemon, &audit);
    }

    /// Enters the list of sessions, and hears orders. What it holds is given back at the end.
    async fn conversed(
        self,
        (daemon, current): (&Daemon, &Current),
        control: &mut Control,
        counts: &mut Counts,
    ) -> Result<(), Fault> {
        let Removal { client, key, peer, uid, what, mover, trigger, holds } = self;
        let audit = &mover.audit;
        let session = daemon.live.link.as_ref().map_or_else(nonce, |link| Ok(link.session()))?;
        audit.admitted(shown(&session), trigger.clone());
        audit.keep(AuditRecord { deed: AuditDeed::SessionBegan, what: Some(&what), ..AuditRecord::default() });
        let (needs, counter) = (Needs::of_removal(&mover.named).of_user(uid), Arc::new(SessionCounter::default()));
        let (protection, transport) = (Protection::Private, transport_name(Transport::Tcp));
        let (receives, begun) = (true, Instant::now());
        let live = Live { key, client, peer, what, protection, transport, receives, begun, needs, counter, trigger };
        let seat = daemon.live.enter(session, live);
        end_if_unwanted(current, &seat);
        let (device, grace) = (mover.root.device(), Grace::place(&mover.root).into());
        let opened = RemovalOpened { device, grace, whereabouts: mover.whereabouts.clone() };
        let mut stop = mover.stop.clone();
        let (activity, writer) = (holds.run.activity(), &mut control.writer);
        let mut orders = RemovalOrders { mover: Some(mover), counts, activity, writer };
        orders.say(&Message::RemovalOpened(opened)).await?;
        loop {
            let order = tokio::select! {
                biased;
                code = stop.stopped() => return Err(stopped(code)),
                order = next_order(&mut control.reader) => order?,
            };
            match order {
                Some(order) => orders.carry_out(order).await?,
                None => return Ok(()),
            }
        }
    }
}

/// Waits for the next order. `None`: there is none, or none came for so long that there may be
/// none any more; a client that has one after all begins anew.
async fn next_order(reader: &mut ReadHalf) -> Result<Option<RemovalOrder>, Fault> {
    match timeout(PATIENCE, read_message(reader)).await {
        Ok(Ok(Some(Message::RemovalOrder(order)))) => Ok(Some(order)),
        Ok(Ok(Some(Message::Refuse(fault)))) => Err(fault.seen_from_afar()),
        Ok(Ok(Some(other))) => Err(Fault::protocol(format_args!("{} in place of an order", other.name()))),
        Ok(Ok(None)) => Ok(None),
        Ok(Err(fault)) => Err(fault),
        Err(_) => Ok(None),
    }
}

/// The orders of a conversation, one after the other.
struct RemovalOrders<'c> {
    /// `None` while an order is carried out.
    mover: Option<NameMover>,
    counts: &'c mut Counts,
    /// Shows since when nothing was asked for.
    activity: Activity,
    writer: &'c mut WriteHalf,
}

impl RemovalOrders<'_> {
    /// Carries out an order, and says what became of its names.
    async fn carry_out(&mut self, order: RemovalOrder) -> Result<(), Fault> {
        need_sound(&order)?;
        let Some(mut mover) = self.mover.take() else { return Err(Fault::protocol("two orders at a time")) };
        let (unheard, stop) = Stop::new();
        let stops = [mover.stop.clone(), stop];
        let work = blocking(move || {
            let done = match &order {
                RemovalOrder::Look(paths) => (paths.iter().map(|path| mover.look(path, &stops)).collect(), None),
                RemovalOrder::Move(batch) => mover.move_all(batch, &stops),
            };
            Ok((done, mover))
        });
        let (done, said) = self.while_it_works(work, &unheard).await;
        let ((answers, fault), mover) = done?;
        self.count(&answers);
        self.mover = Some(mover);
        fault.map_or(said, Err)?;
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

    /// Counts what went, and what could not.
    fn count(&mut self, answers: &[NameAnswer]) {
        for answer in answers {
            match answer {
                NameAnswer::Moved => self.counts.moved_away += 1,
                NameAnswer::Refused(_) => self.counts.failed += 1,
                _ => {}
            }
        }
    }

    /// Waits for the work, and says now and then that it is under way: the other side takes silence
    /// for an end. If nobody hears that any more, the work is told, and ends with the name that it
    /// is at. What it did is given in any case, beside the fault of the connection.
    async fn while_it_works<T>(
        &mut self,
        work: impl Future<Output = Result<T, Fault>>,
        unheard: &StopTrigger,
    ) -> (Result<T, Fault>, Result<(), Fault>) {
        let mut work = std::pin::pin!(work);
        loop {
            match timeout(SAY_EVERY, &mut work).await {
                Ok(done) => return (done, Ok(())),
                Err(_) => {
                    let busy = RemovalAnswer { names: Vec::new(), last: false };
                    if let Err(fault) = self.say(&Message::RemovalAnswer(busy)).await {
                        unheard.stop(FaultCode::Lost);
                        return (work.await, Err(fault));
                    }
                }
            }
        }
    }

    async fn say(&mut self, message: &Message) -> Result<(), Fault> {
        let said = timeout(ANSWER_TAKEN_WITHIN, write_message(self.writer, message)).await.unwrap_or_else(|_| {
            Err(Fault::new(FaultCode::TimedOut, Blame::Peer, "the answers to an order are not taken"))
        });
        if said.is_ok() {
            self.activity.set(Instant::now());
        }
        said
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
    // To count the names in a directory may take long.
    if let RemovalOrder::Look(paths) = order
        && paths.iter().collect::<HashSet<_>>().len() < count
    {
        return Err(Fault::protocol("an order to look at one name several times"));
    }
    Ok(())
}

impl NameMover {
    /// The names beneath a path of a root, which is a directory.
    fn beneath(
        set: &TargetSet,
        base: RelPath,
        (named, audit): (String, Arc<SessionAudit>),
        stop: Stop,
    ) -> Result<NameMover, Fault> {
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
        let whereabouts = root.whereabouts(&base)?;
        Ok(NameMover { root, named, audit, whereabouts, base, moves: None, stop })
    }

    /// Says what has a name, unless it is to stop.
    fn look(&self, path: &RelPath, stops: &[Stop; 2]) -> NameAnswer {
        let looked = || -> Result<NameAnswer, Fault> {
            need_unstopped(stops)?;
            let path = self.whole(path)?;
            let Some(facts) = self.root.facts(&path)? else { return Ok(NameAnswer::Absent) };
            let goes_on = |count| count <= NAMES_COUNTED_MAX && need_unstopped(stops).is_ok();
            let within = match facts.kind {
                NameKind::Dir => self.root.names_in(&path, goes_on)?.unwrap_or(u64::MAX),
                _ => 0,
            };
            Ok(NameAnswer::Found { facts: known_facts(&facts), within })
        };
        looked().unwrap_or_else(NameAnswer::Refused)
    }

    /// Moves the names of a plan away, durably, and records each right behind its move. Ends at a
    /// fault after which nothing more may go, and gives that beside the answers so far.
    fn move_all(&mut self, batch: &RemovalBatch, stops: &[Stop; 2]) -> (Vec<NameAnswer>, Option<Fault>) {
        let opened = match self.moves.take() {
            Some((plan, _)) if plan != batch.plan => Err(Fault::protocol("names of another plan than those before")),
            Some((_, grace)) => Ok(grace),
            None => Grace::open(&self.root, &batch.plan.label()).map_err(Fault::from),
        };
        let mut grace = match opened {
            Ok(grace) => grace,
            Err(fault) => return (Vec::new(), Some(fault)),
        };
        let (mut answers, mut stopped) = (Vec::with_capacity(batch.names.len()), Ok(()));
        for name in &batch.names {
            stopped = need_unstopped(stops);
            if stopped.is_err() || grace.need_sure().is_err() {
                break;
            }
            let answer = self.moved(name, &mut grace);
            self.record(name, &answer);
            answers.push(answer);
        }
        let fault = grace.sync().map_err(Fault::from).and(stopped).err();
        self.moves = Some((batch.plan, grace));
        (answers, fault)
    }

    /// Records a name that went, and one that could not. One that an earlier run moved is recorded
    /// too: that may have been killed right behind the move.
    fn record(&self, name: &KnownName, answer: &NameAnswer) {
        let (code, what) = match answer {
            NameAnswer::Moved => (None, None),
            NameAnswer::MovedBefore => (None, Some("moved before")),
            NameAnswer::Refused(fault) => (Some(fault.code), None),
            _ => return,
        };
        if let Ok(path) = self.base.concat(&name.path) {
            self.audit.withdrawn((&self.named, &path), name.facts.bytes, (code, what));
        }
    }

    /// Moves a name away, if nothing speaks against it.
    fn moved(&self, KnownName { path, facts }: &KnownName, grace: &mut Grace) -> NameAnswer {
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

/// Refuses to go on once there is a reason to stop: one is also that a record is lost that may not
/// be.
fn need_unstopped(stops: &[Stop; 2]) -> Result<(), Fault> {
    stops.iter().find_map(Stop::pulled).map_or(Ok(()), |code| Err(stopped(code)))
}

/// The most names that are counted in a directory: no plan has more.
const NAMES_COUNTED_MAX: u64 = 1 << 21;
/// Answers in one message: each may have texts of 3 KiB.
const ANSWERS_OF_MESSAGE: usize = 32;
/// How long an order is waited for. A client that had none for 20 s begins anew, as one that waits
/// for 30 s may have made room for another one.
const PATIENCE: Duration = Duration::from_secs(90);
/// A conversation ends if an answer is not taken for this long.
const ANSWER_TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Time between two signs of life.
const SAY_EVERY: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests;
