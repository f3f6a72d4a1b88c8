//! Codes of faults by their names, as stores keep them and users write them.
//!
//! In: a name. Out: the code. Must not know what is done about it.

use longhaul_core::FaultCode;

/// All codes, in the order of their definition.
pub const CODES: [FaultCode; 26] = [
    FaultCode::Unclassified,
    FaultCode::Usage,
    FaultCode::NotFound,
    FaultCode::Denied,
    FaultCode::Unreachable,
    FaultCode::Lost,
    FaultCode::TimedOut,
    FaultCode::Busy,
    FaultCode::Mismatch,
    FaultCode::NoSpace,
    FaultCode::ReadOnly,
    FaultCode::Io,
    FaultCode::Exists,
    FaultCode::Changed,
    FaultCode::Vanished,
    FaultCode::InTheWay,
    FaultCode::Unsupported,
    FaultCode::Protocol,
    FaultCode::Interrupted,
    FaultCode::Terminated,
    FaultCode::Internal,
    FaultCode::Exhausted,
    FaultCode::TargetFailed,
    FaultCode::Superseded,
    FaultCode::Incomplete,
    FaultCode::Published,
];

/// The code of a name.
pub fn code_of_name(name: &str) -> Option<FaultCode> {
    CODES.into_iter().find(|code| code.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_name() {
        for (at, code) in CODES.into_iter().enumerate() {
            assert_eq!(code as usize, at);
            assert_eq!(code_of_name(code.name()), Some(code));
        }
        assert_eq!(FaultCode::Published as usize, CODES.len() - 1);
        assert_eq!(code_of_name("nothing"), None);
    }
}
