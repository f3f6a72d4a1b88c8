//! Sources to which a mover lends the names of a shard and its claim, and that do something else
//! than to send them once: they dial another daemon, or twice, or keep what they have.
//!
//! Takes the scene of the other grants; gives tests. Must not know the queue.

use longhaul_core::{EntryKind, FileId};
use longhaul_proto::wire::message::{Answer, Outcome, Page, Placing};

use super::*;
use crate::fixture::Daemon;

/// The names of the shard.
const NAMES: [&str; 2] = ["d/e", "f"];

impl Scene {
    /// A scene whose daemon knows which grants of all times before it began are used up: none.
    fn remembering() -> Scene {
        let (client, server, bearer) = (Host::new(), Host::new(), Host::new());
        bearer.key();
        let (root, state) = (server.make_dir("data"), server.make_dir("state"));
        files::set_mode(&state, 0o700);
        files::write(state.join("grants"), "since 0\n");
        files::set_mode(state.join("grants"), 0o600);
        let config = DaemonConfig::default().line("state = 'state'").root("data", &root, ALL_RIGHTS);
        let daemon = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]).start(&server);
        client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
        Scene { site: Site { client, server, daemon }, bearer }
    }

    /// A grant for the names of a shard, with this claim, that ends so many seconds from now; and
    /// began an hour before that.
    fn of_shard(&self, fence: u64, seconds: i64, if_exists: IfExists) -> Grant {
        let names = PathList::new(&NAMES.map(|name| RelPath::new(name).unwrap()));
        let terms = ListedWrite { list: list_digest(&names), claim: Some(claim(fence)), if_exists };
        let grant = self.grant();
        let not_after = grant.not_before.saturating_add_signed(seconds);
        let right = GrantRight::WriteListed(terms);
        Grant { right, sources: vec![source("data", "in")], not_before: not_after - 3600, not_after, ..grant }
    }

    /// Shows the claim of a mover with this fence, as before a shard is sent by another daemon.
    fn show(&self, fence: u64) -> Option<Message> {
        let mut mover = Client::dial(daemon_addr(&self.site), identity(&self.site.client));
        let Message::Hello(hello) = hello(Request::Transfer(Box::new(push_to("data", "in")))) else { unreachable!() };
        mover.speech.say(&Message::Hello(Hello { caps: CAP_CLAIM | CAP_LENDS_CLAIM, ..hello }));
        mover.speech.say(&Message::ShownClaim(claim(fence)));
        mover.speech.hear()
    }

    /// The refusal of a push by such a grant.
    fn push_refused(&self, grant: &Grant) -> String {
        pushing(self, grant, 0, &[part(&NAMES)]).1.expect_err("it is refused")
    }

    /// The outcome of `f`, which is sent by such a grant; its session is lost behind that.
    fn sent(&self, grant: &Grant, if_exists: IfExists) -> Outcome {
        let mut source = Client::dial(daemon_addr(&self.site), identity(&self.bearer));
        source.speech.say(&Message::ShownGrant(self.signed(grant)));
        let push = Transfer { run: grant.id, far: into(if_exists), ..push_to("data", "in") };
        source.agree_saying(push, 0, &[part(&NAMES)]);
        source.lane();
        let entries = vec![peer::file("f", 5)];
        source.speech.say(&Message::Page(Page { first: FileId(0), last: false, entries }));
        let heard = source.speech.hear_until(|message| match message {
            Message::Answer(Answer { wanted, .. }) if wanted[0] & 1 == 1 => Some(None),
            Message::Settled(list) => Some(Some(list)),
            _ => None,
        });
        let settled = heard.expect("an answer").unwrap_or_else(|| {
            source.send_bundle(&[(FileId(0), b"bytes")]);
            let settled = source.speech.hear_until(|message| match message {
                Message::Settled(list) => Some(list),
                _ => None,
            });
            settled.expect("an outcome")
        });
        settled.into_iter().next().expect("an outcome").outcome
    }

    /// A session by such a grant that has begun.
    fn begun(&self, grant: &Grant) -> Client {
        let (source, welcome) = pushing(self, grant, 0, &[part(&NAMES)]);
        welcome.unwrap_or_else(|why| panic!("{why}"));
        source
    }
}

/// The destination of the shard, by this rule.
fn into(if_exists: IfExists) -> Far {
    Far::Destination { root: peer::word("data"), path: peer::rel("in"), placing: Placing::Beneath, if_exists }
}

/// Fails unless a claim was kept.
fn assert_kept(answer: Option<Message>, fence: u64) {
    assert_eq!(answer, Some(Message::ClaimKept(ClaimKept { shard: 300, fence })));
}

/// The fence that is kept, of a refusal.
fn kept(answer: Option<Message>) -> Option<u64> {
    let Some(Message::Refuse(fault)) = answer else { panic!("{answer:?}") };
    assert_eq!(fault.code.name(), "superseded", "{fault}");
    fault.kept_fence()
}

#[test]
fn what_is_lent_at_one_destination_is_of_no_use_at_another_of_the_same_client() {
    let scene = Scene::new();
    let other = Host::new();
    let root = other.make_dir("data");
    let config = DaemonConfig::default().root("data", &root, ALL_RIGHTS);
    let config = config.client("tester", scene.site.client.key(), &[("data", ALL_RIGHTS)]);
    let elsewhere: Daemon = config.start(&other);
    let mut source = Client::dial(elsewhere.addr().parse().unwrap(), identity(&scene.bearer));
    source.speech.say(&Message::ShownGrant(scene.signed(&scene.of_shard(5, 3600, IfExists::SkipSame))));
    source.speech.say(&hello(Request::Transfer(Box::new(Transfer { run: ID, ..push_to("data", "in") }))));
    let answer = source.speech.hear();
    let Some(Message::Refuse(fault)) = answer else { panic!("{answer:?}") };
    assert!(fault.code.name() == "denied" && fault.message.contains("it is for another daemon"), "{fault}");
    elsewhere.wait_log("it is for another daemon");
    assert!(!root.join("in").exists());
}

#[test]
fn what_is_lent_for_one_place_of_a_destination_is_of_no_use_at_another_place_there() {
    let scene = Scene::new();
    let grant = scene.signed(&scene.of_shard(5, 3600, IfExists::SkipSame));
    for (root, path) in [("data", "in/h"), ("data", "other"), ("data", ""), ("other", "in")] {
        let push = Transfer { run: ID, ..push_to(root, path) };
        let why = scene.asked(identity(&scene.bearer), grant.clone(), push).expect_err("another place");
        assert!(why.starts_with("denied: ") && why.contains("does not name what is asked for"), "{path}: {why}");
    }
    assert!(!scene.site.root().join("in").exists() && !scene.site.root().join("other").exists());
}

#[test]
fn a_source_that_dials_twice_has_one_session_and_none_once_its_copy_is_complete() {
    let scene = Scene::new();
    let grant = scene.of_shard(5, 3600, IfExists::SkipSame);
    let mut first = scene.begun(&grant);
    let mut second = Client::dial(daemon_addr(&scene.site), identity(&scene.bearer));
    second.speech.say(&Message::ShownGrant(scene.signed(&grant)));
    second.agree_saying(Transfer { run: ID, ..push_to("data", "in") }, 0, &[part(&NAMES)]);
    first.speech.end();
    let taken_over = scene.site.daemon.wait_log("the client dialled again and goes on in another session");
    assert!(taken_over.contains("push to data/in by grant"), "{taken_over}");
    second.lane();
    second.speech.say(&peer::page(0, Vec::new()));
    second.speech.hear_until(|message| matches!(message, Message::Complete(_)).then_some(())).expect("the end");
    second.speech.say(&Message::Bye(Ending::default()));
    let until = Instant::now() + Duration::from_secs(60);
    while scene.site.daemon.log().matches("ended: push to data/in by grant").count() < 2 {
        assert!(Instant::now() < until, "{}", scene.site.daemon.log());
        std::thread::yield_now();
    }
    let why = scene.push_refused(&grant);
    assert!(why.contains("it was used: its copy is complete"), "{why}");
}

#[test]
fn a_session_that_a_source_keeps_open_ends_as_a_newer_claim_is_shown_without_anything_to_send() {
    let scene = Scene::new();
    assert_kept(scene.show(5), 5);
    let grant = scene.of_shard(5, 3600, IfExists::SkipSame);
    let mut source = scene.begun(&grant);
    assert_kept(scene.show(6), 6);
    assert_eq!(source.speech.end(), "superseded");
    let why = scene.push_refused(&grant);
    assert!(why.starts_with("superseded: ") && why.contains("with fence 6"), "{why}");
}

#[test]
fn a_session_that_a_source_keeps_open_ends_with_its_grant_though_nobody_shows_a_newer_claim() {
    let scene = Scene::remembering();
    // It is over, and a session may begin still, as clocks differ by a minute. A host at its limits
    // may take longer to begin one than is left.
    let begun = || {
        let (source, welcome) = pushing(&scene, &scene.of_shard(5, -50, IfExists::SkipSame), 0, &[part(&NAMES)]);
        match welcome {
            Ok(_) => Some(source),
            Err(why) if why.contains("it has expired") => None,
            Err(why) => panic!("{why}"),
        }
    };
    let mut source = (0..20).find_map(|_| begun()).expect("a session begins");
    assert_eq!(source.speech.end(), "timed-out");
    let line = scene.site.daemon.wait_log("ended: push to data/in by grant");
    assert!(line.contains("it took longer than it may"), "{line}");
}

#[test]
fn a_directory_under_a_listed_name_and_what_lies_in_it_are_none_of_what_is_lent() {
    let scene = Scene::new();
    // By the rule to compare, whoever may name a file that stands hears its digests.
    files::make(scene.site.root().join("in/f/secret"), 4, 1000);
    let grant = scene.of_shard(5, 3600, IfExists::Verify);
    let dir = |path| peer::entry(path, EntryKind::Dir);
    for entries in [
        vec![peer::file("f/secret", 1000)],
        vec![dir("f"), peer::file("f/secret", 1000)],
        vec![dir("f")],
        vec![dir("d"), dir("d/e"), peer::file("d/e/new", 1)],
    ] {
        let mut source = Client::dial(daemon_addr(&scene.site), identity(&scene.bearer));
        source.speech.say(&Message::ShownGrant(scene.signed(&grant)));
        let push = Transfer { run: ID, far: into(IfExists::Verify), ..push_to("data", "in") };
        source.agree_saying(push, 0, &[part(&NAMES)]);
        source.speech.say(&peer::page(0, entries.clone()));
        let refused = source.speech.hear_until(|message| match message {
            Message::Refuse(fault) => Some(fault),
            _ => None,
        });
        let fault = refused.unwrap_or_else(|| panic!("{entries:?}"));
        assert!(fault.code.name() == "protocol" && fault.message.contains("not asked for"), "{entries:?}: {fault}");
    }
    assert!(!scene.site.root().join("in/d/e").exists());
}

#[test]
fn what_was_committed_by_one_grant_of_a_claim_is_known_by_its_next_one_and_is_taken_by_any_other() {
    let scene = Scene::new();
    let grant = scene.of_shard(5, 3600, IfExists::Fail);
    let GrantRight::WriteListed(terms) = grant.right else { unreachable!() };
    let lost = |before| scene.site.daemon.wait_log_after(before, "ended: push to data/in by grant");
    assert!(matches!(scene.sent(&grant, IfExists::Fail), Outcome::Committed(_)));
    lost(0);
    let next = Grant { id: [8; 16], ..grant.clone() };
    let outcome = scene.sent(&next, IfExists::Fail);
    assert!(matches!(outcome, Outcome::Skipped | Outcome::Stands(_)), "{outcome:?}");
    lost(1);
    let claim = Some(ShardClaim { id: [7; 16], ..claim(6) });
    let other = Grant { id: [7; 16], right: GrantRight::WriteListed(ListedWrite { claim, ..terms }), ..grant };
    let outcome = scene.sent(&other, IfExists::Fail);
    let Outcome::Failed(fault) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(fault.code.name(), "exists");
}

#[test]
fn a_destination_that_has_forgotten_its_grants_refuses_them_and_knows_the_claims_of_its_root() {
    let mut scene = Scene::remembering();
    let grant = scene.of_shard(5, 1800, IfExists::SkipSame);
    assert_kept(scene.show(5), 5);
    drop(scene.begun(&grant));
    scene.site.daemon.kill();
    let path = scene.site.server.path("serve.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, config.replace("state = 'state'", "state = 'elsewhere'")).unwrap();
    scene.site.daemon = scene.site.restarted();
    let why = scene.push_refused(&grant);
    assert!(why.contains("denied") && why.contains("older than this daemon's memory of the grants"), "{why}");
    assert_eq!(kept(scene.show(4)), Some(5));
    assert_kept(scene.show(5), 5);
    let begins = scene.grant().not_before + 1;
    let newer = Grant { not_before: begins, not_after: begins + 3600, ..grant };
    drop(scene.begun(&newer));
}

#[test]
fn a_rule_to_compare_is_the_grants_own_and_lends_no_digests_beside() {
    let scene = Scene::new();
    let grant = |if_exists| scene.of_shard(5, 3600, if_exists);
    let ask = |if_exists, asked: IfExists, digests| {
        let mut source = Client::dial(daemon_addr(&scene.site), identity(&scene.bearer));
        source.speech.say(&Message::ShownGrant(scene.signed(&grant(if_exists))));
        let push = Transfer { run: ID, far: into(asked), digests, ..push_to("data", "in") };
        source.speech.say(&hello(Request::Transfer(Box::new(push))));
        source.speech.say(&part(&NAMES));
        match source.speech.hear() {
            Some(Message::Welcome(_)) => None,
            Some(Message::Refuse(fault)) => Some(format!("{}: {}", fault.code.name(), fault.message)),
            other => Some(format!("{other:?}")),
        }
    };
    for (rule, asked, digests) in [
        (IfExists::SkipSame, IfExists::Verify, false),
        (IfExists::Verify, IfExists::SkipSame, false),
        (IfExists::Verify, IfExists::Verify, true),
        (IfExists::SkipSame, IfExists::SkipSame, true),
    ] {
        let why = ask(rule, asked, digests).expect("it is refused");
        assert!(why.contains("denied") && why.contains("its own rule for names that stand"), "{asked:?}: {why}");
    }
    assert_eq!(ask(IfExists::Verify, IfExists::Verify, false), None);
}
