//! The bad inputs that are thrown at a daemon. Each asserts no more than what its own case asks
//! for; the oracle judges the rest.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

use longhaul_core::{Attempt, ChunkIndex, ChunkSize, EntryKind, FileId};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Heartbeat, Hello, Outcome, Page, Protect, Request, Transfer, VERSION};

use super::Ground;
use crate::fixture::files;
use crate::hostile::peer::{
    Client, chunk, entry, file, forged, hello, page, pull, push_to, rel, send_unit, source, word,
};

/// The outcomes of a page of entries, of which some may be wanted.
fn outcomes(client: &mut Client, entries: Vec<longhaul_core::Entry>) -> Vec<Outcome> {
    client.speech.say(&page(0, entries));
    let mut outcomes = Vec::new();
    client.speech.hear_until(|message| {
        match message {
            Message::Settled(list) => outcomes.extend(list.into_iter().map(|settled| settled.outcome)),
            Message::Answer(_) => return Some(()),
            _ => {}
        }
        None
    });
    outcomes
}

pub(super) fn names_that_are_none(ground: &Ground) {
    for (honest, from, to) in [
        ("QQ/outside/new", &b"QQ/"[..], &b"../"[..]),
        ("Qtmp/new", b"Qtmp", b"/tmp"),
        ("dirQQnew", b"dirQQ", b"dir//"),
        ("dir/Q", b"dir/Q", b"dir/."),
        ("dirQnew", b"dirQ", b"dir\0"),
        ("Qlonghaul/new", b"Qlonghaul", b".longhaul"),
    ] {
        let mut destination = ground.client();
        let asked = hello(Request::Transfer(Box::new(push_to("data", honest))));
        destination.speech.say_bytes(&forged(&asked, from, to));
        assert_eq!(destination.speech.end(), "protocol", "{to:?}");
        let mut sender = ground.client();
        sender.agree(push_to("data", ""));
        sender.lane();
        sender.speech.say_bytes(&forged(&page(0, vec![file(honest, 100)]), from, to));
        assert_eq!(sender.speech.end(), "protocol", "{to:?}");
    }
}

pub(super) fn names_of_odd_bytes(ground: &Ground) {
    let from = ground.site.client.make_dir("odd");
    let long = "l".repeat(255);
    let names = [&b"line\nfeed"[..], b"\x1b[2J\r", b"\x9b2J", "\u{202e}txt".as_bytes(), b"\xff\xfe", long.as_bytes()];
    for name in names {
        fs::write(from.join(OsStr::from_bytes(name)), name).unwrap();
    }
    ground.site.client.run(["push", "odd/", &ground.site.url("odd")]).succeed();
    for name in names {
        let stands = ground.site.root().join("odd").join(OsStr::from_bytes(name));
        assert_eq!(fs::read(stands).unwrap(), name, "{name:?}");
    }
    let listed = ground.site.client.run(["ls", &ground.site.url("odd")]).succeed();
    assert!(!listed.stdout_text().contains('\x1b'), "{listed}");
    assert!(!ground.site.daemon.log().contains('\x1b'));
}

pub(super) fn links_that_lead_outside(ground: &Ground) {
    let mut sender = ground.client();
    sender.agree(push_to("data", ""));
    sender.lane();
    let link = |path| entry(path, EntryKind::Symlink { target: b"/etc/passwd".to_vec() });
    let hostile =
        vec![file("out/new", 100), file("out/secret", 3000), file("dir/deep/new", 100), link("out/link"), link("up")];
    let count = hostile.len();
    assert_eq!(outcomes(&mut sender, hostile).len(), count, "all fail, and nothing is wanted");
    for path in ["out/secret", "leaf/x", "dir/deep/secret", "magic"] {
        ground.site.client.run(["pull", &ground.site.url(path), "stolen"]).finish();
        let stolen = ground.site.client.path("stolen");
        assert!(!stolen.exists() || stolen.symlink_metadata().unwrap().is_symlink(), "{path}");
        let _ = fs::remove_file(stolen);
    }
}

pub(super) fn things_that_are_no_files(ground: &Ground) {
    for name in ["fifo", "dir", "magic", "foreign"] {
        files::make(ground.site.client.path(name), 9, 3000);
        let replace = ["push", "--if-exists", "replace", name];
        ground.site.client.run(replace).arg(ground.site.url(name)).finish();
        ground.site.client.run(["pull", &ground.site.url(name), &format!("got-{name}")]).finish();
    }
    assert!(ground.site.root().join("dir/real").exists(), "a directory is no file's to replace");
}

pub(super) fn one_path_twice(ground: &Ground) {
    let mut client = ground.client();
    client.agree(push_to("data", "twice"));
    client.lane();
    let below = [entry("d", EntryKind::Dir), entry("d", EntryKind::DirEnd)];
    let twice = [vec![file("same", 4), file("same", 5), file("d", 3)], below.to_vec()].concat();
    client.speech.say(&page(0, twice));
    client.send_bundle(&[(FileId(0), b"four"), (FileId(1), b"fives"), (FileId(2), b"one")]);
    client.speech.hear_until(|message| matches!(message, Message::Complete(_) | Message::Refuse(_)).then_some(()));
    if let Ok(stands) = fs::read(ground.site.root().join("twice/same")) {
        assert!(stands == b"four" || stands == b"fives", "the two are mixed: {stands:?}");
    }
}

pub(super) fn numbers_that_overflow(ground: &Ground) {
    for first in [1, 1 << 32, 1 << 63, u64::MAX] {
        let mut client = ground.client();
        client.agree(push_to("data", "numbers"));
        client.lane();
        client.speech.say(&Message::Page(Page { first: FileId(first), last: false, entries: vec![file("f", 1)] }));
        assert_eq!(client.speech.end(), "protocol", "{first}");
    }
}

pub(super) fn lengths_of_exabytes(ground: &Ground) {
    let free = || rustix::fs::statvfs(ground.site.root()).map(|facts| facts.f_bfree).unwrap();
    let before = free();
    let mut client = ground.client();
    client.agree(push_to("data", "exabytes"));
    client.lane();
    let lengths = [u64::MAX, i64::MAX as u64, 1 << 62, 1 << 60];
    let entries = lengths.iter().enumerate().map(|(n, len)| file(&format!("f{n}"), *len)).collect();
    let failed = outcomes(&mut client, entries);
    assert!(failed.iter().all(|outcome| matches!(outcome, Outcome::Failed(_))), "{failed:?}");
    // Others write to the disk of the tests as well, but no exabytes.
    assert!(free() + (1 << 22) > before, "space was set aside");
}

pub(super) fn a_source_that_changes(ground: &Ground) {
    let path = ground.site.root().join("changing");
    files::make(&path, 5, 24 << 20);
    let rate = ["--rate", "8MB/s", "--chunk-size", "1MiB"];
    let pull = ground.site.client.run(["pull", "--json"]).args(rate).args([&ground.site.url("changing"), "changed/"]);
    let running = pull.start();
    running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 0));
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5 << 20).unwrap();
    let outcome = running.finish();
    assert!([23, 24].contains(&outcome.code), "{outcome}");
    assert!(!ground.site.client.path("changed/changing").exists(), "{outcome}");
}

pub(super) fn chunks_out_of_place(ground: &Ground) {
    let bytes = files::bytes(4, 2 << 20);
    let mut client = ground.client();
    client.agree(push_to("data", "place"));
    client.lane();
    client.speech.say(&page(0, vec![file("f", 2 << 20)]));
    client.send_chunk_when_wanted(FileId(0), ChunkIndex(0), &bytes[..1 << 20]);
    // Never announced, beyond the end, and the first one again with other bytes.
    for (id, index) in [(7, 0), (u64::MAX, u64::from(u32::MAX)), (0, 2), (0, 1 << 40), (0, u64::MAX >> 24)] {
        client.send_chunk(FileId(id), ChunkIndex(index), Attempt::FIRST, &bytes[1 << 20..]);
    }
    client.send_chunk(FileId(0), ChunkIndex(0), Attempt::FIRST, &bytes[1 << 20..]);
    client.speech.end();
    assert!(!ground.site.root().join("place/f").exists(), "half of it never came");
}

pub(super) fn chunk_sizes_that_make_no_sense(ground: &Ground) {
    for log2 in [10, 12, 32, 40] {
        let Some(size) = ChunkSize::from_log2(log2) else { continue };
        for transfer in [
            Transfer { chunk: size, ..push_to("data", "sizes") },
            Transfer { chunk: size, chunk_max: size, ..push_to("data", "sizes") },
        ] {
            let mut client = ground.client();
            client.speech.say(&hello(Request::Transfer(Box::new(transfer))));
            if let Some(Message::Welcome(welcome)) = client.speech.hear() {
                assert!(welcome.chunk_max.bytes() <= 64 << 20, "{log2}: {}", welcome.chunk_max.bytes());
            }
        }
    }
    let mut client = ground.client();
    client.agree(push_to("data", "sizes"));
    let lane = client.lane();
    let nothing = chunk(FileId(0), ChunkIndex(0), Attempt::FIRST, 1 << 20);
    send_unit(lane, longhaul_proto::wire::data::Piece { len: 0, ..nothing }, b"", &[0; 32]);
    client.speech.say(&page(0, vec![file("f", 1 << 20)]));
    client.speech.hear();
}

pub(super) fn frames_that_are_cut(ground: &Ground) {
    let whole = page(0, vec![file("f", 2 << 20)]).encode();
    for cut in [1, 4, 5, whole.len() - 1] {
        let mut client = ground.client();
        client.agree(push_to("data", "cut"));
        client.lane();
        let mut bytes = whole.clone();
        bytes.truncate(cut);
        // The length that it announces is the whole one; garbage follows.
        bytes.extend([0xff; 4096]);
        client.speech.say_bytes(&bytes);
        assert_eq!(client.speech.end(), "protocol", "{cut}");
    }
}

pub(super) fn wrong_bytes(ground: &Ground) {
    let bytes = files::bytes(4, 1 << 20);
    let mut client = ground.client();
    client.agree(push_to("data", "wrong"));
    client.lane();
    client.speech.say(&page(0, vec![file("f", 2 << 20)]));
    client.speech.hear_until(|message| matches!(message, Message::WantChunks(_)).then_some(()));
    let mut attempt = Attempt::FIRST;
    for _ in 0..16 {
        client.send_unit(chunk(FileId(0), ChunkIndex(0), attempt, 1 << 20), &bytes, &[0x5a; 32]);
        attempt = attempt.next();
    }
    client.speech.hear_until(|message| matches!(message, Message::Settled(_) | Message::Refuse(_)).then_some(()));
    assert!(!ground.site.root().join("wrong/f").exists());
}

pub(super) fn silence(ground: &Ground) {
    let mut silent: Vec<_> = (0..200).map(|_| ground.connect()).collect();
    for round in 0..20 {
        for stream in silent.iter_mut().step_by(2) {
            // Whom it has turned away cannot be written to.
            let _ = stream.write_all(&[0x16 + round]);
        }
    }
    ground.site.client.run(["ls", &ground.site.url("dir")]).succeed();
}

pub(super) fn datagrams(ground: &Ground) {
    let socket = ground.datagrams();
    socket.set_nonblocking(true).unwrap();
    let (mut sent, mut answered, mut buffer) = (0, 0, [0; 65_536]);
    for n in 0..2000_usize {
        let len = [1, 20, 1199, 1200, 1400][n % 5];
        let mut packet = files::bytes(n as u64, len);
        // A long header of version 1, an Initial as far as anybody can see.
        let head = [0xc3, 0, 0, 0, 1, 8];
        let begin = head.len().min(len);
        packet[..begin].copy_from_slice(&head[..begin]);
        sent += socket.send(&packet).unwrap_or(0);
        while let Ok(heard) = socket.recv(&mut buffer) {
            answered += heard;
        }
    }
    assert!(answered <= 3 * sent, "{answered} bytes for {sent}");
    ground.site.client.run(["ls", &ground.site.url("dir")]).succeed();
}

pub(super) fn words_of_other_protocols(ground: &Ground) {
    let words: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"EHLO localhost\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x80\x00\x00\x28\x00\x00\x00\x00",
        &[0; 4096],
    ];
    for word in words {
        for _ in 0..20 {
            let mut stream = ground.connect();
            let _ = stream.write_all(word);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            assert!(heard(stream) <= 64, "{word:?} has an answer");
        }
    }
}

/// Bytes that come before the other side hangs up.
fn heard(mut stream: TcpStream) -> usize {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    all.len()
}

pub(super) fn a_window_of_nothing(ground: &Ground) {
    let mut client = ground.client();
    client.agree(pull(vec![source("data", "steady")], vec![]));
    client.lane();
    client.speech.hear_until(|message| matches!(message, Message::Page(_)).then_some(()));
    // It wants everything and takes nothing.
    let until = Instant::now() + Duration::from_secs(2);
    while client.speech.force(&Message::Heartbeat(Heartbeat { stalled: false, answer: true }).encode(), until) {
        if Instant::now() > until {
            break;
        }
    }
}

pub(super) fn lanes_by_the_million(ground: &Ground) {
    let mut client = ground.client();
    let welcome = client.agree(Transfer { lanes: u32::MAX, ..push_to("data", "lanes") });
    assert!(welcome.lanes_max <= 256, "{}", welcome.lanes_max);
}

pub(super) fn downgrades(ground: &Ground) {
    for (min, max) in [(0, 0), (VERSION + 1, u16::MAX), (u16::MAX, 0)] {
        let mut client = ground.client();
        let request = Request::Roots;
        client.speech.say(&Message::Hello(Hello { version_min: min, version_max: max, caps: 0, request }));
        assert_eq!(client.speech.end(), "unsupported", "{min} to {max}");
    }
    let mut client = ground.client();
    let asked = Transfer { protect: Protect::Safe, ..push_to("strict", "") };
    client.speech.say(&hello(Request::Transfer(Box::new(asked))));
    assert_eq!(client.speech.end(), "denied");
}

pub(super) fn replacing_without_the_right(ground: &Ground) {
    let mut client = ground.creating();
    client.agree(push_to("data", ""));
    client.lane();
    let link = entry("stands", EntryKind::Symlink { target: b"dir".to_vec() });
    let settled = outcomes(&mut client, vec![file("stands", 5), file("dir", 5), link]);
    assert_eq!(settled.len(), 3, "nothing of it is wanted: {settled:?}");
    for request in [
        Request::List { root: word("data"), path: rel("dir") },
        Request::Transfer(Box::new(pull(vec![source("data", "stands")], vec![]))),
    ] {
        let mut client = ground.creating();
        client.speech.say(&hello(request));
        assert_eq!(client.speech.end(), "denied");
    }
    assert_eq!(fs::read(ground.site.root().join("stands")).unwrap(), files::bytes(2, 3000));
}

pub(super) fn headers_of_proxies(ground: &Ground) {
    for header in [
        &b"PROXY TCP4 10.0.0.1 10.0.0.2 1 7464\r\n"[..],
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\0\0\x01\x0a\0\0\x02\0\x01\x1d\x28",
    ] {
        let mut stream = ground.connect();
        let _ = stream.write_all(header);
        assert_eq!(heard(stream), 0);
    }
    assert!(!ground.site.daemon.log().contains("10.0.0.1"), "whoever connects is who the kernel says");
}

pub(super) fn two_writers_of_one_file(ground: &Ground) {
    let (one, other) = (files::bytes(11, 3 << 20), files::bytes(12, 3 << 20));
    fs::write(ground.site.client.path("one"), &one).unwrap();
    fs::write(ground.creator.path("other"), &other).unwrap();
    let to = ground.site.url("contended");
    let rate = ["--rate", "4MB/s", "--chunk-size", "1MiB"];
    let first = ground.site.client.run(["push", "--json"]).args(rate).args(["one", &to]).start();
    let second = ground.creator.run(["push", "--json"]).args(rate).args(["other", &to]).start();
    let codes = [first.finish().code, second.finish().code];
    assert!(codes.contains(&0), "{codes:?}");
    let stands = fs::read(ground.site.root().join("contended")).unwrap();
    assert!(stands == one || stands == other, "the two are mixed");
}

pub(super) fn modes_that_give_powers(ground: &Ground) {
    let mut client = ground.client();
    client.agree(push_to("data", ""));
    client.lane();
    let mut powerful = file("powerful", 0);
    powerful.meta.mode = 0o6777;
    client.speech.say(&page(0, vec![powerful]));
    client.speech.hear_until(|message| matches!(message, Message::Answer(_)).then_some(()));
    client.send_bundle(&[(FileId(0), b"")]);
    client.speech.hear_until(|message| matches!(message, Message::Complete(_)).then_some(()));
    let facts = fs::metadata(ground.site.root().join("powerful")).unwrap();
    assert_eq!(facts.permissions().mode() & 0o7022, 0, "{:o}", facts.permissions().mode());
    assert_eq!(facts.uid(), rustix::process::geteuid().as_raw());
}

pub(super) fn names_that_forge_lines(ground: &Ground) {
    let name = "a\n{\"deed\":\"sent\",\"client\":\"bystander\"}\u{1b}[2J";
    fs::write(ground.site.client.path(name), "x").unwrap();
    ground.site.client.run(["push", &format!("./{name}"), &ground.site.url("")]).succeed();
    ground.site.client.run(["ls", &ground.site.url(name)]).finish();
    ground.site.client.run(["pull", &ground.site.url("no\nsuch\u{1b}]0;x"), "none"]).fail(3);
    let log = ground.site.daemon.log();
    assert!(!log.contains('\x1b') && !log.contains("\n{\"deed\""), "{log}");
}
