//! Owns how much a connection may hold in the kernel: what it may receive unread, and what may wait
//! unsent.
//!
//! Takes the socket of a [`Wire`], and a limit. Gives nothing: all of this is a hint to the kernel.
//! Must not know what is sent.

use std::time::Duration;

use longhaul_core::limits::LONG_PATH_MILLISECONDS;

use super::Wire;

impl Wire {
    /// Whether a round trip takes long.
    pub(crate) fn is_long(&self) -> bool {
        longhaul_sys::tcp::state(&*self.socket).is_ok_and(|state| state.rtt >= LONG)
    }

    /// Asks for the buffers that a long path fills: a kernel that ignores it begins more slowly.
    pub(crate) fn make_room(&self) {
        if self.is_long() {
            let _ = longhaul_sys::tcp::make_room(&*self.socket, ROOM_BYTES);
        }
    }

    /// Has so many bytes wait unsent at most. A kernel without this option buffers more.
    pub(crate) fn limit_unsent(&self, bytes: u32) {
        let _ = self.socket.set_tcp_notsent_lowat(bytes);
    }
}

/// Bytes that may wait unsent in a socket: the kernel would take megabytes, which a slow lane would
/// keep from others. Half of it keeps a connection of 1 GB/s busy for half a millisecond.
pub(crate) const UNSENT_MAX: u32 = 1 << 20;
/// The round trip time from which a connection begins with larger buffers ...
const LONG: Duration = Duration::from_millis(LONG_PATH_MILLISECONDS);
/// ... of this size: eight lanes then fill 1 Gbit/s at 250 ms, and no autotuning is needed before.
const ROOM_BYTES: u32 = 4 << 20;
