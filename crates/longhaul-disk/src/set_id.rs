//! [`SetId`], the name of a target set in its marks and in all that its targets hold of it. Knows
//! no disk but the host's randomness.

use std::fmt;

use rustix::io::Errno;

use crate::lines::from_hex;

/// The id of a target set, made once with the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SetId(pub [u8; 16]);

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl SetId {
    /// A new one.
    pub(crate) fn new() -> Result<SetId, Errno> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|_| Errno::AGAIN)?;
        Ok(SetId(id))
    }

    /// The id of 32 digits of lower case hex. `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<SetId> {
        from_hex(text.as_bytes()).map(SetId)
    }
}
