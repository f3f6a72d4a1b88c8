//! Tests of firewalls, holes, outages, changes in flight, several links. Takes the kit's networks.

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use longhaul_wan::{Config, Direction, Link, Path, Tuning, Wan};

use crate::kit::{Datagrams, change, connection, datagram, forward, link, stream, until, wan};

#[test]
#[ignore = "needs root"]
fn a_firewall_that_blocks_udp_lets_tcp_pass() {
    let wan = wan(vec![link("block=udp+icmp")]);
    let arrived = Datagrams::new(&wan, 0).send_all(&wan, 100, 100);
    assert_eq!((arrived.len(), forward(&wan).dropped_blocked), (0, 100));
    let (arrived, _) = stream(&wan, wan.far().address(0).into(), 100_000);
    assert_eq!(arrived.len(), 100_000);
}

#[test]
#[ignore = "needs root"]
fn packets_vanish_in_a_hole_unless_they_are_small() {
    let wan = wan(vec![Link { mtu: 9000, ..link("hole=1500,block=icmp") }]);
    let sockets = Datagrams::new(&wan, 0);
    let sizes = [1472, 1473, 8972, 100];
    for (number, bytes) in (0..).zip(sizes) {
        sockets.near.send(&datagram(number, bytes)).unwrap();
    }
    until(|| forward(&wan).packets == 4);
    let counted = forward(&wan);
    assert_eq!((counted.dropped_hole, counted.delivered_packets), (2, 2), "{counted:?}");
}

#[test]
#[ignore = "needs root"]
fn a_device_without_offloads_gets_single_packets_with_their_checksums() {
    for offloads in [true, false] {
        let wan = wan(vec![Link { offloads, ..link("rate=200Mbit/s,rtt=2ms") }]);
        let (arrived, _) = stream(&wan, wan.far().address(0).into(), 2_000_000);
        assert_eq!(arrived.len(), 2_000_000);
        let counted = forward(&wan);
        assert_eq!(counted.frames < counted.packets, offloads, "{counted:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn an_outage_comes_and_goes_by_the_schedule_and_tcp_survives_it() {
    let mut link = link("rate=50Mbit/s,rtt=2ms");
    link.cut(Duration::from_millis(300), Duration::from_millis(500));
    let began = Instant::now();
    let wan = wan(vec![link]);
    let (arrived, _) = stream(&wan, wan.far().address(0).into(), 4_000_000);
    assert_eq!(arrived.len(), 4_000_000);
    assert!(began.elapsed() >= Duration::from_millis(800), "it was over before the link was up again");
    assert!(forward(&wan).dropped_outage > 0);
}

#[test]
#[ignore = "needs root"]
fn a_link_changes_in_flight_in_one_direction_or_both() {
    let wan = wan(vec![link("rtt=0")]);
    let (mut near, mut far) = connection(&wan, wan.far().address(0).into());
    let mut room = [0; 4];
    wan.change(0, Some(Direction::Backward), &change("delay=150ms")).unwrap();
    let began = Instant::now();
    near.write_all(b"ping").unwrap();
    far.read_exact(&mut room).unwrap();
    let there = began.elapsed();
    far.write_all(b"pong").unwrap();
    near.read_exact(&mut room).unwrap();
    assert!(there < Duration::from_millis(150), "only the way back is long: {there:?}");
    assert!(began.elapsed() >= Duration::from_millis(150), "{:?}", began.elapsed());

    let lost = |wan: &Wan| forward(wan).dropped_outage;
    wan.change(0, None, &change("link=down")).unwrap();
    near.write_all(b"ping").unwrap();
    until(|| lost(&wan) > 0);
    wan.change(0, None, &change("link=up,delay=0")).unwrap();
    far.read_exact(&mut room).unwrap();
    assert!(wan.change(1, None, &change("link=up")).is_err(), "there is no such link");
}

#[test]
#[ignore = "needs root"]
fn commands_run_on_their_host_however_they_are_sent_there() {
    let wan = Wan::new(&Config {
        tuning: Tuning { sysctls: vec![("net.ipv4.tcp_mtu_probing".into(), "2".into())], ..Tuning::default() },
        ..Config::default()
    })
    .unwrap();
    let said = |command: &mut Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
    let ask = ["/proc/thread-self/net/fib_trie", "/proc/sys/net/ipv4/tcp_mtu_probing", "/proc/sys/net/ipv4/tcp_wmem"];
    for (host, address) in [(wan.near(), "10.77.0.1"), (wan.far(), "10.77.0.2")] {
        let [program, args @ ..] = host.prefix();
        for said in [said(host.command("cat").args(ask)), said(Command::new(program).args(args).arg("cat").args(ask))] {
            let words = said.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&format!("{address} /32 host LOCAL")), "{said}");
            assert!(words.ends_with(" 2 4096 16384 536870912"), "{said}");
        }
    }
    let unknown = Tuning { sysctls: vec![("net.ipv4.no_such_thing".into(), "1".into())], ..Tuning::default() };
    assert!(Wan::new(&Config { tuning: unknown, ..Config::default() }).is_err());
}

#[test]
#[ignore = "needs root"]
fn each_link_has_its_own_path_and_counters() {
    let wan = wan(vec![link("block=udp"), Link { forward: Path::default(), ..link("loss=1") }]);
    let arrived: Vec<_> = (0..2).map(|link| Datagrams::new(&wan, link)).collect();
    for sockets in &arrived {
        sockets.near.send(&[0; 10]).unwrap();
    }
    until(|| {
        let counted = wan.counters().unwrap();
        (counted[0].forward.dropped_blocked, counted[1].forward.delivered_packets) == (1, 1)
    });
}
