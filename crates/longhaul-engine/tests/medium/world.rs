//! Plays worlds: a source, a destination and a row of runs with faults, each from one seed; then
//! runs without faults, to see what is left.
//!
//! In: a seed. Out: tallies, or the first promise that was broken. The engine's threads are real,
//! so a seed fixes the faults of a world, and not the order in which threads come to them: a
//! failure may need a few plays to show again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{ByteCount, ChunkSize, IfExists, Preserve};
use longhaul_engine::{DirectMode, EngineKind, Settings, SyncGroup, Verify};

use super::check::{Before, State};
use super::faults::{Faults, Mutant, Nature, SyncFs, Theme};
use super::model::Medium;
use super::promise::{Broken, Promise};
use super::rng::Rng;
use super::run::{Ran, run};
use super::source::Source;
use super::view::text;

/// The tallies of worlds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tallies {
    pub(crate) runs: u64,
    pub(crate) cuts: u64,
    pub(crate) losses: u64,
    pub(crate) resumed: u64,
    /// Bytes that a run without faults had to continue.
    pub(crate) owed: u64,
    pub(crate) committed: u64,
    pub(crate) failed: u64,
}

/// A world that is being played.
pub(crate) struct World {
    rng: Rng,
    scratch: tempfile::TempDir,
    pub(crate) source: Arc<Source>,
    pub(crate) medium: Arc<Medium>,
    before: Before,
    pub(crate) settings: Settings,
    mutant: Option<Mutant>,
    theme: Theme,
    /// Whether a source has changed since the first run.
    pub(crate) has_changed: bool,
    /// Destinations so far: each power cut makes another.
    targets: u64,
    pub(crate) seen: Tallies,
}

/// Plays the world of a seed.
pub(crate) fn play(seed: u64, mutant: Option<Mutant>) -> Result<Tallies, Broken> {
    let mut world = World::random(seed, mutant);
    let told = world.play();
    let world_is = world.told();
    told.map(|()| world.seen).map_err(|broken| broken.with(world_is).when(&format!("seed {seed}:")))
}

impl World {
    fn random(seed: u64, mutant: Option<Mutant>) -> World {
        let mut rng = Rng::new(seed, 0);
        let chunk = rng.pick(&[4096u64, 8192]);
        let scratch = scratch();
        let source = Source::random(&scratch.path().join("source"), &mut rng, chunk as usize);
        let nature = Nature::random(&mut rng);
        let nature = match mutant {
            None => nature,
            Some(Mutant::FileSystemMistaken) => Nature { syncfs: SyncFs::Nothing, ..nature },
            Some(_) => Nature { syncfs: SyncFs::Whole, ..nature },
        };
        let settings = random_settings(&mut rng, chunk);
        let mut world = World::new(scratch, source, nature, settings, Rng::new(seed, 1));
        world.mutant = mutant;
        world.theme = mutant.map_or_else(|| Theme::random(&mut rng), Theme::of);
        if rng.permille(if world.theme == Theme::Standing { 500 } else { 100 }) {
            world.settings = without_metadata(world.settings);
        }
        if world.theme == Theme::Sectors {
            world.settings.sync = SyncGroup { bytes: chunk, age: Duration::from_millis(1) };
        }
        if let (Theme::Revisions, Some(source)) = (world.theme, Arc::get_mut(&mut world.source)) {
            source.put("revised", rng.bytes(24 * chunk as usize), &mut rng);
            world.settings.sync = SyncGroup { bytes: 2 * chunk, age: Duration::from_millis(1) };
        }
        if rng.permille(400) {
            world.stand(&mut rng);
        }
        world.rng = rng;
        world
    }

    /// A world in which nothing stands at the destination.
    pub(crate) fn new(
        scratch: tempfile::TempDir,
        source: Source,
        nature: Nature,
        settings: Settings,
        rng: Rng,
    ) -> World {
        let target = scratch.path().join("target-0");
        std::fs::create_dir(&target).expect("the destination is made");
        let medium = Medium::of(&target, nature, rng.clone());
        let (source, before, seen) = (Arc::new(source), BTreeMap::new(), Tallies::default());
        World {
            rng,
            scratch,
            source,
            medium,
            before,
            settings,
            mutant: None,
            theme: Theme::Any,
            has_changed: false,
            targets: 0,
            seen,
        }
    }

    /// Puts files under some of the names that are to come.
    fn stand(&mut self, rng: &mut Rng) {
        let target = self.medium.scratch.clone();
        for dir in &self.source.dirs {
            std::fs::create_dir_all(target.join(text(dir))).expect("a directory stands");
        }
        for (path, versions) in &self.source.files {
            if !rng.permille(300) {
                continue;
            }
            let mut bytes = versions[0].bytes.clone();
            if !bytes.is_empty() && rng.permille(800) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1;
            }
            std::fs::write(target.join(text(path)), &bytes).expect("a file stands");
            self.before.insert(path.clone(), bytes);
        }
        let (nature, rng) = self.medium.nature();
        self.medium = Medium::of(&target, nature, rng);
    }

    fn play(&mut self) -> Result<(), Broken> {
        let mut calls = 40 + 6 * self.source.files.len() as u64;
        let mut asked = self.settings.if_exists;
        let runs = if self.theme == Theme::Any { 1 + self.rng.below(3) } else { 3 };
        for run in 0..runs {
            let faults = self.theme.faults(&mut self.rng, run, calls);
            if self.theme == Theme::Revisions && run > 0 {
                // The chunks are journalled long after the new version.
                self.settings.sync = SyncGroup { bytes: 1 << 30, age: Duration::from_secs(1) };
            }
            let ran = self.faulty(Faults { mutant: self.mutant, ..faults })?;
            calls = calls.max(self.medium.state().calls);
            self.pause(&ran);
        }
        if asked == IfExists::Fail {
            asked = IfExists::SkipSame;
        }
        self.settings.if_exists = asked;
        self.converge()
    }

    /// A run with faults, and a check of the medium after it.
    pub(crate) fn faulty(&mut self, faults: Faults) -> Result<Ran, Broken> {
        let ran = self.run(faults.clone());
        self.tell(&faults, &ran);
        let told = |broken: Broken| broken.with(format_args!(" ({})", ran.told()));
        if let Some(broken) = ran.broken.first() {
            return Err(told(broken.clone()));
        }
        self.judge(&ran).map_err(told)?;
        if self.medium.state().image.is_some() {
            self.seen.cuts += 1;
            self.restart();
        }
        Ok(ran)
    }

    /// One run.
    fn run(&mut self, faults: Faults) -> Ran {
        self.medium.begin_run(faults);
        let ran = run(&self.medium, &self.source, self.settings.clone());
        self.seen.runs += 1;
        self.seen.losses += self.medium.state().lost.len() as u64;
        if let Some(report) = &ran.report {
            self.seen.resumed += report.bytes_resumed;
            self.seen.committed += report.files_committed;
            self.seen.failed += report.files_failed;
        }
        ran
    }

    /// Checks the medium after a run, however the run ended.
    fn judge(&mut self, ran: &Ran) -> Result<(), Broken> {
        let mut state = self.medium.state();
        let mut given_up = 0;
        if let Some((path, bytes)) = state.intruded.take() {
            given_up = self.source.len_of(&path);
            let stands = std::fs::read(self.medium.scratch.join(text(&path)));
            if state.image.is_none() && stands.ok().as_ref() != Some(&bytes) {
                let what = format_args!("{}, which somebody else put there meanwhile, was replaced", text(&path));
                return Err(Promise::Theirs.broken(what));
            }
            self.before.insert(path, bytes);
        }
        if let Some(image) = &state.image {
            let left = State { view: image, kinds: &state.kinds };
            left.names(&self.source, &self.before).map_err(|broken| broken.when("after the power cut"))?;
            let durable = left.durable(&self.source).map_err(|broken| broken.when("after the power cut"))?;
            if durable.sum() + given_up < ran.durable {
                let what = format_args!("{} bytes were called durable; the power cut left {durable:?}", ran.durable);
                return Err(Promise::Durable.broken(what));
            }
            return Ok(());
        }
        let durably = State { view: &state.medium, kinds: &state.kinds };
        durably.names(&self.source, &self.before).map_err(|broken| broken.when("durably"))?;
        durably.journals().map_err(|broken| broken.when("durably"))?;
        if ran.is_success() && self.settings.if_exists != IfExists::Fail {
            durably.complete(&self.source).map_err(|broken| broken.when("all is said to be there, but durably"))?;
        }
        let settled = state.settled();
        let settled = State { view: &settled, kinds: &state.kinds };
        settled.names(&self.source, &self.before).map_err(|broken| broken.when("once all is written back"))
    }

    /// Starts the machine again with the content that the power cut left.
    fn restart(&mut self) {
        self.targets += 1;
        let target = self.scratch.path().join(format!("target-{}", self.targets));
        std::fs::create_dir(&target).expect("another destination is made");
        self.medium.write_image(&target);
        let (nature, rng) = self.medium.nature();
        self.medium = Medium::of(&target, nature, rng);
    }

    /// Plays the events that may happen between two runs.
    fn pause(&mut self, ran: &Ran) {
        if self.rng.permille(300) {
            self.medium.drop_cache();
        }
        if !ran.is_success() && self.theme == Theme::Any && self.rng.permille(200) {
            self.medium.state().cut();
            self.restart();
        }
        let (revises, changes) = (self.theme == Theme::Revisions, self.rng.permille(200));
        if let Some(source) = Arc::get_mut(&mut self.source).filter(|_| revises || changes) {
            self.has_changed = true;
            if revises { source.revise(&mut self.rng) } else { source.change(&mut self.rng) }
        }
    }

    /// Runs without faults: partials are continued, all files come to their end, nothing of ours is
    /// left.
    pub(crate) fn converge(&mut self) -> Result<(), Broken> {
        let calm = || Faults { mutant: self.mutant, ..Faults::default() };
        let (first, later) = (calm(), calm());
        let owed = self.owed()?;
        let mut ran = self.faulty(first)?;
        self.seen.owed += owed;
        let resumed = ran.report.as_ref().map_or(0, |report| report.bytes_resumed);
        if resumed < owed {
            let what = format_args!("{owed} bytes were there to go on with, and {resumed} were: {}", ran.told());
            return Err(Promise::Durable.broken(what));
        }
        for _ in 0..2 {
            if !ran.is_success() {
                ran = self.faulty(later.clone())?;
            }
        }
        if !ran.is_success() {
            return Err(Promise::Ends.broken(format_args!("the same command fails again and again: {}", ran.told())));
        }
        self.is_equal()?;
        if self.settings.if_exists != IfExists::Replace {
            let again = self.faulty(later)?;
            let committed = again.report.as_ref().map_or(0, |report| report.files_committed);
            if committed > 0 || !again.is_success() {
                let what = format_args!("{committed} files are committed with nothing to do: {}", again.told());
                return Err(Promise::Idle.broken(what));
            }
        }
        self.is_tidy()
    }

    /// Bytes that need not be sent again: those in partials of files that do not stand.
    fn owed(&self) -> Result<u64, Broken> {
        if self.has_changed {
            return Ok(0);
        }
        let mut state = self.medium.state();
        let view = state.settled();
        let held = State { view: &view, kinds: &state.kinds }.journals()?;
        Ok(held.iter().filter(|(path, _)| view.find(path).is_none()).map(|(_, bytes)| bytes).sum())
    }

    /// Programs see the files of the source at the destination, with their length and time.
    fn is_equal(&self) -> Result<(), Broken> {
        for path in listed(&self.source.dir) {
            let examine = |dir: &Path| std::fs::symlink_metadata(dir.join(&path));
            let (offered, stands) = (examine(&self.source.dir).expect("it is offered"), examine(&self.medium.scratch));
            let time = |stat: &std::fs::Metadata| self.settings.metadata.preserve.times.then(|| stat.modified().ok());
            let like = |stat: &std::fs::Metadata| (stat.is_file(), stat.len(), time(stat));
            let is_right = |stands: std::fs::Metadata| !offered.is_file() || like(&offered) == like(&stands);
            if !stands.is_ok_and(is_right) {
                return Err(Promise::Ends.broken(format_args!("{} has another length or time", path.display())));
            }
        }
        Ok(())
    }

    /// They see no other file there, in whatever order names came through a power cut.
    fn is_tidy(&self) -> Result<(), Broken> {
        let here = listed(&self.source.dir);
        match listed(&self.medium.scratch).iter().find(|path| !here.contains(path)) {
            Some(more) => Err(Promise::Tidy.broken(format_args!("{} is left behind", more.display()))),
            None => Ok(()),
        }
    }

    /// The properties of the world, for a person.
    fn told(&self) -> String {
        let state = self.medium.state();
        let (nature, if_exists) = (state.nature, self.settings.if_exists);
        format!("\n  {:?}, {nature:?}, {if_exists:?}, faults of the last run {:?}", self.theme, state.faults)
    }

    /// Prints what a run did, if one world is played for a person to read.
    fn tell(&self, faults: &Faults, ran: &Ran) {
        if std::env::var_os("MEDIUM_SEED").is_none() {
            return;
        }
        println!("run with {faults:?}");
        for step in &self.medium.state().steps {
            println!("  {:?} {}", step.what, text(&step.path));
        }
        println!("  came to {}", ran.told());
    }
}

fn random_settings(rng: &mut Rng, chunk: u64) -> Settings {
    let sync = SyncGroup {
        bytes: rng.pick(&[chunk, 4 * chunk, 1 << 30]),
        age: Duration::from_millis(rng.pick(&[1, 20, 1000])),
    };
    let if_exists =
        rng.pick(&[IfExists::SkipSame, IfExists::SkipSame, IfExists::Replace, IfExists::Verify, IfExists::Fail]);
    Settings {
        if_exists,
        verify: rng.pick(&[Verify::Wire, Verify::Wire, Verify::Disk]),
        lanes: Some(1 + rng.below(3) as u32),
        sync,
        ..plain_settings(chunk)
    }
}

/// Settings that keep neither modes nor times, so that directories need no syncs of their own.
/// Standing files are then compared by content.
pub(crate) fn without_metadata(settings: Settings) -> Settings {
    let preserve = Preserve { mode: false, times: false, ..settings.metadata.preserve };
    Settings { metadata: preserve.into(), if_exists: IfExists::Verify, ..settings }
}

/// Small chunks, little memory, everything through the page cache.
pub(crate) fn plain_settings(chunk: u64) -> Settings {
    Settings {
        lanes: Some(1),
        chunk: ChunkSize::from_bytes(chunk),
        memory: ByteCount(chunk * 32),
        depth: Some(4),
        io: DirectMode::Buffered,
        engine: EngineKind::Threads,
        sync: SyncGroup { bytes: chunk, age: Duration::from_millis(1) },
        ..Settings::default()
    }
}

/// A directory for one world, in memory where possible: the medium that counts is the model's.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a scratch directory")
}

/// All paths beneath a directory.
fn listed(top: &Path) -> Vec<PathBuf> {
    let (mut found, mut dirs) = (Vec::new(), vec![top.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("listed") {
            let path = entry.expect("an entry").path();
            found.push(path.strip_prefix(top).expect("beneath it").to_owned());
            if std::fs::symlink_metadata(&path).expect("examined").is_dir() {
                dirs.push(path);
            }
        }
    }
    found
}
