//! Carries out an order of a client: to fetch from another daemon what that client lends, into a
//! destination that it may write to; or to send what it may read to where it lends another daemon.
//!
//! In: a push that was admitted, with an order in place of what it would send, or a pull. Out:
//! sessions with the other daemon, one after the other, each by an admission of its own
//! (`fetch`, `send`, of which `session` is what they share); the client hears of them by its
//! `follower`. The daemon's `dials` say where it may dial. It shows its own key there and the
//! client's grant, and asks for nothing by rights of its own. `list` hears the names that an order
//! is about, if there is a list of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode, Role, hint};
use longhaul_net::{Control, Identity, PublicKey, resolve};
use longhaul_proto::wire::grant::{GRANT_SKEW_SECONDS, Grant, GrantRight, SignedGrant};
use longhaul_proto::wire::message::{Order, Transfer};
use tokio::time::{sleep, timeout};

use super::ends::OrderMark;
use super::follower::{FOLLOWER_BYTES, Follower, FollowerClaim, FollowerEvents, FollowerNeeds};
use super::list::OrderList;
use super::places::OrderPlaces;
use super::session::Pinned;
use crate::api::{Credentials, Event, Observer, Reach, Remote};
use crate::budget;
use crate::client::Run;
use crate::client::connect::{Agreed, Dialling};
use crate::client::retry::Patience;
use crate::client::wish::Wish;
use crate::daemon::admission::{Admission, prepare};
use crate::daemon::asked::Asked;
use crate::daemon::current::Current;
use crate::daemon::dials::DialRule;
use crate::daemon::grants::seconds_since_1970;
use crate::daemon::shares::Share;
use crate::daemon::{ClientConfig, Daemon};
use crate::faults::dial_fault;
use crate::random::nonce;
use crate::session::channel::ReadHalf;
use crate::session::handshake::Shown;
use crate::third_party;

/// An order that may be carried out.
pub(in crate::daemon) struct JudgedOrder {
    /// Its grant.
    pub(in crate::daemon) grant: Grant,
    signed: SignedGrant,
    identity: Arc<Identity>,
    /// The host as it was ordered, and its port.
    pub(super) host: (String, u16),
    /// Its addresses that may be dialled, as the name server told them for the next session.
    addresses: Vec<SocketAddr>,
    /// The order as it was given.
    pub(super) order: Order,
    /// Its place among those that are known.
    pub(super) mark: Arc<OrderMark>,
    /// The list of names that it is about, if its grant is for one, once that was heard.
    pub(in crate::daemon) list: Option<OrderList>,
    /// It counts as one of the orders under way for as long as this is held. `None`: a lookup that
    /// hangs has it.
    place: Option<Share>,
}

impl JudgedOrder {
    /// Looks the host up once more, as the addresses of a name change. It is judged anew which of
    /// them may be dialled.
    async fn find_again(&mut self, daemon: &Daemon, client: PublicKey) -> Result<(), Fault> {
        let Some(abroad) = daemon.live.abroad.clone() else { return Err(of_user()) };
        let orders = daemon.runs.orders();
        let place = self.place.take().map_or_else(|| orders.begin(client), Ok)?;
        let (addresses, place) = addresses((&abroad.dial, orders), &self.order, place).await?;
        (self.addresses, self.place) = (addresses, Some(place));
        Ok(())
    }
}

/// Checks whether an order of this run may be carried out for a client: whether this daemon may
/// dial where the order says, under the addresses that it has now, and whether the grant is the
/// client's and for this run.
pub(in crate::daemon) async fn judge(
    daemon: &Daemon,
    client: &ClientConfig,
    (order, run): (Order, [u8; 16]),
) -> Result<JudgedOrder, Fault> {
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
    need_direction(&grant, &order)?;
    // Its two sessions would be of one run, and each would end the other.
    if grant.audience == grant.holder {
        let why = "the order is about this same daemon alone, and a copy has its two ends at two daemons";
        return Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint::Program::PullThenPush));
    }
    let orders = daemon.runs.orders();
    // Before an earlier session of its run ends for it.
    let mark = Arc::new(orders.ends().begin(client.key, grant.id)?);
    let place = orders.begin(client.key)?;
    let (addresses, place) = addresses((&abroad.dial, orders), &order, place).await?;
    let (signed, host) = (order.grant.clone(), (order.host.to_string(), order.port));
    let identity = abroad.identity.clone();
    let (list, place) = (None, Some(place));
    Ok(JudgedOrder { grant, signed, identity, host, addresses, order, mark, list, place })
}

/// Refuses an order to fetch by a grant to write, and one to send by another than to write there.
fn need_direction(grant: &Grant, order: &Order) -> Result<(), Fault> {
    let is_right = match &order.into {
        None => matches!(grant.right, GrantRight::Read | GrantRight::ReadListed(_)),
        // Neither a dataset nor another rule for names that stand is lent by a list: see
        // `LentRights::need_covered`.
        Some(into) if grant.list().is_some() && into.dataset.is_some() => false,
        Some(into) if matches!(grant.right, GrantRight::WriteListed(terms) if terms.if_exists != into.if_exists) => {
            false
        }
        Some(into) => grant.covers_destination(&into.root, &into.path),
    };
    let why = "the order's grant is not for what is ordered";
    if is_right { Ok(()) } else { Err(Fault::new(FaultCode::Denied, Blame::Peer, why)) }
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
    let at = reach.to_string();
    let lookup = orders.look_up(async move { resolve(&at).await }, place);
    let (place, resolved) = match timeout(RESOLVED_WITHIN, lookup).await {
        Ok(Some((place, resolved))) => (place, resolved.map_err(|error| dial_fault(&error, true))?),
        Ok(None) | Err(_) => {
            let why = format_args!("no DNS server answers this daemon for {reach}");
            return Err(Fault::new(FaultCode::TimedOut, Blame::Path, why).hint(hint::Network::CheckResolver));
        }
    };
    let allowed = |address: &&SocketAddr| dial.iter().any(|rule| rule.allows(host, **address));
    let addresses: Vec<SocketAddr> = resolved.iter().filter(allowed).take(ADDRESSES_DIALLED).copied().collect();
    if addresses.is_empty() {
        // The log may tell them. Who orders would learn by them what this host's name server knows.
        tracing::info!(target: "longhaul::session", host, port, ?resolved, "an ordered host has no address that may be dialled");
        return denied(" at any of its addresses: no rule of 'dial' in its serve.toml allows that");
    }
    Ok((addresses, place))
}

/// Carries it out, and tells its client.
pub(in crate::daemon) async fn carry_out(
    (daemon, current): (Arc<Daemon>, &Current),
    control: Control,
    (client, admission): (ClientConfig, Admission),
    judged: JudgedOrder,
    (mut asked, recorded): ((Transfer, Shown), Asked),
) {
    let (peer, begun) = (control.peer_addr, Instant::now());
    let id = third_party::hex(&judged.grant.id);
    // Events may wait between two sessions too, which need no memory for them any more.
    let followed = admission.holdings.buffers.split(FOLLOWER_BYTES as u64);
    asked.1.order = None;
    let is_counted = judged.list.as_ref().is_some_and(OrderList::is_counted);
    let hears_each = asked.0.digests || asked.0.dry_run || is_counted;
    let needs = if hears_each { FollowerNeeds::Each } else { FollowerNeeds::Failures };
    let room = FOLLOWER_BYTES + judged.list.as_ref().map_or(0, |list| list.events_bytes);
    let claim = FollowerClaim::new(followed, room);
    let follower = Follower::begin((control.reader, control.writer), judged.grant.id, (needs, claim));
    judged.mark.begun(follower.trigger());
    let told = follower.told();
    let mut carrying = Carrying { daemon, current, client, peer, judged, asked, recorded, told };
    let stop = follower.stop().or(carrying.daemon.stop.clone());
    let (mut totals, fault) = match carrying.judged.order.into.clone() {
        None => carrying.fetch(admission, stop).await,
        Some(into) => carrying.send(&into, admission, stop).await,
    };
    let fault = fault.map(|fault| follower.too_full().unwrap_or(fault));
    let end = fault.as_ref().map_or("complete".to_owned(), |fault| format!("{}: {fault}", fault.code.name()));
    let left = if follower.has_left() { ", its client had left" } else { "" };
    tracing::info!(target: "longhaul::session", %peer, client = %carrying.client.name, "order {id} ended{left}: {end}");
    totals.fault = fault;
    std::mem::take(&mut totals.losses).into_rows().into_iter().for_each(|loss| {
        carrying.told.event(Event::NotKept(loss));
    });
    let report = totals.into_report(begun.elapsed().as_secs_f64());
    let end = third_party::said_end(&report);
    carrying.judged.mark.ended(end.clone(), follower.hearing());
    let mut daemon_stop = carrying.daemon.stop.clone();
    let cut_off = async {
        daemon_stop.stopped().await;
        sleep(LAST_TOLD_WITHIN).await;
    };
    tokio::select! {
        biased;
        () = follower.end(end) => {}
        () = cut_off => {}
    }
}

/// An order that is being carried out.
pub(super) struct Carrying<'c> {
    /// The daemon as it was when the last session was admitted.
    pub(super) daemon: Arc<Daemon>,
    /// The daemon as it is.
    pub(super) current: &'c Current,
    client: ClientConfig,
    /// The client's address.
    pub(super) peer: SocketAddr,
    /// The order itself.
    pub(super) judged: JudgedOrder,
    /// The transfer in place of which it stands.
    pub(super) asked: (Transfer, Shown),
    /// The order as it is recorded where a further session of it is refused.
    recorded: Asked,
    /// The client, which is told what happens.
    pub(super) told: Arc<FollowerEvents>,
}

impl Carrying<'_> {
    /// Begins the dials of an order.
    pub(super) fn dialling(&self) -> Result<Dialling, Fault> {
        let mut dice = [0; 8];
        dice.copy_from_slice(&nonce()?[..8]);
        let retry_for = Duration::from_secs(self.judged.order.retry_seconds.into()).min(RETRY_MAX);
        Ok(Dialling {
            run: self.judged.grant.id,
            patience: Patience::new(retry_for, Instant::now(), u64::from_le_bytes(dice)),
            sync: None,
            first: None,
            sessions: 0,
            grant: Some(self.judged.signed.clone()),
        })
    }

    /// The fault by which to dial again, if another session may begin.
    ///
    /// # Errors
    /// The loss of the link, of an order that had `sessions` and whose grant has expired; or
    /// [`FaultCode::Busy`] while the daemon drains.
    pub(super) fn within_grant(&self, fault: Fault, sessions: u64) -> Result<Fault, Fault> {
        let fault = within_grant(fault, sessions, (self.judged.grant.not_after, seconds_since_1970()))?;
        if fault.retry() {
            self.current.now().live.drain.admit()?;
        }
        Ok(fault)
    }

    /// Admits another session of it, by what is served now. A refusal is recorded.
    pub(super) async fn admit_again(&mut self) -> Result<Admission, Fault> {
        let admitted = self.admitted_now().await;
        admitted.as_ref().err().into_iter().for_each(|fault| self.recorded.refused(&self.daemon, fault));
        admitted
    }

    async fn admitted_now(&mut self) -> Result<Admission, Fault> {
        self.daemon = self.current.now();
        let client = self.daemon.client(&self.client.key)?.clone();
        if client.user.is_some() {
            return Err(of_user());
        }
        self.judged.find_again(&self.daemon, client.key).await?;
        let audit = self.daemon.live.audit.session(&client, (client.key, self.peer));
        let mut nothing: ReadHalf = Box::new(tokio::io::empty());
        let admission = prepare((&self.daemon, audit), &client, self.asked.clone(), &mut nothing).await?;
        self.client = client;
        Ok(admission)
    }

    /// The other daemon, at this place.
    pub(super) fn remote(&self, reach: Reach) -> Remote {
        let trust = Pinned::to(PublicKey::from_bytes(self.judged.grant.audience));
        Remote { reach, credentials: Credentials { identity: self.judged.identity.clone(), trust, memory: None } }
    }

    /// Agrees on a session with the other daemon, at the first of its addresses that answers.
    pub(super) async fn agree(
        &self,
        (run, admission): (&Run, &Admission),
        (role, wish): (Role, Wish),
        dialling: &mut Dialling,
    ) -> Result<Agreed, Fault> {
        let slots = budget::slots(admission.memory, admission.chunk_max)?;
        let mut failed = None;
        for address in &self.judged.addresses {
            let (host, port) = (address.ip().to_string(), address.port());
            let remote = self.remote(Reach::Address { host, port });
            match run.agree(&remote, role, wish.clone(), slots, admission.chunk_max, dialling).await {
                Err(fault) if matches!(fault.code, FaultCode::Unreachable | FaultCode::TimedOut) => {
                    failed = Some(fault)
                }
                agreed => return agreed,
            }
        }
        Err(failed.unwrap_or_else(|| Fault::new(FaultCode::Unreachable, Blame::Path, "there is no address to dial")))
    }
}

/// See [`Carrying::within_grant`].
fn within_grant(fault: Fault, sessions: u64, (until, now): (u64, u64)) -> Result<Fault, Fault> {
    let is_of_link = matches!(
        fault.code,
        FaultCode::Lost | FaultCode::TimedOut | FaultCode::Unreachable | FaultCode::Busy | FaultCode::Denied
    );
    // By its own clock the other daemon ends the last session of the grant of a shard. Another one
    // would be refused there, as of a grant that is not good any more.
    let is_ended_there = fault.code == FaultCode::TimedOut && now.saturating_add(2 * GRANT_SKEW_SECONDS) > until;
    if sessions == 0 || now <= until && !is_ended_there || !is_of_link {
        return Ok(fault);
    }
    let why = "the link was lost after the time for which the order's grant is good, so no other session may begin";
    Err(Fault::new(FaultCode::Lost, Blame::Path, why).hint(hint::Again::WhereItEnded))
}

/// Addresses of one host that are tried, one after the other, each for 10 s.
const ADDRESSES_DIALLED: usize = 8;
/// A name is looked up for so long.
const RESOLVED_WITHIN: Duration = Duration::from_secs(10);
/// An order of a daemon that is stopped waits no longer than this for its client to hear the end.
/// The process may be gone before: it waits for sessions alone.
const LAST_TOLD_WITHIN: Duration = Duration::from_secs(30);
/// An order is gone on with for so long after the last progress: no grant is good for longer.
const RETRY_MAX: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests;
