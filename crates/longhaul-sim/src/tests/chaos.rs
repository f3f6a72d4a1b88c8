//! Sessions in which anything may happen.

use std::collections::BTreeMap;

use crate::session::play_session;

#[test]
fn whatever_happens_in_whatever_order_every_entry_comes_to_its_outcome() {
    let mut counts = BTreeMap::<&str, u64>::new();
    for seed in 0..600 {
        play_session(seed).into_iter().for_each(|(name, count)| *counts.entry(name).or_default() += count);
    }
    // The worlds are only worth something if all of this happens in them.
    for name in [
        "committed",
        "skipped",
        "planned",
        "mismatch",
        "changed",
        "vanished",
        "exists",
        "denied",
        "in-the-way",
        "unsent",
        "equal",
    ] {
        assert!(counts.get(name).is_some_and(|count| *count >= 10), "{name} hardly ever happened: {counts:?}");
    }
}
