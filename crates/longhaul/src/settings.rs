//! Options with their types: flag, then environment, then `config.toml`, then default; text in,
//! types out.
//!
//! In: unparsed texts from `cli`, variables, the loaded `config.toml`. Out: [`TransferSettings`],
//! [`Talk`] and [`Keys`] to `commands`. An option is parsed once, here, and an error names the
//! place of its text. Opens nothing but the list of `--files-from`.

mod bench;
mod files_from;
mod lab;
mod layers;
mod metadata;
mod ssh;
mod stream;
mod targets;

use std::ffi::OsString;
use std::path::PathBuf;

use longhaul_core::filter::{Filter, Rule, RuleKind};
use longhaul_core::limits::MEMORY_CHUNKS_MIN;
use longhaul_core::{ByteCount, ChunkSize, DatasetName, ShardClaim};
use longhaul_engine::{
    Congestion, Dialler, DirectMode, EngineKind, Following, MEMORY_DEFAULT, Protection, Settings, SyncGroup,
    TargetDirs, Transport, host_memory,
};
use longhaul_net::PublicKey;

use crate::cli::{
    BufferOptions, ChoiceOptions, DeviceOptions, EXCLUDE, ForeignOptions, INCLUDE, KeyOptions, OutputOptions, PATH,
    TalkOptions, TransferArgs, WriteOptions,
};
use crate::error::{Error, Flaw, Origin};
use crate::values::{self, ColorWhen, ProgressForm};

pub use bench::{MatrixBench, NetBench, NetCase, matrix_bench, net_bench};
pub use lab::{
    DiskBench, FillBench, IopsBench, LabTalk, PileupBench, ScanBench, disk_bench, fill_bench, iops_bench, pileup_bench,
    scan_bench,
};
pub use layers::Layers;
pub use ssh::{SshSettings, ssh};
pub use stream::{InputSettings, StreamSettings};
pub use targets::{new_set, rate_of};

/// Everything a transfer needs but its locations.
#[derive(Clone, Debug)]
pub struct TransferSettings {
    /// The engine's settings.
    pub engine: Settings,
    /// The targets of a destination on this host. `None`: it is one directory.
    pub targets: Option<TargetDirs>,
    /// The form of a stream, if the destination is one.
    pub stream: StreamSettings,
    /// The source, if it is a stream.
    pub input: InputSettings,
    /// The path of the manifest. `None` if none is wanted.
    pub manifest: Option<PathBuf>,
    /// Notes for users about texts that were read otherwise than they were written.
    pub notes: Vec<String>,
    /// The form of progress on standard error.
    pub progress: ProgressForm,
    /// Keys and whom to trust.
    pub keys: Keys,
    /// How a host is reached by ssh.
    pub ssh: SshSettings,
    /// The claim by which a shard is moved. `None`: none is shown.
    pub claim: Option<ShardClaim>,
    /// The name under which all files appear together. `None`: each appears when it is done.
    pub dataset: Option<DatasetName>,
    /// How a copy from one daemon to another goes.
    pub third_party: ThirdPartySettings,
}

/// How a copy from one daemon to another goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThirdPartySettings {
    /// Until when it is followed.
    pub following: Following,
    /// The daemon that dials the other one.
    pub dialler: Dialler,
}

/// The amount and form of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Talk {
    /// Whether events go to standard output as JSON lines.
    pub json: bool,
    /// Whether nothing but errors goes to standard error.
    pub quiet: bool,
    /// The level of detail. 1: each file; 2: log lines of the program.
    pub verbose: u8,
    /// The rule when labels are coloured.
    pub color: ColorWhen,
}

/// Keys and whom to trust; files are defaults until they are asked for.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// The private key's file, if one was named.
    pub identity: Option<PathBuf>,
    /// The trusted daemons' file, if one was named.
    pub known_hosts: Option<PathBuf>,
    /// Whether a daemon is trusted that was never seen before.
    pub trust_on_first_use: bool,
    /// The only key that is accepted. `None`: the known hosts decide.
    pub peer_key: Option<PublicKey>,
}

/// Merges and types all options of a transfer.
///
/// # Errors
/// The first option that cannot be used.
pub fn transfer(args: &TransferArgs, layers: &Layers) -> Result<TransferSettings, Error> {
    refuse_foreign(&args.foreign)?;
    let (network, writes, choice) = (&args.network, &args.writes, &args.choice);
    let (chunk, memory) = buffers(&args.buffers, layers)?;
    let (depth, io, engine) = devices(&args.devices, layers)?;
    let pin = layers.parsed("pin", &args.devices.pin, values::pin)?.unwrap_or_default();
    let default = Settings::default();
    let listed = files_from(args, layers)?;
    let manifest = layers.given("manifest", &args.output.manifest).map(|given| PathBuf::from(given.text));
    let dry_run = layers.switch("dry-run", choice.dry_run)?;
    let engine = Settings {
        lanes: layers.parsed("lanes", &network.lanes, values::lanes)?.flatten(),
        protect: layers.parsed("protect", &network.protect, values::protect)?,
        transport: layers.parsed("transport", &network.transport, values::transport)?.unwrap_or_default(),
        congestion: layers.parsed("congestion", &network.congestion, values::congestion)?.unwrap_or(Congestion::Auto),
        chunk,
        memory,
        depth,
        io,
        engine,
        verify: layers.parsed("verify", &writes.verify, values::verify)?.unwrap_or_default(),
        if_exists: layers.parsed("if-exists", &choice.if_exists, values::if_exists)?.unwrap_or_default(),
        metadata: metadata::metadata(&choice.metadata, layers)?,
        filter: filter(choice, layers)?,
        digests: manifest.is_some() && !dry_run,
        files_from: listed.as_ref().map(|listed| listed.names.clone()),
        dry_run,
        retry_for: layers.parsed("retry-for", &network.retry_for, values::retry_for)?.unwrap_or(default.retry_for),
        stall_after: layers
            .parsed("stall-timeout", &network.stall_timeout, values::stall_timeout)?
            .unwrap_or(default.stall_after),
        paths: layers.parsed_all(PATH, &network.path, values::path)?,
        rate: layers.parsed("rate", &network.rate, values::rate)?,
        share: layers.parsed("share", &network.share, values::share)?.unwrap_or_default(),
        sync: sync(writes, layers)?,
        pin,
    };
    encrypted(engine.transport, engine.protect)?;
    Ok(TransferSettings {
        claim: layers.parsed("claim", &writes.claim, claim)?,
        third_party: third_party(&args.output, layers)?,
        dataset: layers.parsed("as-dataset", &writes.as_dataset, dataset)?,
        stream: stream::stream(&args.stream, engine.metadata.preserve, layers)?,
        input: stream::input(&args.stream, layers)?,
        engine,
        targets: targets::targets(&args.targets, layers)?,
        manifest,
        notes: listed.and_then(|listed| listed.note()).into_iter().collect(),
        progress: layers.parsed("progress", &args.output.progress, values::progress)?.unwrap_or_default(),
        keys: keys(&args.keys, layers)?,
        ssh: ssh(&args.ssh, layers).map(|ssh| if dry_run { ssh.changing_nothing() } else { ssh })?,
    })
}

/// Merges the options of the amount of output.
///
/// # Errors
/// [`Error::Option`] for a variable or key that is no switch.
pub fn talk(args: &TalkOptions, layers: &Layers) -> Result<Talk, Error> {
    let verbose = match args.verbose {
        0 => layers.parsed("verbose", &None, values::verbosity)?.unwrap_or(0),
        times => times,
    };
    let color = layers.parsed("color", &args.color, values::color)?.unwrap_or_default();
    Ok(Talk { json: layers.switch("json", args.json)?, quiet: layers.switch("quiet", args.quiet)?, verbose, color })
}

/// Merges the options of reading files of this host.
///
/// # Errors
/// [`Error::Option`] for a value that cannot be used.
pub fn reading(devices_of: &DeviceOptions, buffers_of: &BufferOptions, layers: &Layers) -> Result<Settings, Error> {
    let (depth, io, engine) = devices(devices_of, layers)?;
    let pin = layers.parsed("pin", &devices_of.pin, values::pin)?.unwrap_or_default();
    let (chunk, memory) = buffers(buffers_of, layers)?;
    Ok(Settings { depth, io, engine, chunk, memory, pin, ..Settings::default() })
}

/// Merges the key options.
///
/// # Errors
/// [`Error::Option`] for a peer key that is no key.
pub fn keys(args: &KeyOptions, layers: &Layers) -> Result<Keys, Error> {
    let file = |name, flag| layers.given(name, flag).map(|given| PathBuf::from(given.text));
    Ok(Keys {
        identity: file("identity", &args.identity),
        known_hosts: file("known-hosts", &args.known_hosts),
        trust_on_first_use: layers.switch("trust-on-first-use", args.trust_on_first_use)?,
        peer_key: layers.parsed("peer-key", &args.peer_key, values::key)?,
    })
}

/// Refuses options that rsync's users type by habit and that would promise something wrong here.
fn refuse_foreign(args: &ForeignOptions) -> Result<(), Error> {
    if args.archive {
        let why = "directories are always copied whole, with modes, times, links and holes";
        return Err(Error::Foreign { option: "-a", why, hint: "leave it out; --preserve LIST chooses the metadata" });
    }
    if args.checksum {
        let why = "every byte that is sent is verified by BLAKE3, always";
        let hint = "leave it out; --if-exists verify compares digests of what has the same size";
        return Err(Error::Foreign { option: "-c (--checksum)", why, hint });
    }
    Ok(())
}

/// The values of `--chunk-size` and `--memory`.
fn buffers(args: &BufferOptions, layers: &Layers) -> Result<(Option<ChunkSize>, ByteCount), Error> {
    let chunk = layers.parsed("chunk-size", &args.chunk_size, values::chunk_size)?.flatten();
    let least = ByteCount(MEMORY_CHUNKS_MIN * chunk.unwrap_or(ChunkSize::DEFAULT).bytes());
    match layers.parsed_with_origin("memory", &args.memory, values::size)? {
        Some((origin, given)) if given < least => {
            Err(Error::Option { origin, flaw: Flaw::MemoryTooSmall { given, least } })
        }
        Some((origin, given)) if given > host_memory() => {
            Err(Error::Option { origin, flaw: Flaw::MemoryTooLarge { given, most: host_memory() } })
        }
        given => Ok((chunk, given.map_or(MEMORY_DEFAULT, |(_, memory)| memory))),
    }
}

/// The values of `--depth`, `--io` and `--engine`.
fn devices(args: &DeviceOptions, layers: &Layers) -> Result<(Option<usize>, DirectMode, EngineKind), Error> {
    Ok((
        layers.parsed("depth", &args.depth, values::depth)?.flatten(),
        layers.parsed("io", &args.io, values::io)?.unwrap_or(DirectMode::Auto),
        layers.parsed("engine", &args.engine, values::engine)?.unwrap_or(EngineKind::Auto),
    ))
}

/// Refuses lanes over QUIC or UDP without encryption, which do not exist.
fn encrypted(transport: Transport, protect: Option<Protection>) -> Result<(), Error> {
    let why = match (transport, protect) {
        (Transport::Quic, Some(Protection::Safe)) => "lanes over QUIC are always encrypted",
        (Transport::Udp, Some(Protection::Safe)) => "lanes over UDP are always encrypted",
        _ => return Ok(()),
    };
    Err(Error::Combination { why, hint: "leave --protect safe out, or use --transport tcp" })
}

fn sync(args: &WriteOptions, layers: &Layers) -> Result<SyncGroup, Error> {
    let default = SyncGroup::default();
    Ok(SyncGroup {
        bytes: layers.parsed("sync-bytes", &args.sync_bytes, values::sync_bytes)?.unwrap_or(default.bytes),
        age: layers.parsed("sync-interval", &args.sync_interval, values::sync_interval)?.unwrap_or(default.age),
    })
}

/// Reads a claim on a shard.
fn claim(text: &str) -> Result<ShardClaim, Flaw> {
    let form = "CAMPAIGN:SHARD:FENCE:ID: 32 hex digits, two numbers, 32 hex digits";
    text.parse().map_err(|_| Flaw::Form { given: text.to_owned(), form })
}

fn third_party(args: &OutputOptions, layers: &Layers) -> Result<ThirdPartySettings, Error> {
    let following = match layers.parsed("attach", &args.attach, order_name)? {
        Some(id) if args.stop => Following::Stopping(id),
        Some(id) => Following::Earlier(id),
        None if args.detach => Following::UntilItRuns,
        None => Following::ToTheEnd,
    };
    let dialler = layers.parsed("dialler", &args.dialler, dialler)?.unwrap_or_default();
    Ok(ThirdPartySettings { following, dialler })
}

/// Reads the side that dials.
fn dialler(text: &str) -> Result<Dialler, Flaw> {
    match text {
        "destination" => Ok(Dialler::Destination),
        "source" => Ok(Dialler::Source),
        _ => Err(Flaw::Form { given: text.to_owned(), form: "destination or source" }),
    }
}

/// The word for the side that dials.
pub fn dialler_name(dialler: Dialler) -> &'static str {
    match dialler {
        Dialler::Destination => "destination",
        Dialler::Source => "source",
    }
}

/// Reads the name of an order.
fn order_name(text: &str) -> Result<[u8; 16], Flaw> {
    let is_whole = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_whole);
    let form = "32 hex digits, as --detach printed them";
    number.map(u128::to_be_bytes).ok_or_else(|| Flaw::Form { given: text.to_owned(), form })
}

/// Reads the name of a dataset.
fn dataset(text: &str) -> Result<DatasetName, Flaw> {
    let form = "one name of at most 200 bytes, without '/', not '.' or '..', and not beginning with .longhaul";
    DatasetName::new(text).map_err(|_| Flaw::Form { given: text.to_owned(), form })
}

fn files_from(args: &TransferArgs, layers: &Layers) -> Result<Option<files_from::Listed>, Error> {
    // Whoever waits for an earlier copy, or stops it, begins none.
    if args.output.attach.is_some() {
        return Ok(None);
    }
    let args = &args.choice;
    let nul = layers.switch("from0", args.from0)?;
    layers.given("files-from", &args.files_from).map(|list| files_from::read(&list.text, nul)).transpose()
}

/// The filter. The first place that names any pattern decides all: flags, else the environment,
/// else the file. In the latter two no order between the two options is written, and inclusions
/// come first.
fn filter(args: &ChoiceOptions, layers: &Layers) -> Result<Filter, Error> {
    let mut texts: Vec<(RuleKind, Origin, OsString)> = Vec::new();
    for (kind, text) in &args.filters.rules {
        let name = if *kind == RuleKind::Include { INCLUDE } else { EXCLUDE };
        texts.push((*kind, Origin::Flag(name), text.clone()));
    }
    for place in [Layers::in_environment, Layers::in_file] {
        if texts.is_empty() {
            for (name, kind) in [(INCLUDE, RuleKind::Include), (EXCLUDE, RuleKind::Exclude)] {
                texts.extend(place(layers, name).into_iter().map(|given| (kind, given.origin, given.text)));
            }
        }
    }
    let rules = texts.into_iter().map(|(kind, origin, text)| match text.into_string() {
        Ok(pattern) => Ok(Rule { kind, pattern: pattern.into() }),
        Err(_) => Err(Error::Option { origin, flaw: Flaw::NotUtf8 }),
    });
    Ok(Filter::new(rules.collect::<Result<_, _>>()?)?)
}

#[cfg(test)]
mod tests;
