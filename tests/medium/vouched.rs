//! The records of journals: each journalled chunk is in the temporary that its journal names, or
//! the file stands.

use std::path::{Path, PathBuf};

use longhaul_proto::journal::{JournalledPartial, replay};

use crate::fixture::tree::{Kind, Tree};

/// Fails if a journal beneath `dest`, which is to become `source`, has a chunk that is not on the
/// disk.
#[track_caller]
pub(super) fn assert_vouched(source: &Tree, dest: &Path, context: &str) {
    for journal in std::fs::read_dir(dest.join(".longhaul")).into_iter().flatten().flatten() {
        let bytes = std::fs::read(journal.path()).unwrap();
        // One that was never begun vouches for nothing.
        let Ok(replayed) = replay(&bytes) else { continue };
        for partial in replayed.files.into_values() {
            assert_held(source, dest, &partial, context);
        }
    }
}

#[track_caller]
fn assert_held(source: &Tree, dest: &Path, partial: &JournalledPartial, context: &str) {
    let path = PathBuf::from(partial.file.path.escaped().to_string());
    let named = dest.join(&path);
    let temporary = named.with_file_name(partial.file.temp.to_string());
    let chunks = partial.held.iter().count();
    if named.exists() || chunks == 0 {
        return;
    }
    let Ok(bytes) = std::fs::read(&temporary) else {
        panic!("{}, which a journal has {chunks} chunks of, is not there: {context}", temporary.display());
    };
    let Kind::File(whole) = &source.node(path.to_str().unwrap()).kind else { panic!("{path:?} is no file") };
    let map = partial.file.map;
    for (index, _) in partial.held.iter() {
        let start = map.start_of(index).0 as usize;
        let place = start..start + map.len_of(index).unwrap() as usize;
        let is_there = bytes.get(place.clone()) == Some(&whole[place]);
        assert!(is_there, "chunk {} of {path:?} is journalled, and is not there: {context}", index.0);
    }
}
