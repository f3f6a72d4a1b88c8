//! The end of a striped file: footers, header, name, and what it replaces. It is the order of
//! `docs/SETS.md`.
//!
//! In: what comes back. Out: the next orders of a file. Must not know how targets are chosen.

use longhaul_core::TargetId;
use longhaul_core::stripe::{PlacedChunk, Spot};

use super::disk::{DiskView, SetDir, SetName};
use super::host::{Host, Purpose};
use super::mutants::SetMutant;
use super::process::{Health, SetProcess};
use super::reading::slot_at;
use super::striped::Stage;
use super::target::{Order, OrderError};
use super::texts::{BodyFooter, FileNo, SetText, StripeHeader};

impl SetProcess {
    /// Takes the end of anything but the write of a chunk.
    pub(super) fn end_other(
        &mut self,
        host: &mut Host,
        target: usize,
        purpose: Purpose,
        result: Result<(), OrderError>,
    ) {
        match purpose {
            Purpose::Chunk { .. } | Purpose::Tidy => {}
            Purpose::BodySync { file, pass } => self.end_body_sync(host, (file, pass), target, result),
            Purpose::Append(file) => self.end_append(host, file, result),
            Purpose::LogSync(file) => self.end_log_sync(host, file, result),
            Purpose::Discard(file) => self.end_discard(host, file, result),
            Purpose::Records(file)
            | Purpose::Footer(file)
            | Purpose::FooterSync(file)
            | Purpose::Header(file)
            | Purpose::HeaderSync(file)
            | Purpose::Publish(file)
            | Purpose::NameSync(file) => self.end_stage(host, (file, purpose), target, result),
        }
    }

    /// Does what is next for a file.
    pub(super) fn step_file(&mut self, host: &mut Host, file: FileNo) {
        let Some(at) = self.position(file) else { return };
        let doer = &self.files[at];
        if doer.outstanding > 0 || doer.is_stalled {
            return;
        }
        match doer.stage {
            Stage::Writing => {
                if doer.pass.is_none() && doer.is_recorded_whole() {
                    self.sync_records(host, at);
                } else {
                    self.begin_pass(host, at);
                }
            }
            Stage::Records => {
                self.files[at].stage = Stage::Losers;
                self.step_file(host, file);
            }
            Stage::Losers => {
                let is_quiet = doer.used().iter().all(|target| doer.draft.writes_on(TargetId(*target as u32)) == 0);
                if is_quiet || host.has(SetMutant::SealWithoutWaitingForLosers) {
                    self.end_bodies(host, at);
                }
            }
            Stage::Footers => self.sync_footers(host, at),
            Stage::FooterSyncs => self.write_header(host, at),
            Stage::Header => self.sync_header(host, at),
            Stage::HeaderSync => self.publish(host, at),
            Stage::Publish => {
                self.files[at].stage = Stage::NameSync;
                self.order_stage(host, at, self.files[at].home, Order::SyncDir(SetDir::Tree), Purpose::NameSync(file));
            }
            Stage::NameSync => self.committed(host, at),
        }
    }

    fn order_stage(&mut self, host: &mut Host, at: usize, target: usize, order: Order, purpose: Purpose) {
        self.files[at].outstanding += 1;
        host.order(target, order, purpose);
    }

    /// Takes the end of an order of a stage.
    fn end_stage(
        &mut self,
        host: &mut Host,
        (file, purpose): (FileNo, Purpose),
        target: usize,
        result: Result<(), OrderError>,
    ) {
        let Some(at) = self.position(file) else { return };
        let doer = &mut self.files[at];
        doer.outstanding -= 1;
        match (purpose, result) {
            (Purpose::Footer(_), Err(OrderError::NoSpace)) => {
                // The file is whole without it.
                host.ledger.files.entry(file).and_modify(|fate| _ = fate.without_footer.insert(target));
            }
            (Purpose::Header(_), Err(OrderError::NoSpace)) => {
                doer.is_stalled = true;
                self.targets[target].health = Health::Full(host.now);
            }
            (_, Err(_)) => {
                doer.is_stalled = doer.stage >= Stage::Publish;
                self.fail_target(host, target);
            }
            (Purpose::FooterSync(_), Ok(())) => {
                doer.bodies.entry(target).and_modify(|body| body.is_named = true);
            }
            (Purpose::Records(_) | Purpose::HeaderSync(_), Ok(())) => doer.is_named = true,
            (_, Ok(())) => {}
        }
        self.step_file(host, file);
    }

    /// Orders once more what a stage has waited for, if the home of the file is well again.
    pub(super) fn retry_stage(&mut self, host: &mut Host, file: FileNo) {
        let Some(at) = self.position(file) else { return };
        let doer = &mut self.files[at];
        if !doer.is_stalled || self.targets[doer.home].health != Health::Well {
            return;
        }
        doer.is_stalled = false;
        match doer.stage {
            Stage::Header => self.write_header(host, at),
            Stage::Publish | Stage::NameSync => {
                let is_published = host.targets[doer.home].disk.find(DiskView::Cached, SetName::Temp(file)).is_none();
                doer.stage = if is_published { Stage::Publish } else { Stage::HeaderSync };
                self.step_file(host, file);
            }
            _ => {}
        }
    }

    fn sync_records(&mut self, host: &mut Host, at: usize) {
        let doer = &mut self.files[at];
        doer.stage = Stage::Records;
        let names = (!doer.is_named).then_some(SetDir::Tree);
        let (ino, home, file) = (doer.stripe.ino, doer.home, doer.file);
        match host.has(SetMutant::SealWithoutRecords) {
            true => self.step_file(host, file),
            false => self.order_stage(host, at, home, Order::Sync { ino, names }, Purpose::Records(file)),
        }
    }

    /// Writes the footers.
    pub(super) fn end_bodies(&mut self, host: &mut Host, at: usize) {
        let doer = &mut self.files[at];
        let Some(root) = doer.draft.root() else {
            host.ledger.broken(|| format!("file {} is sealed and has no root", doer.file.0));
            return;
        };
        if doer.stage != Stage::Writing {
            doer.stage = Stage::Footers;
            if doer.has_footers {
                let file = doer.file;
                self.step_file(host, file);
                return;
            }
        }
        let (file, version, chunks) = (doer.file, doer.version, doer.chunks());
        let path = host.ledger.planned(version).path;
        let used = doer.used();
        for (number, target) in used.iter().copied().enumerate() {
            let slots = doer.draft.slots_on(TargetId(target as u32));
            let spot_of = |slot: usize| Spot { target: TargetId(target as u32), slot: slot as u64 };
            let in_slots = slots.iter().enumerate().filter_map(|(slot, chunk)| {
                let (index, digest) = (*chunk)?;
                Some(doer.as_written(PlacedChunk { index, spot: Some(spot_of(slot)), digest }))
            });
            let mut placed: Vec<PlacedChunk> = in_slots.collect();
            let end = slots.len().max(
                placed.iter().filter_map(|chunk| chunk.spot).map(|spot| spot.slot as usize + 1).max().unwrap_or(0),
            );
            if number == 0 {
                let holes = doer.draft.holes().into_iter();
                placed.extend(holes.map(|(index, digest)| PlacedChunk { index, spot: None, digest }));
            }
            let footer = BodyFooter { file, path, target, chunks, root, placed };
            let footer = host.texts.add(SetText::Footer(footer));
            let ino = doer.bodies[&target].node.ino;
            let end = slot_at(end as u64);
            doer.outstanding += 1;
            host.order(target, Order::EndBody { ino, end, footer }, Purpose::Footer(file));
        }
        if used.is_empty() {
            self.step_file(host, file);
        }
    }

    fn sync_footers(&mut self, host: &mut Host, at: usize) {
        let doer = &mut self.files[at];
        doer.stage = Stage::FooterSyncs;
        let file = doer.file;
        let used = doer.used();
        for target in &used {
            let body = self.files[at].bodies[target];
            let names = (!body.is_named).then_some(SetDir::Bodies);
            let order = Order::Sync { ino: body.node.ino, names };
            match host.has(SetMutant::RenameBeforeBodySync) {
                true => host.order(*target, order, Purpose::Tidy),
                false => self.order_stage(host, at, *target, order, Purpose::FooterSync(file)),
            }
        }
        if self.files[at].outstanding == 0 {
            self.step_file(host, file);
        }
    }

    fn write_header(&mut self, host: &mut Host, at: usize) {
        let doer = &mut self.files[at];
        doer.stage = Stage::Header;
        let Some(root) = doer.draft.root() else { return };
        let file = doer.file;
        let path = host.ledger.planned(doer.version).path;
        let header = StripeHeader { file, path, chunks: doer.chunks(), whole: Some((root, doer.log_blocks)) };
        let header = host.texts.add(SetText::Header(header));
        let order = Order::Write { ino: doer.stripe.ino, at: 0, blocks: header.blocks() };
        self.order_stage(host, at, self.files[at].home, order, Purpose::Header(file));
    }

    fn sync_header(&mut self, host: &mut Host, at: usize) {
        let doer = &mut self.files[at];
        doer.stage = Stage::HeaderSync;
        let names = (!doer.is_named).then_some(SetDir::Tree);
        let (ino, home, file) = (doer.stripe.ino, doer.home, doer.file);
        self.order_stage(host, at, home, Order::Sync { ino, names }, Purpose::HeaderSync(file));
    }

    /// Gives a file its name: the commit point.
    fn publish(&mut self, host: &mut Host, at: usize) {
        let doer = &mut self.files[at];
        doer.stage = Stage::Publish;
        let (file, home) = (doer.file, doer.home);
        // Bodies that the records name no more go once those are durable.
        let used = doer.used();
        let unused: Vec<usize> = doer.bodies.keys().copied().filter(|target| !used.contains(target)).collect();
        for target in unused {
            doer.bodies.remove(&target);
            host.order(target, Order::Remove(SetName::Body(file)), Purpose::Tidy);
        }
        let path = host.ledger.planned(doer.version).path;
        let name = SetName::Final(path);
        let standing = host.targets[home].disk.find(DiskView::Cached, name);
        let standing = standing.and_then(|node| host.stripe_in(DiskView::Cached, home, node.ino));
        doer.replaces = standing.map(|stripe| stripe.header.file);
        if host.has(SetMutant::ReplacedRemovedEarly) {
            self.remove_replaced(host, at);
        }
        host.say(|| format!("file {} gets its name", file.0));
        host.note_publish(file);
        self.order_stage(host, at, home, Order::Rename(SetName::Temp(file), name), Purpose::Publish(file));
    }

    fn committed(&mut self, host: &mut Host, at: usize) {
        host.say(|| format!("file {} is committed", self.files[at].file.0));
        host.note_committed(self.files[at].file);
        self.remove_replaced(host, at);
        self.files.remove(at);
        self.start_files(host);
        self.wake(host);
    }

    fn remove_replaced(&mut self, host: &mut Host, at: usize) {
        let Some(old) = self.files[at].replaces.take() else { return };
        self.remove_bodies(host, old);
    }

    pub(super) fn remove_bodies(&mut self, host: &mut Host, file: FileNo) {
        let standing: Vec<_> = host.stands(DiskView::Cached, SetName::Body(file)).collect();
        for (target, node) in standing {
            if !host.is_in_use(target, node.ino) {
                host.order(target, Order::Remove(SetName::Body(file)), Purpose::Tidy);
            }
        }
    }

    /// Gives a file up. Its version is begun anew.
    pub(super) fn abandon(&mut self, host: &mut Host, at: usize) {
        let doer = self.files.remove(at);
        host.say(|| format!("file {} is given up", doer.file.0));
        host.seen.begun_anew += 1;
        host.ledger.discards(doer.file);
        host.order(doer.home, Order::Remove(SetName::Temp(doer.file)), Purpose::Discard(doer.file));
    }

    fn end_discard(&mut self, host: &mut Host, file: FileNo, result: Result<(), OrderError>) {
        if result.is_ok() {
            host.ledger.journal.remove(&file);
            self.remove_bodies(host, file);
        }
    }
}
