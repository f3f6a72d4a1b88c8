//! Random bytes from the operating system: nonces, secrets of runs, names of temporaries.
//!
//! Takes nothing. Gives bytes that nobody can foretell, or the fault that there are none. Knows
//! nobody who asks.

use longhaul_core::{Blame, Fault, FaultCode};

/// 16 bytes that nobody can foretell.
pub(crate) fn nonce() -> Result<[u8; 16], Fault> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| Fault::new(FaultCode::Internal, Blame::Local, format_args!("no random numbers: {e}")))?;
    Ok(bytes)
}
