//! The sources of a transfer on this host: paths, or one stream of bytes.
//!
//! In: the sources as they were written, and the options of what is read. Out: the source of a job.
//! Owns the rules of what a stream that is read goes together with. Opens nothing.

use std::ffi::OsString;

use longhaul_engine::{JobSource, LocalSource, StreamFrom, StreamSpec, TargetDirs};

use super::out::Here;
use crate::error::Error;
use crate::location::LocalPath;
use crate::output::EndOfStream;
use crate::settings::{InputSettings, TransferSettings};

/// Sources on this host.
#[derive(Clone, Debug)]
pub(super) enum SourcesHere {
    /// Paths.
    Paths(Vec<LocalPath>),
    /// A stream, which is read once.
    Stream(StreamSpec),
}

impl SourcesHere {
    /// Reads the sources: a command if one is given, standard input if they are `-`.
    pub(super) fn stream(sources: &[OsString], input: &InputSettings) -> Result<Option<StreamSpec>, Error> {
        let wrong = |why, hint| Err(Error::Combination { why, hint });
        let InputSettings { command, expect_bytes, expect_root } = input.clone();
        let is_stdin = sources.iter().any(|source| source == STDIN);
        let from = match (command, sources) {
            (Some(_), [_, ..]) => {
                return wrong("--from-command is the one source, but another is given", "leave one of them out");
            }
            (Some(command), []) => StreamFrom::Command(command),
            (None, [_]) if is_stdin => StreamFrom::Stdin,
            (None, _) if is_stdin => {
                let why = "'-' is standard input, which goes alone, but other sources are given";
                return wrong(why, "run one command for each; ./- is a file of this name");
            }
            (None, _) if expect_bytes.is_some() || expect_root.is_some() => {
                let why = "--expect-bytes and --expect-b3 prove the end of a stream, and the source is none";
                return wrong(why, "leave them out, or give '-' or --from-command as the source");
            }
            (None, _) => return Ok(None),
        };
        Ok(Some(StreamSpec { from, expect_bytes, expect_root }))
    }

    /// The paths. None of a stream.
    pub(super) fn paths(&self) -> &[LocalPath] {
        match self {
            SourcesHere::Paths(paths) => paths,
            SourcesHere::Stream(_) => &[],
        }
    }

    /// Sends the content of the sources, not the sources themselves.
    pub(super) fn mean_contents(&mut self) {
        if let SourcesHere::Paths(paths) = self {
            paths.iter_mut().for_each(|source| source.slash = true);
        }
    }

    /// Whether anything proves the end of a stream.
    pub(super) fn end_of_stream(&self) -> EndOfStream {
        match self {
            SourcesHere::Paths(_) => EndOfStream::NoStream,
            SourcesHere::Stream(StreamSpec { from: StreamFrom::Stdin, expect_bytes: None, expect_root: None }) => {
                EndOfStream::NotProven
            }
            SourcesHere::Stream(_) => EndOfStream::Proven,
        }
    }

    /// Refuses what does not go together with a stream, before anything is opened.
    pub(super) fn check(&self, dest: Option<&Here>, settings: &TransferSettings) -> Result<(), Error> {
        let SourcesHere::Stream(_) = self else { return Ok(()) };
        let wrong = |why, hint| Err(Error::Combination { why, hint });
        if dest.is_some_and(Here::is_stream) {
            return wrong("a stream goes into a file, but DEST is a stream too", "connect the two with a pipe");
        }
        if settings.engine.files_from.is_some() || !settings.engine.filter.rules().is_empty() {
            let why = "--files-from, --include and --exclude choose files, and a stream is one";
            return wrong(why, "leave them out");
        }
        Ok(())
    }

    /// The same for the engine, beneath a set if one is given.
    pub(super) fn job(self, set: Option<TargetDirs>) -> JobSource {
        match self {
            SourcesHere::Paths(paths) => {
                let source = |LocalPath { path, slash }| LocalSource { path, contents: slash, set: set.clone() };
                JobSource::Local(paths.into_iter().map(source).collect())
            }
            SourcesHere::Stream(spec) => JobSource::Stream(spec),
        }
    }
}

/// The source that means standard input.
const STDIN: &str = "-";
