//! The forty bad inputs that a tester throws at a daemon, each by its number. One oracle judges
//! them: no panic, nothing outside of the root read or written, bounded memory and descriptors, a
//! record in the audit log, another client that goes on, and a daemon that is ready afterwards.
//! The table says of every input that is not thrown here which tests have it, or why none can.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{client, daemon_addr, identity, some_at_once};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Running, Site, files};

mod thrown;

/// The tests of an input.
enum Tested {
    /// It is thrown here.
    Here(fn(&Ground)),
    /// These tests have it, all of them against running processes.
    Elsewhere(&'static [&'static str]),
    /// The input needs something that longhaul does not have.
    Foreign(Reason),
}

/// The reason why an input does not concern a daemon of longhaul.
type Reason = &'static str;

use Tested::{Elsewhere, Foreign, Here};

/// The inputs by their numbers, from 1.
const FORTY: [(&str, Tested); 40] = [
    ("names that are none", Here(thrown::names_that_are_none)),
    ("names of odd bytes", Here(thrown::names_of_odd_bytes)),
    ("links that lead outside", Here(thrown::links_that_lead_outside)),
    (
        "a parent that is exchanged for a link again and again",
        Elsewhere(&[
            "swaps::nothing_outside_is_touched_while_files_arrive",
            "swaps::nothing_outside_is_listed",
            "swaps::nothing_outside_is_sent",
        ]),
    ),
    ("fifos, devices, directories and foreign files", Here(thrown::things_that_are_no_files)),
    ("one path twice, and a file that is a directory", Here(thrown::one_path_twice)),
    ("counts and numbers that overflow", Here(thrown::numbers_that_overflow)),
    ("lengths of exabytes", Here(thrown::lengths_of_exabytes)),
    ("a source that changes while it is read", Here(thrown::a_source_that_changes)),
    ("chunks beyond the end, and twice with other bytes", Here(thrown::chunks_out_of_place)),
    ("chunk sizes that make no sense", Here(thrown::chunk_sizes_that_make_no_sense)),
    ("digests that are too short, and frames that are cut", Here(thrown::frames_that_are_cut)),
    ("the right length and wrong bytes", Here(thrown::wrong_bytes)),
    ("connections that say nothing, or a byte now and then", Here(thrown::silence)),
    ("handshakes without end", Elsewhere(&["hostile::churn::hellos_by_the_thousand_keep_nobody_out"])),
    ("forged senders of datagrams", Here(thrown::datagrams)),
    ("words of other protocols", Here(thrown::words_of_other_protocols)),
    ("acknowledgements of what was never sent", Foreign("the kernel's TCP and quinn judge acknowledgements")),
    ("a window of nothing", Here(thrown::a_window_of_nothing)),
    ("times that make no sense", Elsewhere(&["hostile::bench::measurements_that_make_no_sense_are_refused"])),
    ("lanes by the million", Here(thrown::lanes_by_the_million)),
    ("bombs", Foreign("nothing is compressed; holes are bounded by what was announced: hostile::senders")),
    ("downgrades", Here(thrown::downgrades)),
    ("what was recorded, again", Elsewhere(&["hostile::joins::a_recorded_join_is_good_for_no_second_connection"])),
    ("forged tokens", Foreign("there are no tokens")),
    ("issuers of tokens", Foreign("there are no issuers")),
    ("replacing without the right", Here(thrown::replacing_without_the_right)),
    (
        "a token that ends in mid-file",
        Elsewhere(&[
            "reload::who_loses_the_right_that_a_session_needs_is_denied_and_goes_on_where_it_ended_once_it_has_it_again",
        ]),
    ),
    ("requests of one server to another", Foreign("no daemon dials for a client, and none speaks HTTP to clients")),
    ("headers of proxies", Here(thrown::headers_of_proxies)),
    ("rules that name hosts", Foreign("rules name keys, never hosts")),
    ("user names that map to nobody or to root", Elsewhere(&["users::a_mapping_that_fails_denies"])),
    (
        "disks that are full or fail",
        Elsewhere(&[
            "hostile::full::a_full_disk_ends_the_transfer_as_unable_and_keeps_only_what_can_be_continued",
            "hostile::full::a_disk_mounted_read_only_ends_the_transfer_as_unable",
        ]),
    ),
    (
        "kills at any time, and journals that are damaged",
        Elsewhere(&["kills::a_push_survives_every_kill", "kills::a_pull_survives_every_kill"]),
    ),
    ("two writers of one file", Here(thrown::two_writers_of_one_file)),
    ("clocks that jump", Foreign("a test cannot turn this host's clock; timers use the monotonic one")),
    ("modes and attributes that give powers", Here(thrown::modes_that_give_powers)),
    (
        "a configuration that others planted",
        Elsewhere(&["daemon::files_that_somebody_else_could_change_are_refused_with_the_command_that_mends_them"]),
    ),
    (
        "a server that sends what nobody asked for",
        Elsewhere(&[
            "hostile::server::names_that_were_not_asked_for_are_not_taken",
            "hostile::server::what_a_client_did_not_ask_for_it_does_not_agree_to",
        ]),
    ),
    ("names and texts that forge lines", Here(thrown::names_that_forge_lines)),
];

/// A daemon with an audit log, a client that means ill, one that only may create, and one that
/// pulls all the while.
///
/// ```text
/// data/steady   data/stands   data/dir/real   data/dir/deep -> ../../outside
/// data/out -> ../outside   data/leaf -> ../outside/secret   data/magic -> /proc/self/mem
/// data/foreign = outside/foreign   data/fifo
/// ```
pub(super) struct Ground {
    pub(super) site: Site,
    pub(super) creator: Host,
    bystander: Host,
    outside: PathBuf,
    before: Tree,
}

impl Ground {
    fn new() -> Ground {
        let (client, creator, bystander, server) = (Host::new(), Host::new(), Host::new(), Host::new());
        let root = server.make_dir("data");
        let outside = server.make_dir("outside");
        files::make(outside.join("secret"), 66, 3000);
        files::make(outside.join("foreign"), 67, 3000);
        files::make(root.join("steady"), 1, 24 << 20);
        files::make(root.join("stands"), 2, 3000);
        files::make(root.join("dir/real"), 3, 1000);
        files::link("../../outside", root.join("dir/deep"));
        files::link("../outside", root.join("out"));
        files::link("../outside/secret", root.join("leaf"));
        files::link("/proc/self/mem", root.join("magic"));
        files::make_special(root.join("fifo"), rustix::fs::FileType::Fifo);
        let before = Tree::of(&outside);
        fs::hard_link(outside.join("foreign"), root.join("foreign")).unwrap();
        let http = format!("http = 'unix:{}'", server.path("http.sock").display());
        let config = DaemonConfig::default().watch("audit = 'audit.jsonl'").watch(&http).root_line("reserve = '1%'");
        let config = config.root("data", &root, ALL_RIGHTS).root_protected(
            "strict",
            &server.make_dir("strict"),
            "read,create",
            "private",
        );
        let config = config.client("tester", client.key(), &[("data", ALL_RIGHTS), ("strict", "read,create")]);
        let config = config.client("creator", creator.key(), &[("data", "create")]);
        let daemon = config.client("bystander", bystander.key(), &[("data", "read")]).start(&server);
        for host in [&client, &creator, &bystander] {
            host.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
        }
        Ground { site: Site { client, server, daemon }, creator, bystander, outside, before }
    }

    /// A connection of the client that means ill.
    pub(super) fn client(&self) -> super::peer::Client {
        client(&self.site)
    }

    /// One of the client that only may create.
    pub(super) fn creating(&self) -> super::peer::Client {
        super::peer::Client::dial(daemon_addr(&self.site), identity(&self.creator))
    }

    /// Records of the audit log about anybody but the bystander. Each line of it must be one.
    fn records(&self) -> usize {
        let text = fs::read_to_string(self.site.server.path("audit.jsonl")).unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        let record = |line: &str| -> serde_json::Value {
            serde_json::from_str(line).unwrap_or_else(|e| panic!("a line that is no record: {line}: {e}"))
        };
        text[..whole].lines().map(record).filter(|record| record["client"] != "bystander").count()
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.site.daemon.pid())).unwrap().count()
    }

    fn peak_mib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.site.daemon.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    }

    /// Throws one input and judges what became of it. `is_recorded`: somebody was known by then, or
    /// refused, so that there must be a record.
    fn judge(&self, number: usize, input: &str, throw: fn(&Ground)) {
        let what = format!("input {number}, {input}");
        let going_on = self.go_on();
        let (records, descriptors) = (self.records(), self.descriptors());
        let (from, begun) = (received(&going_on), Instant::now());
        throw(self);
        let judged = |holds: &dyn Fn() -> bool, of: &str| {
            let until = Instant::now() + Duration::from_secs(60);
            while !holds() {
                assert!(Instant::now() < until, "{what}: {of}\n{}", self.site.daemon.log());
                std::thread::yield_now();
            }
        };
        judged(&|| received(&going_on) > from || self.bystander.path("got/steady").exists(), "the other client stands");
        if crate::fixture::random::variable("LONGHAUL_FORTY_RATE").is_some() {
            self.assert_rate(&going_on, (from, begun), &what);
        }
        // Connections that never became anybody's are in no file of deeds.
        if !NOBODY.contains(&number) {
            judged(&|| self.records() > records, "no record in the audit log");
        }
        super::assert_sane(&self.site, &what);
        tree::assert_same(&self.before, &Tree::of(&self.outside), format!("outside of the root after {what}"));
        assert!(self.peak_mib() <= PEAK_MIB_MAX, "{what}: {} MiB", self.peak_mib());
        going_on.finish();
        judged(&|| self.descriptors() <= descriptors, "descriptors are left open");
        judged(&|| self.is_ready(), "it is not ready");
        self.site.client.run(["ls", &self.site.url("dir")]).succeed();
    }

    /// The bystander pulls at a rate that leaves it busy for some seconds.
    fn go_on(&self) -> Running {
        let rate = ["--rate", "8MB/s", "--lanes", "2"];
        let run = self.bystander.run(["pull", "--json"]).args(rate).args([&self.site.url("steady"), "got/"]);
        let running = run.start();
        running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 0));
        running
    }

    /// Holds if the bystander keeps 90 % of its rate, for whoever asks for it on a host that is
    /// idle.
    fn assert_rate(&self, going_on: &Running, (from, begun): (u64, Instant), what: &str) {
        let seen = received(going_on);
        // Where it was done while the input still came, its summary has the rate.
        let rate = going_on.wait_event(|event| match event["type"].as_str() {
            Some("summary") => event["bytes_per_s"].as_f64(),
            _ => {
                let later = event["bytes_received"].as_u64().filter(|bytes| *bytes > seen)?;
                Some((later - from) as f64 / begun.elapsed().as_secs_f64())
            }
        });
        println!("{what}: {:.0} % of the other client's rate", rate / 8e4);
        assert!(rate >= 0.9 * 8e6, "{what}: {rate:.0} bytes/s");
    }

    fn is_ready(&self) -> bool {
        let mut stream = UnixStream::connect(self.site.server.path("http.sock")).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.starts_with("HTTP/1.1 200")
    }

    /// A bare connection.
    pub(super) fn connect(&self) -> TcpStream {
        TcpStream::connect(daemon_addr(&self.site)).unwrap()
    }

    /// A socket that sends datagrams to the daemon.
    pub(super) fn datagrams(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(daemon_addr(&self.site)).unwrap();
        socket
    }
}

fn received(running: &Running) -> u64 {
    running.last_so_far("bytes_received").unwrap_or(0)
}

#[test]
fn each_of_the_forty_bad_inputs_leaves_a_daemon_that_is_sane_confined_and_ready() {
    let thrown = FORTY.iter().enumerate().filter_map(|(at, (input, tested))| match tested {
        Here(throw) => Some((at + 1, *input, *throw)),
        Elsewhere(_) | Foreign(_) => None,
    });
    some_at_once(thrown, |(number, input, throw)| Ground::new().judge(number, input, throw));
}

#[test]
fn tests_that_are_named_for_a_bad_input_exist() {
    let list = std::process::Command::new(std::env::current_exe().unwrap()).args(["--list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    for (input, tested) in &FORTY {
        if let Foreign(reason) = tested {
            assert!(!reason.is_empty(), "{input}");
        }
        if let Elsewhere(tests) = tested {
            for test in *tests {
                assert!(list.lines().any(|line| line == format!("{test}: test")), "{input}: {test}");
            }
        }
    }
}

/// Inputs of strangers that show no key.
const NOBODY: [usize; 4] = [14, 16, 17, 30];
/// The most memory of the daemon: an idle one has 20 MiB or so, and each session some more.
const PEAK_MIB_MAX: u64 = 160;
