//! The end of a run with several destinations.
//!
//! In: how each of them ended, and the bytes that were read for all. Out: a line on standard error,
//! and an event. Each destination's own end is told by its narrator.

use std::io;

use longhaul_core::ByteCount;
use longhaul_engine::ReadingFigures;

use super::{JsonLines, Talker, units};
use crate::exit::Exit;

/// How a source went to several destinations.
#[derive(Clone, Copy, Debug)]
pub struct DeliveriesTold {
    /// The number of destinations.
    pub destinations: usize,
    /// The destinations that are complete.
    pub complete: usize,
    /// The bytes that were read, and taken.
    pub reading: ReadingFigures,
    /// The worst exit of all destinations.
    pub exit: Exit,
}

impl DeliveriesTold {
    /// Writes the event.
    ///
    /// # Errors
    /// The error of standard output.
    pub fn event(&self) -> io::Result<()> {
        JsonLines::new(io::stdout()).deliveries(self)
    }

    /// Says it to people.
    pub fn say(&self, talker: Talker) {
        let DeliveriesTold { destinations, complete, reading, .. } = *self;
        let destinations = units::count(destinations as u64, "destination");
        let read = ByteCount(reading.bytes_read);
        let taken = ByteCount(reading.bytes_taken);
        talker.say(format_args!(
            "{complete} of {destinations} complete; {read} read from the source, {taken} sent of it"
        ));
    }
}
