//! Runs a job from its initiator's side: push, pull, and copy within one process.
//!
//! In: a [`Job`] and [`Settings`]. Out: a [`Report`]. `connect` reaches a daemon and agrees with
//! it, by the request that `wish` makes; `local_copy` plays both sides here, `session` sets one up,
//! `start_event` keeps what is told of it in order. `retry` decides whether to dial again after a
//! session was lost; `udp_way` stops that where UDP is dropped. `missing` reports missing sources.
//! `stream` has destinations that take bytes once and in order, `from_stream` sources that give
//! them so. `trees` copies between trees of a library user, `several` has one source go to several
//! destinations. `source_reading` says how a run reads on this host, and `run_rate` how fast, as
//! that changes. `list` asks what is there, `reading` has files read where they lie. `order` has
//! one daemon fetch from another. `ssh` reaches hosts without a daemon. `ahead` connects lanes
//! before a session is agreed on, `dialling` dials them. `possible` refuses what no session could
//! keep; `publishing` says how what is moved gets its names, `commit` has the dataset of a campaign
//! appear.

mod ahead;
mod answer;
mod commit;
pub(crate) mod connect;
mod dialling;
pub(crate) mod digests;
mod early_udp;
mod from_stream;
pub(crate) mod known_path;
pub(crate) mod list;
pub(crate) mod local_copy;
pub(crate) mod missing;
mod order;
mod possible;
mod publishing;
pub(crate) mod reading;
pub(crate) mod removal;
pub(crate) mod retry;
pub(crate) mod run_rate;
mod session;
pub(crate) mod sets;
mod several;
mod source_reading;
pub(crate) mod ssh;
mod start_event;
mod stream;
#[cfg(test)]
mod tests;
mod trees;
pub(crate) mod udp_way;
pub(crate) mod wish;

pub use commit::{CampaignFiles, commit_dataset};
pub(crate) use connect::connect;
pub use order::shard_grant_time;
pub(crate) use publishing::Publishing;
pub use several::Deliveries;
pub(crate) use source_reading::SourceReading;
pub use trees::{Observers, run_between, run_into};

use std::sync::Arc;
use std::time::Instant;

use longhaul_core::{Blame, ChunkSize, Fault, FaultCode, RelPath, Role};
use longhaul_disk::{Affinity, Shape, SourceReader, SourceTree};
use longhaul_net::TransportFacts;
use longhaul_proto::receiver::SkippedDigests;
use longhaul_proto::wire::message::{Far, Placing};

use crate::api::{
    Credentials, Event, Job, JobDestination, JobSource, LocalDest, LocalSource, Observer, Reach, Remote, RemotePath,
    Report, Settings, Stop, Transport, WayFigures,
};
use crate::budget::{self, MemoryPlan, SessionBuffers};
use crate::lanes::dial::DialObserver;
use crate::lanes::dial::paths::{Paths, WithPaths};
use crate::lanes::dial::segments::Segments;
use crate::place::{self, LocalSite, Opening};
use crate::random::nonce;
use crate::session::allowed::Allowed;
use crate::session::course::{ReceiveCourse, ScanWish, SendCourse};
use crate::session::handshake;
use crate::session::sender::first_page::FirstPage;
use crate::session::totals::Totals;
use crate::workers::blocking;
use connect::{Agreed, Dialling};
use known_path::{KnownPath, WithKnownPath};
use possible::possible;
use retry::Patience;
use ssh::SshCosts;
use udp_way::UdpWay;
use wish::Wish;

/// Runs a job to its end. Always gives a report; what ended it early is in there. `credentials` are
/// shown to the daemon of the job: `None` will do where both ends are on this host.
pub async fn run(
    job: Job,
    credentials: Option<Credentials>,
    settings: Settings,
    observer: Arc<dyn Observer>,
    stop: Stop,
) -> Report {
    run_reading(AskedJob { job, credentials, reader: None }, settings, observer, stop).await
}

/// A job, and the means that are its own.
struct AskedJob {
    job: Job,
    credentials: Option<Credentials>,
    /// The reader of its sources. `None`: they are read for it alone.
    reader: Option<SourceReader>,
}

async fn run_reading(asked: AskedJob, settings: Settings, observer: Arc<dyn Observer>, stop: Stop) -> Report {
    let begun = Instant::now();
    let AskedJob { job, credentials, reader } = asked;
    let affinity = match possible(&settings, &job).and_then(|()| affinity(&settings)) {
        Ok(affinity) => affinity,
        Err(fault) => return conclude(Err(fault), &*observer, begun),
    };
    let paths = Paths::new(&settings.paths);
    // In a pull the daemon searches, and lanes over several paths say little about one of them.
    let is_push = matches!(job.to, JobDestination::Remote(..)) && !matches!(job.from, JobSource::Remote(..));
    let memory = credentials.as_ref().and_then(|ours| ours.memory.clone());
    let memory = memory.filter(|_| is_push && settings.paths.is_empty() && !settings.dry_run);
    let known = KnownPath::new(memory);
    let telling = Arc::new(WithKnownPath { observer: observer.clone(), known: known.clone() });
    let telling = Arc::new(WithPaths { observer: telling, paths: paths.clone() });
    let (segments, udp, costs) = (Segments::new(settings.paths.len()), UdpWay::default(), SshCosts::default());
    let run = Run {
        settings,
        observer: telling,
        stop,
        paths: paths.clone(),
        known: known.clone(),
        segments,
        udp,
        ssh: costs.clone(),
        affinity,
        watch: None,
        publishing: Publishing { claim: job.claim, dataset: job.dataset, part: job.part },
        reading: SourceReading { expected: job.expected, reader, ..SourceReading::default() },
    };
    let result = match (job.from, job.to) {
        (JobSource::Local(sources), JobDestination::Remote(reach, path)) => match at_daemon(credentials, reach) {
            Ok(remote) => run.push(sources, &remote, path).await,
            Err(fault) => Err(fault),
        },
        (JobSource::Remote(reach, paths), JobDestination::Local(dest)) => match at_daemon(credentials, reach) {
            Ok(remote) => run.pull(&remote, paths, &dest).await,
            Err(fault) => Err(fault),
        },
        (JobSource::Local(sources), JobDestination::Local(dest)) => run.copy(&sources, &dest).await,
        (JobSource::Remote(reach, paths), JobDestination::Stream(dest)) => match at_daemon(credentials, reach) {
            Ok(remote) => run.pull_stream(&remote, paths, &dest).await,
            Err(fault) => Err(fault),
        },
        (JobSource::Local(sources), JobDestination::Stream(dest)) => run.copy_stream(&sources, &dest).await,
        (JobSource::Stream(spec), JobDestination::Remote(reach, path)) => match at_daemon(credentials, reach) {
            Ok(remote) => run.push_from_stream(spec, &remote, path).await,
            Err(fault) => Err(fault),
        },
        (JobSource::Stream(spec), JobDestination::Local(dest)) => run.copy_from_stream(spec, &dest).await,
        (JobSource::Stream(_), JobDestination::Stream(_)) => {
            Err(Fault::new(FaultCode::Usage, Blame::Local, "a stream goes into no other stream"))
        }
        (JobSource::Remote(from, paths), JobDestination::Remote(to, path)) => {
            let ends = (from, paths, to, path, (job.following, job.dialler));
            return order::carried_out(&run, credentials, ends, &*observer, begun).await;
        }
    };
    if result.is_ok() {
        known.remember().await;
    }
    let report = conclude(result, &*observer, begun);
    let ways = WayFigures { paths: paths.figures(), ssh: costs.figures(), ..report.ways };
    Report { ways, ..report }
}

fn at_daemon(credentials: Option<Credentials>, reach: Reach) -> Result<Remote, Fault> {
    let missing = || Fault::new(FaultCode::Usage, Blame::Local, format_args!("there is no key to show to {reach}"));
    Ok(credentials.ok_or_else(missing)?.at(reach))
}

/// Where the threads of a run with these settings work.
fn affinity(settings: &Settings) -> Result<Affinity, Fault> {
    Affinity::new(&settings.pin).map_err(|e| Fault::new(FaultCode::Usage, Blame::Local, e))
}

fn conclude(result: Result<Totals, Fault>, observer: &dyn Observer, begun: Instant) -> Report {
    let mut totals = result.unwrap_or_else(Totals::ended_by);
    let losses = std::mem::take(&mut totals.losses).into_rows();
    losses.into_iter().for_each(|loss| observer.event(Event::NotKept(loss)));
    if let Some(fault) = &totals.fault {
        observer.event(Event::Fault(fault.clone()));
    }
    let road = totals.road(begun);
    let ways = WayFigures { road, ..WayFigures::default() };
    Report { ways, ..totals.into_report(begun.elapsed().as_secs_f64()) }
}

pub(crate) struct Run {
    pub(crate) settings: Settings,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) stop: Stop,
    pub(crate) paths: Paths,
    /// The path to the daemon, as earlier runs left it.
    pub(crate) known: KnownPath,
    pub(crate) segments: Segments,
    pub(crate) udp: UdpWay,
    /// The cost of ssh, where that leads to the other host.
    pub(crate) ssh: SshCosts,
    /// Where the threads of its sessions work.
    pub(crate) affinity: Affinity,
    /// Hears of the lanes that this side dials.
    pub(crate) watch: Option<Arc<dyn DialObserver>>,
    /// How it publishes what it moves.
    pub(crate) publishing: Publishing,
    /// How it reads sources on this host.
    pub(crate) reading: SourceReading,
}

impl Run {
    /// A run whose lanes stay within this process.
    ///
    /// # Errors
    /// A usage fault for CPUs that this process may not use.
    pub(crate) fn within_process(settings: Settings, observer: Arc<dyn Observer>, stop: Stop) -> Result<Run, Fault> {
        let (affinity, paths, segments) = (affinity(&settings)?, Paths::new(&[]), Segments::new(0));
        let (udp, ssh, known) = (UdpWay::default(), SshCosts::default(), KnownPath::default());
        let (watch, publishing, reading) = (None, Publishing::default(), SourceReading::default());
        Ok(Run { settings, observer, stop, paths, known, segments, udp, ssh, affinity, watch, publishing, reading })
    }

    async fn push(self, sources: Vec<LocalSource>, remote: &Remote, path: RemotePath) -> Result<Totals, Fault> {
        let contents = sources.iter().any(|s| s.contents);
        let count = sources.len();
        budget::slots(self.settings.memory, self.settings.chunk_size())?;
        let (tree, shape) = self.local_sources(sources).await?;
        if let Some(totals) = missing::here(&shape, &*self.observer) {
            return Ok(totals);
        }
        let asked = place::placing(self.is_dataset() || path.slash, count, contents, &shape);
        self.push_tree((tree, asked), remote, path).await
    }

    /// The same of any tree, whose names are placed so.
    pub(super) async fn push_tree(
        self,
        (tree, asked): (Arc<dyn SourceTree>, Placing),
        remote: &Remote,
        path: RemotePath,
    ) -> Result<Totals, Fault> {
        let slots = budget::slots(self.settings.memory, self.settings.chunk_size())?;
        let chunk_max = budget::largest_chunk(self.settings.memory, self.settings.chunk_size());
        let (mut course, mut dialling) = (SendCourse::default(), self.dialling()?);
        course.totals.stages_all = self.is_listed_dataset();
        if self.may_speak_ahead() {
            dialling.first = Some(FirstPage::begin(tree.clone(), self.wanted(), self.settings.chunk_size())?);
        }
        loop {
            // What the first session found there decides for all: it may since have made a
            // directory of that name.
            let placing = match &course.renamed {
                None => asked,
                Some(None) => Placing::Beneath,
                Some(Some(_)) => Placing::Named,
            };
            let (root, path) = (path.root.clone(), path.path.clone());
            let far = Far::Destination { root, path, placing, if_exists: self.settings.if_exists };
            let agreed = self.agree(remote, Role::Sender, far.into(), slots, chunk_max, &mut dialling).await;
            if let Some(first) = dialling.first.take() {
                course.began(first);
            }
            if agreed.is_err() {
                course.offer_first_page_again();
            }
            let ended = match agreed {
                Ok(agreed) => {
                    if self.is_listed_dataset() && dialling.sessions > 0 {
                        course.offer_all_again();
                    }
                    dialling.sessions += 1;
                    self.push_once(agreed, &tree, &mut course).await
                }
                // The connection was lost right behind the end.
                Err(fault) if fault.code == FaultCode::Published && dialling.sessions > 0 => {
                    self.has_appeared(&fault, &mut course);
                    return Ok(course.totals);
                }
                Err(fault) => Err(fault),
            };
            let Err(fault) = ended else { return Ok(course.totals) };
            if let Err(fault) = self.wait(fault, course.progressed, &mut dialling).await {
                course.totals.fault = Some(fault);
                return Ok(course.totals);
            }
        }
    }

    /// Whether a push may say its first page, and small files, before the daemon has answered. One
    /// that does not keep the claim, does not stage a dataset, or does not know the metadata that
    /// is to be carried or the checksums, would make what it should not.
    fn may_speak_ahead(&self) -> bool {
        let Publishing { claim, dataset, .. } = &self.publishing;
        claim.is_none() && dataset.is_none() && !self.settings.metadata.preserve.may_lose()
    }

    /// One session of a push.
    async fn push_once(
        &self,
        agreed: Agreed,
        tree: &Arc<dyn SourceTree>,
        course: &mut SendCourse,
    ) -> Result<(), Fault> {
        let slots = budget::slots(self.settings.memory, agreed.welcome.chunk_max)?;
        let machinery = self.machinery(Role::Sender, slots, agreed.lanes_max, agreed.welcome.chunk_max)?;
        let plan = self.plan(&agreed, Role::Sender, SkippedDigests::Unwanted);
        let sending = plan.sending(tree.clone(), machinery, self.wanted(), false);
        self.send_within(agreed, (sending, &plan), |_| (), course).await
    }

    async fn pull(self, remote: &Remote, paths: Vec<RemotePath>, dest: &LocalDest) -> Result<Totals, Fault> {
        let wish = Wish::pull(&paths, self.settings.filter.rules().to_vec(), self.settings.files_from.clone());
        // Where ssh leads, lanes may go over TCP in a second session.
        let has_ways = matches!(remote.reach, Reach::Ssh(_)) && self.settings.transport == Transport::Udp;
        let again = !self.settings.retry_for.is_zero() || has_ways;
        let mut course = if again { ReceiveCourse::remembering() } else { ReceiveCourse::default() };
        let mut dialling = self.dialling()?;
        let opening = Opening {
            direct: self.settings.io,
            dry_run: self.settings.dry_run,
            // Of one source the daemon says in its answer whether it is a directory.
            placing: place::placing(
                self.is_dataset() || dest.slash,
                paths.len(),
                paths.iter().any(contents),
                &Shape::Other,
            ),
            may_modify: true,
            claim: self.publishing.claim,
            catalogue: dest.catalogue(),
        };
        // Resolved once: the first session may make a directory of that name.
        let at = LocalSite::new(dest, opening)?.for_dataset(self.dataset_wish())?;
        let mut site = Site { at, dest, is_settled: false };
        dialling.sync = site.at.sync_method();
        loop {
            let ended = self.pull_once(remote, &wish, &paths, &mut site, (&mut course, &mut dialling)).await;
            let Err(fault) = ended else { return Ok(course.totals) };
            if site.at.has_appeared() {
                return Ok(course.totals);
            }
            if !site.is_settled
                && let Some(totals) = missing::there(&fault, remote, &paths, &*self.observer)
            {
                return Ok(totals);
            }
            if let Err(fault) = self.wait(fault, course.progressed, &mut dialling).await {
                course.totals.fault = Some(fault);
                return Ok(course.totals);
            }
        }
    }

    /// One session of a pull.
    async fn pull_once(
        &self,
        remote: &Remote,
        wish: &Wish,
        paths: &[RemotePath],
        site: &mut Site<'_>,
        (course, dialling): (&mut ReceiveCourse, &mut Dialling),
    ) -> Result<(), Fault> {
        let (memory, chunk) = (self.settings.memory, self.settings.chunk_size());
        // What is left in a destination that stands says how large buffers must be; one that does
        // not is made only when the daemon has agreed.
        let mut standing = if site.at.stands() { Some(self.opened(&site.at)?) } else { None };
        let limit = budget::largest_chunk(memory, chunk);
        let chunk_max = standing.as_ref().map_or(chunk, |d| d.chunk_max(chunk).min(limit));
        let slots = budget::slots(memory, chunk_max)?;
        let agreed = self.agree(remote, Role::Receiver, wish.clone(), slots, chunk_max, dialling).await?;
        if site.settle(agreed.welcome.caps) {
            standing = None;
        }
        let destination = match standing {
            Some(destination) => destination,
            None => self.opened(&site.at)?,
        };
        self.receive_once(agreed, destination, paths, course).await
    }

    /// Begins the dials of a run: draws its secret and its patience.
    pub(crate) fn dialling(&self) -> Result<Dialling, Fault> {
        let run = nonce()?;
        let mut dice = [0; 8];
        dice.copy_from_slice(&nonce()?[..8]);
        let dice = u64::from_le_bytes(dice);
        Ok(Dialling {
            run,
            patience: Patience::new(self.settings.retry_for, Instant::now(), dice),
            sync: None,
            first: None,
            sessions: 0,
            grant: None,
        })
    }

    pub(crate) async fn wait(
        &self,
        fault: Fault,
        progressed: Option<Instant>,
        dialling: &mut Dialling,
    ) -> Result<(), Fault> {
        let is_datagrams = matches!(self.settings.transport, Transport::Quic | Transport::Udp);
        if is_datagrams && fault.code == FaultCode::TimedOut && self.udp.ends_run() {
            return Err(fault);
        }
        if fault.code == FaultCode::TimedOut && self.udp.goes_another_way() {
            dialling.patience.begin_anew(Instant::now(), fault, &self.observer);
            return Ok(());
        }
        dialling.patience.wait(fault, progressed, &self.observer, &mut self.stop.clone()).await
    }

    pub(crate) fn machinery(
        &self,
        role: Role,
        slots: usize,
        lanes: u32,
        chunk: ChunkSize,
    ) -> Result<SessionBuffers, Fault> {
        let (depth, engine, affinity) = (self.settings.depth, self.settings.engine, self.affinity.clone());
        let lanes = budget::lanes_to_read_for(TransportFacts::of(self.transport()).memory, lanes, slots);
        SessionBuffers::start(role, MemoryPlan { slots, lanes, depth, engine, chunk, affinity })
    }

    /// The check of what comes from sources of which the only one, if only one is named, keeps its
    /// `own` name.
    pub(crate) fn asked(&self, own: Option<&[u8]>) -> Allowed {
        let mut asked = Allowed::passing(self.settings.filter.clone());
        if !self.settings.metadata.preserve.links {
            asked = asked.without_links();
        }
        match &self.settings.files_from {
            Some(names) => asked.named(own.and_then(|name| RelPath::new(name).ok()).unwrap_or_default(), names.clone()),
            None => asked,
        }
    }

    /// The part of the sources that is sent.
    pub(crate) fn wanted(&self) -> ScanWish {
        ScanWish {
            filter: self.settings.filter.clone(),
            names: self.settings.files_from.clone(),
            preserve: self.settings.metadata.preserve,
            accounts: self.settings.metadata.accounts.clone(),
        }
    }

    /// Opens sources of this host, of which no two may have one name.
    async fn local_sources(&self, sources: Vec<LocalSource>) -> Result<(Arc<dyn SourceTree>, Shape), Fault> {
        let (direct, wanted) = (self.settings.io, self.wanted());
        let (tree, shape) = blocking(move || place::local_sources(&sources, direct, &wanted)).await?;
        Ok((self.reading.over(tree), shape))
    }
}

/// Where what is pulled goes, for all sessions of a run.
struct Site<'a> {
    at: LocalSite,
    dest: &'a LocalDest,
    /// Whether the daemon has said what the source is.
    is_settled: bool,
}

impl Site<'_> {
    /// Hears what the daemon says of its sources, once. Gives whether that moved the place.
    fn settle(&mut self, caps: u64) -> bool {
        if std::mem::replace(&mut self.is_settled, true) || !handshake::source_is_directory(caps) {
            return false;
        }
        let moved = self.at.for_directory(self.dest);
        std::mem::replace(&mut self.at, moved.clone()).is_renamed() != moved.is_renamed()
    }
}

/// A whole root is pulled as what lies in it: it has no name of its own beneath itself.
fn contents(source: &RemotePath) -> bool {
    source.slash || source.path.is_root()
}
