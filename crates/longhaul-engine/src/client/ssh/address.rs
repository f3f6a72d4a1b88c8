//! Finds out to which addresses an ssh leads, so that lanes dial that host and no other.
//!
//! In: an [`SshHost`]. Out: addresses, none where a jump host or a command stands between, whose
//! address says nothing about the other host, and none of a command that is not OpenSSH's. The
//! other host is not asked: it could name any.

use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::timeout;

use super::process::{command, end_of_options, is_openssh};
use crate::api::SshHost;

/// The addresses of the host. Empty if they are not known.
pub(super) async fn of(host: SshHost) -> Vec<IpAddr> {
    if !host.command.first().is_some_and(|program| is_openssh(program)) {
        return Vec::new();
    }
    let Some(name) = said_by_ssh(&host).await else { return Vec::new() };
    // Any port will do: only the addresses count.
    match timeout(LOOK_UP, lookup_host((name.as_str(), 0))).await {
        Ok(Ok(found)) => found.map(|addr| addr.ip()).collect(),
        _ => Vec::new(),
    }
}

/// The name that ssh would dial. `None` if it would dial none itself.
async fn said_by_ssh(host: &SshHost) -> Option<String> {
    let mut command = command(host, &["-G"]).ok()?;
    command.args(end_of_options(host)).arg(&host.host).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let said = timeout(LOOK_UP, command.output()).await.ok()?.ok()?;
    dialled(&String::from_utf8_lossy(&said.stdout))
}

/// The name that is dialled by this configuration.
fn dialled(config: &str) -> Option<String> {
    let value = |key: &str| {
        let mut lines = config.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == key).map(|(_, value)| value.trim())
    };
    let is_set = |key| value(key).is_some_and(|value| value != "none");
    if is_set("proxyjump") || is_set("proxycommand") {
        return None;
    }
    value("hostname").map(str::to_owned)
}

/// Names are looked up beside the start of ssh, which takes longer than that on most paths.
const LOOK_UP: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_ssh_dials_is_found_unless_something_stands_between() {
        let dialled = |config| dialled(config);
        assert_eq!(dialled("user me\nhostname 192.0.2.7\nport 22\n").as_deref(), Some("192.0.2.7"));
        assert_eq!(dialled("hostname a\nproxyjump none\n").as_deref(), Some("a"));
        assert_eq!(dialled("hostname a\nproxyjump gate\n"), None);
        assert_eq!(dialled("hostname a\nproxycommand nc %h %p\n"), None);
        assert_eq!(dialled("what is that"), None);
    }
}
