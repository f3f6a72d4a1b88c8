//! The grammar of `serve.toml`, and the judgement of each value at its place.
//!
//! In: the text. Out: a [`Daemon`] without the command line's roots, whose names alone are known
//! here: a client may name one of them. Opens nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use longhaul_core::ByteCount;
use longhaul_core::units::parse_size;
use longhaul_engine::{ClientConfig, Protection, Rights, RootConfig, SameDevice, ServeConfig, TargetDirs};
use longhaul_net::PublicKey;
use serde::Deserialize;
use toml::Spanned;

use super::addresses::listen;
use super::bounds::{self, Counts, Written};
use super::confinement;
use super::grants::{self, KnownRoots, OtherRoots};
use super::mover::{self, MoverConfig, MoverTable};
use super::network::{self, ThirdParty};
use super::policy::{self, Mask};
use super::user;
use super::watch::{self, Watch};
use super::{
    BENCH_BYTES_MIN, CommandLineRoot, Daemon, IDLE_MIN, MEMORY_MIN, SESSIONS_MAX, UNFINISHED_MAX, WEIGHT_MAX, defaults,
};
use crate::config::position;
use crate::error::Error;
use crate::location::parse_root;
use crate::values;

/// A text, and its place.
pub(super) type Text = Spanned<String>;

/// The keys at the top of the file, before the first table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Addresses to listen on, each `HOST:PORT`; port 0 takes any free one. [default:
    /// ["[::]:7214"]]
    listen: Option<Spanned<Vec<Text>>>,
    /// The file of the daemon's private key. With `/etc/longhaul/serve.toml` it is by default the
    /// file `identity` beside it; beneath systemd the one that `LoadCredential=identity:FILE` hands
    /// over comes first. [default: $XDG_CONFIG_HOME/longhaul/identity]
    identity: Option<PathBuf>,
    /// A directory for data of the whole daemon: the socket of `longhaul admin` lies in it, the
    /// counts for `stored` and `files`, which grants of clients are used up, and the catalogue of
    /// checksums that file systems do not keep. It is made if it does not exist, and only root and
    /// the daemon's user may write to it. [default: none]
    state: Option<PathBuf>,
    /// The socket of `longhaul admin`. [default: `admin.sock` in `state`, if that is given]
    admin_socket: Option<PathBuf>,
    /// The user as whom the daemon goes on once it listens and has read its key, by name or number.
    /// It needs to be started as root for that. [default: none]
    user: Option<Text>,
    /// How files are read and written: `direct`, `buffered`, or `auto`, which is direct where the
    /// file system takes it. [default: "auto"]
    io: Option<Text>,
    /// The I/O engine: `uring`, `threads` or `auto`. [default: "auto"]
    engine: Option<Text>,
    /// Requests in flight per disk, with the bounds of `--depth`, or `auto`. [default: "auto"]
    depth: Option<Spanned<Number>>,
    /// The CPUs that I/O threads and lanes run on: `auto`, those of the memory node of their disk
    /// and network interface; `none`, any; or a list such as `0-3,8`. [default: "auto"]
    pin: Option<Text>,
    /// The bounds of the daemon as a whole.
    #[serde(default)]
    limits: Limits,
    /// The logs of the daemon, and its listener for whoever watches.
    #[serde(default)]
    watch: Watch,
    /// Copies from one daemon to another.
    #[serde(default)]
    third_party: ThirdParty,
    /// A mover of campaigns, beside the daemon.
    mover: Option<Spanned<MoverTable>>,
    /// A directory that is served. There is one table for each.
    #[serde(default)]
    root: Vec<Root>,
    /// A client that may connect. There is one table for each.
    #[serde(default)]
    client: Vec<Client>,
}

/// The bounds of the daemon as a whole.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    /// Transfers at a time, of all clients together, 1 to 4096. [default: 64]
    sessions: Option<Spanned<i64>>,
    /// Bytes of all buffers together, and what sessions and listings keep of names beyond 2 MiB
    /// each; at least 16 MiB, at most the memory of the host. [default: "4GiB"]
    memory: Option<Text>,
    /// The time after which a session ends in which nothing moves and no disk of the daemon is at
    /// work; at least 1 s, 0 for never. [default: "10min"]
    idle: Option<Spanned<Number>>,
    /// The time for which the rest of an interrupted transfer is kept; 0 for ever. What is staged
    /// of a campaign is kept for 180 days at least. [default: "14d"]
    partials: Option<Spanned<Number>>,
    /// Interrupted transfers that one client may leave in a root, 1 to 1048576. [default: 1024]
    unfinished: Option<Spanned<i64>>,
    /// The rate of all sessions together, as `9.4Gbit/s` or `250MB/s`; at least 64 KiB/s. [default:
    /// none]
    rate: Option<Text>,
    /// The time after which received bytes are made durable, 50 ms to 1 min; a crash costs no more.
    /// [default: "1s"]
    sync_interval: Option<Text>,
    /// Received bytes after which they are made durable, 1 MiB to 64 GiB. [default: "1GiB"]
    sync_bytes: Option<Text>,
    /// Bytes that one run of `bench net` moves at most; at least 1 MiB. [default: "64GiB"]
    bench_bytes: Option<Text>,
    /// Whether the daemon confines itself to its own files (Landlock) and to the system calls that
    /// it needs (seccomp): `auto`, as far as the kernel can; `required`, or it does not start;
    /// `off`. [default: "auto"]
    confine: Option<Text>,
    /// Directories beneath which a reload may add roots: a confined daemon reaches no others.
    /// [default: []]
    reload_beneath: Option<Spanned<Vec<PathBuf>>>,
}

/// A directory that is served.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Root {
    /// The name of the root, one printable path component: the first one of `lh://HOST/ROOT/PATH`.
    name: Text,
    /// The directory, as a list of one; or the targets of a set, 2 to 1024 directories on different
    /// disks, in the order of their numbers.
    targets: Spanned<Vec<PathBuf>>,
    /// The layout over several targets: `spread` (whole files, each on the target that will have it
    /// soonest) or `stripe` (the chunks of each large file over all of them). A set that stands
    /// keeps its own. [default: "spread"]
    layout: Option<Text>,
    /// The length from which files are striped, at least 1 MiB. [default: "64MiB"]
    stripe_from: Option<Text>,
    /// The use of a set of which a target is missing: `refuse`, `readonly` (what is there is
    /// served, unfinished files may finish, no new name comes) or `continue` (as if the target held
    /// nothing). [default: "readonly"]
    on_missing: Option<Text>,
    /// Whether targets may lie on one file system, where they are no faster than one. [default:
    /// false]
    #[serde(default)]
    allow_same_device: Option<Spanned<bool>>,
    /// Rights that any client may have here at most: of `read`, `create`, `modify` and `delete`.
    /// [default: ["read"]]
    allow: Option<Vec<Text>>,
    /// Protections of lanes that a client may choose: of `private` (encrypted) and `safe` (not
    /// encrypted, still verified). [default: ["private"]]
    protect: Option<Vec<Text>>,
    /// The rate of all sessions on this root together; at least 64 KiB/s. [default: none]
    rate: Option<Text>,
    /// Transfers on this root at a time, 1 to `sessions` of `[limits]`. [default: none]
    sessions: Option<Spanned<i64>>,
    /// Bytes of memory of all transfers on this root together, 16 MiB to `memory` of `[limits]`.
    /// [default: none]
    memory: Option<Text>,
    /// Lanes of one transfer on this root, 1 to 128. [default: none]
    lanes: Option<Spanned<i64>>,
    /// Bytes of files that all clients together may have stored in this root, as counted since a
    /// bound is set; needs `state`. [default: none]
    stored: Option<Text>,
    /// Files and links that they may have stored, likewise. [default: none]
    files: Option<Spanned<i64>>,
    /// Space of the file system that transfers leave free: a size, or `1%` to `99%` of it.
    /// [default: none]
    reserve: Option<Text>,
    /// The permissions that are taken from clients: an octal mask, `"keep"`, or a table with one
    /// mask for directories and one for files. [default: `0755` less the umask]
    mode_mask: Option<Spanned<Mask>>,
    /// Symbolic links that are taken from clients: `inside` (those that lead nowhere but beneath
    /// the root), `refuse` (none) or `keep` (any). [default: "inside"]
    links: Option<Text>,
    /// Metadata beyond modes and times that is taken from clients which ask for it: of `xattrs`
    /// (attributes of users), `owner`, `set-id` (with `owner`) and `acls`. What is not taken is
    /// told the client. [default: ["xattrs"]]
    preserve: Option<Vec<Text>>,
}

/// A client that may connect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Client {
    /// The name of the client in the log. No two clients have the same.
    name: Text,
    /// The public key, as the client's `longhaul key show` prints it (`lhk1:...`). No two clients
    /// have the same.
    key: Text,
    /// Rights by the name of a root: of `read`, `create`, `modify` and `delete`. A root that is
    /// missing here is not open to the client. [default: {}]
    #[serde(default)]
    roots: BTreeMap<Text, Vec<Text>>,
    /// The rate of all sessions of this client together; at least 64 KiB/s. [default: none]
    rate: Option<Text>,
    /// Transfers of this client at a time, 1 to `sessions` of `[limits]`. [default: none]
    sessions: Option<Spanned<i64>>,
    /// Bytes of memory of its transfers and listings together, 16 MiB to `memory` of `[limits]`.
    /// [default: none]
    memory: Option<Text>,
    /// Lanes of one transfer of this client, 1 to 128. [default: none]
    lanes: Option<Spanned<i64>>,
    /// Bytes of files that this client may have stored in all roots together, as counted since a
    /// bound is set; needs `state`. [default: none]
    stored: Option<Text>,
    /// Files and links that it may have stored, likewise. [default: none]
    files: Option<Spanned<i64>>,
    /// Space of the file system that transfers of this client leave free: a size, or `1%` to `99%`
    /// of it. [default: none]
    reserve: Option<Text>,
    /// The share of this client in a rate that it shares with others, against theirs, 1 to 1000.
    /// [default: 1]
    weight: Option<Spanned<i64>>,
    /// Whether the client may measure the network to the daemon (`longhaul bench net`). [default:
    /// false]
    #[serde(default)]
    bench: bool,
    /// The largest share of the network's path that the client may ask for: `fair`, which leaves
    /// others theirs, or `all` (`--share all`). [default: "fair"]
    share: Option<Text>,
    /// The user of this host as which the client's sessions run, in a process of that user with
    /// its groups: files that it makes are that user's, and it reads what that user may. Never
    /// root. The daemon must be started as root. [default: none]
    user: Option<Text>,
    /// The number of such a user instead of its name, from 1000 on. [default: none]
    uid: Option<Spanned<i64>>,
    /// The number of the group of files that it makes, in place of the user's primary group.
    /// [default: none]
    gid: Option<Spanned<i64>>,
}

/// A number, or a text with a unit.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    /// A bare number.
    Count(i64),
    /// A text.
    Word(String),
}

/// A message about a mistake, and the place of the mistake in the text.
pub(super) struct Wrong {
    span: Range<usize>,
    message: String,
}

/// Judges the text of the file at `path`. If the command line's roots are not known (`None`),
/// clients may name any.
pub(super) fn parse(path: &Path, text: &str, added: Option<&[CommandLineRoot]>) -> Result<Daemon, Error> {
    let mut file: File = toml::from_str(text).map_err(|error| crate::config::unparsed(path, text, &error))?;
    let (identity, state, admin_socket) = (file.identity.clone(), file.state.clone(), file.admin_socket.clone());
    let mistaken = |wrong: Wrong| crate::config::flawed(path, text, Some(wrong.span), wrong.message);
    let (confine, beneath) = (file.limits.confine.as_ref(), file.limits.reload_beneath.as_ref());
    let mut confinement = confinement::judge(file.user.as_ref(), confine, beneath).map_err(mistaken)?;
    let root_places = file.root.iter().map(|root| position(text, root.targets.span().start)).collect();
    let watching = watch::judge(std::mem::take(&mut file.watch)).map_err(mistaken)?;
    confinement.dial = network::dial(std::mem::take(&mut file.third_party)).map_err(mistaken)?;
    let (config, mover) = judge(file, added).map_err(mistaken)?;
    Ok(Daemon { config, mover, identity, state, admin_socket, confinement, watching, root_places })
}

fn judge(file: File, added: Option<&[CommandLineRoot]>) -> Result<(ServeConfig, Option<MoverConfig>), Wrong> {
    let mut config = defaults();
    if let Some(addresses) = file.listen {
        if addresses.get_ref().is_empty() {
            let message = "listen names no address, so nobody could connect: leave it out for \"[::]:7214\"";
            return Err(wrong(&addresses, message));
        }
        config.listen = addresses.into_inner().into_iter().map(listen).collect::<Result<_, _>>()?;
    }
    if let Some(word) = &file.io {
        config.io = at(word, values::io(word.get_ref()))?;
    }
    if let Some(word) = &file.engine {
        config.engine = at(word, values::engine(word.get_ref()))?;
    }
    if let Some(number) = &file.depth {
        config.depth = at(number, values::depth(&number.get_ref().text()))?;
    }
    if let Some(word) = &file.pin {
        config.pin = at(word, values::pin(word.get_ref()))?;
    }
    limits(file.limits, &mut config)?;
    let state = file.state.as_deref();
    let mover = file.mover.map(|table| mover::judge(table, state, &mut config)).transpose()?;
    let counts = if file.state.is_some() { Counts::Kept } else { Counts::Lost };
    for root in file.root {
        let root = judge_root(root, &config, counts)?;
        config.roots.push(root);
    }
    let of_line = added.into_iter().flatten().map(|root| &root.0);
    let others = if added.is_some() { OtherRoots::None } else { OtherRoots::Perhaps };
    let known = KnownRoots { roots: config.roots.iter().chain(of_line).collect(), others };
    for client in file.client {
        let client = judge_client(client, &known, &config, counts)?;
        config.clients.push(client);
    }
    Ok((config, mover))
}

fn limits(limits: Limits, config: &mut ServeConfig) -> Result<(), Wrong> {
    if let Some(sessions) = limits.sessions {
        let fits =
            usize::try_from(*sessions.get_ref()).ok().filter(|_| (1..=SESSIONS_MAX).contains(sessions.get_ref()));
        config.sessions = fits.ok_or_else(|| wrong(&sessions, format!("sessions must be 1 to {SESSIONS_MAX}")))?;
    }
    if let Some(memory) = limits.memory {
        config.memory = at(&memory, parse_size(memory.get_ref()))?;
        if config.memory < MEMORY_MIN {
            return Err(wrong(&memory, format!("memory must be at least {MEMORY_MIN}")));
        }
        let most = longhaul_engine::host_memory();
        if config.memory > most {
            return Err(wrong(&memory, format!("memory is more than this host has, which is {most}")));
        }
    }
    if let Some(age) = limits.idle {
        config.idle = at(&age, values::age(&age.get_ref().text()))?;
        if config.idle.is_some_and(|idle| idle < IDLE_MIN) {
            return Err(wrong(&age, format!("idle must be at least {} s, or 0 for never", IDLE_MIN.as_secs())));
        }
    }
    if let Some(age) = limits.partials {
        config.partials = at(&age, values::age(&age.get_ref().text()))?;
    }
    if let Some(unfinished) = limits.unfinished {
        let count = *unfinished.get_ref();
        let fits = usize::try_from(count).ok().filter(|_| (1..=UNFINISHED_MAX).contains(&count));
        config.unfinished =
            fits.ok_or_else(|| wrong(&unfinished, format!("unfinished must be 1 to {UNFINISHED_MAX}")))?;
    }
    config.rate = rate(limits.rate)?;
    if let Some(interval) = limits.sync_interval {
        config.sync.age = at(&interval, values::sync_interval(interval.get_ref()))?;
    }
    if let Some(bytes) = limits.sync_bytes {
        config.sync.bytes = at(&bytes, values::sync_bytes(bytes.get_ref()))?;
    }
    if let Some(bytes) = limits.bench_bytes {
        config.bench_bytes = at(&bytes, parse_size(bytes.get_ref()))?;
        if config.bench_bytes < BENCH_BYTES_MIN {
            return Err(wrong(&bytes, format!("bench_bytes must be at least {BENCH_BYTES_MIN}")));
        }
    }
    Ok(())
}

/// A number of sessions that is within that of the daemon.
fn sessions(number: Option<Spanned<i64>>, config: &ServeConfig) -> Result<Option<usize>, Wrong> {
    let Some(number) = number else { return Ok(None) };
    let most = config.sessions;
    let fits = usize::try_from(*number.get_ref()).ok().filter(|count| (1..=most).contains(count));
    fits.map(Some).ok_or_else(|| wrong(&number, format!("sessions must be 1 to {most}, the number in [limits]")))
}

/// An amount of memory that is within that of the daemon and does for a session.
fn memory(size: Option<Text>, config: &ServeConfig) -> Result<Option<ByteCount>, Wrong> {
    let Some(size) = size else { return Ok(None) };
    let bytes = at(&size, parse_size(size.get_ref()))?;
    if !(MEMORY_MIN..=config.memory).contains(&bytes) {
        let most = config.memory;
        return Err(wrong(&size, format!("memory must be {MEMORY_MIN} to {most}, the size in [limits]")));
    }
    Ok(Some(bytes))
}

fn judge_root(root: Root, config: &ServeConfig, counts: Counts) -> Result<RootConfig, Wrong> {
    let name = parse_root(root.name.get_ref().as_bytes())
        .map_err(|_| wrong(&root.name, "a root's name is one printable path component"))?;
    if config.roots.iter().any(|known| known.name == name) {
        return Err(wrong(&root.name, format!("there are two roots '{name}'")));
    }
    let targets = judge_targets(&root)?;
    let allow = root.allow.map_or(Ok(Rights { read: true, ..Rights::default() }), |words| grants::rights(&words))?;
    let protect = root.protect.map_or(Ok(vec![Protection::Private]), |words| grants::protections(&words))?;
    let policy = policy::judge(root.mode_mask.as_ref(), root.links.as_ref(), root.preserve.as_deref())?;
    let (rate, sessions) = (rate(root.rate)?, sessions(root.sessions, config)?);
    let memory = memory(root.memory, config)?;
    let written = Written {
        stored: root.stored.as_ref(),
        files: root.files.as_ref(),
        reserve: root.reserve.as_ref(),
        lanes: root.lanes.as_ref(),
    };
    let bounds = bounds::judge(&written, counts)?;
    Ok(RootConfig { name, targets, allow, protect, rate, sessions, memory, bounds, policy })
}

fn judge_targets(root: &Root) -> Result<TargetDirs, Wrong> {
    let dirs = root.targets.get_ref();
    if dirs.is_empty() {
        return Err(wrong(&root.targets, "targets must name a directory, or the directories of a set"));
    }
    let plain = TargetDirs::set(dirs.clone());
    let mut targets = plain.clone();
    let fits = |targets: &TargetDirs| dirs.len() > 1 || *targets == plain;
    let needless = "one directory is no set: this is for several targets";
    if let Some(layout) = &root.layout {
        targets.layout = at(layout, values::set_layout(layout.get_ref()))?;
        if !fits(&targets) {
            return Err(wrong(layout, needless));
        }
    }
    if let Some(length) = &root.stripe_from {
        targets.stripe_from = at(length, values::stripe_from(length.get_ref()))?;
        if !fits(&targets) {
            return Err(wrong(length, needless));
        }
    }
    if let Some(rule) = &root.on_missing {
        targets.on_missing = at(rule, values::on_missing(rule.get_ref()))?;
        if !fits(&targets) {
            return Err(wrong(rule, needless));
        }
    }
    if let Some(allowed) = root.allow_same_device.as_ref().filter(|allowed| *allowed.get_ref()) {
        targets.same_device = SameDevice::Allowed;
        if !fits(&targets) {
            return Err(wrong(allowed, needless));
        }
    }
    Ok(targets)
}

fn judge_client(
    client: Client,
    roots: &KnownRoots<'_>,
    config: &ServeConfig,
    counts: Counts,
) -> Result<ClientConfig, Wrong> {
    let (name, before) = (client.name.get_ref().clone(), &config.clients);
    let key: PublicKey =
        client.key.get_ref().parse().map_err(|_| wrong(&client.key, "this is not a public key (lhk1:...)"))?;
    if before.iter().any(|known| known.name == name) {
        return Err(wrong(&client.name, format!("there are two clients '{}'", name.escape_debug())));
    }
    if let Some(same) = before.iter().find(|known| known.key == key) {
        return Err(wrong(&client.key, format!("this key is that of '{}' already", same.name.escape_debug())));
    }
    let user = user::judge(client.user.as_ref(), client.uid.as_ref(), client.gid.as_ref(), before)?;
    let mut granted = BTreeMap::new();
    for (root, words) in &client.roots {
        let rights = roots.granted(&name, root, words)?;
        user.iter().try_for_each(|_| user::need_plain(root, roots, rights))?;
        granted.insert(root.get_ref().clone(), rights);
    }
    let weight = match client.weight {
        None => 1,
        Some(weight) => u32::try_from(*weight.get_ref())
            .ok()
            .filter(|weight| (1..=WEIGHT_MAX).contains(weight))
            .ok_or_else(|| wrong(&weight, format!("weight must be 1 to {WEIGHT_MAX}")))?,
    };
    let (sessions, memory) = (sessions(client.sessions, config)?, memory(client.memory, config)?);
    let written = Written {
        stored: client.stored.as_ref(),
        files: client.files.as_ref(),
        reserve: client.reserve.as_ref(),
        lanes: client.lanes.as_ref(),
    };
    let bounds = bounds::judge(&written, counts)?;
    let share = grants::share(client.share)?;
    user.iter().try_for_each(|_| user::need_unbounded(&client.name, &bounds))?;
    Ok(ClientConfig {
        name,
        key,
        roots: granted,
        rate: rate(client.rate)?,
        sessions,
        memory,
        bounds,
        weight,
        bench: client.bench,
        share,
        user,
    })
}

fn rate(word: Option<Text>) -> Result<Option<u64>, Wrong> {
    word.map(|word| at(&word, values::rate(word.get_ref()))).transpose()
}

impl Number {
    fn text(&self) -> String {
        match self {
            Number::Count(count) => count.to_string(),
            Number::Word(word) => word.clone(),
        }
    }
}

pub(super) fn at<T, V, E: ToString>(place: &Spanned<V>, result: Result<T, E>) -> Result<T, Wrong> {
    result.map_err(|error| wrong(place, error))
}

pub(super) fn wrong<V>(place: &Spanned<V>, message: impl ToString) -> Wrong {
    Wrong { span: place.span(), message: message.to_string() }
}
