//! The content of the medium, not of the cache: disks that lose power or have bad sectors, file
//! systems that sync in their own ways. Needs root.
//!
//! Devices and file systems are the fixture's (`fixture/device`). This file has the asserts that
//! all of them share.

mod cuts;
mod sectors;
mod striped;
mod syncs;
mod vouched;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::fixture::Outcome;
use crate::fixture::tree::{Tree, same_content};

/// Paths that a run told to be committed. (A killed run may die in the middle of a line.)
fn promised(outcome: &Outcome) -> BTreeSet<String> {
    let lines = outcome.stdout.split(|byte| *byte == b'\n');
    let events = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let files = events.filter(|event| event["type"] == "file");
    let whole = files.filter(|event| event["status"] == "committed" || event["status"] == "skipped");
    whole.filter_map(|event| event["path"].as_str().map(str::to_owned)).collect()
}

/// Fails unless each promised file stands with the content of the source.
#[track_caller]
fn assert_kept(source: &Tree, stands: &Tree, promised: &BTreeSet<String>, context: &str) {
    let at = |tree: &'_ Tree, path: &str| tree.0.get(path.as_bytes()).cloned();
    let is_kept = |path: &&String| same_content(at(source, path).as_ref(), at(stands, path).as_ref());
    let lost: Vec<&String> = promised.iter().filter(|path| !is_kept(path)).collect();
    let (lost, shown) = (lost.len(), &lost[..lost.len().min(8)]);
    assert!(
        lost == 0,
        "{lost} of {} files that were said to be committed are not there: {shown:?}: {context}",
        promised.len()
    );
}

/// Fails if a final name has anything but the whole content of the source.
#[track_caller]
fn assert_nothing_torn(source: &Tree, stands: &Tree, context: &str) {
    let is_torn = |path: &[u8]| !same_content(source.0.get(path), stands.0.get(path));
    let torn = stands.0.keys().filter(|path| is_torn(path)).map(|path| String::from_utf8_lossy(path).into_owned());
    let torn: Vec<String> = torn.take(8).collect();
    assert!(torn.is_empty(), "these final names show something else: {torn:?}: {context}");
}

/// The tree at `top` on a file system that was opened again, without our own names.
fn standing(top: &Path) -> Tree {
    let mut tree = if top.exists() { Tree::of(top) } else { Tree::default() };
    tree.0.retain(|path, _| !path.split(|byte| *byte == b'/').any(|name| name.starts_with(b".longhaul")));
    tree
}
