//! A daemon that lies to a client that pulls from it: names that were not asked for, ways out of
//! the destination, numbers that cannot be, silence. The client ends in bounded time, and writes
//! only the requested files, at the requested places.

use std::fs;
use std::thread;

use longhaul_core::limits::LANES_MAX;
use longhaul_core::{ChunkSize, Entry, EntryKind, FileId, LaneId};
use longhaul_net::LaneStream;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{CAP_IN_CHUNKS, CAP_WANTS_XATTRS, GrantedLanes, Transport, Welcome};

use super::peer::{CHUNK, Server, Speech, entry, file, forged, page, send_bundle};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, Outcome, files};

/// Runs the client's `pull` of `source` to `got/` against a server that runs `serve` with its
/// control connection.
fn pull(host: &Host, words: &[&str], source: &str, serve: impl FnOnce(&Server, Speech) + Send) -> Outcome {
    let server = Server::start();
    let url = format!("lh://{}/data/{source}", server.addr());
    let run = host.run(["pull", "--json", "--retry-for", "0", "--chunk-size", "1MiB", "--lanes", "1"]).args(words);
    let run = run.args(["--peer-key", &server.key(), &url, "got/"]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let speech = server.accept_control();
            serve(&server, speech);
        });
        run.finish()
    })
}

#[test]
fn a_push_says_no_page_to_a_daemon_that_has_not_agreed_to_metadata_or_checksums() {
    let heard = |words: &[&str]| {
        let (host, server) = (Host::new(), Server::start());
        files::make(host.path("d/small"), 1, 100);
        let url = format!("lh://{}/data/", server.addr());
        let run = host.run(["push", "--json", "--retry-for", "0", "--lanes", "1"]).args(words);
        let run = run.args(["--peer-key", &server.key(), "d", &url]);
        thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let mut speech = server.accept_control();
                let mut heard = vec![speech.hear()];
                if words.is_empty() {
                    heard.push(speech.hear());
                    return heard;
                }
                // An older build knows none of the bits by which checksums are asked for.
                speech.say(&Message::Welcome(fair()));
                speech.say(&Message::Lanes(GrantedLanes { first: LaneId(0), count: 1, transport: Transport::Tcp }));
                heard.extend(std::iter::from_fn(|| speech.hear()).map(Some));
                heard
            });
            (run.finish(), serving.join().unwrap())
        })
    };
    let is_page = |heard: &[Option<Message>]| heard.iter().any(|message| matches!(message, Some(Message::Page(_))));
    let (_, without) = heard(&[]);
    assert!(is_page(&without), "it goes ahead of the answer: {without:?}");
    for (options, code) in
        [(["--extra-checksum", "adler32"], 2), (["--preserve", "+xattrs"], 7), (["--as-dataset", "x"], 7)]
    {
        let (outcome, with) = heard(&options);
        assert_eq!(outcome.code, code, "{outcome}");
        assert!(matches!(&with[0], Some(Message::Hello(_))) && !is_page(&with), "{options:?}: {with:?}");
    }
}

/// Acts as an honest daemon, up to the first page.
pub(super) fn welcome(server: &Server, speech: &mut Speech) -> LaneStream {
    speech.hear();
    speech.say(&Message::Welcome(fair()));
    speech.say(&Message::Lanes(GrantedLanes { first: LaneId(0), count: 1, transport: Transport::Tcp }));
    server.accept_lane(speech, fair().session)
}

/// The welcome that agrees to the request of a client of these tests.
pub(super) fn fair() -> Welcome {
    Welcome {
        version: 1,
        caps: 0,
        session: [5; 16],
        chunk: CHUNK,
        chunk_max: CHUNK,
        bundled_max: 1 << 18,
        lanes_max: 4,
        rate: 0,
        memory_bytes: 0,
    }
}

/// Offers these entries, and sends the wanted ones, which must be empty files.
fn offering(entries: Vec<Entry>) -> impl FnOnce(&Server, Speech) + Send {
    move |server, mut speech| {
        let mut lane = welcome(server, &mut speech);
        speech.say(&page(0, entries));
        let wanted = speech.hear_until(|message| match message {
            Message::Answer(answer) => Some(Some(answer.wanted)),
            Message::Refuse(_) => Some(None),
            _ => None,
        });
        if let Some(Some(wanted)) = wanted {
            let ids = (0..wanted.len() as u64 * 8).filter(|id| wanted[*id as usize / 8] & 1 << (id % 8) != 0);
            let files: Vec<_> = ids.map(|id| (FileId(id), &b""[..])).collect();
            if !files.is_empty() {
                send_bundle(&mut lane, &files);
            }
            speech.end();
        }
    }
}

fn link(path: &str, target: &str) -> Entry {
    entry(path, EntryKind::Symlink { target: target.as_bytes().to_vec() })
}

#[test]
fn names_that_were_not_asked_for_are_not_taken() {
    let dir = |path| entry(path, EntryKind::Dir);
    for (what, words, source, entries) in [
        ("another name", &[][..], "f", vec![file("g", 0)]),
        ("a second name", &[], "f", vec![file("f", 0), link("g", "x")]),
        ("the top itself", &[], "f", vec![entry("", EntryKind::DirEnd)]),
        ("a name that is not in the list", &["--files-from", "list"], "d/", vec![file("a", 0), dir("evil")]),
        ("a link that is not in the list", &["--files-from", "list"], "d", vec![dir("d"), link("d/.bashrc", "x")]),
        ("what lies in no directory of the list", &["--files-from", "list"], "d/", vec![dir("b"), dir("b/evil")]),
        ("an excluded name", &["--exclude", "*.evil"], "d/", vec![link("x.evil", "y")]),
        ("what lies in an excluded directory", &["--exclude", "evil/"], "d/", vec![dir("evil"), link("evil/x", "y")]),
    ] {
        let host = Host::new();
        files::write(host.path("list"), "a\nb/c\n");
        let outcome = pull(&host, words, source, offering(entries));
        assert_eq!(outcome.code, 1, "{what}: {outcome}");
        assert_eq!(outcome.events_of("fault")[0]["code"], "protocol", "{what}: {outcome}");
        let got = if host.path("got").exists() { Tree::of(host.path("got")).paths() } else { vec![] };
        let unasked = ["g", "evil", "x.evil", "evil/x", "b/evil", "d/.bashrc"];
        assert!(!got.iter().any(|path| unasked.contains(&path.as_str())), "{what}: {got:?}");
    }
}

#[test]
fn names_that_lead_out_of_the_destination_end_the_session() {
    for (honest, from, to) in
        [("QQ/out/x", "QQ", ".."), ("Qtmp/x", "Qtmp", "/tmp"), ("Qlonghaul-0", "Qlonghaul", ".longhaul")]
    {
        let host = Host::new();
        let out = host.make_dir("out");
        let outcome = pull(&host, &[], "d/", |server, mut speech| {
            let _lane = welcome(server, &mut speech);
            speech.say_bytes(&forged(&page(0, vec![link(honest, "anything")]), from.as_bytes(), to.as_bytes()));
            speech.end();
        });
        assert_eq!(outcome.code, 1, "{to}: {outcome}");
        assert_eq!((Tree::of(&out).paths(), tree::leftovers(host.dir())), (vec![String::new()], vec![]), "{to}");
    }
}

#[test]
fn links_in_the_destination_are_not_followed() {
    let host = Host::new();
    let out = host.make_dir("out");
    files::make(out.join("secret"), 1, 100);
    files::link("../out", host.path("got/mine"));
    let before = Tree::of(&out);
    let entries = vec![
        link("theirs", "../out"),
        file("mine/new", 0),
        file("theirs/new", 0),
        link("mine/secret", "x"),
        entry("mine/made", EntryKind::Dir),
        entry("mine", EntryKind::DirEnd),
    ];
    let outcome = pull(&host, &[], "d/", offering(entries));
    tree::assert_same(&before, &Tree::of(&out), &outcome);
    assert!(host.path("got/mine").is_symlink(), "{outcome}");
}

#[test]
fn a_daemon_that_would_send_bundles_into_a_stream_is_left_at_once() {
    let (host, server) = (Host::new(), Server::start());
    let url = format!("lh://{}/data/f", server.addr());
    let run = host.run(["pull", "--retry-for", "0", "--chunk-size", "1MiB", "--peer-key", &server.key(), &url, "-"]);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            let mut speech = server.accept_control();
            let Some(Message::Hello(hello)) = speech.hear() else { panic!("a client begins with a hello") };
            assert_eq!(hello.caps & CAP_IN_CHUNKS, CAP_IN_CHUNKS, "it says what it cannot take");
            speech.say(&Message::Welcome(fair()));
            speech.say(&Message::Lanes(GrantedLanes { first: LaneId(0), count: 1, transport: Transport::Tcp }));
            speech.end();
        });
        run.finish()
    });
    assert_eq!((outcome.code, outcome.stdout.len()), (7, 0), "{outcome}");
    assert!(outcome.stderr.contains("cannot send files in the order of a stream"), "{outcome}");
}

#[test]
fn a_daemon_that_does_not_know_the_metadata_that_is_asked_for_is_left_before_anything_is_made() {
    let host = Host::new();
    let outcome = pull(&host, &["--preserve", "+xattrs"], "d", |_, mut speech| {
        let Some(Message::Hello(hello)) = speech.hear() else { panic!("a client begins with a hello") };
        assert_eq!(hello.caps & CAP_WANTS_XATTRS, CAP_WANTS_XATTRS, "it says what it wants");
        speech.say(&Message::Welcome(fair()));
        speech.say(&Message::Lanes(GrantedLanes { first: LaneId(0), count: 1, transport: Transport::Tcp }));
        speech.end();
    });
    assert_eq!(outcome.code, 7, "{outcome}");
    assert!(outcome.stderr.contains("does not know how to carry xattrs"), "{outcome}");
    assert!(outcome.stderr.contains("leave it out of --preserve"), "{outcome}");
    assert!(!host.path("got").exists(), "{outcome}");
}

#[test]
fn what_a_client_did_not_ask_for_it_does_not_agree_to() {
    for (what, welcome, lanes) in [
        ("a version never offered", Welcome { version: 9, ..fair() }, (0, 1)),
        ("larger chunks", Welcome { chunk: ChunkSize::from_log2(22).unwrap(), ..fair() }, (0, 1)),
        ("chunks too small to be true", Welcome { chunk: ChunkSize::from_log2(10).unwrap(), ..fair() }, (0, 1)),
        ("no lanes", fair(), (0, 0)),
        ("more lanes than there are", fair(), (0, LANES_MAX + 1)),
        ("more lanes than were asked for", fair(), (0, LANES_MAX)),
        ("lanes beyond all that may ever be", fair(), (u32::MAX, 1)),
    ] {
        let host = Host::new();
        let outcome = pull(&host, &[], "f", |_, mut speech| {
            speech.hear();
            speech.say(&Message::Welcome(welcome));
            speech.say(&Message::Lanes(GrantedLanes {
                first: LaneId(lanes.0),
                count: lanes.1,
                transport: Transport::Tcp,
            }));
            speech.end();
        });
        assert_eq!(outcome.code, 1, "{what}: {outcome}");
        assert_eq!(outcome.events_of("fault")[0]["code"], "protocol", "{what}: {outcome}");
    }
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    type Silence = (&'static str, fn(&Server, &mut Speech) -> Option<LaneStream>);
    let silences: [Silence; 3] = [
        ("before a word", |_, _| None),
        ("instead of lanes", |_, speech| {
            speech.hear();
            speech.say(&Message::Welcome(fair()));
            None
        }),
        ("instead of pages", |server, speech| Some(welcome(server, speech))),
    ];
    thread::scope(|scope| {
        for (what, until) in silences {
            scope.spawn(move || {
                let host = Host::new();
                let outcome = pull(&host, &[], "f", |server, mut speech| {
                    let _lane = until(server, &mut speech);
                    speech.end();
                });
                assert_eq!(outcome.code, 5, "silence {what}: {outcome}");
            });
        }
    });
}

#[test]
fn a_server_that_goes_away_at_the_end_takes_nothing_back() {
    let host = Host::new();
    let outcome = pull(&host, &[], "d/", |server, mut speech| {
        let _lane = welcome(server, &mut speech);
        speech.say(&page(0, vec![link("a", "b")]));
        // Reads that all is settled, and closes silently.
        speech.hear_until(|message| matches!(message, Message::Complete(_)).then_some(()));
    });
    assert_eq!(outcome.code, 0, "all is committed: {outcome}");
    assert_eq!(fs::read_link(host.path("got/a")).unwrap().to_str(), Some("b"));
}

#[test]
fn ids_that_contradict_each_other_end_the_session() {
    for (what, first) in [("not from the beginning", 1), ("nowhere", u64::MAX)] {
        let host = Host::new();
        let outcome = pull(&host, &[], "d/", |server, mut speech| {
            let _lane = welcome(server, &mut speech);
            speech.say(&page(first, vec![link("a", "b"), link("c", "d")]));
            speech.end();
        });
        assert_eq!(outcome.code, 1, "{what}, {:?}: {outcome}", FileId(first));
    }
}
