//! Daemons that are asked what they know of orders. Those of an older build are told apart before
//! anything is ordered, and nothing waits for them; sources that lie in their answers decide
//! nothing about the claim of a shard.

use std::thread;

use longhaul_core::claim::SHOWN_FENCE_MAX;
use longhaul_core::{Fault, ShardClaim};
use longhaul_net::Identity;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{
    CAP_LENDS_CLAIM, CAP_ORDER_SKILLS, Listing, OrderBytes, OrderEnd, OrderFiles, OrderListPart, OrderSkills,
    OrderTaken, OrderVerdict,
};

use super::identity;
use super::peer::{Client, Server, Speech};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Outcome, Run, files};

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

/// A source in place of a daemon that is gone: it gives one answer to each connection, in this
/// order, until somebody hangs up without a word. Gives the names of all that it heard.
fn answering(source: &Server, answers: &[Message]) -> Vec<&'static str> {
    let (mut answers, mut heard) = (answers.iter(), Vec::new());
    loop {
        let mut speech = source.accept_control();
        let Some(asked) = speech.hear() else { return heard };
        heard.push(asked.name());
        answers.next().into_iter().for_each(|answer| speech.say(answer));
        heard.extend(speech.hear().map(|more| more.name()));
    }
}

/// A host with a campaign of one file that is planned, the destination's host and daemon, and what
/// has the place and the key of the source's daemon since.
struct Planned {
    host: Host,
    target: Host,
    to: Daemon,
    hostile: Server,
}

impl Planned {
    /// One of a campaign with these options.
    fn with(options: &[&str]) -> Planned {
        let (host, source, target) = (Host::new(), Host::new(), Host::new());
        let (data, landing) = (source.make_dir("data"), target.make_dir("landing"));
        files::make(data.join("ds/f"), 1, 100);
        let config = DaemonConfig::default().root("landing", &landing, ALL_RIGHTS);
        let to = config.client("tester", host.key(), &[("landing", ALL_RIGHTS)]).start(&target);
        let config = DaemonConfig::default().root("data", &data, ALL_RIGHTS);
        let from = config.client("tester", host.key(), &[("data", "read")]).start(&source);
        for daemon in [&from, &to] {
            host.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
        }
        host.run(["job", "add", "--name", "all", &from.url("data/ds"), &to.url("landing")]).args(options).succeed();
        host.run(["job", "plan", "all"]).succeed();
        from.kill();
        let hostile = Server::at(from.addr().parse().unwrap(), &identity(&source));
        Planned { host, target, to, hostile }
    }
}

/// Has a mover move a campaign with these options whose source answers so since it was planned: it
/// is asked once, the claim stays as the queue gave it out, and no order is given.
fn assert_claim_stays(options: &[&str], answers: &[Message]) {
    let Planned { host, target, to: _to, hostile } = Planned::with(options);
    let (ran, heard) = thread::scope(|scope| {
        let heard = scope.spawn(|| answering(&hostile, answers));
        let ran = host.run(["job", "run", "--json", "--drain"]).finish();
        // Nobody asks it any more.
        drop(Client::dial(hostile.addr(), Identity::generate().unwrap()));
        (ran, heard.join().unwrap())
    });
    assert_eq!(heard, ["Hello"], "{options:?}: {ran}");
    let fault = ran.events_of("fault").pop().unwrap();
    assert_eq!(fault["code"], "usage", "{options:?}: {ran}");
    let end = ran.events_of("job_shard").pop().unwrap();
    assert_eq!((&end["state"], &end["fence"]), (&"held".into(), &1.into()), "{options:?}: {ran}");
    let rows = rusqlite::Connection::open(host.path(".local/state/longhaul/queue.db")).unwrap();
    let row = rows.query_row("SELECT fence, hold FROM shard", [], |row| Ok((row.get(0)?, row.get(1)?)));
    let (fence, hold): (i64, String) = row.unwrap();
    assert!(fence == 1 && hold != "fence-spent", "{options:?}: {fence}, {hold}");
    assert!(!target.path("landing/ds/f").exists());
}

/// The directions in which the two daemons dial each other.
const EACH_WAY: [&[&str]; 2] = [&[], &["--dialler", "source"]];

#[test]
fn a_source_that_makes_up_a_fence_neither_raises_a_claim_nor_spends_its_fences() {
    let claim = ShardClaim { campaign: [1; 16], shard: 1, fence: 1, id: [2; 16] };
    let refusal = || Message::Refuse(Fault::superseded(&claim, SHOWN_FENCE_MAX, "a newer claim is kept"));
    EACH_WAY.iter().for_each(|options| assert_claim_stays(options, &[refusal(), refusal()]));
}

#[test]
fn a_source_that_is_of_an_older_build_for_one_question_is_given_no_order_without_a_claim() {
    let older = || Message::Listing(Listing { names: Vec::new(), last: true });
    let newer = || Message::OrderSkills(OrderSkills { lists: true, stops: true });
    EACH_WAY.iter().for_each(|options| assert_claim_stays(options, &[older(), newer()]));
}

/// Takes one order in the place of a source, dials nobody, and says that all is done.
fn pretend(source: &Server) {
    let mut speech = source.accept_control();
    assert!(matches!(speech.hear(), Some(Message::Hello(_))));
    speech.say(&Message::OrderSkills(OrderSkills { lists: true, stops: true }));
    let mut speech = source.accept_control();
    let order = speech.hear_until(|message| match message {
        Message::Order(order) => Some(order),
        _ => None,
    });
    let id = order.expect("an order").grant.read().expect("a grant").id;
    let is_over = |message| matches!(message, Message::OrderListPart(OrderListPart { last: true, .. }));
    speech.hear_until(|message| is_over(message).then_some(())).expect("its names");
    speech.say(&Message::OrderTaken(OrderTaken { id }));
    let end = OrderEnd {
        verdict: OrderVerdict::Complete,
        files: OrderFiles { committed: 1, total: 1, ..OrderFiles::default() },
        bytes: OrderBytes { committed: 100, moved: 100, ..OrderBytes::default() },
        failures: Vec::new(),
        scanned: true,
        millis: 1,
        limits: Vec::new(),
    };
    speech.say(&Message::OrderEnded(Box::new(end)));
    while speech.hear().is_some() {}
}

#[test]
fn a_source_that_takes_an_order_and_dials_nobody_has_sent_nothing_whatever_its_figures_say() {
    let Planned { host, target, to, hostile } = Planned::with(&["--dialler", "source"]);
    let ran = thread::scope(|scope| {
        scope.spawn(|| pretend(&hostile));
        host.run(["job", "run", "--json", "--drain"]).finish()
    });
    assert_eq!(ran.code, 23, "{ran}");
    let end = ran.events_of("job_shard").pop().unwrap();
    assert_eq!((&end["state"], &end["files_failed"]), (&"partial".into(), &1.into()), "{ran}");
    let report = host.run(["job", "report", "--json", "all"]).fail(23);
    let row = report.events_of("job_fault").pop().unwrap();
    assert_eq!((&row["code"], &row["given_up"]), (&"not-found".into(), &true.into()), "{report}");
    assert!(!target.path("landing/ds/f").exists() && !to.log().contains("by grant"), "{}", to.log());
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
