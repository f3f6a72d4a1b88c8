//! One conversation of the daemon: it hears the request, has it admitted, and runs the session or
//! tells the listing, or carries out orders to move names away.
//!
//! In: a control connection of a client. Out: what the client is told, and a log line when a
//! session opens and when it ends. Decides nothing about who may have what: that is `admission`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use longhaul_core::limits::LANE_STALL_SECONDS;
use longhaul_core::{Blame, Fault, FaultCode, IfExists, LaneId, Role, Transport, hint};
use longhaul_net::{Congestion, Control, LaneMemory, PublicKey, Seat, TransportFacts};
use longhaul_proto::Message;
use longhaul_proto::join::JoinKey;
use longhaul_proto::receiver::Policy;
use longhaul_proto::wire::message::{
    CAP_BY_GRANT, CAP_CLAIM, CAP_DATASET, CAP_DATASET_PART, CAP_KNOWS_SHARED, CAP_REPLACED, CAP_UDP_EARLY, Far,
    GrantedLanes, Transfer, VERSION, Welcome, extras_carried,
};
use tokio::sync::mpsc;

use super::admission::{Admission, Admitted, Holdings, congestion, udp_lanes};
use super::asked::Asked;
use super::audit::{AuditDeed, AuditRecord};
use super::bearer::{Bearer, Ordered};
use super::current::Current;
use super::ending::{EndedKind, EndedSession};
use super::handle::shown;
use super::live::{Live, LiveSeat, MayModify, Needs, SessionAccount, SessionCounter, SessionName};
use super::memory::{LONGEST, Measured};
use super::orders;
use super::rates::Entered;
use super::reading::Reading;
use super::side::Side;
use super::{ClientConfig, Daemon, deputy, request, strangers};
use crate::budget;
use crate::lanes::event::LaneListener;
use crate::lanes::registry::{Expecting, Registered};
use crate::lanes::replace::{LaneGrants, Replacement};
use crate::lanes::rules::TransportChanges;
use crate::lanes::udp::join::UdpTerms;
use crate::lanes::worker::pacer::LaneRates;
use crate::random::nonce;
use crate::session::allowed::Allowed;
use crate::session::channel::write_message;
use crate::session::control::{ControlLink, ControlLinkParts};
use crate::session::course::{ReceiveCourse, SendCourse};
use crate::session::handshake::{self, HeardRequest, Units};
use crate::session::idle::Idle;
use crate::session::overhead::Overhead;
use crate::session::plan::{LaneNumbers, LanePlan, Plan, ReceivePlan};
use crate::session::totals::Totals;
use crate::session::unasked::FirstFlight;
use crate::session::{receiver, sender};

/// Runs a conversation to its end. It sees the daemon as that is now, whatever is served later.
pub(super) async fn serve(current: Arc<Current>, mut control: Control) {
    let daemon = current.now();
    let peer = control.peer_addr;
    let known = daemon.client(&control.peer_key).ok().cloned();
    // Before anything else that it says is looked at.
    let lent = if known.is_some() { None } else { strangers::hear_grant(&daemon, &mut control).await };
    if known.is_none() && lent.is_none() {
        return strangers::refuse(&daemon, control).await;
    }
    let lent = match lent.transpose() {
        Ok(lent) => lent,
        Err(fault) => return strangers::refuse_grant(&daemon, control, fault).await,
    };
    let Some(client) = lent.as_ref().map(|lent| lent.client.clone()).or(known) else { return };
    // Until it has a session, which is counted otherwise, or its answer.
    let bearer = lent.as_ref().map(|_| control.peer_key);
    let Some(place) = daemon.lobby.place(client.key, bearer) else {
        daemon.notices.crowded(peer, client.key);
        daemon.live.tallies.crowded();
        return strangers::turn_away(&daemon, control, busy("connections that have not begun")).await;
    };
    // The user's own process hears it, if that is not this one.
    if let Some(uid) = client.uid().filter(|_| daemon.live.link.is_none()) {
        return deputy::relay(current, control, uid, place.0).await;
    }
    hear_out((daemon, &current), control, Bearer { client, lent }, place).await;
}

/// Hears what is asked for, and answers it.
async fn hear_out(
    (daemon, current): (Arc<Daemon>, &Current),
    mut control: Control,
    bearer: Bearer,
    place: (Seat, Option<Seat>),
) {
    let peer = control.peer_addr;
    let heard = handshake::hear(&mut control.reader).await;
    let says_more = says_more(&heard);
    let hung_up = heard.as_ref().is_err_and(|fault| fault.code == FaultCode::Lost);
    let units = heard.as_ref().map_or(Units::Any, |heard| heard.units);
    if let (Some(link), Ok(_)) = (&daemon.live.link, &heard) {
        link.reserve_first().await;
    }
    let asked = Asked::heard(heard.as_ref().ok(), (control.peer_key, peer));
    let stranger = bearer.lent.as_ref().map(|_| control.peer_key);
    let admitted = match heard.and_then(|heard| daemon.live.audit.ready().map(|()| heard)) {
        Ok(HeardRequest { request, shown, .. }) => {
            let other_side = ((control.peer_key, peer), &mut control.reader);
            bearer.admit(&daemon, other_side, (request, shown)).await
        }
        Err(fault) => Err(fault),
    };
    match admitted {
        Ok((Admitted::Listing(names), _)) => {
            let told = names.tell(&mut control.writer).await;
            daemon.live.spare.freed();
            asked.listed(&daemon, told.as_ref().err().map(|fault| fault.code));
            if let Err(fault) = told {
                tracing::debug!(target: "longhaul::serve", %peer, %fault, "a listing was broken off");
            }
        }
        Ok((Admitted::Removal(removal), _)) => {
            drop(place);
            removal.run((&daemon, current), control).await;
            daemon.live.spare.freed();
        }
        Ok((Admitted::Reading(reading), _)) => read_there((&daemon, current), control, *reading, place).await,
        Ok((Admitted::Session(admission), ordered)) => {
            // An order has a place of its own, which outlives its sessions.
            drop(place);
            match ordered {
                None => run_session((&daemon, current), control, *admission, units).await,
                Some(ordered) => {
                    let Ordered { client, judged, asked: wanted } = *ordered;
                    let here = (daemon.clone(), current);
                    orders::carry_out(here, control, (client, *admission), judged, (wanted, asked)).await;
                }
            }
            daemon.live.spare.freed();
        }
        Ok((Admitted::Answer(answer), _)) => say_last(&mut control, *answer).await,
        Ok((Admitted::OrderEnd(end), _)) => end.tell(control, daemon.stop.clone()).await,
        // Nobody was refused: the client hung up, as one does that does not take this daemon's key.
        Err(_) if hung_up => {
            drop(place);
            let why = "a client left before it asked for anything: it may not trust this daemon's key";
            tracing::info!(target: "longhaul::session", %peer, key = %control.peer_key, "{why}");
        }
        Err(fault) => {
            record_refused(&daemon, &asked, (peer, stranger), &fault);
            if says_more {
                refuse_in_the_middle(&mut control, fault).await;
            } else {
                drop(place);
                refuse(&mut control, fault).await;
            }
        }
    }
}

/// Has files read where they lie. The place of its beginning is given back.
async fn read_there(
    (daemon, current): (&Arc<Daemon>, &Current),
    control: Control,
    reading: Reading,
    place: (Seat, Option<Seat>),
) {
    drop(place);
    reading.run((daemon, current), control).await;
    daemon.live.spare.freed();
}

/// Whether more may come behind the first words. One of another version may say as much.
fn says_more(heard: &Result<HeardRequest, Fault>) -> bool {
    let unspoken = |fault: &Fault| fault.code == FaultCode::Unsupported;
    heard.as_ref().map_or_else(unspoken, |heard| heard.shown.order.is_some() || request::says_more(&heard.request))
}

/// Records a refusal: each one of a client, and of a stranger with a grant as many as of others.
fn record_refused(daemon: &Daemon, asked: &Asked, (peer, stranger): (SocketAddr, Option<PublicKey>), fault: &Fault) {
    if let Some(key) = stranger {
        return strangers::record_refused(daemon, asked, (peer, key), fault);
    }
    asked.refused(daemon, fault);
    tracing::info!(target: "longhaul::session", %peer, code = fault.code.name(), "refused: {fault}");
}

async fn refuse(control: &mut Control, fault: Fault) {
    say_last(control, Message::Refuse(fault)).await;
}

async fn say_last(control: &mut Control, message: Message) {
    let _ = write_message(&mut control.writer, &message).await;
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut control.writer).await;
}

/// Refuses a client that may still be saying what it wants: what it says is read for a moment more,
/// as a connection that is closed on words which nobody read takes the refusal with it.
async fn refuse_in_the_middle(control: &mut Control, fault: Fault) {
    refuse(control, fault).await;
    let mut nowhere = tokio::io::sink();
    let _ = tokio::time::timeout(HEARD_OUT, tokio::io::copy(&mut control.reader, &mut nowhere)).await;
}

fn busy(what: &str) -> Fault {
    Fault::new(FaultCode::Busy, Blame::Local, format_args!("the daemon is at its limit of {what}"))
        .hint(hint::Again::Later)
}

async fn run_session(
    (daemon, current): (&Arc<Daemon>, &Current),
    control: Control,
    mut admission: Admission,
    units: Units,
) {
    let begun = Instant::now();
    let peer = control.peer_addr;
    let (key, audit, account) = (control.peer_key, admission.holdings.audit.clone(), account(daemon, &admission));
    let (client, what) = (admission.client.clone(), admission.description.clone());
    let transport = transport_name(admission.transfer.flow.transport);
    let protection = handshake::from_wire(admission.transfer.protect);
    tracing::info!(target: "longhaul::session", %peer, %client, protect = ?protection, "opened: {what}");
    let counter = Arc::new(SessionCounter::new(account));
    admission.holdings.linked.iter_mut().for_each(|linked| linked.show(counter.clone()));
    if admission.measured.is_some() {
        // Its own time and the end are within that, or the client is not one that means well.
        admission.holdings.place.end_after(LONGEST + LONGEST / 10);
    }
    let measured = admission.measured;
    let totals = match welcome(daemon, control, &admission, units, counter.clone()).await {
        Ok((link, registered, plan)) => {
            end_if_unwanted(current, &registered.2);
            let totals = converse(link, admission, plan).await;
            drop(registered);
            totals
        }
        Err(fault) => Totals::ended_by(fault),
    };
    counter.close(totals.bytes_moved());
    let mut counts = counter.counts();
    let bytes = if measured.is_some() { totals.bytes_moved() } else { counts.pace.bytes_committed };
    // That a source ends by the clock is no failure.
    counts.failed = if measured.is_some_and(Measured::is_timed) { 0 } else { counts.failed };
    let (client, what, fault, kind) = (&client, &what, totals.fault.as_ref(), EndedKind::Transfer(bytes, &totals));
    EndedSession { client, key, peer, what, transport, begun, counts, fault, kind }.tell(daemon, &audit);
}

/// The accounts of a session.
pub(super) fn account(daemon: &Daemon, admission: &Admission) -> SessionAccount {
    let root = match &admission.transfer.far {
        Far::Destination { root, .. } => root.to_string(),
        Far::Sources { sources, .. } => match sources.split_first() {
            Some((first, more)) if more.iter().all(|other| other.root == first.root) => first.root.to_string(),
            _ => "(several)".to_owned(),
        },
        Far::Memory { .. } => "(memory)".to_owned(),
    };
    SessionAccount {
        audit: admission.holdings.audit.clone(),
        told: AtomicBool::default(),
        tallies: daemon.live.tallies.clone(),
        whose: (root, admission.client.clone()),
        receives: matches!(admission.side, Side::Receive(..)),
    }
}

/// The word of a transport in lists.
pub(super) fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Quic => "quic",
        Transport::Ssh => "ssh",
        Transport::Udp => "udp",
    }
}

/// Welcomes the client, names its lanes, and starts the control link.
async fn welcome(
    daemon: &Arc<Daemon>,
    mut control: Control,
    admission: &Admission,
    units: Units,
    observer: Arc<SessionCounter>,
) -> Result<(ControlLink, (Registered, Entered, LiveSeat), Plan), Fault> {
    let events = mpsc::unbounded_channel();
    let (entered, rate) = daemon.live.rates.enter(admission.claim.clone(), events.0.clone());
    // A deputy is told both by the daemon.
    let rate = admission.holdings.linked.as_ref().map_or(rate, |linked| linked.rate(events.0.clone()));
    let session = daemon.live.link.as_ref().map_or_else(nonce, |link| Ok(link.session()))?;
    let welcome = answer(admission, units, (session, rate));
    admission.holdings.audit.admitted(shown(&welcome.session), admission.holdings.place.trigger());
    let what = Some(admission.description.as_str());
    admission.holdings.audit.keep(AuditRecord { deed: AuditDeed::SessionBegan, what, ..AuditRecord::default() });
    let live = daemon.live.enter(welcome.session, listed(daemon, control.peer_addr, admission, observer.clone()));
    let (count, transport) = (admission.lanes, admission.transfer.flow.transport);
    let listener = Arc::new(events.0.clone());
    let expecting = expecting(&control, (welcome.session, admission), listener);
    let registered = daemon.registry.expect(welcome.session, expecting);
    write_message(&mut control.writer, &Message::Welcome(welcome.clone())).await?;
    write_message(&mut control.writer, &Message::Lanes(GrantedLanes { first: LaneId(0), count, transport })).await?;
    let flight = first_flight(&admission.transfer, &welcome, &control);
    let (reader, writer, rtt) = (control.reader, control.writer, control.rtt);
    let presence = match &admission.side {
        Side::Receive(destination, _) => destination.presence.clone(),
        Side::Send(..) => Arc::default(),
    };
    let plan = plan(daemon, admission, &welcome, (rate, rtt)).beginning_in(flight);
    let rules = plan.lane_rules(Replacement::Grant(LaneGrants::new(count, registered.opener())));
    let stop = admission.holdings.place.stop().or(daemon.stop.clone());
    let idle = Idle::new(daemon.config.idle, admission.holdings.place.activity());
    let mut link = ControlLink::start(ControlLinkParts { reader, writer, observer, stop, presence, events, rules });
    link.set_idle(idle);
    link.set_round(daemon.runs.rounds().enter());
    link.set_overhead(Overhead::claimed(admission.holdings.buffers.more()));
    link.set_lane_memory(admission.holdings.buffers.lend(), udp_lanes(&admission.transfer));
    // Windows of the first lanes were set aside when the session was admitted.
    if !matches!(TransportFacts::of(transport).memory, LaneMemory::Window { .. }) {
        link.set_window_room(admission.holdings.buffers.room(budget::windows(admission.memory.get())));
    }
    Ok((link, (registered, entered, live), plan))
}

/// A session in the list of those that run.
pub(super) fn listed(daemon: &Daemon, peer: SocketAddr, admission: &Admission, counter: Arc<SessionCounter>) -> Live {
    let may_modify = match &admission.side {
        Side::Receive(_, Policy { may_modify: true, .. }) => MayModify::Yes,
        _ => MayModify::No,
    };
    let key = admission.holdings.client;
    let uid = daemon.client(&key).ok().and_then(ClientConfig::uid);
    Live {
        key,
        client: admission.client.clone(),
        peer,
        what: admission.description.clone(),
        protection: handshake::from_wire(admission.transfer.protect),
        transport: transport_name(admission.transfer.flow.transport),
        receives: matches!(admission.side, Side::Receive(..)),
        begun: Instant::now(),
        needs: Needs::of(&admission.transfer, may_modify).of_user(uid),
        counter,
        trigger: admission.holdings.place.trigger(),
    }
}

/// Ends a session in order that was admitted by what is served no more, or while the daemon began
/// to drain. Whoever changed that found it in no list yet.
pub(super) fn end_if_unwanted(current: &Current, seat: &LiveSeat) {
    let daemon = current.now();
    if !seat.is_allowed(&daemon) {
        seat.end(FaultCode::Denied);
    } else if daemon.live.drain.admit().is_err() {
        seat.end(FaultCode::Busy);
    }
}

/// The answer to an admitted request of a client that takes `units`, with the name of the session;
/// `rate` is what the daemon lets it carry, bytes/s.
fn answer(admission: &Admission, units: Units, (session, rate): (SessionName, Option<u64>)) -> Welcome {
    let chunk = admission.transfer.chunk;
    // Lanes of a deputy knock at the daemon, which knows sessions there by their names alone.
    let is_early = admission.transfer.flow.transport == Transport::Udp && admission.holdings.linked.is_none();
    Welcome {
        version: VERSION,
        caps: CAP_KNOWS_SHARED
            | extras_carried(admission.transfer.preserve)
            | handshake::transport_caps(admission.transfer.flow.transport)
            | if is_early { CAP_UDP_EARLY } else { 0 }
            | if admission.holdings.lent.is_some() { CAP_BY_GRANT } else { 0 }
            | handshake::udp_beside_tcp_caps(&admission.transfer.flow)
            | match &admission.side {
                Side::Receive(destination, _) => {
                    let keeps_claim = if destination.claim.is_some() { CAP_CLAIM } else { 0 };
                    let stages = if destination.is_whole { CAP_DATASET } else { 0 };
                    let of_campaign = destination.dataset.as_ref().is_some_and(|dataset| dataset.is_of_campaign());
                    let stages = stages | if of_campaign { CAP_DATASET_PART } else { 0 };
                    let replaced = if admission.transfer.flow.tells_replaced { CAP_REPLACED } else { 0 };
                    keeps_claim | stages | replaced | handshake::receiver_caps(destination.tree.sync_method())
                }
                Side::Send(_, _, caps) => *caps,
            },
        session,
        chunk,
        chunk_max: admission.chunk_max,
        bundled_max: units.bundled_max(chunk),
        lanes_max: admission.lanes_max,
        rate: rate.unwrap_or(0),
        memory_bytes: admission.measured.map_or(0, |measured| measured.bytes),
    }
}

/// The lanes that the registry is to bring to the session, which hears of them through `listener`.
fn expecting(
    control: &Control,
    (session, admission): (SessionName, &Admission),
    listener: Arc<dyn LaneListener>,
) -> Expecting {
    let (count, key, flow) = (admission.lanes, JoinKey(control.exporter), &admission.transfer.flow);
    let terms = || UdpTerms { session, ..UdpTerms::of(control) };
    Expecting {
        udp: (flow.transport == Transport::Udp || flow.udp_beside_tcp).then(terms),
        slab: match &admission.side {
            Side::Receive(..) => Some(admission.machinery.slab.clone()),
            Side::Send(..) => None,
        },
        key,
        peer: control.peer_key,
        protection: handshake::from_wire(admission.transfer.protect),
        open: Expecting::ids(count),
        next: count,
        congestion: match admission.transfer.role {
            // The name is the receiver's wish for what is sent from here.
            Role::Receiver => congestion(&admission.transfer.flow),
            Role::Sender => Congestion::Auto,
        },
        listener,
        way_told: None,
        joining: HashMap::new(),
    }
}

/// The flight in which the first page of this side, as a sender, shall fit. A receiver that writes
/// files out in order, reads everything back or writes nothing takes no files before it.
fn first_flight(transfer: &Transfer, welcome: &Welcome, control: &Control) -> FirstFlight {
    let takes = transfer.flow.takes_unasked && welcome.bundled_max > 0 && !transfer.read_back && !transfer.dry_run;
    let flight = FirstFlight::over(control.rtt, control.segment_bytes);
    if takes { flight.with_files() } else { flight }
}

/// The daemon's plan of a session that was admitted, over a path with this round trip; `rate` is
/// what the daemon lets it carry, bytes/s.
fn plan(daemon: &Daemon, admission: &Admission, welcome: &Welcome, (rate, rtt): (Option<u64>, Duration)) -> Plan {
    let transfer = &admission.transfer;
    let policy = match &admission.side {
        Side::Receive(_, policy) => *policy,
        // A sender replaces nothing.
        Side::Send(..) => Policy { if_exists: IfExists::Fail, may_modify: false },
    };
    let mixes_udp = transfer.flow.udp_beside_tcp;
    let keeps_quic = transfer.flow.transport == Transport::Quic && !transfer.flow.leaves_quic;
    let changes = TransportChanges { is_kept: daemon.live.link.is_some(), mixes_udp, keeps_quic };
    let (first, most) = (admission.lanes, admission.lanes_max);
    let lanes = LanePlan {
        numbers: LaneNumbers { first, least: first, usual: budget::lanes_after_start(first, most, rtt), most },
        transport: transfer.flow.transport,
        changes,
        window_bytes: budget::windows(admission.memory.get()),
        choose_congestion: transfer.flow.congestion.is_empty(),
        known_congestion: None,
        rivals: LanePlan::rivals(&transfer.flow, changes),
        tunes: true,
        rates: LaneRates::of(rate, transfer.flow.rate),
        share: (transfer.flow.share, transfer.flow.knows_shared),
        stall_after: Duration::from_secs(LANE_STALL_SECONDS),
        cuts: rtt >= budget::FAR && !transfer.flow.exact_chunks,
    };
    let receiving = ReceivePlan::of_transfer(transfer, policy, daemon.config.sync);
    Plan::agreed(transfer.role.other(), transfer, welcome, lanes, receiving)
}

/// Runs the session's loop to its end. The holdings are given back then.
async fn converse(link: ControlLink, admission: Admission, plan: Plan) -> Totals {
    let Admission { side, measured, machinery: buffers, holdings, .. } = admission;
    match side {
        Side::Receive(destination, _) => {
            let allowed = measured.map_or_else(|| holdings.allowed.clone(), |most| Allowed::one_file(most.bytes));
            let mut course = ReceiveCourse::after(holdings.place.committed_before());
            let appeared = destination.dataset.as_ref().map(|dataset| dataset.appeared());
            receiver::run(link, plan.receiving(destination, buffers, allowed), &mut course).await;
            if let Some(appearance) = appeared.as_ref().and_then(|appeared| appeared.get()) {
                holdings.place.has_published();
                holdings.audit.appeared(appearance);
            }
            // A sender that has not heard the end dials again, and hears it then.
            if course.has_parted && course.totals.fault.is_none() {
                use_up(&holdings, &course.totals).await;
            } else {
                holdings.place.remember(course.committed);
            }
            course.totals
        }
        Side::Send(source, wanted, _) => {
            let mut course = SendCourse::default();
            let is_timed = measured.is_some_and(Measured::is_timed);
            sender::run(link, plan.sending(source, buffers, wanted, is_timed), &mut course).await;
            use_up(&holdings, &course.totals).await;
            course.totals
        }
    }
}

/// Uses up the grant of a session whose run is complete, as both sides know.
async fn use_up(holdings: &Holdings, totals: &Totals) {
    if let (Some(lent), None) = (&holdings.lent, &totals.fault) {
        lent.used_up().await;
    }
}

/// How long a client that was refused in the middle of its request is heard.
const HEARD_OUT: Duration = Duration::from_secs(5);
