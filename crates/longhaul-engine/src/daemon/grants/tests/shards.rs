//! Tests of what a grant for the names of a shard lends, and for how long.
//!
//! In: the scene of the other tests of grants. Out: tests. Must not know sessions.

use super::*;

/// A push of a shard's names by this rule.
fn push(if_exists: IfExists) -> Transfer {
    let FarSource { root, path, .. } = source("x", false);
    let far = Far::Destination { root, path, placing: Placing::Beneath, if_exists };
    Transfer { run: [9; 16], far, ..transfer(Flow::default()) }
}

fn lent(scene: &Scene, if_exists: IfExists) -> LentRights {
    let terms = ListedWrite { list: [7; 32], claim: None, if_exists };
    let grant = Grant { right: GrantRight::WriteListed(terms), ..scene.grant() };
    scene.shown(&grant).unwrap_or_else(|reason| panic!("{reason:?}"))
}

#[test]
fn reading_is_lent_where_digests_are_compared_and_for_nothing_else() {
    let scene = Scene::new();
    let write = Rights { create: true, modify: true, ..Rights::default() };
    for (if_exists, rights) in [
        (IfExists::SkipSame, write),
        (IfExists::Replace, write),
        (IfExists::Fail, write),
        (IfExists::Verify, Rights { read: true, ..write }),
    ] {
        let lent = lent(&scene, if_exists);
        assert_eq!(lent.client.roots, BTreeMap::from([("data".to_owned(), rights)]), "{if_exists:?}");
        let covered = |transfer: Transfer| lent.need_covered((&asked(transfer), &Shown::default())).is_ok();
        // The digests of files that are as they were would be more than is compared.
        let more = Transfer { digests: true, ..push(if_exists) };
        let found = [covered(push(if_exists)), covered(more), covered(pull(vec![source("x", false)]))];
        assert_eq!(found, [true, false, false], "{if_exists:?}");
        let other = if if_exists == IfExists::Verify { IfExists::SkipSame } else { IfExists::Verify };
        assert!(!covered(push(other)), "its rule is {if_exists:?}");
    }
}

#[test]
fn a_client_that_may_not_read_there_has_nothing_compared_by_a_bearer() {
    let mut scene = Scene::new();
    let write = Rights { create: true, modify: true, ..Rights::default() };
    scene.daemon.config.clients[0].roots = BTreeMap::from([("data".to_owned(), write)]);
    let told = |if_exists| {
        let refused = lent(&scene, if_exists).need_usable(&scene.daemon).err();
        refused.map(|fault| fault.message.to_string())
    };
    assert_eq!(told(IfExists::SkipSame), None);
    let why = told(IfExists::Verify).unwrap_or_default();
    assert!(why.contains("no right 'read' on root 'data'"), "{why}");
}

#[test]
fn a_session_lasts_no_longer_than_the_grant_of_a_shard_and_by_another_grant_as_long_as_it_takes() {
    let scene = Scene::new();
    let terms = ListedWrite { list: [7; 32], claim: None, if_exists: IfExists::SkipSame };
    let left = |right, now| {
        let lent = scene.shown(&Grant { right, ..scene.grant() });
        lent.unwrap_or_else(|reason| panic!("{reason:?}")).time_left_at(now).map(|left| left.as_secs())
    };
    let shard = GrantRight::WriteListed(terms);
    // The clocks of two hosts differ: as long as a session may begin, it may go on.
    let found = [NOW, NOW + 3600, NOW + 3600 + GRANT_SKEW_SECONDS, NOW + 7200].map(|now| left(shard, now));
    assert_eq!(found, [Some(3661), Some(61), Some(1), Some(0)]);
    for right in [GrantRight::Write, GrantRight::Read, GrantRight::ReadListed([7; 32])] {
        assert_eq!(left(right, NOW), None, "{right:?}");
    }
}
