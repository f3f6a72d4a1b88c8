//! `[mover]`: the mover that a daemon runs beside itself.
//!
//! In: the values of the table. Out: a [`MoverConfig`]. Opens no queue.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use longhaul_core::ByteCount;
use longhaul_core::limits::MEMORY_BYTES_DEFAULT;
use longhaul_core::units::parse_size;
use longhaul_engine::ServeConfig;
use longhaul_jobs_postgres::Place;
use longhaul_net::PublicKey;
use serde::Deserialize;
use toml::Spanned;

use super::MEMORY_MIN;
use super::file::{Text, Wrong, at, wrong};

/// A mover of a queue of campaigns: a process that the daemon begins and ends with itself, as the
/// daemon's user. There is none without this table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MoverTable {
    /// The queue: an absolute path, or `postgres://USER@HOST/DATABASE`. [default: `queue.db` in
    /// `state`]
    queue: Option<Text>,
    /// The names of campaigns, or of families of them, whose links alone are served. [default: all
    /// links]
    campaigns: Option<Vec<String>>,
    /// Shards that are moved at a time, 1 to 64. [default: 1]
    movers: Option<Spanned<i64>>,
    /// Bytes of buffers of each shard's transfer, at least 16 MiB. As much for each of its movers
    /// is taken from `memory` of `[limits]`. [default: as of any transfer]
    memory: Option<Text>,
    /// The directories of this host in which campaigns may have sources and destinations: absolute
    /// paths. Without it campaigns between daemons alone are served. [default: none]
    beneath: Option<Spanned<Vec<PathBuf>>>,
    /// The public keys of the owners whose campaigns are moved, besides the mover's own. `job add`
    /// signs a campaign with its owner's key, which `key show` prints. [default: of a queue in a
    /// file, all owners; of one in a database, the mover's own key alone]
    owners: Option<Vec<Text>>,
    /// The names of campaigns that are moved though nobody has signed them, as older versions added
    /// them: whoever may write to the queue says what they move, with the mover's rights. [default:
    /// of a queue in a file without `owners` all campaigns, else none]
    allow_unsigned: Option<Vec<String>>,
    /// The file of the key that is shown to daemons, an absolute path; what campaigns name is not
    /// heard. [default: the daemon's own]
    identity: Option<Spanned<PathBuf>>,
    /// The file of the daemons that are trusted, likewise. [default: `known_hosts` beside
    /// `serve.toml`]
    known_hosts: Option<Spanned<PathBuf>>,
    /// The file of its hooks, [`hooks.toml`](#hookstoml), an absolute path. [default: none]
    hooks: Option<Spanned<PathBuf>>,
    /// The file of passwords of databases, in the form of PostgreSQL's `.pgpass`, an absolute path.
    /// [default: none]
    passwords: Option<Spanned<PathBuf>>,
}

/// The mover of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoverConfig {
    /// The queue: a path or a URL.
    pub queue: String,
    /// The names of the campaigns whose links are served. Empty: all links.
    pub campaigns: Vec<String>,
    /// Shards that it moves at a time.
    pub movers: NonZero<u32>,
    /// Buffers of each of its transfers.
    pub memory: ByteCount,
    /// The directories of this host that campaigns may name, and what lies beneath them.
    pub beneath: Vec<PathBuf>,
    /// The owners whose campaigns are moved, besides that of the mover's own key.
    pub owners: Vec<PublicKey>,
    /// The names of campaigns that are moved though nobody has signed them. `None`: all of a queue
    /// in a file without owners, else none.
    pub allow_unsigned: Option<Vec<String>>,
    /// The key for daemons.
    pub identity: Option<PathBuf>,
    /// The daemons that are trusted.
    pub known_hosts: Option<PathBuf>,
    /// The file of its hooks.
    pub hooks: Option<PathBuf>,
    /// The file of passwords of databases.
    pub passwords: Option<PathBuf>,
}

/// Judges the table, and takes the mover's memory from that of the daemon.
pub(super) fn judge(
    table: Spanned<MoverTable>,
    state: Option<&Path>,
    config: &mut ServeConfig,
) -> Result<MoverConfig, Wrong> {
    let whole = table.span();
    let table = table.into_inner();
    let queue = match (table.queue, state) {
        (Some(queue), _) if Place::is_meant(queue.get_ref().as_bytes()) || queue.get_ref().starts_with('/') => {
            queue.into_inner()
        }
        (Some(queue), _) => return Err(wrong(&queue, "queue is an absolute path, or postgres://USER@HOST/DATABASE")),
        (None, Some(state)) if state.is_relative() => {
            return Err(wrong(
                &Spanned::new(whole, ()),
                "a mover needs state as an absolute path, as it works elsewhere",
            ));
        }
        (None, Some(state)) => state.join("queue.db").display().to_string(),
        (None, None) => {
            return Err(wrong(&Spanned::new(whole, ()), "a mover needs a queue: name it, or a directory as state"));
        }
    };
    let movers = match &table.movers {
        None => NonZero::<u32>::MIN,
        Some(count) => u32::try_from(*count.get_ref())
            .ok()
            .filter(|count| *count <= MOVERS_MAX)
            .and_then(NonZero::new)
            .ok_or_else(|| wrong(count, format!("movers must be 1 to {MOVERS_MAX}")))?,
    };
    let memory = table.memory.as_ref().map(|size| at(size, parse_size(size.get_ref()))).transpose()?;
    let memory = memory.unwrap_or(ByteCount(MEMORY_BYTES_DEFAULT));
    let place = Spanned::new(table.memory.map_or(whole, |memory| memory.span()), ());
    if memory < MEMORY_MIN {
        return Err(wrong(&place, format!("memory must be at least {MEMORY_MIN}")));
    }
    let taken = memory.0.saturating_mul(u64::from(movers.get()));
    let rest = ByteCount(config.memory.0.saturating_sub(taken));
    if rest < MEMORY_MIN {
        let (taken, all) = (ByteCount(taken), config.memory);
        let message = format!("the mover would take {taken} of the daemon's {all}, and leave no {MEMORY_MIN} to serve");
        return Err(wrong(&place, message));
    }
    config.memory = rest;
    Ok(MoverConfig {
        queue,
        campaigns: table.campaigns.unwrap_or_default(),
        movers,
        memory,
        owners: table.owners.unwrap_or_default().iter().map(owner).collect::<Result<_, _>>()?,
        allow_unsigned: table.allow_unsigned,
        beneath: table.beneath.map(directories).transpose()?.unwrap_or_default(),
        identity: table.identity.map(|file| absolute(file, "identity")).transpose()?,
        known_hosts: table.known_hosts.map(|file| absolute(file, "known_hosts")).transpose()?,
        hooks: table.hooks.map(|file| absolute(file, "hooks")).transpose()?,
        passwords: table.passwords.map(|file| absolute(file, "passwords")).transpose()?,
    })
}

/// A file by its absolute path: the mover works in another directory than the daemon.
fn absolute(file: Spanned<PathBuf>, key: &str) -> Result<PathBuf, Wrong> {
    if file.get_ref().is_absolute() {
        return Ok(file.into_inner());
    }
    Err(wrong(&file, format!("{key} is an absolute path")))
}

fn owner(text: &Text) -> Result<PublicKey, Wrong> {
    at(text, text.get_ref().parse::<PublicKey>())
}

fn directories(named: Spanned<Vec<PathBuf>>) -> Result<Vec<PathBuf>, Wrong> {
    if named.get_ref().iter().all(|dir| dir.is_absolute()) {
        return Ok(named.into_inner());
    }
    Err(wrong(&named, "beneath has absolute paths of directories"))
}

/// Shards that a mover may move at a time.
const MOVERS_MAX: u32 = 64;
