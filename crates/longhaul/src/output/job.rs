//! Tells what there is about campaigns: what they are, what is left of them, which files failed.
//!
//! In: rows and figures of the queue. Out: lines or events on standard output, notes on standard
//! error, and the exit code. `bodies` declares the fields of the events, `links` tells links and
//! sites, `verification` what was read back, `family` sums campaigns up that one name stands for.
//! Decides nothing of the queue.

mod bodies;
mod commit;
mod family;
mod links;
mod verification;

use std::io::{self, Write};
use std::time::Instant;

use longhaul_core::{ByteCount, Escaped, Fault, FaultCode, Mtime};
use longhaul_jobs::queue::Granted;
use longhaul_jobs::{
    Amount, Campaign, CampaignState, Delivery, FailedFile, FaultState, Fence, Hold, HookWish, Left, LinkState, Micros,
    Notice, OmittedName, Shard, ShardState, TimeLeft,
};

use self::bodies::{
    JobAmountBody, JobCampaignBody, JobFaultBody, JobFaultSumBody, JobHeldBody, JobHookBody, JobLeftBody, JobLinkBody,
    JobOmittedBody, JobPartBody, JobPlannedBody, JobRulesBody, JobShardBody, JobSummaryBody,
};
use self::commit::Retried;
use self::links::{wait_word, wait_words};
pub use self::verification::VerifyTold;
use super::events::{JsonLines, millis, name};
use super::human::{Talker, clean, without_numbers};
use super::units;
use crate::exit::Exit;
use crate::settings::Talk;

/// A campaign with the words of its transfers, to be told.
pub struct CampaignTold<'a> {
    /// Its row.
    pub campaign: &'a Campaign,
    /// Its sources and its destination, as locations.
    pub ends: (Vec<String>, String),
    /// The side whose daemon dials the other one. `None`: the two ends are not both at daemons, or
    /// this program cannot read the campaign.
    pub dialler: Option<&'static str>,
    /// The public key of its owner; or, in words, why it has none.
    pub owner: Result<String, &'static str>,
    /// Its figures.
    pub left: &'a Left,
}

/// How a mover ended with a shard, to be told.
pub struct ShardToldEnd {
    /// The state that it has now. `None`: another mover has it.
    pub state: Option<ShardState>,
    /// Files that failed in this claim.
    pub files_failed: u64,
    /// Bytes that became durable in this claim.
    pub bytes_moved: u64,
    /// The fence of its claim.
    pub fence: u64,
    /// No claim was shown.
    pub unclaimed: bool,
}

/// Tells what a `job` command finds.
pub struct JobTelling<W: Write> {
    out: W,
    talker: Talker,
    json: bool,
    exit: Exit,
    retried: Retried,
    begun: Instant,
    written: io::Result<()>,
}

impl<W: Write> JobTelling<W> {
    /// Tells on `out`, as events or as lines.
    pub fn new(out: W, talk: Talk) -> JobTelling<W> {
        let (talker, json, exit) = (Talker::new(talk), talk.json, Exit::Complete);
        JobTelling { out, talker, json, exit, retried: Retried::default(), begun: Instant::now(), written: Ok(()) }
    }

    /// Whether nobody reads any more.
    pub fn is_deaf(&self) -> bool {
        self.written.is_err()
    }

    /// Prints a note.
    pub fn note(&self, text: impl std::fmt::Display) {
        self.talker.note(text);
    }

    /// Sets the exit, unless it is one of a failure already.
    pub fn exits(&mut self, exit: Exit) {
        if self.exit == Exit::Complete {
            self.exit = exit;
        }
    }

    /// Tells what went wrong, while the command goes on.
    pub fn trouble(&mut self, fault: &Fault) {
        self.flush();
        self.talker.fault(fault);
        if self.json {
            self.event(|lines| lines.fault(fault));
        }
    }

    /// Tells what ended the command.
    pub fn failed(&mut self, fault: &Fault) {
        self.trouble(fault);
        self.exit = self.exit.worse(fault.code.into());
    }

    /// Tells the name of a campaign that was added.
    pub fn added(&mut self, told: &CampaignTold) {
        if self.json {
            return self.campaign_event(told);
        }
        self.line(&told.campaign.name);
    }

    /// Lists campaigns.
    pub fn campaigns(&mut self, all: &[CampaignTold]) {
        if self.json {
            return all.iter().for_each(|told| self.campaign_event(told));
        }
        let mut rows =
            vec![["CAMPAIGN", "STATE", "PRIORITY", "DONE", "FAILED", "LEFT", "BYTES LEFT"].map(str::to_owned)];
        rows.extend(all.iter().map(|told| {
            let Left { total, done, failed, left, .. } = told.left;
            let part = format!("{} of {}", done.files, total.files);
            let state = told.campaign.state.name().to_owned();
            let priority = told.campaign.priority.get().to_string();
            let bytes = ByteCount(left.bytes).to_string();
            [told.campaign.name.clone(), state, priority, part, failed.files.to_string(), left.files.to_string(), bytes]
        }));
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: [usize; 7] = std::array::from_fn(width);
        for row in &rows {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            self.line(cells.collect::<Vec<_>>().join("  ").trim_end());
        }
    }

    /// Tells all that a campaign says.
    pub fn campaign(&mut self, told: &CampaignTold) {
        if self.json {
            return self.campaign_event(told);
        }
        let campaign = told.campaign;
        let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
        self.pair("campaign", &format!("{} ({})", campaign.name, campaign.id.0));
        self.pair("state", campaign.state.name());
        told.ends.0.iter().for_each(|from| self.pair("from", from));
        self.pair("to", &told.ends.1);
        told.dialler.iter().for_each(|side| self.pair("dialler", side));
        self.pair("owner", told.owner.as_deref().unwrap_or_else(|why| *why));
        self.pair("priority", &campaign.priority.get().to_string());
        self.pair("weight", &campaign.weight.get().to_string());
        self.pair("deadline", &or_none(campaign.deadline.map(time).unwrap_or_default()));
        self.pair("calendar", &or_none(campaign.calendar.text().to_owned()));
        self.pair("retries", &or_none(campaign.retry.to_string()));
    }

    fn campaign_event(&mut self, told: &CampaignTold) {
        let (campaign, left) = (told.campaign, told.left);
        let body = JobCampaignBody {
            campaign: campaign.id.0,
            name: &campaign.name,
            state: campaign.state.name(),
            rules: JobRulesBody {
                priority: campaign.priority.get(),
                weight: campaign.weight.get(),
                deadline: campaign.deadline.map(time),
                calendar: campaign.calendar.text(),
                retry_rules: campaign.retry.to_string(),
                hooks: campaign.hooks.to_string(),
            },
            from: told.ends.0.clone(),
            to: told.ends.1.clone(),
            dialler: told.dialler,
            owner: told.owner.as_deref().ok(),
            total: left.total.into(),
            done: left.done.into(),
            failed: left.failed.into(),
            left: left.left.into(),
        };
        self.event(|lines| lines.say("job_campaign", body));
    }

    /// Tells that a campaign was planned.
    pub fn planned(&mut self, name: &str, shards: u64, total: Amount, omitted: u64) {
        if omitted > 0 {
            self.talker.warn(format!("{} could not be read, and are in no shard", units::count(omitted, "name")));
            self.exits(Exit::Partial);
        }
        if self.json {
            let body = JobPlannedBody { name, shards, files: total.files, bytes: total.bytes, omitted };
            return self.event(|lines| lines.say("job_planned", body));
        }
        self.line(&format!("{}: {} in {}", name, amount(total), units::count(shards, "shard")));
    }

    /// Tells a list that was written.
    pub fn part(&mut self, path: &std::path::Path, total: Amount) {
        let bytes = path.as_os_str().as_encoded_bytes();
        if self.json {
            let body = JobPartBody { path: name(bytes), files: total.files, bytes: total.bytes };
            return self.event(|lines| lines.say("job_part", body));
        }
        self.line(&format!("{}: {}", Escaped(bytes), amount(total)));
    }

    /// Tells what is left of a campaign.
    pub fn left(&mut self, campaign: &Campaign, left: &Left) {
        if self.json {
            let body = left_body(campaign, left);
            return self.event(|lines| lines.say("job_left", body));
        }
        self.pair("total", &amount(left.total));
        self.pair("done", &amount(left.done));
        self.pair("given up", &amount(left.failed));
        if left.cancelled.files > 0 {
            self.pair("cancelled", &amount(left.cancelled));
        }
        let takes = match left.time {
            _ if left.left.files == 0 => String::new(),
            TimeLeft::Takes(time) => format!(", {} at the present rate", units::span(time.as_secs_f64())),
            TimeLeft::Nothing | TimeLeft::StandsStill => ", nothing moves at present".to_owned(),
        };
        self.pair("left", &format!("{}{takes}", amount(left.left)));
        if left.omitted > 0 {
            let names = units::count(left.omitted, "name");
            self.pair("unplanned", &format!("{names} that could not be read by 'longhaul job plan'"));
        }
        if left.unclaimed > 0 {
            let shards = units::count(left.unclaimed, "shard");
            self.pair("unclaimed", &format!("{shards}: the destination keeps no claims"));
        }
        if left.held.files > 0 {
            self.pair("held", &format!("{}, which wait for 'longhaul job release'", amount(left.held)));
        }
        if let Some(commit) = left.commit {
            self.pair("commit", &commit::told(commit, left));
        }
        for link in &left.links {
            let (state, fault) = link_state(link.state);
            let why = fault.map(|code| format!(" ({code})")).unwrap_or_default();
            let why = link.waits.map_or(why, |wait| format!(" ({})", wait_words(wait)));
            let rate = units::rate(link.rate as f64);
            self.pair("link", &format!("{}: {state}{why}, {} left, {rate}", link.link.0, amount(link.left)));
        }
        for fault in &left.faults {
            let (given_up, waiting) = (fault.given_up.files, fault.waiting.files);
            self.pair("fault", &format!("{}: {given_up} given up, {waiting} tried again", fault.code.name()));
        }
    }

    /// Tells a shard that waits for a user.
    pub fn held(&mut self, shard: &Shard) {
        let ShardState::Held(hold) = shard.state else { return };
        let (reason, files_left) = (reason(hold), shard.left().map_or(0, |left| left.files));
        if self.json {
            let body = JobHeldBody { shard: shard.id.0, fence: shard.claim.fence.0, files_left, reason };
            return self.event(|lines| lines.say("job_held", body));
        }
        let files = units::count(files_left, "file");
        self.pair("held", &format!("shard {} (fence {}), {files} left: {reason}", shard.id.0, shard.claim.fence.0));
    }

    /// Tells a hook, and what it is to be told.
    pub fn hook(&mut self, wish: &HookWish, notices: &[Notice]) {
        let of = || notices.iter().filter(|notice| notice.hook == wish.key).map(|notice| &notice.delivery);
        let given_up = of().filter(|delivery| delivery.given_up).count() as u64;
        let waiting = of().count() as u64 - given_up;
        let failure = of().filter_map(Delivery::failure_text).next_back();
        let hook = wish.key.as_str();
        if self.json {
            let events = wish.kinds.iter().map(|kind| kind.name()).collect();
            let body = JobHookBody { hook, events, waiting, given_up, failure };
            return self.event(|lines| lines.say("job_hook", body));
        }
        let why = failure.map(|failure| format!(": {failure}")).unwrap_or_default();
        self.pair("hook", &format!("{wish}: {waiting} waiting, {given_up} given up{why}"));
    }

    /// Tells a name that could not be read when the campaign was planned.
    pub fn omitted(&mut self, omitted: &OmittedName) {
        let (object, code, message) = (&omitted.object, omitted.code.name(), &omitted.message);
        if self.json {
            let body = JobOmittedBody { object, source: omitted.source, code, message };
            return self.event(|lines| lines.say("job_omitted", body));
        }
        self.line(&format!("{code} (not planned): {object}: {}", without_numbers(message)));
    }

    /// Tells a file that failed.
    pub fn fault(&mut self, file: &FailedFile, fence: Fence) {
        let given_up = file.state == FaultState::GivenUp;
        if self.json {
            let body = JobFaultBody {
                path: name(&file.path),
                bytes: file.bytes,
                code: file.code.name(),
                blame: file.blame.name(),
                message: &file.message,
                given_up,
                tries: file.tries,
                last: time(file.last),
                shard: file.shard.0,
                fence: fence.0,
            };
            return self.event(|lines| lines.say("job_fault", body));
        }
        let state = if given_up { "given up" } else { "tried again" };
        let (code, path) = (file.code.name(), Escaped(&file.path));
        self.line(&format!("{code} ({state}): {path}: {}", without_numbers(&file.message)));
    }

    /// Tells a shard that was claimed, or that a mover ended with.
    pub fn shard(&mut self, granted: &Granted, end: Option<&ShardToldEnd>) {
        let (campaign, shard) = (&*granted.campaign.name, &granted.shard);
        let (state, files_failed, bytes_moved) = match end {
            None => ("claimed", 0, 0),
            Some(end) => (end.state.map_or("gone", shard_state), end.files_failed, end.bytes_moved),
        };
        let (fence, unclaimed) =
            end.map_or((shard.claim.fence.0, shard.news.unclaimed), |end| (end.fence, end.unclaimed));
        if self.json {
            let (files, bytes) = (shard.total.files, shard.total.bytes);
            let body = JobShardBody {
                name: campaign,
                shard: shard.id.0,
                state,
                fence,
                unclaimed,
                files,
                bytes,
                files_failed,
                bytes_moved,
                limit_bytes_per_s: granted.rate,
            };
            return self.event(|lines| lines.say("job_shard", body));
        }
        let failed = if files_failed > 0 { format!(", {files_failed} failed") } else { String::new() };
        let what = match shard.part.is_commit() {
            true => format!("{campaign}: commit (shard {}): {state}", shard.id.0),
            false => format!("{campaign}: shard {}, {}{failed}: {state}", shard.id.0, amount(shard.total)),
        };
        self.talker.say(what);
        if let Some(ShardState::Held(hold)) = end.and_then(|end| end.state) {
            self.talker.warn(format!("shard {} waits for 'longhaul job release': {}", shard.id.0, reason(hold)));
        }
    }

    /// Ends the command.
    pub fn end(mut self) -> Exit {
        let (exit, seconds) = (self.exit, millis(self.begun.elapsed().as_secs_f64()));
        if self.json {
            let (status, Retried { files: files_retried, commit: commit_retried }) = (exit.status(), self.retried);
            let body = JobSummaryBody { status, exit: exit.code(), files_retried, commit_retried, seconds };
            self.event(|lines| lines.say("summary", body));
        }
        match self.written.and_then(|()| self.out.flush()) {
            Ok(()) => exit,
            Err(error) => super::stdout_failed(error),
        }
    }

    /// Hands what was told to whoever reads along.
    pub fn flush(&mut self) {
        if self.written.is_ok() {
            self.written = self.out.flush();
        }
    }

    fn event(&mut self, say: impl FnOnce(&mut JsonLines<&mut W>) -> io::Result<()>) {
        if self.written.is_ok() {
            self.written = say(&mut JsonLines::new(&mut self.out));
        }
    }

    fn pair(&mut self, word: &str, value: &str) {
        self.line(&format!("{word:<11}{value}"));
    }

    fn line(&mut self, text: &str) {
        if self.written.is_ok() {
            self.written = writeln!(self.out, "{}", clean(text));
        }
    }
}

/// The exit of a campaign that was waited for: whether all of it stands.
pub fn exit_of_campaign(campaign: &Campaign, left: &Left) -> Exit {
    let has_appeared = left.commit.is_none_or(|commit| commit == ShardState::Done);
    let stands = has_appeared && left.failed.files + left.cancelled.files + left.left.files + left.omitted == 0;
    // One whose last shard was settled runs until the leader's next turn, and the leader may be
    // another mover.
    let may_stand = match campaign.state {
        CampaignState::Done | CampaignState::Cancelled | CampaignState::Running => true,
        CampaignState::Planning | CampaignState::Held => false,
    };
    if may_stand && stands { Exit::Complete } else { Exit::Partial }
}

fn left_body<'a>(campaign: &'a Campaign, left: &Left) -> JobLeftBody<'a> {
    let links = left.links.iter().map(|link| {
        let (state, fault) = link_state(link.state);
        let (left, waits) = (link.left.into(), link.waits.map(wait_word));
        JobLinkBody { link: link.link.0, state, fault, left, bytes_per_s: link.rate, waits }
    });
    let faults = left.faults.iter().map(|fault| JobFaultSumBody {
        code: fault.code.name(),
        files_waiting: fault.waiting.files,
        files_failed: fault.given_up.files,
    });
    JobLeftBody {
        name: &campaign.name,
        state: campaign.state.name(),
        total: left.total.into(),
        done: left.done.into(),
        failed: left.failed.into(),
        cancelled: left.cancelled.into(),
        left: left.left.into(),
        held: left.held.into(),
        beside: commit::beside(left),
        eta_s: match left.time {
            TimeLeft::Nothing => Some(0.0),
            TimeLeft::Takes(time) => Some(millis(time.as_secs_f64())),
            TimeLeft::StandsStill => None,
        },
        links: links.collect(),
        faults: faults.collect(),
    }
}

impl From<Amount> for JobAmountBody {
    fn from(amount: Amount) -> JobAmountBody {
        JobAmountBody { files: amount.files, bytes: amount.bytes }
    }
}

fn link_state(state: LinkState) -> (&'static str, Option<&'static str>) {
    match state {
        LinkState::Open => ("open", None),
        LinkState::Drain => ("draining", None),
        LinkState::Closed(fault) => ("closed", fault.map(FaultCode::name)),
    }
}

fn shard_state(state: ShardState) -> &'static str {
    match state {
        ShardState::Planned | ShardState::Ready | ShardState::Leased(_) => "planned",
        ShardState::Done => "done",
        ShardState::Partial => "partial",
        ShardState::Held(_) => "held",
        ShardState::Cancelled => "cancelled",
    }
}

/// The reason of a hold, for people.
fn reason(hold: Hold) -> String {
    match hold {
        Hold::Alike { code, alike, of } => format!("{alike} of {of} files failed alike ({})", code.name()),
        Hold::Broken(FaultCode::Superseded) => {
            "another queue has its campaign too, and a mover of that one has taken the shard (superseded)".to_owned()
        }
        Hold::Broken(code) => format!("its transfers end with a fault that no later try mends ({})", code.name()),
        Hold::Lapsed(times) => format!("{times} movers that had it were not heard of again"),
        Hold::FenceSpent => "it was claimed as often as a shard can be".to_owned(),
        Hold::AwaitsShards => "it waits until every other shard is done".to_owned(),
    }
}

fn amount(amount: Amount) -> String {
    format!("{}, {}", units::count(amount.files, "file"), ByteCount(amount.bytes))
}

fn time(at: Micros) -> String {
    units::time(Mtime::said(i64::try_from(at.0 / 1_000_000).unwrap_or(i64::MAX), 0))
}
