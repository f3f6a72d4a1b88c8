//! The common frame of the measurements of disks: options, signals, the plot's file, and the end.
//!
//! In: parsed arguments and a measurement. Out: an exit code. It writes the plot's file and no
//! other.

#![allow(clippy::disallowed_methods, reason = "the plot goes to the file that the user named")]

use std::fs;
use std::path::Path;

use longhaul_core::FaultCode;
use longhaul_engine::Stop;

use super::Ended;
use crate::cli::TalkOptions;
use crate::commands::Context;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, LabTelling, plot_text};
use crate::settings::{self, LabTalk, Layers, Talk};
use crate::signals::{self, Asking, Hangup};
use crate::values::PlotPlace;

/// Runs a measurement: merges its options, watches signals, measures, draws and ends.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run<B, T: LabTelling>(
    (talk_options, context): (&TalkOptions, Context),
    merge: impl FnOnce(&Layers) -> Result<(B, LabTalk), Error>,
    telling: impl FnOnce(Talk, &B) -> T,
    measure: impl FnOnce(B, &mut T, &Stop) -> Result<(), Ended>,
) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(talk_options, &layers)?;
    context.talk(talk);
    let merged = merge(&layers).and_then(|(bench, lab)| {
        // Hours may pass until it is written: that it can be is tried first.
        lab.plot.iter().try_for_each(|place| write(&place.path, ""))?;
        Ok((bench, lab))
    });
    let (bench, lab) = match merged {
        Ok(merged) => merged,
        Err(error) => return Ok(output::refuse(talk.json, error)),
    };
    let (trigger, stop) = Stop::new();
    signals::watch(Asking::default(), Hangup::Stops, move |code| trigger.stop(code))
        .map_err(Error::file("watch the signals of", "this process"))?;
    let mut telling = telling(talk, &bench);
    let ended = measure(bench, &mut telling, &stop);
    let drawn = lab.plot.map_or(Ok(()), |place| draw(&place, &telling));
    Ok(match (ended, drawn) {
        (Err(Ended::Stdout(error)), _) => output::stdout_failed(error),
        (Err(Ended::Fault(fault)), _) => telling.end(Some(match fault.code {
            FaultCode::NoSpace => fault.hint_in_words("measure with smaller or fewer files, or another directory"),
            _ => fault,
        })),
        (Ok(()), Err(error)) => telling.end(Some(error.into())),
        (Ok(()), Ok(())) => telling.end(None),
    })
}

fn draw(place: &PlotPlace, telling: &impl LabTelling) -> Result<(), Error> {
    let content = plot_text(place.form, &telling.panels(), telling.table());
    write(&place.path, &content.map_err(Error::file("draw", &place.path))?)
}

fn write(path: &Path, content: &str) -> Result<(), Error> {
    fs::write(path, content).map_err(Error::file("write", path))
}
