//! Tests of delay, rate, queue and loss: the settings against the measured values. Takes the kit's
//! networks.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::kit::{Datagrams, change, content, forward, link, number, stream, wan, wan_of};

#[test]
#[ignore = "needs root"]
fn a_round_trip_takes_what_was_asked_for() {
    let wan = wan(vec![link("rtt=40ms")]);
    let Datagrams { near, far } = Datagrams::new(&wan, 0);
    far.set_nonblocking(false).unwrap();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut room = [0; 8];
            for _ in 0..50 {
                let (len, from) = far.recv_from(&mut room).unwrap();
                far.send_to(&room[..len], from).unwrap();
            }
        });
        let trip = |at: u32| {
            let began = Instant::now();
            near.send(&at.to_be_bytes()).unwrap();
            near.recv(&mut [0; 8]).unwrap();
            began.elapsed()
        };
        (0..50).map(trip).collect()
    });
    times.sort();
    assert!(times[0] >= Duration::from_millis(40), "never faster than the path: {:?}", times[0]);
    assert!(times[25] < Duration::from_millis(40 + 12 + 10), "median {:?}", times[25]);
}

#[test]
#[ignore = "needs root"]
fn tcp_gets_the_rate_and_never_more() {
    let wan = wan(vec![link("rate=100Mbit/s,rtt=4ms")]);
    let goodput = || {
        let (arrived, time) = stream(&wan, wan.far().address(0).into(), 25_000_000);
        assert!(arrived == content(25_000_000), "the stream arrived as it was sent");
        let goodput = 25e6 * 8.0 / time.as_secs_f64() / 1e6;
        assert!(goodput < 100.5, "{goodput} Mbit/s");
        goodput
    };
    // Others on the machine make it slower: of a few the best counts.
    let tried: Vec<_> = (0..5).map(|_| goodput()).collect();
    assert!(tried.iter().any(|goodput| *goodput > 60.0), "{tried:?} Mbit/s");
    let counted = forward(&wan);
    assert!(counted.frames * 3 < counted.packets * 2, "the sender's offloads are used: {counted:?}");
    assert_eq!((counted.dropped_emulator, counted.dropped_device), (0, 0));
}

#[test]
#[ignore = "needs root"]
fn a_share_of_packets_is_lost_and_the_seed_says_which() {
    let lost = |seed| {
        let wan = wan_of(vec![link("loss=5%")], seed);
        let arrived = Datagrams::new(&wan, 0).send_all(&wan, 10_000, 40);
        let counted = forward(&wan);
        assert_eq!(arrived.len() as u64 + counted.dropped_loss, 10_000, "{counted:?}");
        let arrived: BTreeSet<_> = arrived.iter().map(|datagram| number(datagram)).collect();
        (0..10_000).filter(|number| !arrived.contains(number)).collect::<Vec<_>>()
    };
    let first = lost(7);
    // Five standard deviations of 10,000 throws at 5 %.
    assert!((391..=609).contains(&first.len()), "{} lost", first.len());
    assert_eq!(first, lost(7));
    assert_ne!(first, lost(8));
}

#[test]
#[ignore = "needs root"]
fn a_burst_beyond_the_queue_is_dropped_at_its_tail() {
    // 1028 bytes with headers; 10 of them wait, sending one takes 0.8 s.
    let wan = wan(vec![link("rate=10kbit/s,queue=10280")]);
    let sockets = Datagrams::new(&wan, 0);
    for number in 0..30 {
        sockets.near.send(&crate::kit::datagram(number, 1000)).unwrap();
    }
    crate::kit::until(|| forward(&wan).packets == 30);
    let counted = forward(&wan);
    assert!((18..=20).contains(&counted.dropped_queue), "{counted:?}");
    assert!((9_300..=10_280).contains(&counted.queue_bytes_max), "{counted:?}");
    wan.change(0, None, &change("rate=none")).unwrap();
    crate::kit::until(|| forward(&wan).delivered_packets == 30 - counted.dropped_queue);
}
