//! Settings of a daemon's config that are allowed and most likely not meant. They are told when the
//! config is checked and when the daemon starts.
//!
//! In: the config, and the places of its files. Out: sentences. Refuses nothing.

use std::path::{Path, PathBuf};

use longhaul_engine::{ClientConfig, Rights, RootConfig};
use rustix::process::geteuid;

use super::Daemon;

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
        if geteuid().is_root() {
            doubts.push(
                "it runs as root: whatever a client sends is root's, and whatever root may read is served; run it as a user \
                 of its own that owns the roots and nothing else"
                    .to_owned(),
            );
        }
        if let Some(state) = &self.state {
            doubts.push(format!(
                "state = \"{}\" has no effect yet: what concerns a root lies in its .longhaul/, and nothing else is kept",
                state.display()
            ));
        }
        for client in &self.config.clients {
            doubts.extend(of_client(client, &self.config.roots));
        }
        for (n, (root, dir)) in roots.iter().enumerate() {
            doubts.extend(of_root(root, dir, files));
            doubts.extend(roots.iter().enumerate().filter_map(|(m, outer)| match n == m {
                true => None,
                false => of_two((root, dir), outer, n < m),
            }));
        }
        doubts
    }

    /// Gaps that only a check reports, as a start reports or mends them in its own way: no root, no
    /// client, an `identity` that will be made.
    pub fn gaps(&self, identity: &Path) -> Vec<String> {
        let mut gaps = Vec::new();
        if self.config.roots.is_empty() {
            gaps.push("there is no root, so nothing is served: add a [[root]], or give --root NAME=DIR".to_owned());
        }
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

/// Doubts about a client: rights that it does not get, or no rights at all.
fn of_client(client: &ClientConfig, roots: &[RootConfig]) -> Vec<String> {
    let name = client.name.escape_debug();
    if client.roots.is_empty() && !client.bench {
        return vec![format!("client '{name}' may use no root: name some in its roots")];
    }
    let denied = |(root, rights): (&String, &Rights)| {
        let config = roots.iter().find(|config| config.name == *root)?;
        let Rights { read, create, modify } = config.allow;
        let beyond =
            Rights { read: rights.read && !read, create: rights.create && !create, modify: rights.modify && !modify };
        let words: Vec<_> = beyond.names().collect();
        (!words.is_empty()).then(|| {
            let words = words.join(", ");
            format!(
                "client '{name}' has {words} in root '{root}', which the root does not allow: it has no effect there"
            )
        })
    };
    client.roots.iter().filter_map(denied).collect()
}

fn of_root(root: &RootConfig, dir: &Path, files: &[&Path]) -> Vec<String> {
    let mut doubts = Vec::new();
    if dir.parent().is_none() {
        let what = if root.allow.create || root.allow.modify { "change" } else { "read" };
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

/// The doubt about a root that lies in another. Two roots of the same directory are told once.
fn of_two((inner, inner_dir): (&RootConfig, &Path), outer: &(&RootConfig, PathBuf), is_first: bool) -> Option<String> {
    let (outer, outer_dir) = outer;
    if inner_dir == outer_dir {
        return is_first.then(|| {
            format!(
                "roots '{}' and '{}' are one directory: what either of them allows holds for both, protection and policies \
                 included",
                inner.name, outer.name
            )
        });
    }
    inner_dir.starts_with(outer_dir).then(|| {
        format!(
            "root '{}' lies in root '{}': what '{}' allows holds for both, protection and policies included",
            inner.name, outer.name, outer.name
        )
    })
}

/// The real path of a directory, or `path` itself if it does not exist.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
