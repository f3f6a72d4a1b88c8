//! What in a daemon's config is allowed and most likely not meant: said when it is checked and when the daemon starts.
//!
//! In: the config, and where its files lie. Out: sentences. Refuses nothing.

use std::path::{Path, PathBuf};

use longhaul_engine::RootConfig;
use rustix::process::geteuid;

use super::Daemon;

impl Daemon {
    /// What an administrator should look at once more. `files` are the config and the identity that the daemon runs with.
    pub fn doubts(&self, files: &[&Path]) -> Vec<String> {
        let roots: Vec<(&RootConfig, PathBuf)> = self.config.roots.iter().map(|root| (root, real(&root.dir))).collect();
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
        for (n, (root, dir)) in roots.iter().enumerate() {
            doubts.extend(of_root(root, dir, files));
            doubts.extend(roots.iter().enumerate().filter_map(|(m, outer)| match n == m {
                true => None,
                false => of_two((root, dir), outer, n < m),
            }));
        }
        doubts
    }
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

/// What one root's lying in another means. Two of the same directory are told once.
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

/// Where it really lies, if it stands.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
