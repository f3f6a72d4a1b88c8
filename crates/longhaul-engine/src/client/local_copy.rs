//! Both ends of a transfer in this process: the same machines, digests and commits as between
//! hosts, over socket pairs.
//!
//! In: a source tree and a destination. Out: the totals of both halves in one. No daemon, no keys,
//! no network.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use longhaul_core::{Blame, ByteCount, ChunkSize, Fault, FaultCode, LaneId, Role, hint};
use longhaul_disk::{EngineKind, SourceTree};
use longhaul_net::{Identity, LaneStream, NetError, Protection};
use longhaul_proto::wire::message::{Placing, VERSION, Welcome};

use super::Run;
use super::missing;
use super::session::start;
use crate::api::{Direction, Event, FileStatus, LaneKind, LocalDest, LocalSource, Observer, Start};
use crate::budget::{self, LANES_DEFAULT, MemoryPlan, SessionBuffers};
use crate::journals::presence::Presence;
use crate::lanes::replace::Replacement;
use crate::lanes::{JoinedLane, StreamLane};
use crate::place::{self, LocalSite, Opening};
use crate::random::nonce;
use crate::session::allowed::Allowed;
use crate::session::control::ControlLink;
use crate::session::course::{ReceiveCourse, SendCourse};
use crate::session::handshake::Units;
use crate::session::opened::Destination;
use crate::session::plan::Plan;
use crate::session::sender::Sending;
use crate::session::totals::Totals;
use crate::session::{receiver, sender};

/// The I/O engines of both halves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engines {
    /// The I/O engine that reads.
    pub(crate) sender: EngineKind,
    /// The I/O engine that writes.
    pub(crate) receiver: EngineKind,
    /// Buffers hold noise, as nothing is read into them.
    pub(crate) noise: bool,
}

impl Run {
    /// Both halves in this process.
    pub(crate) async fn copy(self, sources: &[LocalSource], dest: &LocalDest) -> Result<Totals, Fault> {
        let contents = sources.iter().any(|s| s.contents);
        // Checked before anything is made.
        self.half_slots()?;
        let (source, shape) = self.local_sources(sources.to_vec()).await?;
        if let Some(totals) = missing::here(&shape, &*self.observer) {
            return Ok(totals);
        }
        let opening = Opening {
            direct: self.settings.io,
            dry_run: self.settings.dry_run,
            placing: place::placing(self.is_dataset() || dest.slash, sources.len(), contents, &shape),
            may_modify: true,
            claim: self.publishing.claim,
            catalogue: dest.catalogue(),
        };
        let own = match sources {
            [source] if !source.contents => source.path.file_name().map(OsStr::as_bytes),
            _ => None,
        };
        let landing = match &self.publishing.dataset {
            Some(name) => LocalDest { path: dest.path.join(OsStr::from_bytes(name.as_bytes())), ..dest.clone() },
            None => dest.clone(),
        };
        place::refuse_into_itself(sources, &landing, opening.placing, &self.asked(own))?;
        self.copy_to(source, &LocalSite::new(dest, opening)?.for_dataset(self.dataset_wish())?).await
    }

    /// Both halves in this process, for a list of files that stand where they are staged.
    pub(super) async fn copy_listed(self, list: Arc<dyn SourceTree>, dest: &LocalDest) -> Result<Totals, Fault> {
        self.half_slots()?;
        let opening = Opening {
            direct: self.settings.io,
            dry_run: false,
            placing: Placing::Beneath,
            may_modify: true,
            claim: self.publishing.claim,
            catalogue: dest.catalogue(),
        };
        self.copy_to(list, &LocalSite::new(dest, opening)?.for_dataset(self.dataset_wish())?).await
    }

    /// Copies to a site, in further sessions if a target of it failed whose siblings can take the
    /// rest.
    async fn copy_to(&self, source: Arc<dyn SourceTree>, site: &LocalSite) -> Result<Totals, Fault> {
        let engines = Engines { sender: self.settings.engine, receiver: self.settings.engine, noise: false };
        let (mut sends, mut receives) = (SendCourse::default(), ReceiveCourse::default());
        sends.totals.stages_all = self.is_listed_dataset();
        let mut dialling = self.dialling()?;
        loop {
            let (tree, destination) = (source.clone(), self.opened(site)?);
            let receiver = Arc::new(OwnTargets(self.observer.clone()));
            let mut courses = (sends, receives);
            self.halves_of(tree, destination, engines, receiver, (&mut courses.0, &mut courses.1)).await?;
            (sends, receives) = courses;
            merge_halves(&mut sends.totals, &mut receives.totals);
            let Some(fault) = sends.totals.fault.take_if(|fault| fault.code == FaultCode::TargetFailed) else {
                return Ok(sends.totals);
            };
            if let Err(fault) = self.wait(fault, sends.progressed, &mut dialling).await {
                sends.totals.fault = Some(fault);
                return Ok(sends.totals);
            }
        }
    }

    /// Opens a destination of this host, and tells if that keeps the claim.
    pub(super) fn opened(&self, site: &LocalSite) -> Result<Destination, Fault> {
        let destination = site.open()?;
        destination.claim.iter().for_each(|_| self.observer.claim_kept());
        Ok(destination)
    }

    /// Each half of a copy has half of the memory; the least that is allowed for both leaves two
    /// buffers to each.
    fn half_slots(&self) -> Result<usize, Fault> {
        budget::slots(self.settings.memory, self.settings.chunk_size()).map(|slots| slots / 2)
    }

    /// The same machines, digests and commits as between hosts, over socket pairs. `receiver` hears
    /// the receiving half.
    pub(crate) async fn embedded(
        self,
        tree: Arc<dyn SourceTree>,
        destination: Destination,
        receiver: Arc<dyn Observer>,
    ) -> Result<Totals, Fault> {
        self.embedded_course(tree, destination, receiver, &mut SendCourse::default()).await
    }

    /// The same, with the course of the sending half.
    pub(crate) async fn embedded_course(
        self,
        tree: Arc<dyn SourceTree>,
        destination: Destination,
        receiver: Arc<dyn Observer>,
        course: &mut SendCourse,
    ) -> Result<Totals, Fault> {
        let engines = Engines { sender: self.settings.engine, receiver: self.settings.engine, noise: false };
        let mut receives = ReceiveCourse::default();
        self.halves_of(tree, destination, engines, receiver, (course, &mut receives)).await?;
        let mut totals = std::mem::take(&mut course.totals);
        merge_halves(&mut totals, &mut receives.totals);
        Ok(totals)
    }

    /// The same, and what each half counted: of the sender's, processor time is that of the whole
    /// process.
    pub(crate) async fn halves(
        self,
        tree: Arc<dyn SourceTree>,
        destination: Destination,
        engines: Engines,
        hears_receiver: Arc<dyn Observer>,
    ) -> Result<(Totals, Totals), Fault> {
        let mut courses = (SendCourse::default(), ReceiveCourse::default());
        self.halves_of(tree, destination, engines, hears_receiver, (&mut courses.0, &mut courses.1)).await?;
        Ok((courses.0.totals, courses.1.totals))
    }

    /// One session, with the courses of both halves.
    async fn halves_of(
        &self,
        tree: Arc<dyn SourceTree>,
        destination: Destination,
        engines: Engines,
        hears_receiver: Arc<dyn Observer>,
        (sends, receives): (&mut SendCourse, &mut ReceiveCourse),
    ) -> Result<(), Fault> {
        let half = ByteCount(self.settings.memory.get() / 2);
        // As for a whole side, two buffers are enough for each half.
        let limit = budget::largest_chunk(self.settings.memory, self.settings.chunk_size());
        let chunk_max = destination.chunk_max(self.settings.chunk_size()).min(limit);
        let slots = usize::try_from(half.get() / chunk_max.bytes()).unwrap_or(usize::MAX);
        // In a stream each lane has a buffer that no chunk may wait in.
        let (units, lane_slots) = match destination.stream {
            Some(_) => (Units::Chunks, slots / 2),
            None => (Units::Any, slots),
        };
        let protection = self.settings.protect.unwrap_or(Protection::Safe);
        let welcome = self.welcome(units, chunk_max)?;
        let wanted = self.settings.lanes.unwrap_or(LANES_DEFAULT);
        let (near, far) = lane_pairs(protection, budget::lanes(wanted, lane_slots))?;
        let lanes = near.len() as u32;
        let means = |engine| MemoryPlan {
            slots,
            lanes,
            depth: self.settings.depth,
            engine,
            chunk: chunk_max,
            affinity: self.affinity.clone(),
        };
        let sender = SessionBuffers::start(Role::Sender, means(engines.sender))?;
        let receiver = SessionBuffers::start(Role::Receiver, means(engines.receiver))?;
        if engines.noise {
            sender.fill_with_noise();
        }
        let congestion = near.first().map_or_else(|| "-".to_owned(), JoinedLane::congestion);
        let facts = start(Direction::Copy, LaneKind::Pair, &welcome, (lanes, wanted), protection);
        let sync = destination.tree.sync_method();
        self.observer.event(Event::Start(Start { congestion, sync, ..facts }));
        let (ours, theirs) = tokio::io::duplex(CONTROL_PIPE_BYTES);
        let sending_plan = Plan::within_process(Role::Sender, &self.settings, &welcome, lanes);
        let receiving_plan = Plan::within_process(Role::Receiver, &self.settings, &welcome, lanes);
        let presence = destination.presence.clone();
        let sending = sending_plan.sending(tree, sender, self.wanted(), false);
        let sending = Sending { holes: self.reading.holes.clone(), ..sending };
        let receiving = receiving_plan.receiving(destination, receiver, Allowed::default());
        let hears_sender = Arc::new(OneHost(Arc::new(NoTargets(self.observer.clone()))));
        let near = self.half_link(ours, near, &sending_plan, hears_sender, Arc::default());
        let far = self.half_link(theirs, far, &receiving_plan, Arc::new(OneHost(hears_receiver)), presence);
        self.reading.is_paced_in([near.sink(), far.sink()]);
        let mut course = std::mem::take(receives);
        let receiver = tokio::spawn(async move {
            receiver::run(far, receiving, &mut course).await;
            course
        });
        sender::run(near, sending, sends).await;
        *receives = receiver
            .await
            .map_err(|e| Fault::new(FaultCode::Internal, Blame::Bug, format_args!("the receiving half died: {e}")))?;
        said_here(&mut sends.totals);
        said_here(&mut receives.totals);
        Ok(())
    }

    /// The answer of a daemon, had there been one.
    fn welcome(&self, units: Units, chunk_max: ChunkSize) -> Result<Welcome, Fault> {
        Ok(Welcome {
            version: VERSION,
            caps: 0,
            session: nonce()?,
            chunk: self.settings.chunk_size(),
            chunk_max,
            bundled_max: units.bundled_max(self.settings.chunk_size()),
            lanes_max: 0,
            rate: 0,
            memory_bytes: 0,
        })
    }

    /// The link of one half of a copy.
    fn half_link(
        &self,
        pipe: tokio::io::DuplexStream,
        lanes: Vec<JoinedLane>,
        plan: &Plan,
        observer: Arc<dyn Observer>,
        presence: Arc<Presence>,
    ) -> ControlLink {
        let (reader, writer) = tokio::io::split(pipe);
        let rules = plan.lane_rules(Replacement::Never);
        self.link_over((Box::new(reader), Box::new(writer)), lanes, observer, presence, rules)
    }
}

/// Lanes between two halves of this process.
fn lane_pairs(protection: Protection, count: u32) -> Result<(Vec<JoinedLane>, Vec<JoinedLane>), Fault> {
    let identities = match protection {
        Protection::Safe => None,
        Protection::Private => {
            let new = || Identity::generate().map_err(Fault::from);
            Some((new()?, new()?))
        }
    };
    let pair = |n: u32| {
        let (a, b) = match &identities {
            None => LaneStream::pair(),
            Some((a, b)) => LaneStream::pair_private(a, b),
        }
        .map_err(|e| pair_fault(&e))?;
        let joined = |stream| StreamLane { id: LaneId(n), stream, taken: true }.into();
        Ok((joined(a), joined(b)))
    };
    (0..count).map(pair).collect::<Result<Vec<_>, _>>().map(|pairs| pairs.into_iter().unzip())
}

/// Lanes within a process fail only where it has too many files open already.
fn pair_fault(error: &NetError) -> Fault {
    let fault = Fault::from(error);
    Fault { code: FaultCode::Exhausted, ..fault }.hint(hint::Storage::RaiseOpenFilesHere)
}

/// The sender's half is the one observed; the receiver's adds what only it knows.
pub(crate) fn merge_halves(totals: &mut Totals, received: &mut Totals) {
    totals.join(received);
    if let Some(theirs) = received.fault.take() {
        let ours = totals.fault.as_ref().map(|f| f.code);
        if ours.is_none_or(|code| matches!(code, FaultCode::Lost)) {
            totals.fault = Some(theirs);
        }
    }
}

/// The observer of a half of a copy: the other half is no stranger whose words were to be quoted.
struct OneHost(Arc<dyn Observer>);

impl Observer for OneHost {
    fn event(&self, event: Event) {
        self.0.event(match event {
            Event::File(mut file) => {
                if let FileStatus::Failed(fault) = file.status {
                    file.status = FileStatus::Failed(fault.said_here());
                }
                Event::File(file)
            }
            Event::Fault(fault) => Event::Fault(fault.said_here()),
            other => other,
        });
    }
}

fn said_here(totals: &mut Totals) {
    totals.fault = totals.fault.take().map(Fault::said_here);
}

/// The observer of the receiving half of a copy: the sending half tells everything else.
pub(crate) struct OwnTargets(pub(crate) Arc<dyn Observer>);

impl Observer for OwnTargets {
    fn event(&self, event: Event) {
        if matches!(event, Event::Targets(_) | Event::AtRisk(_)) {
            self.0.event(event);
        }
    }
}

/// The observer of the sending half of a copy: the receiving half tells of the targets, with their
/// directories.
struct NoTargets(Arc<dyn Observer>);

impl Observer for NoTargets {
    fn event(&self, event: Event) {
        if !matches!(event, Event::Targets(_)) {
            self.0.event(event);
        }
    }
}

/// An observer for the half of a copy that nobody watches.
pub(crate) struct Nobody;

impl Observer for Nobody {
    fn event(&self, _event: Event) {}
}

/// Bytes in flight between the control channels of two halves of one process.
const CONTROL_PIPE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod claimed;
#[cfg(test)]
mod tests;
