//! Files of a target set that its daemon reads for their digests while a target is away.

use super::*;

#[test]
fn files_of_a_target_that_is_away_are_not_missing() {
    let scene = Scene::new(3);
    scene.copy(&["src/", "."]).succeed();
    let (host, away) = (&scene.host, scene.host.path("away"));
    let daemon = scene.daemon("");
    let url = daemon.url("data/far");
    host.run(["push", "--manifest", "list", "src/", &url]).succeed();
    drop(daemon);
    fs::rename(&scene.dirs[1], &away).unwrap();
    fs::create_dir(&scene.dirs[1]).unwrap();
    assert!((0..9).any(|n| away.join(format!("far/large/{n}")).exists()));
    let daemon = scene.daemon("");
    let outcome = host.run(["check", "--json", "list", &daemon.url("data/far")]).fail(23);
    assert_eq!(outcome.summary()["files_missing"], 0, "{outcome}");
    assert!(outcome.summary()["files_unread"].as_u64() > Some(0), "{outcome}");
    assert!(outcome.stderr.contains("target 1 of the set is missing"), "{outcome}");
}
