//! The daemon beneath a service manager that speaks systemd's protocol: what it tells, and the
//! sockets that it is given.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::Signal;

use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, files};

/// The end of a manager to which daemons talk.
struct Manager(UnixDatagram);

impl Manager {
    fn new(host: &Host) -> Manager {
        let socket = UnixDatagram::bind(host.path("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Manager(socket)
    }

    /// The lines of the next message.
    fn next(&self) -> Vec<String> {
        let mut message = [0; 1024];
        let len = self.0.recv(&mut message).expect("the daemon tells something in time");
        String::from_utf8_lossy(&message[..len]).lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_manager_is_told_when_the_daemon_accepts_that_it_lives_and_when_it_stops() {
    for is_watched in [true, false] {
        let host = Host::new();
        let manager = Manager::new(&host);
        let config = DaemonConfig::default().root("r", &host.make_dir("dir"), "read");
        let daemon = config.start_as(&host, |run| {
            let run = run.env("NOTIFY_SOCKET", host.path("notify"));
            if is_watched { run.env("WATCHDOG_USEC", "300000") } else { run }
        });
        assert_eq!(manager.next(), ["READY=1", "STATUS=serving 1 root to 0 clients"]);
        if is_watched {
            for _ in 0..3 {
                assert_eq!(manager.next(), ["WATCHDOG=1"]);
            }
        }
        daemon.signal(Signal::TERM);
        let mut told = manager.next();
        while is_watched && told == ["WATCHDOG=1"] {
            told = manager.next();
        }
        assert_eq!(told[0], "STOPPING=1");
        assert_eq!(daemon.finish().code, 0);
    }
}

#[test]
fn a_daemon_listens_at_the_sockets_that_its_manager_passes_and_not_where_its_config_says() {
    let (client, server) = (Host::new(), Host::new());
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = tcp.local_addr().unwrap();
    let udp = UdpSocket::bind(addr).unwrap();
    let dir = server.make_dir("data");
    // An address that no test may listen at.
    let config = DaemonConfig::default()
        .listen("192.0.2.1")
        .root("data", &dir, ALL_RIGHTS)
        .client("tester", client.key(), &[("data", ALL_RIGHTS)])
        .write(&server);
    // The manager passes its sockets from descriptor 3 on, in any order.
    let passes = "exec 3<&0 4<&2 </dev/null 2>log; export LISTEN_PID=$$ LISTEN_FDS=2; exec \"$@\"";
    let run = server.run(["serve", "--json", "--config"]).arg(&config).beneath(["sh", "-c", passes, "sh"]);
    let daemon = Daemon::start(run.stdin_of(udp).stderr_of(tcp));
    assert_eq!(daemon.addr(), addr.to_string());
    client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    files::make(client.path("f"), 1, 3 << 20);
    for transport in ["tcp", "quic"] {
        let to = daemon.url(&format!("data/{transport}"));
        client.run(["push", "--transport", transport, "f", &to]).succeed();
    }
    let log = std::fs::read_to_string(server.path("log")).unwrap();
    assert!(log.contains("the service manager passed 2 sockets"), "{log}");
}

#[test]
fn a_number_of_sockets_that_were_not_passed_is_an_error_and_that_of_another_process_is_none() {
    let host = Host::new();
    let config = DaemonConfig::default().root("r", &host.make_dir("dir"), "read").write(&host);
    let lies = "export LISTEN_PID=$$ LISTEN_FDS=900; exec \"$@\"";
    let serve = || host.run(["serve", "--json", "--config"]).arg(&config);
    let outcome = serve().beneath(["sh", "-c", lies, "sh"]).finish();
    assert!(outcome.code != 0 && outcome.stderr.contains("LISTEN_FDS"), "{outcome}");
    let connected = std::os::unix::net::UnixStream::pair().unwrap().0;
    let passes = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";
    let outcome = serve().beneath(["sh", "-c", passes, "sh"]).stdin_of(connected).fail(2);
    assert!(outcome.stderr.contains("descriptor 3: it is no socket of IPv4 or IPv6"), "{outcome}");
    let daemon = Daemon::start(serve().env("LISTEN_PID", "1").env("LISTEN_FDS", "900"));
    assert!(daemon.addr().starts_with("127.0.0.1:"), "{}", daemon.addr());
}
