//! Runs a job whose destination is a stream: a pull from a daemon, or a copy of what lies here, out
//! of one descriptor, in order.
//!
//! In: a [`StreamDest`]. Out: the totals of the run, with the figures of the stream. A session that
//! is lost is dialled again only as long as nothing has left: what a reader has taken cannot be
//! sent to it anew. `connect` and the session loops do the rest.

use std::sync::Arc;

use longhaul_core::{Blame, ByteCount, Fault, FaultCode, Role, hint};
use longhaul_disk::{DiskError, Shape, StreamForm, StreamOutput, StreamShape, StreamSink, VoidTarget};
use longhaul_proto::receiver::Landing;

use super::local_copy::Nobody;
use super::wish::Wish;
use super::{Dialling, Run, missing};
use crate::api::{LocalSource, Remote, RemotePath, Settings, StreamDest, StreamPlace, Transport};
use crate::budget;
use crate::session::course::ReceiveCourse;
use crate::session::handshake::{self, Units};
use crate::session::opened::Destination;
use crate::session::totals::Totals;
use crate::workers::blocking;

impl Run {
    /// Fetches paths of a daemon and writes them out.
    pub(crate) async fn pull_stream(
        self,
        remote: &Remote,
        paths: Vec<RemotePath>,
        dest: &StreamDest,
    ) -> Result<Totals, Fault> {
        one_file(dest, paths.len())?;
        let run = self.for_stream();
        let mut site = StreamSite::open(dest, &run.settings).await?;
        let mut totals = run.pull_out(remote, &paths, &mut site).await?;
        totals.stream = site.output.map(|output| output.figures());
        Ok(totals)
    }

    /// Reads what lies on this host and writes it out.
    pub(crate) async fn copy_stream(self, sources: &[LocalSource], dest: &StreamDest) -> Result<Totals, Fault> {
        one_file(dest, sources.len())?;
        let run = self.for_stream();
        let (source, shape) = run.local_sources(sources.to_vec()).await?;
        if let Some(totals) = missing::here(&shape, &*run.observer) {
            return Ok(totals);
        }
        if matches!(shape, Shape::Directory) {
            only_in_archive(dest)?;
        }
        let site = StreamSite::open(dest, &run.settings).await?;
        let mut totals = run.embedded(source, site.destination(), Arc::new(Nobody)).await?;
        totals.stream = site.output.map(|output| output.figures());
        Ok(totals)
    }

    /// The same run with settings that a stream can keep: holes are bytes, and no other transport
    /// is tried beside the one that lanes begin with, as it would take memory from chunks that
    /// wait. Lanes over UDP go back to TCP where they must: those over TCP come once these ended.
    fn for_stream(mut self) -> Run {
        self.settings.metadata.preserve.sparse = false;
        if self.settings.transport == Transport::Auto {
            self.settings.transport = Transport::Tcp;
        }
        self
    }

    async fn pull_out(&self, remote: &Remote, paths: &[RemotePath], site: &mut StreamSite) -> Result<Totals, Fault> {
        let wish = Wish::pull(paths, self.settings.filter.rules().to_vec(), self.settings.files_from.clone());
        let wish = wish.of_units(Units::Chunks);
        let mut course = ReceiveCourse::default();
        let mut dialling = self.dialling()?;
        loop {
            let ended = self.pull_out_once(remote, &wish, paths, site, (&mut course, &mut dialling)).await;
            let Err(fault) = ended else { return Ok(course.totals) };
            if !dialling.patience.met()
                && let Some(totals) = missing::there(&fault, remote, paths, &*self.observer)
            {
                return Ok(totals);
            }
            let again = match site.is_begun() {
                true if fault.retry() => Err(fault.hint(hint::Again::FromTheStart)),
                true => Err(fault),
                false => self.wait(fault, course.progressed, &mut dialling).await,
            };
            if let Err(fault) = again {
                course.totals.fault = Some(fault);
                return Ok(course.totals);
            }
        }
    }

    /// One session of a pull.
    async fn pull_out_once(
        &self,
        remote: &Remote,
        wish: &Wish,
        paths: &[RemotePath],
        site: &StreamSite,
        (course, dialling): (&mut ReceiveCourse, &mut Dialling),
    ) -> Result<(), Fault> {
        let (memory, chunk) = (self.settings.memory, self.settings.chunk_size());
        // Each lane has a buffer that no chunk may wait in: at most a quarter of them.
        let lane_slots = budget::slots(memory, chunk)? / 2;
        let agreed = self.agree(remote, Role::Receiver, wish.clone(), lane_slots, chunk, dialling).await?;
        if agreed.welcome.bundled_max > 0 {
            let why = "the daemon is of a build that cannot send files in the order of a stream";
            return Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint::Program::UseCompatible));
        }
        if handshake::source_is_directory(agreed.welcome.caps) {
            only_in_archive(&site.dest)?;
        }
        self.receive_once(agreed, site.destination(), paths, course).await
    }
}

/// A stream that is open for all sessions of a run.
struct StreamSite {
    dest: StreamDest,
    /// `None` in a dry run, in which nothing leaves.
    output: Option<Arc<StreamOutput>>,
}

impl StreamSite {
    /// Opens the place to which the stream goes. A fifo is waited for until it has a reader.
    async fn open(dest: &StreamDest, settings: &Settings) -> Result<StreamSite, Fault> {
        let StreamDest { place, shape } = dest.clone();
        let open = move || -> Result<Arc<StreamOutput>, DiskError> {
            let sink = match place {
                StreamPlace::Stdout => StreamSink::stdout()?,
                StreamPlace::Device(path) => StreamSink::device(&path)?,
            };
            StreamOutput::start(sink, shape)
        };
        block_size(&shape)?;
        let output = match settings.dry_run {
            true => None,
            false => Some(blocking(move || open().map_err(Fault::from)).await?),
        };
        Ok(StreamSite { dest: dest.clone(), output })
    }

    /// The destination of one session.
    fn destination(&self) -> Destination {
        match &self.output {
            Some(output) => Destination::stream(output, String::new()),
            None => Destination::fleeting(Arc::new(VoidTarget), Landing::beneath(), String::new()),
        }
    }

    fn is_begun(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.is_begun())
    }
}

fn block_size(shape: &StreamShape) -> Result<(), Fault> {
    if (StreamShape::BLOCK_BYTES_LEAST..=StreamShape::BLOCK_BYTES_MOST).contains(&shape.block_bytes) {
        return Ok(());
    }
    let (least, most) = (StreamShape::BLOCK_BYTES_LEAST as u64, StreamShape::BLOCK_BYTES_MOST as u64);
    let why = format_args!("a block has {} to {}", ByteCount(least), ByteCount(most)).to_string();
    Err(Fault::new(FaultCode::Usage, Blame::Local, why))
}

/// Refuses several sources where one file goes out.
fn one_file(dest: &StreamDest, sources: usize) -> Result<(), Fault> {
    if sources == 1 || dest.shape.form == StreamForm::Tar {
        return Ok(());
    }
    let why = "several sources do not go into one stream, unless it is an archive";
    Err(Fault::new(FaultCode::Usage, Blame::Local, why).hint(hint::Program::StreamAsArchive))
}

/// Refuses a directory where one file goes out.
fn only_in_archive(dest: &StreamDest) -> Result<(), Fault> {
    if dest.shape.form == StreamForm::Tar {
        return Ok(());
    }
    let why = "the source is a directory, which goes into no stream, unless it is an archive";
    Err(Fault::new(FaultCode::Usage, Blame::Local, why).hint(hint::Program::StreamAsArchive))
}
