//! Grants that are not what they should be, and strangers that show them or something else: each is
//! refused, the log says why, and whoever says nothing is not waited for longer than before.

mod shards;

use std::time::{Duration, Instant, SystemTime};

use longhaul_core::{IfExists, PathList, RelPath, ShardClaim};
use longhaul_net::{Identity, PublicKey};
use longhaul_proto::Message;
use longhaul_proto::wire::grant::{GRANT_BYTES_MAX, Grant, GrantRight, ListedWrite, SignedGrant, list_digest};
use longhaul_proto::wire::message::{
    CAP_BY_GRANT, CAP_CLAIM, CAP_LENDS_CLAIM, ClaimKept, Ending, Far, FarSource, Follows, Hello, Request, RequestPart,
    Transfer,
};
use rustix::process::Signal;

use super::peer::{self, Client, hello, push_to, source};
use super::{daemon_addr, identity};
use crate::fixture::tree;
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Site, files, hearing_hangups};

const ID: [u8; 16] = [9; 16];

/// A daemon with `data/f`, its client, and a stranger to which that client lends its rights.
struct Scene {
    site: Site,
    bearer: Host,
}

impl Scene {
    fn new() -> Scene {
        let (site, bearer) = (site(), Host::new());
        bearer.key();
        files::make(site.root().join("f"), 1, 1000);
        files::make(site.root().join("g"), 2, 1000);
        Scene { site, bearer }
    }

    fn grant(&self) -> Grant {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let audience: PublicKey = self.site.daemon.key().parse().unwrap();
        Grant {
            id: ID,
            issuer: *identity(&self.site.client).public().as_bytes(),
            holder: *identity(&self.bearer).public().as_bytes(),
            audience: *audience.as_bytes(),
            right: GrantRight::Read,
            sources: vec![source("data", "f")],
            not_before: now,
            not_after: now + 3600,
        }
    }

    fn signed(&self, grant: &Grant) -> SignedGrant {
        grant.signed(|bytes| identity(&self.site.client).sign(bytes)).unwrap()
    }

    /// Shows a grant, and asks. Returns the answer.
    fn asked(&self, bearer: Identity, grant: SignedGrant, transfer: Transfer) -> Result<u64, String> {
        let mut client = Client::dial(daemon_addr(&self.site), bearer);
        client.speech.say(&Message::ShownGrant(grant));
        client.speech.say(&hello(Request::Transfer(Box::new(transfer))));
        match client.speech.hear() {
            Some(Message::Welcome(welcome)) => Ok(welcome.caps),
            Some(Message::Refuse(fault)) => Err(format!("{}: {}", fault.code.name(), fault.message)),
            other => Err(format!("{other:?}")),
        }
    }

    fn refused(&self, grant: &Grant) -> String {
        self.asked(identity(&self.bearer), self.signed(grant), pull("f")).expect_err("it is refused")
    }
}

/// A daemon with one client, which hears hangups also where the tests were started to ignore them.
fn site() -> Site {
    let (client, server) = (Host::new(), Host::new());
    let root = server.make_dir("data");
    let config = DaemonConfig::default().root("data", &root, ALL_RIGHTS);
    let config = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]);
    let daemon = config.start_as(&server, |run| run.beneath(hearing_hangups()));
    client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    Site { client, server, daemon }
}

fn pull(path: &str) -> Transfer {
    pull_all(vec![source("data", path)])
}

fn pull_all(sources: Vec<FarSource>) -> Transfer {
    Transfer { run: ID, ..peer::pull(sources, Vec::new()) }
}

#[test]
fn a_stranger_gets_what_a_client_lends_it_and_nothing_else() {
    let scene = Scene::new();
    let ask = |transfer: Transfer| scene.asked(identity(&scene.bearer), scene.signed(&scene.grant()), transfer);
    let caps = ask(pull("f")).unwrap_or_else(|why| panic!("{why}"));
    assert_ne!(caps & CAP_BY_GRANT, 0);
    for (what, transfer) in [
        ("another file", pull("g")),
        ("the whole root", pull("")),
        ("one more", pull_all(vec![source("data", "f"), source("data", "g")])),
    ] {
        let why = ask(transfer).expect_err(what);
        assert!(why.contains("denied") && why.contains("does not name what is asked for"), "{what}: {why}");
    }
    let why = ask(Transfer { run: [8; 16], ..pull("f") }).expect_err("another run");
    assert!(why.contains("it is for another run"), "{why}");
    let why = ask(Transfer { run: ID, ..push_to("data", "h") }).expect_err("a push");
    assert!(why.contains("it is for fetching alone"), "{why}");
    // As of any stranger the log has a line of the first ones alone.
    scene.site.daemon.wait_log("does not name what is asked for");
    assert!(!scene.site.daemon.log().contains("it is for fetching alone"), "{}", scene.site.daemon.log());
    // Without it the bearer is a stranger as any other.
    let mut client = Client::dial(daemon_addr(&scene.site), identity(&scene.bearer));
    client.speech.say(&hello(Request::Transfer(Box::new(pull("f")))));
    let refused = client.speech.hear();
    let Some(Message::Refuse(fault)) = refused else { panic!("{refused:?}") };
    assert!(fault.code.name() == "denied" && fault.message.contains("does not know the key"), "{fault}");
}

#[test]
fn a_grant_is_good_again_for_a_run_that_was_broken_off() {
    let scene = Scene::new();
    for times in 1..=2 {
        let asked = scene.asked(identity(&scene.bearer), scene.signed(&scene.grant()), pull("f"));
        assert!(asked.is_ok(), "{asked:?}");
        let until = Instant::now() + Duration::from_secs(60);
        while scene.site.daemon.log().matches("ended: pull from data/f by grant").count() < times {
            assert!(Instant::now() < until, "{}", scene.site.daemon.log());
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_stranger_gets_the_files_of_the_list_that_a_grant_names_and_of_no_other() {
    let scene = Scene::new();
    let list =
        |names: &[&str]| PathList::new(&names.iter().map(|name| RelPath::new(*name).unwrap()).collect::<Vec<_>>());
    let top = || FarSource { contents: true, ..source("data", "") };
    let right = GrantRight::ReadListed(list_digest(&list(&["f"])));
    let grant = Grant { right, sources: vec![top()], ..scene.grant() };
    let pull_of = |follows| {
        let far = Far::Sources { sources: vec![top()], rules: Vec::new(), follows };
        Transfer { run: ID, far, ..peer::pull(Vec::new(), Vec::new()) }
    };
    let ask = |names: &[&str]| {
        let mut client = Client::dial(daemon_addr(&scene.site), identity(&scene.bearer));
        client.speech.say(&Message::ShownGrant(scene.signed(&grant)));
        client.speech.say(&hello(Request::Transfer(Box::new(pull_of(Follows::Names)))));
        let names = list(names).parts(usize::MAX).next().unwrap().to_vec();
        client.speech.say(&Message::RequestPart(RequestPart { names, last: true, ..RequestPart::default() }));
        match client.speech.hear() {
            Some(Message::Welcome(welcome)) => Ok(welcome.caps),
            Some(Message::Refuse(fault)) => Err(format!("{}: {}", fault.code.name(), fault.message)),
            other => Err(format!("{other:?}")),
        }
    };
    for names in [&["g"][..], &["f", "g"], &[], &["f/deeper"]] {
        let why = ask(names).expect_err("another list");
        assert!(why.contains("denied") && why.contains("it is for another list of names"), "{names:?}: {why}");
    }
    let caps = ask(&["f"]).unwrap_or_else(|why| panic!("{why}"));
    assert_ne!(caps & CAP_BY_GRANT, 0);
    // Without a list it would be all that lies there.
    let signed = || scene.signed(&grant);
    let why = scene.asked(identity(&scene.bearer), signed(), pull_of(Follows::Nothing)).expect_err("no list");
    assert!(why.contains("does not name what is asked for"), "{why}");
    let why = scene.asked(identity(&scene.bearer), signed(), pull("f")).expect_err("another place");
    assert!(why.contains("does not name what is asked for"), "{why}");
}

#[test]
fn a_stranger_writes_where_a_client_lends_it_a_place_and_nowhere_else() {
    let scene = Scene::new();
    let grant = Grant { right: GrantRight::Write, sources: vec![source("data", "in")], ..scene.grant() };
    let ask = |transfer: Transfer| scene.asked(identity(&scene.bearer), scene.signed(&grant), transfer);
    for (what, transfer) in [
        ("another place", push_to("data", "h")),
        ("above it", push_to("data", "")),
        ("beneath it", push_to("data", "in/h")),
    ] {
        let why = ask(Transfer { run: ID, ..transfer }).expect_err(what);
        assert!(why.contains("denied") && why.contains("does not name what is asked for"), "{what}: {why}");
    }
    let why = ask(pull("f")).expect_err("a pull");
    assert!(why.contains("it is for sending alone"), "{why}");
    let caps = ask(Transfer { run: ID, ..push_to("data", "in") }).unwrap_or_else(|why| panic!("{why}"));
    assert_ne!(caps & CAP_BY_GRANT, 0);
}

/// The claim of a mover of campaign 5 with this fence.
fn claim(fence: u64) -> ShardClaim {
    ShardClaim { campaign: [5; 16], shard: 300, fence, id: [6; 16] }
}

/// A part of a request that names these paths.
fn part(names: &[&str]) -> Message {
    let names = names.iter().flat_map(|name| name.bytes().chain([0])).collect();
    Message::RequestPart(RequestPart { names, last: true, ..RequestPart::default() })
}

/// A push by a grant with a list: what is said behind its hello, with these bits in that.
fn pushing(scene: &Scene, grant: &Grant, caps: u64, behind: &[Message]) -> (Client, Result<u64, String>) {
    let mut client = Client::dial(daemon_addr(&scene.site), identity(&scene.bearer));
    client.speech.say(&Message::ShownGrant(scene.signed(grant)));
    let push = Transfer { run: ID, ..push_to("data", "in") };
    let Message::Hello(hello) = hello(Request::Transfer(Box::new(push))) else { unreachable!() };
    client.speech.say(&Message::Hello(Hello { caps, ..hello }));
    behind.iter().for_each(|message| client.speech.say(message));
    let answer = match client.speech.hear() {
        Some(Message::Welcome(welcome)) => Ok(welcome.caps),
        Some(Message::Refuse(fault)) => Err(format!("{}: {}", fault.code.name(), fault.message)),
        other => Err(format!("{other:?}")),
    };
    (client, answer)
}

#[test]
fn a_stranger_sends_the_names_of_a_list_by_the_claim_in_its_grant_and_by_no_other() {
    let scene = Scene::new();
    let names = PathList::new(&["d/e", "f"].map(|name| RelPath::new(name).unwrap()));
    let terms = ListedWrite { list: list_digest(&names), claim: Some(claim(5)), if_exists: IfExists::SkipSame };
    let grant = Grant { right: GrantRight::WriteListed(terms), sources: vec![source("data", "in")], ..scene.grant() };
    let ask = |caps, behind: &[Message]| pushing(&scene, &grant, caps, behind).1;
    for other in [&["f"][..], &["d/e", "f", "g"], &["d/e", "h"], &[]] {
        let why = ask(0, &[part(other)]).expect_err("another list");
        assert!(why.contains("denied") && why.contains("it is for another list of names"), "{other:?}: {why}");
    }
    // Neither is the rule for names that stand its own.
    let failing = ListedWrite { if_exists: IfExists::Fail, ..terms };
    let failing = Grant { right: GrantRight::WriteListed(failing), ..grant.clone() };
    let why = pushing(&scene, &failing, 0, &[part(&["d/e", "f"])]).1.expect_err("another rule");
    assert!(why.contains("denied") && why.contains("its own rule for names that stand"), "{why}");
    // Neither a higher fence nor the same claim is its own to show.
    for fence in [5, 6] {
        let why = ask(CAP_CLAIM, &[Message::ShownClaim(claim(fence)), part(&["d/e", "f"])]).expect_err("a claim");
        assert!(why.contains("denied") && why.contains("by its own claim"), "{why}");
    }
    let why = ask(CAP_CLAIM | CAP_LENDS_CLAIM, &[Message::ShownClaim(claim(6))]).expect_err("a claim to keep");
    assert!(why.contains("denied") && why.contains("by its own claim"), "{why}");
    let why = scene.asked(identity(&scene.bearer), scene.signed(&grant), pull("f")).expect_err("a pull");
    assert!(why.contains("for sending the names of a list"), "{why}");
    let (mut sender, caps) = pushing(&scene, &grant, 0, &[part(&["d/e", "f"])]);
    let caps = caps.unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(caps & (CAP_BY_GRANT | CAP_CLAIM), CAP_BY_GRANT | CAP_CLAIM, "it is kept as if it was shown");
    // A name beside those of the list ends the session.
    sender.speech.say(&peer::page(0, vec![peer::file("g", 1)]));
    assert_eq!(sender.speech.end(), "protocol");
    // A newer claim of another mover bars the grant, and nothing that its holder says goes beyond.
    files::make(scene.site.client.path("n"), 3, 10);
    let newer = scene.site.client.run(["push", "n", &scene.site.url("n"), "--claim", &claim(9).to_string()]);
    newer.succeed();
    let why = ask(0, &[part(&["d/e", "f"])]).expect_err("a claim that was overtaken");
    assert!(why.starts_with("superseded: ") && why.contains("with fence 9"), "{why}");
}

#[test]
fn a_claim_that_is_shown_without_anything_to_send_is_kept_and_a_lower_one_is_refused() {
    let scene = Scene::new();
    let show = |shown: ShardClaim| {
        let mut client = Client::dial(daemon_addr(&scene.site), identity(&scene.site.client));
        let Message::Hello(hello) = hello(Request::Transfer(Box::new(push_to("data", "in")))) else { unreachable!() };
        client.speech.say(&Message::Hello(Hello { caps: CAP_CLAIM | CAP_LENDS_CLAIM, ..hello }));
        client.speech.say(&Message::ShownClaim(shown));
        client.speech.hear()
    };
    assert_eq!(show(claim(5)), Some(Message::ClaimKept(ClaimKept { shard: 300, fence: 5 })));
    assert_eq!(show(claim(5)), Some(Message::ClaimKept(ClaimKept { shard: 300, fence: 5 })), "it is the same one");
    let Some(Message::Refuse(fault)) = show(claim(4)) else { panic!("it is refused") };
    assert_eq!((fault.code.name(), fault.kept_fence()), ("superseded", Some(5)));
    let high = u64::MAX / 2 + 1;
    assert!(matches!(show(claim(high)), Some(Message::Refuse(_))), "no queue gives out such a fence");
    let left = tree::orphans(scene.site.root());
    assert!(left.is_empty(), "nothing was sent: {left:?}");
}

#[test]
fn a_grant_to_write_is_used_up_once_its_bearer_knows_that_all_is_done() {
    let scene = Scene::new();
    let grant = Grant { right: GrantRight::Write, sources: vec![source("data", "in")], ..scene.grant() };
    let push = || Transfer { run: ID, ..push_to("data", "in") };
    let complete = || {
        let mut client = Client::dial(daemon_addr(&scene.site), identity(&scene.bearer));
        client.speech.say(&Message::ShownGrant(scene.signed(&grant)));
        client.agree(push());
        client.lane();
        client.speech.say(&peer::page(0, Vec::new()));
        client.speech.hear_until(|message| matches!(message, Message::Complete(_)).then_some(())).expect("the end");
        client
    };
    // As if the last word of the daemon had been lost with the connection.
    drop(complete());
    scene.site.daemon.wait_log("ended: push to data/in by grant");
    let mut knows = complete();
    knows.speech.say(&Message::Bye(Ending::default()));
    let until = Instant::now() + Duration::from_secs(60);
    while scene.site.daemon.log().matches("ended: push to data/in by grant").count() < 2 {
        assert!(Instant::now() < until, "{}", scene.site.daemon.log());
        std::thread::yield_now();
    }
    let why = scene.asked(identity(&scene.bearer), scene.signed(&grant), push()).expect_err("it is used up");
    assert!(why.contains("it was used: its copy is complete"), "{why}");
}

#[test]
fn each_grant_that_is_not_good_is_refused_and_the_log_says_why() {
    let scene = Scene::new();
    let good = scene.grant();
    let later = Grant { not_before: good.not_before + 300, ..good.clone() };
    let expired = Grant { not_before: good.not_before - 7200, not_after: good.not_before - 3600, ..good.clone() };
    let lasting = Grant { not_after: good.not_after + 90_000, ..good.clone() };
    for (grant, want) in [
        (Grant { holder: [1; 32], ..good.clone() }, "it is for another key than the one that shows it"),
        (Grant { audience: [1; 32], ..good.clone() }, "it is for another daemon"),
        (Grant { issuer: [1; 32], ..good.clone() }, "its issuer has not signed it"),
        (later, "it is not good yet"),
        (expired, "it has expired"),
        (lasting, "good for longer than any grant may be"),
    ] {
        let why = scene.refused(&grant);
        assert!(why.starts_with("denied: ") && why.contains(want), "{why}");
    }
    let ask = |bearer, signed| scene.asked(bearer, signed, pull("f")).expect_err("it is refused");
    let mut tampered = scene.signed(&good);
    let at = tampered.body.iter().rposition(|byte| *byte == b'f').unwrap();
    tampered.body[at] = b'g';
    assert!(ask(identity(&scene.bearer), tampered).contains("has not signed it"));
    // `..` is no part of a path, whoever signs it.
    let mut above = Grant { sources: vec![source("data", "xx")], ..good.clone() }.body();
    let at = above.windows(2).rposition(|pair| pair == b"xx").unwrap();
    above[at..at + 2].copy_from_slice(b"..");
    let mut signed = scene.signed(&good);
    signed.body = above;
    assert!(ask(identity(&scene.bearer), signed).contains("it cannot be read"));
    let stranger = Grant { issuer: *identity(&scene.bearer).public().as_bytes(), ..good.clone() };
    let signed = stranger.signed(|bytes| identity(&scene.bearer).sign(bytes)).unwrap();
    assert!(ask(identity(&scene.bearer), signed).contains("its issuer is no client of this daemon"));
    // A stranger has a line of its own as often as any, so that it cannot fill the log.
    let line = scene.site.daemon.wait_log("it is for another key than the one that shows it");
    assert!(line.contains("WARN"), "{line}");
    assert!(scene.site.daemon.log().matches("the grant is refused").count() <= 4, "{}", scene.site.daemon.log());
    // A client is told so too, and has no rights of its own by it.
    let why = ask(identity(&scene.site.client), scene.signed(&good));
    assert!(why.contains("it is for another key"), "{why}");
}

#[test]
fn a_grant_of_a_client_that_was_taken_out_is_refused() {
    let scene = Scene::new();
    let path = scene.site.server.path("serve.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let other = Identity::generate().unwrap().public().to_string();
    std::fs::write(&path, config.replace(scene.site.client.key(), &other)).unwrap();
    scene.site.daemon.signal(Signal::HUP);
    scene.site.daemon.wait_log("the configuration is loaded");
    let why = scene.refused(&scene.grant());
    assert!(why.contains("its issuer is no client of this daemon"), "{why}");
}

#[test]
fn of_a_daemon_without_clients_a_stranger_is_told_nothing_of_its_grant() {
    let scene = Scene::new();
    let path = scene.site.server.path("serve.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, config.split("[[client]]").next().unwrap()).unwrap();
    scene.site.daemon.signal(Signal::HUP);
    scene.site.daemon.wait_log("the configuration is loaded");
    let why = scene.refused(&scene.grant());
    assert!(why.contains("does not know the key"), "{why}");
}

#[test]
fn a_grant_that_is_longer_than_any_may_be_is_not_read() {
    let scene = Scene::new();
    let mut client = Client::dial(daemon_addr(&scene.site), Identity::generate().unwrap());
    let (number, length) = (Message::ShownGrant(SignedGrant::default()).encode()[4], GRANT_BYTES_MAX + 100);
    client.speech.say_bytes(&[&u32::try_from(length).unwrap().to_le_bytes()[..], &vec![number; length]].concat());
    let refused = client.speech.hear();
    let Some(Message::Refuse(fault)) = refused else { panic!("{refused:?}") };
    // Of one that is read it hears what is wrong with it.
    assert!(fault.code.name() == "denied" && fault.message.contains("does not know the key"), "{fault}");
}

#[test]
fn a_stranger_that_says_nothing_is_not_held_longer_than_a_handshake_may_take() {
    let scene = Scene::new();
    let begun = Instant::now();
    let mut silent = Client::dial(daemon_addr(&scene.site), Identity::generate().unwrap());
    assert_eq!(silent.speech.end(), "denied");
    // It does not hang up: now and then a byte shows whether the daemon has.
    let until = begun + Duration::from_secs(30);
    while silent.speech.force(&[0], until) {
        std::thread::park_timeout(Duration::from_millis(100));
    }
    assert!(begun.elapsed() < Duration::from_secs(13), "{:?}", begun.elapsed());
}
