//! A path: the pair of addresses that connections run over, as people write it.
//!
//! Takes text from the command line; gives addresses to the code that dials. Opens nothing.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The addresses of a path. The route chooses an address that is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetPath {
    /// The local address, from which connections are dialled. `None`: the route chooses.
    pub local: Option<IpAddr>,
    /// The remote address. `None`: the route chooses.
    pub remote: Option<IpAddr>,
}

/// A text that is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not LOCAL or LOCAL=REMOTE, each an IP address of one family")]
pub struct PathError;

impl FromStr for NetPath {
    type Err = PathError;

    /// `LOCAL` or `LOCAL=REMOTE`.
    fn from_str(text: &str) -> Result<NetPath, PathError> {
        let (local, remote) = text.split_once('=').map_or((text, None), |(local, remote)| (local, Some(remote)));
        let local: IpAddr = local.parse().map_err(|_| PathError)?;
        let remote: Option<IpAddr> = remote.map(str::parse).transpose().map_err(|_| PathError)?;
        if remote.is_some_and(|remote| remote.is_ipv4() != local.is_ipv4()) {
            return Err(PathError);
        }
        Ok(NetPath { local: Some(local), remote })
    }
}

impl fmt::Display for NetPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetPath { local: Some(local), remote: Some(remote) } => write!(f, "{local}={remote}"),
            NetPath { local: Some(local), remote: None } => write!(f, "{local}"),
            NetPath { local: None, remote: Some(remote) } => write!(f, "={remote}"),
            NetPath { local: None, remote: None } => f.write_str("route"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_they_are_written() {
        for text in ["10.0.0.1", "10.0.0.1=10.0.0.2", "fd00::1=fd00::2", "::1"] {
            assert_eq!(text.parse::<NetPath>().map(|path| path.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "=10.0.0.2", "10.0.0.1=", "eth0", "10.0.0.1=fd00::2", "10.0.0.1=host", "10.0.0.1:7=10.0.0.2"] {
            assert_eq!(text.parse::<NetPath>(), Err(PathError), "{text}");
        }
    }
}
