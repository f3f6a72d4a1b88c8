//! The events of a world in lines, for the reader of a seed that failed. If it is off, it costs one
//! test of a flag.

use longhaul_proto::Timestamp;

/// The lines of one world.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    on: bool,
    lines: Vec<String>,
}

impl Trace {
    pub(crate) fn new(on: bool) -> Trace {
        Trace { on, lines: Vec::new() }
    }

    pub(crate) fn say(&mut self, now: Timestamp, line: impl FnOnce() -> String) {
        if self.on {
            self.lines.push(format!("{:>12.3} ms  {}", now.0 as f64 / 1000.0, line()));
        }
    }

    /// The lines so far.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines
    }
}
