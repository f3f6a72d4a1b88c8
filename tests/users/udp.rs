//! Lanes over UDP of clients that have a user: the daemon passes their datagrams on.

use std::fs;
use std::time::{Duration, Instant};

use super::{ALICE, BOB, House, MIB, owner, sockets};
use crate::fixture::{Host, files};

#[test]
#[ignore = "needs root: run by .ci/run"]
fn lanes_over_udp_go_to_the_process_of_the_user_which_has_no_socket_at_the_port() {
    let house = House::new();
    let udp = |client: &Host, args: &[&str]| {
        client.run([args[0], "--json", "--transport", "udp", "--lanes", "2", "--chunk-size", "1MiB"]).args(&args[1..])
    };
    let (daemon, kinds) = (house.daemon.pid(), ["udp", "udp6"]);
    let of_ports = sockets(daemon, &kinds);
    // Both at the same time, in either direction.
    for (client, seed) in [(&house.alice, 1), (&house.bob, 2)] {
        files::make(client.path("f"), seed, 40 * MIB + 3);
    }
    let push = |client: &Host, to: &str| udp(client, &["push", "--rate", "160Mbit/s", "f", &house.url(to)]).start();
    let (of_alice, of_bob) = (push(&house.alice, "a"), push(&house.bob, "b"));
    of_alice.wait_event(|event| event["bytes_durable"].as_u64().filter(|bytes| *bytes > 0));
    assert_eq!(sockets(house.deputy(ALICE).pid, &kinds), 0);
    assert!(sockets(daemon, &kinds) > of_ports, "it has those of the lanes");
    let outcomes = [of_alice.fail(0), of_bob.fail(0)];
    for (outcome, (client, name, uid)) in outcomes.iter().zip([(&house.alice, "a", ALICE), (&house.bob, "b", BOB)]) {
        assert_eq!(outcome.events_of("start")[0]["transport"], "udp", "{outcome}");
        assert_eq!(owner(house.path(name)), (uid, uid));
        assert!(fs::read(house.path(name)).unwrap() == fs::read(client.path("f")).unwrap(), "{name}");
        let back = udp(client, &["pull", &house.url(name), "back"]).succeed();
        assert_eq!(back.events_of("start")[0]["transport"], "udp", "{back}");
        assert!(fs::read(client.path("back")).unwrap() == fs::read(client.path("f")).unwrap(), "{name}");
    }
    // The sockets of lanes went with them.
    let until = Instant::now() + Duration::from_secs(30);
    while sockets(daemon, &kinds) > of_ports {
        assert!(Instant::now() < until, "{} are left", sockets(daemon, &kinds));
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn lanes_over_quic_are_refused_with_what_to_use() {
    let house = House::new();
    files::make(house.alice.path("f"), 1, 1000);
    let outcome = house.alice.run(["push", "--transport", "quic", "f", &house.url("")]).finish();
    assert!(outcome.code != 0 && outcome.stderr.contains("use --transport tcp"), "{outcome}");
}
