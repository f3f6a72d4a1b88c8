//! One session of an order, in either direction: its run, its place among the daemon's sessions,
//! and what is told of its end.
//!
//! In: an admission, and the order for which it is. Out: a run of the client's own code with the
//! daemon's settings, whose events are counted and told. It dials nothing and moves nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::filter::Filter;
use longhaul_core::{Blame, ByteCount, Fault, FaultCode, hint};
use longhaul_net::{Congestion, PublicKey};
use longhaul_proto::wire::message::{Far, OrderPlace, Transport as SaidTransport};

use super::ends::OrderMark;
use super::follower::FollowerEvents;
use super::order::Carrying;
use crate::api::{Event, Metadata, Observer, Reach, Settings, Stop, StopTrigger, Transport, Trust, Verify};
use crate::budget;
use crate::client::Run;
use crate::client::connect::Agreed;
use crate::daemon::admission::{Admission, Holdings};
use crate::daemon::audit::{AuditDeed, AuditRecord, SessionAudit};
use crate::daemon::ending::{EndedKind, EndedSession};
use crate::daemon::handle::shown as session_name;
use crate::daemon::live::{Live, LiveSeat, SessionCounter};
use crate::daemon::rates::Entered;
use crate::daemon::serve::{account, end_if_unwanted, listed, transport_name};
use crate::random::nonce;
use crate::session::control::ControlLink;
use crate::session::handshake;
use crate::session::idle::Idle;
use crate::session::overhead::Overhead;
use crate::session::{SessionEvent, totals::Totals};
use crate::third_party;

/// A session of an order.
pub(super) struct OrderSession {
    /// The client's code, as this daemon runs it.
    pub(super) run: Run,
    counter: Arc<SessionCounter>,
    begun: Instant,
    client: String,
    key: PublicKey,
    audit: Arc<SessionAudit>,
    what: String,
    transport: &'static str,
    _stopping: Stopping,
}

impl Carrying<'_> {
    /// One session by this admission, which ends when the order is stopped.
    /// `before`: what earlier sessions of the order moved.
    pub(super) fn session(&self, admission: &Admission, before: &Totals, stop: &Stop) -> Result<OrderSession, Fault> {
        let counter = SessionCounter::new(account(&self.daemon, admission));
        let counter = Arc::new(counter.after(before.bytes_moved(), before.seconds()));
        let (told, mark) = (self.told.clone(), self.judged.mark.clone());
        let observer = Arc::new(Both { counter: counter.clone(), told, mark });
        let place = &admission.holdings.place;
        let stopping = Stopping::pass(stop.clone(), place.trigger());
        let session_stop = place.stop().or(self.daemon.stop.clone());
        let mut run = Run::within_process(self.settings(admission)?, observer, session_stop)?;
        run.publishing.dataset = self.judged.order.into.as_ref().and_then(|into| into.dataset.clone());
        Ok(OrderSession {
            run,
            counter,
            begun: Instant::now(),
            client: admission.client.clone(),
            key: admission.holdings.client,
            audit: admission.holdings.audit.clone(),
            what: self.described(admission),
            transport: transport_name(admission.transfer.flow.transport),
            _stopping: stopping,
        })
    }

    /// Enters a session that was agreed on among those of the daemon, for as long as what it gives
    /// is held.
    pub(super) fn enter(
        &self,
        session: &OrderSession,
        admission: &Admission,
        agreed: &Agreed,
    ) -> Result<(Entered, LiveSeat), Fault> {
        let (daemon, OrderSession { audit, what, client, counter, .. }) = (&self.daemon, session);
        let (peer, from) = (self.peer, agreed.control.peer_addr);
        tracing::info!(target: "longhaul::session", %peer, %client, with = %from, "opened: {what}");
        let (entered, rate) = daemon.live.rates.enter(admission.claim.clone().told(), agreed.events.0.clone());
        // The other side hears it once the session's loop begins.
        let _ = agreed.events.0.send(SessionEvent::OwnRate(rate));
        let name = nonce()?;
        audit.admitted(session_name(&name), admission.holdings.place.trigger());
        audit.keep(AuditRecord { deed: AuditDeed::SessionBegan, what: Some(what), ..AuditRecord::default() });
        let live = Live { what: what.clone(), ..listed(daemon, self.peer, admission, counter.clone()) };
        let seat = daemon.live.enter(name, live);
        end_if_unwanted(self.current, &seat);
        Ok((entered, seat))
    }

    /// Gives a session's link what it has of the daemon.
    pub(super) fn set_up<'h>(
        &'h self,
        holdings: &'h Holdings,
        memory: ByteCount,
        udp_lanes: u32,
    ) -> impl FnOnce(&mut ControlLink) + 'h {
        let (daemon, told, buffers) = (&self.daemon, &self.told, &holdings.buffers);
        move |link: &mut ControlLink| {
            link.set_idle(Idle::new(daemon.config.idle, holdings.place.activity()));
            link.set_round(daemon.runs.rounds().enter());
            link.set_overhead(Overhead::claimed(buffers.more()));
            link.set_lane_memory(buffers.lend(), udp_lanes);
            link.set_window_room(buffers.room(budget::windows(memory.get())));
            told.set_session(link.holdup());
        }
    }

    /// Tells how a session ended.
    pub(super) fn over(&self, session: &OrderSession, totals: &Totals) {
        let OrderSession { counter, begun, client, key, audit, what, transport, .. } = session;
        counter.close(totals.bytes_moved());
        let counts = counter.counts();
        let (key, transport, begun, peer) = (*key, *transport, *begun, self.peer);
        let (fault, kind) = (totals.fault.as_ref(), EndedKind::Transfer(counts.pace.bytes_committed, totals));
        EndedSession { client, key, peer, what, transport, begun, counts, fault, kind }.tell(&self.daemon, audit);
    }

    /// The settings of a session: the client's, as far as an order says them, and the daemon's own.
    fn settings(&self, admission: &Admission) -> Result<Settings, Fault> {
        let (transfer, order, config) = (&self.asked.0, &self.judged.order, &self.daemon.config);
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
            files_from: self.judged.list.as_ref().map(|list| list.names.clone()),
            dry_run: transfer.dry_run,
            retry_for: Duration::ZERO,
            rate: Some(flow.rate).filter(|rate| *rate > 0),
            share: flow.share,
            digests: order.into.is_some() && transfer.digests,
            sync: config.sync,
            pin: config.pin.clone(),
            ..Settings::default()
        })
    }

    /// The deed of a session of it, as the log says it.
    fn described(&self, admission: &Admission) -> String {
        let (host, port) = self.judged.host.clone();
        let remote = Reach::Address { host, port };
        let id = third_party::hex(&self.judged.grant.id);
        let (sources, to) = match (&admission.transfer.far, &self.judged.order.into) {
            (Far::Sources { sources, .. }, Some(OrderPlace { root, path, .. })) => {
                (sources, format!("lh://{remote}/{root}/{}", path.escaped()))
            }
            (Far::Destination { root, path, .. }, _) => {
                (&self.judged.grant.sources, format!("{root}/{}", path.escaped()))
            }
            _ => return admission.description.clone(),
        };
        let first = sources.first().map(|first| format!("{}/{}", first.root, first.path.escaped())).unwrap_or_default();
        let from = if self.judged.order.into.is_some() { first } else { format!("lh://{remote}/{first}") };
        let more = match sources.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        format!("copy from {from}{more} to {to} (order {id})")
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
pub(super) struct Pinned(PublicKey);

impl Pinned {
    /// Trusts this key alone.
    pub(super) fn to(key: PublicKey) -> Arc<Pinned> {
        Arc::new(Pinned(key))
    }
}

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
    mark: Arc<OrderMark>,
}

impl Observer for Both {
    fn event(&self, event: Event) {
        self.counter.event(event.clone());
        if let Event::Start(start) = &event {
            self.mark.started(third_party::said_start(start));
        }
        self.told.event(event);
    }

    fn lanes(&self, count: u32) {
        self.counter.lanes(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_with_another_key_than_that_of_the_grant_is_refused() {
        let judged = |key| Pinned::to(PublicKey::from_bytes([1; 32])).judge("host", 7214, &PublicKey::from_bytes(key));
        assert_eq!(judged([1; 32]), Ok(()));
        assert_eq!(judged([2; 32]).map_err(|fault| fault.code), Err(FaultCode::Denied));
    }
}
