//! Grants measurements: transfers between a client's memory and this daemon's, through the lanes,
//! digests and machines of any other transfer.
//!
//! In: a client's request. Out: a measurement, which is bounded here whatever the request is; or a
//! refusal that says what would allow it. It touches no disk.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::filter::Filter;
use longhaul_core::limits::MEASURE_SECONDS_MAX;
use longhaul_core::{AccountMap, Blame, ByteCount, Escaped, Fault, FaultCode, IfExists, PlainText, Role, hint};
use longhaul_disk::{SourceTree, TimedVoid, VoidSource, VoidTarget};
use longhaul_proto::receiver::{Landing, Policy};
use longhaul_proto::wire::message::{Far, Transfer};

use super::side::Side;
use super::{ClientConfig, Daemon};
use crate::session::course::ScanWish;
use crate::session::opened::Destination;

/// The bounds of a granted measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// The length of its one file.
    pub(super) bytes: u64,
    /// How long the file is read, if it does not end before. `None`: no limit of time.
    time: Option<Duration>,
}

impl Daemon {
    /// The measurement that a transfer asks for. `None` for a transfer of files.
    ///
    /// # Errors
    /// [`FaultCode::Denied`] for a client that may not measure, [`FaultCode::Unsupported`] for a
    /// request that is no measurement.
    pub(super) fn measured(&self, client: &ClientConfig, transfer: &Transfer) -> Result<Option<Measured>, Fault> {
        let Far::Memory { bytes, millis } = transfer.far else { return Ok(None) };
        if !client.bench {
            let client = PlainText::of(Escaped(client.name.as_bytes()));
            let message = "this key may not measure at this daemon";
            return Err(Fault::new(FaultCode::Denied, Blame::Local, message).hint(hint::Daemon::AskForBench { client }));
        }
        let is_read = transfer.read_back || !transfer.preserve.sums.in_order().is_empty();
        if bytes == 0 || transfer.dry_run || is_read || transfer.digests {
            let message = "a measurement of nothing, or of what a memory does not do";
            return Err(Fault::new(FaultCode::Unsupported, Blame::Local, message));
        }
        Ok(Some(allowed((bytes, millis), self.config.bench_bytes)))
    }
}

/// The measurement that is requested, cut to the limits.
fn allowed((bytes, millis): (u64, u32), most: ByteCount) -> Measured {
    let time = Duration::from_millis(millis.into()).min(LONGEST);
    Measured { bytes: bytes.min(most.get()), time: (millis > 0).then_some(time) }
}

impl Measured {
    /// This side of the measurement, and its name in the log.
    pub(super) fn side(self, transfer: &Transfer) -> (Side, String) {
        let size = ByteCount(self.bytes);
        match transfer.role {
            Role::Sender => {
                let base = Destination::fleeting(Arc::new(VoidTarget), Landing::beneath(), "memory".to_owned());
                let policy = Policy { if_exists: IfExists::SkipSame, may_modify: true };
                (Side::Receive(base, policy), format!("bench push of {size} at most"))
            }
            Role::Receiver => {
                let source: Arc<dyn SourceTree> = match self.time {
                    Some(time) => Arc::new(TimedVoid::new(self.bytes, time)),
                    None => Arc::new(VoidSource { len: self.bytes, files: 1 }),
                };
                let (filter, accounts) = (Filter::default(), AccountMap::default());
                let wanted = ScanWish { filter, names: None, preserve: transfer.preserve, accounts };
                (Side::Send(source, wanted, 0), format!("bench pull of {size} at most"))
            }
        }
    }

    /// Whether the source ends by the clock.
    pub(super) fn is_timed(self) -> bool {
        self.time.is_some()
    }
}

/// The longest measurement, however slow the client.
pub(super) const LONGEST: Duration = Duration::from_secs(MEASURE_SECONDS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_more_than_is_allowed() {
        let most = ByteCount(1 << 30);
        for (bytes, millis, want) in [
            (1 << 20, 0, (1 << 20, None)),
            (1 << 30, 1, (1 << 30, Some(Duration::from_millis(1)))),
            (1 << 63, u32::MAX, (1 << 30, Some(LONGEST))),
            (u64::MAX, 10_000, (1 << 30, Some(Duration::from_secs(10)))),
        ] {
            let Measured { bytes, time } = allowed((bytes, millis), most);
            assert_eq!((bytes, time), want);
        }
    }
}
