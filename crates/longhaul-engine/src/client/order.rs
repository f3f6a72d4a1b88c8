//! Orders a daemon to fetch from another one, by a grant that this side signs, and follows it.
//!
//! In: the two daemons, the sources at one of them and the destination at the other. Out: events as
//! the daemon that fetches tells them, and its report. No file passes this side, and its key never
//! leaves it: the grant names the one key that may use it.

use std::time::{Duration, Instant, SystemTime};

use longhaul_core::{Blame, Fault, FaultCode, Role, Word, hint};
use longhaul_disk::Shape;
use longhaul_net::{Control, PublicKey};
use longhaul_proto::Message;
use longhaul_proto::wire::grant::{GRANT_SECONDS_MAX, GRANT_SOURCES_MAX, Grant, GrantRight, SignedGrant};
use longhaul_proto::wire::message::{Far, FarSource, Order, OrderEnd, OrderEvent, OrderLeft, OrderVerdict, Request};
use tokio::sync::mpsc;

use super::connect::{Reached, connect};
use super::{Run, at_daemon, conclude, contents};
use crate::api::{Credentials, Event, Following, Observer, Reach, Remote, RemotePath, Report};
use crate::budget;
use crate::place;
use crate::random::nonce;
use crate::session::channel::{ReadHalf, read_message, write_message};
use crate::session::handshake::{self, Shown, Units};
use crate::third_party;

/// The two ends of a copy between daemons.
struct ThirdParty {
    /// The daemon that sends.
    from: Remote,
    /// The sources there.
    paths: Vec<RemotePath>,
    /// The daemon that fetches.
    to: Remote,
    /// The destination there.
    path: RemotePath,
    /// Until when this side follows.
    following: Following,
}

/// Has a copy between two daemons carried out. Always gives a report.
pub(super) async fn carried_out(
    run: &Run,
    credentials: Option<Credentials>,
    (from, paths, to, path, following): (Reach, Vec<RemotePath>, Reach, RemotePath, Following),
    observer: &dyn Observer,
    begun: Instant,
) -> Report {
    let remotes = at_daemon(credentials.clone(), from).and_then(|from| Ok((from, at_daemon(credentials, to)?)));
    let reported = match remotes {
        Ok((from, to)) => run.order(ThirdParty { from, paths, to, path, following }).await,
        Err(fault) => Err(fault),
    };
    match reported {
        Ok(report) => {
            report.fault.iter().for_each(|fault| observer.event(Event::Fault(fault.clone())));
            Report { seconds: begun.elapsed().as_secs_f64(), ..report }
        }
        Err(fault) => conclude(Err(fault), observer, begun),
    }
}

impl Run {
    /// Has the copy carried out, and gives the report of the daemon that fetched.
    ///
    /// # Errors
    /// A [`Fault`] of the order; what ends it later is in the report.
    async fn order(&self, asked: ThirdParty) -> Result<Report, Fault> {
        self.refuse_settings(&asked)?;
        let mut stop = self.stop.clone();
        let begun = tokio::select! {
            biased;
            code = stop.stopped() => Err(Fault::new(code, Blame::Local, "stopped before the transfer began")),
            begun = self.begin_order(&asked) => begun,
        };
        let (control, id) = begun?;
        self.follow(control, id, asked.following).await
    }

    /// Asks both daemons. Returns the control connection on which the order was taken, and its
    /// name.
    async fn begin_order(&self, asked: &ThirdParty) -> Result<(Control, [u8; 16]), Fault> {
        let Reach::Address { host, port } = &asked.from.reach else { return Err(only_daemons()) };
        // The key for which the grant is good is the one that this side trusts.
        let audience = connect(&asked.from).await?.control.peer_key;
        let Reached { mut control, .. } = connect(&asked.to).await?;
        let (id, grant) = self.grant(asked, audience, control.peer_key)?;
        let RemotePath { root, path, slash } = asked.path.clone();
        let is_whole = self.publishing.dataset.is_some();
        let has_contents = asked.paths.iter().any(contents);
        let placing = place::placing(is_whole || slash, asked.paths.len(), has_contents, &Shape::Other);
        let far = Far::Destination { root, path, placing, if_exists: self.settings.if_exists };
        let chunk_max = budget::largest_chunk(self.settings.memory, self.settings.chunk_size());
        let slots = budget::slots(self.settings.memory, self.settings.chunk_size())?;
        let lanes = self.lanes_wanted(control.rtt, slots, self.transport());
        let transfer = self.transfer(Role::Sender, far, id, chunk_max, lanes)?;
        let order = Order {
            host: Word::try_from(host.as_str()).map_err(|e| Fault::new(FaultCode::Usage, Blame::Local, e))?,
            port: *port,
            grant,
            rules: self.settings.filter.rules().to_vec(),
            lanes: self.settings.lanes.unwrap_or(0),
            retry_seconds: u32::try_from(self.settings.retry_for.as_secs()).unwrap_or(u32::MAX),
        };
        let (claim, dataset) = (self.publishing.claim, self.publishing.dataset.clone());
        let shown = Shown { claim, dataset, order: Some(Box::new(order)), grant: None };
        for message in shown.around(handshake::hello(Request::Transfer(Box::new(transfer)), Units::Any)) {
            write_message(&mut control.writer, &message).await?;
        }
        let patience = shown.patience(Some(handshake::TAKE_OVER));
        match handshake::answer_within(&mut control.reader, patience).await? {
            Message::OrderTaken(taken) if taken.id == id => Ok((control, id)),
            Message::Welcome(_) => {
                let why = format_args!("the daemon at {} does not know how to fetch from another one", asked.to.reach);
                Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint::Program::PullThenPush))
            }
            other => Err(Fault::protocol(format_args!("{} in answer to an order", other.name()))),
        }
    }

    /// Signs a grant for the sources: the daemon of one key may fetch them from that of another.
    fn grant(
        &self,
        asked: &ThirdParty,
        audience: PublicKey,
        holder: PublicKey,
    ) -> Result<([u8; 16], SignedGrant), Fault> {
        let identity = &asked.to.credentials.identity;
        let source = |p: &RemotePath| FarSource { root: p.root.clone(), path: p.path.clone(), contents: contents(p) };
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let grant = Grant {
            id: nonce()?,
            issuer: *identity.public().as_bytes(),
            holder: *holder.as_bytes(),
            audience: *audience.as_bytes(),
            right: GrantRight::Read,
            sources: asked.paths.iter().map(source).collect(),
            not_before: since_1970.as_secs(),
            not_after: since_1970.as_secs() + GRANT_SECONDS_MAX,
        };
        let signed = grant.signed(|bytes| identity.sign(bytes)).map_err(|_| {
            let why = format_args!("one grant names {GRANT_SOURCES_MAX} sources and 16 KiB of paths at most");
            Fault::new(FaultCode::Usage, Blame::Local, why).hint(hint::Names::NameDirectories)
        })?;
        Ok((grant.id, signed))
    }

    /// Refuses what only the host of the sources could do, or that of the destination.
    fn refuse_settings(&self, asked: &ThirdParty) -> Result<(), Fault> {
        if !matches!((&asked.from.reach, &asked.to.reach), (Reach::Address { .. }, Reach::Address { .. })) {
            return Err(only_daemons());
        }
        let refused = [
            (self.settings.files_from.is_some(), "a list of names"),
            (!self.settings.paths.is_empty(), "a path of this host's addresses"),
            (self.settings.metadata.accounts != Default::default(), "a mapping of accounts"),
        ];
        let Some((_, what)) = refused.iter().find(|(is_asked, _)| *is_asked) else { return Ok(()) };
        let why = format_args!("{what} cannot be given for a copy from one daemon to another");
        Err(Fault::new(FaultCode::Usage, Blame::Local, why).hint(hint::Program::PullThenPush))
    }

    /// Tells what the daemon tells, until the order has ended or this side leaves.
    async fn follow(&self, control: Control, id: [u8; 16], following: Following) -> Result<Report, Fault> {
        let (mut stop, mut writer) = (self.stop.clone(), control.writer);
        let mut heard = reading(control.reader);
        let mut stopped: Option<FaultCode> = None;
        loop {
            let patience = if stopped.is_some() { LAST_WORDS } else { ORDER_SILENCE_MAX };
            let message = tokio::select! {
                biased;
                code = stop.stopped(), if stopped.is_none() => {
                    let why = Fault::new(code, Blame::Peer, "the client was stopped");
                    write_message(&mut writer, &Message::Refuse(why)).await?;
                    stopped = Some(code);
                    continue;
                }
                message = tokio::time::timeout(patience, heard.recv()) => message,
            };
            let ended = |why: &str| match stopped {
                Some(code) => Fault::new(code, Blame::Local, "stopped before the daemon said how it ended"),
                None => Fault::new(FaultCode::Lost, Blame::Path, why).hint(hint::Again::WhereItEnded),
            };
            match message {
                Err(_) => return Err(ended("the daemon that fetches fell silent, and ends the copy as it notices")),
                Ok(None) => {
                    return Err(ended("the connection to the daemon that fetches was lost, so it ends the copy"));
                }
                Ok(Some(Err(fault))) => return Err(if stopped.is_some() { ended("") } else { fault }),
                Ok(Some(Ok(Message::OrderEvents(events)))) => {
                    let runs = events.iter().any(|event| matches!(event, OrderEvent::Started(_)));
                    events.into_iter().for_each(|event| self.observer.event(third_party::heard(event)));
                    if runs && following == Following::UntilItRuns {
                        write_message(&mut writer, &Message::OrderLeft(OrderLeft { id })).await?;
                    }
                }
                Ok(Some(Ok(Message::OrderLeft(_)))) if following == Following::UntilItRuns => {
                    self.observer.event(Event::Left(third_party::hex(&id)));
                    return Ok(third_party::heard_end(nothing_yet()));
                }
                Ok(Some(Ok(Message::OrderEnded(end)))) => return Ok(third_party::heard_end(with_code(*end, stopped))),
                Ok(Some(Ok(Message::Refuse(fault)))) => return Err(fault.seen_from_afar()),
                Ok(Some(Ok(other))) => {
                    return Err(Fault::protocol(format_args!("{} while an order is carried out", other.name())));
                }
            }
        }
    }
}

/// The end of an order that was stopped from here carries the code by which it was.
fn with_code(end: OrderEnd, stopped: Option<FaultCode>) -> OrderEnd {
    let verdict = match (end.verdict, stopped) {
        (OrderVerdict::Ended(fault), Some(code)) => OrderVerdict::Ended(Fault { code, ..fault }),
        (verdict, _) => verdict,
    };
    OrderEnd { verdict, ..end }
}

/// The report of an order that was left while it ran: nothing is known of it.
fn nothing_yet() -> OrderEnd {
    OrderEnd {
        verdict: OrderVerdict::Complete,
        files: Default::default(),
        bytes: Default::default(),
        failures: Vec::new(),
        scanned: false,
        millis: 0,
        limits: Vec::new(),
    }
}

fn only_daemons() -> Fault {
    let why = "a copy between two other hosts is one between two daemons, and ssh leads to one of them";
    Fault::new(FaultCode::Usage, Blame::Local, why).hint(hint::Program::PullThenPush)
}

/// Reads messages on a task of its own, as reading one must not be broken off.
fn reading(mut reader: ReadHalf) -> mpsc::Receiver<Result<Message, Fault>> {
    let (told, heard) = mpsc::channel(4);
    tokio::spawn(async move {
        while let Some(message) = read_message(&mut reader).await.transpose() {
            let is_over = message.is_err();
            if told.send(message).await.is_err() || is_over {
                return;
            }
        }
    });
    heard
}

/// A daemon says something each few seconds while it carries out an order.
const ORDER_SILENCE_MAX: Duration = Duration::from_secs(45);
/// How long it may take to write down what has come once it was stopped.
const LAST_WORDS: Duration = Duration::from_secs(30);
