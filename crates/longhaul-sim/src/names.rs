//! Names that are ours at the destination: the shelf of journals, journals, temporaries.

use longhaul_core::{SessionTag, TempName};

use crate::fs::parent;

/// Where journals lie.
pub(crate) const SHELF: &str = ".longhaul";

/// The name of a session's journal.
pub(crate) fn journal(tag: SessionTag) -> String {
    format!("{SHELF}/{tag}.journal")
}

/// The tag in a journal's name.
pub(crate) fn journal_tag(path: &str) -> Option<SessionTag> {
    let name = path.strip_prefix(SHELF)?.strip_prefix('/')?.strip_suffix(".journal")?;
    SessionTag::parse(name.as_bytes())
}

/// Whether a name is a journal's.
pub(crate) fn is_journal(path: &str) -> bool {
    parent(path) == SHELF && path.ends_with(".journal")
}

/// The temporary of a final name.
pub(crate) fn in_dir(path: &str, temp: &TempName) -> String {
    match parent(path) {
        "" => temp.to_string(),
        dir => format!("{dir}/{temp}"),
    }
}

/// The temporary that a name is, if it is one.
pub(crate) fn temp(path: &str) -> Option<TempName> {
    TempName::parse(path.rsplit('/').next().unwrap_or(path).as_bytes())
}

/// The directory and all above it, the root last.
pub(crate) fn dirs_up(path: &str) -> Vec<String> {
    let mut dirs = Vec::new();
    let mut dir = parent(path);
    while !dir.is_empty() {
        dirs.push(dir.to_owned());
        dir = parent(dir);
    }
    dirs.push(String::new());
    dirs
}
