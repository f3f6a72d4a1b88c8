//! Tests of requests that a bearer makes beyond its grant.

use super::*;

#[test]
fn by_a_grant_for_a_list_its_names_alone_are_asked_for() {
    let scene = Scene::new();
    let grant = Grant { right: GrantRight::ReadListed([5; 32]), ..scene.grant() };
    let lent = scene.shown(&grant).unwrap_or_else(|reason| panic!("{reason:?}"));
    let covered = |path: &str, follows: Follows| {
        let far = Far::Sources { sources: vec![source(path, false)], rules: Vec::new(), follows };
        let pull = asked(Transfer { far, ..pull(Vec::new()) });
        lent.need_covered((&pull, &Shown::default())).is_ok()
    };
    let found = [
        covered("x", Follows::Names),
        covered("y", Follows::Names),
        covered("x", Follows::Nothing),
        covered("x", Follows::Sources),
    ];
    assert_eq!(found, [true, false, false, false], "all that lies at the source is not lent");
}

#[tokio::test]
async fn a_bearer_that_asks_for_another_path_than_its_grant_names_is_not_admitted() {
    let scene = Scene::new();
    let now = seconds_since_1970();
    let grant = Grant { not_before: now, not_after: now + 3600, sources: vec![source("y", false)], ..scene.grant() };
    let signed = grant.signed(|bytes| scene.issuer.sign(bytes)).expect("small");
    let lent = scene.daemon.honour(&signed, scene.bearer.public()).unwrap_or_else(|fault| panic!("{fault}"));
    let bearer = Bearer { client: lent.client.clone(), lent: Some(lent) };
    let why = admitted(scene, bearer, Shown::default()).await;
    assert!(why.as_ref().is_err_and(|why| why.contains("does not name what is asked for")), "{why:?}");
}
