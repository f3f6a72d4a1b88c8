//! Roots on a file system that takes several spellings of a name for one: the owner of each file,
//! and the identity of each name.
//!
//! The file system is one of the fixture's own, over FUSE. Needs root.

use std::fs;
use std::path::PathBuf;

use longhaul_core::FileId;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Answer, Outcome, Page, Settlement};
use rustix::process::Signal;

use super::assert_serves;
use super::peer::{Client, file, push_to};
use crate::fixture::device::{Fuse, Memory};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Site, files};

/// The fold of a name: upper and lower case are the same, and invisible characters are left out.
fn fold(name: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(name).to_lowercase().replace(['\u{ad}', '\u{200d}'], "").into_bytes()
}

/// A site whose root is such a file system.
fn site() -> (Site, Fuse<Memory>) {
    let site = Site::new();
    let mount = Fuse::mount(&site.root(), Memory::folding(fold));
    // The daemon looked at the directory before something was mounted on it.
    site.daemon.signal(Signal::TERM);
    site.daemon.wait_gone();
    let daemon = site.restarted();
    (Site { daemon, ..site }, mount)
}

/// The temporaries and journals that stand beneath a root.
fn unfinished(root: &std::path::Path) -> Vec<PathBuf> {
    tree::leftovers(root).into_iter().map(|path| root.join(path)).collect()
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn what_one_client_left_unfinished_another_neither_sees_nor_forges_where_names_fold() {
    let (server, alice, bob) = (Host::new(), Host::new(), Host::new());
    let root = server.make_dir("data");
    let _mount = Fuse::mount(&root, Memory::folding(fold));
    let config = DaemonConfig::default().line("[limits]\nsync_interval = '50ms'").root("data", &root, ALL_RIGHTS);
    let grant: &[(&str, &str)] = &[("data", ALL_RIGHTS)];
    let config = config.client("alice", alice.key(), grant).client("bob", bob.key(), grant);
    let daemon: Daemon = config.start(&server);
    for client in [&alice, &bob] {
        client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    }
    files::make(alice.path("f"), 1, 48 << 20);
    let push = ["push", "--json", "--chunk-size", "1MiB", "f", &daemon.url("data/f")];
    let running = alice.run(push).args(["--rate", "16MB/s"]).start();
    running.wait_event(|event| event["bytes_durable"].as_u64().filter(|durable| *durable > 8 << 20));
    running.signal(Signal::KILL);
    running.fail(137);
    daemon.wait_log("ended: ");

    let hers = unfinished(&root);
    let temp = hers.iter().find(|path| path.parent() == Some(&root) && path.is_file()).unwrap();
    let temp = temp.file_name().unwrap().to_str().unwrap().to_owned();
    let spellings = |name: &str| [name.to_uppercase(), name.replace("longh", "lo\u{ad}ngh"), name.replace('l', "L")];
    fs::write(bob.path("zeros"), vec![0; 48 << 20]).unwrap();
    for name in spellings(&temp) {
        assert!(root.join(&name).exists(), "the file system takes {name} for hers");
        bob.run(["pull", &daemon.url(&format!("data/{name}")), "got"]).fail(2);
        bob.run(["push", "--if-exists", "replace", "zeros", &daemon.url(&format!("data/{name}"))]).fail(2);
        // As an entry of a tree it is left out and named.
        files::make(bob.path("tree").join(&name), 2, 48 << 20);
    }
    for name in spellings(".longhaul") {
        bob.run(["ls", &daemon.url(&format!("data/{name}"))]).fail(2);
        bob.run(["pull", &daemon.url(&format!("data/{name}/")), "got"]).fail(2);
    }
    bob.run(["push", "--if-exists", "replace", "tree/", &daemon.url("data/")]).succeed();
    let list = bob.run(["ls", &daemon.url("data/")]).succeed();
    assert_eq!(list.stdout_text(), "", "nothing that is whole stands there");
    assert_eq!(unfinished(&root), hers);

    let resumed = alice.run(push).succeed();
    assert!(resumed.summary()["bytes_resumed"].as_u64() > Some(0), "{resumed}");
    tree::assert_same(&Tree::of(alice.path("f")), &Tree::of(root.join("f")), "what alice resumed");
}

/// Sends small files one page after the other, each when the earlier ones have their outcome.
/// Returns the outcomes.
fn send_in_turn(client: &mut Client, names: &[(&str, &[u8])]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (n, (name, bytes)) in names.iter().enumerate() {
        let id = FileId(n as u64);
        let entries = vec![file(name, bytes.len() as u64)];
        client.speech.say(&Message::Page(Page { first: id, last: n + 1 == names.len(), entries }));
        let settled = client.speech.hear_until(|message| match message {
            Message::Answer(Answer { wanted, .. }) if wanted[0] & 1 == 1 => Some(None),
            Message::Settled(list) => Some(Some(list)),
            _ => None,
        });
        let settled = settled.flatten().unwrap_or_else(|| {
            client.send_bundle(&[(id, bytes)]);
            let settled = client.speech.hear_until(|message| match message {
                Message::Settled(list) => Some(list),
                _ => None,
            });
            settled.expect("an outcome")
        });
        outcomes.extend(settled.into_iter().map(|Settlement { outcome, .. }| outcome));
    }
    outcomes
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn of_two_names_that_fold_into_one_the_second_never_replaces_the_first() {
    let (site, _mount) = site();
    for (n, (first, second)) in [("readme", "README"), ("stra\u{df}e", "stra\u{ad}\u{df}e")].into_iter().enumerate() {
        let dir = format!("dir{n}");
        fs::create_dir(site.root().join(&dir)).unwrap();
        let (first, second) = (format!("{dir}/{first}"), format!("{dir}/{second}"));
        let mut client = super::client(&site);
        client.agree(push_to("data", ""));
        let _lane = client.lane();
        let outcomes = send_in_turn(&mut client, &[(&first, b"the first"), (&second, b"another"), (&first, b"third!")]);
        assert!(matches!(outcomes[0], Outcome::Committed(_)), "{first}: {outcomes:?}");
        let Outcome::Failed(fault) = &outcomes[1] else { panic!("{second}: {outcomes:?}") };
        assert_eq!(fault.code.name(), "exists", "{fault}");
        // By its own spelling it may be replaced, as anywhere.
        assert!(matches!(outcomes[2], Outcome::Committed(_)), "{first}: {outcomes:?}");
        assert_eq!(fs::read(site.root().join(&first)).unwrap(), b"third!");
    }
    assert_serves(&site, "twins");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_root_that_takes_unheard_of_spellings_for_ours_is_refused_with_the_reason() {
    let (server, client) = (Host::new(), Host::new());
    let root = server.make_dir("data");
    let without_dots = |name: &[u8]| name.iter().copied().filter(|b| *b != b'.').collect();
    let _mount = Fuse::mount(&root, Memory::folding(without_dots));
    let config = DaemonConfig::default().root("data", &root, ALL_RIGHTS);
    let daemon = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]).start(&server);
    client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    files::make(client.path("f"), 1, 3 << 20);
    let outcome = client.run(["push", "--json", "f", &daemon.url("data/f")]).finish();
    assert_ne!(outcome.code, 0, "{outcome}");
    assert!(outcome.stderr.contains("does not keep such names apart"), "{outcome}");
    assert_eq!(Tree::of(&root).paths(), [""], "{outcome}");
    // One that was made elsewhere is not entered under such a name.
    files::make(root.join(".longhaul/secret"), 1, 10);
    for from in ["data/longhaul", "data/longhaul/", "data/longhaul/secret"] {
        let pulled = client.run(["pull", &daemon.url(from), "got/"]).finish();
        assert_ne!(pulled.code, 0, "{from}: {pulled}");
        let listed = client.run(["ls", &daemon.url(from)]).finish();
        assert!(!listed.stdout_text().contains("secret"), "{from}: {listed}");
    }
    assert!(!client.path("got/longhaul/secret").exists() && !client.path("got/secret").exists());
}
