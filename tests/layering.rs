//! Checks the shape of the source tree: the imports between crates, that each file says what it
//! owns, and the places of unsafe code.
//!
//! Reads manifests and sources as text; must not know their meaning beyond that.

#![allow(clippy::disallowed_methods, reason = "the test reads the source tree itself")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every crate under `crates/`, and the crates of ours that it may depend on. Nothing points up.
const LAYERS: &[(&str, &[&str])] = &[
    ("longhaul-core", &[]),
    ("longhaul-proto", &["longhaul-core"]),
    ("longhaul-sys", &[]),
    ("longhaul-disk", &["longhaul-core", "longhaul-sys"]),
    ("longhaul-net", &["longhaul-core", "longhaul-sys"]),
    ("longhaul-engine", &["longhaul-core", "longhaul-proto", "longhaul-sys", "longhaul-disk", "longhaul-net"]),
    ("longhaul", &["longhaul-core", "longhaul-engine", "longhaul-net"]),
    ("longhaul-sim", &["longhaul-core", "longhaul-proto"]),
    ("longhaul-wan", &[]),
];

/// The places where unsafe code may be: one crate of the product, and one file of the emulator,
/// which depends on no crate of the product.
const UNSAFE_HOMES: &[&str] = &["crates/longhaul-sys", "crates/longhaul-wan/src/ffi.rs"];

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
    for name in ["longhaul-core", "longhaul-proto", "longhaul-net", "longhaul-engine"] {
        let checks = packages.get(name).and_then(|package| package.get("overflow-checks"));
        assert_eq!(checks.and_then(toml::Value::as_bool), Some(true), "{name}");
    }
}

#[test]
fn every_source_file_says_what_it_owns() {
    let silent: Vec<_> = sources().into_iter().filter(|file| !read(file).starts_with("//!")).collect();
    assert!(silent.is_empty(), "these do not open with //!: {silent:#?}");
}

#[test]
fn unsafe_code_stays_at_home() {
    let homes: Vec<_> = UNSAFE_HOMES.iter().map(|home| root().join(home)).collect();
    assert!(homes.iter().all(|home| home.exists()), "a home that is gone: {UNSAFE_HOMES:?}");
    let found: Vec<_> = sources()
        .into_iter()
        .filter(|file| !homes.iter().any(|home| file.starts_with(home)))
        .filter(|file| read(file).lines().any(opens_unsafe))
        .collect();
    assert!(found.is_empty(), "unsafe code outside {UNSAFE_HOMES:?}: {found:#?}");
}

#[test]
fn unsafe_code_is_told_from_talk_about_it() {
    let word = "unsafe";
    for code in ["{", "  {", "fn f()", "impl Send for X {}", "extern \"C\" {", "trait T {"] {
        assert!(opens_unsafe(&format!("    let _ = {word} {code}")), "{code}");
    }
    assert!(opens_unsafe(&format!("#[{word}(no_mangle)]")));
    for talk in [format!("// {word} {{"), format!("{word}_code = 1"), format!("not_{word} {{"), format!("\"{word}\"")] {
        assert!(!opens_unsafe(&talk), "{talk}");
    }
}

/// Reports the longest files, and never fails: long files are split when an idea shows where. See
/// it with `--nocapture`.
#[test]
fn the_longest_files_are_listed() {
    let mut lengths: Vec<_> = sources().into_iter().map(|file| (read(&file).lines().count(), file)).collect();
    lengths.sort_by(|a, b| b.cmp(a));
    assert!(!lengths.is_empty(), "no sources found");
    for (lines, file) in lengths.iter().take(10) {
        println!("{lines:5} {}", file.strip_prefix(root()).unwrap_or(file).display());
    }
}

/// Whether a line begins unsafe code: the word alone, followed by a word that it can apply to. Line
/// comments do not count.
fn opens_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices("unsafe").any(|(at, word)| {
        let (before, after) = (&code[..at], code[at + word.len()..].trim_start());
        let alone = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        alone && ["{", "(", "fn ", "impl ", "impl<", "extern ", "trait "].iter().any(|next| after.starts_with(next))
    })
}

/// The crates of ours among a manifest's dependencies, for any target; dependencies of tests alone
/// do not count.
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

/// Every Rust file of the crates (sources, tests, examples) and of the end-to-end tests.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join("crates"), root().join("tests")];
    while let Some(directory) = open.pop() {
        for entry in entries(&directory) {
            if entry.is_dir() {
                open.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                found.push(entry);
            }
        }
    }
    found
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    entries.map(|entry| entry.expect("a readable entry").path()).collect()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The top of the workspace: this file is compiled as part of `crates/longhaul`.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a crate lies two levels down").to_owned()
}
