//! Settings of a daemon's config that are allowed and most likely not meant. They are told when the
//! config is checked and when the daemon starts.
//!
//! In: the config, and the places of its files. Out: sentences. Refuses nothing.

use std::path::{Path, PathBuf};

use longhaul_engine::{ClientConfig, RootConfig};
use rustix::process::geteuid;

use super::Daemon;
use super::nested::real;

impl Daemon {
    /// Settings that an administrator should look at again. `files` are the config and the identity
    /// that the daemon runs with.
    pub fn doubts(&self, files: &[&Path]) -> Vec<String> {
        let roots: Vec<(&RootConfig, PathBuf)> = self
            .config
            .roots
            .iter()
            .flat_map(|root| root.targets.dirs.iter().map(move |dir| (root, real(dir))))
            .collect();
        let mut doubts = Vec::new();
        if geteuid().is_root() && self.confinement.user.is_none() {
            doubts.push(
                "it runs as root: whatever a client sends is root's, and whatever root may read is served; name a 'user' \
                 of its own that owns the roots and nothing else"
                    .to_owned(),
            );
        }
        doubts.extend(self.config.clients.iter().filter_map(of_client));
        doubts.extend(roots.iter().flat_map(|(root, dir)| of_root(root, dir, files)));
        doubts
    }

    /// Gaps that only a check reports, as a start reports or mends them in its own way: no client,
    /// an `identity` that will be made.
    pub fn gaps(&self, identity: &Path) -> Vec<String> {
        let mut gaps = Vec::new();
        if self.config.clients.is_empty() {
            gaps.push("there is no client, so nobody may connect: 'longhaul key authorize' adds one".to_owned());
        }
        let file = identity.display();
        match identity.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists()) {
            Some(dir) => {
                let dir = dir.display();
                gaps.push(format!(
                    "identity {file}: the directory {dir} does not exist; the daemon makes both when it starts"
                ));
            }
            None if !identity.exists() => {
                gaps.push(format!("identity {file} does not exist; the daemon makes it when it starts"));
            }
            None => {}
        }
        gaps
    }
}

/// The doubt about a client that has no rights at all.
fn of_client(client: &ClientConfig) -> Option<String> {
    let name = client.name.escape_debug();
    let is_idle = client.roots.is_empty() && !client.bench;
    is_idle.then(|| format!("client '{name}' may use no root: name some in its roots"))
}

fn of_root(root: &RootConfig, dir: &Path, files: &[&Path]) -> Vec<String> {
    let mut doubts = Vec::new();
    if dir.parent().is_none() {
        let what = if root.allow.may_change() { "change" } else { "read" };
        doubts.push(format!("root '{}' is the whole system: clients may {what} whatever this daemon may", root.name));
    }
    let here = files.iter().map(|file| real(file)).filter(|file| file.starts_with(dir));
    doubts.extend(here.map(|file| {
        format!(
            "root '{}' holds {}: whoever may read or modify there has the daemon in hand",
            root.name,
            file.display()
        )
    }));
    doubts
}
