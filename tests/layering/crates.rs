//! Crates: which may import which, and how those are compiled that read a peer's words.
//!
//! Takes the manifests; gives rules without exceptions. Must not know sources.

use std::collections::BTreeSet;

use super::tree::{entries, read, root};

/// Every crate under `crates/`, and those of ours that it may depend on. Nothing points up.
const LAYERS: &[(&str, &[&str])] = &[
    ("longhaul-core", &[]),
    ("longhaul-proto", &["longhaul-core"]),
    ("longhaul-sys", &[]),
    ("longhaul-disk", &["longhaul-core", "longhaul-sys"]),
    ("longhaul-net", &["longhaul-core", "longhaul-sys"]),
    ("longhaul-manifest", &["longhaul-core"]),
    ("longhaul-jobs", &["longhaul-core"]),
    ("longhaul-jobs-sqlite", &["longhaul-jobs"]),
    ("longhaul-jobs-postgres", &["longhaul-jobs"]),
    (
        "longhaul-engine",
        &[
            "longhaul-core",
            "longhaul-proto",
            "longhaul-sys",
            "longhaul-disk",
            "longhaul-net",
            "longhaul-jobs",
            "longhaul-manifest",
        ],
    ),
    (
        "longhaul",
        &[
            "longhaul-core",
            "longhaul-engine",
            "longhaul-jobs",
            "longhaul-jobs-sqlite",
            "longhaul-jobs-postgres",
            "longhaul-manifest",
            "longhaul-net",
        ],
    ),
    ("longhaul-sim", &["longhaul-core", "longhaul-proto"]),
    ("longhaul-wan", &[]),
];

#[test]
fn crates_import_only_downwards() {
    for manifest in manifests() {
        let name = package_name(&manifest);
        let (_, allowed) = LAYERS
            .iter()
            .find(|(layer, _)| *layer == name)
            .unwrap_or_else(|| panic!("{name} is in no layer: add it to LAYERS and to docs/ARCHITECTURE.md"));
        for import in imports(&manifest) {
            assert!(allowed.contains(&import.as_str()), "{name} must not depend on {import}");
        }
    }
}

#[test]
fn the_table_itself_has_no_cycle() {
    let mut settled = BTreeSet::new();
    let mut left: Vec<_> = LAYERS.iter().collect();
    while !left.is_empty() {
        let before = left.len();
        left.retain(|(name, allowed)| !(allowed.iter().all(|a| settled.contains(a)) && settled.insert(name)));
        assert!(left.len() < before, "in a circle or unknown: {left:?}");
    }
}

#[test]
fn what_counts_for_a_peer_checks_for_overflow_in_a_release_too() {
    let manifest: toml::Table = read(&root().join("Cargo.toml")).parse().expect("TOML");
    let packages = &manifest["profile"]["release"]["package"];
    let checked = ["core", "proto", "manifest", "jobs", "net", "engine"];
    for name in checked.map(|short| format!("longhaul-{short}")) {
        let checks = packages.get(&name).and_then(|package| package.get("overflow-checks"));
        assert_eq!(checks.and_then(toml::Value::as_bool), Some(true), "{name}");
    }
}

/// The crates of ours among a manifest's dependencies, for any target; those for tests alone do not
/// count.
fn imports(manifest: &toml::Table) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables = targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table);
    std::iter::once(manifest)
        .chain(tables)
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|key| table.get(key)))
        .flatten()
        .filter_map(toml::Value::as_table)
        .flatten()
        .map(|(key, value)| value.get("package").and_then(toml::Value::as_str).unwrap_or(key).to_owned())
        .filter(|name| name.starts_with("longhaul"))
        .collect()
}

fn package_name(manifest: &toml::Table) -> &str {
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    name.expect("a manifest names its package")
}

fn manifests() -> Vec<toml::Table> {
    let manifests: Vec<_> = entries(&root().join("crates"))
        .into_iter()
        .map(|directory| directory.join("Cargo.toml"))
        .filter(|file| file.exists())
        .map(|file| read(&file).parse().unwrap_or_else(|error| panic!("{}: {error}", file.display())))
        .collect();
    assert!(!manifests.is_empty(), "no crates found");
    manifests
}
