//! The play of a seed: the targets of a set and what goes wrong with them, the files that are
//! written, and the crashes.
//!
//! In: a seed. Out: plain data. Acts nowhere.

use super::target::{FOREVER, Pace, Span, TargetFaults};
use super::texts::PathNo;
use crate::rng::Rng;

/// A world of a set.
#[derive(Clone, Debug)]
pub(crate) struct SetPlan {
    pub(crate) targets: Vec<(Pace, TargetFaults)>,
    /// The versions of files, in the order in which they are written.
    pub(crate) versions: Vec<PlannedVersion>,
    /// Files that are written at the same time.
    pub(crate) files_at_once: usize,
    /// Chunks that have a buffer.
    pub(crate) buffers: usize,
    /// A sync begins after so many chunks.
    pub(crate) sync_chunks: usize,
    /// Time between two chunks that come, in microseconds.
    pub(crate) arrival_us: u64,
    /// The crashes, in order.
    pub(crate) crashes: Vec<PlannedCrash>,
    /// The target of which an image is kept, and when. It comes back as that image.
    pub(crate) image: Option<(usize, u64)>,
    /// The treatment of a file of which durable chunks lie on a target that fails.
    pub(crate) on_failure: OnFailure,
    /// The treatment of a file that is to be continued and is still in use.
    pub(crate) on_use: OnUse,
    /// Whether a stripe file is lost at the end.
    pub(crate) loses_stripe: bool,
}

/// A version of a file.
#[derive(Clone, Debug)]
pub(crate) struct PlannedVersion {
    pub(crate) path: PathNo,
    pub(crate) chunks: u64,
    /// Chunks of zeros, a bit each.
    pub(crate) holes: u64,
}

/// The end of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedCrash {
    pub(crate) at_us: u64,
    pub(crate) kind: CrashKind,
}

/// The end of a process, and how the targets are found when the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashKind {
    /// The process dies. What it ordered may still be done, at any time.
    Death,
    /// The power is cut.
    PowerCut(Mounted),
}

/// How targets are mounted after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mounted {
    Well,
    /// The target of which an image was kept comes back as that.
    Old,
    /// Two are exchanged, until the next power cut.
    Swapped(usize, usize),
    /// One is missing, until the next power cut.
    Away(usize),
}

/// The treatment of durable chunks on a target that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// They are written elsewhere.
    SendAgain,
    /// The file is begun anew.
    BeginAnew,
    /// The process ends, and the next one goes on.
    EndProcess,
}

/// The treatment of a file in which writes of an earlier process may still land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnUse {
    Wait,
    BeginAnew,
}

impl SetPlan {
    pub(crate) fn random(seed: u64) -> SetPlan {
        let rng = &mut Rng::new(seed);
        let count = 2 + rng.index(5);
        let is_calm = rng.permille(80);
        let troubles = if is_calm { 0 } else { rng.index(5) };
        // Faults and crashes come while files are written, or in the long waits after a fault.
        let reach = *rng.pick(&[60_000, 300_000, 300_000, 8_000_000]);
        let mut targets: Vec<_> = (0..count).map(|_| (pace(rng), TargetFaults::default())).collect();
        for _ in 0..troubles {
            let at = rng.index(count);
            trouble(rng, reach, &mut targets[at]);
        }
        if !is_calm && rng.permille(100) {
            hang_and_fail(rng, reach, &mut targets);
        }
        let versions = versions(rng);
        // An image of the time in which the first files are written is worth most.
        let image = rng.permille(500).then(|| (rng.index(count), rng.below(reach.min(150_000))));
        let crashes = if is_calm { Vec::new() } else { crashes(rng, (count, reach), image) };
        SetPlan {
            targets,
            versions,
            files_at_once: 1 + rng.index(2),
            buffers: *rng.pick(&[2, 4, 8, 16, 24]),
            sync_chunks: *rng.pick(&[1, 2, 3, 4, 8, 30]),
            arrival_us: *rng.pick(&[100, 1000, 4000]),
            crashes,
            image,
            on_failure: *rng.pick(&[OnFailure::SendAgain, OnFailure::BeginAnew, OnFailure::EndProcess]),
            on_use: if rng.permille(500) { OnUse::Wait } else { OnUse::BeginAnew },
            loses_stripe: rng.permille(600),
        }
    }
}

/// The ends of processes.
fn crashes(rng: &mut Rng, (count, reach): (usize, u64), image: Option<(usize, u64)>) -> Vec<PlannedCrash> {
    let mut crashes: Vec<PlannedCrash> = Vec::new();
    let mut times: Vec<u64> = (0..*rng.pick(&[0, 1, 1, 2, 2, 3, 4, 6])).map(|_| a_time(rng, 2 * reach)).collect();
    times.sort_unstable();
    for at_us in times {
        let is_old = crashes.iter().any(|crash| crash.kind == CrashKind::PowerCut(Mounted::Old));
        let kind = match rng.below(12) {
            0..4 => CrashKind::Death,
            4 => CrashKind::PowerCut(swapped(rng, count)),
            5 => CrashKind::PowerCut(Mounted::Away(rng.index(count))),
            6..9 if image.is_some_and(|(_, kept)| kept < at_us) && !is_old => CrashKind::PowerCut(Mounted::Old),
            _ => CrashKind::PowerCut(Mounted::Well),
        };
        crashes.push(PlannedCrash { at_us, kind });
        // Some come as soon as the next process has begun.
        if kind == CrashKind::Death && rng.permille(300) {
            let after = rng.below(20_000);
            crashes.push(PlannedCrash { at_us: at_us + after, kind: CrashKind::PowerCut(Mounted::Well) });
        }
    }
    crashes.sort_by_key(|crash| crash.at_us);
    crashes
}

/// A time while files are written, or when writes that hang are being made again elsewhere.
fn a_time(rng: &mut Rng, reach: u64) -> u64 {
    let later = if rng.permille(300) { 2_000_000 } else { 0 };
    later + rng.below(reach)
}

fn pace(rng: &mut Rng) -> Pace {
    let write_us = *rng.pick(&[300, 1000, 1000, 4000]) + rng.below(500);
    let slower = *rng.pick(&[1, 1, 1, 5, 30]);
    let slows_at = *rng.pick(&[0, 10_000, 50_000, 200_000]);
    let stragglers = *rng.pick(&[0, 0, 0, 20]);
    Pace { write_us, sync_us: *rng.pick(&[500, 3000, 10_000]) + rng.below(500), slows_at, slower, stragglers }
}

fn trouble(rng: &mut Rng, reach: u64, (pace, faults): &mut (Pace, TargetFaults)) {
    let from = a_time(rng, reach);
    let secs = |rng: &mut Rng, most: u64| 100_000 + rng.below(most * 1_000_000);
    match rng.below(9) {
        0..3 => {
            let endless = rng.permille(150);
            let most = *rng.pick(&[2, 10, 40]);
            let to = if endless { FOREVER } else { from + secs(rng, most) };
            faults.hangs.push(Span { from, to });
        }
        3 => {
            let endless = rng.permille(300);
            faults.fails.push(Span { from, to: if endless { FOREVER } else { from + secs(rng, 40) } });
        }
        4 => faults.full.push(Span { from, to: from + secs(rng, 40) }),
        5..8 => {
            let from = from.min(rng.below(300_000));
            faults.loses.push(Span { from, to: from + 1000 + rng.below(40_000) });
        }
        _ => pace.stragglers = *rng.pick(&[100, 400]),
    }
}

/// One target hangs, and what was written again elsewhere meanwhile is lost there.
fn hang_and_fail(rng: &mut Rng, reach: u64, targets: &mut [(Pace, TargetFaults)]) {
    let (one, from) = (rng.index(targets.len()), rng.below(reach));
    let other = (one + 1 + rng.index(targets.len() - 1)) % targets.len();
    targets[one].1.hangs.push(Span { from, to: from + 10_000_000 + rng.below(30_000_000) });
    let fails = from + 2_000_000 + rng.below(3_000_000);
    targets[other].1.fails.push(Span { from: fails, to: fails + 5_000_000 });
}

fn versions(rng: &mut Rng) -> Vec<PlannedVersion> {
    let paths = 1 + rng.index(3);
    let count = paths + rng.index(3);
    let version = |at: usize| {
        let path = if at < paths { at } else { rng.index(paths) };
        let chunks = *rng.pick(&[1, 2, 3, 5, 8, 8, 12, 24]);
        let holes = if rng.permille(200) { rng.next() & rng.next() } else { 0 };
        PlannedVersion { path: PathNo(path as u32), chunks, holes: holes & !1 }
    };
    (0..count).map(version).collect()
}

fn swapped(rng: &mut Rng, count: usize) -> Mounted {
    let one = rng.index(count);
    Mounted::Swapped(one, (one + 1 + rng.index(count - 1)) % count)
}
