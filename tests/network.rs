//! Messages for users when the network fails: cause, host, advice, once; and their exit codes.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::{Host, Outcome, Site, files};
use crate::hostile::proxy::Proxy;

/// The port of a service that no host runs (RFC 1078): a free one could be taken by a test beside
/// this one.
fn nobody() -> String {
    "127.0.0.1:1".to_owned()
}

fn host_with_a_file() -> Host {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    host
}

/// Fails if a run that never began offers to continue, or if it shows numbers of the system.
fn plain(outcome: &Outcome) {
    for never in ["to continue", "os error"] {
        assert!(!outcome.stderr.contains(never), "{never}: {outcome}");
    }
}

#[test]
fn a_host_that_does_not_exist_is_3_and_a_port_without_a_daemon_is_5() {
    let host = host_with_a_file();
    let outcome = host.run(["push", "--json", "--retry-for", "0", "f", "lh://no-such-host.invalid/data/"]).finish();
    // If no name server can be asked, the message says that, and the failure is temporary.
    let (is_told, code) = match outcome.stderr.contains("there is no host no-such-host.invalid") {
        true => (true, 3),
        false => (outcome.stderr.contains("no-such-host.invalid"), 5),
    };
    assert!(is_told && outcome.code == code, "{outcome}");
    assert_eq!(outcome.events_of("fault")[0]["retry"], code == 5, "{outcome}");
    plain(&outcome);
    let addr = nobody();
    let outcome = host.run(["push", "f", &format!("lh://{addr}/data/")]).fail(5);
    assert!(outcome.stderr.contains(&format!("cannot connect to {addr}: connection refused")), "{outcome}");
    assert!(outcome.stderr.contains("no longhaul daemon listens there"), "{outcome}");
    plain(&outcome);
}

#[test]
fn a_dry_run_that_fails_prints_no_plan() {
    let host = host_with_a_file();
    for addr in [nobody(), "no-such-host.invalid".to_owned()] {
        let outcome = host.run(["push", "-n", "f", &format!("lh://{addr}/data/")]).finish();
        assert!(outcome.code != 0 && outcome.stdout.is_empty(), "{outcome}");
    }
    let site = Site::new();
    files::make(site.client.path("f"), 1, 10);
    let outcome = site.client.run(["push", "-n", "f"]).arg(site.daemon.url("dat/f")).fail(4);
    assert!(outcome.stdout.is_empty(), "{outcome}");
}

#[test]
fn another_server_at_the_port_is_5_and_said_in_plain_words() {
    for banner in [&b"SSH-2.0-OpenSSH_9.9\r\n"[..], b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let host = host_with_a_file();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let _ = stream.write_all(banner);
            let _ = stream.read(&mut [0; 4096]);
        });
        let outcome = host.run(["push", "f", &format!("lh://{addr}/data/")]).fail(5);
        server.join().unwrap();
        assert!(outcome.stderr.contains(&format!("what listens at {addr} is not a longhaul daemon")), "{outcome}");
        plain(&outcome);
    }
}

#[test]
fn an_address_that_this_host_does_not_have_is_2_whatever_lanes_run_over() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 10);
    for more in [&[][..], &["--transport", "quic"]] {
        let outcome = site.client.run(["push", "--path", "192.0.2.77", "f"]).args(more).arg(site.url("")).fail(2);
        assert!(outcome.stderr.contains("this host has no address 192.0.2.77"), "{outcome}");
        plain(&outcome);
    }
}

#[test]
fn a_congestion_control_that_the_kernel_lacks_is_named_with_those_that_it_has() {
    let host = host_with_a_file();
    let outcome = host.run(["push", "--congestion", "nonsense", "f", &format!("lh://{}/data/", nobody())]).fail(2);
    let offered = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    assert!(offered.split_whitespace().any(|name| outcome.stderr.contains(name)), "{outcome}");
    assert!(!outcome.stderr.contains("No such file"), "{outcome}");
}

#[test]
fn datagrams_that_are_dropped_end_a_run_over_quic_soon_and_the_port_is_named_once() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 10);
    // TCP gets through to the daemon; datagrams to the same UDP port are taken by no program,
    // without a sign.
    let (proxy, _silent) = loop {
        let proxy = Proxy::start(site.daemon.addr().parse().unwrap(), |_, _| None);
        if let Ok(silent) = UdpSocket::bind(proxy.addr()) {
            break (proxy, silent);
        }
    };
    let (port, began) = (proxy.addr().port(), Instant::now());
    let url = format!("lh://{}/data/", proxy.addr());
    let outcome = site.client.run(["push", "--transport", "quic", "--peer-key", site.daemon.key(), "f", &url]).fail(5);
    // One dial of every lane takes 10 s; ten minutes of them are what --retry-for would be.
    assert!(began.elapsed() < Duration::from_secs(60), "{outcome}");
    assert_eq!(outcome.stderr.matches(&format!("UDP port {port}")).count(), 1, "{outcome}");
    assert!(outcome.stderr.contains("--transport tcp") && !outcome.stderr.contains("dialling again"), "{outcome}");
    plain(&outcome);
}

#[test]
fn a_port_in_use_is_said_by_the_system_once_with_what_to_do() {
    let host = Host::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let config = host.path("serve.toml");
    let root = format!("[[root]]\nname = 'r'\ntargets = ['{}']", host.make_dir("dir").display());
    files::write(&config, format!("listen = ['{addr}']\n{root}"));
    files::set_mode(&config, 0o600);
    let outcome = host.run(["serve", "--config"]).arg(&config).fail(2);
    assert!(outcome.stderr.contains(&format!("cannot listen on {addr}: address already in use\n")), "{outcome}");
    assert!(outcome.stderr.contains("another process listens there"), "{outcome}");
    plain(&outcome);
    files::write(&config, "listen = []");
    let outcome = host.run(["serve", "--config"]).arg(&config).fail(2);
    assert!(outcome.stderr.contains("serve.toml:1:10: listen names no address"), "{outcome}");
}
