//! Peers that only take. They never read messages and never take the payload of a lane, and they
//! say the messages that make the other side remember most.
//!
//! Each attack goes on for five seconds against a real daemon or a real client of its own. The
//! victim must stay small in every case, and a daemon continues to serve its honest clients. A test
//! asserts the peak of the process's memory (VmHWM); the curve is printed, `cargo test --test main
//! adversary -- --nocapture` shows it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use longhaul_core::digest::{Digest, TreePart};
use longhaul_core::{Attempt, ChunkIndex, ChunkSize, Entry, EntryKind, FaultCode, FileId, LaneId, Unit};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{
    Answer, Finding, GrantedLanes, Heartbeat, Offer, Page, Request, Resume, Transport, Verdict, WantChunks,
};

use super::peer::{Client, Server, Speech, entry, file, hello, pull, push_to, rel, source, word};
use super::server::{fair, welcome};
use super::{assert_serves, client};
use crate::fixture::{DaemonConfig, Host, Site, files};

#[test]
fn daemon_stays_small_whatever_clients_that_pull_make_it_owe() {
    attack_daemons(PULLS);
}

#[test]
fn daemon_stays_small_whatever_clients_that_push_or_list_make_it_owe() {
    attack_daemons(PUSHES_AND_LISTINGS);
}

fn attack_daemons(attacks: &[Attack]) {
    for (name, attack) in attacks {
        let site = prey();
        let pid = site.daemon.pid();
        let until = Instant::now() + LASTING;
        let memory = watched(pid, || {
            attack(&site, until);
            // A session that is ended is begun anew. The daemon may refuse that one for what it
            // still holds for the one before.
            while Instant::now() < until {
                let _ = catch_unwind(AssertUnwindSafe(|| attack(&site, until)));
            }
        });
        eprintln!("daemon, {name}: {memory}");
        assert!(memory.peak_mib <= PEAK_MIB_MAX, "{name}: {memory}\n{}", site.daemon.log());
        assert_serves(&site, name);
    }
}

#[test]
fn client_stays_small_whatever_a_daemon_makes_it_owe() {
    for (name, words, attack) in DAEMONS {
        let (host, server) = (Host::new(), Server::start());
        fs::File::create(host.path("deep")).and_then(|deep| deep.set_len(DEEP)).unwrap();
        let url = format!("lh://{}/data/d/", server.addr());
        let words = words.iter().map(|word| if *word == "URL" { url.as_str() } else { word });
        let run = host.run(words.clone().take(1)).args(OPTIONS).args(["--peer-key", &server.key()]).args(words.skip(1));
        let running = run.start();
        let pid = running.pid().as_raw_nonzero().get();
        let until = Instant::now() + LASTING;
        let memory = watched(pid, || {
            let mut speech = server.accept_control();
            attack(&server, &mut speech, until);
        });
        eprintln!("client, {name}: {memory}");
        drop(running);
        assert!(memory.peak_mib <= PEAK_MIB_MAX, "{name}: {memory}");
    }
}

/// The memory that every session may keep besides its buffers is claimed from the memory of all:
/// the many sessions of one key take no more than that.
#[test]
fn daemon_stays_small_whatever_as_many_sessions_as_one_key_may_have_make_it_owe() {
    let site = Site::with(DaemonConfig::default().line("[limits]\nsessions = 64\nmemory = '1GiB'"));
    let until = Instant::now() + LASTING;
    let memory = watched(site.daemon.pid(), || {
        let clients: Vec<Client> = (0..SESSIONS)
            .map(|_| {
                let mut client = client(&site);
                client.agree(push_to("data", ""));
                client.lane();
                client
            })
            .collect();
        thread::scope(|scope| {
            for mut client in clients {
                scope.spawn(move || {
                    send_pages(&mut client.speech, until, |n| file(&format!("{}/{n}", "d".repeat(200)), u64::MAX));
                });
            }
        });
    });
    eprintln!("daemon, {SESSIONS} sessions: {memory}");
    assert!(memory.peak_mib <= SESSIONS_PEAK_MIB_MAX, "{memory}\n{}", site.daemon.log());
    assert_serves(&site, "many sessions");
}

#[test]
fn what_a_session_held_goes_back_to_the_system_when_it_has_ended() {
    let site = prey();
    let pid = site.daemon.pid();
    // Once, so that what a daemon keeps of its first session is no part of the figures.
    assert_serves(&site, "before");
    let idle = resident(pid, "VmRSS:").unwrap();
    let held = {
        let mut client = client(&site);
        client.agree(push_to("data", ""));
        client.lane();
        announce(&mut client.speech);
        resident(pid, "VmRSS:").unwrap()
    };
    assert!(held > idle + HELD_MIB_MIN, "a session of many names holds memory: {idle} MiB, then {held}");
    let until = Instant::now() + GIVEN_BACK_MAX;
    let most = idle + (held - idle) / 2;
    let mut left = held;
    while left > most && Instant::now() < until {
        thread::sleep(PACE);
        left = resident(pid, "VmRSS:").unwrap();
    }
    assert!(left <= most, "{idle} MiB before, {held} MiB at its height, {left} MiB at the end\n{}", site.daemon.log());
}

/// An attack of a client on a daemon. It returns when the connection ends or the time is over.
type Attack = (&'static str, fn(&Site, Instant));

const PULLS: &[Attack] = &[
    ("heartbeats that want an answer", |site, until| {
        let mut client = pulling(site, "deep");
        flood(&mut client.speech, until, &heartbeats());
    }),
    ("chunks of 1 KiB that are wanted and given up", |site, until| {
        let mut client = pulling(site, "deep");
        want_and_judge(&mut client.speech, until, Some(10), Finding::GivenUp);
    }),
    ("chunks that are wanted and given up", |site, until| {
        let mut client = pulling(site, "deep");
        want_and_judge(&mut client.speech, until, None, Finding::GivenUp);
    }),
    ("chunks that are wanted and, before they come, wanted again", |site, until| {
        let mut client = pulling(site, "deep");
        want_and_judge(&mut client.speech, until, None, Finding::Again);
    }),
    ("files that are held in pieces without end", |site, until| {
        let mut client = pulling(site, "pieces");
        hold_in_pieces(&mut client.speech, until);
    }),
];

const PUSHES_AND_LISTINGS: &[Attack] = &[
    ("pages of files whose directory is missing", |site, until| pages(site, until, |n| file(&format!("d/{n}"), 0))),
    ("pages of files longer than any", |site, until| pages(site, until, |n| file(&format!("{n}"), u64::MAX))),
    ("pages of what was not sent", |site, until| pages(site, until, unsent)),
    ("directories that never end", |site, until| {
        let mut client = client(site);
        client.agree(push_to("data", ""));
        client.lane();
        directories(&mut client.speech, until);
    }),
    ("listings that are not read", |site, until| {
        let mut crowd = Vec::new();
        while Instant::now() < until {
            if crowd.len() < CROWD {
                let mut client = client(site);
                client.speech.say(&hello(Request::List { root: word("data"), path: rel("names") }));
                crowd.push(client);
            } else {
                thread::sleep(PACE);
            }
        }
    }),
];

/// An attack of a daemon on a client, with the words that the client is run with.
type Defence = (&'static str, &'static [&'static str], fn(&Server, &mut Speech, Instant));

const DAEMONS: &[Defence] = &[
    ("heartbeats that want an answer, to a pull", &["pull", "URL", "got/"], |server, speech, until| {
        let _lane = welcome(server, speech);
        flood(speech, until, &heartbeats());
    }),
    ("heartbeats that want an answer, to a push", &["push", "deep", "URL"], |server, speech, until| {
        let _lane = welcome(server, speech);
        flood(speech, until, &heartbeats());
    }),
    ("pages of what was not sent", &["pull", "URL", "got/"], |server, speech, until| {
        let _lane = welcome(server, speech);
        send_pages(speech, until, unsent);
    }),
    ("pages of files longer than any", &["pull", "URL", "got/"], |server, speech, until| {
        let _lane = welcome(server, speech);
        send_pages(speech, until, |n| file(&format!("{n}"), u64::MAX));
    }),
    ("directories that never end", &["pull", "URL", "got/"], |server, speech, until| {
        let _lane = welcome(server, speech);
        directories(speech, until);
    }),
    ("chunks of 1 KiB that are wanted and given up", &["push", "deep", "URL"], |server, speech, until| {
        let _lane = welcome(server, speech);
        want_and_judge(speech, until, Some(10), Finding::GivenUp);
    }),
    (
        "chunks that are wanted and, before they come, wanted again",
        &["push", "deep", "URL"],
        |server, speech, until| {
            let _lane = welcome(server, speech);
            want_and_judge(speech, until, None, Finding::Again);
        },
    ),
    ("lanes without end", &["push", "deep", "URL"], |_, speech, until| {
        speech.hear();
        speech.say(&Message::Welcome(fair()));
        let mut first = 0;
        let more = move || {
            first += 1;
            Message::Lanes(GrantedLanes { first: LaneId(first), count: 1, transport: Transport::Tcp }).encode()
        };
        flood(speech, until, &std::iter::repeat_with(more).take(10_000).flatten().collect::<Vec<_>>());
    }),
];

/// A daemon with the files that attacks need.
fn prey() -> Site {
    let site = Site::new();
    fs::File::create(site.root().join("deep")).and_then(|deep| deep.set_len(DEEP)).unwrap();
    files::write(site.root().join("stands"), vec![7; 3 << 20]);
    fs::create_dir(site.root().join("pieces")).unwrap();
    for n in 0..HELD_FILES {
        let held = fs::File::create(site.root().join(format!("pieces/{n}")));
        held.and_then(|held| held.set_len(DEEP)).unwrap();
    }
    fs::create_dir(site.root().join("names")).unwrap();
    for n in 0..NAMES {
        files::write(site.root().join(format!("names/{n:0246}")), "");
    }
    site
}

/// A client with a session that pulls `name`, and a lane that it does not read.
fn pulling(site: &Site, name: &str) -> Client {
    let mut client = client(site);
    client.agree(pull(vec![source("data", name)], vec![]));
    client.lane();
    client
}

fn heartbeats() -> Vec<u8> {
    Message::Heartbeat(Heartbeat { stalled: false, answer: true }).encode().repeat(8192)
}

/// Says `bytes` again and again, and reads nothing.
fn flood(speech: &mut Speech, until: Instant, bytes: &[u8]) {
    while speech.force(bytes, until) {}
}

/// Pushes pages of entries that fail or are no files, as fast as a daemon may well have asked for
/// them.
fn pages(site: &Site, until: Instant, make: fn(u64) -> Entry) {
    let mut client = client(site);
    client.agree(push_to("data", ""));
    client.lane();
    send_pages(&mut client.speech, until, make);
}

fn send_pages(speech: &mut Speech, until: Instant, make: fn(u64) -> Entry) {
    let mut first = 0;
    loop {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while entries.len() < 1024 && bytes < 48 << 10 {
            let entry = make(first + entries.len() as u64);
            bytes += postcard_len(&entry);
            entries.push(entry);
        }
        let count = entries.len() as u64;
        let page = Message::Page(Page { first: FileId(first), last: false, entries });
        if !speech.force(&page.encode(), until) {
            return;
        }
        first += count;
        thread::sleep(PACE);
    }
}

fn postcard_len(entry: &Entry) -> usize {
    let page = |entries| Message::Page(Page { first: FileId(0), last: false, entries }).encode().len();
    page(vec![entry.clone()])
}

fn unsent(n: u64) -> Entry {
    entry(&format!("{n}"), EntryKind::Unsent { failure: Some(FaultCode::Io), why: "".into() })
}

/// Wants all chunks of the first file, of a size given as a power of two or as agreed (`None`), and
/// gives the same verdict for each at once.
fn want_and_judge(speech: &mut Speech, until: Instant, log2: Option<u8>, finding: Finding) {
    let file = offered(speech, 1)[0];
    if let Some(chunk) = log2.map(|log2| ChunkSize::from_log2(log2).unwrap()) {
        speech.say(&Message::Resume(Resume { file, chunk, parts: vec![], more: false }));
    }
    let mut start = 0;
    loop {
        let units = (start..start + 1024).map(|n| Unit::Chunk { file, index: ChunkIndex(n) });
        let verdict = |unit| Verdict { unit, attempt: Attempt::FIRST, finding };
        let mut words = Message::WantChunks(WantChunks { file, start: ChunkIndex(start), count: 1024 }).encode();
        words.extend(Message::Verdicts(units.map(verdict).collect()).encode());
        if !speech.force(&words, until) {
            return;
        }
        start += 1024;
    }
}

/// Announces for one file after the other that one chunk in two is held: in more pieces than a
/// sender remembers of all files together.
fn hold_in_pieces(speech: &mut Speech, until: Instant) {
    let chunk = ChunkSize::from_log2(20).unwrap();
    let part = |n| TreePart { start: ChunkIndex(n), chunks: 1, digest: Digest::Cv([7; 32]) };
    for file in offered(speech, HELD_FILES) {
        for first in (0..DEEP >> 20).step_by(2048) {
            let parts = (first..first + 2048).step_by(2).map(part).collect();
            let resume = Message::Resume(Resume { file, chunk, parts, more: true });
            if !speech.force(&resume.encode(), until) {
                return;
            }
        }
    }
}

/// Has the sender tell its pages until there were `count` files, and wants these. Returns them, and
/// reads nothing from then on.
fn offered(speech: &mut Speech, count: usize) -> Vec<FileId> {
    speech.say(&Message::Offer(Offer { pages: 8, renamed: None, base: "".into() }));
    let mut files = Vec::new();
    while files.len() < count {
        let page = speech.hear_until(|message| match message {
            Message::Page(page) => Some(page),
            _ => None,
        });
        let page = page.expect("a page");
        let mut wanted = vec![0; page.entries.len().div_ceil(8)];
        for (at, _) in page.entries.iter().enumerate().filter(|(_, e)| matches!(e.kind, EntryKind::File { .. })) {
            wanted[at / 8] |= 1 << (at % 8);
            files.push(FileId(page.first.0 + at as u64));
        }
        speech.say(&Message::Answer(Answer { first: page.first, wanted }));
    }
    files
}

/// Names files whose content never comes, page by page as they are taken.
fn announce(speech: &mut Speech) {
    for page in 0..ANNOUNCED_PAGES {
        let first = page * 1024;
        let entries = (first..first + 1024).map(|n| file(&format!("{n}"), 9 << 20)).collect();
        speech.say(&Message::Page(Page { first: FileId(first), last: false, entries }));
        let answered = |message| matches!(message, Message::Answer(_)).then_some(());
        speech.hear_until(answered).expect("an answer");
    }
}

/// Names directories that are never ended, each with the longest possible path. Reads its messages,
/// so that its credit grows.
fn directories(speech: &mut Speech, until: Instant) {
    let mut dir = String::new();
    let mut deep = Vec::new();
    for level in 0..14 {
        dir = format!("{dir}{}{level:0>250}", if level == 0 { "" } else { "/" });
        deep.push(entry(&dir, EntryKind::Dir));
    }
    let mut first = 0;
    let mut entries = deep;
    while Instant::now() < until {
        let count = entries.len() as u64;
        let page = Message::Page(Page { first: FileId(first), last: false, entries });
        let answered = |message| matches!(message, Message::Answer(_)).then_some(());
        if !speech.force(&page.encode(), until) || speech.hear_until(answered).is_none() {
            return;
        }
        first += count;
        entries = (first..first + 16).map(|n| entry(&format!("{dir}/{n}"), EntryKind::Dir)).collect();
    }
}

/// A process's memory during an attack.
struct Memory {
    /// Resident MiB at each half of a second.
    curve: Vec<u64>,
    peak_mib: u64,
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} MiB resident each half second, peak {} MiB", self.curve, self.peak_mib)
    }
}

/// Attacks a process and watches its memory meanwhile.
fn watched(pid: i32, attack: impl FnOnce()) -> Memory {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // An attack that panics ends the watch as well: the scope waits for it.
        let at_end = AtEnd(&over);
        let watching = scope.spawn(|| {
            let mut curve = vec![resident(pid, "VmRSS:")];
            while !over.load(Ordering::Relaxed) {
                thread::park_timeout(Duration::from_millis(500));
                curve.push(resident(pid, "VmRSS:"));
            }
            // A process that has ended has none.
            let peak = curve.iter().flatten().copied().max().unwrap_or(0);
            let peak_mib = resident(pid, "VmHWM:").unwrap_or(peak);
            Memory { curve: curve.into_iter().flatten().collect(), peak_mib }
        });
        attack();
        drop(at_end);
        watching.thread().unpark();
        watching.join().unwrap()
    })
}

/// Says that something is over when it is dropped.
struct AtEnd<'o>(&'o AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// MiB of a process's memory.
fn resident(pid: i32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib >> 10)
}

/// The duration of each attack.
const LASTING: Duration = Duration::from_secs(5);
/// Pages of 1,024 names: half of what a session may have without outcome.
const ANNOUNCED_PAGES: u64 = 16;
/// How long memory may take to go back: the daemon does it at once, and again a second later.
const GIVEN_BACK_MAX: Duration = Duration::from_secs(15);
/// The least memory, in MiB, that a session of many names must hold for its end to be seen.
const HELD_MIB_MIN: u64 = 8;
/// The time between two steps of an attack that must not outrun its credit.
const PACE: Duration = Duration::from_millis(8);
/// The most memory of a process: an idle daemon of this build has 28 MiB, and two sessions' bounds
/// are some more. An attack that is begun anew may meet the session of the one before.
const PEAK_MIB_MAX: u64 = 96;
/// The sessions that one key may have of 64.
const SESSIONS: usize = 48;
/// The most memory of a daemon with many such sessions: none of their buffers is filled.
const SESSIONS_PEAK_MIB_MAX: u64 = 512;
/// The length of a file without content.
const DEEP: u64 = 64 << 30;
/// Files that are held in pieces: a sender remembers 131,072 pieces, and one chunk in two of each
/// of these is 32,768.
const HELD_FILES: usize = 8;
/// Names in the listed directory.
const NAMES: u64 = 20_000;
const CROWD: usize = 100;
/// The options of clients: one try and little memory for payload.
const OPTIONS: [&str; 9] = ["--json", "--retry-for", "0", "--lanes", "1", "--chunk-size", "1MiB", "--memory", "8MiB"];
