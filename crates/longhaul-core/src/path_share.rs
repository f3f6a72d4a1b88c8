//! The share of a path that a session takes when others use it too.
//!
//! Plain data. In: from whoever runs a transfer. Out: to the control that keeps it. Knows no rates
//! and no lanes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The share of a path that a session takes when others use it too. One that comes later here takes
/// more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PathShare {
    /// The rest that others leave.
    Polite,
    /// About as much as one other flow, whatever the number of lanes.
    #[default]
    Fair,
    /// As much as can be had: for a path of one's own.
    All,
}

impl PathShare {
    /// Its name, for people and scripts.
    pub fn name(self) -> &'static str {
        match self {
            PathShare::Polite => "polite",
            PathShare::Fair => "fair",
            PathShare::All => "all",
        }
    }
}

impl fmt::Display for PathShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
