//! Daemons of an older build that are asked for what they do not know of orders: they are told
//! apart before anything is ordered, and nothing waits for them.

use std::thread;

use longhaul_proto::Message;
use longhaul_proto::wire::message::{CAP_LENDS_CLAIM, CAP_ORDER_SKILLS, Listing};

use super::peer::{Server, Speech};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Outcome, Run, files};

/// Answers as an older build does, which lists roots.
fn list(mut speech: Speech) {
    match speech.hear() {
        Some(Message::Hello(hello)) => assert_ne!(hello.caps & (CAP_ORDER_SKILLS | CAP_LENDS_CLAIM), 0),
        other => panic!("{other:?}"),
    }
    speech.say(&Message::Listing(Listing { names: Vec::new(), last: true }));
    assert_eq!(speech.hear(), None, "nothing is ordered");
}

/// Runs a command that asks an older daemon so many times.
fn asking(older: &Server, times: usize, run: Run) -> Outcome {
    thread::scope(|scope| {
        scope.spawn(|| (0..times).for_each(|_| list(older.accept_control())));
        run.finish()
    })
}

/// A host that trusts an older daemon, and that.
fn trusting() -> (Host, Server) {
    let (host, older) = (Host::new(), Server::start());
    host.run(["key", "trust", &older.addr().to_string(), &older.key()]).succeed();
    (host, older)
}

/// Has a mover move a campaign with these options to an older daemon, which is told apart so.
fn assert_told_apart(options: &[&str], said: &str) {
    let ((host, older), source) = (trusting(), Host::new());
    let data = source.make_dir("data");
    files::make(data.join("ds/f"), 1, 100);
    let config = DaemonConfig::default().root("data", &data, ALL_RIGHTS);
    let from = config.client("tester", host.key(), &[("data", "read")]).start(&source);
    host.run(["key", "trust", from.addr(), from.key()]).succeed();
    let to = format!("lh://{}/landing", older.addr());
    host.run(["job", "add", "--name", "all", &from.url("data/ds"), &to]).args(options).succeed();
    host.run(["job", "plan", "all"]).succeed();
    // Once with the claim, and once without it.
    let ran = asking(&older, 2, host.run(["job", "run", "--json", "--drain"]));
    assert_ne!(ran.code, 0, "{ran}");
    let fault = ran.events_of("fault").pop().unwrap();
    assert_eq!(fault["code"], "unsupported", "{ran}");
    assert!(fault["message"].as_str().unwrap().contains(said), "{fault}");
    assert!(fault["hint"].as_str().unwrap().contains("both daemons"), "{fault}");
}

#[test]
fn an_older_daemon_is_given_no_order_by_a_list() {
    assert_told_apart(&[], "does not know orders by a list of names");
}

#[test]
fn an_older_daemon_is_lent_no_claim() {
    assert_told_apart(&["--dialler", "source"], "does not know shards that the source sends by the claim of a mover");
}

#[test]
fn an_older_daemon_is_not_asked_to_stop_an_order() {
    let (host, older) = trusting();
    let (from, to) = ("lh://127.0.0.1:1/data/f".to_owned(), format!("lh://{}/landing", older.addr()));
    let run = host.run(["copy", "--json", &from, &to, "--attach", &"0f".repeat(16), "--stop"]);
    let ran = asking(&older, 1, run);
    let fault = ran.events_of("fault").pop().unwrap();
    assert_eq!(fault["code"], "unsupported", "{ran}");
    assert!(fault["message"].as_str().unwrap().contains("does not know how to stop an order"), "{fault}");
}
