//! Reaches a far host by the user's own ssh: starts longhaul there, says hello through the pipe,
//! and finds ways for lanes.
//!
//! In: an [`SshHost`] and this run's one-time key. Out: a control connection through the tunnel,
//! and the [`Ways`] of its lanes. `process` runs ssh, `cost` counts what it costs, `failure`
//! words its end, `install` puts longhaul there, `address` finds out which host ssh dials, `held`
//! lets the tunnel speak before it may hear, `ways` races the ways. It knows no sessions and no
//! disks.

mod address;
mod cost;
mod failure;
mod held;
mod install;
mod process;
mod ways;

use std::net::{Ipv6Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::limits::HANDSHAKE_SECONDS_MAX;
use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_net::{Control, ControlEnds, Identity, NetError, NetPath, PeerCheck, PublicKey, Tunnel, control_over};
use longhaul_proto::wire::ssh::{ClientHello, FarHello};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, SimplexStream, copy, simplex};
use tokio::process::ChildStdin;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub(crate) use self::cost::SshCosts;
use self::failure::EndOfSsh;
use self::held::HeldOutput;
use self::install::{ABSENT, ThisProgram};
use self::process::{SshProcess, Started, has_terminal, start};
pub(crate) use self::ways::NearSide;
pub(crate) use self::ways::Ways;
use self::ways::{FarDoor, FarSide};
use crate::api::{Credentials, SshHost};
use crate::ssh::{ConnectionKind, read_hello, word_of};

/// Starts longhaul at the far host and begins a control connection with it. Lanes are protected as
/// `near` says, and go straight over these `paths` if there are any.
///
/// # Errors
/// A [`Fault`] that says what ssh, the far shell or the far longhaul could not do.
pub(super) async fn dial(
    host: &SshHost,
    credentials: &Credentials,
    near: NearSide,
    paths: &[NetPath],
    costs: &SshCosts,
) -> Result<(Control, Arc<Ways>), Fault> {
    let addresses = tokio::spawn(address::of(host.clone()));
    let hello = ClientHello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        key: *credentials.identity.public().as_bytes(),
        places: host.places.clone(),
        ports: host.ports,
        at: paths.iter().filter_map(|path| path.remote).collect(),
    };
    let many = |e| Fault::new(FaultCode::Usage, Blame::Local, format_args!("the sources: {e}"));
    let hello = hello.encode().map_err(many)?;
    let Spoken { far, tunnel, mut greeting, process } = spoken(host, &hello, credentials).await?;
    tracing::debug!(target: "longhaul::session", host = host.host, far = far.version, port = far.port, "longhaul runs there");
    let greeted = timeout(Duration::from_secs(HANDSHAKE_SECONDS_MAX), greeting.join_next()).await;
    let greeted = greeted.map_err(|_| silent(host, Duration::from_secs(HANDSHAKE_SECONDS_MAX)))?;
    let mut control = greeted.and_then(Result::ok).ok_or_else(ended)??;
    if control.peer_key.as_bytes() != &far.key {
        return Err(Fault::protocol("the far side has another key than the one that it named"));
    }
    let addresses = addresses.await.unwrap_or_default();
    let key = PublicKey::from_bytes(far.key);
    let doors = far.port.map_or_else(Vec::new, |port| FarDoor::all(port, &addresses, paths));
    let ways = Ways::new(tunnel, process, FarSide { key, doors, addresses }, near, costs);
    if let Some(first) = ways.first() {
        (control.peer_addr, control.local_addr) = (first, first);
    }
    Ok((control, ways))
}

/// A far longhaul that has spoken.
struct Spoken {
    far: FarHello,
    tunnel: Tunnel,
    /// Begins a control connection.
    greeting: JoinSet<Result<Control, NetError>>,
    process: SshProcess,
}

/// Begins a control connection with whoever holds a key over there.
async fn greet(tunnel: Tunnel, identity: Arc<Identity>) -> Result<Control, NetError> {
    let stream = ways::open(&tunnel, ConnectionKind::Greeted).await?;
    let nowhere = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    let ends = ControlEnds { peer_addr: nowhere, local_addr: nowhere, rtt: Duration::ZERO, segment_bytes: 0 };
    control_over(stream, ends, &identity, PeerCheck::Observe).await
}

/// Starts longhaul there, puts it there before if that was asked for, and hears what it says.
async fn spoken(host: &SshHost, hello: &[u8], credentials: &Credentials) -> Result<Spoken, Fault> {
    if !host.install {
        return try_once(host, &host.remote, hello, credentials).await?.map_err(|end| end.fault(host));
    }
    let program = ThisProgram::read().await?;
    let tried = try_once(host, &program.words(), hello, credentials).await?;
    match tried {
        Err(end) if end.code() == Some(ABSENT) => {
            program.put(host, &credentials.trust).await?;
            try_once(host, &program.words(), hello, credentials).await?.map_err(|end| end.fault(host))
        }
        tried => tried.map_err(|end| end.fault(host)),
    }
}

/// Runs these words there. Gives how ssh ended if longhaul did not speak.
async fn try_once(
    host: &SshHost,
    words: &str,
    hello: &[u8],
    credentials: &Credentials,
) -> Result<Result<Spoken, EndOfSsh>, Fault> {
    let (give, held) = HeldOutput::new();
    let (said, says) = simplex(UNPASSED_BYTES_MAX);
    let tunnel = Tunnel::dialling(held, says);
    let mut greeting = JoinSet::new();
    greeting.spawn(greet(tunnel.clone(), credentials.identity.clone()));
    let first = Said { first: hello.to_vec(), then: said }.with_greeting(hello.len()).await;
    let ahead = word_of(&first.first).map_or(String::new(), |word| format!(" {} {word}", host.ahead));
    let words = format!("{words} {}{ahead}", host.arguments);
    let Started { stdin, stdout, process } = start(host, &words, Stdio::piped(), credentials.trust.clone())?;
    let no_pipe = || Fault::new(FaultCode::Internal, Blame::Bug, "ssh without its output");
    let mut stdout = BufReader::new(stdout.ok_or_else(no_pipe)?);
    // If nobody reads it, the end of the process says why. It ends with the tunnel.
    tokio::spawn(first.pass_to(stdin));
    let heard = read_hello(&mut stdout, FarHello::decode);
    let heard = match has_terminal() {
        // Somebody may be typing a password.
        true => heard.await?,
        false => timeout(HELLO, heard).await.map_err(|_| silent(host, HELLO))??,
    };
    Ok(match heard {
        Some(far) => {
            // Where the tunnel has ended, so has what is begun in it.
            let _ = give.send(stdout);
            Ok(Spoken { far, tunnel, greeting, process })
        }
        None => Err(process.ended(ENDING).await),
    })
}

/// All that this side says, in its order.
struct Said {
    first: Vec<u8>,
    then: ReadHalf<SimplexStream>,
}

impl Said {
    /// Takes the first flight of the greeting behind what is `hello` bytes long to what is said
    /// first, so that the far side has it when it begins to run: what answers it then comes back
    /// with the first that longhaul says there, and no round trip of its own goes by.
    async fn with_greeting(mut self, hello: usize) -> Said {
        loop {
            let is_there = self.first.len() > hello + FLIGHT_BYTES_MIN;
            let patience = if is_there { FLIGHT_GAP } else { FLIGHT_MAX };
            match timeout(patience, self.then.read_buf(&mut self.first)).await {
                Ok(Ok(1..)) if self.first.len() < UNPASSED_BYTES_MAX => {}
                // What is late follows through the pipe.
                _ => return self,
            }
        }
    }

    async fn pass_to(mut self, mut pipe: ChildStdin) {
        if pipe.write_all(&self.first).await.is_ok() {
            let _ = copy(&mut self.then, &mut pipe).await;
        }
    }
}

fn silent(host: &SshHost, time: Duration) -> Fault {
    let why = format_args!("nothing came through ssh from {} for {} s", host.host, time.as_secs());
    Fault::new(FaultCode::TimedOut, Blame::Path, why).about(&host.host).hint(hint::Ssh::TryByHand)
}

fn ended() -> Fault {
    Fault::new(FaultCode::Lost, Blame::Path, "the ssh session ended").hint(hint::Again::Now)
}

/// An ssh whose pipe has ended ends itself within this.
const ENDING: Duration = Duration::from_secs(5);
/// Where nobody can be asked for anything, longhaul speaks there within this.
const HELLO: Duration = Duration::from_secs(120);
/// Bytes that were said and are not passed on yet.
const UNPASSED_BYTES_MAX: usize = 256 << 10;
/// A first flight of TLS has more bytes than this, is made within this time, ...
const FLIGHT_BYTES_MIN: usize = 200;
const FLIGHT_MAX: Duration = Duration::from_millis(50);
/// ... and is whole when nothing comes behind it for this time.
const FLIGHT_GAP: Duration = Duration::from_millis(2);
