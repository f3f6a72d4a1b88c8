//! Tests of the dataset of a campaign: its shards beside each other, and its commit, which dies
//! before each of its calls.

use super::*;

/// A part of the dataset of a campaign that is staged in a directory.
fn part_of(dir: &Path, part: StagePart, kernel: &Kernel) -> Result<DatasetStage, DatasetError> {
    let order = DatasetOrder { name: &name(), principal: "one", replace: Replace::Never, part };
    DatasetStage::at(base::named(dir, kernel)?, (dir.to_owned(), &RelPath::root(), None), order, FORKED)
}

const CAMPAIGN: [u8; 16] = [7; 16];

/// The dataset of a campaign appears. The session may die before any call.
fn commit_campaign(dir: &Path, kernel: &Kernel) -> Result<(), DatasetError> {
    let stage = part_of(dir, StagePart::Commit(CAMPAIGN), kernel)?;
    let top = stage.open_top()?;
    drop(stage.read_roots());
    fs::create_dir(top.manifest_path()).map_err(|error| DiskError::call("make", Path::new("list"), error))?;
    stage.note_campaign(&top)?;
    stage.make_durable(&top)?;
    stage.publish(&top)?.fault.map_or(Ok(()), Err)
}

#[test]
fn shards_of_a_campaign_are_staged_beside_each_other_and_nobody_commits_meanwhile() {
    let (dir, kernel) = (tempfile::tempdir().expect("scratch"), &Kernel::default());
    let shard = || part_of(dir.path(), StagePart::Shard(CAMPAIGN), kernel);
    let (first, second) = (shard().expect("staged"), shard().expect("beside the first"));
    assert_eq!(first.tree().named(), second.tree().named());
    fill(&second, "new");
    let other = part_of(dir.path(), StagePart::Shard([8; 16]), kernel).expect("of another campaign");
    assert_ne!(first.tree().named(), other.tree().named());
    drop((first, other));
    let commit = commit_campaign(dir.path(), kernel);
    assert!(matches!(commit, Err(DatasetError::Busy { .. })), "{commit:?}");
    assert_eq!(names(dir.path()).len(), 1, "what others staged stays, and what is empty goes");
    drop(second);
    commit_campaign(dir.path(), kernel).expect("it appears");
    assert_eq!(names(dir.path()), ["run-7"]);
    for part in [StagePart::Shard(CAMPAIGN), StagePart::Commit(CAMPAIGN)] {
        let again = part_of(dir.path(), part, kernel);
        assert!(matches!(again, Err(DatasetError::Published { .. })), "{again:?}");
    }
    let other = part_of(dir.path(), StagePart::Shard([8; 16]), kernel);
    assert!(matches!(other, Err(DatasetError::Stands { .. })), "{other:?}");
    assert_eq!(names(dir.path()), ["run-7"], "nothing is left of those that were refused");
}

/// The stage of a campaign's dataset, as whoever gives it up finds it.
fn found(dir: &Path, principal: &str, campaign: [u8; 16]) -> FoundStage {
    let part = StagePart::Commit(campaign);
    let order = DatasetOrder { name: &name(), principal, replace: Replace::Never, part };
    DatasetStage::find(dir, &order).expect("looked at")
}

#[test]
fn a_stage_that_no_session_has_is_removed_by_its_own_principal_and_campaign_and_by_no_other() {
    let (dir, kernel) = (tempfile::tempdir().expect("scratch"), &Kernel::default());
    assert!(matches!(found(&dir.path().join("none"), "one", CAMPAIGN), FoundStage::Nothing));
    assert!(names(dir.path()).is_empty(), "a look makes nothing");
    let stage = part_of(dir.path(), StagePart::Shard(CAMPAIGN), kernel).expect("staged");
    fill(&stage, "new");
    let holder = stage.tree().named().to_owned();
    assert!(matches!(found(dir.path(), "one", CAMPAIGN), FoundStage::InUse));
    drop(stage);
    for (principal, campaign) in [("two", CAMPAIGN), ("one", [8; 16])] {
        assert!(matches!(found(dir.path(), principal, campaign), FoundStage::Nothing), "{principal}");
    }
    let record = fs::read(holder.join("name")).expect("a record");
    fs::write(holder.join("name"), "run-7\nsomebody else\n").expect("written");
    assert!(matches!(found(dir.path(), "one", CAMPAIGN), FoundStage::Nothing), "the record names another one");
    assert!(holder.join("tree/d/f").exists());
    fs::write(holder.join("name"), record).expect("written");
    let FoundStage::Idle(idle) = found(dir.path(), "one", CAMPAIGN) else { panic!("it is staged") };
    let beside = part_of(dir.path(), StagePart::Shard(CAMPAIGN), kernel);
    assert!(matches!(beside, Err(DatasetError::Busy { .. })), "nobody stages meanwhile");
    let removed = idle.remove().expect("removed");
    assert_eq!((removed.files, removed.bytes), (1, 3));
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
    assert!(matches!(found(dir.path(), "one", CAMPAIGN), FoundStage::Nothing));
}

#[test]
fn a_stage_in_its_last_steps_is_removed_and_the_old_dataset_beside_it_gets_its_name() {
    let (dir, kernel) = (tempfile::tempdir().expect("scratch"), &Kernel::default());
    let stage = part_of(dir.path(), StagePart::Shard(CAMPAIGN), kernel).expect("staged");
    fill(&stage, "new");
    let holder = stage.tree().named().to_owned();
    drop(stage);
    // As of a commit that was killed between its exchange and the last rename.
    fs::create_dir(holder.join("ready.1")).expect("a note");
    let ready = dir.path().join(format!("{}.ready", holder.file_name().expect("one").to_string_lossy()));
    fs::create_dir(&ready).expect("made");
    fs::write(ready.join("f"), "old").expect("written");
    let FoundStage::Idle(idle) = found(dir.path(), "one", CAMPAIGN) else { panic!("it is staged") };
    idle.remove().expect("removed");
    let left = names(dir.path());
    assert!(left.len() == 1 && left[0].starts_with("run-7.") && left[0].ends_with('~'), "{left:?}");
    assert_eq!(fs::read_to_string(dir.path().join(&left[0]).join("f")).expect("it stands"), "old");
}

#[test]
fn a_commit_that_dies_before_any_call_is_done_by_the_next_one_or_known_to_be_done() {
    let mut calls = 0;
    loop {
        let (dir, kernel) = (tempfile::tempdir().expect("scratch"), &Kernel::default());
        let shard = part_of(dir.path(), StagePart::Shard(CAMPAIGN), kernel).expect("staged");
        fill(&shard, "new");
        drop(shard);
        let is_over = commit_campaign(dir.path(), &Kernel::behind(Arc::new(Dying { left: calls.into() }))).is_ok();
        let seen = texts(dir.path());
        assert!(seen.is_empty() || seen == [("new".to_owned(), "run-7".to_owned())], "{calls}: {seen:?}");
        match commit_campaign(dir.path(), kernel) {
            Ok(()) => assert!(seen.is_empty(), "{calls}: it appeared twice"),
            Err(DatasetError::Published { .. }) => assert!(!seen.is_empty(), "{calls}"),
            Err(error) => panic!("{calls}: {error}"),
        }
        assert_eq!(names(dir.path()), ["run-7"], "{calls}");
        if is_over {
            break;
        }
        calls += 1;
    }
    assert!(calls > 8, "it died {calls} times");
}

#[test]
fn nobody_stages_beside_others_what_a_dead_session_left_in_its_last_steps() {
    let (dir, kernel) = (tempfile::tempdir().expect("scratch"), &Kernel::default());
    let shard = || part_of(dir.path(), StagePart::Shard(CAMPAIGN), kernel);
    let first = shard().expect("staged");
    fill(&first, "new");
    fs::create_dir(first.tree().named().join("ready.5")).expect("a note");
    let second = shard();
    assert!(matches!(second, Err(DatasetError::Busy { .. })), "{second:?}");
    drop(first);
    let alone = shard().expect("it has ended the last steps");
    assert!(!alone.tree().named().join("ready.5").exists());
    shard().expect("beside it");
}
