//! A sync of a striped file: its bodies first, then records of what they hold, then the journal. It
//! is the order of `docs/SETS.md`.
//!
//! In: what was written, and the syncs that come back or do not. Out: records, and chunks that are
//! to be sent again. Must not know how a file ends.

use std::collections::BTreeSet;

use longhaul_core::stripe::{PlacedChunk, Unsynced};
use longhaul_core::{ChunkIndex, TargetId};

use super::disk::SetDir;
use super::host::{Host, Purpose};
use super::mutants::SetMutant;
use super::process::{Health, SetProcess};
use super::reading::records_at;
use super::striped::{PassRun, PassStep};
use super::target::{Order, OrderError};
use super::texts::{FileNo, RecordBlock, SetText};

impl SetProcess {
    /// Begins a sync of what was written, if enough was or nothing more comes.
    pub(super) fn begin_pass(&mut self, host: &mut Host, at: usize) {
        let doer = &mut self.files[at];
        let (count, is_placed) = (doer.unrecorded(), doer.is_placed());
        let is_due = count > 0 && (count >= self.plan.sync_chunks || is_placed);
        if doer.pass.is_some() || !is_due || self.targets[doer.home].health != Health::Well {
            return;
        }
        if is_placed && host.has(SetMutant::FooterBeforeData) && !doer.has_footers {
            doer.has_footers = true;
            self.end_bodies(host, at);
            return;
        }
        let doer = &mut self.files[at];
        doer.passes += 1;
        let (file, number) = (doer.file, doer.passes);
        let pass = doer.draft.begin_sync();
        let (mut waits, mut unsynced) = (BTreeSet::new(), Unsynced::new());
        for target in pass.targets() {
            match self.targets[target.0 as usize].health {
                Health::Failed(_) => _ = unsynced.insert(target),
                _ => _ = waits.insert(target.0 as usize),
            }
        }
        for target in &waits {
            let body = doer.bodies[target];
            let names = (!body.is_named).then_some(SetDir::Bodies);
            host.order(*target, Order::Sync { ino: body.node.ino, names }, Purpose::BodySync { file, pass: number });
        }
        let is_careless =
            host.has(SetMutant::RecordBeforeBodySync) || is_placed && host.has(SetMutant::RenameBeforeBodySync);
        if is_careless {
            waits.clear();
        }
        let (records, bodies, step) = (Vec::new(), Vec::new(), PassStep::Bodies);
        doer.pass = Some(PassRun { number, pass, waits, unsynced, since: host.now, records, bodies, step });
        self.end_bodies_of_pass(host, at);
    }

    pub(super) fn end_body_sync(
        &mut self,
        host: &mut Host,
        (file, number): (FileNo, u32),
        target: usize,
        result: Result<(), OrderError>,
    ) {
        let now = host.now;
        if let Some(at) = self.position(file) {
            let doer = &mut self.files[at];
            if let (Ok(()), Some(body)) = (result, doer.bodies.get_mut(&target)) {
                body.is_named = true;
            }
            let run = doer.pass.as_mut().filter(|run| run.number == number);
            if let Some(run) = run
                && run.waits.remove(&target)
            {
                if result.is_err() {
                    run.unsynced.insert(TargetId(target as u32));
                }
                let took = now - run.since;
                self.note_latency(host, target, took);
            }
        }
        if result.is_err() && !host.has(SetMutant::FailedSyncForgotten) {
            self.fail_target(host, target);
        }
        if let Some(at) = self.position(file) {
            self.end_bodies_of_pass(host, at);
        }
    }

    /// Gives up syncs that do not come back.
    pub(super) fn give_up_syncs(&mut self, host: &mut Host) {
        let files: Vec<FileNo> = self.files.iter().map(|doer| doer.file).collect();
        for file in files {
            let Some(at) = self.position(file) else { continue };
            let Some(since) = self.files[at].pass.as_ref().map(|run| run.since) else { continue };
            let late: Vec<usize> = self.files[at].pass.iter().flat_map(|run| run.waits.iter().copied()).collect();
            let waited = host.now - since;
            let late: Vec<usize> = late.into_iter().filter(|target| waited >= self.patience_us(*target)).collect();
            for target in late {
                self.targets[target].health = Health::Hangs;
                host.say(|| format!("the sync of file {} on target {target} is given up", file.0));
                if let Some(run) = &mut self.files[at].pass {
                    run.waits.remove(&target);
                    run.unsynced.insert(TargetId(target as u32));
                }
            }
            self.end_bodies_of_pass(host, at);
        }
    }

    /// Appends the records of a sync once all its bodies are synced or given up.
    fn end_bodies_of_pass(&mut self, host: &mut Host, at: usize) {
        let doer = &mut self.files[at];
        let Some(run) = doer.pass.as_mut().filter(|run| run.step == PassStep::Bodies && run.waits.is_empty()) else {
            return;
        };
        if host.has(SetMutant::FailedPlacementBelieved) {
            run.unsynced.clear();
        }
        let lost = doer.draft.give_up(&run.pass, &run.unsynced);
        host.seen.given_up += lost.len() as u64;
        let records = run.pass.synced(&run.unsynced);
        let of_loser = |chunk: PlacedChunk| {
            let loser = doer.losers.iter().find(|(index, spot)| *index == chunk.index.0 && chunk.spot != Some(*spot));
            let spot = loser.filter(|_| host.has(SetMutant::LoserRecorded)).map(|(_, spot)| *spot);
            PlacedChunk { spot: spot.or(chunk.spot), ..chunk }
        };
        let synced: Vec<usize> = run.pass.targets().difference(&run.unsynced).map(|target| target.0 as usize).collect();
        let new = synced.into_iter().filter(|target| !doer.bodies[target].is_recorded);
        run.bodies = new.map(|target| (target, doer.bodies[&target].node)).collect();
        run.records = records;
        let chunks: Vec<PlacedChunk> = run.records.iter().map(|chunk| of_loser(*chunk)).collect();
        run.step = PassStep::Append;
        let (bodies, file, number) = (run.bodies.clone(), doer.file, doer.log_blocks);
        let chunks: Vec<PlacedChunk> = chunks.into_iter().map(|chunk| doer.as_written(chunk)).collect();
        doer.want(lost.into_iter().map(|index| index.0));
        if chunks.is_empty() {
            doer.pass = None;
            self.wake(host);
            self.step_file(host, file);
            return;
        }
        let (home, ino) = (doer.home, doer.stripe.ino);
        host.note_records(file, &chunks);
        let text = host.texts.add(SetText::Records(RecordBlock { file, number, bodies, chunks }));
        let order = Order::Write { ino, at: records_at(number), blocks: text.blocks() };
        host.order(home, order, Purpose::Append(file));
        self.wake(host);
    }

    pub(super) fn end_append(&mut self, host: &mut Host, file: FileNo, result: Result<(), OrderError>) {
        let Some(at) = self.position(file) else { return };
        let doer = &mut self.files[at];
        let Some(run) = doer.pass.as_mut().filter(|run| run.step == PassStep::Append) else { return };
        match result {
            Ok(()) => {
                run.step = PassStep::LogSync;
                doer.log_blocks += 1;
                let names = (!doer.is_named).then_some(SetDir::Tree);
                host.order(doer.home, Order::Sync { ino: doer.stripe.ino, names }, Purpose::LogSync(file));
            }
            Err(OrderError::NoSpace) => {
                doer.draft.put_back(&run.pass);
                doer.pass = None;
                self.targets[self.files[at].home].health = Health::Full(host.now);
            }
            Err(_) => self.fail_target(host, self.files[at].home),
        }
    }

    pub(super) fn end_log_sync(&mut self, host: &mut Host, file: FileNo, result: Result<(), OrderError>) {
        let Some(at) = self.position(file) else { return };
        if result.is_err() {
            self.fail_target(host, self.files[at].home);
            return;
        }
        let doer = &mut self.files[at];
        let Some(run) = doer.pass.take_if(|run| run.step == PassStep::LogSync) else { return };
        doer.is_named = true;
        for (target, _) in &run.bodies {
            doer.bodies.entry(*target).and_modify(|body| body.is_recorded = true);
        }
        doer.recorded.extend(run.records.iter().map(|chunk| (chunk.index.0, chunk.spot)));
        host.say(|| format!("file {} has {} more chunks durable", file.0, run.records.len()));
        host.note_journalled(file, &run.records);
        // What is on a target that has failed meanwhile is written elsewhere.
        let failed = |target: &usize| matches!(self.targets[*target].health, Health::Failed(_));
        let failed: Vec<usize> = self.files[at].bodies.keys().copied().filter(failed).collect();
        for target in failed {
            let lost: Vec<u64> = run
                .records
                .iter()
                .filter(|chunk| chunk.spot.is_some_and(|spot| spot.target.0 as usize == target))
                .map(|chunk| chunk.index.0)
                .collect();
            let doer = &mut self.files[at];
            doer.lost.extend(lost.iter().copied().filter(|index| doer.draft.spot(ChunkIndex(*index)).is_some()));
            doer.want(lost);
        }
        self.wake(host);
        self.step_file(host, file);
    }
}
