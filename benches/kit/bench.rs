//! The begin and the end that all benches share.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::data::{FileData, Scratch};
use super::longhaul::Longhaul;
use super::options::Options;
use super::record::Recorder;
use super::rounds::{Arrived, Course};

/// A bench that runs: its options, its scratch space, its record.
pub(crate) struct Bench {
    pub(crate) options: Options,
    pub(crate) scratch: Scratch,
    pub(crate) recorder: Recorder,
}

impl Bench {
    /// Begins, and prints the host. `tmpdir` is cargo's `CARGO_TARGET_TMPDIR`.
    pub(crate) fn start(name: &'static str, tmpdir: &str, options: Options) -> Result<Bench> {
        let target_dir = Path::new(tmpdir).parent().context("a build directory")?;
        let scratch = Scratch::new(options.dir.as_deref(), target_dir)?;
        let recorder = Recorder::new(name, options.quick, scratch.path(), target_dir)?;
        println!("{name}: {}", recorder.host().line());
        if options.quick {
            println!("--quick: the figures below mean little");
        }
        Ok(Bench { options, scratch, recorder })
    }

    /// The program under test, at `program`.
    pub(crate) fn longhaul(&self, program: &str) -> Result<Longhaul> {
        Longhaul::new(Path::new(program), self.scratch.subdir("home")?)
    }

    /// One big file at `name` of the scratch space, and the course of moving it into an empty
    /// directory there, which is given between the two: 4 GiB, or 256 MiB with `--quick`.
    pub(crate) fn big_file(&self, name: &str) -> Result<(FileData, PathBuf, Course)> {
        let source = self.scratch.file(name, self.options.amount(4 << 30, 256 << 20))?;
        let target = self.scratch.subdir("target")?;
        let course = Course {
            bytes: source.bytes,
            files: 1,
            source: Some(source.path.clone()),
            target: Some(target.clone()),
            arrived: Arrived::Removed,
            final_sync: false,
        };
        Ok((source, target, course))
    }

    /// Ends, and prints the path of the raw results.
    pub(crate) fn finish(self) {
        println!("raw results: {}", self.recorder.path().display());
    }
}
