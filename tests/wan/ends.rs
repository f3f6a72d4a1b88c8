//! The ends of transfers over paths on which some lanes are much slower than others.

use super::*;

/// The share of a file that was sent again, by the program's own account.
fn sent_again(path: &str, options: &[&str], bytes: usize) -> (f64, Outcome) {
    let far = Far::new(path);
    files::make(far.client.path("f"), 1, bytes);
    let outcome = far.run("push").args(options).arg("f").arg(far.daemon.url("data/f")).succeed();
    tree::assert_same(&Tree::of(far.client.path("f")), &Tree::of(far.root.join("f")), &outcome);
    (outcome.summary()["bytes_resent"].as_u64().unwrap() as f64 / bytes as f64, outcome)
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn little_is_sent_again_at_the_end_over_a_narrow_path_that_loses_packets() {
    // Some lanes have BBR and others cubic, which keeps hardly anything on its way there. With
    // chunks of 4 MiB a third and more was sent again.
    for options in [&[][..], &["--rate", "16Mbit/s"]] {
        let (share, outcome) = sent_again("rate=20Mbit/s,rtt=300ms,loss=1e-2", options, 12 * MIB);
        assert!(share < 0.1, "{options:?}: {share:.3} was sent again: {outcome}");
    }
}
