//! Tests of staging and committing datasets, killed before each of their system calls.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::destination::TargetTree;
use crate::error::ErrorKind;
use crate::kernel::{Call, InodeId, Interposer, Passage};

mod campaign;
mod renames;

/// A system in which every call fails that changes anything, once so many were made.
#[derive(Debug)]
struct Dying {
    left: AtomicUsize,
}

impl Interposer for Dying {
    fn begin(&self, _call: &Call<'_>) -> Passage {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_ok() { Passage::Made(0) } else { Passage::Answered(Err(Errno::IO)) }
    }

    fn end(&self, _token: u64, _outcome: Result<Option<InodeId>, Errno>) {}

    fn read_medium(&self, _file: InodeId, _offset: u64, _into: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

fn name() -> DatasetName {
    DatasetName::new("run-7").expect("a name")
}

fn staged(dir: &Path, replace: Replace, kernel: &Kernel) -> Result<DatasetStage, DatasetError> {
    staged_by("one", dir, replace, kernel)
}

fn staged_by(principal: &str, dir: &Path, replace: Replace, kernel: &Kernel) -> Result<DatasetStage, DatasetError> {
    let order = DatasetOrder { name: &name(), principal, replace, part: StagePart::All };
    DatasetStage::at(base::named(dir, kernel)?, (dir.to_owned(), &RelPath::root(), None), order, FORKED)
}

/// A child that another test forks has the lock of a session that died, until it runs its program.
const FORKED: Duration = Duration::from_secs(1);

fn stage(dir: &Path, replace: Replace) -> Result<DatasetStage, DatasetError> {
    staged(dir, replace, &Kernel::default())
}

/// The directory of the dataset that is staged, with a file in it.
fn fill(stage: &DatasetStage, text: &str) -> PathBuf {
    let top = stage.tree().named().join("tree");
    fs::create_dir_all(top.join("d")).expect("made");
    fs::write(top.join("d/f"), text).expect("written");
    top
}

fn commit(stage: &DatasetStage) -> Result<Option<Vec<u8>>, DatasetError> {
    let top = stage.open_top()?;
    fs::create_dir(top.manifest_path()).map_err(|error| DiskError::call("make", Path::new("list"), error))?;
    let len = fs::metadata(stage.tree().named().join("tree/d/f")).expect("it stands").len();
    let pruned = stage.prune(&top, listed(&[("d", StagedKind::Dir), ("d/f", StagedKind::File(len))]), &mut |_| {})?;
    assert_eq!(pruned, StagedNames::default());
    stage.make_durable(&top)?;
    let there = stage.tree().named().with_file_name("run-7/d/f");
    let staged = fs::read(stage.tree().named().join("tree/d/f")).expect("it stands");
    let published = stage.publish(&top);
    let has_appeared = fs::read(there).is_ok_and(|found| found == staged);
    assert_eq!(published.is_ok(), has_appeared, "a fault behind the rename does not hide it");
    published.and_then(|published| published.fault.map_or(Ok(published.old), Err))
}

/// A list of a dataset.
fn listed(names: &[(&str, StagedKind)]) -> impl Iterator<Item = Result<ListedName, DatasetError>> {
    let named = |(path, kind): &(&str, StagedKind)| ListedName { path: RelPath::new(*path).expect(path), kind: *kind };
    names.iter().map(named).map(Ok).collect::<Vec<_>>().into_iter()
}

/// The names in a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("read")
        .map(|entry| entry.expect("one").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

#[test]
fn a_dataset_appears_with_its_times_and_nothing_is_left_beside_it() {
    let dir = tempfile::tempdir().expect("scratch");
    let stage = stage(&dir.path().join("in"), Replace::Never).expect("staged");
    let top = fill(&stage, "new");
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(&top).expect("open").set_modified(time).expect("set");
    assert_eq!(names(&dir.path().join("in")), [stage.holder.shown_name()], "nobody sees it before");
    assert_eq!(commit(&stage).expect("committed"), None);
    drop(stage);
    let there = dir.path().join("in/run-7");
    assert_eq!(names(&dir.path().join("in")), ["run-7"]);
    assert_eq!(names(&there), [".longhaul-manifest", "d"]);
    assert_eq!(fs::metadata(&there).expect("it stands").mtime(), 1_000_000_000);
}

#[test]
fn a_name_that_is_taken_is_refused_before_and_by_the_rename() {
    let dir = tempfile::tempdir().expect("scratch");
    let first = stage(dir.path(), Replace::Never).expect("staged");
    fill(&first, "new");
    assert!(matches!(stage(dir.path(), Replace::Never), Err(DatasetError::Busy { .. })), "one session at a time");
    fs::create_dir(dir.path().join("run-7")).expect("somebody else's");
    assert!(matches!(commit(&first), Err(DatasetError::Stands { .. })));
    drop(first);
    assert!(names(&dir.path().join("run-7")).is_empty());
    assert!(matches!(stage(dir.path(), Replace::Never), Err(DatasetError::Stands { .. })));
    assert!(matches!(look_at_dataset(dir.path(), &name(), Replace::Never), Err(DatasetError::Stands { .. })));
    fs::remove_dir(dir.path().join("run-7")).expect("gone again");
    let again = stage(dir.path(), Replace::Never).expect("staged");
    commit(&again).expect("what was staged has stayed");
    assert_eq!(fs::read_to_string(dir.path().join("run-7/d/f")).expect("it stands"), "new");
}

#[test]
fn what_is_not_listed_goes_and_directories_keep_their_times_and_modes() {
    let dir = tempfile::tempdir().expect("scratch");
    let stage = stage(dir.path(), Replace::Never).expect("staged");
    let top = fill(&stage, "new");
    for path in ["d/old", "d/.longhaul-0123456789abcdef0123456789abcdef", "gone/deep/f", "d-x", "d.x", "x"] {
        let path = top.join(path);
        fs::create_dir_all(path.parent().expect("one")).expect("made");
        fs::write(path, "old").expect("written");
    }
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(top.join("d")).expect("open").set_modified(time).expect("set");
    for shut in ["d", "gone/deep", "gone"] {
        fs::set_permissions(top.join(shut), fs::Permissions::from_mode(0o555)).expect("set");
    }
    let held = stage.open_top().expect("open");
    let mut told = None;
    let names_listed = [("d", StagedKind::Dir), ("d.x", StagedKind::File(3)), ("d/f", StagedKind::File(3))];
    let pruned = stage.prune(&held, listed(&names_listed), &mut |removed| told = Some(removed)).expect("pruned");
    let removed = Removed { files: 4, bytes: 12, others: 3 };
    assert_eq!(told, Some(removed));
    assert_eq!(pruned, StagedNames { removed, ..StagedNames::default() });
    assert_eq!((names(&top), names(&top.join("d"))), (vec!["d".into(), "d.x".into()], vec!["f".to_owned()]));
    let found = fs::metadata(top.join("d")).expect("it stands");
    assert_eq!((found.mtime(), found.mode() & 0o777), (1_000_000_000, 0o555));
}

#[test]
fn a_listed_name_that_is_something_else_or_does_not_stand_is_missed() {
    let dir = tempfile::tempdir().expect("scratch");
    let stage = stage(dir.path(), Replace::Never).expect("staged");
    let top = fill(&stage, "new");
    std::os::unix::fs::symlink("x", top.join("link")).expect("made");
    let held = stage.open_top().expect("open");
    let missed = |names: &[(&str, StagedKind)]| {
        let pruned = stage.prune(&held, listed(names), &mut |_| {}).expect("pruned");
        (pruned.missing, pruned.first.map(|path| path.escaped().to_string()))
    };
    let all = [("d", StagedKind::Dir), ("d/f", StagedKind::File(3)), ("link", StagedKind::Link)];
    assert_eq!(missed(&all), (0, None));
    let more = [all[0], all[1], ("d/g", StagedKind::Dir), all[2], ("z", StagedKind::Link)];
    assert_eq!(missed(&more), (2, Some("d/g".to_owned())));
    assert_eq!(missed(&[all[0], ("d/f", StagedKind::File(4)), all[2]]), (1, Some("d/f".to_owned())));
    assert_eq!(missed(&[("d", StagedKind::File(3)), all[2]]), (1, Some("d".to_owned())));
    assert_eq!(names(&top), ["link"], "what is not as it is listed is not kept");
}

#[test]
fn what_was_removed_is_told_though_the_rest_fails() {
    let dir = tempfile::tempdir().expect("scratch");
    let stage = stage(dir.path(), Replace::Never).expect("staged");
    fs::write(fill(&stage, "new").join("a"), "old").expect("written");
    let held = stage.open_top().expect("open");
    let unread = DatasetError::Unable { path: (&RelPath::root()).into(), why: "the list cannot be read" };
    let broken = listed(&[("d", StagedKind::Dir)]).collect::<Vec<_>>().into_iter().chain([Err(unread)]);
    let mut told = None;
    stage.prune(&held, broken, &mut |removed| told = Some(removed)).expect_err("it has no end");
    assert_eq!(told, Some(Removed { files: 1, bytes: 3, others: 0 }));
}

#[test]
fn what_an_earlier_session_staged_makes_way_for_something_else() {
    let dir = tempfile::tempdir().expect("scratch");
    let stage = stage(dir.path(), Replace::Never).expect("staged");
    let top = fill(&stage, "new");
    fs::set_permissions(top.join("d"), fs::Permissions::from_mode(0o555)).expect("set");
    let path = |path: &str| RelPath::new(path).expect("a path");
    stage.make_way(&path("d"), &mut |_| {}).expect("a directory goes");
    stage.make_way(&path("d"), &mut |_| {}).expect("so does what is gone");
    assert_eq!(names(&top), [""; 0]);
    fill(&stage, "new");
    stage.make_way(&path("d/f"), &mut |_| {}).expect("a file goes");
    assert_eq!(names(&top.join("d")), [""; 0]);
}

#[test]
fn a_top_that_its_owner_may_not_write_to_appears_with_its_mode_and_goes_on_after_a_refusal() {
    let dir = tempfile::tempdir().expect("scratch");
    let shut = |stage: &DatasetStage| {
        let top = fill(stage, "new");
        fs::set_permissions(top.join("d"), fs::Permissions::from_mode(0o500)).expect("set");
        fs::set_permissions(top, fs::Permissions::from_mode(0o555)).expect("set");
    };
    let mode_of = |name: &str| fs::metadata(dir.path().join(name)).expect("it stands").mode() & 0o777;
    let first = stage(dir.path(), Replace::Never).expect("staged");
    shut(&first);
    fs::create_dir(dir.path().join("run-7")).expect("somebody else's");
    assert!(matches!(commit(&first), Err(DatasetError::Stands { .. })));
    drop(first);
    fs::remove_dir(dir.path().join("run-7")).expect("gone again");
    let again = stage(dir.path(), Replace::Never).expect("staged");
    shut(&again);
    commit(&again).expect("committed");
    drop(again);
    assert_eq!(mode_of("run-7"), 0o555);
    let newer = stage(dir.path(), Replace::Allowed).expect("staged");
    shut(&newer);
    let old = String::from_utf8(commit(&newer).expect("replaced").expect("an old one")).expect("text");
    drop(newer);
    assert_eq!((mode_of("run-7"), mode_of(&old)), (0o555, 0o555));
    assert_eq!(names(dir.path()), ["run-7".to_owned(), old.clone()]);
    for name in ["run-7", &old] {
        // So that the scratch can be removed.
        for path in [dir.path().join(name), dir.path().join(name).join("d")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
        }
    }
}

/// Has a session die before its call of this number. Gives whether it came to its end.
fn die_at(dir: &Path, replace: Replace, calls: usize) -> bool {
    let dying = Arc::new(Dying { left: AtomicUsize::new(calls) });
    let kernel = Kernel::behind(dying);
    let Ok(stage) = staged(dir, replace, &kernel) else { return false };
    fill(&stage, "new");
    commit(&stage).is_ok()
}

/// The texts of `f` in the dataset and in those that are kept beside it.
fn texts(dir: &Path) -> Vec<(String, String)> {
    let seen = names(dir).into_iter().filter(|name| !name.starts_with(".longhaul"));
    seen.map(|name| (fs::read_to_string(dir.join(&name).join("d/f")).expect("whole"), name)).collect()
}

#[test]
fn a_session_that_dies_before_any_call_leaves_no_dataset_or_a_whole_one_and_is_continued() {
    let mut calls = 0;
    loop {
        let dir = tempfile::tempdir().expect("scratch");
        let is_over = die_at(dir.path(), Replace::Never, calls);
        let seen = texts(dir.path());
        assert!(seen.is_empty() || seen == [("new".to_owned(), "run-7".to_owned())], "{calls}: {seen:?}");
        if is_over {
            break;
        }
        match stage(dir.path(), Replace::Never) {
            Ok(stage) => {
                fill(&stage, "new");
                commit(&stage).unwrap_or_else(|error| panic!("{calls}: {error}"));
            }
            Err(error) => assert!(matches!(error, DatasetError::Stands { .. }) && !seen.is_empty(), "{calls}: {error}"),
        }
        assert_eq!((texts(dir.path()).len(), names(dir.path())), (1, vec!["run-7".to_owned()]), "{calls}");
        calls += 1;
    }
    assert!(calls > 8, "it died {calls} times");
}

#[test]
fn a_session_that_dies_while_it_replaces_leaves_the_old_dataset_or_the_new_one_and_loses_neither() {
    let mut calls = 0;
    loop {
        let dir = tempfile::tempdir().expect("scratch");
        fs::create_dir_all(dir.path().join("run-7/d")).expect("made");
        fs::write(dir.path().join("run-7/d/f"), "old").expect("written");
        let is_over = die_at(dir.path(), Replace::Allowed, calls);
        let seen = fs::read_to_string(dir.path().join("run-7/d/f")).expect("one of both is there");
        assert!(is_over || seen == "old" || seen == "new", "{calls}: {seen}");
        if is_over {
            let kept: Vec<String> = texts(dir.path()).into_iter().map(|(text, _)| text).collect();
            assert_eq!((seen.as_str(), kept), ("new", vec!["new".to_owned(), "old".to_owned()]));
            break;
        }
        let again = stage(dir.path(), Replace::Allowed).unwrap_or_else(|error| panic!("{calls}: {error}"));
        let before = texts(dir.path());
        assert!(before.iter().any(|(text, _)| text == "old"), "{calls}: {before:?}");
        fill(&again, "new");
        commit(&again).unwrap_or_else(|error| panic!("{calls}: {error}"));
        drop(again);
        let after = texts(dir.path());
        assert_eq!(after[0], ("new".to_owned(), "run-7".to_owned()), "{calls}");
        assert_eq!(after.iter().filter(|(text, _)| text == "old").count(), 1, "{calls}: {after:?}");
        assert!(names(dir.path()).iter().all(|name| name.starts_with("run-7")), "{calls}: {:?}", names(dir.path()));
        calls += 1;
    }
    assert!(calls > 12, "it died {calls} times");
}

#[test]
fn what_one_principal_has_staged_is_neither_seen_nor_removed_by_another() {
    let dir = tempfile::tempdir().expect("a directory");
    let kernel = Kernel::default();
    let first = staged_by("one", dir.path(), Replace::Never, &kernel).expect("staged");
    let top = fill(&first, "of one");
    drop(first);
    let second = staged_by("two", dir.path(), Replace::Never, &kernel).expect("staged");
    assert!(!second.tree().named().join("tree").exists(), "nothing is staged by this one");
    fill(&second, "of two");
    commit(&second).expect("published");
    drop(second);
    assert_eq!(fs::read_to_string(top.join("d/f")).expect("it stands"), "of one");
    assert_eq!(fs::read_to_string(dir.path().join("run-7/d/f")).expect("it stands"), "of two");
}

/// The targets of links at `l` in a dataset in the directory `d` of a served root, with whether
/// they are taken.
fn links_taken(links: &[&str]) -> Vec<bool> {
    let dir = tempfile::tempdir().expect("a directory");
    // A client has it made, as any link that stays inside.
    std::os::unix::fs::symlink(".", dir.path().join("tree")).expect("made");
    let tree = Tree::open(dir.path()).expect("a tree");
    let order = DatasetOrder { name: &name(), principal: "one", replace: Replace::Never, part: StagePart::All };
    let path = RelPath::new("d").expect("a path");
    let stage = DatasetStage::beneath((&tree, &path, ModePolicy::Keep), order, Duration::ZERO).expect("staged");
    fill(&stage, "new");
    let target = stage.target(&RelPath::root(), DirectMode::Buffered, TreePolicy::served()).expect("a target");
    let at = RelPath::new("l").expect("a path");
    let taken = |link: &&str| {
        let made = target.make_link(&at, link.as_bytes(), &longhaul_core::Meta::default(), Default::default());
        assert!(!matches!(&made, Err(error) if error.kind() != ErrorKind::LinkRefused), "{link}: {made:?}");
        made.is_ok()
    };
    links.iter().map(taken).collect()
}

#[test]
fn links_of_a_dataset_are_judged_at_the_place_that_it_shall_have() {
    let inside = ["x", ".", "d/f", "..", "../other", "../../top", "./../.."];
    assert_eq!(links_taken(&inside), [true; 7], "the dataset is two levels beneath the root");
    assert_eq!(links_taken(&["../../..", "../../../x", "/x"]), [false; 3]);
}

#[test]
fn no_link_of_a_dataset_climbs_behind_a_name_as_that_may_be_a_link_when_it_appears() {
    // Of the holder's own name, of a directory that another session may replace, of one above.
    let outside = ["../tree/../secret", "../../tree/../../secret", "d/../../secret", "d/../x", "../run-7/../x"];
    assert_eq!(links_taken(&outside), [false; 5]);
}

/// A dataset of a principal that is staged beneath the root `top`, in `d`.
fn served(tree: &Tree, principal: &str, replace: Replace) -> Result<DatasetStage, DatasetError> {
    let path = RelPath::new("d").expect("a path");
    let order = DatasetOrder { name: &name(), principal, replace, part: StagePart::All };
    DatasetStage::beneath((tree, &path, ModePolicy::Keep), order, FORKED)
}

fn notes(tree: &Tree) -> Vec<StageNote> {
    tree.shelf().stages().expect("read")
}

/// Gives what lies in a directory another time.
fn age(dir: &Path, time: u64) {
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(time);
    for entry in fs::read_dir(dir).expect("read").map(|entry| entry.expect("read").path()).chain([dir.to_owned()]) {
        fs::File::open(&entry).and_then(|file| file.set_modified(time)).expect("set");
    }
}

#[test]
fn a_dataset_that_nobody_came_back_for_goes_and_one_that_is_young_or_in_use_stays() {
    let dir = tempfile::tempdir().expect("scratch");
    let tree = Tree::open(dir.path()).expect("a tree");
    let stage = served(&tree, "one", Replace::Never).expect("staged");
    fill(&stage, "new");
    let holder = stage.tree().named().to_owned();
    let note = StageNote { place: RelPath::new("d/run-7").expect("a path"), principal: "one".to_owned() };
    assert_eq!(notes(&tree), std::slice::from_ref(&note));
    let look = |before| DatasetStage::look_after(&tree, &note, (Some(before), before), &mut |_| ()).expect("looked at");
    let facts = || DatasetStage::facts(&tree, &note, &mut CountLeft::default()).expect("looked at").expect("it stands");
    age(&holder, 1_000_000_000);
    assert_eq!(look(i64::MAX), None, "a session has it");
    assert!(facts().in_use && facts().bytes == 3, "{:?}", facts());
    drop(stage);
    assert_eq!(look(1_000_000_001), None, "its session has used it up to now");
    age(&holder, 1_000_000_000);
    assert_eq!(look(1_000_000_000), None);
    assert!(!facts().in_use && facts().used == 1_000_000_000, "{:?}", facts());
    assert!(holder.join("tree/d/f").exists());
    for (names, path_bytes, bytes) in [(1, 100, 0), (2, 100, 3), (2, 1, 0)] {
        let left = &mut CountLeft { names, path_bytes };
        let facts = DatasetStage::facts(&tree, &note, left).expect("looked at").expect("it stands");
        assert_eq!(facts.bytes, bytes, "{names} names and {path_bytes} bytes of paths are left");
    }
    assert_eq!(look(1_000_000_001), Some(Removed { files: 1, bytes: 3, others: 2 }));
    assert_eq!((names(dir.path()), names(&dir.path().join("d"))), (vec!["d".to_owned()], vec![]));
    assert_eq!(notes(&tree), []);
}

#[test]
fn a_note_goes_with_its_dataset_and_one_of_nothing_only_when_it_is_old() {
    let dir = tempfile::tempdir().expect("scratch");
    let tree = Tree::open(dir.path()).expect("a tree");
    let stage = served(&tree, "one", Replace::Never).expect("staged");
    fill(&stage, "new");
    commit(&stage).expect("committed");
    assert_eq!((notes(&tree).len(), names(dir.path())), (0, vec!["d".to_owned()]), "before anybody hears of it");
    drop(stage);
    let note = StageNote { place: RelPath::new("gone/run-7").expect("a path"), principal: "one".to_owned() };
    tree.shelf().note_stage(&note).expect("noted");
    assert_eq!(DatasetStage::facts(&tree, &note, &mut CountLeft::default()).expect("looked at"), None);
    for (noted_before, left) in [(1, 1), (i64::MAX, 0)] {
        let times = (None, noted_before);
        assert_eq!(DatasetStage::look_after(&tree, &note, times, &mut |_| ()).expect("looked at"), None);
        assert_eq!(notes(&tree).len(), left, "{noted_before}");
    }
}

#[test]
fn a_session_that_ends_leaves_alone_the_note_of_one_that_began_behind_its_commit() {
    let dir = tempfile::tempdir().expect("scratch");
    let tree = Tree::open(dir.path()).expect("a tree");
    let first = served(&tree, "one", Replace::Allowed).expect("staged");
    fill(&first, "new");
    commit(&first).expect("committed");
    let second = served(&tree, "one", Replace::Allowed).expect("staged");
    drop(first);
    assert_eq!(notes(&tree).len(), 1);
    assert!(second.tree().named().join("name").exists());
}

#[test]
fn a_session_that_begins_gives_its_note_a_new_time_and_what_a_crash_left_of_one_goes() {
    let dir = tempfile::tempdir().expect("scratch");
    let tree = Tree::open(dir.path()).expect("a tree");
    let stage = served(&tree, "one", Replace::Never).expect("staged");
    fill(&stage, "new");
    drop(stage);
    let shelf = dir.path().join(".longhaul");
    fs::write(shelf.join("0.dataset.new"), "one").expect("written");
    age(&shelf, 1_000_000_000);
    let [note] = &notes(&tree)[..] else { panic!("one note") };
    assert_eq!(tree.shelf().stage_noted(note), Some(1_000_000_000));
    let stage = served(&tree, "one", Replace::Never).expect("staged");
    assert!(tree.shelf().stage_noted(note) > Some(1_000_000_000));
    for (before, left) in [(1_000_000_000, 2), (1_000_000_001, 1)] {
        tree.shelf().remove_unwritten_stages(before).expect("looked at");
        assert_eq!(names(&shelf).len(), left, "{before}");
    }
    drop(stage);
}

#[test]
fn an_old_dataset_that_a_crash_left_without_a_name_gets_one_whoever_comes() {
    let dir = tempfile::tempdir().expect("scratch");
    let tree = Tree::open(dir.path()).expect("a tree");
    let top = dir.path().join("d");
    fs::create_dir_all(top.join("run-7/d")).expect("made");
    fs::write(top.join("run-7/d/f"), "old").expect("written");
    // It dies right behind the exchange: what it replaced lies under its own name.
    let first = served(&tree, "one", Replace::Allowed).expect("staged");
    fill(&first, "new");
    let ready = top.join(format!("{}.ready", first.tree().named().file_name().expect("one").to_str().expect("text")));
    first.holder.make_ready().expect("moved");
    first
        .holder
        .dir
        .kernel()
        .exchange(
            (first.holder.parent.as_ref(), ready.file_name().expect("one").as_bytes()),
            (first.holder.parent.as_ref(), b"run-7"),
        )
        .expect("exchanged");
    drop(first);
    assert!(ready.exists());
    let [note] = &notes(&tree)[..] else { panic!("one note") };
    assert_eq!(DatasetStage::look_after(&tree, note, (None, 0), &mut |_| ()).expect("looked at"), None);
    let found = texts(&top);
    assert_eq!(found.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(), ["new", "old"], "{found:?}");
    assert!(found[1].1.starts_with("run-7.") && found[1].1.ends_with('~'), "{found:?}");
    assert_eq!((names(&top).len(), notes(&tree).len()), (2, 0), "{:?}", names(&top));
}
