//! Orders to read files that no client of ours gives, and daemons that answer such orders as none
//! of ours does. No file is read but beneath the path that was asked for, and no finding is
//! believed on a name that was not asked about.

use std::fs;
use std::os::unix::fs::symlink;
use std::thread;

use longhaul_core::limits::READING_NAMES_MAX;
use longhaul_core::{FaultCode, Meta};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{
    CAP_READING, FoundName, FoundNames, FoundThing, Hello, Listed, ListedKind, Listing, ReadOrder, ReadingWord, Request,
};

use super::peer::{Client, Server, Speech, forged, hello, rel, word};
use super::{assert_serves, client};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Outcome, Site, files};

/// Says that files beneath a path are to be read.
fn asked(site: &Site, path: &str) -> Client {
    let mut client = client(site);
    let Message::Hello(said) = hello(Request::List { root: word("data"), path: rel(path) }) else { unreachable!() };
    client.speech.say(&Message::Hello(Hello { caps: CAP_READING, ..said }));
    client
}

/// The same, and is let.
fn opened(site: &Site, path: &str) -> Client {
    let mut client = asked(site, path);
    assert_eq!(client.speech.hear(), Some(Message::Reading(ReadingWord::Opened)));
    client
}

fn read(names: &[&str]) -> Message {
    let names = names.iter().map(|name| rel(name)).collect();
    Message::Reading(ReadingWord::Read(ReadOrder { names, rate: 0 }))
}

/// The findings on the names of an order, by their places.
fn findings(speech: &mut Speech, order: &Message) -> Vec<FoundThing> {
    speech.say(order);
    let mut all = Vec::new();
    loop {
        match speech.hear() {
            Some(Message::Reading(ReadingWord::Found(found))) => {
                all.extend(found.names);
                if found.last {
                    all.sort_by_key(|name| name.at);
                    return all.into_iter().map(|name| name.found).collect();
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn read_as(found: &FoundThing, path: &std::path::Path) -> bool {
    let content = fs::read(path).unwrap();
    let b3 = *blake3::hash(&content).as_bytes();
    *found == FoundThing::Read { bytes: content.len() as u64, b3 }
}

#[test]
fn no_file_is_read_behind_a_link_nor_a_directory_with_what_is_in_it() {
    let site = Site::new();
    let at = |name: &str| site.root().join("in").join(name);
    ["f", "d/f", "../out/f"].iter().for_each(|name| files::make(at(name), 1, 1000));
    symlink("../out", at("l")).unwrap();
    symlink("../out/f", at("lf")).unwrap();
    files::make_special(at("fifo"), rustix::fs::FileType::Fifo);
    let mut client = opened(&site, "in");
    let found = findings(&mut client.speech, &read(&["f", "l/f", "lf", "d", "fifo", "none", "f/f", "d/f"]));
    assert!(read_as(&found[0], &at("f")) && read_as(&found[7], &at("d/f")), "{found:?}");
    assert!(matches!(&found[1], FoundThing::Failed(fault) if fault.code == FaultCode::InTheWay), "{found:?}");
    assert_eq!(found[2], FoundThing::Link { target: b"../out/f".to_vec() });
    assert_eq!(found[3..7], [FoundThing::Dir, FoundThing::Special, FoundThing::Absent, FoundThing::Absent]);
    // To look reads nothing, and names of a directory come in order.
    let look = Message::Reading(ReadingWord::Look(vec![rel("f"), rel("d")]));
    let found = findings(&mut client.speech, &look);
    assert!(matches!(found[0], FoundThing::File { bytes: 1000, .. }) && found[1] == FoundThing::Dir, "{found:?}");
    client.speech.say(&Message::Reading(ReadingWord::List(rel(""))));
    let Some(Message::Reading(ReadingWord::Names(listing))) = client.speech.hear() else { panic!("no names") };
    let names: Vec<_> = listing.names.iter().map(|listed| listed.name.as_slice()).collect();
    assert_eq!((names, listing.last), (vec![b"d" as &[u8], b"f", b"fifo", b"l", b"lf"], true));
    // One behind a link is not listed, and the conversation goes on.
    client.speech.say(&Message::Reading(ReadingWord::List(rel("l"))));
    let Some(Message::Reading(ReadingWord::Names(listing))) = client.speech.hear() else { panic!("no names") };
    assert!(listing.names.is_empty() && listing.last);
    assert!(read_as(&findings(&mut client.speech, &read(&["f"]))[0], &at("f")));
}

#[test]
fn orders_that_are_none_end_the_conversation() {
    let site = Site::new();
    files::make(site.root().join("in/aa/f"), 1, 10);
    files::make(site.root().join("f"), 1, 10);
    let many: Vec<_> = (0..=READING_NAMES_MAX).map(|number| rel(&format!("{number}"))).collect();
    let word = |word| Message::Reading(word);
    for order in [
        read(&[]),
        read(&[""]),
        read(&["f", "g", "f"]),
        word(ReadingWord::Look(many)),
        word(ReadingWord::Opened),
        word(ReadingWord::Found(FoundNames { names: Vec::new(), last: true })),
    ] {
        let mut client = opened(&site, "in");
        client.speech.say(&order);
        assert_eq!(client.speech.end(), "protocol", "{order:?}");
    }
    for (from, to) in [("aa/f", "../f"), ("aa/f", "/a/f"), ("xlonghaul/f", ".longhaul/f"), ("aa/f", "a/./")] {
        let mut client = opened(&site, "in");
        client.speech.say_bytes(&forged(&read(&[from]), from.as_bytes(), to.as_bytes()));
        assert_eq!(client.speech.end(), "protocol", "{to}");
    }
    for (path, code) in [("none", "not-found"), ("f", "in-the-way")] {
        assert_eq!(asked(&site, path).speech.end(), code, "{path}");
    }
    let blind = Site::granting(DaemonConfig::default(), "create,modify", "read,create,modify");
    assert_eq!(asked(&blind, "").speech.end(), "denied");
    assert_serves(&site, "orders to read that are none");
}

#[test]
fn a_reading_in_which_nothing_is_asked_for_makes_room_for_another_client() {
    let other = Host::new();
    let config = DaemonConfig::default().line("[limits]\nsessions = 1");
    let site = Site::with(config.client("other", other.key(), &[("data", ALL_RIGHTS)]));
    files::make(site.root().join("f"), 1, 100);
    let idle = opened(&site, "");
    other.run(["key", "trust", site.daemon.addr(), site.daemon.key()]).succeed();
    // It dials again until the other has been still for half a minute.
    other.run(["pull", "--retry-for", "80s", &site.url("f"), "got"]).succeed();
    let why = "busy: nothing moved, and another key needed the session's place";
    site.daemon.wait_log(&format!("ended: reading in data/.: {why}"));
    drop(idle);
}

#[test]
fn a_client_that_takes_no_findings_is_sent_away_when_it_is_to_be() {
    let site = Site::with(DaemonConfig::default().line("state = 'state'"));
    let names: Vec<_> = (0..READING_NAMES_MAX).map(|number| number.to_string()).collect();
    let target = "t/".repeat(2000);
    // Sixteen MiB of targets fit no buffer of the connection.
    names.iter().for_each(|name| files::link(&target, site.root().join("in").join(name)));
    let mut deaf = opened(&site, "in");
    deaf.speech.say(&Message::Reading(ReadingWord::Look(names.iter().map(|name| rel(name)).collect())));
    let admin = |words: &[&str]| {
        site.server.run(["admin"]).args(words).args(["--socket", "state/admin.sock", "--json"]).succeed()
    };
    let session = admin(&["sessions"]).events_of("admin_session").remove(0);
    admin(&["kick", session["session"].as_str().unwrap()]);
    site.daemon.wait_log("ended: reading in data/in: busy: the daemon's administrator ended this session");
    assert!(admin(&["sessions"]).events_of("admin_session").is_empty());
    drop(deaf);
    assert_serves(&site, "a client that takes nothing");
}

/// Runs `check` of one file against a server that answers so, once it has heard the hello.
fn check_at(serve: impl FnOnce(&mut Speech) + Send) -> Outcome {
    let (host, server) = (Host::new(), Server::start());
    fs::write(host.path("list"), format!("{}  f\n", "07".repeat(32))).unwrap();
    let run = host.run(["check", "--peer-key", &server.key(), "list", &format!("lh://{}/data/", server.addr())]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut speech = server.accept_control();
            let Some(Message::Hello(said)) = speech.hear() else { panic!("no hello") };
            assert_eq!(said.caps & CAP_READING, CAP_READING);
            serve(&mut speech);
        });
        run.finish()
    })
}

/// The same, against one that opens, and answers the order to read so.
fn read_at(answers: Vec<ReadingWord>) -> Outcome {
    check_at(|speech| {
        speech.say(&Message::Reading(ReadingWord::Opened));
        assert!(matches!(speech.hear(), Some(Message::Reading(ReadingWord::Read(_)))));
        answers.into_iter().for_each(|word| speech.say(&Message::Reading(word)));
        while speech.hear().is_some() {}
    })
}

fn found(places: &[u32], last: bool) -> ReadingWord {
    let name = |at: &u32| FoundName { at: *at, found: FoundThing::Read { bytes: 1, b3: [7; 32] } };
    ReadingWord::Found(FoundNames { names: places.iter().map(name).collect(), last })
}

fn names(names: &[&str], last: bool) -> ReadingWord {
    let listed =
        |name: &&str| Listed { name: name.as_bytes().to_vec(), kind: ListedKind::File, len: 0, meta: Meta::default() };
    ReadingWord::Names(Listing { names: names.iter().map(listed).collect(), last })
}

#[test]
fn a_daemon_that_does_not_know_how_is_told_from_others_before_anything_is_read() {
    let old = vec![Listed { name: b"x".to_vec(), kind: ListedKind::File, len: 1, meta: Meta::default() }];
    let told = check_at(|speech| speech.say(&Message::Listing(Listing { names: old, last: true })));
    assert_eq!(told.code, 2, "{told}");
    assert!(told.stderr.contains("does not know how to read files for the digests alone"), "{told}");
    let told = check_at(|speech| speech.say(&Message::Reading(found(&[0], true))));
    assert_eq!(told.code, 1, "{told}");
}

#[test]
fn a_daemon_is_not_believed_that_finds_other_names_than_were_asked_about() {
    for (answers, why) in [
        (vec![found(&[1], true)], "a name that was not asked about"),
        (vec![found(&[0], false), found(&[0], true)], "two findings on one name"),
        (vec![found(&[], true)], "no findings on some of the names"),
        (vec![names(&["f"], true)], "something else in place of findings"),
    ] {
        let told = read_at(answers);
        assert_eq!(told.code, 1, "{told}");
        assert!(told.stderr.contains(why), "{why}: {told}");
    }
}

#[test]
fn a_daemon_is_not_believed_that_lists_names_that_climb_or_come_twice_or_never_end() {
    for (pages, why) in [
        (vec![names(&["..", "f"], true)], "a name that is none"),
        (vec![names(&["a/../../f"], true)], "a name that is none"),
        (vec![names(&["f"], false), names(&["f"], true)], "has a name twice"),
        // What never ends comes again.
        (vec![names(&["f", "g"], false); 3], "not in order"),
    ] {
        let told = read_at([vec![found(&[0], true)], pages].concat());
        assert_eq!(told.code, 1, "{told}");
        assert!(told.stderr.contains(why), "{why}: {told}");
    }
    let told = read_at(vec![found(&[0], true), names(&["f"], true)]);
    assert_eq!(told.code, 0, "what it says of its own files is believed: {told}");
}
