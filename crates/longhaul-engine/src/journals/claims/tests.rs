//! Tests of claims at one root: two [`RootClaims`] over one directory stand for two daemons.

use longhaul_disk::Tree;

use super::*;

fn root(dir: &tempfile::TempDir) -> Arc<RootClaims> {
    RootClaims::new(Tree::open(dir.path()).expect("a tree").shelf())
}

fn claim(fence: u64, id: u8) -> ShardClaim {
    ShardClaim { campaign: [0xab; 16], shard: 300, fence, id: [id; 16] }
}

fn show(root: &Arc<RootClaims>, claim: ShardClaim) -> Result<HeldClaim, Option<u64>> {
    root.show(claim, &Principal::local(), &Arc::default()).map_err(|fault| fault.kept_fence())
}

fn may_publish(held: &HeldClaim) -> Result<(), Option<u64>> {
    held.publishing().map(drop).map_err(|fault| fault.kept_fence())
}

#[test]
fn a_lower_fence_and_an_equal_one_of_another_claim_are_refused_with_the_kept_fence() {
    let dir = tempfile::tempdir().expect("a directory");
    let (here, there) = (root(&dir), root(&dir));
    drop(show(&here, claim(5, 1)).expect("the first one"));
    for root in [&here, &there] {
        for refused in [claim(4, 1), claim(4, 9), claim(5, 2)] {
            assert_eq!(show(root, refused).map(drop), Err(Some(5)));
        }
    }
    let again = show(&there, claim(5, 1)).expect("the same claim in another session");
    assert_eq!(may_publish(&again), Ok(()));
    let too_high = show(&there, claim(longhaul_core::claim::SHOWN_FENCE_MAX + 1, 1)).map(drop);
    assert_eq!(too_high, Err(Some(5)));
    assert!(lock(&here.gates).is_empty(), "gates of shards that nobody has are forgotten");
}

#[test]
fn a_session_at_another_daemon_publishes_nothing_once_a_newer_claim_is_welcome() {
    let dir = tempfile::tempdir().expect("a directory");
    let (here, there) = (root(&dir), root(&dir));
    let old = show(&here, claim(1, 1)).expect("the first one");
    assert_eq!(may_publish(&old), Ok(()));
    let same = show(&there, claim(1, 1)).expect("the same mover, over another daemon");
    assert_eq!((may_publish(&old), may_publish(&same)), (Err(Some(1)), Ok(())));
    drop(same);
    let new = show(&there, claim(2, 2)).expect("a newer one");
    assert_eq!((may_publish(&old), may_publish(&new)), (Err(Some(2)), Ok(())));
}

#[test]
fn a_batch_that_is_being_renamed_holds_up_the_next_claim_until_its_last_rename() {
    let dir = tempfile::tempdir().expect("a directory");
    let (here, there) = (root(&dir), root(&dir));
    let old = show(&here, claim(1, 1)).expect("the first one");
    let batch = old.publishing().expect("it may");
    let locked = there.shelf.lock_shard(old.key(), Duration::ZERO);
    assert!(locked.is_err(), "{locked:?}");
    drop(batch);
    let new = show(&there, claim(2, 2)).expect("nothing is under way");
    assert_eq!((may_publish(&old), may_publish(&new)), (Err(Some(2)), Ok(())));
}

#[test]
fn within_one_daemon_the_older_session_is_told_and_has_ended_before_the_newer_one_is_welcome() {
    let dir = tempfile::tempdir().expect("a directory");
    let here = root(&dir);
    let presence = Arc::<Presence>::default();
    let old = here.show(claim(1, 1), &Principal::local(), &presence).expect("the first one");
    std::thread::scope(|scope| {
        let new =
            scope.spawn(|| show(&here, claim(2, 2)).map(|held| (may_publish(&held), lock(&held.gate.state).keeping)));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(presence.evicted());
        let told = presence.superseded().expect("it is told why");
        assert_eq!((told.code, told.kept_fence()), (FaultCode::Superseded, Some(2)));
        assert_eq!(may_publish(&old), Ok(()), "it may finish its batch while nothing else is kept");
        assert!(!new.is_finished());
        drop(old);
        assert_eq!(new.join().expect("no panic"), Ok((Ok(()), None)));
    });
    assert!(lock(&here.gates).is_empty());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test removes what an administrator could")]
fn a_claim_that_somebody_removed_publishes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let here = root(&dir);
    let held = show(&here, claim(3, 1)).expect("the first one");
    std::fs::remove_dir_all(dir.path().join(".longhaul")).expect("removed");
    assert_eq!(may_publish(&held), Err(Some(3)));
}

#[test]
fn the_shelf_is_looked_at_while_the_gate_is_free_and_once_more_if_the_gate_has_moved_meanwhile() {
    let (gate, looks) = (ShardGate::default(), std::cell::Cell::new(0));
    let kept = |fence| Kept { claim: Claim { fence: Fence(fence), id: ClaimId([1; 16]) }, session: SessionId([1; 16]) };
    let look = || {
        let mut state = gate.state.try_lock().expect("nobody waits at the gate for a disk");
        looks.set(looks.get() + 1);
        if looks.get() == 1 {
            state.carry_out(Vec::new(), kept(1));
        }
        Ok(Some(kept(looks.get())))
    };
    let (state, on_disk) = gate.looked(look).expect("looked");
    assert_eq!((on_disk, state.turn), (Some(kept(2)), 1), "the first look is older than the gate");
}
