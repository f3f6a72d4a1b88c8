//! A fault as it travels.
//!
//! In: a [`Fault`] of this side, or bytes of the other. Out: the same in five fields, and a fault
//! that the peer worded. Knows no machine.

use longhaul_core::{Author, Blame, Fault, FaultCode, Hint, PlainText};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The fields of a fault on the wire. Its author is not among them: who reads it knows that it is
/// the peer's. The hint is a sentence, as builds of other versions may know other hints.
#[derive(Serialize, Deserialize)]
pub(super) struct FaultBody {
    code: FaultCode,
    blame: Blame,
    object: PlainText,
    message: PlainText,
    /// Empty for none.
    hint: PlainText,
}

impl From<&Fault> for FaultBody {
    fn from(fault: &Fault) -> FaultBody {
        let hint = fault.hint.as_ref().map(PlainText::of).unwrap_or_default();
        let (object, message) = (fault.object.clone(), fault.message.clone());
        FaultBody { code: fault.code, blame: fault.blame, object, message, hint }
    }
}

impl From<FaultBody> for Fault {
    fn from(body: FaultBody) -> Fault {
        let FaultBody { code, blame, object, message, hint } = body;
        Fault { code, blame, object, message, hint: Hint::words(hint), os_error: None, author: Author::Peer }
    }
}

/// Writes a fault within another body.
pub(super) fn serialize<S: Serializer>(fault: &Fault, serializer: S) -> Result<S::Ok, S::Error> {
    FaultBody::from(fault).serialize(serializer)
}

/// Reads a fault within another body.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Fault, D::Error> {
    FaultBody::deserialize(deserializer).map(Fault::from)
}
