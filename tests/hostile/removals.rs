//! Orders to move names away that no client of ours gives, and daemons that answer such orders as
//! none of ours does. Nothing goes but names beneath the path that was asked for, with the facts
//! that they have.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::thread;

use longhaul_core::limits::REMOVAL_NAMES_MAX;
use longhaul_core::{FaultCode, Meta, Mtime, PlanName};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{
    CAP_REMOVAL, Hello, KnownFacts, KnownKind, KnownName, Listed, ListedKind, Listing, NameAnswer, RemovalAnswer,
    RemovalBatch, RemovalOrder, Request,
};

use super::peer::{Client, Server, Speech, forged, hello, rel, word};
use super::{assert_serves, client};
use crate::fixture::{DaemonConfig, Host, Outcome, Site, files};

const PLAN: PlanName = PlanName { digest: [0xab; 32], made: 1_795_862_400 };
const GRACE: &str = ".longhaul/grace/2026-11-28-abababababababab";

/// Says that names beneath a path are to go.
fn asked(site: &Site, path: &str) -> Client {
    let mut client = client(site);
    let Message::Hello(said) = hello(Request::List { root: word("data"), path: rel(path) }) else { unreachable!() };
    client.speech.say(&Message::Hello(Hello { caps: CAP_REMOVAL, ..said }));
    client
}

/// The same, and is let.
fn opened(site: &Site, path: &str) -> Client {
    let mut client = asked(site, path);
    assert!(matches!(client.speech.hear(), Some(Message::RemovalOpened(_))));
    client
}

fn facts(path: &Path) -> KnownFacts {
    let found = fs::symlink_metadata(path).unwrap();
    let kind = match found.file_type() {
        kind if kind.is_file() => KnownKind::File,
        kind if kind.is_symlink() => KnownKind::Link,
        kind if kind.is_dir() => KnownKind::Dir,
        _ => KnownKind::Special,
    };
    let mtime = Mtime { secs: found.mtime(), nanos: found.mtime_nsec() as u32 };
    KnownFacts { kind, dev: found.dev(), ino: found.ino(), bytes: found.len(), mtime }
}

fn order(names: Vec<KnownName>) -> Message {
    Message::RemovalOrder(RemovalOrder::Move(RemovalBatch { plan: PLAN, names }))
}

fn known(path: &str, facts: KnownFacts) -> KnownName {
    KnownName { path: rel(path), facts }
}

/// The answers to an order.
fn answers(speech: &mut Speech, order: &Message) -> Vec<NameAnswer> {
    speech.say(order);
    let mut all = Vec::new();
    loop {
        match speech.hear() {
            Some(Message::RemovalAnswer(answer)) => {
                all.extend(answer.names);
                if answer.last {
                    return all;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_path_that_leads_out_or_to_what_is_ours_is_no_name_and_ends_the_conversation() {
    let site = Site::new();
    files::make(site.root().join("in/aa/f"), 1, 10);
    files::make(site.root().join("f"), 1, 10);
    files::make(site.root().join("in/.longhaul/f"), 1, 10);
    let outside = facts(&site.root().join("f"));
    for (from, to) in
        [("aa/f", "../f"), ("aa/f", "/a/f"), ("xlonghaul/f", ".longhaul/f"), ("aa/f", "aa//"), ("aa/f", "a/./")]
    {
        let mut client = opened(&site, "in");
        let bytes = forged(&order(vec![known(from, outside)]), from.as_bytes(), to.as_bytes());
        client.speech.say_bytes(&bytes);
        assert_eq!(client.speech.end(), "protocol", "{to}");
    }
    assert!(site.root().join("f").exists() && site.root().join("in/.longhaul/f").exists());
    assert!(!site.root().join(".longhaul").exists(), "nothing was moved");
    assert_serves(&site, "paths that are none");
}

#[test]
fn no_name_goes_behind_a_link_nor_one_that_has_other_facts_nor_what_is_kept() {
    let site = Site::new();
    let at = |name: &str| site.root().join("in").join(name);
    ["f", "g", "d/f", "run7.0123456789abcdef~/old"].iter().for_each(|name| files::make(at(name), 1, 10));
    files::make(site.root().join("out/f"), 1, 10);
    symlink("../out", at("l")).unwrap();
    files::make_special(at("fifo"), rustix::fs::FileType::Fifo);
    let f = facts(&at("f"));
    let behind = facts(&site.root().join("out/f"));
    let old = facts(&at("run7.0123456789abcdef~/old"));
    let names = vec![
        known("l/f", behind),
        known("g", f),
        known("f", KnownFacts { ino: f.ino + 1, ..f }),
        known("f", KnownFacts { dev: f.dev + 1, ..f }),
        known("f", KnownFacts { bytes: f.bytes + 1, ..f }),
        known("f", KnownFacts { mtime: Mtime { secs: f.mtime.secs, nanos: f.mtime.nanos ^ 1 }, ..f }),
        known("f", KnownFacts { kind: KnownKind::Dir, ..f }),
        known("fifo", facts(&at("fifo"))),
        known("none", f),
        known("d", facts(&at("d"))),
        known("run7.0123456789abcdef~/old", old),
        known("f", f),
        known("f", f),
    ];
    let mut client = opened(&site, "in");
    let told = answers(&mut client.speech, &order(names));
    let changed = NameAnswer::Changed;
    assert_eq!(told[..8], [&changed; 8].map(Clone::clone), "{told:?}");
    assert_eq!(told[8..10], [NameAnswer::Absent, NameAnswer::NotEmpty], "{told:?}");
    assert!(matches!(&told[10], NameAnswer::Refused(fault) if fault.code == FaultCode::Denied), "{told:?}");
    assert_eq!(told[11..], [NameAnswer::Moved, NameAnswer::MovedBefore], "{told:?}");
    for stays in ["g", "d/f", "run7.0123456789abcdef~/old", "l", "fifo", "../out/f"] {
        assert!(fs::symlink_metadata(at(stays)).is_ok(), "{stays}");
    }
    assert!(!at("f").exists() && site.root().join(GRACE).join("in/f").exists());
    // The same names are looked at without a link being followed.
    let look = |names: &[&str]| Message::RemovalOrder(RemovalOrder::Look(names.iter().map(|name| rel(name)).collect()));
    let told = answers(&mut client.speech, &look(&["l/f", "f", "d", "l"]));
    assert!(matches!(&told[0], NameAnswer::Refused(fault) if fault.code == FaultCode::InTheWay), "{told:?}");
    assert_eq!(told[1], NameAnswer::Absent);
    assert!(
        matches!(told[2], NameAnswer::Found { within: 1, .. })
            && matches!(told[3], NameAnswer::Found { within: 0, .. })
    );
}

#[test]
fn an_order_that_is_too_long_or_of_another_plan_or_about_the_top_ends_the_conversation() {
    let site = Site::new();
    files::make(site.root().join("in/f"), 1, 10);
    let f = facts(&site.root().join("in/f"));
    let look = |names: Vec<_>| Message::RemovalOrder(RemovalOrder::Look(names));
    let other = PlanName { digest: [1; 32], ..PLAN };
    let other = Message::RemovalOrder(RemovalOrder::Move(RemovalBatch { plan: other, names: vec![known("f", f)] }));
    let none = known("none", f);
    for orders in [
        vec![order(vec![known("f", f); REMOVAL_NAMES_MAX + 1])],
        vec![look(vec![rel("f"); REMOVAL_NAMES_MAX + 1])],
        vec![order(Vec::new())],
        vec![look(Vec::new())],
        vec![order(vec![known("", f), known("f", f)])],
        vec![look(vec![rel("")])],
        vec![look(vec![rel("f"), rel("g"), rel("f")])],
        vec![order(vec![none]), other],
        vec![Message::RemovalAnswer(RemovalAnswer { names: Vec::new(), last: true })],
    ] {
        let mut client = opened(&site, "in");
        let (last, before) = orders.split_last().unwrap();
        before.iter().for_each(|order| drop(answers(&mut client.speech, order)));
        client.speech.say(last);
        assert_eq!(client.speech.end(), "protocol", "{last:?}");
        assert!(site.root().join("in/f").exists(), "{last:?}");
    }
    // As many as there may be are answered, in order.
    let mut client = opened(&site, "in");
    let names = (0..REMOVAL_NAMES_MAX - 1).map(|n| known(&format!("{n}/{}", "x".repeat(200)), f));
    let told = answers(&mut client.speech, &order(names.chain([known("f", f)]).collect()));
    assert_eq!((told.len(), told.last()), (REMOVAL_NAMES_MAX, Some(&NameAnswer::Moved)));
    assert_serves(&site, "orders that are none");
}

#[test]
fn a_client_without_the_right_hears_no_more_than_that_and_one_that_lists_moves_nothing() {
    let site = Site::granting(DaemonConfig::default(), "read,create,modify", "read,create,modify,delete");
    files::make(site.root().join("in/f"), 1, 10);
    let f = facts(&site.root().join("in/f"));
    for path in ["", "in", "none"] {
        assert_eq!(asked(&site, path).speech.end(), "denied", "{path}");
    }
    // The right is told to those alone who know its name.
    for caps in [0, CAP_REMOVAL] {
        let site = Site::new();
        let mut client = client(&site);
        let Message::Hello(said) = hello(Request::Roots) else { unreachable!() };
        client.speech.say(&Message::Hello(Hello { caps, ..said }));
        let Some(Message::Listing(listing)) = client.speech.hear() else { panic!("no roots") };
        let ListedKind::Root { rights } = &listing.names[0].kind else { panic!("no root: {listing:?}") };
        assert_eq!((rights.read && rights.modify, rights.delete), (true, caps != 0));
    }
    // Whoever lists, and says an order behind it.
    let mut client = client(&site);
    client.speech.say(&hello(Request::List { root: word("data"), path: rel("in") }));
    client.speech.say(&order(vec![known("f", f)]));
    assert!(matches!(client.speech.hear(), Some(Message::Listing(_))));
    assert!(client.speech.end().starts_with("closed"));
    assert!(site.root().join("in/f").exists());
    let site = Site::new();
    files::make(site.root().join("in/f"), 1, 10);
    for (path, code) in [("none", "not-found"), ("in/f", "in-the-way")] {
        assert_eq!(asked(&site, path).speech.end(), code, "{path}");
    }
}

/// Runs the step `plan` against a server that answers so, once it has heard the hello.
fn plan_at(serve: impl FnOnce(&mut Speech) + Send) -> Outcome {
    let (host, server) = (Host::new(), Server::start());
    files::make(host.path("src/f"), 1, 10);
    let url = format!("lh://{}/data/", server.addr());
    let run = host.run(["sync", "--peer-key", &server.key(), "src/", &url, "--delete", "plan"]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut speech = server.accept_control();
            let Some(Message::Hello(said)) = speech.hear() else { panic!("no hello") };
            assert_eq!(said.caps & CAP_REMOVAL, CAP_REMOVAL);
            serve(&mut speech);
        });
        run.finish()
    })
}

#[test]
fn a_daemon_that_does_not_know_how_is_told_from_others_before_anything_is_listed() {
    let names = vec![Listed { name: b"x".to_vec(), kind: ListedKind::File, len: 1, meta: Meta::default() }];
    let told = plan_at(|speech| speech.say(&Message::Listing(Listing { names, last: true })));
    assert_eq!(told.code, 7, "{told}");
    assert!(told.stderr.contains("does not know how to move names away"), "{told}");
    // One that answers what nobody asked, and one that says nothing at all.
    let told = plan_at(|speech| speech.say(&Message::RemovalAnswer(RemovalAnswer { names: Vec::new(), last: true })));
    assert_eq!(told.code, 1, "{told}");
    assert!(told.stderr.contains("names were to be moved away and something else came"), "{told}");
    let told = plan_at(|_| ());
    assert_eq!(told.code, 5, "{told}");
}

#[test]
fn a_client_that_leaves_in_the_middle_of_an_order_leaves_a_record_of_each_name_that_went() {
    let site = Site::with(DaemonConfig::default().watch("audit = 'audit.jsonl'"));
    let names: Vec<_> = (0..REMOVAL_NAMES_MAX).map(|n| format!("{n}")).collect();
    names.iter().for_each(|name| files::make(site.root().join("in").join(name), 1, 10));
    let mut client = opened(&site, "in");
    client
        .speech
        .say(&order(names.iter().map(|name| known(name, facts(&site.root().join("in").join(name)))).collect()));
    drop(client);
    site.daemon.wait_log("ended: removal in data/in");
    let gone = || names.iter().filter(|name| !site.root().join("in").join(name).exists()).count();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let recorded = fs::read_to_string(site.server.path("audit.jsonl")).unwrap();
        if recorded.matches("\"session_ended\"").count() == 1 {
            assert_eq!(recorded.matches("\"moved_away\"").count(), gone(), "{recorded}");
            break;
        }
        assert!(std::time::Instant::now() < until, "{recorded}");
        thread::yield_now();
    }
}
