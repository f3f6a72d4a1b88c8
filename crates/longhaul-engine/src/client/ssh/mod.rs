//! Reaches a far host by the user's own ssh: starts longhaul there, says hello through the pipe,
//! and finds ways for lanes.
//!
//! In: an [`SshHost`] and this run's one-time key. Out: a control connection through the tunnel,
//! and the [`Ways`] of its lanes. `process` runs ssh, `cost` counts what it costs, `failure`
//! words its end, `install` puts longhaul there, `address` finds out which host ssh dials, `ways`
//! races the ways. It knows no sessions and no disks.

mod address;
mod cost;
mod failure;
mod install;
mod process;
mod ways;

use std::net::{Ipv6Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_net::{Control, ControlEnds, NetPath, PeerCheck, PublicKey, Tunnel, control_over};
use longhaul_proto::wire::ssh::{ClientHello, FarHello};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

pub(crate) use self::cost::SshCosts;
use self::failure::EndOfSsh;
use self::install::{ABSENT, ThisProgram};
use self::process::{SshProcess, Started, has_terminal, start};
pub(crate) use self::ways::NearSide;
pub(crate) use self::ways::Ways;
use self::ways::{FarDoor, FarSide};
use crate::api::{Credentials, SshHost, Trust};
use crate::ssh::{ConnectionKind, read_hello};

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
    let Spoken { far, stdin, stdout, process } = spoken(host, &hello, &credentials.trust).await?;
    tracing::debug!(target: "longhaul::session", host = host.host, far = far.version, port = far.port, "longhaul runs there");
    let tunnel = Tunnel::dialling(stdout, stdin);
    let mut stream = tunnel.open().await?;
    // What it is, before anything that it says.
    stream.write_all(&[ConnectionKind::Greeted.byte()]).await.map_err(|_| ended())?;
    let addresses = addresses.await.unwrap_or_default();
    let key = PublicKey::from_bytes(far.key);
    let doors = far.port.map_or_else(Vec::new, |port| FarDoor::all(port, &addresses, paths));
    let ways = Ways::new(tunnel, process, FarSide { key, doors, addresses }, near, costs);
    let peer_addr = ways.first().unwrap_or(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0));
    let ends = ControlEnds { peer_addr, local_addr: peer_addr, rtt: Duration::ZERO };
    let begun = Instant::now();
    let mut control = control_over(stream, ends, &credentials.identity, PeerCheck::Pinned(key)).await?;
    // One flight there and one back, and what the keys cost.
    control.rtt = begun.elapsed();
    Ok((control, ways))
}

/// A far longhaul that has spoken.
struct Spoken {
    far: FarHello,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    process: SshProcess,
}

/// Starts longhaul there, puts it there before if that was asked for, and hears what it says.
async fn spoken(host: &SshHost, hello: &[u8], trust: &Arc<dyn Trust>) -> Result<Spoken, Fault> {
    if !host.install {
        return try_once(host, &host.remote, hello, trust).await?.map_err(|end| end.fault(host));
    }
    let program = ThisProgram::read().await?;
    let tried = try_once(host, &program.words(), hello, trust).await?;
    match tried {
        Err(end) if end.code() == Some(ABSENT) => {
            program.put(host, trust).await?;
            try_once(host, &program.words(), hello, trust).await?.map_err(|end| end.fault(host))
        }
        tried => tried.map_err(|end| end.fault(host)),
    }
}

/// Runs these words there. Gives how ssh ended if longhaul did not speak.
async fn try_once(
    host: &SshHost,
    words: &str,
    hello: &[u8],
    trust: &Arc<dyn Trust>,
) -> Result<Result<Spoken, EndOfSsh>, Fault> {
    let words = format!("{words} {}", host.arguments);
    let Started { mut stdin, stdout, process } = start(host, &words, Stdio::piped(), trust.clone())?;
    let no_pipe = || Fault::new(FaultCode::Internal, Blame::Bug, "ssh without its output");
    let mut stdout = BufReader::new(stdout.ok_or_else(no_pipe)?);
    // If nobody reads it, the end of the process says why.
    let _ = stdin.write_all(hello).await;
    let heard = read_hello(&mut stdout, FarHello::decode);
    let heard = match has_terminal() {
        // Somebody may be typing a password.
        true => heard.await?,
        false => timeout(HELLO, heard).await.map_err(|_| silent(host))??,
    };
    Ok(match heard {
        Some(far) => Ok(Spoken { far, stdin, stdout, process }),
        None => Err(process.ended(ENDING).await),
    })
}

fn silent(host: &SshHost) -> Fault {
    let why = format_args!("nothing came through ssh from {} for {} s", host.host, HELLO.as_secs());
    Fault::new(FaultCode::TimedOut, Blame::Path, why).about(&host.host).hint(hint::Ssh::TryByHand)
}

fn ended() -> Fault {
    Fault::new(FaultCode::Lost, Blame::Path, "the ssh session ended").hint(hint::Again::Now)
}

/// An ssh whose pipe has ended ends itself within this.
const ENDING: Duration = Duration::from_secs(5);
/// Where nobody can be asked for anything, longhaul speaks there within this.
const HELLO: Duration = Duration::from_secs(120);
