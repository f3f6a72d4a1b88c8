//! Short transfers over a path whose round trip is long against everything else: the round trips
//! from the start of the program to its exit.

use super::*;

/// A command, what it moves, and the round trips that it may take: each takes one less at least,
/// where the processors have nothing else to do.
type Case<'a> = (&'a str, Run, f64);

/// Runs commands beside each other, which they do not notice: nothing fills the path.
fn take_few_round_trips(cases: Vec<Case<'_>>) {
    let run = |run: Run| {
        let begun = Instant::now();
        let outcome = run.succeed();
        (begun.elapsed().div_duration_f64(ROUND_TRIP), outcome)
    };
    let took = std::thread::scope(|scope| {
        let threads: Vec<_> = cases.into_iter().map(|(what, it, most)| (what, scope.spawn(|| run(it)), most)).collect();
        threads.into_iter().map(|(what, thread, most)| (what, thread.join().unwrap(), most)).collect::<Vec<_>>()
    });
    for (what, (round_trips, outcome), most) in took {
        assert!(round_trips < most, "{what} takes {round_trips:.2} round trips, not less than {most}: {outcome}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn short_transfers_take_few_round_trips_from_start_to_exit() {
    let far = Far::new(&format!("rate=1Gbit/s,rtt={}ms", ROUND_TRIP.as_millis()));
    files::make(far.client.path("small"), 1, 1000);
    files::make(far.client.path("large"), 2, 1_000_000);
    files::make(far.client.path("over-udp"), 4, 1_000_000);
    files::make(far.root.join("there"), 3, 1000);
    let push = |name: &str| far.run("push").arg(name).arg(far.daemon.url("data/"));
    let list = far.client.run(["ls", "--peer-key", far.daemon.key()]).beneath(far.wan.near().prefix());
    let pull = far.run("pull").arg(far.daemon.url("data/there")).arg("got");
    let over_udp = far.run("push").args(["--transport", "udp", "over-udp"]).arg(far.daemon.url("data/"));
    take_few_round_trips(vec![
        ("a push of 1 MB over UDP", over_udp, 8.9),
        ("a push of 1 KB", push("small"), 3.9),
        ("a push of 1 MB", push("large"), 6.9),
        ("a pull of 1 KB", pull, 4.9),
        ("a listing", list.arg(far.daemon.url("data/")), 3.9),
    ]);
    take_few_round_trips(vec![("a push of what is there", push("small"), 3.9)]);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_small_tree_rides_with_its_names_and_what_stands_already_is_left_alone() {
    let far = Far::new(&format!("rate=1Gbit/s,rtt={}ms", ROUND_TRIP.as_millis()));
    let (source, stands) = (far.client.path("tree"), far.root.join("tree"));
    for (seed, name) in [(1, "new"), (2, "there"), (3, "d/deep"), (4, "d/changed")] {
        files::make(source.join(name), seed, 1000);
    }
    // Of the same length and time, so that it counts as there, with other bytes.
    files::make(stands.join("there"), 7, 1000);
    for file in [source.join("there"), stands.join("there")] {
        files::set_mtime(file, 1_500_000_000, 0);
    }
    files::make(stands.join("d/changed"), 8, 999);
    let push = far.run("push").arg("tree").arg(far.daemon.url("data/"));
    take_few_round_trips(vec![("a push of a small tree", push, 3.9)]);
    for (name, want) in [("new", 1), ("there", 7), ("d/deep", 3), ("d/changed", 4)] {
        assert_eq!(std::fs::read(stands.join(name)).unwrap(), files::bytes(want, 1000), "{name}");
    }
}

const ROUND_TRIP: Duration = Duration::from_secs(1);
