//! The output for users and scripts: JSON events on standard output, messages on standard error.
//!
//! In: the engine's events and report, errors of this program. Out: lines. One place prints errors
//! ([`Talker::fault`]). One thread takes events ([`Speaker`]), so that a slow reader never holds a
//! lock of the session. All of standard error goes through one screen, so that lines and the bar
//! stay apart. Decides nothing.

mod admin;
mod bar;
mod bench;
mod causes;
mod check;
mod closing;
mod consistency;
mod deliveries;
mod events;
mod hints;
mod human;
mod job;
mod label;
mod log;
mod manifest;
mod meter;
mod narrator;
mod plot;
mod progress;
mod removal;
mod road;
mod screen;
mod set;
mod slow;
mod speaker;
mod sync;
mod units;
mod version;
mod voice;
mod words;

pub use admin::{
    AdminClientBody, AdminDoneBody, AdminForm, AdminGrantBody, AdminLoadBody, AdminMoverBody, AdminRootBody,
    AdminSessionBody, AdminStatusBody, AdminStoredBody, AdminTelling,
};
pub use bench::{
    FillTelling, IopsTelling, LabTelling, MatrixCell, MatrixTelling, NetTelling, PileupTelling, ScanTelling,
    SweepTelling,
};
pub use check::{CheckTelling, Checked};
pub use closing::EndOfStream;
pub use consistency::ConsistencyTelling;
pub use deliveries::DeliveriesTold;
pub use events::{JsonLines, Listening, Summary};
pub(crate) use human::without_numbers;
pub use human::{Talker, clean};
pub use job::{CampaignTold, JobTelling, ShardToldEnd, VerifyTold, exit_of_campaign};
pub use label::set_color;
pub use log::{ClientLog, JsonLog, LogLines, json_line};
pub use manifest::{ItemForm, ManifestTelling};
pub use narrator::{End, Narrator, Telling};
pub use plot::plot_text;
pub use progress::Show;
pub use removal::{RemovalFinding, RemovalTelling};
pub use screen::leave_screen;
pub use set::{SetTelling, TellsFiles};
pub use speaker::Speaker;
pub use sync::{SyncCounts, SyncTold};
pub(crate) use units::{bits, bytes_rate, span};
pub use units::{count, rate, time};
pub use version::VersionBody;

use std::io;

use longhaul_core::Fault;

use crate::error::Error;
use crate::exit::Exit;
use crate::settings::Talk;

/// Tells why a command ended before it had anything to report: on standard error, and as `fault`
/// and `summary` events if events were asked for.
pub fn refuse(json: bool, error: Error) -> Exit {
    let fault = Fault::from(error);
    let exit = Exit::from(fault.code);
    Talker::new(Talk::default()).fault(&fault);
    if json {
        let mut lines = JsonLines::new(io::stdout());
        // If standard output is gone, that cannot be told, and the exit code says the rest.
        let _ = lines.fault(&fault).and_then(|()| lines.summary(&Summary::nothing(exit)));
    }
    exit
}

/// The exit of a command that could not write to standard output. Nothing is printed if it has no
/// reader any more.
pub fn stdout_failed(error: io::Error) -> Exit {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Exit::BrokenPipe;
    }
    refuse(false, Error::file("write to", "standard output")(error))
}
