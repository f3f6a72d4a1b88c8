//! Tells what `job verify` finds: bad files, shards that were read, and whether the budget
//! suffices.
//!
//! In: findings and figures. Out: lines or events, and the exit code. Decides nothing of the queue.

use std::io::Write;
use std::time::Duration;

use longhaul_core::{ByteCount, Escaped, FaultCode};
use longhaul_jobs::queue::VerifyFigures;
use longhaul_jobs::{Amount, BadKind, Pace, ShardId};

use super::bodies::{JobBadFileBody, JobBadSumBody, JobMendedBody, JobPaceBody, JobVerifiedBody, JobVerifyBody};
use super::{JobTelling, amount, millis, name, time, units, without_numbers};
use crate::exit::Exit;
use crate::jobs::verify::ShardReadEnd;
use crate::jobs::{BadNews, MendedFile, ShardRead};

/// The figures of a verification, to be told.
pub struct VerifyTold<'a> {
    /// The name of the campaign.
    pub name: &'a str,
    /// The figures of what was read, and of what is bad.
    pub figures: &'a VerifyFigures,
    /// The time in which each byte is to be read once.
    pub cycle: Duration,
    /// The rate that is not exceeded, bytes/s. `None`: none.
    pub budget: Option<u64>,
    /// The pace that makes.
    pub pace: Pace,
    /// The code of the first shard that could not be read.
    pub failed: Option<FaultCode>,
    /// Files that were copied anew.
    pub mended: Amount,
}

impl<W: Write> JobTelling<W> {
    /// Tells a file that is bad.
    pub fn bad_file(&mut self, news: &BadNews) {
        let (found, kind) = (&news.found, news.found.kind.name());
        if self.json {
            let body = JobBadFileBody {
                path: name(&found.path),
                bytes: found.bytes,
                kind,
                message: &found.message,
                known: news.is_known,
                shard: news.shard.0,
            };
            return self.event(|lines| lines.say("job_bad_file", body));
        }
        let known = if news.is_known { " (known)" } else { "" };
        self.line(&format!("{kind}{known}: {}: {}", Escaped(&found.path), without_numbers(&found.message)));
    }

    /// Tells a bad file of a shard that was copied anew.
    pub fn mended(&mut self, shard: ShardId, file: &MendedFile) {
        let kind = file.kind.name();
        if self.json {
            let (path, bytes, shard) = (name(&file.path), file.bytes, shard.0);
            let (from, kept) = (file.from.as_str(), file.kept.as_deref());
            return self.event(|lines| lines.say("job_mended", JobMendedBody { path, bytes, kind, from, kept, shard }));
        }
        let kept = file.kept.as_ref().map_or_else(String::new, |kept| format!("; what stood there lies in {kept}"));
        self.line(&format!("mended: {}: it was {kind}; copied from {}{kept}", Escaped(&file.path), file.from));
    }

    /// Tells a shard that was read.
    pub fn shard_read(&mut self, read: &ShardRead) {
        let ShardRead { files, bytes, files_first, files_bad, .. } = *read;
        let state = match read.end {
            ShardReadEnd::Through => "read",
            ShardReadEnd::Mended => "mended",
            ShardReadEnd::GivenBack => "given-back",
            ShardReadEnd::Failed => "failed",
            ShardReadEnd::Gone => "gone",
        };
        if self.json {
            let (shard, files_ignored) = (read.shard.0, read.files_passed_over);
            let files_mended = read.mended.files;
            let body =
                JobVerifiedBody { shard, state, files, bytes, files_first, files_bad, files_ignored, files_mended };
            return self.event(|lines| lines.say("job_verified", body));
        }
        let files = units::count(files, "file");
        let first = if files_first > 0 { format!(", {files_first} for the first time") } else { String::new() };
        self.talker.say(format!("shard {}: {files}, {}{first}: {state}", read.shard.0, ByteCount(bytes)));
    }

    /// Tells what was read, and whether the budget suffices. What is known to be bad decides the
    /// exit.
    pub fn verified(&mut self, told: &VerifyTold) {
        let VerifyTold { figures, cycle, budget, pace, .. } = told;
        let sums = &figures.sums;
        if !pace.suffices {
            let takes = units::span(pace.takes.unwrap_or_default().as_secs_f64());
            let needed = units::rate(pace.needed as f64);
            self.talker.warn(format!(
                "the budget does not suffice: one reading of all takes {takes} at it, and a cycle is {}; {needed} would do",
                units::span(cycle.as_secs_f64())
            ));
        } else if sums.stale.bytes > 0 {
            let (stale, never) = (amount(sums.stale), amount(sums.never));
            self.talker.warn(format!(
                "{stale} were last read longer ago than a cycle, and {never} never: let it read for longer each time"
            ));
        }
        let bad: Vec<_> =
            figures.bad.iter().map(|sum| JobBadSumBody { kind: sum.kind.name(), files: sum.amount.files }).collect();
        // The worst one first: the exit is that of the first.
        if figures.bad.iter().any(|sum| sum.kind == BadKind::Damaged) {
            self.exits(Exit::Mismatch);
        }
        if let Some(code) = told.failed {
            self.exits(code.into());
        }
        if !bad.is_empty() {
            self.exits(Exit::Partial);
        }
        if self.json {
            let body = JobVerifyBody {
                name: told.name,
                total: sums.total.into(),
                never: sums.never.into(),
                stale: sums.stale.into(),
                oldest: sums.oldest.map(time),
                pace: JobPaceBody {
                    cycle_s: millis(cycle.as_secs_f64()),
                    needed_bytes_per_s: pace.needed,
                    budget_bytes_per_s: *budget,
                    takes_s: pace.takes.map(|takes| millis(takes.as_secs_f64())),
                    suffices: pace.suffices,
                },
                bad,
                mended: told.mended.into(),
            };
            return self.event(|lines| lines.say("job_verify", body));
        }
        self.pair("delivered", &amount(sums.total));
        self.pair("never read", &amount(sums.never));
        if let Some(oldest) = sums.oldest {
            self.pair("oldest", &format!("the rest was read since {}", time(oldest)));
        }
        for sum in bad {
            self.pair(sum.kind, &units::count(sum.files, "file"));
        }
        if told.mended.files > 0 {
            self.pair("mended", &amount(told.mended));
        }
    }
}
