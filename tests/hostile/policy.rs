//! Modes and links of a client, within the bounds that the administrator of a root sets.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use longhaul_core::{Entry, EntryKind, Extras, FileId, Meta, Mtime, Xattr, XattrName};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{CAP_CARRIES_XATTRS, CAP_WANTS_XATTRS, Outcome, PageExtras};

use super::assert_serves;
use super::peer::{entry, file, forged, page, push_to};
use crate::fixture::tree::Tree;
use crate::fixture::{DaemonConfig, Site, files};

/// The entries of a directory of this mode, at its begin and its end.
fn dir(path: &str, mode: u32) -> [Entry; 2] {
    let meta = Meta::new(mode, Mtime { secs: 1_000_000_000, nanos: 0 });
    let kinds = [EntryKind::Dir, EntryKind::DirEnd];
    kinds.map(|kind| Entry { meta: meta.clone(), ..entry(path, kind) })
}

/// Has a client of the tests' own send the top of the root, a directory and an empty file, all of
/// this mode, and waits for the outcomes.
fn send_modes(site: &Site, mode: u32) {
    let mut client = super::client(site);
    client.agree(push_to("data", ""));
    let _lane = client.lane();
    let ([top, top_end], [below, below_end]) = (dir("", mode), dir("d", mode));
    let mut empty = file("d/f", 0);
    empty.meta.mode = mode;
    client.speech.say(&page(0, vec![top, below, empty, below_end, top_end]));
    client.speech.hear_until(|message| matches!(message, Message::Answer(_)).then_some(()));
    client.send_bundle(&[(longhaul_core::FileId(2), b"")]);
    client.speech.hear_until(|message| matches!(message, Message::Complete(_)).then_some(()));
}

#[test]
fn modes_of_a_client_stay_within_the_mask_and_never_reach_the_root_itself() {
    for (sent, dir, file) in [(0o7777, 0o755, 0o755), (0o666, 0o744, 0o644), (0o000, 0o700, 0o000)] {
        let site = Site::new();
        files::set_mode(site.root(), 0o750);
        files::set_mtime(site.root(), 1_111_111_111, 0);
        send_modes(&site, sent);
        let root = Tree::of(site.root());
        let modes = [root.node("").mode, root.node("d").mode, root.node("d/f").mode];
        assert_eq!(modes, [0o750, dir, file], "{sent:o}: {root:?}");
        assert_ne!(root.node("").mtime.0, 1_000_000_000, "{sent:o}: the root has a client's time");
        assert_serves(&site, "modes");
    }
}

#[test]
fn an_attribute_of_the_system_that_a_client_sends_ends_its_session_and_is_never_set() {
    let name = "user.zzzzzzzzzzzzzzz";
    for (forged_name, is_taken) in [(name, true), ("trusted.overlay.opaq", false), ("security.capability.", false)] {
        let site = Site::new();
        let mut client = super::client(&site);
        let welcome = client.agree_with(push_to("data", ""), CAP_WANTS_XATTRS);
        assert_eq!(welcome.caps & CAP_CARRIES_XATTRS, CAP_CARRIES_XATTRS);
        let _lane = client.lane();
        let xattr = Xattr { name: XattrName::try_from(name.as_bytes().to_vec()).unwrap(), value: vec![1] };
        let extras = Extras { xattrs: vec![xattr], ..Extras::default() };
        let extras = Message::Extras(PageExtras { entries: vec![(FileId(0), extras)] });
        client.speech.say_bytes(&forged(&extras, name.as_bytes(), forged_name.as_bytes()));
        client.speech.say(&page(0, vec![file("f", 0)]));
        let answered = client.speech.hear_until(|message| matches!(message, Message::Answer(_)).then_some(()));
        assert_eq!(answered.is_some(), is_taken, "{forged_name}");
        if is_taken {
            client.send_bundle(&[(FileId(0), b"")]);
            client.speech.hear_until(|message| matches!(message, Message::Complete(_)).then_some(()));
        }
        assert_eq!(site.root().join("f").exists(), is_taken, "{forged_name}");
        assert_serves(&site, "attributes");
    }
}

#[test]
fn a_mask_of_the_root_takes_away_what_it_leaves_out() {
    for (line, dir, file) in [
        ("mode_mask = '0770'", 0o770, 0o770),
        ("mode_mask = { dirs = '0711', files = '0640' }", 0o711, 0o640),
        ("mode_mask = 'keep'", 0o777, 0o777),
    ] {
        let site = Site::with(DaemonConfig::default().root_line(line));
        for (name, size) in [("small", 10), ("large", 2 << 20)] {
            files::make(site.client.path("d").join(name), 1, size);
            files::set_mode(site.client.path("d").join(name), 0o777);
        }
        files::set_mode(site.client.path("d"), 0o777);
        let before = fs::metadata(site.root()).unwrap().mode();
        // Below the root, with directories made on the way, and onto the root.
        for dest in ["new/deeper/", "contents/"] {
            site.client.run(["push", "d", &site.url(dest)]).succeed();
        }
        site.client.run(["push", "d/", &site.url("")]).succeed();
        let mode = |path: &str| fs::metadata(site.root().join(path)).unwrap().permissions().mode() & 0o7777;
        for top in ["new/deeper/d", "contents/d"] {
            let modes = ["", "small", "large"].map(|name| mode(&format!("{top}/{name}")));
            assert_eq!(modes, [dir, file, file], "{line}: {top}");
        }
        assert_eq!((mode("small"), fs::metadata(site.root()).unwrap().mode()), (file, before), "{line}");
        // A file that is the same gets no more bits than a new one.
        site.client.run(["push", "--if-exists", "verify", "d/", &site.url("")]).succeed();
        assert_eq!(mode("small"), file, "{line}: verified");
    }
}

/// Links as (name, target), and whether they lead nowhere but beneath the root.
const LINKS: [(&str, &str, bool); 15] = [
    ("d/plain", "file", true),
    ("d/up", "../top", true),
    ("d/sub/round", "../../d/sub", true),
    ("d/sub/deeper", "./.././../d/sub/file", true),
    ("d/self", ".", true),
    ("d/absolute", "/etc/shadow", false),
    ("d/slashes", "//etc/shadow", false),
    ("d/over", "../../etc", false),
    ("d/sub/over", "../../../../etc", false),
    ("d/hidden", "sub/../../../etc", false),
    // A directory that stands may be replaced by a dataset.
    ("d/sub/real", "../sub/../file", false),
    ("d/escape", "../../\u{1b}[2J", false),
    ("d/ours", "../.longhaul/0123456789abcdef.journal", false),
    // Each of the two stays inside, as a text; together they would not.
    ("d/sub/top", "../..", true),
    ("d/through", "sub/top/../outside", false),
];

#[test]
fn links_out_of_a_root_fail_one_by_one() {
    let site = Site::new();
    files::make(site.client.path("d/file"), 1, 100);
    files::make(site.client.path("d/sub/file"), 1, 100);
    for (name, target, _) in LINKS {
        files::link(target, site.client.path(name));
    }
    let outcome = site.client.run(["push", "--json", "d", &site.url("")]).fail(23);
    let faults = outcome.events_of("fault");
    for (name, target, inside) in LINKS {
        let event = outcome.file(name);
        assert_eq!(event["status"] == "committed", inside, "{name} -> {target}: {event}");
        assert_eq!(fs::symlink_metadata(site.root().join(name)).is_ok(), inside, "{name} -> {target}");
        if !inside {
            let about = |fault: &&serde_json::Value| fault["object"] == site.url(name);
            let fault = faults.iter().find(about).unwrap_or_else(|| panic!("no fault of {name}: {outcome}"));
            assert_eq!(fault["code"], "denied", "{fault}");
        }
    }
    assert_eq!(outcome.counts().0, 2 + LINKS.iter().filter(|link| link.2).count() as u64, "{outcome}");
    assert!(!outcome.stderr.contains('\u{1b}') && !site.daemon.log().contains('\u{1b}'), "{outcome}");
    // The place counts, not how it is named: below a destination the top of the root is farther up.
    let lower = site.client.run(["push", "--json", "d/over", &site.url("d/sub/deep/")]).succeed();
    assert_eq!(lower.counts().0, 1, "{lower}");
}

#[test]
fn no_links_lead_out_together_once_a_dataset_has_replaced_a_directory_that_one_of_them_leads_through() {
    let site = Site::new();
    files::make(site.server.path("secret"), 3, 10);
    files::make(site.client.path("a/b/file"), 1, 100);
    site.client.run(["push", "a", &site.url("in/")]).succeed();
    for (name, target) in [("three", "a/b/../../../secret"), ("two", "a/b/../../secret"), ("one", "a/b/../secret")] {
        files::link(target, site.client.path(name));
        let outcome = site.client.run(["push", "--json", name, &site.url("in/")]).fail(4);
        assert_eq!(outcome.events_of("fault")[0]["code"], "denied", "{name}: {outcome}");
    }
    for (name, target) in [("up", "../in/a/b/file"), ("down", "a/b/file")] {
        files::link(target, site.client.path(name));
        site.client.run(["push", name, &site.url("in/")]).succeed();
    }
    // Each name that was a directory comes as a link that leads as far up as one may.
    files::link("../..", site.client.path("ds/b"));
    let dataset = site.client.run(["push", "ds/", &site.url("in/"), "--as-dataset", "a", "--if-exists", "replace"]);
    dataset.succeed();
    let (top, inside) = (site.root().canonicalize().unwrap(), site.root().join("in"));
    for entry in fs::read_dir(&inside).unwrap().chain(fs::read_dir(inside.join("a")).unwrap()) {
        let path = entry.unwrap().path();
        let leads = path.canonicalize().unwrap_or_else(|_| top.clone());
        assert!(leads.starts_with(&top), "{path:?} leads to {leads:?}");
    }
}

#[test]
fn a_root_takes_any_link_or_none_where_its_administrator_says_so() {
    for (line, taken) in [("links = 'keep'", true), ("links = 'refuse'", false)] {
        let site = Site::with(DaemonConfig::default().root_line(line));
        for (name, target) in [("out", "/etc/shadow"), ("in", "file")] {
            files::link(target, site.client.path(name));
            let outcome = site.client.run(["push", "--json", name, &site.url("")]).finish();
            assert_eq!(outcome.code, if taken { 0 } else { 4 }, "{line}: {name}: {outcome}");
            assert_eq!(fs::symlink_metadata(site.root().join(name)).is_ok(), taken, "{line}: {name}");
        }
    }
}

#[test]
fn a_link_that_a_rogue_client_sends_fails_alone() {
    let site = Site::new();
    let mut client = super::client(&site);
    client.agree(push_to("data", ""));
    let _lane = client.lane();
    let link = |path, target: &[u8]| entry(path, EntryKind::Symlink { target: target.to_vec() });
    client.speech.say(&page(0, vec![link("a", b"/etc/passwd"), link("b", b"a"), link("c", b"b/..")]));
    let mut settled = Vec::new();
    client.speech.hear_until(|message| match message {
        Message::Settled(list) => {
            settled.extend(list);
            None
        }
        Message::Complete(_) => Some(()),
        _ => None,
    });
    let failed = settled.iter().filter(|settlement| matches!(settlement.outcome, Outcome::Failed(_))).count();
    assert_eq!((settled.len(), failed), (3, 2), "{settled:?}");
    assert_eq!(Tree::of(site.root()).paths(), ["", "b"]);
    assert_serves(&site, "links");
}
