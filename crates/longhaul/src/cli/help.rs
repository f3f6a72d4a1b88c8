//! The help text besides the options: examples, forms of values, and exit codes.
//!
//! In: limits. Out: texts to the command line's declaration. Knows no parser.

use longhaul_core::limits::{DISK_DEPTH_MAX, MEMORY_BYTES_DEFAULT, MEMORY_CHUNKS_MIN};

/// The help of `--memory`: whose buffers, and their bounds.
pub(super) fn memory(whose: &str) -> String {
    let mebibytes = MEMORY_BYTES_DEFAULT >> 20;
    format!("Buffers of {whose}, at least {MEMORY_CHUNKS_MIN} chunks [default: {mebibytes}MiB]")
}

/// The help of `--depth`, with its bounds.
pub(super) fn depth() -> String {
    format!("Requests in flight per disk, 1 to {DISK_DEPTH_MAX}, or `auto`: as many as still pay [default: auto]")
}

pub(super) const PROGRAM: &str = "\
'longhaul COMMAND -h' shows what is used every day, 'longhaul COMMAND --help' everything, with examples.";

pub(super) const PROGRAM_LONG: &str = "\
Examples:
  longhaul copy /data/run7 /backup/              within this host, verified
  longhaul push /data/run7 node.example:data/    over ssh: no daemon, no keys, longhaul at both ends
  longhaul key generate                          once, before the first transfer with a daemon
  longhaul push /data/run7 lh://node.example/atlas/
  longhaul pull lh://node.example/atlas/run7 /data/
  longhaul ls -l lh://node.example/              the roots that this key may see
  longhaul serve --root atlas=/srv/atlas:read    on the other host, for the clients of its serve.toml

Every option of push, pull and copy can also stand in the environment (--chunk-size as LONGHAUL_CHUNK_SIZE) or in \
$XDG_CONFIG_HOME/longhaul/config.toml (chunk-size = \"8MiB\"); a flag wins over the environment, the environment over the file.

'longhaul COMMAND -h' shows what is used every day, 'longhaul COMMAND --help' everything, with examples. 'longhaul --version --json' \
tells scripts which build this is.";

pub(super) const PUSH_LOCATIONS: &str = "\
SOURCE... are files and directories of this host (with a trailing slash: their contents), the last is where they go";

pub(super) const PUSH_LOCATIONS_LONG: &str = "\
SOURCE... are files and directories of this host; a directory with a trailing slash means its contents. The last location is the \
destination: [USER@]HOST:PATH, to which ssh leads, lh://HOST[:PORT]/ROOT/PATH of a daemon, or a path of this host. A directory lands as DEST/NAME; DEST is made where it is missing; one \
file takes the name DEST if that is no directory and does not end in a slash. -n shows what goes where, and moves nothing";

pub(super) const PULL_LOCATIONS: &str = "\
HOST:PATH... or lh://... are files and directories of one host (with a trailing slash: their contents), DEST is a path of this host, or \
`-`";

pub(super) const PULL_LOCATIONS_LONG: &str = "\
[USER@]HOST:PATH..., to which ssh leads, or lh://HOST[:PORT]/ROOT/PATH... are files and directories of one host; a directory with a trailing slash means its contents. The last \
location is the destination, a path of this host. A directory lands as DEST/NAME; DEST is made where it is missing; one file takes the \
name DEST if that is no directory and does not end in a slash. `-` as DEST is standard output. -n shows what goes where, and moves \
nothing";

pub(super) const COPY_LOCATIONS: &str = "\
SOURCE... and DEST are paths, [USER@]HOST:PATH or lh://HOST[:PORT]/ROOT/PATH, one side or both on this host, or both at daemons; a trailing slash: a directory's contents";

pub(super) const COPY_LOCATIONS_LONG: &str = "\
SOURCE... are files and directories, DEST is where they go: PATH, [USER@]HOST:PATH, to which ssh leads, or \
lh://HOST[:PORT]/ROOT/PATH, one side or both on this host, or lh:// on both sides: then the daemon of DEST fetches from that of SOURCE. A directory with a trailing slash means its contents. A directory lands as DEST/NAME; DEST is made \
where it is missing; one file takes the name DEST if that is no directory and does not end in a slash. `-` as DEST is standard output";

macro_rules! codes {
    () => {
        "\
Exit codes: 0 all done · 2 usage or config · 3 not found · 4 denied · 5 temporary, a retry may work · 6 integrity mismatch · \
7 this host or that one cannot · 23 some files failed · 24 some sources changed or vanished · 130/143 interrupted, \
resumable · 1 anything else"
    };
}

macro_rules! values {
    () => {
        "\
Sizes: MiB is binary, MB decimal, bare K M G binary. Rates say bits or bytes: 100Mbit/s (or Mbps), 12.5MB/s. Times: 90s, 10m, 2h, 14d. \
Every option has an environment variable (--chunk-size: LONGHAUL_CHUNK_SIZE) and a key in config.toml; flag, then environment, then file."
    };
}

macro_rules! more {
    ($command:literal) => {
        concat!("More options and examples: longhaul ", $command, " --help\n\n", codes!())
    };
}

pub(super) const PUSH: &str = more!("push");
pub(super) const PULL: &str = more!("pull");
pub(super) const COPY: &str = more!("copy");

pub(super) const PUSH_LONG: &str = concat!(
    "\
Examples:
  longhaul push run7 lh://node.example/atlas/               to atlas/run7
  longhaul push run7 me@node.example:data/                  over ssh, to data/run7 beneath the home there
  longhaul push -n run7/ lh://node.example/atlas/2026       what would go where
  longhaul push --rate 800Mbit/s --exclude '*.tmp' run7 lh://node.example/atlas/
  longhaul push --files-from list.txt /data lh://node.example/atlas/
  longhaul push run7 lh://a.example/x/ --also lh://b.example/y/    reads run7 once for both

",
    values!(),
    "\n\n",
    codes!()
);

pub(super) const PULL_LONG: &str = concat!(
    "\
Examples:
  longhaul pull lh://node.example/atlas/run7 /data/         to /data/run7
  longhaul pull node.example:/data/run7 /data/              over ssh
  longhaul pull lh://node.example/atlas/run7/f1.dat .       one file
  longhaul pull --verify disk --manifest run7.b3 lh://node.example/atlas/run7 /archive/
  longhaul pull --retry-for 2d lh://node.example/atlas/ /mirror   through outages of two days
  longhaul pull lh://node.example/atlas/run7/f1.dat - | md5sum    to another program
  longhaul pull --tar --prefill 50% lh://node.example/atlas/run7 - > /dev/nst0

",
    values!(),
    "\n\n",
    codes!()
);

pub(super) const COPY_LONG: &str = concat!(
    "\
Examples:
  longhaul copy /data/run7 /backup/                         to /backup/run7
  longhaul copy --if-exists verify /data/run7 /backup/      compares digests, copies what differs
  longhaul copy /data/run7 lh://node.example/atlas/         as push does
  longhaul copy lh://node.example/atlas/run7 /data/         as pull does
  longhaul copy lh://a.example/x/run7 lh://b.example/y/     no byte passes this host
  longhaul copy --files-from list.txt lh://a.example/x lh://b.example/y/

",
    values!(),
    "\n\n",
    codes!()
);

/// The forms of `sync`, in its help.
pub(super) const SYNC_USAGE: &str = "\
longhaul sync [OPTIONS] SOURCE... DEST
       longhaul sync SOURCE DEST --delete plan [--plan FILE] [--max-delete N]
       longhaul sync SOURCE DEST --delete apply DIGEST [--plan FILE]";

/// The end of the short help of `sync`.
pub(super) const SYNC: &str = more!("sync");

/// The end of the long help of `sync`.
pub(super) const SYNC_LONG: &str = concat!(
    "\
A sync is a copy that says at its end how many files were new, changed and the same. It takes nothing away from DEST. \
Names that DEST alone has go in two further steps, in which nothing is transferred: 'plan' lists them and prints a digest; \
'apply' looks at each name of that plan once more, at both ends, and moves those that are as planned to DEST/.longhaul/grace, where they \
stay until you remove them; a daemon, to whoever has the right 'delete' there, does so at the top of its root. Names that --exclude leaves out are in no plan. Of the other options the steps take those of keys and output.

Examples:
  longhaul sync /data/run7/ lh://node.example/atlas/run7
  longhaul sync --compare digest lh://node.example/atlas/run7/ /data/run7
  longhaul sync /data/run7/ /mirror/run7 --delete plan
  longhaul sync /data/run7/ /mirror/run7 --delete apply DIGEST

",
    values!(),
    "\n\n",
    codes!()
);

/// Beneath the options of `check`.
pub(super) const CHECK: &str = "\
Files are read from the disk and not from the page cache, where the file system can. Nothing is written.
Exit 0: all is as the manifest says; 6: content differs; 23: files are missing, unreadable, or not in it.

  longhaul push --manifest list data/ lh://node.example/ds/    on the host that has the data
  longhaul check list /srv/ds                                  on the other one, a year later
  longhaul check list lh://node.example/ds/                    from anywhere: its daemon reads them

A daemon reads with its own memory and disk options, for keys with the right read, and only digests
travel. The names that it reads are in its audit log.";

/// Beneath the options of `manifest make`.
pub(super) const MANIFEST_MAKE: &str = "\
The digest that names the dataset is printed. A run that was stopped or killed goes on if the same command is
given again. Exit 23: names could not be read; the manifest is sealed without them and says how many.

  longhaul manifest make /data/run7 -o run7.lhm --checksum b3,adler32
  longhaul manifest make lh://node.example/atlas/run7 -o there.lhm
  longhaul manifest diff run7.lhm there.lhm";

/// The locations of `job add`.
pub(super) const JOB_LOCATIONS: &str = "\
What is copied, and the directory that receives it, as of `copy`; a directory of this host, or
lh://HOST[:PORT]/ROOT/PATH. DEST is made where it is not there";

/// The option `--also` of `job add`.
pub(super) const JOB_ALSO: &str = "\
Add a campaign to this destination too; repeat it for each. Sources at several hosts make one for each host as well.
All of them go by the one name, and each by its own number";

/// Beneath the options of `job add`.
pub(super) const JOB_ADD: &str = "\
The name of the campaign is printed. Nothing of it moves before 'longhaul job plan' has listed its files.
With --as-dataset NAME all of its files appear as DEST/NAME behind its last shard, or none does.

  longhaul job add --name atlas /data/atlas/ lh://node.example/atlas
  longhaul job plan atlas
  longhaul job run atlas --drain

  longhaul job add --name raw /data/raw lh://node.example/in --also lh://other.example/in
  longhaul job left raw                                    of raw/1 and raw/2, and their sum";

/// Beneath the options of `job plan`.
pub(super) const JOB_PLAN: &str = "\
A run that was stopped or killed goes on if the same command is given again. Exit 23: names could not be read; the
campaign begins without them, and says how many.

  longhaul job plan atlas
  longhaul job plan --shards 64 --out parts /data/atlas
  longhaul push --files-from parts/part-1 --from0 /data/atlas lh://node.example/atlas";

/// Beneath the options of `job wait`.
pub(super) const JOB_WAIT: &str = "\
Exit 0: all files stand. 23: files were given up or cancelled, or wait for a user. 5: it took longer than --max-time.";

/// Beneath the options of `job report`.
pub(super) const JOB_REPORT: &str = "\
Exit 0: nothing failed, and nothing is left. 23: files failed, were cancelled or are left.";

/// Beneath the options of `job site`.
pub(super) const JOB_SITE: &str = "\
  longhaul job site cern --host dtn1.cern.example --host dtn2.cern.example --movers-in 8
  longhaul job site dtn1.cern.example --movers-in 4        one host alone";

/// Beneath the options of `job set`.
pub(super) const JOB_SET: &str = "\
Its order counts for shards that are scheduled from now on, hours for movers at work within 15 s. The rest of a campaign
is signed by its owner, as its sources, its destination and the options of its transfers: add another one for that.

  longhaul job set atlas --priority 7 --deadline 36h
  longhaul job set atlas --calendar 'in UTC: 06:00-18:00 1 Gbit/s'
  longhaul job set atlas --calendar none";

/// Beneath the options of `job link`.
pub(super) const JOB_LINK: &str = "\
A link is there once a campaign between its two hosts was planned. Movers at work hear of its rules within 15 s, and
hand their shards back if they are closed out; with --drain they finish them.

  longhaul job link
  longhaul job link . node.example --rate 1Gbit/s --movers 4
  longhaul job link 3 --calendar 'in UTC: 2026-12-01 06:00 to 2026-12-02 18:00 closed'
  longhaul job link 3 --close";

/// Beneath the options of `job run`.
pub(super) const JOB_RUN: &str = "\
SIGTERM and SIGINT hand back in order what is being moved (exit 143, 130). A mover that is killed loses nothing: its
shard goes to another mover after a minute, and what stands by then is compared and not sent.
With --drain, exit 0: all files stand, but for campaigns of owners whom this mover does not trust; 4: a campaign is
left that was changed, or that was named and is not trusted; 23: files were given up, or wait for a user.

  longhaul job run --drain --max-time 230m";

/// Beneath the options of `job verify`.
pub(super) const JOB_VERIFY: &str = "\
Shards that were read the longest time ago come first. Files are compared with the BLAKE3 that they were delivered
with; of those that were not sent by a mover, as they stood already, the first reading is kept for the next one.
Exit 0: nothing is known to be bad; 6: files are damaged; 23: files are lost, changed or cannot be read, also if an
earlier run has found that. A run that is killed loses some seconds of its reading.

  longhaul job verify atlas --budget 200MB/s --cycle 90d --once --max-time 6h       from cron, each night
  longhaul job verify atlas --once --mend                    copies lost and damaged files anew, from the source
  longhaul job verify atlas --once --mend-from lh://other.example/data/atlas        ... from another replica

docs/REPLICATE.md tells what is replaced, and what never is.";

/// Beneath the options of `manifest diff`.
pub(super) const MANIFEST_DIFF: &str = "\
A file is the same if the checksums that both have are the same, or if they have none in common and length
and time are the same; otherwise changed, or unknown where nothing tells. Kinds that one of them does not list
(as directories in a list of checksums) are left out.
Exit 0: all is the same; 6: something is changed; 23: something is added, removed or unknown, or a manifest is incomplete.";

/// Beneath the options of `manifest consistency`.
pub(super) const MANIFEST_CONSISTENCY: &str = "\
A file is lost if both lists of the catalogue have it and the storage does not, and dark if the storage has it and
neither list of the catalogue does: what comes or goes while the storage is listed is neither. Only names are compared.
Lists of paths may be in any order; a slash before a path is no part of it. They are sorted in $TMPDIR.
Exit 0: nothing is lost or dark; 23: something is, or a manifest is incomplete.";

/// Beneath the options of `manifest import`.
pub(super) const MANIFEST_IMPORT: &str = "\
  longhaul manifest import --format b3 list.b3 -o run7.lhm
  longhaul manifest import --format bagit /archive/bag17 -o bag17.lhm
  longhaul manifest import --format rucio replicas.jsonl -o catalogue.lhm    names are SCOPE/NAME";

pub(super) const SERVE: &str = "More, with examples: longhaul serve --help";

pub(super) const SERVE_LONG: &str = "\
Examples:
  longhaul serve --root data=/srv/data                      read-only, to the clients of the config
  longhaul serve --root data=/srv/data:read,create
  longhaul serve --config serve.toml --check-config         what is wrong with it, or doubtful

Clients connect to TCP port 7214 (and UDP 7214 for lanes over QUIC or UDP): let both in. SIGTERM or Ctrl-C ends every session in order, and \
each can be gone on with; SIGHUP or 'longhaul admin reload' has the config read again.";
