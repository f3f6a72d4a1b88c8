//! Carries out an order of a client: to fetch from another daemon what that client lends, into a
//! destination that it may write to.
//!
//! In: a push that was admitted, with an order in place of what it would send. Out: sessions with
//! the other daemon, one after the other, each by an admission of its own; the client hears of them
//! by its `follower`. `dials` says where this daemon may dial. It shows its own key there and the
//! client's grant, and asks for nothing by rights of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::filter::Filter;
use longhaul_core::{Blame, Fault, FaultCode, Role, hint};
use longhaul_net::{Congestion, Control, Identity, PublicKey};
use longhaul_proto::receiver::SkippedDigests;
use longhaul_proto::wire::grant::{Grant, SignedGrant};
use longhaul_proto::wire::message::{Far, FarSource, Order, Placing, Transfer, Transport as SaidTransport};
use tokio::time::timeout;

use super::admission::{Admission, prepare, udp_lanes};
use super::audit::{AuditDeed, AuditRecord};
use super::current::Current;
use super::dials::DialRule;
use super::ending::EndedSession;
use super::follower::{FOLLOWER_BYTES, Follower, FollowerEvents};
use super::handle::shown as session_name;
use super::live::{Live, SessionCounter};
use super::order_places::OrderPlaces;
use super::serve::{account, end_if_unwanted, listed, transport_name};
use super::shares::Share;
use super::side::{self, Side};
use super::{ClientConfig, Daemon};
use crate::api::{
    Credentials, Event, Metadata, Observer, Reach, Remote, RemotePath, Settings, Stop, StopTrigger, Transport, Trust,
    Verify,
};
use crate::budget;
use crate::client::connect::{Agreed, Dialling};
use crate::client::retry::Patience;
use crate::client::wish::Wish;
use crate::client::{Run, missing};
use crate::random::nonce;
use crate::session::channel::ReadHalf;
use crate::session::control::ControlLink;
use crate::session::course::ReceiveCourse;
use crate::session::handshake::{self, Shown};
use crate::session::idle::Idle;
use crate::session::overhead::Overhead;
use crate::session::plan::ReceivePlan;
use crate::session::{SessionEvent, totals::Totals};
use crate::third_party;

/// An order that may be carried out.
pub(super) struct Fetch {
    grant: Grant,
    signed: SignedGrant,
    identity: Arc<Identity>,
    /// The host as it was ordered, and its port.
    host: (String, u16),
    /// Its addresses that may be dialled.
    addresses: Vec<SocketAddr>,
    order: Order,
    /// It counts as one of the orders under way for as long as it is held.
    _place: Share,
}

/// Checks whether an order of this run may be carried out for a client: whether this daemon may
/// dial where the order says, under the addresses that it has now, and whether the grant is the
/// client's and for this run.
pub(super) async fn judge(
    daemon: &Daemon,
    client: &ClientConfig,
    (order, run): (Order, [u8; 16]),
) -> Result<Fetch, Fault> {
    let no_user = daemon.live.link.is_none() && daemon.roots.account.is_none();
    let Some(abroad) = daemon.live.abroad.clone().filter(|_| no_user) else { return Err(of_user()) };
    let grant = order.grant.read().map_err(|flaw| {
        Fault::new(FaultCode::Denied, Blame::Peer, format_args!("the order has no grant that is one: {flaw}"))
    })?;
    // The other daemon checks it all. Here it shows whose mistake it is.
    if grant.issuer != *client.key.as_bytes() || grant.holder != *abroad.identity.public().as_bytes() {
        let why = "the order's grant is not from its client to this daemon";
        return Err(Fault::new(FaultCode::Denied, Blame::Peer, why));
    }
    if grant.id != run {
        return Err(Fault::protocol("an order whose run is not that of its grant"));
    }
    // Its two sessions would be of one run, and each would end the other.
    if grant.audience == grant.holder {
        let why = "the order is to fetch from this same daemon, and a copy has its two ends at two daemons";
        return Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint::Program::PullThenPush));
    }
    let orders = daemon.runs.orders();
    let place = orders.begin(client.key)?;
    let (addresses, place) = addresses((&abroad.dial, orders), &order, place).await?;
    let (signed, host) = (order.grant.clone(), (order.host.to_string(), order.port));
    let identity = abroad.identity.clone();
    Ok(Fetch { grant, signed, identity, host, addresses, order, _place: place })
}

/// The fault of an order of a client that is a user of the host, be it only since the order began.
fn of_user() -> Fault {
    let why = "keys that are served as a user of the daemon's host cannot have it fetch from another daemon";
    Fault::new(FaultCode::Unsupported, Blame::Local, why).hint(hint::Program::PullThenPush)
}

/// The addresses of the ordered host that this daemon may dial, and the place of the order.
async fn addresses(
    (dial, orders): (&[DialRule], &OrderPlaces),
    order: &Order,
    place: Share,
) -> Result<(Vec<SocketAddr>, Share), Fault> {
    let (host, port) = (order.host.as_str(), order.port);
    let reach = Reach::Address { host: host.to_owned(), port };
    let denied = |what: &str| {
        let why = format_args!("this daemon may not dial {reach}{what}");
        Err(Fault::new(FaultCode::Denied, Blame::Local, why).about(&reach).hint(hint::Daemon::AllowDial))
    };
    if dial.is_empty() {
        return denied(": 'dial' of [third_party] in its serve.toml names no host");
    }
    // A name without a rule is not even looked up, unless a network is allowed.
    if !dial.iter().any(|rule| rule.may_allow(host, port)) {
        return denied(": no rule of 'dial' in its serve.toml allows that");
    }
    let (place, resolved) = match timeout(RESOLVED_WITHIN, orders.look_up(reach.to_string(), place)).await {
        Ok(Some((place, resolved))) => (place, resolved.map_err(Fault::from)?),
        Ok(None) | Err(_) => {
            let why = format_args!("no DNS server answers this daemon for {reach}");
            return Err(Fault::new(FaultCode::TimedOut, Blame::Path, why).hint(hint::Network::CheckResolver));
        }
    };
    let allowed = |address: &&SocketAddr| dial.iter().any(|rule| rule.allows(host, **address));
    let addresses: Vec<SocketAddr> = resolved.iter().filter(allowed).copied().collect();
    if addresses.is_empty() {
        // The log may tell them. Who orders would learn by them what this host's name server knows.
        tracing::info!(target: "longhaul::session", host, port, ?resolved, "an ordered host has no address that may be dialled");
        return denied(" at any of its addresses: no rule of 'dial' in its serve.toml allows that");
    }
    Ok((addresses, place))
}

/// Carries it out, and tells its client.
pub(super) async fn carry_out(
    (daemon, current): (Arc<Daemon>, &Current),
    control: Control,
    (client, admission): (ClientConfig, Admission),
    fetch: Fetch,
    mut asked: (Transfer, Shown),
) {
    let (peer, begun) = (control.peer_addr, Instant::now());
    let id = third_party::hex(&fetch.grant.id);
    // Events may wait between two sessions too, which need no memory for them any more.
    let _followed = admission.holdings.buffers.split(FOLLOWER_BYTES as u64);
    asked.1.order = None;
    let follower = Follower::begin(control, fetch.grant.id);
    let mut carrying = Carrying { daemon, current, client, peer, fetch, asked, told: follower.told() };
    let mut course = ReceiveCourse::remembering();
    let stop = follower.stop().or(carrying.daemon.stop.clone());
    let fault = carrying.run(admission, stop, &mut course).await.err();
    let end = fault.as_ref().map_or("complete".to_owned(), |fault| format!("{}: {fault}", fault.code.name()));
    let left = if follower.has_left() { ", its client had left" } else { "" };
    tracing::info!(target: "longhaul::session", %peer, client = %carrying.client.name, "order {id} ended{left}: {end}");
    let mut totals = std::mem::take(&mut course.totals);
    totals.fault = fault;
    std::mem::take(&mut totals.losses).into_rows().into_iter().for_each(|loss| {
        carrying.told.event(Event::NotKept(loss));
    });
    let report = totals.into_report(begun.elapsed().as_secs_f64());
    follower.end(third_party::said_end(&report)).await;
}

/// An order that is being carried out.
struct Carrying<'c> {
    daemon: Arc<Daemon>,
    current: &'c Current,
    client: ClientConfig,
    /// The client's address.
    peer: SocketAddr,
    fetch: Fetch,
    asked: (Transfer, Shown),
    told: Arc<FollowerEvents>,
}

/// How one session of an order ended.
enum Attempt {
    /// The order is carried out.
    Complete,
    /// The one source is a directory, which keeps its name beneath the destination.
    IsDirectory,
}

impl Carrying<'_> {
    /// Fetches, in as many sessions as it takes.
    async fn run(&mut self, first: Admission, mut stop: Stop, course: &mut ReceiveCourse) -> Result<(), Fault> {
        let mut dialling = self.dialling()?;
        let observer: Arc<dyn Observer> = self.told.clone();
        let mut admitted = Ok(first);
        loop {
            let attempt = match admitted {
                Ok(admission) => self.attempt(admission, &stop, (course, &mut dialling)).await,
                Err(fault) => Err(fault),
            };
            match attempt {
                Ok(Attempt::Complete) => return Ok(()),
                Ok(Attempt::IsDirectory) => {
                    if let Far::Destination { placing, .. } = &mut self.asked.0.far {
                        *placing = Placing::Beneath;
                    }
                }
                Err(fault) => {
                    if let Some(totals) = self.missing(&fault, dialling.sessions) {
                        course.totals = totals;
                        return Ok(());
                    }
                    dialling.patience.wait(fault, course.progressed, &observer, &mut stop).await?;
                }
            }
            admitted = self.admit_again().await;
        }
    }

    fn dialling(&self) -> Result<Dialling, Fault> {
        let mut dice = [0; 8];
        dice.copy_from_slice(&nonce()?[..8]);
        let retry_for = Duration::from_secs(self.fetch.order.retry_seconds.into()).min(RETRY_MAX);
        Ok(Dialling {
            run: self.fetch.grant.id,
            patience: Patience::new(retry_for, Instant::now(), u64::from_le_bytes(dice)),
            sync: None,
            first: None,
            sessions: 0,
            grant: Some(self.fetch.signed.clone()),
        })
    }

    /// Admits another session of it, by what is served now.
    async fn admit_again(&mut self) -> Result<Admission, Fault> {
        self.daemon = self.current.now();
        let client = self.daemon.client(&self.client.key)?.clone();
        if client.user.is_some() {
            return Err(of_user());
        }
        let audit = self.daemon.live.audit.session(&client, (client.key, self.peer));
        let mut nothing: ReadHalf = Box::new(tokio::io::empty());
        let admission = prepare((&self.daemon, audit), &client, self.asked.clone(), &mut nothing).await?;
        self.client = client;
        Ok(admission)
    }

    /// The totals of an order whose sources are all missing. `None` if `fault` is another one.
    fn missing(&self, fault: &Fault, sessions: u64) -> Option<Totals> {
        let (host, port) = self.fetch.host.clone();
        let remote = self.remote(Reach::Address { host, port });
        if sessions == 0 { missing::there(fault, &remote, &self.paths(), &*self.told) } else { None }
    }

    fn paths(&self) -> Vec<RemotePath> {
        let path = |source: &FarSource| RemotePath {
            root: source.root.clone(),
            path: source.path.clone(),
            slash: source.contents,
        };
        self.fetch.grant.sources.iter().map(path).collect()
    }

    fn remote(&self, reach: Reach) -> Remote {
        let trust = Arc::new(Pinned(PublicKey::from_bytes(self.fetch.grant.audience)));
        Remote { reach, credentials: Credentials { identity: self.fetch.identity.clone(), trust, memory: None } }
    }

    /// One session with the other daemon.
    async fn attempt(
        &self,
        admission: Admission,
        stop: &Stop,
        (course, dialling): (&mut ReceiveCourse, &mut Dialling),
    ) -> Result<Attempt, Fault> {
        let begun = Instant::now();
        let counter = Arc::new(SessionCounter::new(account(&self.daemon, &admission)));
        let observer = Arc::new(Both { counter: counter.clone(), told: self.told.clone() });
        let place = &admission.holdings.place;
        let _stopping = Stopping::pass(stop.clone(), place.trigger());
        let session_stop = place.stop().or(self.daemon.stop.clone());
        let run = Run::within_process(self.settings(&admission)?, observer, session_stop)?;
        let agreed = self.agree(&run, &admission, dialling).await?;
        let is_renamed = matches!(&admission.side, Side::Receive(to, _) if to.landing.renamed().is_some());
        if is_renamed && handshake::source_is_directory(agreed.welcome.caps) {
            return Ok(Attempt::IsDirectory);
        }
        dialling.sessions += 1;
        let (key, client, audit) =
            (admission.holdings.client, admission.client.clone(), admission.holdings.audit.clone());
        let (peer, what) = (self.peer, self.described(&admission));
        let transport = transport_name(admission.transfer.flow.transport);
        tracing::info!(target: "longhaul::session", %peer, %client, from = %agreed.control.peer_addr, "opened: {what}");
        let ended = self.receive(&run, agreed, (admission, &what, &counter), course).await;
        course.totals.fault = ended.as_ref().err().cloned();
        counter.close(course.totals.bytes_moved());
        let counts = counter.counts();
        let (client, what, totals, bytes) = (&client, &what, &course.totals, counts.pace.bytes_committed);
        EndedSession { client, key, peer, what, transport, begun, counts, bytes, totals }.tell(&self.daemon, &audit);
        course.totals.fault = None;
        ended.map(|()| Attempt::Complete)
    }

    /// Agrees on a session with the other daemon, at the first of its addresses that answers.
    async fn agree(&self, run: &Run, admission: &Admission, dialling: &mut Dialling) -> Result<Agreed, Fault> {
        let slots = budget::slots(admission.memory, admission.chunk_max)?;
        let wish = Wish::pull(&self.paths(), self.fetch.order.rules.clone(), None);
        let mut failed = None;
        for address in &self.fetch.addresses {
            let (host, port) = (address.ip().to_string(), address.port());
            let remote = self.remote(Reach::Address { host, port });
            let (role, chunk_max) = (Role::Receiver, admission.chunk_max);
            match run.agree(&remote, role, wish.clone(), slots, chunk_max, dialling).await {
                Err(fault) if fault.code == FaultCode::Unreachable => failed = Some(fault),
                agreed => return agreed,
            }
        }
        Err(failed.unwrap_or_else(|| Fault::new(FaultCode::Unreachable, Blame::Path, "there is no address to dial")))
    }

    /// Receives in a session that was agreed on.
    async fn receive(
        &self,
        run: &Run,
        agreed: Agreed,
        (admission, what, counter): (Admission, &str, &Arc<SessionCounter>),
        course: &mut ReceiveCourse,
    ) -> Result<(), Fault> {
        let daemon = &self.daemon;
        let (_entered, rate) = daemon.live.rates.enter(admission.claim.clone().told(), agreed.events.0.clone());
        // The other side hears it once the session's loop begins.
        let _ = agreed.events.0.send(SessionEvent::OwnRate(rate));
        let name = nonce()?;
        let audit = admission.holdings.audit.clone();
        audit.admitted(session_name(&name), admission.holdings.place.trigger());
        audit.keep(AuditRecord { deed: AuditDeed::SessionBegan, what: Some(what), ..AuditRecord::default() });
        let live = Live { what: what.to_owned(), ..listed(daemon, self.peer, &admission, counter.clone()) };
        let seat = daemon.live.enter(name, live);
        end_if_unwanted(self.current, &seat);
        let transfer = &self.asked.0;
        let Admission { side: Side::Receive(destination, policy), machinery, holdings, memory, .. } = admission else {
            return Err(side::contradiction());
        };
        let digests = if transfer.digests { SkippedDigests::Kept } else { SkippedDigests::Unwanted };
        let receiving = ReceivePlan { digests, ..ReceivePlan::of_transfer(transfer, policy, daemon.config.sync) };
        let plan = run.plan_receiving(&agreed, Role::Receiver, receiving);
        let appeared = destination.dataset.as_ref().map(|dataset| dataset.appeared());
        let (buffers, lanes) = (&holdings.buffers, udp_lanes(&agreed.transfer));
        let set_up = |link: &mut ControlLink| {
            link.set_idle(Idle::new(daemon.config.idle, holdings.place.activity()));
            link.set_round(daemon.runs.rounds().enter());
            link.set_overhead(Overhead::claimed(buffers.more()));
            link.set_lane_memory(buffers.lend(), lanes);
            link.set_window_room(buffers.room(budget::windows(memory.get())));
        };
        let paths = self.paths();
        let ended = run.receive_within(agreed, (destination, &paths), (machinery, &plan), set_up, course).await;
        if let Some(appearance) = appeared.as_ref().and_then(|appeared| appeared.get()) {
            holdings.place.has_published();
            holdings.audit.appeared(appearance);
        }
        drop(seat);
        ended
    }

    /// The settings of a session: the client's, as far as an order says them, and the daemon's own.
    fn settings(&self, admission: &Admission) -> Result<Settings, Fault> {
        let (transfer, order, config) = (&self.asked.0, &self.fetch.order, &self.daemon.config);
        let flow = &transfer.flow;
        let filter = Filter::new(order.rules.clone()).map_err(|e| Fault::new(FaultCode::Usage, Blame::Peer, e))?;
        Ok(Settings {
            lanes: Some(order.lanes).filter(|lanes| *lanes > 0).map(|lanes| lanes.min(admission.lanes_max)),
            protect: Some(handshake::from_wire(transfer.protect)),
            transport: match flow.transport {
                SaidTransport::Quic => Transport::Quic,
                SaidTransport::Udp => Transport::Udp,
                _ if flow.choose || flow.udp_beside_tcp => Transport::Auto,
                _ => Transport::Tcp,
            },
            congestion: match flow.congestion.as_str() {
                "" => Congestion::Auto,
                name => Congestion::Named(name.to_owned()),
            },
            chunk: flow.exact_chunks.then_some(transfer.chunk),
            memory: admission.memory,
            depth: config.depth,
            io: config.io,
            engine: config.engine,
            verify: if transfer.read_back { Verify::Disk } else { Verify::Wire },
            metadata: Metadata::from(transfer.preserve),
            filter,
            dry_run: transfer.dry_run,
            retry_for: Duration::ZERO,
            rate: Some(flow.rate).filter(|rate| *rate > 0),
            share: flow.share,
            sync: config.sync,
            pin: config.pin.clone(),
            ..Settings::default()
        })
    }

    fn described(&self, admission: &Admission) -> String {
        let (host, port) = self.fetch.host.clone();
        let remote = Reach::Address { host, port };
        let Far::Destination { root, path, .. } = &admission.transfer.far else { return admission.description.clone() };
        let first = self.fetch.grant.sources.first();
        let from = first.map(|first| format!("{}/{}", first.root, first.path.escaped())).unwrap_or_default();
        let more = match self.fetch.grant.sources.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let id = third_party::hex(&self.fetch.grant.id);
        format!("copy from lh://{remote}/{from}{more} to {root}/{} (order {id})", path.escaped())
    }
}

/// Passes the stop of an order on to its session.
struct Stopping(tokio::task::JoinHandle<()>);

impl Stopping {
    fn pass(mut stop: Stop, trigger: StopTrigger) -> Stopping {
        Stopping(tokio::spawn(async move { trigger.stop(stop.stopped().await) }))
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Takes one key for a daemon's: that for which the grant is.
struct Pinned(PublicKey);

impl Trust for Pinned {
    fn judge(&self, host: &str, port: u16, key: &PublicKey) -> Result<(), Fault> {
        if *key == self.0 {
            return Ok(());
        }
        let at = Reach::Address { host: host.to_owned(), port };
        let why = format_args!("the daemon at {at} has another key than the one for which the grant is");
        Err(Fault::new(FaultCode::Denied, Blame::Peer, why).hint(hint::Daemon::AskAboutNewKey))
    }
}

/// Has an event counted, and told.
struct Both {
    counter: Arc<SessionCounter>,
    told: Arc<FollowerEvents>,
}

impl Observer for Both {
    fn event(&self, event: Event) {
        self.counter.event(event.clone());
        self.told.event(event);
    }

    fn lanes(&self, count: u32) {
        self.counter.lanes(count);
    }
}

/// A name is looked up for so long.
const RESOLVED_WITHIN: Duration = Duration::from_secs(10);
/// An order is gone on with for so long after the last progress: no grant is good for longer.
const RETRY_MAX: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests;
