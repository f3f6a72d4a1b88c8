//! Tests of destinations that are opened again.

use super::*;

#[test]
#[expect(clippy::disallowed_methods, reason = "the test removes what a disk did not keep")]
fn a_name_in_doubt_stays_so_for_the_next_session_though_no_disk_kept_its_journal() {
    let scratch = tempfile::tempdir().expect("a directory");
    let opening = Opening {
        dry_run: false,
        placing: Placing::Beneath,
        may_modify: true,
        direct: DirectMode::Buffered,
        claim: None,
        catalogue: None,
    };
    let dest = LocalDest::directory(scratch.path().to_owned());
    let site = LocalSite::new(&dest, opening.clone()).expect("a site");
    let ledger = |site: &LocalSite| site.open().expect("a destination").ledger.expect("a journal");
    let name = RelPath::new(b"name").expect("a name");
    ledger(&site).doubt(std::slice::from_ref(&name)).expect("recorded");
    std::fs::remove_dir_all(scratch.path().join(".longhaul")).expect("the journals");
    assert!(ledger(&site).is_doubtful(&name), "a further session of the run");
    let other = LocalSite::new(&dest, opening).expect("a site");
    assert!(!ledger(&other).is_doubtful(&name), "another run cannot know");
}
