//! The section of `docs/SERVING.md` about the log of sessions: it lists the fields that the daemon
//! writes.
//!
//! It owns the comparison. Field names come in from the calls of the daemon that log, and from the
//! table of the section, which people write; failures go out. It must not know any field.

use std::collections::BTreeSet;

const OPENED_SOURCE: &str = "crates/longhaul-engine/src/daemon/serve.rs";
const ENDED_SOURCE: &str = "crates/longhaul-engine/src/daemon/ending.rs";
const HEADING: &str = "## The log of sessions";

#[test]
fn the_log_section_lists_the_fields_of_each_line() {
    let document = super::read("docs/SERVING.md");
    for (line, source) in [("opened", OPENED_SOURCE), ("ended", ENDED_SOURCE)] {
        let source = super::read(source);
        assert_eq!(listed(&document, line), logged(&source, line), "docs/SERVING.md, {HEADING}: fields of '{line}:'");
    }
}

/// The fields of the call whose message begins with this word.
fn logged(source: &str, line: &str) -> BTreeSet<String> {
    let (before, _) = source.split_once(&format!("\"{line}: ")).unwrap_or_else(|| panic!("nothing logs '{line}: '"));
    let (_, call) = before.rsplit_once("tracing::info!(").expect("the call of a message");
    let fields = arguments(call).into_iter().filter(|argument| !argument.starts_with("target:"));
    fields.map(|field| field.split('=').next().unwrap_or(field).trim_matches(['%', '?', ' ']).to_owned()).collect()
}

/// The arguments of a call whose message is cut off, split at the commas outside of parentheses.
fn arguments(call: &str) -> Vec<&str> {
    let mut depth = 0;
    let outside = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    };
    call.split(outside).map(str::trim).filter(|argument| !argument.is_empty()).collect()
}

/// The fields whose row names this line.
fn listed(document: &str, line: &str) -> BTreeSet<String> {
    let (_, section) = document.split_once(HEADING).unwrap_or_else(|| panic!("docs/SERVING.md has no {HEADING}"));
    let section = section.split("\n## ").next().unwrap_or(section);
    let rows = section.lines().filter_map(|row| row.strip_prefix("| `")?.split_once("` | "));
    let of_line = rows.filter(|(_, rest)| rest.split(" |").next().is_some_and(|lines| lines.contains(line)));
    of_line.map(|(field, _)| field.to_owned()).collect()
}
