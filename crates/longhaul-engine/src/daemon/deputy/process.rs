//! The deputy itself: hears the daemon, and serves the clients that it hands over.
//!
//! In: the socket to the daemon. Out: conversations to `serve`, lanes to the registry. It has no
//! key of its own and listens nowhere: its clients are those whom the daemon has authenticated. It
//! believes the daemon, opens roots as its own user, and ends with the daemon. It ends no process.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_net::{Control, LaneParts, LaneStream, PublicKey, UdpSeat};
use longhaul_sys::passing::Passing;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use super::super::audit::{AuditLog, Auditor};
use super::super::current::Current;
use super::super::{DRAIN_MAX, Daemon, OpenRoot, Roots, ServeConfig, reload, serve};
use super::channel::Channel;
use super::deeds::{self, DaemonsLog, DeedReceiver, DeedSender};
use super::link::DaemonLink;
use super::message::{TalkId, TalkOpening, ToDaemon, ToDeputy};
use crate::api::{Stop, StopTrigger};
use crate::lanes::registry::Registry;
use crate::lanes::udp::desk::take_passed;
use crate::workers::blocking;

/// Serves the clients of this process's user that the daemon at the other end of `socket` hands
/// over, until the daemon is gone or `stop` says so; then ends every session in order.
///
/// # Errors
/// A [`Fault`] of a socket that cannot be used.
pub async fn serve_deputy(socket: OwnedFd, mut stop: Stop) -> Result<(), Fault> {
    let channel = Channel::over(socket).map_err(|error| Fault::new(FaultCode::Io, Blame::Local, error))?;
    let (says, said) = mpsc::unbounded_channel();
    let (deeds, done) = deeds::queue();
    let saying = tokio::spawn(say(channel.clone(), said, done));
    let (trigger, ends) = Stop::new();
    let mut deputy = DeputyProcess {
        says,
        deeds,
        registry: Registry::default(),
        accounts: None,
        opened: Arc::default(),
        talks: HashMap::new(),
        stop: ends,
    };
    let hearing = async {
        while let Some((message, descriptor)) = channel.hear::<ToDeputy>(Passing::Taken).await? {
            deputy.hear(message, descriptor);
        }
        Ok::<(), std::io::Error>(())
    };
    tokio::select! {
        heard = hearing => if let Err(error) = heard {
            tracing::error!(target: "longhaul::serve", %error, "the daemon says what is not understood");
        },
        _ = stop.stopped() => {}
    }
    deputy.finish(&trigger).await;
    // Nobody says more, but what was said may still be on its way.
    let _ = timeout(LAST_WORDS, saying).await;
    Ok(())
}

async fn say(channel: Channel, mut said: mpsc::UnboundedReceiver<ToDaemon>, mut done: DeedReceiver) {
    // Whoever hears the daemon sees that it is gone.
    let say = async |message: ToDaemon| channel.say(&message, None).await.is_ok();
    loop {
        let (deeds, last) = tokio::select! {
            Some((talk, deed)) = done.next() => (0, ToDaemon::Deed(talk, deed)),
            message = said.recv() => match message {
                // What was done before it is told before it.
                Some(message) => (done.count(), message),
                None => return,
            },
        };
        for _ in 0..deeds {
            if let Some((talk, deed)) = done.next().await
                && !say(ToDaemon::Deed(talk, deed)).await
            {
                return;
            }
        }
        if !say(last).await {
            return;
        }
    }
}

/// Roots that were opened. All conversations share those of one place.
type OpenedRoots = Arc<Mutex<BTreeMap<String, OpenRoot>>>;

/// See the module.
struct DeputyProcess {
    says: mpsc::UnboundedSender<ToDaemon>,
    deeds: DeedSender,
    registry: Registry,
    /// The accounts that all conversations share, since the first one.
    accounts: Option<Daemon>,
    opened: OpenedRoots,
    talks: HashMap<TalkId, Weak<DaemonLink>>,
    stop: Stop,
}

impl DeputyProcess {
    fn hear(&mut self, message: ToDeputy, descriptor: Option<OwnedFd>) {
        match (message, descriptor) {
            (ToDeputy::Converse(opening), Some(stream)) => self.converse(*opening, stream),
            (ToDeputy::Lane { key, opening, from, parts }, Some(socket)) => {
                tokio::spawn(bring(
                    self.registry.clone(),
                    (socket, parts),
                    key.map(PublicKey::from_bytes),
                    opening,
                    from,
                ));
            }
            (ToDeputy::Granted(talk, granted), _) => self.tell(talk, |link| link.granted(granted)),
            (ToDeputy::Memory(talk, bytes), _) => self.tell(talk, |link| link.has_memory(bytes)),
            (ToDeputy::Rate(talk, rate), _) => self.tell(talk, |link| link.set_rate(rate)),
            (ToDeputy::End(talk, code), _) => self.tell(talk, |link| link.end(code)),
            (ToDeputy::UdpLane { join, seat }, Some(pair)) => {
                let seat = UdpSeat::passed(pair, &seat);
                match take_passed(&join, seat, &self.registry) {
                    Some(Ok(accepted)) => {
                        let registry = self.registry.clone();
                        tokio::spawn(async move { registry.bring_udp(accepted).await });
                    }
                    Some(Err(unjoined)) => {
                        let fault = Fault::from(unjoined);
                        tracing::warn!(target: "longhaul::serve", %fault, "a UDP lane was turned away");
                    }
                    None => tracing::debug!(target: "longhaul::serve", "a UDP lane that no session expects"),
                }
            }
            (ToDeputy::Converse(_) | ToDeputy::Lane { .. } | ToDeputy::UdpLane { .. }, None) => {
                tracing::error!(target: "longhaul::serve", "a connection without its socket");
            }
        }
    }

    /// Tells a conversation something. It may be over.
    fn tell(&self, talk: TalkId, tell: impl FnOnce(&DaemonLink)) {
        if let Some(link) = self.talks.get(&talk).and_then(Weak::upgrade) {
            tell(&link);
        }
    }

    /// Begins a conversation.
    fn converse(&mut self, opening: TalkOpening, stream: OwnedFd) {
        let TalkOpening { talk, session, facts, config, recorded, has_udp } = opening;
        if !has_udp {
            self.registry.bar_udp();
        }
        let link = Arc::new(DaemonLink::new(talk, session, self.says.clone()));
        self.talks.retain(|_, link| link.strong_count() > 0);
        self.talks.insert(talk, Arc::downgrade(&link));
        let stream = std::os::unix::net::UnixStream::from(stream);
        let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
        let (control, affinity) = match (stream, reload::affinity(&config)) {
            (Ok(stream), Ok(affinity)) => (facts.over(stream), affinity),
            (stream, affinity) => {
                let why = stream.err().map(|e| e.to_string()).or(affinity.err().map(|fault| fault.to_string()));
                tracing::error!(target: "longhaul::serve", ?why, "a conversation cannot begin");
                return;
            }
        };
        let accounts = self.accounts.get_or_insert_with(|| {
            let roots = Roots::default();
            let daemon = Daemon::new(config.clone(), roots, affinity.clone(), self.stop.clone());
            Daemon { registry: self.registry.clone(), ..daemon }
        });
        let log = recorded.map(|ready| Arc::new(DaemonsLog::new(talk, self.deeds.clone(), ready)) as Arc<dyn AuditLog>);
        let live = accounts.live.clone().linked(link.clone(), Auditor::new(log));
        let daemon = Daemon { affinity, live, memory: link.pool().clone(), ..accounts.clone() };
        tokio::spawn(serve_one((daemon, self.opened.clone()), config, control, link));
    }

    /// Ends every session in order.
    async fn finish(self, trigger: &StopTrigger) {
        trigger.stop(FaultCode::Busy);
        if let Some(daemon) = self.accounts {
            let _ = timeout(DRAIN_MAX, daemon.sessions.all_given_back()).await;
        }
        // The last words pass.
        let links: Vec<_> = self.talks.into_values().collect();
        let left = async {
            while links.iter().any(|link| link.strong_count() > 0) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let _ = timeout(LAST_WORDS, left).await;
    }
}

/// Serves one client, whose roots are opened by what the daemon says of them now.
async fn serve_one(
    (daemon, opened): (Daemon, OpenedRoots),
    config: ServeConfig,
    control: Control,
    link: Arc<DaemonLink>,
) {
    let roots = open(&opened, config.clone()).await;
    let ahead = tokio::spawn(link.clone().keep_ahead());
    for fault in roots.1.values() {
        tracing::warn!(target: "longhaul::serve", %fault, "a root cannot be opened");
    }
    let roots = Roots { named: roots.0, failed: roots.1, ..Roots::default() };
    let daemon = Daemon { config, roots, ..daemon };
    serve::serve(Arc::new(Current::new(daemon)), control).await;
    ahead.abort();
    let _ = ahead.await;
    drop(link);
}

/// The roots that could be opened, and the faults of the others.
type OpenedOrNot = (BTreeMap<String, OpenRoot>, BTreeMap<String, Fault>);

/// Opens the roots of a configuration, each once.
async fn open(opened: &OpenedRoots, config: ServeConfig) -> OpenedOrNot {
    // Whoever comes meanwhile finds them open.
    let mut known = opened.lock().await;
    let age = config.partials;
    let before = known.clone();
    let every: Vec<String> = config.roots.iter().map(|root| root.name.clone()).collect();
    let uid = rustix::process::geteuid().as_raw();
    let (now, failed) = blocking(move || {
        let (mut now, mut failed) = (BTreeMap::new(), BTreeMap::new());
        for root in &config.roots {
            match reload::open_for_user(root, &before, (uid, &config)) {
                Ok(open) => drop(now.insert(root.name.clone(), open)),
                Err(fault) => drop(failed.insert(root.name.clone(), fault)),
            }
        }
        Ok((now, failed))
    })
    .await
    .unwrap_or_else(|fault| (BTreeMap::new(), every.into_iter().map(|name| (name, fault.clone())).collect()));
    for (name, root) in &now {
        let is_new = known.insert(name.clone(), root.clone()).is_none();
        if is_new {
            collect(root.clone(), age);
        }
    }
    (now, failed)
}

/// Removes what transfers of this user have left there long ago.
fn collect((config, set, store): OpenRoot, age: Option<Duration>) {
    if !config.allow.create {
        return;
    }
    tokio::spawn(async move {
        let name = config.name;
        let collecting = move || {
            let now = SystemTime::now();
            let partials = age.map_or(Ok(()), |age| store.collect(&set, age, now));
            partials.and(store.look_after_stages(&set, (age, now), &|_, _| ()))
        };
        if let Err(fault) = blocking(collecting).await {
            tracing::warn!(target: "longhaul::journal", root = %name, %fault, "partials cannot be looked at");
        }
    });
}

/// Brings a lane to its session.
async fn bring(
    registry: Registry,
    (socket, parts): (OwnedFd, LaneParts),
    key: Option<PublicKey>,
    opening: Vec<u8>,
    from: IpAddr,
) {
    match (LaneStream::put_together(socket, parts), key) {
        (Ok(stream), Some(key)) => registry.bring_private(stream, key).await,
        (Ok(stream), None) => registry.bring_safe(stream, &opening, from).await,
        (Err(error), _) => tracing::debug!(target: "longhaul::serve", %error, "a lane came to nothing"),
    }
}

/// How long last words may take to pass as the process ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);
