//! A source that is one stream of bytes: what the standard input or a command gives, read once.
//!
//! In: an input, how much of it may be kept, and what proves its end. Out: a tree of one file. A
//! stream that ends within its first block is offered as a file of known length, any other as a
//! stream. Bytes are kept until they are said to be durable, so that they can be sent again.

mod input;
mod kept;

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::digest::{Hash32, digest_of};
use longhaul_core::limits::STREAM_BYTES_MAX;
use longhaul_core::{Blame, DigestKind, Entry, EntryKind, Fault, FaultCode, FileOffset, Inode, Meta, Mtime, RelPath};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

pub use self::input::StreamFrom;
use self::input::{InputPipe, RunningCommand};
use self::kept::KeptBlocks;
pub use self::kept::StreamSoFar;
use super::{ScanRequest, Scanned, SourceFile, SourceRef, SourceTree};
use crate::bytes::ReadAt;
use crate::error::DiskError;
use crate::stat::Identity;

/// A stream to send: where it comes from, and what proves its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    /// Where its bytes come from.
    pub from: StreamFrom,
    /// The length that it must have. `None`: any.
    pub expect_bytes: Option<u64>,
    /// The root (BLAKE3) that it must have. `None`: any.
    pub expect_root: Option<Hash32>,
}

/// How much of a stream is kept, and in which blocks.
#[derive(Clone, Copy, Debug)]
pub struct StreamMemory {
    /// The bytes of a block: a power of two.
    pub block_bytes: usize,
    /// Blocks that are kept, 2 at least.
    pub blocks: usize,
}

/// See the module. [`StreamSource::close`] ends it.
#[derive(Debug)]
pub struct StreamSource {
    spec: StreamSpec,
    kept: Arc<KeptBlocks>,
    memory: StreamMemory,
    inode: Inode,
    meta: Meta,
    /// The command that is read. `None` for any other input, and where nothing is read.
    command: Option<RunningCommand>,
}

impl std::fmt::Debug for KeptBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptBlocks").finish_non_exhaustive()
    }
}

impl StreamSource {
    /// Opens a stream and begins to read it.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(spec: StreamSpec, memory: StreamMemory) -> Result<StreamSource, DiskError> {
        let pipe = spec.from.open()?;
        let command = pipe.command();
        let source = StreamSource { command, ..StreamSource::unread(spec, memory)? };
        let (kept, expected) = (source.kept.clone(), source.spec.clone());
        std::thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || fill(pipe, &kept, &expected))
            .map_err(|error| DiskError::call("start a thread for", source.spec.from.name(), error))?;
        Ok(source)
    }

    /// A stream of which nothing is read, as nothing is to be sent.
    ///
    /// # Errors
    /// The system's error.
    pub fn unread(spec: StreamSpec, memory: StreamMemory) -> Result<StreamSource, DiskError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)
            .map_err(|error| DiskError::call("name", spec.from.name(), io::Error::other(error)))?;
        let (dev, ino) = (u64::from_le_bytes(half(&random[..8])), u64::from_le_bytes(half(&random[8..])));
        let now = now();
        let kept = Arc::new(KeptBlocks::new(memory.block_bytes, memory.blocks));
        let (inode, meta) = (Inode::of_stream(dev, ino, now), Meta::new(0o666 & !umask(), now));
        Ok(StreamSource { spec, kept, memory, inode, meta, command: None })
    }

    /// How far it is.
    pub fn so_far(&self) -> StreamSoFar {
        self.kept.so_far()
    }

    /// Calls `watch` from now on whenever it has come further.
    pub fn watch(&self, watch: impl Fn() + Send + 'static) {
        self.kept.watch(Box::new(watch));
    }

    /// Lets go of bytes that are durable at the receiver.
    pub fn release(&self, start: u64, len: u64) {
        self.kept.release(start, len);
    }

    /// Checks the root of all that was read.
    ///
    /// # Errors
    /// A [`Fault`] if it is not the one that was expected.
    pub fn prove(&self, root: Hash32) -> Result<(), Fault> {
        match self.spec.expect_root {
            Some(expected) if expected != root => Err(other_root()),
            _ => Ok(()),
        }
    }

    /// Reads no more, as nobody wants any: ends the command that it reads from, and its scan.
    pub fn close(&self) {
        self.kept.close();
        if let Some(command) = &self.command {
            command.stop();
        }
    }

    /// The entry of the whole stream, as far as it is known.
    fn entry(&self, so_far: &StreamSoFar) -> Option<Entry> {
        let kind = match (&so_far.end, so_far.bytes) {
            (Some(Ok(())), len) if len <= self.memory.block_bytes as u64 => {
                EntryKind::File { len, sparse: false, inode: self.inode }
            }
            _ => EntryKind::Stream { inode: self.inode, kept_bytes: self.kept_bytes() },
        };
        Some(Entry { path: own_path()?, kind, meta: self.meta.clone() })
    }

    fn kept_bytes(&self) -> u64 {
        (self.memory.block_bytes as u64).saturating_mul(self.memory.blocks as u64)
    }

    fn identity(&self, len: u64) -> Identity {
        let Inode { dev, ino, ctime } = self.inode;
        Identity { dev, ino, len, mtime: self.meta.mtime, ctime }
    }

    /// Gives an entry to a sink.
    fn give(&self, so_far: &StreamSoFar, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        let Some(entry) = self.entry(so_far) else { return };
        let len = if let EntryKind::File { len, .. } = entry.kind { len } else { STREAM_BYTES_MAX };
        let (source, identity) = (SourceRef::new(entry.path.clone()), self.identity(len));
        let _ = sink(Scanned::Entry { entry, source, identity });
    }
}

impl SourceTree for StreamSource {
    /// Gives the one entry as soon as it is known whether it is longer than a block, and returns
    /// when all of it was read.
    fn scan(&self, _what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        self.give(&self.kept.wait_for_more_than_a_block(), sink);
        self.kept.wait_for_end();
    }

    fn open(&self, _at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        let bytes = Box::new(KeptBytes(self.kept.clone()));
        Ok(Arc::new(SourceFile::of(self.spec.from.name(), *expect, bytes)))
    }
}

/// The bytes of a stream that are kept.
#[derive(Debug)]
struct KeptBytes(Arc<KeptBlocks>);

impl ReadAt for KeptBytes {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
}

/// Reads an input to its end, block by block.
fn fill(mut pipe: InputPipe, kept: &KeptBlocks, expected: &StreamSpec) {
    let mut whole = 0;
    while let Some(mut block) = kept.next_buffer() {
        let mut len = 0;
        while len < block.len() {
            match pipe.read(&mut block[len..]) {
                Ok(0) => return kept_to_end(&mut pipe, kept, expected, (block, len, whole)),
                Ok(read) => {
                    kept.read(read);
                    len += read;
                }
                Err(fault) => return kept.end(Err(fault)),
            }
        }
        whole += len as u64;
        kept.filled(block, len);
    }
}

/// Keeps the last block of an input, and checks how it ended.
fn kept_to_end(pipe: &mut InputPipe, kept: &KeptBlocks, expected: &StreamSpec, last: (Vec<u8>, usize, u64)) {
    let (block, len, whole) = last;
    let total = whole + len as u64;
    let is_short = whole == 0;
    let root = is_short.then(|| *digest_of(&block[..len], DigestKind::Root, FileOffset(0)).bytes());
    let proven = pipe.end().and_then(|()| match (expected.expect_bytes, expected.expect_root) {
        (Some(bytes), _) if bytes != total => Err(other_length(bytes, total)),
        (_, Some(expected)) if root.is_some_and(|root| root != expected) => Err(other_root()),
        _ => Ok(()),
    });
    if len > 0 {
        kept.filled(block, len);
    }
    kept.end(proven);
}

fn other_length(expected: u64, total: u64) -> Fault {
    let why = format_args!("the stream ended after {total} bytes, and {expected} were expected");
    Fault::new(FaultCode::Mismatch, Blame::Local, why)
}

fn other_root() -> Fault {
    Fault::new(FaultCode::Mismatch, Blame::Local, "the stream does not have the BLAKE3 digest that was expected")
}

/// The path of the one file. It takes the name of its destination.
fn own_path() -> Option<RelPath> {
    RelPath::new("-").ok()
}

fn half(bytes: &[u8]) -> [u8; 8] {
    let mut half = [0; 8];
    half.copy_from_slice(bytes);
    half
}

/// The time of this host.
fn now() -> Mtime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Mtime::said(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}

/// The permission bits that this process takes from files that it makes. If the system does not say
/// them, everything is taken that others would have.
fn umask() -> u32 {
    let said = || {
        let path = "/proc/self/status";
        let mut text = String::new();
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        File::from(fd).read_to_string(&mut text).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Umask:"))?;
        u32::from_str_radix(line.trim(), 8).ok()
    };
    said().unwrap_or(0o077)
}
