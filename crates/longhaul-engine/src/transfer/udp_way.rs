//! Whether datagrams reach the daemon at all, in a run whose lanes all travel in them.
//!
//! In: how each lane over QUIC was dialled. Out: whether another session is of any use: where no lane has ever joined and the
//! dials were met with silence while TCP gets through, a firewall drops UDP, and it will not stop within minutes. Knows no
//! sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::{Fault, FaultCode};

/// The record of one run. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct UdpWay(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    joined: AtomicBool,
    silent: AtomicBool,
}

impl UdpWay {
    /// Takes the result of a dial.
    pub(super) fn dialled<T>(&self, joined: &Result<T, Fault>) {
        match joined {
            Ok(_) => self.0.joined.store(true, Ordering::Relaxed),
            Err(fault) if fault.code == FaultCode::TimedOut => self.0.silent.store(true, Ordering::Relaxed),
            Err(_) => {}
        }
    }

    /// Whether nothing has ever come through, and something was lost on the way.
    pub(super) fn is_closed(&self) -> bool {
        self.0.silent.load(Ordering::Relaxed) && !self.0.joined.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::Blame;

    #[test]
    fn a_way_is_closed_when_dials_were_met_with_silence_and_none_has_ever_joined() {
        let failed = |code| Err::<(), _>(Fault::new(code, Blame::Path, "x"));
        let way = UdpWay::default();
        assert!(!way.is_closed());
        way.dialled(&failed(FaultCode::Denied));
        assert!(!way.is_closed());
        way.dialled(&failed(FaultCode::TimedOut));
        assert!(way.is_closed());
        way.dialled(&Ok(()));
        way.dialled(&failed(FaultCode::TimedOut));
        assert!(!way.is_closed());
    }
}
