//! Measures what a transfer does without disks: between this process's memory and a daemon's,
//! through the product's own lanes, machines and digests.
//!
//! In: a [`NetRun`] and [`Settings`]. Out: a [`NetReport`]. Neither side believes the other: each
//! bounds what it sends, takes and waits for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::filter::Filter;
use longhaul_core::limits::MEASURE_SECONDS_MAX;
use longhaul_core::{ChunkSize, Fault, FaultCode, Role};
use longhaul_disk::{Affinity, EngineKind, SourceTree, TimedVoid, VoidSource, VoidTarget};
use longhaul_proto::receiver::Landing;
use longhaul_proto::receiver::SkippedDigests;
use longhaul_proto::wire::message::Far;

use super::{LaneFigures, LaneWatch, LanesStood};
use crate::api::{Event, FileStatus, Limited, Observer, Remote, RoadReport, Settings, Start, Stop, Verify};
use crate::budget;
use crate::client::connect::Agreed;
use crate::client::known_path::KnownPath;
use crate::client::ssh::SshCosts;
use crate::client::udp_way::UdpWay;
use crate::client::{Publishing, Run, SourceReading};
use crate::cpu::Stage;
use crate::lanes::dial::paths::Paths;
use crate::lanes::dial::segments::Segments;
use crate::session::allowed::Allowed;
use crate::session::course::{ReceiveCourse, SendCourse};
use crate::session::opened::Destination;
use crate::session::totals::Totals;
use crate::session::{receiver, sender};

/// Which way the data of a measurement goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From here to the daemon.
    Push,
    /// From the daemon to here.
    Pull,
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct NetRun {
    /// The daemon.
    pub remote: Remote,
    /// Which way.
    pub way: Way,
    /// Bytes that are moved at most; the daemon may allow less.
    pub bytes: u64,
    /// For how long data is read and counted, to the millisecond, 1 hour at most; none: until all
    /// bytes are moved.
    pub time: Option<Duration>,
}

/// The findings of a measurement. Nothing is guessed: `None` stands for what this side cannot know.
#[derive(Clone, Debug)]
pub struct NetReport {
    /// The fault that ended it early.
    pub fault: Option<Fault>,
    /// The session, if one stood.
    pub start: Option<Start>,
    /// The bytes that the daemon let it move.
    pub bytes_allowed: u64,
    /// Payload that was there in time: what the receiver verified, in whole chunks, and of a push
    /// what this side knows of.
    pub bytes: u64,
    /// From when payload was asked for first until the last of that was known to be there, which
    /// has a round trip in it.
    pub seconds: f64,
    /// All payload that the receiver verified: what was under way when the time was over is
    /// delivered if that takes no longer than 3 s.
    pub bytes_moved: u64,
    /// From the first dial until lanes had joined.
    pub setup_seconds: f64,
    /// CPU seconds of the sending process.
    pub sender_cpu: Option<f64>,
    /// CPU seconds of the receiving process.
    pub receiver_cpu: Option<f64>,
    /// CPU seconds by stage on this side.
    pub stages: Vec<(Stage, f64)>,
    /// The parts that limited, with shares of the time in which that is known: the largest first.
    pub limits: Vec<Limited>,
    /// The effect of the run on its path, and how long it took to begin and to end.
    pub road: Option<RoadReport>,
    /// The lanes, in the order in which they joined.
    pub lanes: Vec<LaneFigures>,
    /// The number of lanes that stood.
    pub stood: LanesStood,
}

/// Measures. `settings` count as far as they concern the network and memory.
pub async fn bench_net(run: NetRun, settings: Settings, mut stop: Stop) -> NetReport {
    let watch = Arc::new(LaneWatch::new(run.way));
    let ear = Arc::new(SessionListener { begun: Instant::now(), heard: Mutex::default(), watch: watch.clone() });
    let (trigger, inner) = Stop::new();
    let settings = Settings {
        // Nothing is waited for where there is no disk: what is read ahead would only be late when
        // the time is over.
        depth: Some(1),
        engine: EngineKind::Void,
        verify: Verify::Wire,
        filter: Filter::default(),
        files_from: None,
        digests: false,
        dry_run: false,
        retry_for: Duration::ZERO,
        ..settings
    };
    let paths = Paths::new(&settings.paths);
    let segments = Segments::new(settings.paths.len());
    let this = Run {
        settings,
        observer: ear.clone(),
        stop: inner,
        paths,
        known: KnownPath::default(),
        segments,
        udp: UdpWay::default(),
        ssh: SshCosts::default(),
        affinity: Affinity::default(),
        publishing: Publishing::default(),
        reading: SourceReading::default(),
        watch: Some(watch.clone()),
    };
    let measuring = this.measure(&run);
    tokio::pin!(measuring);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let too_long = tokio::time::sleep(run.time.unwrap_or(LONGEST) + PATIENCE);
    tokio::pin!(too_long);
    let mut stopping = false;
    let (bytes_allowed, totals) = loop {
        tokio::select! {
            biased;
            measured = &mut measuring => break measured,
            code = stop.stopped(), if !stopping => {
                stopping = true;
                trigger.stop(code);
            }
            () = &mut too_long, if !stopping => {
                stopping = true;
                trigger.stop(FaultCode::TimedOut);
            }
            _ = looks.tick() => watch.look(),
        }
    };
    report(bytes_allowed, totals, run.time, &ear, &watch)
}

impl Run {
    /// Gives what the daemon allowed, and what was counted.
    async fn measure(&self, run: &NetRun) -> (u64, Totals) {
        let mut allowed = 0;
        let totals = match run.way {
            Way::Push => self.measure_push(run, &mut allowed).await,
            Way::Pull => self.measure_pull(run, &mut allowed).await,
        };
        (allowed, totals.unwrap_or_else(Totals::ended_by))
    }

    async fn measure_push(&self, run: &NetRun, allowed: &mut u64) -> Result<Totals, Fault> {
        let agreed = self.agree_on(run, Role::Sender, allowed).await?;
        let slots = budget::slots(self.settings.memory, agreed.welcome.chunk_max)?;
        let machinery = self.machinery(Role::Sender, slots, agreed.lanes_max, agreed.welcome.chunk_max)?;
        let machinery = noisy(machinery).await?;
        let tree: Arc<dyn SourceTree> = match run.time {
            Some(time) => Arc::new(TimedVoid::new(*allowed, time)),
            None => Arc::new(VoidSource { len: *allowed, files: 1 }),
        };
        let plan = self.plan(&agreed, Role::Sender, SkippedDigests::Unwanted);
        let sending = plan.sending(tree, machinery, self.wanted(), run.time.is_some());
        let link = self.link(agreed, &plan, Arc::default());
        let mut course = SendCourse::default();
        course.totals.units.count_within(run.time);
        sender::run(link, sending, &mut course).await;
        Ok(course.totals)
    }

    async fn measure_pull(&self, run: &NetRun, allowed: &mut u64) -> Result<Totals, Fault> {
        let agreed = self.agree_on(run, Role::Receiver, allowed).await?;
        let slots = budget::slots(self.settings.memory, agreed.welcome.chunk_max)?;
        let machinery = self.machinery(Role::Receiver, slots, agreed.lanes_max, agreed.welcome.chunk_max)?;
        let plan = self.plan(&agreed, Role::Receiver, SkippedDigests::Unwanted);
        let link = self.link(agreed, &plan, Arc::default());
        let memory = Destination::fleeting(Arc::new(VoidTarget), Landing::beneath(), "memory".to_owned());
        let receiving = plan.receiving(memory, machinery, Allowed::one_file(*allowed));
        let mut course = ReceiveCourse::default();
        course.totals.units.count_within(run.time);
        receiver::run(link, receiving, &mut course).await;
        Ok(course.totals)
    }

    /// Dials and agrees; `allowed` is then what the daemon lets this move.
    async fn agree_on(&self, run: &NetRun, role: Role, allowed: &mut u64) -> Result<Agreed, Fault> {
        let chunk: ChunkSize = self.settings.chunk_size();
        let slots = budget::slots(self.settings.memory, chunk)?;
        let millis = run.time.map_or(0, |time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1));
        let far = Far::Memory { bytes: run.bytes, millis };
        let agreed = self.agree(&run.remote, role, far.into(), slots, chunk, &mut self.dialling()?).await?;
        *allowed = agreed.welcome.memory_bytes;
        if !(1..=run.bytes).contains(allowed) {
            return Err(Fault::protocol(format_args!("the other side lets {allowed} bytes of {} be moved", run.bytes)));
        }
        Ok(agreed)
    }
}

/// The buffers of a sender, filled on a thread that may take its time.
async fn noisy(machinery: budget::SessionBuffers) -> Result<budget::SessionBuffers, Fault> {
    let fill = move || {
        machinery.fill_with_noise();
        machinery
    };
    tokio::task::spawn_blocking(fill).await.map_err(|e| Fault::new(FaultCode::Internal, longhaul_core::Blame::Bug, e))
}

fn report(
    bytes_allowed: u64,
    totals: Totals,
    time: Option<Duration>,
    ear: &SessionListener,
    watch: &LaneWatch,
) -> NetReport {
    let heard = ear.heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (bytes_moved, moving) = (totals.bytes_received(), totals.units.get());
    let chunk = heard.start.as_ref().map_or(0, |(_, start)| start.chunk.bytes());
    // The last chunk of a file that ends before its time may be shorter.
    let in_time = moving.map_or(0, |moving| moving.units.saturating_mul(chunk)).min(bytes_moved);
    let (road, report) = (totals.road(ear.begun), totals.into_report(0.0));
    // That a source whose time is over changes is how it ends.
    let is_over = |time: Duration| moving.is_some_and(|moving| moving.begun().elapsed() >= time);
    let ended = |fault: &Fault| fault.code == FaultCode::Changed && time.is_some_and(is_over);
    NetReport {
        fault: report.fault.or(heard.failed.filter(|fault| !ended(fault))),
        setup_seconds: heard.start.as_ref().map_or(0.0, |(after, _)| after.as_secs_f64()),
        start: heard.start.map(|(_, start)| start),
        bytes_allowed,
        bytes: if time.is_some() { in_time } else { bytes_moved },
        seconds: moving.map_or(0.0, |moving| moving.time().as_secs_f64()),
        bytes_moved,
        sender_cpu: report.sender_cpu,
        receiver_cpu: report.receiver_cpu,
        stages: report.stages,
        limits: report.limits,
        road,
        lanes: watch.figures(),
        stood: watch.standing(),
    }
}

/// Hears what a session tells and no counter keeps.
struct SessionListener {
    begun: Instant,
    heard: Mutex<Heard>,
    watch: Arc<LaneWatch>,
}

#[derive(Clone, Default)]
struct Heard {
    start: Option<(Duration, Start)>,
    failed: Option<Fault>,
}

impl Observer for SessionListener {
    fn event(&self, event: Event) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Start(start) => heard.start = Some((self.begun.elapsed(), start)),
            Event::File(file) => {
                // The one file has its outcome, and the lanes are still there: they end soon, and
                // not all at once.
                self.watch.look_last();
                if let FileStatus::Failed(fault) = file.status {
                    heard.failed = Some(fault);
                }
            }
            _ => {}
        }
    }
}

/// The transport's counters are looked at so often: of a lane that ends early the last tenth of a
/// second may be missing in them.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A daemon lets none take longer.
const LONGEST: Duration = Duration::from_secs(MEASURE_SECONDS_MAX);
/// For what comes before and after the time that is measured.
const PATIENCE: Duration = Duration::from_secs(90);
