//! Names that lead out of a root: `..`, absolute, reserved, and symbolic links as leaf and as
//! parent. Nothing outside changes, nothing outside is read.

use std::fs;
use std::path::PathBuf;

use longhaul_core::{EntryKind, FileId, Meta, Mtime};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Outcome, Request};

use super::assert_serves;
use super::peer::{Client, entry, file, forged, hello, page, push_to, rel, word};
use crate::fixture::tree::{self, Kind, Tree};
use crate::fixture::{DaemonConfig, Site, files};

/// A site whose root holds links that lead out of it:
///
/// ```text
/// data/dir/real   data/dir/deep -> ../../outside   data/out -> ../outside   data/leaf -> ../outside/secret
/// ```
struct Prison {
    site: Site,
    outside: PathBuf,
    before: Tree,
}

impl Prison {
    fn new() -> Prison {
        Prison::at(Site::new())
    }

    fn at(site: Site) -> Prison {
        let outside = site.server.make_dir("outside");
        files::make(outside.join("secret"), 66, 3000);
        files::make(site.root().join("dir/real"), 1, 1000);
        files::link("../../outside", site.root().join("dir/deep"));
        files::link("../outside", site.root().join("out"));
        files::link("../outside/secret", site.root().join("leaf"));
        let before = Tree::of(&outside);
        Prison { site, outside, before }
    }

    fn client(&self) -> Client {
        super::client(&self.site)
    }

    #[track_caller]
    fn assert_untouched(&self, context: &str) {
        tree::assert_same(&self.before, &Tree::of(&self.outside), format!("outside of the root, after {context}"));
    }
}

/// Names that no honest peer can say: the honest name that is encoded, the bytes in it that are
/// exchanged, and their replacement.
const FORGERIES: &[(&str, &[u8], &[u8])] = &[
    ("QQ", b"QQ", b".."),
    ("QQ/outside/new", b"QQ/", b"../"),
    ("dir/QQ/QQ/outside/new", b"dir/QQ/QQ", b"dir/../.."),
    ("Qtmp/new", b"Qtmp", b"/tmp"),
    ("dirQQnew", b"dirQQ", b"dir//"),
    ("dir/Q", b"dir/Q", b"dir/."),
    ("dirQnew", b"dirQ", b"dir\0"),
    ("Qlonghaul-0123", b"Qlonghaul", b".longhaul"),
    ("dir/Qlonghaul/new", b"Qlonghaul", b".longhaul"),
    ("dir/Qlonghaul-0123", b"Qlonghaul", b".LongHaul"),
    ("QQQQQQlonghaul/new", b"QQQQQQlonghaul", ".\u{200d}\u{ad}longhaul".as_bytes()),
    ("QONGHA~1", b"QONGHA~1", b"LONGHA~1"),
];

#[test]
fn names_that_are_no_names_end_the_session_that_says_them() {
    let prison = Prison::new();
    let root_before = Tree::of(prison.site.root());
    for (honest, from, to) in FORGERIES {
        let shown = String::from_utf8_lossy(to).into_owned();
        let mut destination = prison.client();
        let asked = hello(Request::Transfer(Box::new(push_to("data", honest))));
        destination.speech.say_bytes(&forged(&asked, from, to));
        assert_eq!(destination.speech.end(), "protocol", "{shown:?} as a destination");

        let mut lister = prison.client();
        let asked = hello(Request::List { root: word("data"), path: rel(honest) });
        lister.speech.say_bytes(&forged(&asked, from, to));
        assert_eq!(lister.speech.end(), "protocol", "{shown:?} to list");

        let mut sender = prison.client();
        sender.agree(push_to("data", ""));
        let _lane = sender.lane();
        sender.speech.say_bytes(&forged(&page(0, vec![file(honest, 100)]), from, to));
        assert_eq!(sender.speech.end(), "protocol", "{shown:?} as an entry");
        prison.assert_untouched(&shown);
    }
    tree::assert_same(&root_before, &Tree::of(prison.site.root()), "the root");
    assert_serves(&prison.site, "names that are no names");
}

#[test]
fn entries_that_lead_through_links_fail_one_by_one() {
    let prison = Prison::new();
    let mut client = prison.client();
    client.agree(push_to("data", ""));
    let _lane = client.lane();
    let link = |path| entry(path, EntryKind::Symlink { target: b"anything".to_vec() });
    let hostile = vec![
        file("out/new", 100),
        file("out/secret", 3000),
        file("out/large", 3 << 20),
        file("dir/deep/new", 100),
        file("leaf/new", 100),
        link("out/link"),
        link("dir/deep/secret"),
        entry("out", EntryKind::Dir),
        entry("out/made", EntryKind::Dir),
        entry("out/made", EntryKind::DirEnd),
        entry("out", EntryKind::DirEnd),
        entry("dir/deep/made", EntryKind::Dir),
        entry("dir/deep/made", EntryKind::DirEnd),
        entry("dir/deep", EntryKind::Dir),
        entry("dir/deep", EntryKind::DirEnd),
    ];
    let count = hostile.len();
    client.speech.say(&page(0, hostile));
    let mut outcomes = Vec::new();
    client.speech.hear_until(|message| match message {
        Message::Settled(list) => {
            outcomes.extend(list);
            None
        }
        Message::Answer(answer) => {
            assert_eq!(answer.wanted, vec![0; answer.wanted.len()], "content for a name outside is wanted");
            None
        }
        Message::Complete(_) => Some(()),
        Message::Refuse(fault) => panic!("{fault}"),
        _ => None,
    });
    assert_eq!(outcomes.len(), count);
    for settled in outcomes {
        assert!(matches!(settled.outcome, Outcome::Failed(_)), "{settled:?}");
    }
    prison.assert_untouched("entries through links");
    assert_eq!(tree::leftovers(prison.site.root()), [""; 0]);
}

#[test]
fn a_link_that_a_client_plants_leads_it_nowhere() {
    let prison = Prison::at(Site::with(DaemonConfig::default().keeping()));
    let client = &prison.site.client;
    files::link("../outside", client.path("planted"));
    client.run(["push", "planted", &prison.site.url("")]).succeed();
    assert!(fs::symlink_metadata(prison.site.root().join("planted")).unwrap().is_symlink(), "sent as a link");
    files::make(client.path("tree/planted/secret"), 1, 2000);
    files::make(client.path("tree/planted/new"), 2, 3 << 20);
    let outcome = client.run(["push", "--json", "tree/", &prison.site.url("")]).fail(23);
    assert_eq!(outcome.counts().0, 0, "{outcome}");
    prison.assert_untouched("a planted link");
}

#[test]
fn destinations_behind_links_are_refused_and_a_link_itself_is_replaced() {
    let prison = Prison::new();
    let client = &prison.site.client;
    files::make(client.path("f"), 1, 2000);
    for behind in ["out/", "out/new", "out/secret", "dir/deep/", "dir/deep/new", "leaf/", "leaf/new", "out/a/b/"] {
        let outcome = client.run(["push", "--json", "f", &prison.site.url(behind)]).finish();
        assert_eq!(outcome.code, 23, "{behind}: {outcome}");
        assert_eq!(outcome.events_of("fault")[0]["code"], "in-the-way", "{behind}: {outcome}");
        prison.assert_untouched(behind);
    }
    for leaf in ["leaf", "out"] {
        client.run(["push", "--json", "f", &prison.site.url(leaf)]).succeed();
        prison.assert_untouched(leaf);
        let (sent, stands) = (Tree::of(client.path("f")), Tree::of(prison.site.root().join(leaf)));
        tree::assert_same(&sent, &stands, format!("the link {leaf} is replaced, not followed"));
    }
}

#[test]
fn sources_behind_links_are_not_read() {
    let prison = Prison::new();
    let client = &prison.site.client;
    for behind in ["out/secret", "out/", "dir/deep/", "dir/deep/secret", "leaf/", "out/../out/secret"] {
        let outcome = client.run(["pull", "--json", &prison.site.url(behind), "got/"]).finish();
        assert_ne!(outcome.code, 0, "{behind}: {outcome}");
        let list = client.run(["ls", "--json", &prison.site.url(behind)]).finish();
        let seen = list.stdout_text();
        assert!(list.code != 0 || !seen.contains("secret"), "ls {behind}: {list}");
    }
    assert!(!client.path("got/secret").exists());
    client.run(["pull", "--json", &prison.site.url("leaf"), &prison.site.url("out"), "got/"]).succeed();
    let got = Tree::of(client.path("got"));
    assert!(got.node("leaf").kind == Kind::Link(b"../outside/secret".to_vec()), "{got:?}");
    assert!(got.node("out").kind == Kind::Link(b"../outside".to_vec()), "{got:?}");
    client.run(["pull", "--json", &prison.site.url(""), "all"]).succeed();
    assert!(!Tree::of(client.path("all")).paths().iter().any(|path| path.contains("secret")));
}

#[test]
fn what_is_ours_is_neither_listed_nor_served_nor_taken() {
    let prison = Prison::new();
    let client = &prison.site.client;
    files::make(prison.site.root().join(".longhaul/journal"), 1, 100);
    files::make(prison.site.root().join("dir/.longhaul-00"), 1, 100);
    // Where these are names of their own, on a file system that folds they would be those above.
    files::make(prison.site.root().join("dir/.LongHaul-01"), 1, 100);
    files::make(prison.site.root().join(".longhau\u{ad}l/journal"), 1, 100);
    client.run(["pull", &prison.site.url(""), "all"]).succeed();
    assert_eq!(tree::leftovers(client.path("all")), [""; 0]);
    for path in ["", "dir"] {
        let list = client.run(["ls", &prison.site.url(path)]).succeed();
        assert!(!list.stdout_text().to_lowercase().contains("longhau"), "{list}");
    }
    assert!(!Tree::of(client.path("all")).paths().iter().any(|path| path.to_lowercase().contains("longhau")));
    let folded = [".LONGHAUL/journal", "dir/.LongHaul-01", ".longhau\u{ad}l", "LONGHA~1"];
    for path in [".longhaul/journal", "dir/.longhaul-00", ".longhaul/new"].into_iter().chain(folded) {
        client.run(["ls", &prison.site.url(path)]).fail(2);
        client.run(["pull", &prison.site.url(path), "got"]).fail(2);
    }
}

#[test]
fn a_sender_gives_nobody_else_its_powers() {
    let prison = Prison::new();
    let mut client = prison.client();
    client.agree(push_to("data", ""));
    let _lane = client.lane();
    let mut dir = entry("owned", EntryKind::Dir);
    dir.meta = Meta::new(0o6777, Mtime { secs: 0, nanos: 0 });
    let mut empty = file("owned/tool", 0);
    empty.meta.mode = 0o6755;
    let end = longhaul_core::Entry { kind: EntryKind::DirEnd, ..dir.clone() };
    client.speech.say(&page(0, vec![dir, empty, end]));
    let wanted = client.speech.hear_until(|message| match message {
        Message::Answer(answer) => Some(answer.wanted),
        _ => None,
    });
    assert_eq!(wanted, Some(vec![0b010]));
    client.send_bundle(&[(FileId(1), b"")]);
    client.speech.hear_until(|message| matches!(message, Message::Complete(_)).then_some(()));
    let root = Tree::of(prison.site.root());
    assert_eq!((root.node("owned").mode & 0o7000, root.node("owned/tool").mode & 0o7000), (0, 0), "{root:?}");
}
