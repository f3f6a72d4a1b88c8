//! Directories that are moved away, replaced or lost while files are put into them.

use super::*;

const NONE: Preserve = Preserve { links: true, sparse: true, ..Preserve::NOTHING };

/// Finishes a directory after `happens` was done to it, with one file put into it before and one
/// after. Returns the result.
fn ended(happens: impl Fn(&Path)) -> Result<(), ErrorKind> {
    let (dir, target) = target();
    target.make_dir(&path("a")).expect("made");
    target.make_dir(&path("a/d")).expect("made");
    put(&target, "a/d/before", b"1", Replace::Never).expect("put");
    happens(dir.path());
    put(&target, "a/d/behind", b"2", Replace::Never).expect("a held directory takes names wherever it is");
    target
        .finish_dir(&path("a/d"), &META, NONE)
        .and_then(|()| target.finish_dir(&path("a"), &META, KEEP))
        .map_err(|error| error.kind())
}

#[test]
fn a_directory_ends_well_only_where_its_path_still_leads_to_it() {
    let rename = |from: std::path::PathBuf, to: &str| {
        let to = from.parent().expect("above").join(to);
        std::fs::rename(from, to).expect("renamed");
    };
    assert_eq!(ended(|_| {}), Ok(()));
    assert_eq!(ended(|top| rename(top.join("a/d"), "moved")), Err(ErrorKind::Moved));
    let replaced = |top: &Path| {
        rename(top.join("a/d"), "moved");
        std::fs::create_dir(top.join("a/d")).expect("made");
    };
    assert_eq!(ended(replaced), Err(ErrorKind::Moved));
    let linked = |top: &Path| {
        rename(top.join("a/d"), "moved");
        symlink("moved", top.join("a/d")).expect("linked");
    };
    assert_eq!(ended(linked), Err(ErrorKind::Moved));
    assert_eq!(ended(|top| rename(top.join("a"), "moved")), Err(ErrorKind::Moved), "the one above it");
    let back = |top: &Path| {
        rename(top.join("a/d"), "moved");
        rename(top.join("a/moved"), "d");
    };
    assert_eq!(ended(back), Ok(()), "it is there again");
}

#[test]
fn a_directory_that_took_anothers_place_keeps_its_mode_and_times() {
    let (dir, target) = target();
    target.make_dir(&path("d")).expect("made");
    std::fs::rename(dir.path().join("d"), dir.path().join("moved")).expect("renamed");
    std::fs::create_dir(dir.path().join("d")).expect("made");
    let before = std::fs::metadata(dir.path().join("d")).expect("stat").ctime_nsec();
    assert!(target.finish_dir(&path("d"), &META, KEEP).is_err());
    assert_eq!(std::fs::metadata(dir.path().join("d")).expect("stat").ctime_nsec(), before);
}

#[test]
fn a_destination_is_the_one_that_was_named_until_another_takes_its_place() {
    let dir = tempfile::tempdir().expect("tempdir");
    let top = dir.path().join("served");
    std::fs::create_dir_all(top.join("in")).expect("dirs");
    let tree = Tree::open(&top).expect("tree");
    let targets = [
        FsTarget::open(&top.join("in"), DirectMode::Auto).expect("target"),
        FsTarget::beneath(&tree, &path("in"), DirectMode::Auto, TreePolicy::default()).expect("target"),
    ];
    let checked = || targets.each_ref().map(|target| target.check_place().map_err(|error| error.kind()));
    let moved = Err(ErrorKind::Moved);
    assert_eq!((checked(), tree.check_place().is_ok()), ([Ok(()), Ok(())], true));
    std::fs::rename(top.join("in"), top.join("out")).expect("renamed");
    assert_eq!((checked(), tree.check_place().is_ok()), ([moved, moved], true));
    std::fs::create_dir(top.join("in")).expect("made");
    assert_eq!(checked(), [moved, moved]);
    std::fs::remove_dir(top.join("in")).expect("removed");
    std::fs::rename(top.join("out"), top.join("in")).expect("renamed");
    assert_eq!(checked(), [Ok(()), Ok(())]);
    std::fs::rename(&top, dir.path().join("away")).expect("renamed");
    std::fs::create_dir_all(top.join("in")).expect("dirs");
    assert_eq!((checked(), tree.check_place().map_err(|error| error.kind())), ([moved, moved], moved));
}
