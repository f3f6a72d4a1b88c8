//! Journals of a target set, which lie on two of its targets: a target that is away for a while and
//! comes back with an old copy, and a copy that is torn.

use super::*;

/// Kills a slow copy of large files once it has made something durable, and some of that is in
/// files that it has not finished. A copy that finished those before it was killed goes on with the
/// next ones, and is killed again.
fn cut_off(scene: &Scene, options: &[&str]) {
    let slowly = ["--rate", "6MB/s", "--sync-interval", "50ms", "--chunk-size", "1MiB"];
    let is_partial = |dir: &PathBuf| {
        let listed = scene.host.run(["ls", "--partials"]).arg(dir).finish();
        listed.stdout_text().contains(" of ")
    };
    for _ in 0..5 {
        let run = scene.copy(&[&slowly, options, &["src/", "."]].concat()).start();
        run.wait_event(|event| {
            let durable = event["bytes_durable"].as_u64()?;
            let (resumed, committed) = (event["bytes_resumed"].as_u64()?, event["bytes_committed"].as_u64()?);
            (durable.saturating_sub(resumed.max(committed)) > 3 * MIB as u64).then_some(())
        });
        run.signal(Signal::KILL);
        run.finish();
        if scene.dirs.iter().any(is_partial) {
            return;
        }
    }
    panic!("five copies had nothing unfinished when they were killed");
}

/// The targets that have a journal.
fn with_journal(scene: &Scene) -> Vec<usize> {
    let has_one = |dir: &PathBuf| {
        let names = fs::read_dir(dir.join(".longhaul")).into_iter().flatten();
        names.flatten().any(|name| name.file_name().to_string_lossy().ends_with(".journal"))
    };
    (0..scene.dirs.len()).filter(|n| has_one(&scene.dirs[*n])).collect()
}

/// Cuts a copy off, takes the first target away, cuts the next copy off, and brings the target back
/// as it was: with a journal that is older than its other copy.
fn without_the_first_for_a_while(scene: &Scene, take_away: impl Fn(), bring_back: impl Fn()) {
    for n in 0..6 {
        files::make(scene.host.path(format!("src/huge/{n}")), n, 12 * MIB);
    }
    cut_off(scene, &[]);
    assert_eq!(with_journal(scene), [0, 1]);
    take_away();
    cut_off(scene, &[]);
    assert_eq!(with_journal(scene), [1, 2], "the journal has another second copy");
    // What was begun on a target that is there is gone on with, and nothing else.
    let outcome = scene.copy(&["--chunk-size", "1MiB", "src/", "."]).fail(23);
    assert!(outcome.summary()["bytes_resumed"].as_u64() > Some(0), "{outcome}");
    bring_back();
    let outcome = scene.copy(&["--chunk-size", "1MiB", "src/", "."]).succeed();
    tree::assert_same(&scene.source(), &scene.whole("."), &outcome);
    for dir in &scene.dirs {
        let orphans = tree::orphans(dir);
        assert!(orphans.iter().all(|name| name == ".longhaul-set" || name == "lost+found"), "{orphans:?}: {outcome}");
    }
}

#[test]
fn a_copy_goes_on_without_the_first_target_and_is_whole_when_that_comes_back_with_an_old_journal() {
    let scene = Scene::new(3);
    let (first, away) = (scene.dirs[0].clone(), scene.host.path("away"));
    let take_away = || {
        fs::rename(&first, &away).unwrap();
        fs::create_dir(&first).unwrap();
    };
    let bring_back = || {
        fs::remove_dir(&first).unwrap();
        fs::rename(&away, &first).unwrap();
    };
    without_the_first_for_a_while(&scene, take_away, bring_back);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_copy_goes_on_though_the_first_disk_is_not_mounted_and_is_whole_when_it_is_again() {
    let (scene, disks) = on_disks(&[128 << 20; 3]);
    without_the_first_for_a_while(&scene, || disks[0].unmount(), || disks[0].mount());
}

#[test]
fn a_journal_that_is_torn_on_one_target_is_believed_as_the_other_one_has_it() {
    for torn in [0, 1] {
        let scene = Scene::new(2);
        for n in 0..4 {
            files::make(scene.host.path(format!("src/huge/{n}")), n, 12 * MIB);
        }
        cut_off(&scene, &[]);
        let shelf = fs::read_dir(scene.dirs[torn].join(".longhaul")).unwrap();
        for journal in shelf.map(|name| name.unwrap().path()) {
            let len = fs::metadata(&journal).unwrap().len();
            fs::File::options().write(true).open(journal).unwrap().set_len(len / 3).unwrap();
        }
        let listed = scene.host.run(["ls", "--partials"]).arg(&scene.dirs[torn]).succeed();
        assert!(listed.stdout_text().contains(" of "), "{torn}: {listed}");
        let outcome = scene.copy(&["--chunk-size", "1MiB", "src/", "."]).succeed();
        assert!(outcome.summary()["bytes_resumed"].as_u64() > Some(0), "{torn}: {outcome}");
        tree::assert_same(&scene.source(), &scene.whole("."), &outcome);
    }
}
