//! Trees at a daemon that are listed directory by directory: several at a time, once more where a
//! run was killed, and from a daemon that goes away, refuses, or lies.

use std::collections::BTreeSet;
use std::fs;
use std::thread;

use longhaul_core::{Blame, Fault, FaultCode, Meta};
use longhaul_net::Identity;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Listed, ListedKind, Listing, Request};
use rustix::process::Signal;

use super::peer::{Server, Speech};
use crate::fixture::{Host, Outcome, Run, files};

/// A listing that a client has asked for.
struct Asked {
    speech: Speech,
    path: String,
}

impl Asked {
    /// The next one that a client asks for.
    fn of(server: &Server) -> Asked {
        let mut speech = server.accept_control();
        let Some(Message::Hello(hello)) = speech.hear() else { panic!("a client begins with a hello") };
        let Request::List { path, .. } = hello.request else { panic!("a listing: {:?}", hello.request) };
        Asked { speech, path: String::from_utf8(path.as_bytes().to_vec()).unwrap() }
    }

    /// Tells names; those of directories have a slash behind.
    fn page(&mut self, names: &[&str], last: bool) {
        let names = names.iter().map(|name| listed(name)).collect();
        self.speech.say(&Message::Listing(Listing { names, last }));
    }

    fn tell(mut self, names: &[&str]) {
        self.page(names, true);
    }

    fn refuse(mut self, code: FaultCode) {
        self.speech.say(&Message::Refuse(Fault::new(code, Blame::Local, "it may not be")));
    }
}

fn listed(name: &str) -> Listed {
    let (name, kind) = match name.strip_suffix('/') {
        Some(name) if !name.is_empty() => (name, ListedKind::Dir),
        _ => (name, ListedKind::File),
    };
    Listed { name: name.as_bytes().to_vec(), kind, len: name.len() as u64, meta: Meta::default() }
}

fn url(server: &Server) -> String {
    format!("lh://{}/data/", server.addr())
}

fn make(host: &Host, server: &Server, out: &str) -> Run {
    host.run(["manifest", "make", "-v", "--json", "--peer-key", &server.key(), &url(server), "-o", out])
}

/// Runs a command against a server that serves meanwhile.
fn served(run: Run, serve: impl FnOnce() + Send) -> Outcome {
    thread::scope(|scope| {
        scope.spawn(serve);
        run.finish()
    })
}

/// The names of a manifest.
fn names(host: &Host, manifest: &str) -> Vec<String> {
    let items = host.run(["manifest", "show", "--check", "--list", "--json", manifest]).succeed().events_of("item");
    items.iter().map(|item| item["path"].as_str().unwrap().to_owned()).collect()
}

fn head(host: &Host, manifest: &str) -> Vec<u8> {
    fs::read(host.path(manifest).join("head.lhm")).unwrap()
}

#[test]
fn three_directories_are_listed_at_a_time_and_the_order_of_answers_makes_no_difference() {
    let (host, server) = (Host::new(), Server::start());
    for (out, order) in [("one", [0, 1, 2]), ("two", [2, 0, 1])] {
        let outcome = served(make(&host, &server, out), || {
            Asked::of(&server).tell(&["a/", "a.x", "b/", "c/", "z"]);
            // Nothing is answered before all three are asked for.
            let mut asked: Vec<_> = (0..3).map(|_| Some(Asked::of(&server))).collect();
            asked.sort_by_key(|asked| asked.as_ref().map(|asked| asked.path.clone()));
            assert_eq!(asked.iter().flatten().map(|asked| asked.path.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
            for at in order {
                asked[at].take().unwrap().tell(&["w", "x"]);
            }
        });
        assert_eq!(outcome.code, 0, "{outcome}");
    }
    assert_eq!(names(&host, "two"), ["a", "a.x", "a/w", "a/x", "b", "b/w", "b/x", "c", "c/w", "c/x", "z"]);
    assert_eq!(head(&host, "one"), head(&host, "two"));
}

/// Has a run killed that has listed the top and `a`, and waits for `a/deep`, `b` and `c`.
fn killed(run: Run, server: &Server) {
    let running = run.start();
    Asked::of(server).tell(&["a/", "b/", "c/"]);
    let mut waiting: Vec<_> = (0..3).map(|_| Asked::of(server)).collect();
    let at = waiting.iter().position(|asked| asked.path == "a").unwrap();
    waiting.remove(at).tell(&["deep/", "x"]);
    // It is asked for when what it lies in was written down.
    waiting.push(Asked::of(server));
    assert_eq!(waiting[2].path, "a/deep");
    running.signal(Signal::KILL);
    running.finish();
}

/// Goes on with a run that was killed: the top is looked at, and only what was not done is listed.
fn go_on(server: &Server) {
    let top = Asked::of(server);
    assert_eq!(top.path, "");
    // It has changed meanwhile, and was listed before that.
    top.tell(&["a", "c/", "new/"]);
    let asked: Vec<_> = (0..3).map(|_| Asked::of(server)).collect();
    let paths: BTreeSet<_> = asked.iter().map(|asked| asked.path.clone()).collect();
    assert_eq!(paths, BTreeSet::from(["a/deep", "b", "c"].map(str::to_owned)));
    asked.into_iter().for_each(|asked| asked.tell(&["y"]));
}

#[test]
fn a_scan_that_was_killed_asks_only_for_directories_that_were_not_done() {
    let (host, server) = (Host::new(), Server::start());
    killed(make(&host, &server, "out"), &server);
    assert!(host.path("out/progress.lhp").exists());
    // Nothing else goes on with it.
    files::make(host.path("ds/file"), 1, 10);
    host.run(["manifest", "make", "ds", "-o", "out"]).fail(2);
    let other = format!("lh://{}/data/a/", server.addr());
    host.run(["manifest", "make", "--peer-key", &server.key(), &other, "-o", "out"]).fail(2);
    // A daemon that shows its top to this key no more makes no list with gaps.
    let outcome = served(make(&host, &server, "out"), || {
        Asked::of(&server).refuse(FaultCode::Busy);
        Asked::of(&server).refuse(FaultCode::Denied);
    });
    assert_eq!(outcome.code, 4, "{outcome}");
    assert!(host.path("out/progress.lhp").exists() && !host.path("out/head.lhm").exists());

    // An empty mount point, another tree and a file are not the tree that the record is of.
    let others: [&[&str]; 4] = [&[], &["new/", "x/"], &["a", "b", "c"], &["data"]];
    for names in others {
        let outcome = served(make(&host, &server, "out"), || Asked::of(&server).tell(names));
        assert_eq!(outcome.code, 2, "{outcome}");
        assert!(outcome.stderr.contains("begun with another tree"), "{outcome}");
        assert!(host.path("out/progress.lhp").exists() && !host.path("out/head.lhm").exists());
    }

    let outcome = served(make(&host, &server, "out"), || go_on(&server));
    assert_eq!(outcome.code, 0, "{outcome}");
    assert_eq!(outcome.summary()["items_resumed"], 5, "{outcome}");
    assert_eq!(names(&host, "out"), ["a", "a/deep", "a/deep/y", "a/x", "b", "b/y", "c", "c/y"]);
    assert_eq!(fs::read_dir(host.path("out")).unwrap().count(), 2, "a segment and the head");
}

#[test]
fn another_daemon_at_the_same_address_does_not_go_on_with_what_the_first_one_has_listed() {
    let (host, server) = (Host::new(), Server::start());
    killed(make(&host, &server, "out"), &server);
    let addr = server.addr();
    drop(server);
    let server = Server::at(addr, &Identity::generate().unwrap());
    let outcome = served(make(&host, &server, "out"), || Asked::of(&server).tell(&["a/", "b/", "c/"]));
    assert_eq!(outcome.code, 2, "{outcome}");
    assert!(outcome.stderr.contains("begun with another key of the daemon"), "{outcome}");
    assert!(host.path("out/progress.lhp").exists() && !host.path("out/head.lhm").exists());
}

#[test]
fn a_plan_of_a_source_at_a_daemon_goes_on_too() {
    let (host, server) = (Host::new(), Server::start());
    host.run(["job", "add", "--name", "in", "--peer-key", &server.key(), &url(&server), "here"]).succeed();
    let campaign = || host.run(["job", "plan", "in", "--json"]);
    let lists =
        || host.run(["job", "plan", "--shards", "2", "--out", "parts", "--peer-key", &server.key(), &url(&server)]);
    killed(campaign(), &server);
    let outcome = served(campaign(), || go_on(&server));
    assert_eq!(outcome.code, 0, "{outcome}");
    killed(lists(), &server);
    let outcome = served(lists(), || go_on(&server));
    assert_eq!(outcome.code, 0, "{outcome}");
    assert_eq!(names(&host, "parts/manifest").len(), 8, "{outcome}");
    lists().fail(2);
}

#[test]
fn a_daemon_that_goes_away_and_comes_back_is_asked_again_for_the_directory() {
    let (host, identity) = (Host::new(), Identity::generate().unwrap());
    let server = Server::at(([127, 0, 0, 1], 0).into(), &identity);
    let addr = server.addr();
    let run = make(&host, &server, "out");
    let outcome = served(run, move || {
        Asked::of(&server).tell(&["a/", "f"]);
        let mut asked = Asked::of(&server);
        asked.page(&["dir/", "old"], false);
        // It goes away in the middle, and is another process when it comes back.
        drop((asked, server));
        let server = Server::at(addr, &identity);
        Asked::of(&server).tell(&["new"]);
    });
    assert_eq!(outcome.code, 0, "{outcome}");
    assert_eq!(names(&host, "out"), ["a", "a/new", "f"]);
}

#[test]
fn a_busy_daemon_is_asked_for_one_directory_behind_the_other_and_no_pause_is_taken_for_that() {
    let (host, server) = (Host::new(), Server::start());
    let outcome = served(make(&host, &server, "out"), || {
        Asked::of(&server).tell(&["a/", "b/", "z/"]);
        let mut asked: Vec<_> = (0..3).map(|_| Asked::of(&server)).collect();
        asked.sort_by(|one, other| one.path.cmp(&other.path));
        let mut long = asked.pop().unwrap();
        long.page(&["z/"], false);
        asked.into_iter().for_each(|asked| asked.refuse(FaultCode::Busy));
        long.page(&[], true);
        // Those that were refused rest as long as another one is listed.
        for depth in 2..12 {
            let asked = Asked::of(&server);
            assert_eq!(asked.path, vec!["z"; depth].join("/"));
            asked.tell(if depth < 11 { &["z/"][..] } else { &[] });
        }
        // One that is alone has its pauses.
        let first = Asked::of(&server);
        let path = first.path.clone();
        first.refuse(FaultCode::Busy);
        let again = Asked::of(&server);
        assert_eq!(again.path, path);
        again.tell(&["x"]);
        Asked::of(&server).tell(&["x"]);
    });
    assert_eq!(outcome.code, 0, "{outcome}");
    let names = names(&host, "out");
    assert_eq!((names.len(), &names[..4]), (15, &["a", "a/x", "b", "b/x"].map(str::to_owned)[..]), "{names:?}");
}

#[test]
fn the_top_is_asked_for_again_too_if_all_listings_of_the_key_are_in_use() {
    let (host, server) = (Host::new(), Server::start());
    let outcome = served(make(&host, &server, "out"), || {
        Asked::of(&server).refuse(FaultCode::Busy);
        Asked::of(&server).tell(&["a/", "f"]);
        Asked::of(&server).tell(&["x"]);
    });
    assert_eq!(outcome.code, 0, "{outcome}");
    assert_eq!(names(&host, "out"), ["a", "a/x", "f"]);
}

#[test]
fn one_directory_that_cannot_be_listed_is_told_and_the_others_are_listed() {
    for code in [FaultCode::Denied, FaultCode::NotFound, FaultCode::InTheWay] {
        let (host, server) = (Host::new(), Server::start());
        let outcome = served(make(&host, &server, "out"), || {
            Asked::of(&server).tell(&["a/", "b/"]);
            for _ in 0..2 {
                let asked = Asked::of(&server);
                if asked.path == "a" { asked.refuse(code) } else { asked.tell(&["x"]) }
            }
            // It is no failure of the whole tree.
            let top = Asked::of(&server);
            assert_eq!(top.path, "");
            top.tell(&["a/", "b/"]);
        });
        assert_eq!(outcome.code, 23, "{outcome}");
        assert_eq!(outcome.events_of("manifest")[0]["omitted"], 1, "{outcome}");
        assert_eq!(names(&host, "out"), ["a", "b", "b/x"]);
    }
}

#[test]
fn a_right_that_is_taken_away_in_the_run_makes_no_list_of_what_was_listed_before() {
    let (host, server) = (Host::new(), Server::start());
    let outcome = served(make(&host, &server, "out"), || {
        Asked::of(&server).tell(&["a/", "b/", "c/"]);
        let mut asked: Vec<_> = (0..3).map(|_| Asked::of(&server)).collect();
        asked.sort_by(|one, other| one.path.cmp(&other.path));
        for asked in asked {
            if asked.path == "c" { asked.refuse(FaultCode::Denied) } else { asked.tell(&["x"]) }
        }
        let top = Asked::of(&server);
        assert_eq!(top.path, "");
        top.refuse(FaultCode::Denied);
    });
    assert_eq!(outcome.code, 4, "{outcome}");
    assert!(host.path("out/progress.lhp").exists() && !host.path("out/head.lhm").exists());
    // The right is there again, and what was denied is asked for.
    let outcome = served(make(&host, &server, "out"), || {
        Asked::of(&server).tell(&["a/", "b/", "c/"]);
        let asked = Asked::of(&server);
        assert_eq!(asked.path, "c");
        asked.tell(&["x"]);
    });
    assert_eq!(outcome.code, 0, "{outcome}");
    assert_eq!(names(&host, "out"), ["a", "a/x", "b", "b/x", "c", "c/x"]);
}

#[test]
fn a_directory_that_has_become_a_file_is_not_taken_for_one_with_a_file_of_that_name() {
    let (host, server) = (Host::new(), Server::start());
    let outcome = served(make(&host, &server, "out"), || {
        Asked::of(&server).tell(&["gone/", "own/"]);
        // Each is asked for, and then for the name in it, which may be that of itself.
        for _ in 0..4 {
            let asked = Asked::of(&server);
            match asked.path.as_str() {
                "gone" => asked.tell(&["gone"]),
                "gone/gone" => asked.refuse(FaultCode::InTheWay),
                _ => asked.tell(&["own"]),
            }
        }
        Asked::of(&server).tell(&["gone", "own/"]);
    });
    assert_eq!(outcome.code, 23, "{outcome}");
    assert!(outcome.stderr.contains("is none any more"), "{outcome}");
    assert_eq!(names(&host, "out"), ["gone", "own", "own/own"]);
}

#[test]
fn names_that_lead_elsewhere_are_left_out_and_a_listing_out_of_order_ends_the_scan() {
    let (host, server) = (Host::new(), Server::start());
    let outcome = served(make(&host, &server, "out"), || {
        Asked::of(&server).tell(&["", "..", "../x", "/etc", "a/b", "f"]);
    });
    assert_eq!((outcome.code, names(&host, "out")), (23, vec!["f".to_owned()]), "{outcome}");
    assert_eq!(outcome.events_of("manifest")[0]["omitted"], 5, "{outcome}");
    for (number, pages) in [[&["b"][..], &["a"]], [&["a", "b"], &["b"]], [&["a/", "a"], &[]]].into_iter().enumerate() {
        let out = format!("out-{number}");
        let outcome = served(make(&host, &server, &out), || {
            Asked::of(&server).tell(&["d/"]);
            let mut asked = Asked::of(&server);
            pages.into_iter().for_each(|names| asked.page(names, false));
            asked.speech.end();
        });
        assert_eq!(outcome.code, 1, "{outcome}");
        assert_eq!(outcome.events_of("fault")[0]["code"], "protocol", "{outcome}");
        assert!(!host.path(&out).join("head.lhm").exists());
    }
}

#[test]
fn a_tree_without_a_bottom_ends_at_the_longest_path() {
    let (host, server) = (Host::new(), Server::start());
    let name = format!("{}/", "d".repeat(255));
    let outcome = served(make(&host, &server, "out"), || {
        // Sixteen such names are a path, and the seventeenth is too long for one.
        (0..17).for_each(|_| Asked::of(&server).tell(&[name.as_str()]));
    });
    assert_eq!(outcome.code, 23, "{outcome}");
    assert_eq!(names(&host, "out").len(), 16, "{outcome}");
}

#[test]
fn a_directory_of_a_hundred_thousand_names_is_listed() {
    let (host, server) = (Host::new(), Server::start());
    let outcome = served(make(&host, &server, "out"), || {
        Asked::of(&server).tell(&["many/"]);
        let mut asked = Asked::of(&server);
        for page in 0..100 {
            let names: Vec<_> = (0..1000).map(|n| format!("{:06}", page * 1000 + n)).collect();
            asked.page(&names.iter().map(String::as_str).collect::<Vec<_>>(), page == 99);
        }
    });
    assert_eq!(outcome.code, 0, "{outcome}");
    assert_eq!(outcome.events_of("manifest")[0]["files"], 100_000, "{outcome}");
}
