//! `bench matrix`: memory or disk to memory or disk, within this process.
//!
//! In: parsed arguments. Out: a table or a line for each run on standard output. Its files are
//! removed in each case.

use std::path::PathBuf;

use longhaul_engine::{CellReport, CellRun, IoMode, Protection, Settings, Stop, bench_cell, io_mode};

use super::Ended;
use super::ground::Ground;
use crate::cli::BenchMatrixArgs;
use crate::commands::{self, Context};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, MatrixCell, MatrixTelling, Talker};
use crate::settings::{self, MatrixBench, Talk};
use crate::signals::{self, Asking, Hangup};

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &BenchMatrixArgs, context: Context) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(&args.talk, &layers)?;
    context.talk(talk);
    let measured = settings::matrix_bench(args, &layers).and_then(|bench| measure(bench, talk));
    Ok(measured.unwrap_or_else(|error| output::refuse(talk.json, error)))
}

fn measure(bench: MatrixBench, talk: Talk) -> Result<Exit, Error> {
    let (trigger, stop) = Stop::new();
    // Signals are watched before any file is made: from here on a signal ends the run, and not the
    // process.
    signals::watch(Asking::default(), Hangup::Stops, move |code| trigger.stop(code))
        .map_err(Error::file("watch the signals of", "this process"))?;
    commands::block_on(async move {
        let matrix = Matrix { ground: Ground::new(&bench.dir, bench.bytes)?, bench, stop };
        let mut telling = MatrixTelling::new(talk, matrix.bench.rounds);
        let ended = matrix.measure(&mut telling).await;
        if let Err(error) = matrix.ground.remove() {
            Talker::new(talk).fault(&error.into());
        }
        match ended {
            Ok(()) => Ok(telling.end(None)),
            Err(Ended::Stdout(error)) => Ok(output::stdout_failed(error)),
            Err(Ended::Fault(fault)) => Ok(telling.end(Some(fault))),
        }
    })?
}

struct Matrix {
    ground: Ground,
    bench: MatrixBench,
    stop: Stop,
}

impl Matrix {
    async fn measure(&self, telling: &mut MatrixTelling) -> Result<(), Ended> {
        let source = self.prepare().await?;
        let mode = io_mode(&source, self.bench.engine.io).map_err(Ended::Fault)?;
        if mode == IoMode::Buffered {
            telling.buffered(&self.bench.dir);
        }
        for round in 0..self.bench.rounds {
            telling.begin(round);
            for cell in MatrixCell::round(round) {
                if cell.from_disk {
                    self.ground.cool(&source)?;
                }
                let run = CellRun {
                    from: cell.from_disk.then(|| source.clone()),
                    to: cell.to_disk.then(|| self.ground.target()),
                    bytes: self.bench.bytes.get(),
                };
                let report = self.cell(run, cell.protect).await?;
                self.ground.clear()?;
                telling.tell(cell, round, &report).map_err(Ended::Stdout)?;
            }
        }
        Ok(())
    }

    /// Makes the file to read, as a transfer makes files: past the page cache, synced.
    async fn prepare(&self) -> Result<PathBuf, Ended> {
        let dir = self.ground.source();
        let run = CellRun { from: None, to: Some(dir.clone()), bytes: self.bench.bytes.get() };
        self.cell(run, Protection::Safe).await?;
        self.ground.clear()?;
        // The source in memory is one file.
        Ok(dir.join(longhaul_engine::NOISE_NAME))
    }

    async fn cell(&self, run: CellRun, protect: Protection) -> Result<CellReport, Ended> {
        let settings = Settings { protect: Some(protect), ..self.bench.engine.clone() };
        let report = bench_cell(run, settings, self.stop.clone()).await;
        report.fault.clone().map_or(Ok(report), |fault| Err(Ended::Fault(fault)))
    }
}
