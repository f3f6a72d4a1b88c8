//! Clients that take and do not use: the share of one key leaves room for others, and idle sessions
//! end.

use std::time::{Duration, Instant};

use longhaul_proto::Message;
use longhaul_proto::wire::message::{Heartbeat, Request, Transfer, Transport};

use super::peer::{Client, hello, push_to};
use super::{assert_serves, client, daemon_addr, identity};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Site, files};

/// A site with further lines in its configuration, and another host whose key has all rights as
/// well.
fn shared(lines: &str) -> (Site, Host) {
    let other = Host::new();
    let config = DaemonConfig::default().line(lines).client("other", other.key(), &[("data", ALL_RIGHTS)]);
    (Site::with(config), other)
}

/// Sessions of one key that carry nothing, each with a lane, as many as are welcome up to `most`,
/// and the code of the refusal.
fn idle_sessions(site: &Site, host: &Host, most: usize, transfer: &Transfer) -> (Vec<Client>, Option<String>) {
    let mut held = Vec::new();
    while held.len() < most {
        let mut client = Client::dial(daemon_addr(site), identity(host));
        client.speech.say(&hello(Request::Transfer(Box::new(transfer.clone()))));
        match client.speech.hear() {
            Some(Message::Welcome(_)) => held.push(client),
            Some(Message::Refuse(fault)) => return (held, Some(fault.code.name().to_owned())),
            other => panic!("{other:?}"),
        }
    }
    (held, None)
}

#[test]
fn idle_sessions_of_one_key_leave_a_quarter_for_others() {
    let (site, other) = shared("[limits]\nsessions = 8");
    let (held, refused) = idle_sessions(&site, &other, 100, &push_to("data", "taken"));
    assert_eq!((held.len(), refused.as_deref()), (6, Some("busy")), "{}", site.daemon.log());
    assert_serves(&site, "six idle sessions");
    drop(held);
}

#[test]
fn sessions_that_carry_nothing_do_not_hold_the_daemons_memory() {
    let (site, other) = shared("[limits]\nsessions = 64\nmemory = '1GiB'");
    // A quarter of a GiB each would be four, and four more of those that keep room for lanes over
    // QUIC none at all.
    let (held, refused) = idle_sessions(&site, &other, 30, &push_to("data", "taken"));
    assert_eq!((held.len(), refused), (30, None), "{}", site.daemon.log());
    let mut quic = push_to("data", "taken too");
    quic.flow.transport = Transport::Quic;
    let (more, refused) = idle_sessions(&site, &other, 30, &quic);
    assert!(more.len() < 30 && refused.as_deref() == Some("busy"), "{} more", more.len());
    assert_serves(&site, "thirty idle sessions");
    drop((held, more));
}

#[test]
fn a_daemon_with_little_memory_serves_with_what_it_has() {
    let (site, _) = shared("[limits]\nmemory = '16MiB'");
    assert_serves(&site, "a start with 16 MiB");
}

#[test]
fn a_session_in_which_nothing_moves_ends_by_the_daemons_clock() {
    let (site, _) = shared("[limits]\nidle = '2s'");
    let begun = Instant::now();
    let mut client = client(&site);
    client.agree(push_to("data", "x"));
    client.lane();
    for _ in 0..10 {
        client.speech.say(&Message::Heartbeat(Heartbeat { stalled: false, answer: false }));
    }
    assert_eq!(client.speech.end(), "timed-out", "{}", site.daemon.log());
    assert!(begun.elapsed() < Duration::from_secs(25), "sooner than silence ends it: {:?}", begun.elapsed());
    site.daemon.wait_log("nothing moved for");
    assert_serves(&site, "an idle session");
}

#[test]
fn a_pull_keeps_the_rate_of_each_root_that_it_names() {
    let (client, server) = (Host::new(), Host::new());
    let (fast, slow) = (server.make_dir("fast"), server.make_dir("slow"));
    files::make(fast.join("f"), 1, 100);
    files::make(slow.join("s"), 2, 3 << 20);
    let rights = "['read']";
    let slow_root =
        format!("[[root]]\nname = 'slow'\ntargets = ['{}']\nallow = {rights}\nrate = '8Mbit/s'", slow.display());
    let daemon = DaemonConfig::default()
        .line(&slow_root)
        .root("fast", &fast, ALL_RIGHTS)
        .client("tester", client.key(), &[("fast", ALL_RIGHTS), ("slow", "read")])
        .start(&server);
    client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    let begun = Instant::now();
    client.run(["pull", &daemon.url("fast/f"), &daemon.url("slow/s"), "to/"]).succeed();
    // 3 MiB at 1 MB/s, less what may go at once.
    assert!(begun.elapsed() > Duration::from_millis(1500), "{:?}", begun.elapsed());
}
