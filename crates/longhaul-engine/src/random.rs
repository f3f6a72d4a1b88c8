//! Gets random bytes from the operating system: nonces, secrets of runs, names of temporaries.
//!
//! In: nothing. Out: bytes that nobody can foretell, or a fault that there are none. It does not
//! know their use.

use longhaul_core::{Blame, Fault, FaultCode};

/// 16 bytes that nobody can foretell.
pub(crate) fn nonce() -> Result<[u8; 16], Fault> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| Fault::new(FaultCode::Internal, Blame::Local, format_args!("no random numbers: {e}")))?;
    Ok(bytes)
}
