//! The part of a tree that has come to a destination for good, as the disk has it: final names,
//! which must be right, and journalled chunks.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use longhaul_proto::journal::replay;

/// Bytes that a later run need not send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// Bytes of files that stand under their final names.
    standing: u64,
    /// Bytes of other files, in journalled chunks.
    journalled: u64,
}

impl Kept {
    pub(crate) fn total(&self) -> u64 {
        self.standing + self.journalled
    }
}

/// Reads `dest`, which is to become `source`. Fails if any final name has a wrong content.
///
/// Journals are read first: a file that is committed meanwhile is then found under its name, and
/// counted there.
#[track_caller]
pub(crate) fn kept(source: &Path, dest: &Path) -> Kept {
    let held = held_in(dest);
    let mut standing = 0;
    visit(source, dest, &mut standing);
    let beneath = |path: &str| dest.parent().unwrap().join(path).exists() || dest.join(path).exists();
    let journalled = held.iter().filter(|(path, _)| !beneath(path)).map(|(_, bytes)| bytes).sum();
    Kept { standing, journalled }
}

/// The chunks that the journals hold of each file, by path beneath the journal's directory. If
/// several journals have a file, the largest number counts.
fn held_in(dest: &Path) -> Vec<(String, u64)> {
    let mut held: Vec<(String, u64)> = Vec::new();
    for shelf in [dest.join(".longhaul"), dest.parent().unwrap().join(".longhaul")] {
        for journal in fs::read_dir(shelf).into_iter().flatten().flatten() {
            // One that is removed meanwhile, or was never begun, holds nothing.
            let Ok(bytes) = fs::read(journal.path()) else { continue };
            let Ok(replayed) = replay(&bytes) else { continue };
            for partial in replayed.files.into_values() {
                let (path, bytes) = (partial.file.path.escaped().to_string(), partial.held.bytes(partial.file.map));
                match held.iter_mut().find(|(known, _)| *known == path) {
                    Some((_, most)) => *most = bytes.max(*most),
                    None => held.push((path, bytes)),
                }
            }
        }
    }
    held
}

/// Compares every file beneath `dest` that is no temporary with the one beneath `source`.
#[track_caller]
fn visit(source: &Path, dest: &Path, standing: &mut u64) {
    let Ok(entries) = fs::read_dir(dest) else { return };
    for entry in entries {
        let entry = entry.unwrap();
        let (name, dest) = (entry.file_name(), entry.path());
        if is_ours(&name) {
            continue;
        }
        let source = source.join(&name);
        let shown = dest.display();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            assert!(source.is_dir(), "{shown} is no directory in the source");
            visit(&source, &dest, standing);
        } else if kind.is_symlink() {
            assert_eq!(fs::read_link(&dest).unwrap(), fs::read_link(&source).unwrap(), "{shown}");
        } else {
            let bytes = fs::read(&dest).unwrap();
            assert!(bytes == fs::read(&source).unwrap(), "{shown} stands and is not what was sent");
            *standing += bytes.len() as u64;
        }
    }
}

fn is_ours(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".longhaul")
}
