//! The fields of the events of the `job` commands: their names, their order and their units.
//!
//! In: figures from `output/job.rs`. Out: JSON, by serde. The doc comments are the text of
//! `docs/EVENTS.md`. Must not know how a figure is found.

use serde::Serialize;

use super::super::events::Name;

/// A campaign, of `job add`, `ls`, `show`, `set`, `hold`, `release` and `cancel`.
#[derive(Serialize)]
pub(super) struct JobCampaignBody<'a> {
    /// Its number.
    pub(super) campaign: u64,
    /// Its name.
    pub(super) name: &'a str,
    /// `planning`, `running`, `held`, `done` or `cancelled`.
    pub(super) state: &'static str,
    /// The rules by which it goes.
    pub(super) rules: JobRulesBody<'a>,
    /// Its sources, as locations.
    pub(super) from: Vec<String>,
    /// Its destination, as a location.
    pub(super) to: String,
    /// The daemon that dials the other one: `destination`, which fetches, or `source`, which sends.
    /// Null if the two ends are not both at daemons, or if this program cannot read the campaign.
    pub(super) dialler: Option<&'static str>,
    /// The public key of its owner. Null if nobody has signed it, or if what the queue says is not
    /// what was signed.
    pub(super) owner: Option<&'a str>,
    /// All of it, as far as it is planned.
    pub(super) total: JobAmountBody,
    /// The part that stands at the destination.
    pub(super) done: JobAmountBody,
    /// The part that was given up.
    pub(super) failed: JobAmountBody,
    /// The part that is left.
    pub(super) left: JobAmountBody,
}

/// The rules by which a campaign goes.
#[derive(Serialize)]
pub(super) struct JobRulesBody<'a> {
    /// Its priority, from 0 to 9.
    pub(super) priority: u8,
    /// Its weight, from 1 to 1000.
    pub(super) weight: u16,
    /// Its deadline, as `2026-12-24T18:00:00Z`. Null if it has none.
    pub(super) deadline: Option<String>,
    /// When it may move. Empty: always.
    pub(super) calendar: &'a str,
    /// How often files with a fault are tried, where that is not the default.
    pub(super) retry_rules: String,
    /// The hooks that are told of it, with the events of each, as `mail:campaign,fault`.
    pub(super) hooks: String,
}

/// A host, or a site of hosts, of `job site`.
#[derive(Serialize)]
pub(super) struct JobSiteBody<'a> {
    /// Its name: that of a host as HOST:PORT, `this host` for those of movers, or that of a site of
    /// hosts.
    pub(super) name: &'a str,
    /// Movers that may write to it at a time.
    pub(super) movers_in: u32,
    /// Movers that may read from it at a time.
    pub(super) movers_out: u32,
    /// The hosts that belong to it. Empty for a host.
    pub(super) hosts: Vec<&'a str>,
}

/// A link and its rules, of `job link`.
#[derive(Serialize)]
pub(super) struct JobLinkRulesBody<'a> {
    /// Its number.
    pub(super) link: u64,
    /// The host that is read from, as HOST:PORT, or `this host` for those of movers.
    pub(super) from: &'a str,
    /// The host that is written to, likewise.
    pub(super) to: &'a str,
    /// `open`, `draining` or `closed`.
    pub(super) state: &'static str,
    /// The fault for which it closed itself. Null if it did not.
    pub(super) fault: Option<&'static str>,
    /// Movers that may use it at a time.
    pub(super) movers: u32,
    /// Movers that use it now.
    pub(super) movers_busy: u32,
    /// The rate that all of them may use together. Null: no limit.
    pub(super) limit_bytes_per_s: Option<u64>,
    /// Its hours and maintenance windows. Empty: always open.
    pub(super) calendar: &'a str,
    /// The rate that limit and hours allow now: 0 if its hours are closed. Null: no limit.
    pub(super) now_bytes_per_s: Option<u64>,
    /// The reason for which nothing begins on it now, though it is open: `link-hours` (its calendar
    /// is closed) or `pause` (behind a failure). Null if there is none.
    pub(super) waits: Option<&'static str>,
}

/// Files and their bytes.
#[derive(Serialize)]
pub(super) struct JobAmountBody {
    /// Files.
    pub(super) files: u64,
    /// Bytes.
    pub(super) bytes: u64,
}

/// A campaign that was planned.
#[derive(Serialize)]
pub(super) struct JobPlannedBody<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Its shards.
    pub(super) shards: u64,
    /// Their files.
    pub(super) files: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Names of its sources that could not be read, and so are in no shard.
    pub(super) omitted: u64,
}

/// A list that `job plan --shards` wrote.
#[derive(Serialize)]
pub(super) struct JobPartBody<'a> {
    /// Its file.
    #[serde(flatten)]
    pub(super) path: Name<'a>,
    /// Names in it.
    pub(super) files: u64,
    /// Their bytes.
    pub(super) bytes: u64,
}

/// The figures of a campaign, and what is left of it. `total` is the sum of `done`, `failed`,
/// `cancelled` and `left`, always.
#[derive(Serialize)]
pub(super) struct JobLeftBody<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// `planning`, `running`, `held`, `done` or `cancelled`.
    pub(super) state: &'static str,
    /// All of it.
    pub(super) total: JobAmountBody,
    /// The part that stands at the destination.
    pub(super) done: JobAmountBody,
    /// The part that was given up.
    pub(super) failed: JobAmountBody,
    /// The part that will not be moved, as the campaign was cancelled.
    pub(super) cancelled: JobAmountBody,
    /// The rest.
    pub(super) left: JobAmountBody,
    /// The part of the rest that waits for a user.
    pub(super) held: JobAmountBody,
    /// Figures beside the sums.
    #[serde(flatten)]
    pub(super) beside: JobBesideBody,
    /// Seconds that the rest takes at the present rate. Null if nothing moves.
    pub(super) eta_s: Option<f64>,
    /// The rest, by link.
    pub(super) links: Vec<JobLinkBody>,
    /// Files that failed and do not stand, by fault.
    pub(super) faults: Vec<JobFaultSumBody>,
}

/// Figures of a campaign that are in no sum of files.
#[derive(Serialize)]
pub(super) struct JobBesideBody {
    /// Names that could not be read when it was planned. They are in no other figure.
    pub(super) omitted: u64,
    /// Shards whose last mover showed no claim, as the destination keeps none.
    pub(super) unclaimed: u64,
    /// The commit by which all files appear together: `waiting` for other shards, `planned`,
    /// `ready`, `leased`, `done`, `held` or `cancelled`. Null if each file appears when it is done.
    pub(super) commit: Option<&'static str>,
}

/// The rest of a campaign on one link.
#[derive(Serialize)]
pub(super) struct JobLinkBody {
    /// The number of the link.
    pub(super) link: u64,
    /// `open`, `draining` or `closed`.
    pub(super) state: &'static str,
    /// The fault for which it closed itself. Null if it did not.
    pub(super) fault: Option<&'static str>,
    /// The part of the campaign that is left on it.
    pub(super) left: JobAmountBody,
    /// Its rate in the last minute, of all campaigns together.
    pub(super) bytes_per_s: u64,
    /// The reason for which nothing of the campaign begins on it now, though it is open:
    /// `link-hours` (the link's calendar is closed), `campaign-hours` (the campaign's is) or
    /// `pause` (behind a failure). Null if there is none.
    pub(super) waits: Option<&'static str>,
}

/// Files that failed with one fault.
#[derive(Serialize)]
pub(super) struct JobFaultSumBody {
    /// The fault, as in [EXIT-CODES.md](EXIT-CODES.md).
    pub(super) code: &'static str,
    /// Files that are tried again; they are part of what is left.
    pub(super) files_waiting: u64,
    /// Files that were given up.
    pub(super) files_failed: u64,
}

/// A shard that waits for a user, of `job show`.
#[derive(Serialize)]
pub(super) struct JobHeldBody {
    /// Its number.
    pub(super) shard: u64,
    /// The fence of its last claim.
    pub(super) fence: u64,
    /// Files of it that are left.
    pub(super) files_left: u64,
    /// Why, for people.
    pub(super) reason: String,
}

/// A hook of a campaign, of `job show`.
#[derive(Serialize)]
pub(super) struct JobHookBody<'a> {
    /// Its key.
    pub(super) hook: &'a str,
    /// The events of which it is told: of `shard`, `campaign` and `fault`.
    pub(super) events: Vec<&'static str>,
    /// Events that it is to be told, and was not yet.
    pub(super) waiting: u64,
    /// Events that it was not told, however often that was tried.
    pub(super) given_up: u64,
    /// The words of the last failure that is kept. Null if there is none.
    pub(super) failure: Option<&'a str>,
}

/// A name that could not be read when a campaign was planned, of `job report`: it is in no shard.
#[derive(Serialize)]
pub(super) struct JobOmittedBody<'a> {
    /// The name, as the fault tells it.
    pub(super) object: &'a str,
    /// The number of its source in the campaign, from 0.
    pub(super) source: u64,
    /// The fault, as in [EXIT-CODES.md](EXIT-CODES.md).
    pub(super) code: &'static str,
    /// The words of it.
    pub(super) message: &'a str,
}

/// A file that failed, of `job report`.
#[derive(Serialize)]
pub(super) struct JobFaultBody<'a> {
    /// The path beneath its source.
    #[serde(flatten)]
    pub(super) path: Name<'a>,
    /// Its bytes by the manifest.
    pub(super) bytes: u64,
    /// The fault of its last try, as in [EXIT-CODES.md](EXIT-CODES.md).
    pub(super) code: &'static str,
    /// Whose failure that was: `local`, `peer`, `path` or `bug`.
    pub(super) blame: &'static str,
    /// The words of it.
    pub(super) message: &'a str,
    /// Whether it was given up: else it is tried again.
    pub(super) given_up: bool,
    /// Its tries.
    pub(super) tries: u32,
    /// The time of the last fault, as `2026-12-24T18:00:00Z`.
    pub(super) last: String,
    /// The number of its shard.
    pub(super) shard: u64,
    /// The fence of that shard's last claim.
    pub(super) fence: u64,
}

/// A shard that `job run` claimed, or ended with.
#[derive(Serialize)]
pub(super) struct JobShardBody<'a> {
    /// The name of its campaign.
    pub(super) name: &'a str,
    /// Its number.
    pub(super) shard: u64,
    /// `claimed`, and at the end `done`, `partial`, `planned` (it was handed back, or goes on),
    /// `held`, `cancelled` or `gone` (another mover has it).
    pub(super) state: &'static str,
    /// The fence of the claim.
    pub(super) fence: u64,
    /// No claim was shown, as the destination keeps none. At the beginning it is that of the
    /// shard's last mover.
    pub(super) unclaimed: bool,
    /// Its files.
    pub(super) files: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Files that failed in this claim.
    pub(super) files_failed: u64,
    /// Bytes that became durable in this claim.
    pub(super) bytes_moved: u64,
    /// The mover's part of the rate of link and campaign when it claimed the shard. Null: there was
    /// no limit but that of the campaign's own transfers.
    pub(super) limit_bytes_per_s: Option<u64>,
}

/// A file that `job verify` found bad.
#[derive(Serialize)]
pub(super) struct JobBadFileBody<'a> {
    /// The path beneath its source.
    #[serde(flatten)]
    pub(super) path: Name<'a>,
    /// Its bytes by the manifest.
    pub(super) bytes: u64,
    /// `lost` (nothing stands under its name), `changed` (it has another length, time or kind),
    /// `damaged` (it has other content, with the same length and time) or `unread`.
    pub(super) kind: &'static str,
    /// The words of it.
    pub(super) message: &'a str,
    /// Whether an earlier run has found it bad in this way.
    pub(super) known: bool,
    /// The number of its shard.
    pub(super) shard: u64,
}

/// A bad file that `job verify --mend` has copied anew, and that is well by another reading.
#[derive(Serialize)]
pub(super) struct JobMendedBody<'a> {
    /// The path beneath its source.
    #[serde(flatten)]
    pub(super) path: Name<'a>,
    /// Its bytes.
    pub(super) bytes: u64,
    /// `lost`, `damaged` or `unread`: how it was bad.
    pub(super) kind: &'static str,
    /// The tree that the copy is from, as a location.
    pub(super) from: &'a str,
    /// Where the file lies that stood under its name. Null: nothing stood there.
    pub(super) kept: Option<&'a str>,
    /// The number of its shard.
    pub(super) shard: u64,
}

/// A shard that `job verify` read.
#[derive(Serialize)]
pub(super) struct JobVerifiedBody {
    /// Its number.
    pub(super) shard: u64,
    /// `read`, `mended` (only files of it were read that were known to be bad), `given-back` (it
    /// goes on there another time), `failed` (the event before says why) or `gone` (another
    /// verifier has it, or a mover).
    pub(super) state: &'static str,
    /// Files that were looked at.
    pub(super) files: u64,
    /// Bytes that were read.
    pub(super) bytes: u64,
    /// Files that were read for the first time, and so could not be compared.
    pub(super) files_first: u64,
    /// Files that are bad.
    pub(super) files_bad: u64,
    /// Files that somebody wrote to, and that `--ignore-changed` passes over.
    pub(super) files_ignored: u64,
    /// Files that were bad, and were copied anew.
    pub(super) files_mended: u64,
}

/// The figures of a campaign's verification, at the end of `job verify`.
#[derive(Serialize)]
pub(super) struct JobVerifyBody<'a> {
    /// The name of the campaign.
    pub(super) name: &'a str,
    /// All that was delivered by shards that are settled.
    pub(super) total: JobAmountBody,
    /// The part that was never read back whole.
    pub(super) never: JobAmountBody,
    /// The part that was last read longer ago than the cycle.
    pub(super) stale: JobAmountBody,
    /// The end of the oldest last reading, as `2026-12-24T18:00:00Z`. Null: nothing was read.
    pub(super) oldest: Option<String>,
    /// The pace.
    pub(super) pace: JobPaceBody,
    /// Files that are known to be bad, by kind.
    pub(super) bad: Vec<JobBadSumBody>,
    /// The part that was bad, and that this run has copied anew.
    pub(super) mended: JobAmountBody,
}

/// The pace of a rolling verification.
#[derive(Serialize)]
pub(super) struct JobPaceBody {
    /// Seconds of the cycle.
    pub(super) cycle_s: f64,
    /// The rate at which all is read once in the cycle.
    pub(super) needed_bytes_per_s: u64,
    /// The budget. Null: none.
    pub(super) budget_bytes_per_s: Option<u64>,
    /// Seconds that one reading of all takes at the budget. Null: there is none.
    pub(super) takes_s: Option<f64>,
    /// Whether that is within the cycle.
    pub(super) suffices: bool,
}

/// Files of one kind that are known to be bad.
#[derive(Serialize)]
pub(super) struct JobBadSumBody {
    /// `lost`, `changed`, `damaged` or `unread`.
    pub(super) kind: &'static str,
    /// Such files.
    pub(super) files: u64,
}

/// The last line of the `job` commands.
#[derive(Serialize)]
pub(super) struct JobSummaryBody {
    /// The name of the exit code; see [EXIT-CODES.md](EXIT-CODES.md).
    pub(super) status: &'static str,
    /// The exit code.
    pub(super) exit: u8,
    /// Files that `job retry` has tried again.
    pub(super) files_retried: u64,
    /// The commit that `job retry` has tried again, by its state now: `planned` if it is claimed
    /// next, `waiting` if it waits for files that are moved again. Null if there is none.
    pub(super) commit_retried: Option<&'static str>,
    /// Seconds that it took.
    pub(super) seconds: f64,
}
