//! Options that users know from other tools, each with the reason why it is not here and the way to
//! do the same.
//!
//! In: an option that this program does not have. Out: one line with the reason and one with the
//! text to write instead; and those that are taken. Knows no values.

use clap::Args;

/// Options of other tools that mean something else here, or nothing.
#[derive(Debug, Args)]
pub struct ForeignOptions {
    /// Directories are always copied whole.
    #[arg(short = 'r', long, hide = true)]
    pub recursive: bool,
    /// rsync's bundle of options.
    #[arg(short = 'a', long, hide = true)]
    pub archive: bool,
    /// rsync's comparison by content.
    #[arg(short = 'c', long, hide = true)]
    pub checksum: bool,
}

/// An option of another tool, under all of its names.
struct Foreign {
    names: &'static [&'static str],
    why: &'static str,
    instead: &'static str,
}

/// The reason why a command has no such option, and the text to write instead. `None` if no other
/// tool is known to have the option.
pub(super) fn explain(command: &str, option: &str) -> Option<(&'static str, &'static str)> {
    let table = match command {
        "push" | "pull" | "copy" => OF_TRANSFERS,
        "sync" => return of_sync(option),
        "ls" => OF_LISTINGS,
        "serve" => OF_DAEMONS,
        "job set" => OF_RULES,
        _ => return None,
    };
    table.iter().find(|foreign| foreign.names.contains(&option)).map(|foreign| (foreign.why, foreign.instead))
}

/// The same for `sync`, which has some of them.
fn of_sync(option: &str) -> Option<(&'static str, &'static str)> {
    let is_own = matches!(option, "--delete" | "--max-delete");
    if is_own { None } else { explain("copy", option) }
}

const OF_TRANSFERS: &[Foreign] = &[
    Foreign {
        names: &[
            "--delete",
            "--del",
            "--delete-before",
            "--delete-during",
            "--delete-delay",
            "--delete-after",
            "--delete-excluded",
            "--delete-missing-args",
            "--max-delete",
        ],
        why: "nothing is ever deleted, neither at the destination nor at the source",
        instead: "'longhaul sync SOURCE DEST --delete plan' lists what only DEST has, for a step of its own",
    },
    Foreign {
        names: &["--remove-source-files", "--force"],
        why: "nothing is ever deleted, neither at the destination nor at the source",
        instead: "leave it out",
    },
    Foreign {
        names: &["--stats"],
        why: "every run ends with its counts, bytes and rate",
        instead: "leave it out; the summary event of --json has all figures",
    },
    Foreign {
        names: &[
            "--partial",
            "-P",
            "--partial-dir",
            "--append",
            "--append-verify",
            "--inplace",
            "--continue",
            "--resume",
            "--temp-dir",
            "-T",
        ],
        why: "what has arrived of a file is always kept and gone on with, and progress is shown on a terminal",
        instead: "leave it out; run the same command again to go on",
    },
    Foreign {
        names: &["-z", "--compress", "--compress-level", "--compress-choice", "--zc", "--zl", "--skip-compress"],
        why: "nothing is compressed: large data seldom shrinks, and compressing is slower than fast links",
        instead: "leave it out; pack with zstd before, if the data does shrink",
    },
    Foreign {
        names: &["-u", "--update", "--ignore-existing", "--existing", "--size-only", "--ignore-times", "-I"],
        why: "what stands at the destination in the same size and time is skipped, anything else is replaced",
        instead: "--if-exists takes skip-same, verify, replace or fail",
    },
    Foreign {
        names: &["--bwlimit", "--limit-rate", "--max-rate"],
        why: "the cap of a transfer has another name here",
        instead: "--rate 80Mbit/s or --rate 10MB/s",
    },
    Foreign {
        names: &["--exclude-from", "--include-from", "--filter", "-f", "-F", "-C", "--cvs-exclude"],
        why: "patterns are not read from files of their own",
        instead: "--exclude and --include, in order; lists of them stand in config.toml: exclude = [\"*.tmp\", \"cache/\"]",
    },
    Foreign {
        names: &[
            "--max-bytes",
            "--max-transfer",
            "--deadline",
            "--max-duration",
            "--stop-after",
            "--stop-at",
            "--time-limit",
        ],
        why: "a limit of bytes or time is not built yet",
        instead: "timeout -s INT 2h longhaul ...: it stops in order, and the same command goes on",
    },
    Foreign {
        names: &["-e", "--rsh", "--rsync-path"],
        why: "how ssh is run, and longhaul at its other end, is said by other options",
        instead: "--ssh COMMAND, --remote-longhaul PATH",
    },
    Foreign { names: &["--port"], why: "the port is part of the location", instead: "lh://HOST:PORT/ROOT/PATH" },
    Foreign {
        names: &["--checksum-choice", "--cc", "--md5", "--sha256"],
        why: "every byte is verified by BLAKE3, always; other checksums are computed beside it",
        instead: "--extra-checksum adler32,crc32c,md5,sha256; --manifest FILE writes what b3sum -c reads",
    },
    Foreign {
        names: &[
            "-t",
            "--times",
            "-p",
            "--perms",
            "-l",
            "--links",
            "-S",
            "--sparse",
            "--chmod",
            "-E",
            "--executability",
        ],
        why: "modes, times, links and holes are kept unless you say otherwise",
        instead: "leave it out; --preserve LIST chooses, as --preserve -mode",
    },
    Foreign {
        names: &["-X", "--xattrs", "-o", "--owner", "-g", "--group", "-A", "--acls"],
        why: "--preserve names all metadata that is carried over",
        instead: "--preserve +xattrs,+owner,+acls, or what of it is wanted",
    },
    Foreign {
        names: &["--usermap", "--groupmap", "--chown"],
        why: "--map-user and --map-group map owners",
        instead: "--preserve +owner --map-user FROM:TO --map-group FROM:TO",
    },
    Foreign {
        names: &["-H", "--hard-links"],
        why: "--preserve names all metadata that is carried over",
        instead: "--preserve +hardlinks",
    },
    Foreign {
        names: &["-D", "--devices", "--specials"],
        why: "devices, fifos and sockets are not carried",
        instead: "leave it out; they are named and skipped",
    },
    Foreign {
        names: &["--itemize-changes", "--out-format", "--info", "--debug", "--list-only"],
        why: "-v names each file, -n the whole mapping, --json tells all of it to scripts",
        instead: "-v, -n or --json",
    },
    Foreign {
        names: &["--human-readable", "--8-bit-output"],
        why: "sizes and rates are always printed for people",
        instead: "leave it out; --json has plain numbers",
    },
    Foreign {
        names: &["--streams", "--parallel", "--transfers", "--threads", "--jobs", "-j", "-N"],
        why: "data runs over several lanes at once, as many as measurably help",
        instead: "leave it out, or --lanes N",
    },
    Foreign {
        names: &["--timeout", "--contimeout", "--retries", "--retry"],
        why: "a lost link is dialled again for ten minutes without progress",
        instead: "--retry-for TIME, and --stall-timeout TIME for a lane that stands still",
    },
    Foreign {
        names: &["--mkpath", "-W", "--whole-file", "--no-whole-file", "--fsync", "--protect-args", "--old-args"],
        why: "that is always so: directories are made, files appear whole and durable, names are never expanded",
        instead: "leave it out",
    },
    Foreign {
        names: &["-R", "--relative"],
        why: "names are placed beneath DEST by their last component",
        instead: "--files-from FILE with one SOURCE keeps the paths of the names in FILE",
    },
    Foreign {
        names: &["-L", "--copy-links", "-k", "--copy-dirlinks", "--safe-links", "--copy-unsafe-links"],
        why: "links are carried as links and never followed",
        instead: "leave it out; --preserve -links leaves them behind",
    },
    Foreign { names: &["-0"], why: "names that end in NUL have the long option alone", instead: "--from0" },
    Foreign {
        names: &["--log-file", "--report"],
        why: "a report of its own is not built yet",
        instead: "--json > FILE, or 2> FILE for what is said to people",
    },
    Foreign {
        names: &[
            "--backup",
            "-b",
            "--suffix",
            "--backup-dir",
            "--link-dest",
            "--compare-dest",
            "--copy-dest",
            "--fuzzy",
            "-y",
        ],
        why: "no copies of earlier versions are kept, and none are compared with",
        instead: "leave it out; --if-exists fail replaces nothing",
    },
];

const OF_LISTINGS: &[Foreign] = &[
    Foreign {
        names: &["-a", "-A", "--all", "--almost-all"],
        why: "every name is listed, but for longhaul's own",
        instead: "leave it out; --partials shows what is left of unfinished files",
    },
    Foreign { names: &["--human-readable"], why: "it has another name here", instead: "--human" },
    Foreign { names: &["-r", "--recursive"], why: "it has another name here, as for ls", instead: "-R" },
    Foreign {
        names: &["-1", "-t", "-S", "-d", "-F", "-s", "-i"],
        why: "names are listed one a line and sorted by name, directories with a slash",
        instead: "-l for modes, sizes and times; sort(1) for another order",
    },
];

const OF_DAEMONS: &[Foreign] = &[
    Foreign {
        names: &["--port", "--listen", "--address", "--bind", "-p"],
        why: "the config says where it listens",
        instead: "listen = [\"[::]:7214\"] in serve.toml",
    },
    Foreign {
        names: &["--identity", "--key"],
        why: "the config says where its key lies",
        instead: "identity = \"/etc/longhaul/identity\" in serve.toml",
    },
    Foreign {
        names: &["--daemon", "--detach", "--background", "-d"],
        why: "it serves in the foreground, for a service manager to start and watch",
        instead: "leave it out; a unit of systemd has ExecStart=longhaul serve",
    },
    Foreign { names: &["-f", "-c"], why: "it has a long name alone", instead: "--config FILE" },
];

const OF_RULES: &[Foreign] = &[
    Foreign {
        names: &["--rate"],
        why: "its owner has signed the rate of each of its transfers",
        instead: "--calendar 'in UTC: else 1 Gbit/s' bounds all of them together; 'longhaul job link' bounds a link",
    },
    Foreign {
        names: &[
            "--name",
            "--hook",
            "--include",
            "--exclude",
            "--as-dataset",
            "--if-exists",
            "--preserve",
            "--verify",
            "--extra-checksum",
            "--protect",
            "--transport",
            "--lanes",
            "--memory",
            "--path",
            "--dialler",
            "--map-user",
            "--map-group",
            "--shard-files",
            "--shard-bytes",
            "--identity",
        ],
        why: "its owner has signed that part of the campaign, and nobody changes it",
        instead: "cancel the campaign, and add it again with the option: files that stand are not sent again",
    },
];
