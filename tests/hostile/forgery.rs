//! Somebody who sees every datagram of a lane over UDP and may send in anybody's name: forged
//! packets, copies of honest ones, and joins with wrong proofs, all while a file moves. It arrives
//! whole over the lane that it began on, strangers hear nothing, and the daemon takes no more
//! memory.

use std::sync::atomic::Ordering;

use super::daemon_addr;
use super::flood::peak_mib;
use crate::fixture::{Site, files};

#[path = "../../benches/flood/forge.rs"]
pub(crate) mod forge;
#[path = "../../benches/kit/sniff.rs"]
pub(crate) mod sniff;

use forge::{ForgedWaves, Forgery};

#[test]
#[ignore = "needs root: run by .ci/run"]
fn forged_and_copied_packets_and_wrong_joins_neither_end_a_lane_nor_are_answered() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 40 << 20);
    let waves = ForgedWaves { forged: 10_000, replayed: 5_000, joins: 20_000, line: 0 };
    let forgery = Forgery::start(daemon_addr(&site), waves).expect("root may");
    let push = ["push", "--json", "--peer-key", site.daemon.key(), "--transport", "udp", "--retry-for", "0"];
    let outcome = site.client.run(push).args(["--rate", "120Mbit/s", "f"]).arg(site.url("f")).finish();
    let counts = forgery.counts();
    let [forged, replayed, joins, heard] =
        [&counts.forged, &counts.replayed, &counts.joins, &counts.heard].map(|count| count.load(Ordering::Relaxed));
    drop(forgery);
    assert_eq!(outcome.code, 0, "{outcome}\n{}", site.daemon.log());
    let [sent, came] = [site.client.path("f"), site.root().join("f")].map(|path| std::fs::read(path).unwrap());
    assert!(sent == came, "{outcome}");
    assert!(forged > 1000 && replayed > 500 && joins > 2000, "{forged} forged, {replayed} copied, {joins} joins");
    assert_eq!(heard, 0, "strangers were answered");
    // A lane that is lost is replaced, and what it had in hand goes again.
    assert_eq!(outcome.summary()["bytes_resent"], 0, "{outcome}");
    assert!(peak_mib(site.daemon.pid()) < PEAK_MIB_MAX, "{} MiB", peak_mib(site.daemon.pid()));
}

/// The most memory: the buffers of one session, and some MiB for all else.
const PEAK_MIB_MAX: u64 = 400;
