//! The references for users in `docs/`, made of the code, so that they cannot drift from it.
//!
//! It owns how a document is compared with its file, or written. Texts come in from one module a
//! document: `cli`, `exits`, `events` and `config`; failures and files go out. `session_log`
//! compares a section that people write. `page` makes Markdown, `source` reads declarations. It is
//! compiled for tests alone, and must not know what any document says.

#![allow(clippy::disallowed_methods, reason = "tests read sources and write documents of the repository")]

mod cli;
mod config;
mod events;
mod exits;
mod page;
mod session_log;
mod source;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The command that writes the documents.
const COMMAND: &str = "LONGHAUL_WRITE_DOCS=1 cargo test -p longhaul --lib reference::";

/// Fails unless `docs/NAME` is this text, or writes it there where the environment asks for that.
fn hold(name: &str, text: &str) {
    let path = repository().join("docs").join(name);
    if env::var_os("LONGHAUL_WRITE_DOCS").is_some_and(|value| value == "1") {
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let stands = fs::read_to_string(&path).unwrap_or_default();
    if stands == text {
        return;
    }
    let differs = stands.lines().zip(text.lines()).position(|(old, new)| old != new);
    let line = differs.unwrap_or_else(|| stands.lines().count().min(text.lines().count()));
    let (old, new) = (stands.lines().nth(line).unwrap_or_default(), text.lines().nth(line).unwrap_or_default());
    panic!(
        "docs/{name} is not what the code says, from line {} on:\n  file: {old}\n  code: {new}\nWrite it with:\n  {COMMAND}",
        line + 1
    );
}

/// The text of a file of the repository.
fn read(path: &str) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The texts of all Rust files beneath a directory of the repository, sorted by path.
fn read_all(directory: &str) -> Vec<String> {
    let mut open = vec![repository().join(directory)];
    let mut files = Vec::new();
    while let Some(directory) = open.pop() {
        let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for path in entries.map(|entry| entry.expect("a readable entry").path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(!files.is_empty(), "no sources in {directory}");
    files.iter().map(|path| fs::read_to_string(path).expect("a readable source")).collect()
}

/// The top of the workspace.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a crate lies two levels down").to_owned()
}
