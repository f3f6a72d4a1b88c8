//! Runs a job whose source is a stream: a push to a daemon or a copy on this host of what the
//! standard input or a command gives, as one file.
//!
//! In: a [`StreamSpec`]. Out: the totals of the run. Half of the memory keeps what was read and is
//! not durable at the receiver, so that a session that is lost can be dialled again. The sessions
//! do the rest.

use std::sync::Arc;

use longhaul_core::limits::MEMORY_CHUNKS_MIN;
use longhaul_core::{Blame, ByteCount, Fault, FaultCode, IfExists, Role, hint};
use longhaul_disk::{SourceTree, StreamMemory, StreamSource, StreamSpec};
use longhaul_proto::wire::message::{Far, Placing};

use super::local_copy::OwnTargets;
use super::{Dialling, Run};
use crate::api::{Event, LocalDest, Observer, Remote, RemotePath, Settings, StartNote};
use crate::budget;
use crate::place::{LocalSite, Opening};
use crate::session::course::SendCourse;
use crate::session::handshake;
use crate::session::totals::Totals;
use crate::workers::blocking;

impl Run {
    /// Sends a stream to a path of a daemon.
    pub(crate) async fn push_from_stream(
        self,
        spec: StreamSpec,
        remote: &Remote,
        path: RemotePath,
    ) -> Result<Totals, Fault> {
        if path.slash || path.path.is_root() {
            return Err(no_file_name(remote.location(&path)));
        }
        let (run, memory) = self.for_input()?;
        let mut input = Input { spec, memory, course: None };
        let mut dialling = run.dialling()?;
        let totals = loop {
            let ended = run.push_stream_once(remote, &path, &mut input, &mut dialling).await;
            let progressed = input.course.as_ref().and_then(|(_, course)| course.progressed);
            let fault = match ended {
                Ok(()) => break input.take_totals(),
                Err(fault) => run.wait(fault, progressed, &mut dialling).await.err(),
            };
            if let Some(fault) = fault {
                let mut totals = input.take_totals();
                totals.fault = Some(fault);
                break totals;
            }
        };
        input.close();
        Ok(totals)
    }

    /// One session of a push.
    async fn push_stream_once(
        &self,
        remote: &Remote,
        path: &RemotePath,
        input: &mut Input,
        dialling: &mut Dialling,
    ) -> Result<(), Fault> {
        let chunk = self.settings.chunk_size();
        let slots = budget::slots(self.settings.memory, chunk)?;
        let (root, path) = (path.root.clone(), path.path.clone());
        let far = Far::Destination { root, path, placing: Placing::Named, if_exists: self.settings.if_exists };
        let agreed = self.agree(remote, Role::Sender, far.into(), slots, chunk, dialling).await?;
        if !handshake::takes_streams(agreed.welcome.caps) {
            let why = "the daemon is of a build that takes no files whose length is not known before they are sent";
            return Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint::Program::UseCompatible));
        }
        // Nothing is read, and no command is run, before somebody takes it.
        let (source, course) = input.opened(&self.settings).await?;
        let tree: Arc<dyn SourceTree> = source.clone();
        self.push_once(agreed, &tree, course).await
    }

    /// Writes a stream to a path of this host.
    pub(crate) async fn copy_from_stream(self, spec: StreamSpec, dest: &LocalDest) -> Result<Totals, Fault> {
        let shown = longhaul_core::Escaped(dest.path.as_os_str().as_encoded_bytes()).to_string();
        if dest.slash {
            return Err(no_file_name(shown));
        }
        let (run, memory) = self.for_input()?;
        let opening = Opening {
            direct: run.settings.io,
            dry_run: run.settings.dry_run,
            placing: Placing::BeneathIfDir,
            may_modify: true,
            claim: run.publishing.claim,
            catalogue: dest.catalogue(),
        };
        let site = LocalSite::new(dest, opening)?;
        if !site.is_renamed() {
            return Err(no_file_name(shown));
        }
        let destination = site.open()?;
        let mut input = Input { spec, memory, course: None };
        let (source, course) = input.opened(&run.settings).await?;
        let tree: Arc<dyn SourceTree> = source.clone();
        let hears_receiver = Arc::new(OwnTargets(run.observer.clone()));
        let totals = run.embedded_course(tree, destination, hears_receiver, course).await;
        input.close();
        totals
    }

    /// The run with the settings of a stream, and the memory that keeps what was read: half of all.
    fn for_input(mut self) -> Result<(Run, StreamMemory), Fault> {
        let (memory, chunk) = (self.settings.memory, self.settings.chunk_size());
        if memory.get() / chunk.bytes() < 2 * MEMORY_CHUNKS_MIN {
            let (least, chunk) = (2 * MEMORY_CHUNKS_MIN, ByteCount(chunk.bytes()));
            let why = format_args!(
                "a memory of {memory} holds fewer than {least} chunks of {chunk}, which a stream needs: half of it \
                 keeps what was read until it is durable"
            );
            return Err(Fault::new(FaultCode::Usage, Blame::Local, why).hint(hint::Memory::RaiseOrSmallerChunks));
        }
        self.settings.memory = ByteCount(memory.get() / 2);
        // The time of a stream is the one at which it began: no file that stands is the same.
        if self.settings.if_exists == IfExists::SkipSame {
            self.settings.if_exists = IfExists::Replace;
        }
        self.observer = Arc::new(SaysReadOnce(self.observer));
        let blocks = usize::try_from(self.settings.memory.get() / chunk.bytes()).unwrap_or(usize::MAX);
        let block_bytes = usize::try_from(chunk.bytes()).unwrap_or(usize::MAX);
        Ok((self, StreamMemory { block_bytes, blocks }))
    }
}

/// The input of a run, for all of its sessions.
struct Input {
    spec: StreamSpec,
    memory: StreamMemory,
    /// `None` before the first session that somebody agreed to.
    course: Option<(Arc<StreamSource>, SendCourse)>,
}

impl Input {
    /// The source and its course. It is opened at the first call.
    async fn opened(&mut self, settings: &Settings) -> Result<(&Arc<StreamSource>, &mut SendCourse), Fault> {
        if self.course.is_none() {
            let (spec, memory, dry_run) = (self.spec.clone(), self.memory, settings.dry_run);
            let open = move || if dry_run { unread(spec, memory) } else { StreamSource::open(spec, memory) };
            let source = Arc::new(blocking(move || open().map_err(|error| error.fault())).await?);
            let course = SendCourse::of_stream(source.clone());
            self.course = Some((source, course));
        }
        match &mut self.course {
            Some((source, course)) => Ok((source, course)),
            None => Err(Fault::new(FaultCode::Internal, Blame::Bug, "a stream that was opened and is not there")),
        }
    }

    fn take_totals(&mut self) -> Totals {
        self.course.as_mut().map(|(_, course)| std::mem::take(&mut course.totals)).unwrap_or_default()
    }

    /// Reads no more.
    fn close(&self) {
        if let Some((source, _)) = &self.course {
            source.close();
        }
    }
}

/// Says with the start of a run that nobody else can go on with it.
struct SaysReadOnce(Arc<dyn Observer>);

impl Observer for SaysReadOnce {
    fn lanes(&self, count: u32) {
        self.0.lanes(count);
    }

    fn claim_kept(&self) {
        self.0.claim_kept();
    }

    fn event(&self, event: Event) {
        self.0.event(match event {
            Event::Start(mut start) => {
                start.notes.push(StartNote::ReadOnce);
                Event::Start(start)
            }
            other => other,
        });
    }
}

/// A stream that only shows where it would go.
fn unread(spec: StreamSpec, memory: StreamMemory) -> Result<StreamSource, longhaul_disk::DiskError> {
    StreamSource::unread(spec, memory).inspect(StreamSource::close)
}

/// Refuses a destination that gives a stream no name.
fn no_file_name(dest: String) -> Fault {
    let why = format_args!("a stream has no name of its own, and '{dest}' is a directory");
    Fault::new(FaultCode::Usage, Blame::Local, why).about(dest).hint(hint::Names::NameFile)
}
